"""The six kinds of meaning of an op. Engines, lowering and proofs read them; nothing else says what an op does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.ir.types import ScalarType

LaneIndex = npt.NDArray[np.int64]


@attrs.frozen
class LaneFunction:
    """Each lane for itself.

    `elementwise`: `body(algebra, *scalars, **attributes)` gives one component, and runs once per component; scalar
    operands are shared by all components. `components`: `body(algebra, *lists of components, result=types,
    **attributes)` gives the list of all components of the result.
    """

    body: Callable[..., Any]
    form: Literal["elementwise", "components"] = "elementwise"


@attrs.frozen
class LanePermutation:
    """Each lane takes all components of an operand from another lane.

    `sources(wave_size, active, **attributes)` gives, per result, an array [wave_size] of source lanes and the operand
    they are read from: one number, or an array [wave_size] where lanes read different operands (of one type). `active`
    is the mask of active lanes. Reading an inactive lane is an error.
    """

    sources: Callable[..., tuple[tuple[int | LaneIndex, LaneIndex], ...]]


@attrs.frozen
class MemoryAccess:
    """Memory is read or written at an address in elements, consecutive components at consecutive elements.

    `exchange(wave_size, lane, component)` is for reads that hand elements to other lanes: it gives the (lane,
    component) whose loaded element lands there. `stage` reads global memory or a view and writes workgroup memory
    without passing registers: its last two operands are the buffer and the element index in it, equal on all lanes, at
    which lane 0's elements go; lane l's go `l * count` further. What it writes has arrived once the wave has waited
    (`wait`, attribute `outstanding`: how many of the wave's latest stagings may still be on their way).
    """

    space: Literal["global", "view", "workgroup"]
    action: Literal["load", "store", "atomic_add", "stage", "wait", "allocate", "offset", "bound"]
    exchange: Callable[[int, LaneIndex, LaneIndex], tuple[LaneIndex, LaneIndex]] | None = None


@attrs.frozen
class OperandMap:
    """Where a matrix operand keeps its elements: (lane, slot) to (row, column), as arrays [wave_size, slots]."""

    rows: npt.NDArray[np.int64] = attrs.field(eq=False)
    columns: npt.NDArray[np.int64] = attrs.field(eq=False)

    @property
    def slots(self) -> int:
        """How many elements a lane holds."""
        return self.rows.shape[1]


@attrs.frozen
class Matrix:
    """D = A B + C with A m by k, B k by n, one product per wave.

    Floats of at most 32 bits: C is f32, and products are summed in ascending k in f32. A and B of i8: C is i32; they
    are read signed, and the sum wraps modulo 2^32.
    """

    m: int
    n: int
    k: int
    a_type: ScalarType
    b_type: ScalarType
    c_type: ScalarType
    a: OperandMap
    b: OperandMap
    c: OperandMap


@attrs.frozen
class Control:
    """Which lanes run, and how waves wait for each other."""

    kind: Literal["for", "if", "yield", "return", "barrier", "any", "uniform"]


@attrs.frozen
class ScheduleMarker:
    """Computes the identity (or nothing); tells the compiler about order."""


Meaning = LaneFunction | LanePermutation | MemoryAccess | Matrix | Control | ScheduleMarker
