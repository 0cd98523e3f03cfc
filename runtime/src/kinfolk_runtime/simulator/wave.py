"""A wave while it runs: its registers, its active lanes, and the algebra that evaluates lane functions on them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from kinfolk.ir.numpy_lanes import Array, NumpyAlgebra, NumpyLane, storage_dtype
from kinfolk.ir.types import F32, ScalarType
from kinfolk_runtime.simulator.fault import FaultKind, KernelFault

if TYPE_CHECKING:
    from kinfolk.ir.value import Operation
    from kinfolk_runtime.simulator.staging import Delivery
    from kinfolk_runtime.simulator.workgroup import Workgroup

Mask = npt.NDArray[np.bool_]
_LOW: Final = np.uint64((1 << 29) - 1)
_HALF: Final = np.uint64(1 << 28)
_ONE: Final = np.uint64(1)
_TINY: Final = np.uint64((1023 - 125) << 53)
"""The bits of 2^-125 without their sign, moved up by one; a sum of exactly 0 wraps around to far above."""
Stops = Generator["Operation"]
"""A run that may wait: it yields the barrier it stands at."""


class Unmet(Exception):  # never leaves the simulator: it becomes a KernelFault
    """A lane function's requirement does not hold on some active lanes."""

    def __init__(self, why: str, lanes: npt.NDArray[np.int64]) -> None:
        super().__init__(why)
        self.why = why
        self.lanes = lanes


class WaveAlgebra(NumpyAlgebra):
    """Evaluates lane functions on arrays [components, lanes], either of which may be 1 for what is equal everywhere."""

    def __init__(self, lane: Array, wave: Array, thread: Array, block: tuple[int, int, int], active: Mask) -> None:
        super().__init__(lane, wave, thread, block, active)
        self.active = active

    def block_id(self, axis: int) -> NumpyLane:
        """The index of the workgroup along an axis; equal on all lanes, so one number is enough."""
        lane = super().block_id(axis)
        return NumpyLane(lane.type, lane.data[:, :1])

    def to_int(self, x: NumpyLane, type_: ScalarType) -> NumpyLane:
        """As the algebra has it; up to 32 bits in fewer passes."""
        if type_.bits > 32:
            return super().to_int(x, type_)
        low, high = -float(1 << (type_.bits - 1)), float((1 << (type_.bits - 1)) - 1)
        wide = np.asarray(x.data).astype(np.float64)
        inside = np.maximum(np.minimum(np.where(wide == wide, wide, 0.0), high), low)
        signed = inside.astype(f"i{type_.bits // 8}")
        return NumpyLane(type_, signed.view(storage_dtype(type_)))

    def fma(self, a: NumpyLane, b: NumpyLane, c: NumpyLane) -> NumpyLane:
        """As the algebra has it; the exact way is taken only where rounding the f64 sum could round twice.

        That needs a sum halfway between two f32, or one so small that f32 has fewer bits for it.
        """
        total = a.data * b.data.astype(np.float64) + c.data
        bits = total.view(np.uint64)
        risky = ((bits & _LOW) == _HALF) | ((bits << _ONE) - _ONE < _TINY)
        if np.count_nonzero(risky):
            return super().fma(a, b, c)
        return NumpyLane(F32, total.astype(np.float32))

    def require(self, condition: NumpyLane, why: str) -> None:
        """Raise `Unmet` where an active lane does not meet the condition in every component."""
        data = np.atleast_2d(condition.data)
        if np.count_nonzero(data) == data.size:
            return
        failing = self.active & ~data.all(axis=0)
        if failing.any():
            raise Unmet(why, np.flatnonzero(failing))


class Wave:
    """One wave of a workgroup.

    `registers` holds, by slot, arrays [components, lanes] of storage bits; a size of 1 on the lane axis means equal on
    all lanes. `memory` keeps, by slot, what an op remembers between its executions in this wave. `pending` are its
    stagings that have not arrived, oldest first.
    """

    __slots__ = ("algebra", "full", "group", "index", "lanes", "mask", "memory", "pending", "registers", "size")

    def __init__(self, group: Workgroup, index: int, size: int, registers: list[Any], memory_slots: int) -> None:
        self.group = group
        self.index = index
        self.size = size
        self.registers = registers
        self.memory: list[Any] = [None] * memory_slots
        self.pending: list[Delivery] = []
        lane = np.arange(size, dtype=np.uint32)[None, :]
        everyone = np.ones(size, np.bool_)
        self.algebra = WaveAlgebra(
            lane, np.array([[index]], np.uint32), lane + np.uint32(index * size), group.place, everyone
        )
        self.enter(everyone)

    def enter(self, mask: Mask) -> None:
        """Let the lanes of `mask`, at least one, be the active ones."""
        self.mask = mask
        self.algebra.active = mask
        self.lanes = np.flatnonzero(mask)
        self.full = len(self.lanes) == self.size

    def fail(
        self, op: Operation, kind: FaultKind, what: str, lanes: Sequence[int] | Array | None = None, **where: Any
    ) -> NoReturn:
        """Raise the fault of `op` in this wave; without `lanes` all active ones are concerned."""
        concerned = self.lanes if lanes is None else lanes
        raise KernelFault(
            what,
            kind=kind,
            kernel=self.group.kernel,
            op=op,
            workgroup=self.group.place,
            wave=self.index,
            lanes=[int(lane) for lane in concerned],
            **where,
        )

    def one(self, op: Operation, slot: int, role: str) -> Array:
        """Return the value [components, 1] that the active lanes agree on; a difference is a fault."""
        value: Array = self.registers[slot]
        if value.shape[1] == 1:
            return value
        seen = value if self.full else value[:, self.lanes]
        first = seen[:, :1]
        differs = (bits_of(seen) != bits_of(first)).any(axis=0)
        if differs.any():
            where = np.flatnonzero(differs) if self.full else self.lanes[np.flatnonzero(differs)]
            self.fail(op, "uniformity", f"takes a {role} that differs from lane {int(self.lanes[0])}'s", where)
        return first

    def integer(self, op: Operation, slot: int, role: str) -> int:
        """Return the signed integer that the active lanes agree on."""
        value = self.one(op, slot, role)
        return int(value.view(f"i{value.dtype.itemsize}")[0, 0])


def bits_of(value: Array) -> Array:
    """Return floats as unsigned integers of their bits; anything else as it is."""
    return value.view(f"u{value.dtype.itemsize}") if value.dtype.kind == "f" else value


def poison(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return values with every bit set: NaN for floats, -1 for integers."""
    if dtype == np.bool_:
        return np.ones(shape, np.bool_)
    return np.full(shape, np.iinfo(f"u{dtype.itemsize}").max, f"u{dtype.itemsize}").view(dtype)
