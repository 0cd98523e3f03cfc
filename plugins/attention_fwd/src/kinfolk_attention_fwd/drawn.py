"""The numbers of a batch of sequences before they are rounded, and what scenarios change in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from kinfolk_attention_fwd.request import AttentionFwdRequest

Array = npt.NDArray[Any]
Singles = npt.NDArray[np.float32]


@attrs.frozen(eq=False)
class Rows:
    """Per sequence `query` [tokens, heads, columns], and `keys` and `values` [keys, heads of keys, columns]; scenarios
    change them in place. They leave the first column to what changes scores and, of values, nothing.
    """

    request: AttentionFwdRequest
    query: Sequence[Singles]
    keys: Sequence[Singles]
    values: Sequence[Singles]


Change = Callable[[Rows], None]


def nothing(rows: Rows) -> None:
    """Change nothing."""


def climbing(rows: Rows) -> None:
    """Lift every second query's score of one key of each 32, by 60 natural-log units more than in those before."""
    for query, keys in zip(rows.query, rows.keys, strict=True):
        query[..., 0] = 0.0
        query[1::2, :, 0] = 4.0
        keys[..., 0] = 0.0
        for block in range(1, -(-len(keys) // 32)):
            place = 32 * block + 5 * block % 32
            keys[place : place + 1, :, 0] = min(block * 60.0 / (4.0 * rows.request.scale), 2.0**14)


def extreme(rows: Rows) -> None:
    """Make every raw score one product that is exact in f32, and no power of two, as far apart as the type has them."""
    high, low = (63, 38) if rows.request.dtype == "bf16" else (15, 8)
    for number, (query, keys) in enumerate(zip(rows.query, rows.keys, strict=True)):
        query[:] = 0.0
        query[..., 0] = 2.0**high
        query[1::2, :, 0] = -(2.0**high)
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
