"""Which values matter: those that a store, a barrier or the way to one depends on."""

from __future__ import annotations

from kinfolk.ir.meaning import Control
from kinfolk.ir.value import Kernel, Operation, Region, Value


def live_values(kernel: Kernel) -> frozenset[Value]:
    """Return the values that something a kernel does depends on: what it writes, where, and whether it gets there."""
    marking = _Marking(kernel)
    for op in kernel.walk():
        if op.definition.effects & {"writes", "barrier"}:
            marking.happens(op)
            marking.values += op.operands
    return marking.finished()


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
                self.values += op.operands[: 3 if _is(op, "for") else 1]
            op = self._around.get(op)

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
        if not op.regions:
            self.values += op.operands
        elif _is(op, "for"):
            self._carried(op, value.index)
        else:
            self.values += [region.operations[-1].operands[value.index] for region in op.regions]

    def _carried(self, loop: Operation, index: int) -> None:
        self.values += [loop.operands[3 + index], loop.regions[0].operations[-1].operands[index]]


def _is(op: Operation, kind: str) -> bool:
    meaning = op.definition.meaning
    return isinstance(meaning, Control) and meaning.kind == kind
