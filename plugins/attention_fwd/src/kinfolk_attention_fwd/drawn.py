"""The numbers of a batch of sequences before they are rounded, and what scenarios change in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check import numpy_dtype
from kinfolk.narrow import is_narrow

if TYPE_CHECKING:
    from kinfolk_attention_fwd.request import AttentionFwdRequest

Array = npt.NDArray[Any]
Singles = npt.NDArray[np.float32]


@attrs.frozen(eq=False)
class Rows:
    """Per sequence `query` [tokens, heads, columns], and `keys` and `values` [keys, heads of keys, columns]; scenarios
    change them in place. They leave the first column to what changes scores and, of values, nothing. `of_heads` are
    the tensors that have an element a head.
    """

    request: AttentionFwdRequest
    query: Sequence[Singles]
    keys: Sequence[Singles]
    values: Sequence[Singles]
    of_heads: Mapping[str, Singles]

    def tensors_of_heads(self) -> dict[str, Array]:
        """Return the tensors that have an element a head, in their types."""
        return tensors_of_heads(self.request, self.of_heads)


def tensors_of_heads(request: AttentionFwdRequest, of_heads: Mapping[str, Singles]) -> dict[str, Array]:
    """Return the tensors that have an element a head, in their types."""
    types = {"sink": numpy_dtype(request.dtype)}
    return {name: each.astype(types.get(name, np.float32)) for name, each in of_heads.items()}


Change = Callable[[Rows], None]


def drawn_of_heads(request: AttentionFwdRequest, generator: np.random.Generator) -> dict[str, Singles]:
    """Draw what each head has of its own, where it is asked for: slopes as of models, and sinks of unit scale."""
    found: dict[str, Singles] = {}
    if request.alibi:
        found["alibi_slopes"] = generator.uniform(0.01, 0.5, request.num_heads).astype(np.float32)
    if request.sinks:
        found["sink"] = generator.standard_normal(request.num_heads, np.float32)
    return found


def drawn(
    request: AttentionFwdRequest, generator: np.random.Generator, queries: Sequence[int], lengths: Sequence[int]
) -> Rows:
    """Draw queries, keys and values of unit scale for sequences of so many."""

    def draw(counts: Sequence[int], heads: int, width: int) -> tuple[Singles, ...]:
        return tuple(generator.standard_normal((count, heads, width), np.float32) for count in counts)

    return Rows(
        request,
        draw(queries, request.num_heads, request.head_size),
        draw(lengths, request.num_kv_heads, request.head_size),
        draw(lengths, request.num_kv_heads, request.head_size_v),
        drawn_of_heads(request, generator),
    )


def nothing(rows: Rows) -> None:
    """Change nothing."""


def climbing(rows: Rows) -> None:
    """Lift every second query's score of one key of each 32, by 60 natural-log units more than in those before."""
    lift, most = (64.0, 2.0**7) if is_narrow(rows.request.kv_dtype) else (4.0, 2.0**14)
    for query, keys in zip(rows.query, rows.keys, strict=True):
        query[..., 0] = 0.0
        query[1::2, :, 0] = lift
        keys[..., 0] = 0.0
        for block in range(1, -(-len(keys) // 32)):
            place = 32 * block + 5 * block % 32
            keys[place : place + 1, :, 0] = min(block * 60.0 / (lift * rows.request.scale), most)


_EXPONENTS: Final = {"bf16": (63, 38), "f16": (15, 8)}
"""Of large and of less large keys, in types of 16 bits."""
_LARGEST: Final = 126
"""Exponent of scores, and of products, that are finite as f32 thrice as large."""


def extreme(rows: Rows) -> None:
    """Make every raw score one product that is exact in f32, and no power of two, as far apart as the type has them and
    scaled scores are finite with.
    """
    request = rows.request
    (most, _), (high, low) = (_EXPONENTS.get(name, (7, 3)) for name in (request.dtype, request.kv_dtype))
    scaled = max(math.ceil(math.log2(request.scale * request.k_scale)), 0)
    lift = 2.0 ** min(most, _LARGEST - high - scaled)
    for number, (query, keys) in enumerate(zip(rows.query, rows.keys, strict=True)):
        query[:] = 0.0
        query[..., 0] = lift
        query[1::2, :, 0] = -lift
        keys[..., 0] = 2.0 ** (high if number % 2 else low)
        if number % 2:
            keys[::2, :, 0] = 2.0 ** (high - 1)
        query[..., 0] *= 21.0 / 16.0
        keys[..., 0] *= 53.0 / 32.0


def constant(rows: Rows) -> None:
    """Make all keys of a sequence alike."""
    for keys in rows.keys:
        keys[:] = keys[:1]


def one_sign(rows: Rows) -> None:
    """Make scores one product each, weights of a query within two powers of 2, and values of one sign a column.

    Roundings are of every kind, so right ones cancel and wrong ones add up.
    """
    step = min(np.log(2.0) / rows.request.scale, 2.0**14)
    for number, (query, keys, values) in enumerate(zip(rows.query, rows.keys, rows.values, strict=True)):
        generator = np.random.default_rng((len(query), number))
        query[:] = 0.0
        query[..., 0] = generator.uniform(0.25, 2.0, query.shape[:2])
        place = generator.uniform(0.0, 1.0, keys.shape[:2])
        keys[:] = 0.0
        keys[..., 0] = step * place
        values[:] = (1.0 + 3.0 * place[..., None]) * generator.uniform(0.0, 0.25, values.shape)


def steep(rows: Rows) -> None:
    """Let scores rise by far more than a weight can differ, from key to key, or fall."""
    _in_turn(rows.of_heads["alibi_slopes"], 8.0, -8.0)


def steepest(rows: Rows) -> None:
    """Let slopes be as large as scores of the last keys are f32 with."""
    _in_turn(rows.of_heads["alibi_slopes"], 2.0**110, -(2.0**110))


def high_sinks(rows: Rows) -> None:
    """Leave keys next to no weight, or none."""
    _in_turn(rows.of_heads["sink"], 12.0, 2.0**15)


def low_sinks(rows: Rows) -> None:
    """Leave sinks no weight."""
    _in_turn(rows.of_heads["sink"], -(2.0**15), -np.inf)


def _in_turn(of_heads: Singles, even: float, odd: float) -> None:
    of_heads[0::2], of_heads[1::2] = even, odd
