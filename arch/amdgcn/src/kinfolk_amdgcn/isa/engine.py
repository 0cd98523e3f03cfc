"""Launches of machine code: batches of workgroups in lockstep, waves that part and meet again, barriers, findings."""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import Final

import attrs
import numpy as np

from kinfolk.machine import LaunchShape
from kinfolk.machine import MachineMemory as Memory
from kinfolk_amdgcn.isa.fault import MachineFault, Stop
from kinfolk_amdgcn.isa.hazards import check_matrix_results, note_matrix_result
from kinfolk_amdgcn.isa.kernel_object import KernelObject
from kinfolk_amdgcn.isa.local_memory import LocalMemory
from kinfolk_amdgcn.isa.program import Program, check_modes
from kinfolk_amdgcn.isa.registers import initial_registers, register_names
from kinfolk_amdgcn.isa.trace import Trace
from kinfolk_amdgcn.isa.unknown import Unknown, matters
from kinfolk_amdgcn.isa.waves import LANES, SCALAR_BIT, Array, Batch, Waves

Grid = tuple[int, int, int]
WAVES_AT_ONCE: Final = 32
"""About so many waves run in lockstep: more cost less per wave, until their registers leave the host's caches."""
POISON: Final = 0x7FA5A5A5
"""What registers and workgroup memory hold before they are written; as f32 a signalling NaN."""
MOST_STEPS: Final = 1 << 24
"""How many instructions the waves of a batch may run, those that parted each for itself; more is no end."""


@attrs.define
class Counts:
    """What launches ran: instructions of waves, those of them that work on lanes, products of matrix instructions."""

    instructions: int = 0
    lane_instructions: int = 0
    products: int = 0
    seconds: float = 0.0
    by_name: Counter[str] = attrs.field(factory=Counter[str])

    @property
    def lane_operations(self) -> int:
        """Instructions of lanes, each times the lanes of a wave; a matrix instruction counts as one."""
        return self.lane_instructions * LANES


def waves_of(shape: LaunchShape) -> int:
    """Return the waves of a workgroup."""
    return -(-math.prod(shape.block) // LANES)


class Launch:
    """One launch of a program; `run` runs every workgroup of the grid in its order."""

    def __init__(
        self,
        program: Program,
        shape: LaunchShape,
        arguments: int,
        image: int,
        memory: Memory,
        extra_states: int,
        trace: Trace | None = None,
    ) -> None:
        """`arguments` and `image` are the addresses of the argument block and the code object.

        `extra_states` are what matrix results take past their passes. A `trace` takes down what is issued.
        """
        check_modes(program.kernel)
        self.program, self.shape = program, shape
        self.arguments, self.image, self.memory, self.extra_states = arguments, image, memory, extra_states
        self.items = math.prod(shape.block)
        self.waves = waves_of(shape)
        self.trace = trace
        self.counts = Counts()
        self.ran = [0] * len(program.steps)

    @property
    def kernel(self) -> KernelObject:
        """The kernel that runs."""
        return self.program.kernel

    def run(self) -> None:
        """Run all workgroups; raise MachineFault for the first that breaks a rule."""
        began = time.perf_counter()
        total = math.prod(self.shape.grid)
        at_once = max(1, WAVES_AT_ONCE // self.waves)
        with np.errstate(all="ignore"):
            for first in range(0, total, at_once):
                self._run_batch(np.arange(first, min(total, first + at_once)))
        self._count()
        self.counts.seconds = time.perf_counter() - began

    def place(self, number: int) -> Grid:
        """Return where in the grid a workgroup is."""
        x, y, _ = self.shape.grid
        return number % x, number // x % y, number // (x * y)

    def _count(self) -> None:
        for step, ran in zip(self.program.steps, self.ran, strict=True):
            self.counts.instructions += ran
            self.counts.lane_instructions += ran if step.lanes else 0
            self.counts.products += ran * step.multiplies
            self.counts.by_name[step.name] += ran

    def _run_batch(self, workgroups: Array) -> None:
        groups = len(workgroups)
        local_bytes = self.kernel.local_bytes + self.shape.dynamic_bytes
        local = LocalMemory(groups, self.waves, local_bytes, self.program.marked, POISON)
        shape = (groups * self.waves, LANES, self.kernel.private_bytes)
        private, written = np.zeros(shape, np.uint8), np.zeros(shape, np.bool_)
        batch = Batch(local, self.memory, self.image + self.kernel.place, self.trace, private, written)
        if self.trace is not None:
            self.trace.begin(workgroups)
        group, number = np.repeat(np.arange(groups), self.waves), np.tile(np.arange(self.waves), groups)
        waves = Waves.fresh(batch, self.program.registers.rows, group, number, POISON)
        places = np.array([self.place(int(each)) for each in workgroups])
        initial_registers(self, waves, places)
        _Run(self, waves, workgroups).to_end()


class _Run:
    """The waves of one batch: those that can go on, by place, and those that stand at a barrier."""

    def __init__(self, launch: Launch, waves: Waves, workgroups: Array) -> None:
        self._launch, self._workgroups = launch, workgroups
        self._ready: list[Waves] = [waves]
        self._held: list[Waves] = []

    def to_end(self) -> None:
        """Run until every wave has ended: always those furthest back, so that waves which parted meet again."""
        steps = 0
        while self._ready or self._held:
            if not self._ready:
                self._release()
                continue
            self._ready.sort(key=lambda each: each.pc)
            waves = self._ready.pop(0)
            waves = self._met(waves)
            others = min((each.pc for each in self._ready), default=len(self._launch.program.steps))
            steps += self._go(waves, others, MOST_STEPS - steps)

    @property
    def _name(self) -> str:
        return self._launch.kernel.symbol

    def _met(self, waves: Waves) -> Waves:
        """Return waves together with all others at their place that they can go on with."""
        for other in [each for each in self._ready if each.pc == waves.pc]:
            if waves.joins(other):
                self._ready.remove(other)
                waves = waves.joined(other)
        return waves

    def _go(self, w: Waves, others: int, most: int) -> int:
        """Run waves until they part, end, wait at a barrier, or come to where others stand; return how many steps.

        Stops where that takes more than `most` steps.
        """
        steps, ran = self._launch.program.steps, self._launch.ran
        extra, pc, began = self._launch.extra_states, w.pc, 0
        trace = self._launch.trace
        line = pc  # where the way straight down the code began
        try:
            while True:
                step = steps[pc]
                if w.pending and w.pending & step.touches:
                    self._refuse_outstanding(w, pc)
                unknown = w.undefined and w.undefined & (step.reads | step.accumulates)
                left = self._left_unknown(w, pc) if unknown else None
                if w.matrix_results:
                    check_matrix_results(w, step, extra)
                if step.early is not None and step.early[0] >= line:
                    raise Stop("wait_states", step.early[1])
                before = w.undefined_now() if unknown else []
                step.run(w)
                ran[pc] += w.count
                if trace is not None:
                    trace.issued(pc, w)
                began += 1
                w.states += step.states
                if w.undefined:
                    w.undefined &= ~step.writes
                    w.written |= step.writes
                    if unknown:
                        w.carry_undefined(step.carried, before)
                if left is not None:
                    left.leave(w)
                if step.leaves is not None:
                    w.leave_undefined([a | b for a, b in zip(w.undefined_now(), step.leaves(w), strict=True)])
                if step.matrix:
                    note_matrix_result(w, step, step.settles or step.matrix + extra)
                if not step.flow:
                    pc += 1
                elif step.flow == "branch":
                    if began > most:
                        raise Stop("limit", f"is run after {MOST_STEPS} instructions, and the waves have not ended")
                    taken = np.ones(w.count, np.bool_) if step.taken is None else np.asarray(step.taken(w))
                    if taken.all():
                        pc = line = step.target
                    elif not taken.any():
                        pc += 1
                    else:
                        self._part(w, taken, pc, step.target)
                        return began
                elif step.flow == "jump":
                    if began > most:
                        raise Stop("limit", f"is run after {MOST_STEPS} instructions, and the waves have not ended")
                    if len(set(w.jumps)) > 1:
                        self._scatter(w)
                        return began
                    pc = line = w.jumps[0]
                else:
                    w.pc = pc + 1
                    self._held += [w] if step.flow == "barrier" else []
                    return began
                if pc >= others:
                    w.pc = pc
                    self._ready.append(w)
                    return began
        except Stop as stop:
            raise self._fault(w, pc, stop) from None

    def _part(self, w: Waves, taken: Array, pc: int, target: int) -> None:
        for chosen, place in ((taken, target), (~taken, pc + 1)):
            part = w.part(chosen)
            part.pc = place
            self._ready.append(part)

    def _scatter(self, w: Waves) -> None:
        places = np.array(w.jumps)
        for place in np.unique(places):
            part = w.part(places == place)
            part.pc = int(place)
            self._ready.append(part)

    def _release(self) -> None:
        """Let go on the waves of every workgroup: all that live stand at a barrier where nothing else can go on.

        The machine does not wait for waves that have ended; a program that counts on that is told nevertheless.
        """
        at_barrier = np.zeros(len(self._workgroups), np.int64)
        for w in self._held:
            np.add.at(at_barrier, w.group, 1)
        met = at_barrier > 0
        short = met & (at_barrier < self._launch.waves)
        for w in self._held:
            if short[w.group].any():
                wave = int(np.argmax(short[w.group]))
                what = "waves wait at a barrier that others, which have ended, do not reach"
                where = self._launch.place(int(self._workgroups[w.group[wave]]))
                number = int(w.number[wave])
                raise MachineFault(what, kind="sync", kernel=self._name, workgroup=where, wave=number)
        arrived, self._held = self._held, []
        arrived[0].batch.local.barrier(np.flatnonzero(met), arrived)
        self._ready += arrived

    def _refuse_outstanding(self, w: Waves, pc: int) -> None:
        """Stop where registers are touched that loads still write; a later load of their order may write them."""
        step = self._launch.program.steps[pc]
        before = {"vector": w.local_loads, "local": w.vector_loads}.get(step.queue)
        others = w.pending if before is None else 0
        for each in before or ():
            others |= each.registers
        early = w.pending & (step.reads | step.accumulates) | others & step.writes
        if early:
            names = register_names(early, self._launch.program.registers)
            raise Stop("outstanding", f"touches {names}, which a load is still writing: nothing waits for it")

    def _left_unknown(self, w: Waves, pc: int) -> Unknown | None:
        """Return which bits an instruction leaves unknown; stop where it needs a register that nothing has written."""
        step = self._launch.program.steps[pc]
        if step.bits is not None:
            return step.bits(w)
        wanted = step.reads | step.accumulates
        for source, _ in step.carried:
            wanted &= ~source
        if not w.undefined & wanted:
            return None
        per_lane, vectors = step.lanes and step.unit != "lane_read", (1 << SCALAR_BIT) - 1
        live: Array = np.logical_or.reduce(w.live, axis=1) | (not per_lane)
        needed = [
            mask & wanted & (-1 if some else ~vectors) for mask, some in zip(w.undefined_now(), live, strict=True)
        ]
        if step.masks:
            apply = matters(w, step.masks)
            needed = [mask if bad else mask & ~step.masks for mask, bad in zip(needed, apply, strict=True)]
        wave = next((number for number, mask in enumerate(needed) if mask), None)
        if wave is None:
            return None
        names = register_names(needed[wave], self._launch.program.registers)
        raise Stop("uninitialised", f"reads {names}, which nothing has written", wave)

    def _fault(self, w: Waves, pc: int, stop: Stop) -> MachineFault:
        step, wave = self._launch.program.steps[pc], 0 if stop.wave is None else stop.wave
        return MachineFault(
            stop.what,
            kind=stop.kind,
            kernel=self._name,
            instruction=step.text,
            offset=step.offset,
            workgroup=self._launch.place(int(self._workgroups[w.group[wave]])),
            wave=int(w.number[wave]),
            lanes=stop.lanes,
        )
