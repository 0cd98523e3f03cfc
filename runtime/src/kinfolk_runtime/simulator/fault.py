"""What a kernel did wrong on the simulator, with everything known about where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import attrs

from kinfolk.errors import SimulationError

if TYPE_CHECKING:
    from kinfolk.ir.value import Operation

FaultKind = Literal[
    "race",
    "memory",
    "initialisation",
    "permission",
    "alignment",
    "sync",
    "uniformity",
    "lane",
    "integer",
    "float",
    "argument",
    "indirection",
    "limit",
]


@attrs.frozen
class Party:
    """One side of a race: its op as `dialect.op`, where that was built, and the workgroup, wave and lanes it ran in.

    What is not known is None, or ().
    """

    op: str | None
    source: str | None
    workgroup: tuple[int, int, int] | None
    wave: int | None = None
    lanes: tuple[int, ...] = ()

    def __str__(self) -> str:
        parts = [f"{self.op or 'an op that is not known'}{f' at {self.source}' if self.source else ''}"]
        return ", ".join(parts + _place(self.workgroup, self.wave, self.lanes))


class KernelFault(SimulationError):
    """A kernel broke a rule; the first one found ends the launch.

    `kind` is the rule's class. `op` is `dialect.op` and `source` where it was built, `workgroup` its place in the
    grid, `wave` the wave in the workgroup, `lanes` the lanes concerned. For a memory access `address` is the first
    wrong lane's, `buffer` the parameter or workgroup allocation it was meant for and `element` the index there. Of a
    race, `other` is the second party; these attributes tell of the first. What is not known is None, or ().
    """

    def __init__(
        self,
        what: str,
        *,
        kind: FaultKind,
        kernel: str,
        op: Operation | None = None,
        workgroup: tuple[int, int, int] | None = None,
        wave: int | None = None,
        lanes: Sequence[int] = (),
        address: int | None = None,
        buffer: str | None = None,
        element: int | None = None,
        other: Party | None = None,
    ) -> None:
        self.kind = kind
        self.kernel = kernel
        self.op = op.name if op is not None else None
        self.source = str(op.location) if op is not None else None
        self.workgroup = workgroup
        self.wave = wave
        self.lanes = tuple(int(lane) for lane in lanes)
        self.address = address
        self.buffer = buffer
        self.element = element
        self.other = other
        super().__init__(self._sentence(what))

    def _sentence(self, what: str) -> str:
        head = f"{self.kernel}: " + (f"{self.op} {what} at {self.source}" if self.op else what)
        parts = [head, *_place(self.workgroup, self.wave, self.lanes)]
        if self.address is not None:
            parts.append(f"address {self.address:#x}")
        against = f"; the other party: {self.other}" if self.other is not None else ""
        return ", ".join(parts) + against + f" [{self.kind}]"


def _place(workgroup: tuple[int, int, int] | None, wave: int | None, lanes: Sequence[int]) -> list[str]:
    parts: list[str] = []
    if workgroup is not None:
        parts.append(f"workgroup ({','.join(map(str, workgroup))})")
    if wave is not None:
        parts.append(f"wave {wave}")
    if lanes:
        parts.append(f"lane{'s' if len(lanes) > 1 else ''} {spans(lanes)}")
    return parts


def spans(numbers: Sequence[int]) -> str:
    """Return ascending numbers in short form: `0-3, 7, 9-10`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] + 1 == number:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs)
