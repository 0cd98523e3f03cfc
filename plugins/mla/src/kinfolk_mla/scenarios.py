"""The inputs on which decode is run: each a situation that some plausible mistake gets wrong.

Whatever a kernel must not read is poisoned: cache rows that no sequence owns and the tails of last pages are NaN, slots
past a sequence's pages are -1. The table is a slice of a wider one, so that its stride is not its width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check import Scenario, numpy_dtype, poison
from kinfolk.narrow import is_narrow
from kinfolk_mla.cache import cache_types, largest, powers

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_mla.request import MlaRequest

Array = npt.NDArray[Any]
Singles = npt.NDArray[np.float32]

SPARE_SLOTS: Final = 3
SHORT: Final = (70, 33, 1, 80, 16, 47)
"""Lengths of scenarios that need no long sequence: at most five pages of 16."""
NAMED: Final = (58, 31, *SHORT[2:])
"""Lengths whose last page of 16 keys is the second of two, and refused."""
STEEP: Final = 64.0
CLIMB: Final = 400
CLIMBERS: Final = 8
"""Sequences that differ in which keys are lifted."""
LONG_SEQUENCES: Final = 8
"""Beyond so many, sequences have at most one page: a run grows slowly with the batch."""


@attrs.frozen(eq=False)
class Rows:
    """The numbers of a batch before they are rounded and paged; scenarios change them in place.

    `query` [tokens, heads, latent + rope], and per sequence `keys` [length, latent + rope].
    """

    request: MlaRequest
    query: Singles
    keys: tuple[Singles, ...]

    @property
    def scale(self) -> float:
        """What multiplies a product of query and stored key before softmax."""
        return self.request.scale * self.request.k_scale

    @property
    def marker(self) -> int:
        """The first rotated column: what scenarios put there changes scores and no value."""
        return self.request.kv_lora_rank


Change = Callable[[Rows], None]
Spoil = Callable[[Array, Sequence[int], int], None]


def _nothing(rows: Rows) -> None:
    return None


def _spare(table: Array, pages: Sequence[int], num_pages: int) -> None:
    return None


def decode_scenarios(request: MlaRequest) -> tuple[Scenario, ...]:
    """Return the scenarios of a request of absorbed queries; none of another."""
    if not request.absorbed_query:
        return ()
    longest, page = request.max_seqlen_k, request.page_size
    ragged = (longest, longest // 2 + 1, longest // 3, 1, page + 1, 0)
    empty, whole, over = (0, 5, 2 * page, 0), (page, 2 * page, page), (page + 1, 1, 2 * page + 1)
    return (
        _scenario(request, "ragged", "lengths up to the longest", ragged),
        _scenario(request, "spike", "late keys lift half the heads' maxima over live accumulators", SHORT, _spiked),
        _scenario(_steep(request), "climb", "one key of a page lifts a quarter of maxima by far", (CLIMB,), _climbing),
        _scenario(request, "empty", "sequences of no keys", empty),
        _scenario(_without_query(request), "no_query", "a sequence of keys and no query", SHORT, idle_first=True),
        _scenario(request, "single_key", "one key each", (1,)),
        _scenario(request, "exact_page", "whole pages", whole),
        _scenario(request, "page_plus_one", "a last page of one key", over),
        _scenario(request, "extreme", "finite scores of 1e30 and 1e38 of both signs", SHORT, _extreme),
        *(
            [_scenario(request, "codes", "every number of 8 bits, one key each", (1,), _coded)]
            if is_narrow(request.kv_dtype)
            else []
        ),
        _scenario(request, "constant", "all keys of a sequence alike", SHORT, _constant),
        _scenario(request, "peaked", "nearly all weight on one key", SHORT, _peaked),
        _scenario(request, "one_sign", "values of one sign a column, weights of many sizes", ragged, _one_sign),
        _scenario(request, "bad_pages", "page ids of -1, num_pages and more in slots in use", NAMED, spoil=misnamed),
        *_several_queries(request),
        *_several_segments(request, ragged),
    )


def _several_segments(request: MlaRequest, lengths: Sequence[int]) -> Iterator[Scenario]:
    """Yield the scenario that tells which segment has the largest maximum; none where several are not asked for."""
    if request.num_seg > 1:
        about = "the last key takes all weight in half the heads, past what f32 has powers for"
        yield _scenario(request, "last_segment", about, lengths, _ending)


def _several_queries(request: MlaRequest) -> Iterator[Scenario]:
    """Yield the scenario of a batch in which sequences differ in their queries; none where each has at most one."""
    if request.max_seqlen_q < 2:
        return
    most, page = request.max_seqlen_q, request.page_size
    batch = (
        (most, 37),
        (19, 19),
        (20, 12),
        (1, 70),
        (2, 0),
        (0, 9),
        (2, 2),
        (9, 6 * page),
        (most, most + page - 1),
        (most, 66),
    )
    queries = [min(count, most) for count, _ in batch]
    lengths = [min(length, request.max_seqlen_k) for _, length in batch]
    pages = sum(-(-length // page) for length in lengths)
    own = attrs.evolve(
        request,
        num_seqs=len(batch),
        total_q=sum(queries),
        max_seqlen_k=max(lengths),
        num_pages=max(pages + 1, min(request.num_pages, 2 * pages)),
    )
    about = "prefixes, one query, none, as many queries as keys, more, and no keys"
    for name, change in (("queries", _nothing), ("queries_peaked", _peaked)):
        yield Scenario(
            name=name,
            about=about,
            request=own,
            build=lambda generator, change=change: drawn_inputs(own, generator, lengths, queries, change),
        )


def mutation_requests(arch: Arch) -> tuple[MlaRequest, ...]:
    """Return small requests in whose scenarios mutants are run: few keys, in one segment and in several that begin
    within a page, as many as fill the rings of tiles, as many segments as a wave has lanes, and more; rows of several
    queries that are more than a workgroup's and leave waves without any, or one row; a workgroup whose last row ends a
    token, or begins one; queries that see all keys; one head; pages of one tile and of several; a cache of 8 bits in
    pages smaller than a tile, of one key and of two, and, of wide kernels, in each of their requests.
    """
    from kinfolk_mla.request import MODEL, MlaRequest

    def request(
        candidate: str,
        num_heads: int,
        max_seqlen_k: int,
        num_seqs: int,
        num_seg: int = 1,
        page_size: int = 16,
        max_seqlen_q: int = 1,
        kv_dtype: str = "bf16",
        k_scale: float = 1.0,
        causal: bool = True,
    ) -> MlaRequest:
        return MlaRequest(
            **MODEL,
            num_heads=num_heads,
            num_seqs=num_seqs,
            total_q=max_seqlen_q + num_seqs - 1,
            max_seqlen_q=max_seqlen_q,
            max_seqlen_k=max_seqlen_k,
            absorbed_query=True,
            page_size=page_size,
            num_pages=num_seqs * -(-max_seqlen_k // page_size),
            dtype="bf16",
            kv_dtype=kv_dtype,
            causal=causal,
            scale=(MODEL["nope_dim"] + MODEL["rope_dim"]) ** -0.5,
            k_scale=k_scale,
            candidate=candidate,
            num_seg=num_seg,
        )

    narrow = cache_types(arch, "bf16")[-1]
    wide = (
        request("mla.pipelined", 128, 80, 2),
        request("mla.pipelined", 1, 80, 2, num_seg=2, max_seqlen_q=6),
        request("mla.pipelined", 33, 80, 2, num_seg=2, max_seqlen_q=4, page_size=32, k_scale=0.25),
        request("mla.pipelined", 127, 80, 2, max_seqlen_q=2),
        request("mla.pipelined", 32, 80, 2, max_seqlen_q=6, causal=False),
        request("mla.pipelined", 32, 208, 2, max_seqlen_q=6),
        request("mla.pipelined", 32, 208, 2, num_seg=2, page_size=128),
        request("mla.grouped", 64, 80, 2),
        request("mla.grouped", 1, 80, 2, num_seg=2, max_seqlen_q=6),
        request("mla.grouped", 33, 80, 2, num_seg=2, max_seqlen_q=3, page_size=128, k_scale=0.25),
        request("mla.grouped", 21, 80, 2, max_seqlen_q=6),
        request("mla.grouped", 16, 80, 2, max_seqlen_q=6, causal=False),
        request("mla.grouped", 16, 208, 2, max_seqlen_q=6),
        request("mla.grouped", 16, 80, 2, num_seg=2, page_size=32),
    )
    narrowed = (attrs.evolve(each, kv_dtype=narrow, k_scale=0.25) for each in wide)
    return (
        request("mla.decode", 16, 80, 2),
        request("mla.decode", 1, 80, 2, max_seqlen_q=6),
        request("mla.decode", 16, 80, 2, num_seg=2, max_seqlen_q=6, page_size=32),
        request("mla.decode", 17, 80, 2, num_seg=2, max_seqlen_q=6),
        request("mla.decode", 21, 80, 2, num_seg=2, page_size=2, max_seqlen_q=6, kv_dtype=narrow, k_scale=0.25),
        request("mla.decode", 21, 80, 2, num_seg=2, page_size=1, max_seqlen_q=6, kv_dtype=narrow, k_scale=0.25),
        request("mla.decode", 16, 80, 2, max_seqlen_q=6, causal=False),
        request("mla.decode", 128, 80, 3),
        request("mla.decode", 16, 80, 1, num_seg=64),
        request("mla.decode", 16, 1040, 2, num_seg=65),
        *wide,
        *narrowed,
    )


def _scenario(
    request: MlaRequest,
    name: str,
    about: str,
    lengths: Sequence[int],
    change: Change = _nothing,
    spoil: Spoil = _spare,
    idle_first: bool = False,
) -> Scenario:
    def build(generator: np.random.Generator) -> dict[str, Array]:
        queries = spread_queries(request)
        queries = queries[::-1] if idle_first else queries
        return drawn_inputs(request, generator, fitted_lengths(request, lengths), queries, change, spoil)

    return Scenario(name=name, about=about, request=request, build=build)


def spread_queries(request: MlaRequest) -> tuple[int, ...]:
    """Return how many queries each sequence has: the first the most, the others an even share of what is left."""
    first, others = request.max_seqlen_q, request.num_seqs - 1
    left = request.total_q - first
    return (first, *(left // others + (number < left % others) for number in range(others)))


def _without_query(request: MlaRequest) -> MlaRequest:
    """Return the request with at least one sequence that has no query."""
    sequences = max(2, request.num_seqs)
    most = request.max_seqlen_q
    return attrs.evolve(request, num_seqs=sequences, total_q=min(request.total_q, max(most, sequences - 1)))


def fitted_lengths(request: MlaRequest, wanted: Sequence[int]) -> tuple[int, ...]:
    """Return a length per sequence: `wanted` in turn, as far as the longest sequence and the cache's pages allow."""
    lengths: list[int] = []
    left = request.num_pages
    for sequence in range(request.num_seqs):
        most = request.max_seqlen_k if sequence < LONG_SEQUENCES else min(request.max_seqlen_k, request.page_size)
        length = min(wanted[sequence % len(wanted)], most, left * request.page_size)
        lengths.append(length)
        left -= -(-length // request.page_size)
    return tuple(lengths)


def drawn_inputs(
    request: MlaRequest,
    generator: np.random.Generator,
    lengths: Sequence[int],
    queries: Sequence[int],
    change: Change = _nothing,
    spoil: Spoil = _spare,
) -> dict[str, Array]:
    """Draw, change, round and page a batch; returns the plan's inputs by binding."""
    width = request.kv_lora_rank + request.rope_dim
    query = generator.standard_normal((request.total_q, request.num_heads, width), np.float32)
    rows = Rows(request, query, tuple(generator.standard_normal((length, width), np.float32) for length in lengths))
    change(rows)
    return {
        "qa": rows.query.astype(numpy_dtype(request.dtype)),
        **paged(request, generator, queries, rows.keys, spoil),
    }


def paged(
    request: MlaRequest,
    generator: np.random.Generator,
    queries: Sequence[int],
    keys: Sequence[Singles],
    spoil: Spoil = _spare,
) -> dict[str, Array]:
    """Round and page the keys of each sequence, which has so many `queries`: the cache, the offsets and the table."""
    slots = [-(-len(rows) // request.page_size) for rows in keys]
    dtype, most = numpy_dtype(request.kv_dtype), largest(request.kv_dtype)
    order = generator.choice(request.num_pages, sum(slots), replace=False)  # a cache has more pages than are drawn
    pages = np.split(order, np.cumsum(slots)[:-1])
    table = np.full((request.num_seqs, -(-request.max_seqlen_k // request.page_size) + SPARE_SLOTS), -1, np.int32)
    cache = {
        name: poison(request.kv_dtype, (request.num_pages, request.page_size, columns))
        for name, columns in (("c_kv", request.kv_lora_rank), ("k_rope", request.rope_dim))
    }
    for sequence, (rows, owned) in enumerate(zip(keys, pages, strict=True)):
        table[sequence, : len(owned)] = owned
        _store(cache, np.clip(rows, -most, most).astype(dtype), owned, request)
    spoil(table, slots, request.num_pages)
    return {
        **cache,
        "cu_seqlens_q": np.cumsum([0, *queries]).astype(np.int32),
        "cu_seqlens_k": np.cumsum([0, *map(len, keys)]).astype(np.int32),
        "block_table": table[:, : table.shape[1] - SPARE_SLOTS],
    }


def _store(cache: dict[str, Array], keys: Array, pages: npt.NDArray[np.int64], request: MlaRequest) -> None:
    for slot, page in enumerate(pages):
        held = keys[slot * request.page_size : (slot + 1) * request.page_size]
        cache["c_kv"][page, : len(held)] = held[:, : request.kv_lora_rank]
        cache["k_rope"][page, : len(held)] = held[:, request.kv_lora_rank :]


def _marked(rows: Rows, token_value: float, stride: int = 2) -> None:
    """Put a value into the marker column of every `stride`-th head's query, 0 into the others'."""
    rows.query[:, :, rows.marker] = 0.0
    rows.query[:, ::stride, rows.marker] = token_value


def _spiked(rows: Rows) -> None:
    """Lift the scores of even heads by 14 at the middle key and by 45 at the last, in natural-log units."""
    _marked(rows, 4.0)
    for keys in rows.keys:
        keys[:, rows.marker] = 0.0
        for position, lift in ((len(keys) // 2, 14.0), (len(keys) - 1, 45.0)):
            keys[position : position + 1, rows.marker] = min(lift / (4.0 * rows.scale), 2.0**60)


def _ending(rows: Rows) -> None:
    """Lift the scores of even heads by 145 at the last key, in natural-log units, as far as the cache's type goes."""
    _marked(rows, STEEP)
    for keys in rows.keys:
        keys[:, rows.marker] = 0.0
        keys[-1:, rows.marker] = min(145.0 / (STEEP * rows.scale), 2.0**60)


def _steep(request: MlaRequest) -> MlaRequest:
    """Return the request with a large scale, so that a raw score is far from what its weight is of, and a batch."""
    pages = CLIMBERS * -(-min(CLIMB, request.max_seqlen_k) // request.page_size) + 1
    return attrs.evolve(
        request,
        scale=STEEP / request.k_scale,
        num_seqs=CLIMBERS,
        total_q=request.max_seqlen_q + (CLIMBERS - 1) * min(request.max_seqlen_q, 1),
        num_pages=max(request.num_pages, pages),
    )


def _climbing(rows: Rows) -> None:
    """Lift scores of one key in each of the last pages by 120 natural-log units, in each sequence at other places: of a
    quarter of the rows, sixteen after one another.

    So wherever in a page a key lies and whichever rows share a wave, somewhere it alone, in some of them, takes a row
    past what f32 has powers for.
    """
    page, gentle = rows.request.page_size, (rows.request.nope_dim + rows.request.rope_dim) ** -0.5
    tokens, heads, _ = rows.query.shape
    np.multiply(rows.query, gentle / STEEP, out=rows.query)
    marks = 4.0 * np.eye(4, dtype=np.float32)[[row // 16 % 4 for row in range(tokens * heads)]]
    rows.query[:, :, rows.marker : rows.marker + 4] = marks.reshape(tokens, heads, 4)
    for sequence, keys in enumerate(rows.keys):
        keys[:, rows.marker : rows.marker + 4] = 0.0
        last = -(-len(keys) // page)
        for tile in range(max(1, last - 6), last):
            position = tile * page + (3 * sequence + 10 * tile) % page
            lifted, level = (2 * (sequence + tile) + sequence // 4) % 4, 1 + tile - max(1, last - 6)
            keys[position : position + 1, rows.marker + lifted] = level * 120.0 / (4.0 * STEEP)


def _extreme(rows: Rows) -> None:
    """Make every raw score one product of powers of two, exact in f32: of size 2^100 or more, or 2^126 and 2^127 in
    turn.
    """
    high, low = powers(rows.request.kv_dtype, 77)
    rows.query[:] = 0.0
    _marked(rows, 2.0 ** (127 - high))
    rows.query[:, 1::2, rows.marker] = -(2.0 ** (127 - high))
    for sequence, keys in enumerate(rows.keys):
        keys[:, rows.marker] = 2.0 ** (high if sequence % 2 else low)
        if sequence % 2:
            keys[::2, rows.marker] = 2.0 ** (high - 1)


def _coded(rows: Rows) -> None:
    """Give keys every number that their type has, in all columns in turn, and scores little weight."""
    dtype = numpy_dtype(rows.request.kv_dtype)
    codes = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    codes = codes[np.isfinite(codes)]
    np.multiply(rows.query, 2.0**-6 / rows.scale, out=rows.query)
    for sequence, keys in enumerate(rows.keys):
        first = 37 * sequence + 11 * np.arange(len(keys))[:, None]
        keys[:] = codes[(first + np.arange(keys.shape[1])) % len(codes)]


def _constant(rows: Rows) -> None:
    for keys in rows.keys:
        keys[:] = keys[:1]


def _peaked(rows: Rows) -> None:
    np.multiply(rows.query, 8.0, out=rows.query)


def _one_sign(rows: Rows) -> None:
    """Spread weights over two powers of 2, each score one product, and give a column of values one sign.

    Roundings are of every kind, so right ones cancel and wrong ones add up; the error of the scores is small beside
    theirs. Values grow with scores, so that heads differ in their outputs and these in their roundings.
    """
    generator = np.random.default_rng(rows.query.shape[1])
    rows.query[:] = 0.0
    rows.query[:, :, rows.marker] = generator.uniform(0.25, 2.0, rows.query.shape[:2])
    step = min(np.log(2.0) / rows.scale, 2.0**14)
    for keys in rows.keys:
        place = generator.uniform(0.0, 1.0, (len(keys), 1))
        column = generator.uniform(1.0, 2.0, rows.marker) * generator.choice((-1.0, 1.0), rows.marker)
        keys[:, rows.marker :] = 0.0
        keys[:, rows.marker] = step * place[:, 0]
        keys[:, : rows.marker] = column * (1.0 + 3.0 * place) * generator.uniform(1.0, 2.0, (len(keys), rows.marker))


def misnamed(table: Array, slots: Sequence[int], num_pages: int) -> None:
    """Spoil a few slots and the last of even sequences, one of them far from the others, and all slots of every fourth
    from the second: odd slots of the ones and even ones of the others with the id after the last page's, which is the
    nearest that is wrong, wherever in a sequence it is looked up; the others with ids far out. Of 48 slots and more one
    is the first of its 16.
    """
    far = (-1, 2**31 - 1, -(2**31))
    for sequence, count in enumerate(slots):
        if sequence % 2 == 0:
            alone = (32,) if count >= 48 else ()
            spoiled = sorted({slot for slot in (1, 3, count // 2 | 1, *alone, count - 1) if 0 <= slot < count})
        else:
            spoiled = list(range(count)) if sequence % 4 == 1 else []
        for slot in spoiled:
            next_to = slot % 2 != sequence % 2
            table[sequence, slot] = num_pages if next_to else far[(sequence // 2 + slot // 2) % len(far)]
