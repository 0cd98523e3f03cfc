"""The model of time over a trace: which compute unit has most to do, and what it takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import attrs

from kinfolk.timing import CAUSES, Constant, InstructionTiming, LoopTiming, Spent, Timing, WaveTiming
from kinfolk_amdgcn.isa.compute_unit import NUMBER, ComputeUnit, spent
from kinfolk_amdgcn.isa.constants import constants, scaled
from kinfolk_amdgcn.isa.flow_steps import wait_text
from kinfolk_amdgcn.isa.issue_costs import IssueCost, issue_costs
from kinfolk_amdgcn.isa.loops import StepLoop, loops
from kinfolk_amdgcn.isa.registers import register_ranges
from kinfolk_amdgcn.resources import wave_limits

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.machine import LaunchShape
    from kinfolk_amdgcn.isa.program import Program
    from kinfolk_amdgcn.isa.trace import Trace


@attrs.frozen(kw_only=True, slots=False, eq=False)
class MachineTrace:
    """A launch that was traced; `extra_states` are the wait states past its passes of a result."""

    program: Program
    trace: Trace
    arch: Arch
    shape: LaunchShape
    extra_states: int

    @property
    def constants(self) -> tuple[Constant, ...]:
        """What the model counts with."""
        return constants(self.arch)

    @cached_property
    def resident(self) -> int:
        """Workgroups that a compute unit holds at once, by registers, workgroup memory and waves."""
        kernel, limits = self.program.kernel, wave_limits(self.arch)
        waves = limits.waves_per_simd(kernel.vectors, kernel.accumulators)
        local_bytes = kernel.local_bytes + self.shape.dynamic_bytes
        return max(1, limits.workgroups_per_cu(waves, self.trace.waves, local_bytes))

    @property
    def conflict_clocks(self) -> int:
        """Clocks of workgroup memory beyond the fewest; workgroups that are not kept count in proportion."""
        counted = self.trace.counted()
        kept = sum(count for number, count in counted.items() if self.trace.keeps(number))
        return round(self.trace.conflict_clocks() * sum(counted.values()) / kept) if kept else 0

    @property
    def workgroups(self) -> int:
        """Workgroups of the grid."""
        return math.prod(self.shape.grid)

    def timing(
        self, scaled_by: Mapping[str, float] | None = None, *, workgroups: int | None = None, spans: bool = False
    ) -> Timing:
        """Return what the model says; see `kinfolk.timing.LaunchTrace`."""
        values = scaled(self.constants, scaled_by or {})
        units = self.arch.compute_units
        counted = self.trace.counted()
        share, whole = self._share(units, counted)
        kept = [number for number in share if self.trace.keeps(number)]
        chosen = kept[: workgroups or len(kept)]
        steps = self.program.steps
        width = self.arch.banks.bytes_per_clock if self.arch.banks else self.arch.lds_bytes_per_clock
        costs = issue_costs(steps, values, self.extra_states, width)
        unit = ComputeUnit(steps, costs, values, self.arch.simds_per_cu, min(units, self.workgroups) or 1, spans)
        clocks = unit.run([(number, self.trace.of(number)) for number in chosen], self.resident)
        part = sum(counted[number] for number in chosen)
        return Timing(
            symbol=self.program.kernel.symbol,
            workgroups=self.workgroups,
            compute_units=units,
            share=len(share),
            timed=len(chosen),
            resident=min(self.resident, len(share)),
            waves_per_simd=math.ceil(min(self.resident, len(share)) * self.trace.waves / self.arch.simds_per_cu),
            clocks=clocks,
            clocks_of_grid=clocks * whole / part if part else 0.0,
            busy=_busy(unit, clocks, self.arch.simds_per_cu),
            waves=tuple(
                WaveTiming(
                    workgroup=wave.workgroup.number,
                    number=wave.number,
                    simd=wave.simd,
                    begin=wave.begin,
                    end=wave.end,
                    spent=wave.spent(),
                    spans=tuple(wave.spans),
                )
                for wave in unit.waves
            ),
            loops=tuple(self._loop(each, unit, costs) for each in loops(steps) if unit.counts[each.header]),
            instructions=tuple(
                InstructionTiming(
                    offset=step.offset,
                    text=self._text(number),
                    count=unit.counts[number],
                    spent=_spent(unit, costs, frozenset((number,))),
                    conflicts=unit.conflicts[number],
                )
                for number, step in enumerate(steps)
                if unit.counts[number]
            ),
        )

    def _share(self, units: int, counted: Mapping[int, int]) -> tuple[list[int], int]:
        """Return the workgroups of the compute unit with most to do, and how many instructions that is.

        They are dealt one after the other. Of units, only those are looked at of which the trace keeps a workgroup.
        """
        shares: dict[int, list[int]] = {}
        for number in sorted(counted):
            shares.setdefault(number % units, []).append(number)
        if not shares:
            return [], 0
        todo = {unit: sum(counted[number] for number in share) for unit, share in shares.items()}
        kept = [unit for unit, share in shares.items() if any(map(self.trace.keeps, share))]
        return shares[max(kept, key=lambda unit: todo[unit])], max(todo.values())

    def _loop(self, loop: StepLoop, unit: ComputeUnit, costs: list[IssueCost]) -> LoopTiming:
        steps = self.program.steps
        return LoopTiming(
            begin=steps[loop.header].offset,
            end=steps[loop.latch].offset,
            rounds=unit.counts[loop.header],
            matrix_instructions=sum(bool(steps[number].matrix) for number in loop.body),
            innermost=loop.innermost,
            spent=_spent(unit, costs, loop.body),
        )

    def _text(self, number: int) -> str:
        """Return an instruction by name, with the registers that it writes and those that it reads."""
        step, registers = self.program.steps[number], self.program.registers
        if step.waits is not None:
            return f"{step.name} {wait_text(step.waits)}".rstrip()
        if step.flow == "branch":
            return f"{step.name} {self.program.steps[step.target].offset:#x}"
        writes, reads = (register_ranges(mask, registers) for mask in (step.writes, step.reads | step.accumulates))
        return f"{step.name} {writes}{' <- ' if writes and reads else ''}{reads}".rstrip()


def _spent(unit: ComputeUnit, costs: list[IssueCost], numbers: frozenset[int]) -> Spent:
    issue = [0.0] * len(CAUSES)
    for each in numbers:
        issue[NUMBER[costs[each].cause]] += unit.issue[each]
    return spent(issue, [math.fsum(unit.stalls[each][number] for each in numbers) for number in range(len(CAUSES))])


def _busy(unit: ComputeUnit, clocks: float, simds: int) -> dict[str, float]:
    """Return the part of the clocks in which each unit worked; there are as many matrix and vector units as SIMDs."""
    many = {"matrix": simds, "vector": simds}
    return {name: worked / (clocks * many.get(name, 1)) if clocks else 0.0 for name, worked in unit.worked.items()}
