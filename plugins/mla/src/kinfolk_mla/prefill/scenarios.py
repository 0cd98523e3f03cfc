"""The inputs on which prefill of projected queries is run: each a situation that some plausible mistake gets wrong.

A batch is its own: one sequence has the most queries that the request allows, the others few. What must not be read is
poisoned as for decode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check import Scenario, numpy_dtype
from kinfolk.expr import Scope
from kinfolk_mla.absorbed.limits import is_over_latent_rows, name_over
from kinfolk_mla.absorbed.plan import ABSORBED
from kinfolk_mla.addresses import address_scenarios
from kinfolk_mla.cache import powers
from kinfolk_mla.decode.candidate import DECODE
from kinfolk_mla.decode.plan import has_idle_waves
from kinfolk_mla.prefill.plan import GROUP_COUNT, HEAD_BYTES, WORKSPACE_BYTES
from kinfolk_mla.request import MODEL, MlaRequest
from kinfolk_mla.scenarios import Spoil, misnamed, paged
from kinfolk_mla.spec import MlaDecodeSpec, MlaNarrowDecodeSpec

Array = npt.NDArray[Any]
Singles = npt.NDArray[np.float32]
MANY: Final = 2**31 - 1
"""As many as the request allows."""
SHORT: Final = ((MANY, 70), (17, 80))
RAGGED: Final = ((0, 20), (MANY, 33), (1, 32), (5, 0), (30, 17), (33, 65), (20, 290))
AROUND_A_TILE: Final = ((20, 147), (33, 159), (MANY, 383))
"""Sequences whose first query sees one key more than it takes for a tile to need no mask, as many as that, or whose
last sees as many as tiles have.
"""
LONG: Final = 330
"""Keys of which some tiles need no mask, whatever the queries, as far as these are few."""
FEW_HEADS: Final = 1
"""How many heads have the scenarios that are not about where heads lie, the one thing in which heads differ."""
MOST_PAIRS: Final = 2**27
"""Pairs of a query and a key that `whole` has over all of its heads, unless one alone has more: minutes of one core.
128 heads have 1024 queries and keys, 2 have 8192; heads differ in where they lie alone, which shorter prompts show.
"""
WAVE_HEADS: Final = 16
"""Heads of which one token fills the rows of a wave of latent attention."""


@attrs.frozen(eq=False)
class Rows:
    """The numbers of a batch before they are rounded and paged; scenarios change them in place.

    `query` [tokens, heads, nope + rope], `weights` [heads, latent, nope + v], and per sequence `keys` [length, latent +
    rope]. What is put into the first rotated column changes scores and no value.
    """

    request: MlaRequest
    query: Singles
    weights: Singles
    keys: tuple[Singles, ...]

    @property
    def scale(self) -> float:
        """What multiplies a product of query and stored key before softmax."""
        return self.request.scale * self.request.k_scale

    @property
    def query_marker(self) -> Singles:
        """The first rotated column of the queries, [tokens, heads]."""
        return self.query[:, :, self.request.nope_dim]

    def key_marker(self, sequence: int) -> Singles:
        """The first rotated column of a sequence's keys."""
        return self.keys[sequence][:, self.request.kv_lora_rank]


Change = Callable[[Rows], None]


def prefill_scenarios(request: MlaRequest) -> tuple[Scenario, ...]:
    """Return the scenarios of a request of projected queries; none of another."""
    if request.absorbed_query:
        return ()
    ragged = (*RAGGED, *AROUND_A_TILE)
    named = ((MANY, LONG - 9), (17, 80))  # the last page of the first has one row of a part
    return (
        _scenario(request, "whole", _about_whole(request), ((MANY, MANY),), heads=whole_heads(request)),
        _scenario(request, "ragged", "prefixes, one query, none, no keys, fewer keys than queries", ragged),
        _scenario(request, "empty", "no sequence has keys", ((MANY, 0), (2, 0))),
        _scenario(
            request,
            "climb",
            "one key of a tile, each query's own, lifts half of the maxima by far",
            ((MANY, LONG),),
            _climbing,
        ),
        _scenario(request, "extreme", "finite scores of 1e30 and 1e38 of both signs", SHORT, _extreme),
        _scenario(request, "one_sign", "values of one sign a column, weights of many sizes", SHORT[:1], _one_sign),
        _scenario(request, "bad_pages", "page ids of -1, num_pages and more in slots in use", named, spoil=misnamed),
        _scenario(
            request,
            "strange_offsets",
            "offsets of keys that fall, and queries that are rows before the first and past the last",
            ((1, 20), (0, 20), (MANY, 30), (1, 20), (2, 10)),
            change_inputs=_fall,
            stray=True,
            heads=max(2, few_heads(request)),
        ),
        *_in_groups(request),
        *_at_the_limits_of_addresses(request),
    )


def _in_groups(request: MlaRequest) -> tuple[Scenario, ...]:
    """Return a scenario in which two groups of heads have the workspace in turn, most of which sequences without keys
    take up; none where the heads of the request have it at once, or sequences are too short.
    """
    length, heads = min(70, request.max_seqlen_k), min(3, request.num_heads)
    at_once = is_over_latent_rows(request.candidate) or GROUP_COUNT.evaluate(Scope(request=request)) == 1
    if at_once or length < 32 or heads < 2:
        return ()
    sequences = WORKSPACE_BYTES // (heads * HEAD_BYTES * length) + 1
    wanted = ((MANY, length), *((0, 0),) * (sequences - 2), (1, length))
    about = "heads in two groups, page ids as of `bad_pages`"
    return (_scenario(request, "groups", about, wanted, spoil=misnamed, heads=heads),)


def whole_heads(request: MlaRequest) -> int:
    """Return how many of the heads `whole` has: as many as `MOST_PAIRS` allows, or as few as other scenarios; over
    latent rows, where the number of heads may select the kernel, all or as few.
    """
    allowed, few = MOST_PAIRS // max(request.max_seqlen_q * request.max_seqlen_k, 1), few_heads(request)
    if allowed >= request.num_heads:
        return request.num_heads
    return few if is_over_latent_rows(request.candidate) else max(few, allowed)


def _about_whole(request: MlaRequest) -> str:
    heads = whole_heads(request)
    some = "" if heads == request.num_heads else f", {heads} of its {request.num_heads} heads"
    return f"one sequence, as long as may be{some}"


def few_heads(request: MlaRequest) -> int:
    """Return how many heads scenarios have that are not about heads: over latent rows those of a wave, or as many more
    as the kernel needs that the request's number of heads selects.
    """
    if not is_over_latent_rows(request.candidate):
        return min(request.num_heads, FEW_HEADS)
    if request.candidate != name_over(DECODE):
        return min(request.num_heads, WAVE_HEADS)
    wanted = _idle_waves(request, request.num_heads)
    enough = range(WAVE_HEADS, request.num_heads)
    return next((heads for heads in enough if _idle_waves(request, heads) == wanted), request.num_heads)


def _idle_waves(request: MlaRequest, heads: int) -> tuple[bool, ...]:
    """Return of each kernel over latent rows whether with so many heads it is the one of idle waves."""
    scope = Scope(request=attrs.evolve(request, num_heads=heads))
    return tuple(has_idle_waves(kind).holds(scope) for kind in (MlaDecodeSpec, MlaNarrowDecodeSpec))


def prefill_mutation_requests() -> tuple[MlaRequest, ...]:
    """Return small requests for each candidate, in whose scenarios mutants are run: more queries than a workgroup has,
    after as many keys as a tile; few after many, in pages that are one part of a tile; some that see all keys; in
    pages smaller than that, more than a tile's keys, of sequences that end where one word of keys does; of both, so
    many sequences that heads are in groups; and, over latent rows, tokens of which a wave's first may be the one past
    the last, and more than a workgroup has.
    """
    expanded = MlaRequest(
        **MODEL,
        num_heads=2,
        num_seqs=2,
        total_q=286,
        max_seqlen_q=LONG - 64,
        max_seqlen_k=LONG,
        absorbed_query=False,
        page_size=32,
        num_pages=24,
        dtype="bf16",
        kv_dtype="bf16",
        causal=True,
        scale=(MODEL["nope_dim"] + MODEL["rope_dim"]) ** -0.5,
        candidate="mla.prefill",
    )
    few = attrs.evolve(expanded, total_q=34, max_seqlen_q=17)
    short = attrs.evolve(few, max_seqlen_k=70)
    latent = attrs.evolve(short, total_q=32, max_seqlen_q=16, num_heads=WAVE_HEADS)
    return (
        expanded,
        attrs.evolve(few, page_size=16, num_pages=48, k_scale=0.25),
        attrs.evolve(short, num_heads=3, num_seqs=1000, causal=False),
        attrs.evolve(
            few,
            num_heads=3,
            num_seqs=160,
            total_q=336,
            max_seqlen_q=319,
            max_seqlen_k=384,
            page_size=4,
            num_pages=192,
        ),
        *(attrs.evolve(latent, candidate=each.name) for each in ABSORBED),
        attrs.evolve(latent, total_q=150, max_seqlen_q=133, candidate=ABSORBED[0].name),
    )


def _scenario(
    request: MlaRequest,
    name: str,
    about: str,
    wanted: Sequence[tuple[int, int]],
    change: Change | None = None,
    spoil: Spoil | None = None,
    change_inputs: Callable[[dict[str, Array]], None] | None = None,
    stray: bool = False,
    heads: int | None = None,
) -> Scenario:
    """Return a scenario of sequences of `wanted` (queries, keys), as far as the request allows, of few heads, or up to
    `heads`.

    Where `stray`, there are no rows of the queries of the first two and the last.
    """
    tokens = [min(count, request.max_seqlen_q) for count, _ in wanted]
    lengths = [min(length, request.max_seqlen_k) for _, length in wanted]
    pages = sum(-(-length // request.page_size) for length in lengths) + 1
    own = attrs.evolve(
        request,
        num_heads=few_heads(request) if heads is None else min(heads, request.num_heads),
        num_seqs=len(wanted),
        total_q=sum(tokens[2:-1] if stray else tokens),
        max_seqlen_k=max(lengths),
        num_pages=max(pages, min(request.num_pages, 2 * pages)),
    )

    def build(generator: np.random.Generator) -> dict[str, Array]:
        rows = _drawn(own, generator, lengths)
        if change is not None:
            change(rows)
        cache = (
            paged(own, generator, tokens, rows.keys)
            if spoil is None
            else paged(own, generator, tokens, rows.keys, spoil)
        )
        dtype = numpy_dtype(own.dtype)
        inputs = {"q": rows.query.astype(dtype), "w_ukv": rows.weights.astype(dtype), **cache}
        if change_inputs is not None:
            change_inputs(inputs)
        return inputs

    return Scenario(name=name, about=about, request=own, build=build)


def _at_the_limits_of_addresses(request: MlaRequest) -> tuple[Scenario, ...]:
    """Return scenarios of decode that are about addresses, the first sequence having the most queries; none of no
    query.
    """
    if not request.max_seqlen_q:
        return ()
    decode = attrs.evolve(request, absorbed_query=True, max_seqlen_q=1, num_seqs=1, total_q=1)
    wanted = ("address_5gib", "address_bad_ids", "address_table")
    return tuple(_with_queries(each, request) for each in address_scenarios(decode) if each.name in wanted)


def _with_queries(scenario: Scenario, request: MlaRequest) -> Scenario:
    asked = scenario.request
    assert isinstance(asked, MlaRequest)
    others = asked.num_seqs - 1
    own = attrs.evolve(
        asked,
        absorbed_query=False,
        num_heads=few_heads(request),
        max_seqlen_q=request.max_seqlen_q,
        total_q=request.max_seqlen_q + others,
    )

    def build(generator: np.random.Generator) -> dict[str, Any]:
        inputs = {name: array for name, array in scenario.build(generator).items() if name != "qa"}
        rows = _drawn(own, generator, [0] * own.num_seqs)
        dtype = numpy_dtype(own.dtype)
        tokens = np.cumsum([0, request.max_seqlen_q, *[1] * others]).astype(np.int32)
        return inputs | {
            "q": rows.query.astype(dtype),
            "w_ukv": rows.weights.astype(dtype),
            "cu_seqlens_q": tokens,
        }

    return attrs.evolve(scenario, request=own, build=build)


def _drawn(request: MlaRequest, generator: np.random.Generator, lengths: Sequence[int]) -> Rows:
    """Draw queries, keys and weights of which expanded keys and values have unit scale."""
    heads, latent = request.num_heads, request.kv_lora_rank
    query = generator.standard_normal((request.total_q, heads, request.nope_dim + request.rope_dim), np.float32)
    weights = generator.standard_normal((heads, latent, request.nope_dim + request.v_dim), np.float32)
    keys = tuple(generator.standard_normal((length, latent + request.rope_dim), np.float32) for length in lengths)
    return Rows(request, query, weights / np.float32(latent**0.5), keys)


def _climbing(rows: Rows) -> None:
    """Lift every second query's score of one key of each tile of 64, by 120 natural-log units more than in the one
    before: another key for each such query, so that each place of a tile is some query's.

    A rotated column stands for a place: keys there have the lift in it, one query has a number other than 0 there.
    """
    columns = rows.request.rope_dim
    first = rows.request.nope_dim
    rows.query[:, :, first:] = 0.0
    lifted = np.arange(1, len(rows.query), 2)
    rows.query[lifted, :, first + lifted // 2 % columns] = 4.0
    for keys in rows.keys:
        place = np.arange(len(keys))
        lift = np.minimum((1 + place // columns) * 120.0 / (4.0 * rows.scale), 2.0**60)
        keys[:, rows.request.kv_lora_rank :] = 0.0
        keys[place, rows.request.kv_lora_rank + place % columns] = lift


def _extreme(rows: Rows) -> None:
    """Make every raw score one product of powers of two, exact in f32: of size 2^100 or more, or 2^126 and 2^127 in
    turn.
    """
    high, low = powers(rows.request.kv_dtype, 77)
    rows.query[:] = 0.0
    rows.query_marker[:] = 2.0 ** (127 - high)
    rows.query_marker[1::2] = -(2.0 ** (127 - high))
    for sequence in range(len(rows.keys)):
        rows.key_marker(sequence)[:] = 2.0 ** (high if sequence % 2 else low)
        if sequence % 2:
            rows.key_marker(sequence)[::2] = 2.0 ** (high - 1)


def _one_sign(rows: Rows) -> None:
    """Make scores one product each, weights of a query within two powers of 2, and values of one sign a column.

    Roundings are of every kind, so right ones cancel and wrong ones add up; the error of the scores is small beside
    theirs. Values grow with scores, so that heads and queries differ in their outputs.
    """
    generator = np.random.default_rng(rows.query.shape[1])
    rows.query[:] = 0.0
    rows.query_marker[:] = generator.uniform(0.25, 2.0, rows.query.shape[:2])
    np.abs(rows.weights, out=rows.weights)
    step = min(np.log(2.0) / rows.scale, 2.0**14)
    for sequence, keys in enumerate(rows.keys):
        place = generator.uniform(0.0, 1.0, len(keys))
        width = rows.request.kv_lora_rank
        keys[:] = 0.0
        rows.key_marker(sequence)[:] = step * place
        keys[:, :width] = (1.0 + 3.0 * place[:, None]) * generator.uniform(0.0, 0.25, (len(keys), width))


def _fall(inputs: dict[str, Array]) -> None:
    """Let the first sequence have the row before the first and that one, the second fall back to it, and give the third
    offsets of keys that fall by more than 32 bits hold.
    """
    _, _, *tokens = np.diff(inputs["cu_seqlens_q"])
    inputs["cu_seqlens_q"] = np.array([-1, 1, *np.cumsum([0, *tokens])], np.int32)
    first, second, _, *lengths = np.diff(inputs["cu_seqlens_k"]).tolist()
    most = 2**31 - 1
    inputs["cu_seqlens_k"] = np.array(
        [most - second - first, most - second, most, *(np.cumsum([0, *lengths]) - 5)], np.int32
    )
