"""Barriers and the markers of order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kinfolk.ir.op import LlvmWriter, LowerToLlvm
from kinfolk.ir.value import Operation


def lower_barrier(w: LlvmWriter, op: Operation) -> None:
    """Write a barrier that orders workgroup memory and leaves global loads in flight.

    The fences are LLVM's own statement of it: nothing that touches memory moves across, outstanding accesses to
    workgroup memory are waited for (lgkmcnt), and at workgroup scope nothing else is (no vmcnt, no cache operation).
    """
    w.emit('fence syncscope("workgroup") release')
    w.call("void", "llvm.amdgcn.s.barrier")
    w.emit('fence syncscope("workgroup") acquire')


def lower_schedule_fence(w: LlvmWriter, op: Operation) -> None:
    """Write the marker that no instruction is scheduled across."""
    w.call("void", "llvm.amdgcn.sched.barrier", "i32 0")


def lower_opaque(w: LlvmWriter, op: Operation) -> None:
    """Write an empty template that takes and gives one register, vector or scalar."""
    constraint = "=s,0" if op.attributes["uniform"] else "=v,0"
    w.define(op.results[0], f'call i32 asm sideeffect "", "{constraint}"({w.typed(op.operands[0])})')


LOWERINGS: Final[Mapping[str, LowerToLlvm]] = {
    "core.barrier": lower_barrier,
    "core.meet": lower_barrier,
    "core.schedule_fence": lower_schedule_fence,
    "core.opaque": lower_opaque,
}
