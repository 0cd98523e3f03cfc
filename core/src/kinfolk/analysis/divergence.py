"""Barriers and other ops that need lanes together, where lanes or waves may have parted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from kinfolk.analysis.meetings import uneven_meetings
from kinfolk.analysis.uniformity import Level
from kinfolk.check.defect import Defect
from kinfolk.ir.meaning import Control, LanePermutation, Matrix, MemoryAccess

if TYPE_CHECKING:
    from kinfolk.analysis.subject import Subject
    from kinfolk.ir.value import Kernel, Operation

BARRIER: Final = "divergent_barrier"
LOOP: Final = "divergent_loop"
WHO: Final = {Level.WAVE: "waves", Level.LANE: "lanes"}


def divergent_barriers(subject: Subject) -> tuple[Defect, ...]:
    """Return a defect for each op that needs all waves, or all lanes of a wave, and may run without some.

    A barrier needs the whole workgroup; `core.meet` the whole wave, for other waves may meet it elsewhere, as often as
    this one. A matrix product, a read that exchanges lanes and a permutation that may read from an inactive lane need
    the whole wave.
    """
    found: list[Defect] = []
    for op in subject.kernel.walk():
        needed = _needed(op, subject.kernel)
        if needed is None:
            continue
        for control, level in subject.uniformity.around(op):
            if level > needed:
                found.append(_parted(op, control, level, needed))
                break
    return tuple(found) or uneven_meetings(subject, BARRIER)


def divergent_loops(subject: Subject) -> tuple[Defect, ...]:
    """Return a defect for each loop whose bounds are not known to be equal on all lanes of a wave."""
    return tuple(
        Defect(
            check=LOOP,
            where=str(op.location),
            problem="the bounds of the loop are not known to be equal on all lanes of a wave",
            remedy="pass them through kinfolk.ir.ops.lanes.uniform, or mask what lanes do in the loop",
        )
        for op in subject.kernel.walk()
        if op.definition.meaning == Control("for")
        and max(subject.uniformity[bound] for bound in op.operands[:3]) > Level.WAVE
    )


def _parted(op: Operation, control: Operation, level: Level, needed: Level) -> Defect:
    what = "loop" if control.definition.meaning == Control("for") else "branch"
    alike = "workgroup" if needed is Level.WORKGROUP else "wave"
    return Defect(
        check=BARRIER,
        where=str(op.location),
        problem=f"{op.name} is reached by some {WHO[level]} only: the {what} at {control.location} is decided by a "
        f"value that {WHO[level]} may have differently",
        remedy=f"move it out of the {what}, or decide by a value that is known to be equal in the {alike}",
    )


def _needed(op: Operation, kernel: Kernel) -> Level | None:
    """Return who must be together for an op; None where it runs on whatever lanes are active."""
    match op.definition.meaning:
        case Control(kind="barrier"):
            alone = "place" in op.attributes or kernel.block == kernel.wave_size
            return Level.WAVE if alone else Level.WORKGROUP
        case Matrix():
            return Level.WAVE
        case MemoryAccess(exchange=exchange) if exchange is not None:
            return Level.WAVE
        case LanePermutation() as permutation:
            return Level.WAVE if _reads_inactive_lanes(op, permutation, kernel.wave_size) else None
        case _:
            return None


def _reads_inactive_lanes(op: Operation, permutation: LanePermutation, wave_size: int) -> bool:
    """Whether a permutation reads from an inactive lane under some mask: of one lane, or of every second."""
    lanes = np.arange(wave_size)
    masks = [lanes == 0, lanes == wave_size - 1, lanes % 2 == 0, lanes % 2 == 1]
    for active in masks:
        for _, source in permutation.sources(wave_size, active, **op.attributes):
            if not active[np.broadcast_to(source, (wave_size,))[active]].all():
                return True
    return False
