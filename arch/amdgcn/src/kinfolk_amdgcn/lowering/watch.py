"""Every call that a lowering writes, seen with the op it is written for before it is written."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import attrs

from kinfolk.errors import IllegalOp
from kinfolk.ir.op import BySelectedTarget, LlvmWriter, LowerToLlvm
from kinfolk.ir.value import Kernel, Operation
from kinfolk.lowering import FunctionWriter, Target
from kinfolk_amdgcn.legality import Legality, Statement
from kinfolk_amdgcn.target import parse_target_id

if TYPE_CHECKING:
    from kinfolk.arch import Arch

Watch = Callable[[Operation, Statement], None]


class WatchedWriter(FunctionWriter):
    """Writes a kernel's body and shows each call to `watch`, which may raise."""

    def __init__(self, kernel: Kernel, arch: Arch, target: Target, llvm: int, watch: Watch) -> None:
        lowerings = {op.name: target.lowerings.get(op.name, op.lowering) for op in arch.op_table}
        noted = {name: self._noted(each) for name, each in lowerings.items() if not isinstance(each, BySelectedTarget)}
        super().__init__(kernel, attrs.evolve(target, lowerings=noted), llvm)
        self._watch = watch
        self._operation: Operation | None = None

    def call(self, returns: str, function: str, *arguments: str, flags: str = "", attributes: str = "") -> str:
        """Write a call that is watched."""
        if self._operation is not None:
            self._watch(self._operation, Statement.of_call(returns, function, arguments))
        return super().call(returns, function, *arguments, flags=flags, attributes=attributes)

    def _noted(self, lowering: LowerToLlvm) -> LowerToLlvm:
        def lower(w: LlvmWriter, op: Operation) -> None:
            self._operation = op
            lowering(w, op)

        return lower


def legal_only(arch: Arch, llvm: int, legality: Legality | None) -> Watch:
    """Return a watch that raises IllegalOp for a call which the arch's processor does not have by the table."""
    processor = parse_target_id(arch.target_ids[0]).processor

    def watch(op: Operation, call: Statement) -> None:
        if legality is not None and (why := _refusal(legality, call, processor, llvm)):
            raise IllegalOp(f"{op.name} is not legal on {arch.name}: {why} (at {op.location})")

    return watch


@cache
def _refusal(legality: Legality, call: Statement, processor: str, llvm: int) -> str | None:
    return legality.refusal(call, processor, llvm)
