"""Which values matter: those that a store, a barrier or the way to one depends on.

What is put into workgroup memory matters where something that matters is read from there.
"""

from __future__ import annotations

from kinfolk.analysis.comparisons import constant_of
from kinfolk.analysis.uniformity import is_control
from kinfolk.ir.meaning import MemoryAccess
from kinfolk.ir.value import Kernel, Operation, Region, Value


def live_values(kernel: Kernel) -> frozenset[Value]:
    """Return the values that something a kernel does depends on: what it writes, where, and whether it gets there."""
    marking = _Marking(kernel)
    for op in kernel.walk():
        if op.definition.effects & {"writes", "barrier"}:
            buffer = filled_buffer(op)
            if buffer is None or buffer.defining_op is None:
                marking.written(op)
            else:
                marking.filled.setdefault(buffer, []).append(op)
    return marking.finished()


def filled_buffer(op: Operation) -> Value | None:
    """Return the workgroup memory that an op puts something into; None for any other op."""
    meaning = op.definition.meaning
    if isinstance(meaning, MemoryAccess):
        if meaning.action == "stage":
            return op.operands[-2]
        if meaning.space == "workgroup" and meaning.action in ("store", "atomic_add"):
            return op.operands[0]
    return None


def ops_behind(kernel: Kernel, op: Operation) -> frozenset[Operation]:
    """Return the ops that an op's operands, and whether it takes place, depend on; the op itself is one of them."""
    marking = _Marking(kernel)
    marking.happens(op)
    marking.values += op.operands
    marking.finished()
    return frozenset(marking.happening)


class _Marking:
    def __init__(self, kernel: Kernel) -> None:
        self.values: list[Value] = []
        self.filled: dict[Value, list[Operation]] = {}
        self._live: set[Value] = set()
        self.happening: set[Operation] = set()
        self._around: dict[Operation, Operation] = {}
        self._of_region: dict[Region, Operation] = {}
        for op in kernel.walk():
            for region in op.regions:
                self._of_region[region] = op
                self._around.update(dict.fromkeys(region.operations, op))

    def happens(self, op: Operation | None) -> None:
        """Note that an op takes place, so that what leads to it counts: conditions, and the bounds of loops."""
        while op is not None and op not in self.happening:
            self.happening.add(op)
            if op.regions:
                self.values += op.operands[: 3 if is_control(op, "for") else 1]
            op = self._around.get(op)

    def written(self, op: Operation) -> None:
        """Note that what an op writes matters."""
        self.happens(op)
        self.values += op.operands

    def finished(self) -> frozenset[Value]:
        """Return all that the noted values and ops depend on."""
        while self.values:
            value = self.values.pop()
            if value not in self._live:
                self._live.add(value)
                self._follow(value)
        return frozenset(self._live)

    def _follow(self, value: Value) -> None:
        op = value.defining_op
        if op is None:
            assert isinstance(value.owner, Region)
            loop = self._of_region.get(value.owner)
            if loop is not None:
                self.happens(loop)
                if value.index:
                    self._carried(loop, value.index - 1)
            return
        self.happens(op)
        for each in self.filled.pop(value, ()):  # a buffer that is read, or handed on
            self.written(each)
        if not op.regions:
            self.values += op.operands
        elif is_control(op, "for"):
            self._carried(op, value.index, first=not _runs(op))
        else:
            self.values += [region.operations[-1].operands[value.index] for region in op.regions]

    def _carried(self, loop: Operation, index: int, *, first: bool = True) -> None:
        """Note what a loop carries: what each round hands on, and what the first is given unless no round reads it."""
        self.values.append(loop.regions[0].operations[-1].operands[index])
        if first:
            self.values.append(loop.operands[3 + index])


def _runs(loop: Operation) -> bool:
    """Return whether a loop is known to have a round: what it gives then is what one made."""
    lower, upper = map(constant_of, loop.operands[:2])
    return lower is not None and upper is not None and lower < upper
