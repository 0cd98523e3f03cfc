"""The inputs on which row softmax is run: each a situation that some plausible mistake gets wrong.

Numbers of rows and columns are launch values, so one compiled kernel runs them all. Rows of `x` are slices of longer
ones, poisoned between, so that their distance is not their length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check import Scenario, SparseArray, numpy_dtype, poison

if TYPE_CHECKING:
    from kinfolk_row_softmax.request import RowSoftmaxRequest

Array = npt.NDArray[Any]
Change = Callable[[npt.NDArray[np.float32], float], None]

LARGEST: Final = {"f32": (2.0 - 2.0**-23) * 2.0**127, "bf16": (2.0 - 2.0**-7) * 2.0**127, "f16": 65504.0}
"""The largest finite number of each type."""
ROWS: Final = 5
BLOCK: Final = 1024
"""A whole number of a workgroup's steps, with waves of 32 and of 64."""
GAP: Final = 3
"""Elements between rows; with an even number of columns, every other row of 16-bit elements begins within a word."""


def row_softmax_scenarios(request: RowSoftmaxRequest) -> tuple[Scenario, ...]:
    """Return the scenarios: the request's own size, as far as a few rows, then the lengths and numbers that matter."""
    few = min(request.rows, ROWS)
    return (
        _scenario(request, "unit", "normal scores over the request's columns", request.columns, rows=few),
        _scenario(request, "one_column", "a single score, whose weight is 1", 1),
        _scenario(request, "exact_block", "whole steps, no tail", BLOCK),
        _scenario(request, "block_plus_one", "a last step of one column", BLOCK + 1),
        _scenario(request, "short", "fewer columns than lanes: most lanes, and waves, have none", 7),
        _scenario(request, "peaked", "nearly all weight on the last column", 700, _peaked),
        _scenario(request, "rising", "every step raises the maximum", 2 * BLOCK + 5, _rising),
        _scenario(request, "spikes", "one score of a row, late, far above the others", 2 * BLOCK, _spiked),
        _scenario(request, "constant", "equal scores, far from 0", 333, _constant),
        _scenario(request, "extreme", "the largest finite scores of both signs", 300, _extreme),
        _scenario(request, "no_rows", "nothing to do", 100, rows=0),
        _scenario(request, "masked", "-inf in parts of rows, and in all of one", BLOCK + 77, _masked),
        _far_apart(request),
    )


def _far_apart(request: RowSoftmaxRequest) -> Scenario:
    """Return a scenario whose last row begins 2^32 elements after the first; nothing exists between rows."""
    asked = attrs.evolve(request, columns=75, rows=ROWS)
    pitch = 2**32 // (ROWS - 1)

    def build(generator: np.random.Generator) -> dict[str, SparseArray]:
        scores = generator.standard_normal((ROWS, asked.columns), dtype=np.float32) / np.float32(asked.scale)
        storage = numpy_dtype(asked.dtype)
        x = scores.clip(-LARGEST[asked.dtype], LARGEST[asked.dtype]).astype(storage)
        return {"x": SparseArray(shape=x.shape, dtype=storage, held=dict(enumerate(x)), pitch=pitch)}

    about = "rows so far apart that their distance is no number of 32 bits"
    return Scenario(name="far_apart", about=about, request=asked, build=build, sparse=frozenset(("x",)))


def _scenario(
    request: RowSoftmaxRequest,
    name: str,
    about: str,
    columns: int,
    change: Change = lambda scores, largest: None,
    rows: int = ROWS,
) -> Scenario:
    asked = attrs.evolve(request, columns=columns, rows=rows)

    def build(generator: np.random.Generator) -> dict[str, Array]:
        storage = numpy_dtype(asked.dtype)
        scores = generator.standard_normal((rows, columns), dtype=np.float32) / np.float32(asked.scale)
        largest = LARGEST[asked.dtype]
        with np.errstate(over="ignore"):
            change(scores, largest)
            x = poison(asked.dtype, (rows, columns + GAP))[:, :columns]
            x[...] = np.where(scores == -np.inf, scores, np.clip(scores, -largest, largest)).astype(storage)
        return {"x": x}

    return Scenario(name=name, about=about, request=asked, build=build)


def _peaked(scores: npt.NDArray[np.float32], largest: float) -> None:
    scores[:, -1] = np.abs(scores).max(axis=1) * 20.0


def _rising(scores: npt.NDArray[np.float32], largest: float) -> None:
    scores += np.abs(scores).max() * np.linspace(-20.0, 20.0, scores.shape[1], dtype=np.float32)


def _spiked(scores: npt.NDArray[np.float32], largest: float) -> None:
    for row, place in enumerate(range(BLOCK + BLOCK // 10, 2 * BLOCK, BLOCK // ROWS)[: len(scores)]):
        scores[row, place] = np.abs(scores).max() * 60.0


def _constant(scores: npt.NDArray[np.float32], largest: float) -> None:
    scores[...] = 1000.0


def _extreme(scores: npt.NDArray[np.float32], largest: float) -> None:
    scores[0::3] = -largest  # a row of the lowest finite number is a row of equal scores
    scores[1::3, ::2] = largest
    scores[2::3] = np.where(scores[2::3] > 0.0, largest, -largest)


def _masked(scores: npt.NDArray[np.float32], largest: float) -> None:
    scores[:, ::3] = -np.inf
    scores[:, 100:900] = -np.inf
    scores[1::2] = -np.inf
