"""What waves of a launch issue and what their accesses reach, written down while they run.

Waves that run in lockstep share a run: the instructions one after the other, and per access a value for each wave.
Accesses of workgroup memory are kept as clocks of its banks, those of memory as the lines that they touch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np

from kinfolk_amdgcn.isa.waves import LANES, Array, Waves
from kinfolk_amdgcn.machine.costs import SHARED_BYTES_PER_CLOCK

if TYPE_CHECKING:
    from kinfolk.banks import BankAction, BankModel
    from kinfolk_amdgcn.isa.step import Step

LINE_BYTES: Final = 64
"""What memory is counted in: half a line of the second-level cache, which reads from memory in halves."""
MOST_KEPT: Final = 8_000_000
"""Instructions of waves that are kept; of workgroups past them only how many they ran is."""

PRIVATE_BASE, PRIVATE_BYTES = 1 << 56, 1 << 32
"""Where memory of lanes alone is taken to lie, and how far that of one wave is from that of the next."""


@attrs.frozen
class Access:
    """What one wave accesses with one instruction.

    Workgroup memory serves it in `clocks`, `fewest` without conflicts. It touches the lines of memory
    `first_line + each` of `lines`.
    """

    clocks: int = 0
    fewest: int = 0
    first_line: int = 0
    lines: tuple[int, ...] = ()


@attrs.define(eq=False)
class _Run:
    """Instructions that the same waves ran in lockstep, and by place among them what each wave accessed."""

    count: int = 0
    places: list[int] = attrs.field(factory=list[int])
    accesses: dict[int, list[Access]] = attrs.field(factory=dict[int, list[Access]])


class Trace:
    """What was issued; `of(workgroup)` gives it back wave by wave."""

    def __init__(self, steps: tuple[Step, ...], waves: int, banks: BankModel | None) -> None:
        """`waves` are those of a workgroup."""
        self.steps, self.waves = steps, waves
        self._banks = banks
        self._of: dict[int, list[tuple[_Run, int]]] = {}
        self._last: tuple[Array, Array, _Run] | None = None
        self._workgroups = np.zeros(0, np.int64)
        self._dropped: set[int] = set()
        self._keeps = True
        self._kept = 0
        self._local: list[tuple[Array, int]] = []
        self._memory: list[tuple[Array, Array, int]] = []
        self._bank_costs: dict[Any, tuple[int, int]] = {}
        self._lines: dict[tuple[int, ...], tuple[int, ...]] = {}

    def begin(self, workgroups: Array) -> None:
        """Take what follows for that of a batch of these workgroups."""
        self._workgroups, self._last = workgroups, None
        self._keeps = self._kept < MOST_KEPT
        if not self._keeps:
            self._dropped.update(workgroups.tolist())

    def local(self, w: Waves, address: Array, size: int) -> None:
        """Note where an instruction, before it is noted itself, accesses workgroup memory: bytes [waves, lanes]."""
        if self._keeps:
            self._local.append((np.broadcast_to(address, w.live.shape), size))

    def memory(self, w: Waves, address: Array, there: Array, size: int) -> None:
        """Note where an instruction accesses memory, and how many bytes from there on are in range."""
        if self._keeps:
            shape = w.live.shape
            self._memory.append((np.broadcast_to(address, shape), np.broadcast_to(there, shape), size))

    def private(self, w: Waves, address: Array, there: Array, size: int) -> None:
        """The same, of memory of each lane alone: the dwords of a wave's lanes at one place lie side by side."""
        if not self._keeps:
            return
        number = self._workgroups[w.group] * self.waves + w.number
        base = PRIVATE_BASE + number[:, None] * PRIVATE_BYTES
        for part in range(-(-size // 4)):
            place = (np.broadcast_to(address, w.live.shape) // 4 + part) * LANES + np.arange(LANES)
            self.memory(w, base + 4 * place, np.full((1, 1), 4), 4)

    def issued(self, index: int, w: Waves) -> None:
        """Note that waves ran an instruction."""
        run = self._run_of(w)
        run.count += 1
        if not self._keeps:
            return
        self._kept += w.count
        if self._local or self._memory:
            run.accesses[len(run.places)] = self._accesses(self.steps[index], w)
        run.places.append(index)

    def keeps(self, workgroup: int) -> bool:
        """Return whether it has what a workgroup issued."""
        return workgroup not in self._dropped and workgroup * self.waves in self._of

    def of(self, workgroup: int) -> list[Iterator[tuple[int, Access | None]]]:
        """Return of a workgroup that it keeps, per wave, its instructions as indices, each with what it accessed."""
        first = workgroup * self.waves
        return [self._wave(number) for number in range(first, first + self.waves)]

    def counted(self) -> dict[int, int]:
        """Return how many instructions the waves of each workgroup ran."""
        found: dict[int, int] = {}
        for number, runs in self._of.items():
            group = number // self.waves
            found[group] = found.get(group, 0) + sum(run.count for run, _ in runs)
        return found

    def conflict_clocks(self) -> int:
        """Return the clocks beyond the fewest that kept accesses to workgroup memory take."""
        return sum(
            accesses[position].clocks - accesses[position].fewest
            for runs in self._of.values()
            for run, position in runs
            for accesses in run.accesses.values()
        )

    def _wave(self, number: int) -> Iterator[tuple[int, Access | None]]:
        for run, position in self._of[number]:
            accesses = run.accesses
            for place, index in enumerate(run.places):
                found = accesses.get(place)
                yield index, None if found is None else found[position]

    def _run_of(self, w: Waves) -> _Run:
        """Return the run that these waves are in: a new one where others ran meanwhile, or they parted or met."""
        if self._last is not None and self._last[0] is w.group and self._last[1] is w.number:
            return self._last[2]
        run = _Run()
        for position, number in enumerate((self._workgroups[w.group] * self.waves + w.number).tolist()):
            self._of.setdefault(number, []).append((run, position))
        self._last = (w.group, w.number, run)
        return run

    def _accesses(self, step: Step, w: Waves) -> list[Access]:
        local, memory = self._local, self._memory
        self._local, self._memory = [], []
        action = _action(step)
        costs = [
            self._bank_cost(action, [(at[wave], size) for at, size in local], w.live[wave]) if local else (0, 0)
            for wave in range(w.count)
        ]
        lines = _lines(memory, w.live) if memory else [()] * w.count
        return [Access(*cost, *self._shared(each)) for cost, each in zip(costs, lines, strict=True)]

    def _shared(self, lines: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        """Return the first line and all of them from there on; equal patterns are one tuple."""
        if not lines:
            return 0, ()
        from_first = tuple(line - lines[0] for line in lines)
        return lines[0], self._lines.setdefault(from_first, from_first)

    def _bank_cost(self, action: BankAction, parts: list[tuple[Array, int]], live: Array) -> tuple[int, int]:
        """Return the clocks of an access, and the fewest; they depend on addresses only up to rounds of all banks."""
        model = self._banks
        if model is None:
            clocks = sum(-(-int(live.sum()) * size // SHARED_BYTES_PER_CLOCK) for _, size in parts)
            return clocks, clocks
        around = model.banks * model.bank_bytes
        key = (action, live.tobytes(), *((size, (at - at.min() // around * around).tobytes()) for at, size in parts))
        if key not in self._bank_costs:
            lanes = np.flatnonzero(live)
            costs = [model.cost(action, size, at[lanes].astype(np.int64), lanes) for at, size in parts]
            self._bank_costs[key] = sum(cost.cycles for cost in costs), sum(cost.fewest for cost in costs)
        return self._bank_costs[key]


def _lines(parts: list[tuple[Array, Array, int]], live: Array) -> list[tuple[int, ...]]:
    """Return the lines that each wave touches, in order, each once."""
    ends: list[Array] = []
    for address, there, size in parts:
        within = np.minimum(there, size)
        wanted = live & (within > 0)
        ends += [np.where(wanted, at // LINE_BYTES, -1) for at in (address, address + within - 1)]
    lines = np.sort(np.concatenate(ends, axis=1), axis=1)
    new = lines >= 0
    new[:, 1:] &= lines[:, 1:] != lines[:, :-1]
    return [tuple(row[chosen].tolist()) for row, chosen in zip(lines, new, strict=True)]


def _action(step: Step) -> BankAction:
    """Return what an instruction does with workgroup memory."""
    if step.unit == "memory":
        return "stage"
    if "_tr_" in step.name:
        return "transpose_read"
    if "read" in step.name:
        return "read"
    return "write" if "write" in step.name else "atomic_add"
