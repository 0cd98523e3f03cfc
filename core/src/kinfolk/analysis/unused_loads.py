"""Loads whose values go nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kinfolk.check.defect import Defect
from kinfolk.ir.meaning import MemoryAccess

if TYPE_CHECKING:
    from kinfolk.analysis.subject import Subject

CHECK: Final = "unused_load"


def unused_loads(subject: Subject) -> tuple[Defect, ...]:
    """Return a defect for each load that nothing depends on which the kernel writes, or branches to a write by."""
    return tuple(
        Defect(
            check=CHECK,
            where=str(op.location),
            problem=f"{op.name} reads {op.results[0].type} that nothing which the kernel writes depends on",
            remedy="take the load out, or use what it reads",
        )
        for op in subject.kernel.walk()
        if isinstance(op.definition.meaning, MemoryAccess)
        and op.definition.meaning.action == "load"
        and subject.live.isdisjoint(op.results)
    )
