"""What machine code did wrong, or what of it is not modelled, with everything known about where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from kinfolk.errors import SimulationError

FaultKind = Literal[
    "unsupported", "outstanding", "wait_states", "uninitialised", "memory", "alignment", "race", "sync", "limit"
]


class MachineFault(SimulationError):
    """An instruction broke a rule of the machine; the first one found ends the launch.

    `kind` is the rule's class, `instruction` its text, `offset` its place in the kernel's code in bytes, `workgroup`
    its place in the grid, `wave` the wave in the workgroup, `lanes` those concerned. What is not known is None, or ().
    """

    def __init__(
        self,
        what: str,
        *,
        kind: FaultKind,
        kernel: str,
        instruction: str | None = None,
        offset: int | None = None,
        workgroup: tuple[int, int, int] | None = None,
        wave: int | None = None,
        lanes: Sequence[int] = (),
    ) -> None:
        self.what = what
        self.kind: FaultKind = kind
        self.kernel = kernel
        self.instruction = instruction
        self.offset = offset
        self.workgroup = workgroup
        self.wave = wave
        self.lanes = tuple(int(lane) for lane in lanes)
        place = [f"{kernel}: {instruction} at offset {offset:#x} {what}" if offset is not None else f"{kernel}: {what}"]
        if workgroup is not None:
            place.append(f"workgroup ({','.join(map(str, workgroup))})")
        if wave is not None:
            place.append(f"wave {wave}")
        if self.lanes:
            shown = ", ".join(map(str, self.lanes[:8])) + (", ..." if len(self.lanes) > 8 else "")
            place.append(f"lane{'s' if len(self.lanes) > 1 else ''} {shown}")
        super().__init__(f"{', '.join(place)} [{kind}]")


class Stop(Exception):
    """What an instruction found wrong: the rule, the wave by its index among those that ran it, the lanes."""

    def __init__(self, kind: FaultKind, what: str, wave: int | None = None, lanes: Sequence[int] = ()) -> None:
        super().__init__(what)
        self.kind: FaultKind = kind
        self.what = what
        self.wave = wave
        self.lanes = lanes
