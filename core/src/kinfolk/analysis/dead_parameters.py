"""Parameters that nothing a kernel does depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kinfolk.check.defect import Defect

if TYPE_CHECKING:
    from kinfolk.analysis.subject import Subject

CHECK: Final = "dead_parameter"


def dead_parameters(subject: Subject) -> tuple[Defect, ...]:
    """Return a defect for each parameter that no store, barrier or branch to one depends on."""
    kernel = subject.kernel
    return tuple(
        Defect(
            check=CHECK,
            where=f"{subject.name}, parameter {parameter.name}",
            problem="nothing that the kernel writes, or waits for, depends on it",
            remedy="use it, or take it out of the spec's parameters and of the plan's arguments",
        )
        for parameter, value in zip(kernel.parameters, kernel.body.arguments, strict=True)
        if value not in subject.live
    )
