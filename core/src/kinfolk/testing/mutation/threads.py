"""What each thread of a workgroup has of an integer that is made of nothing but which thread it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from kinfolk.ir.meaning import LaneFunction
from kinfolk.ir.numpy_lanes import NumpyAlgebra, NumpyLane
from kinfolk.ir.ops import vector
from kinfolk.ir.types import ScalarType, Type
from kinfolk.ir.value import Kernel, Operation, Value

Threads = npt.NDArray[np.int64]
"""For each thread of a workgroup, a thread."""
_MOST_STEPS: Final = 12


class _Places(NumpyAlgebra):
    """Which lane and wave threads are, not which workgroup."""

    def block_id(self, axis: int) -> NumpyLane:
        raise NotImplementedError("which workgroup it is, is known in no kernel")


class Workgroup:
    """The threads of a workgroup, and what is computed of nothing but which of them they are."""

    def __init__(self, kernel: Kernel) -> None:
        self.wave_size, self.threads = kernel.wave_size, np.arange(kernel.block)

    def pairings(self) -> Iterator[tuple[Threads, str]]:
        """Yield for each thread its partner, lanes and then waves a power of two apart."""
        distance = 1
        while distance < len(self.threads):
            partner = self.threads ^ distance
            if partner.max() < len(self.threads):
                waves = distance // self.wave_size
                yield partner, f"each wave of two {waves} apart" if waves else f"each lane of two {distance} apart"
            distance *= 2

    def computed(self, op: Operation, operands: Sequence[NumpyLane]) -> NumpyLane | None:
        """Return the integer that each thread computes; None where it is another's to say, or no integer."""
        meaning = op.definition.meaning
        if not isinstance(meaning, LaneFunction) or len(op.results) != 1 or not _is_integer(op.results[0].type):
            return None
        ids = self.threads.astype(np.uint32)
        active = np.ones(len(ids), np.bool_)
        algebra = _Places(ids % self.wave_size, ids // self.wave_size, ids, (0, 0, 0), active)
        type_ = op.results[0].type
        with np.errstate(all="ignore"):
            try:
                if op.definition is vector.constant:
                    (found,) = meaning.body(algebra, result=(type_,), **op.attributes)
                elif meaning.form == "elementwise":
                    found = meaning.body(algebra, *operands, **op.attributes)
                else:
                    return None
            except (AttributeError, NotImplementedError, TypeError):
                return None
        return NumpyLane(found.type, np.broadcast_to(found.data, self.threads.shape))

    def known(self, value: Value, steps: int = _MOST_STEPS) -> NumpyLane | None:
        """Return the integer that each thread has as a value; None where more is in it than which thread it is."""
        op = value.defining_op
        if op is None or steps == 0 or not all(_is_integer(each.type) for each in op.operands):
            return None
        operands = [self.known(each, steps - 1) for each in op.operands]
        found = [each for each in operands if each is not None]
        return self.computed(op, found) if len(found) == len(operands) else None


def _is_integer(type_: Type) -> bool:
    return isinstance(type_, ScalarType) and type_.kind == "int"
