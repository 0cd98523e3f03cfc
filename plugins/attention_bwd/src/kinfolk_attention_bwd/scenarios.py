"""The inputs on which gradients are run: each a situation that some plausible mistake gets wrong.

Scenarios have lengths of their own, few heads, and more sequences than one where that is what they are about. What the
forward pass gave follows from the other inputs, rounded as it rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check import Scenario, numpy_dtype
from kinfolk_attention_bwd.reference import blocks_of_queries, seen_keys
from kinfolk_attention_bwd.request import AttentionBwdRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

Array = npt.NDArray[Any]
Drawn = dict[str, npt.NDArray[np.float32]]
Change = Callable[[Drawn, np.random.Generator], None]


def nothing(drawn: Drawn, generator: np.random.Generator) -> None:
    """Leave what was drawn."""


def peaked(drawn: Drawn, generator: np.random.Generator) -> None:
    """Let each query put nearly all of its weight on few keys."""
    drawn["q"] *= 6.0


def one_sign(drawn: Drawn, generator: np.random.Generator) -> None:
    """Let gradients by values be sums of positive numbers: right roundings cancel, wrong ones add up."""
    np.abs(drawn["dout"], out=drawn["dout"])


def rows_of_their_own(drawn: Drawn, generator: np.random.Generator) -> None:
    """Let the gradients of a row be larger by far than those of the one before, or smaller."""
    queries = drawn["dout"].shape[1]
    drawn["dout"] *= np.exp2(2.0 * generator.standard_normal((1, queries, 1, 1), np.float32))


def unlike_heads(drawn: Drawn, generator: np.random.Generator) -> None:
    """Let all heads but the last of each group have gradients of nearly 0."""
    drawn["dout"][:, :, :-1] *= 2.0**-10


def scenarios(request: AttentionBwdRequest) -> tuple[Scenario, ...]:
    """Return the scenarios of a request."""
    return tuple(_scenarios(request))


def _scenarios(request: AttentionBwdRequest) -> Iterator[Scenario]:
    few = _few_heads(request)
    yield _scenario(request, "whole", "as many queries and keys as are asked for", request.seqlen_q, request.seqlen_k)
    yield _scenario(few, "square", "as many queries as keys, several blocks of both", 300, 300)
    yield _scenario(few, "prefix", "many keys before the first query", 40, 330)
    yield _scenario(few, "one_query", "a last token behind many keys", 1, 150)
    yield _scenario(few, "more_queries", "the first queries see no key, or the last ones all", 210, 97)
    yield _scenario(few, "no_keys", "nothing is seen", 20, 0)
    yield _scenario(few, "no_queries", "nothing sees", 0, 20)
    yield _scenario(few, "whole_tiles", "no tile has a row too many", 128, 128)
    yield _scenario(few, "tile_plus_one", "last tiles of one row", 65, 129)
    three = attrs.evolve(request, num_heads=6, num_kv_heads=2, num_v_heads=2)
    single = attrs.evolve(few, num_heads=few.num_kv_heads)
    yield _scenario(
        three, "three_heads", "three heads for each of keys, an odd number of rounds without a mask", 200, 300
    )
    yield _scenario(single, "one_head", "a head for each of keys, likewise in blocks of another size", 250, 300)
    yield _scenario(few, "peaked", "weights near 1 and near 0", 70, 90, peaked)
    yield _scenario(few, "one_sign", "gradients of one sign", 70, 190, one_sign)
    yield _scenario(few, "unlike_rows", "rows of very unlike gradients", 90, 70, rows_of_their_own)
    yield _scenario(few, "unlike_heads", "the last head of a group has all of the gradient", 70, 70, unlike_heads)
    yield _scenario(
        few, "dead_rows", "rows that see keys, whose LSE is -inf, +inf or NaN, their output NaN", 70, 90, dead=True
    )


def mutation_requests() -> tuple[AttentionBwdRequest, ...]:
    """Return small requests, in whose scenarios mutants are run: each kernel walks tiles with and without masks."""
    causal = AttentionBwdRequest(
        layout="bshd",
        batch=1,
        seqlen_q=150,
        seqlen_k=170,
        num_heads=4,
        num_kv_heads=2,
        num_v_heads=2,
        head_size=128,
        head_size_v=128,
        dtype="bf16",
        causal=True,
        deterministic=True,
        scale=128**-0.5,
    )
    narrow = attrs.evolve(causal, head_size=64, head_size_v=64, scale=64**-0.5, dtype="f16")
    return (causal, narrow, attrs.evolve(causal, causal=False))


def _few_heads(request: AttentionBwdRequest) -> AttentionBwdRequest:
    """Return the request with the heads that the first two, or the first, head of keys is for."""
    shared = request.num_heads // request.num_kv_heads
    kept = min(request.num_kv_heads, 2 if shared == 1 else 1)
    return attrs.evolve(request, num_kv_heads=kept, num_v_heads=kept, num_heads=kept * min(shared, 2))


def _scenario(
    request: AttentionBwdRequest,
    name: str,
    about: str,
    queries: int,
    keys: int,
    change: Change = nothing,
    *,
    dead: bool = False,
) -> Scenario:
    own = attrs.evolve(request, batch=1 if max(queries, keys) > 200 else 2, seqlen_q=queries, seqlen_k=keys)

    def build(generator: np.random.Generator) -> dict[str, Array]:
        drawn = _drawn(own, generator)
        change(drawn, generator)
        dtype = numpy_dtype(own.dtype)
        given: dict[str, Array] = {each: value.astype(dtype) for each, value in drawn.items()}
        out, lse = forward(own, given)
        if dead:
            lse[..., 3::7], lse[..., 5::11], lse[..., 6::13] = -np.inf, np.inf, np.nan
            out[~np.isfinite(np.swapaxes(lse, 1, 2))] = np.nan
        return {**given, "o": out.astype(dtype), "lse": lse.astype(np.float32)}

    return Scenario(name=name, about=about, request=own, build=build)


def _drawn(request: AttentionBwdRequest, generator: np.random.Generator) -> Drawn:
    """Draw queries, keys, values and gradients of unit scale, in the shapes of the bindings."""
    batch, queries, keys = request.batch, request.seqlen_q, request.seqlen_k
    shapes = {
        "q": (batch, queries, request.num_heads, request.head_size),
        "k": (batch, keys, request.num_kv_heads, request.head_size),
        "v": (batch, keys, request.num_v_heads, request.head_size_v),
        "dout": (batch, queries, request.num_heads, request.head_size_v),
    }
    return {name: generator.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def forward(request: AttentionBwdRequest, given: dict[str, Array]) -> tuple[Array, Array]:
    """Return `o` and `lse` of the forward pass in fp64; of a row that sees no key 0 and -inf."""
    shape = (request.batch, request.seqlen_q, request.num_heads)
    out, lse = np.zeros((*shape, request.head_size_v)), np.full(shape, -np.inf)
    scale, (q, k, v) = float(np.float32(request.scale)), (given[name].astype(np.float64) for name in ("q", "k", "v"))
    for queries in blocks_of_queries(request):
        seen = seen_keys(request, queries)
        for head in range(request.num_heads):
            keys = k[:, :, head // (request.num_heads // request.num_kv_heads)]
            values = v[:, :, head // (request.num_heads // request.num_v_heads)]
            scores = np.where(seen, scale * (q[:, queries, head] @ np.swapaxes(keys, 1, 2)), -np.inf)
            highest = scores.max(axis=-1, initial=-np.inf)
            highest = np.where(np.isfinite(highest), highest, 0.0)
            powers = np.exp(scores - highest[..., None])
            total = powers.sum(axis=-1)
            with np.errstate(divide="ignore"):
                lse[:, queries, head] = highest + np.log(total)
            out[:, queries, head] = powers @ values / np.where(total > 0.0, total, 1.0)[..., None]
    return out, np.swapaxes(lse, 1, 2).copy()
