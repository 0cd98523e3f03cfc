"""A compute unit in the model of time: its waves on SIMDs, what they share, who issues next.

Waves issue in their order, each when its registers are there, its port and unit are free and, where it waits, few
enough accesses are on their way. Of waves that could begin at the same time, the oldest does. What stands in the way
of an instruction has a cause, and the clocks until it is gone go to that cause; where several do, one after the other.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kinfolk.timing import CAUSES, Cause, Span, Spent
from kinfolk_amdgcn.isa.flow_steps import LOCAL_MOST, VECTOR_MOST
from kinfolk_amdgcn.isa.issue_costs import PORTS, IssueCost
from kinfolk_amdgcn.isa.trace import LINE_BYTES, Access

if TYPE_CHECKING:
    from kinfolk_amdgcn.isa.step import Step

Issued = Iterator[tuple[int, Access | None]]
NUMBER: Final[Mapping[Cause, int]] = {cause: number for number, cause in enumerate(CAUSES)}
PORT_CAUSES: Final[tuple[Cause, ...]] = ("vector", "scalar", "workgroup_memory", "memory_bandwidth", "branch")


def spent(issue: Sequence[float], stalls: Sequence[float]) -> Spent:
    """Return clocks given in the order of causes."""
    issued: dict[Cause, float] = {cause: issue[number] for cause, number in NUMBER.items() if issue[number]}
    stood: dict[Cause, float] = {cause: stalls[number] for cause, number in NUMBER.items() if stalls[number]}
    return Spent(issue=issued, stalls=stood)


class Wave:
    """A wave on its way: what it issues next, from when it could, and what it still waits for."""

    def __init__(self, workgroup: Workgroup, number: int, simd: int, issued: Issued, begin: float) -> None:
        self.workgroup, self.number, self.simd = workgroup, number, simd
        self._issued = issued
        self.next: tuple[int, Access | None] | None = None
        self.advance()
        self.begin = self.end = self.free = begin
        self.results: list[tuple[float, float, int, Cause]] = []
        self.vector: deque[tuple[float, float]] = deque()
        self.local: deque[tuple[float, float]] = deque()
        self.scalar: list[float] = []
        self.issue, self.stalls = [0.0] * len(CAUSES), [0.0] * len(CAUSES)
        self.spans: list[Span] = []

    def advance(self) -> None:
        """Go on to the next instruction."""
        self.next = next(self._issued, None)

    def is_elsewhere_than(self, index: int) -> bool:
        """Return whether it goes on, and not with the instruction of that index."""
        return self.next is not None and self.next[0] != index

    def landed(self, waits: tuple[int, int]) -> list[tuple[float, Cause]]:
        """Return until when a wait waits, and for what, without forgetting what arrives."""
        vector, local = waits
        found: list[tuple[float, Cause]] = []
        if vector < VECTOR_MOST and len(self.vector) > vector:
            alone, done = self.vector[len(self.vector) - vector - 1]
            found.append((alone, "memory_latency"))
            found.append((done, "memory_bandwidth"))
        if local < LOCAL_MOST and len(self.local) > local:
            found.append((self.local[len(self.local) - local - 1][1], "workgroup_memory"))
        if local == 0 and self.scalar:
            found.append((max(self.scalar), "memory_latency"))
        return found

    def forget(self, waits: tuple[int, int]) -> None:
        """Forget the accesses that a wait waited for."""
        vector, local = waits
        if vector < VECTOR_MOST:
            while len(self.vector) > vector:
                self.vector.popleft()
        if local < LOCAL_MOST:
            while len(self.local) > local:
                self.local.popleft()
        if local == 0:
            self.scalar.clear()

    def spent(self) -> Spent:
        """Return its clocks by cause."""
        return spent(self.issue, self.stalls)


class Workgroup:
    """A workgroup on the compute unit: how many of its waves live, and those that stand at a barrier."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.live = 0
        self.held: list[tuple[Wave, float, int]] = []


class ComputeUnit:
    """Runs workgroups, so many at a time, to their end; what was spent then is in its lists and waves."""

    def __init__(
        self,
        steps: Sequence[Step],
        costs: Sequence[IssueCost],
        values: Mapping[str, float],
        simds: int,
        units_at_work: int,
        spans: bool = False,
    ) -> None:
        """`units_at_work` compute units share the rate of memory; `spans` keeps the stretches of each wave."""
        self._steps, self._costs, self._values, self._keeps_spans = steps, costs, values, spans
        self._simds = simds
        self._memory_rate = values["memory_rate"] / units_at_work
        self._ports = [[0.0] * PORTS for _ in range(simds)]
        self._matrix_free = [0.0] * simds
        self._local_free = self._cache_free = self._memory_free = 0.0
        self._lines: set[int] = set()
        self._on = [0] * simds
        self._ready: list[tuple[float, int, Wave]] = []
        self._left: deque[tuple[int, list[Issued]]] = deque()
        self.waves: list[Wave] = []
        self.worked = dict.fromkeys(("matrix", "vector", "workgroup_memory", "cache", "memory"), 0.0)
        self.counts = [0] * len(steps)
        self.issue = [0.0] * len(steps)
        self.stalls = [[0.0] * len(CAUSES) for _ in steps]
        self.conflicts = [0] * len(steps)

    def run(self, workgroups: Sequence[tuple[int, list[Issued]]], resident: int) -> float:
        """Run workgroups, each a number and what its waves issue, `resident` at a time; return when the last ends."""
        self._left.extend(workgroups)
        for _ in range(resident):
            self._begin(0.0)
        while self._ready:
            _, order, wave = heapq.heappop(self._ready)
            limits = self._limits(wave)
            begin = max((time for time, _ in limits), default=wave.free)
            begin = max(begin, wave.free)
            if self._ready and (begin, order) > self._ready[0][:2]:
                heapq.heappush(self._ready, (begin, order, wave))
            else:
                self._issue(wave, order, begin, limits)
        return max((wave.end for wave in self.waves), default=0.0)

    def _begin(self, now: float) -> None:
        """Let the next workgroup begin, its waves where the fewest are."""
        if not self._left:
            return
        number, waves = self._left.popleft()
        workgroup = Workgroup(number)
        for place, issued in enumerate(waves):
            simd = min(range(self._simds), key=lambda each: self._on[each])
            self._on[simd] += 1
            wave = Wave(workgroup, place, simd, issued, now)
            workgroup.live += 1
            heapq.heappush(self._ready, (now, len(self.waves), wave))
            self.waves.append(wave)

    def _limits(self, wave: Wave) -> list[tuple[float, Cause]]:
        """Return until when what stands in the way of a wave's next instruction does, past when it could issue."""
        if wave.next is None:
            return []
        index = wave.next[0]
        step, cost, free = self._steps[index], self._costs[index], wave.free
        found: list[tuple[float, Cause]] = []
        if wave.results:
            found += self._unread(wave, step)
        if cost.port >= 0:
            found.append((self._ports[wave.simd][cost.port], PORT_CAUSES[cost.port]))
        if cost.matrix:
            found.append((self._matrix_free[wave.simd], "matrix"))
        if step.waits is not None:
            found += wave.landed(step.waits)
        return [each for each in found if each[0] > free]

    def _unread(self, wave: Wave, step: Step) -> list[tuple[float, Cause]]:
        """Return when results are there that an instruction touches; forget those that are there already."""
        found: list[tuple[float, Cause]] = []
        kept: list[tuple[float, float, int, Cause]] = []
        others = step.reads | (0 if step.matrix else step.writes)
        for result in wave.results:
            there, forward, mask, cause = result
            if there <= wave.free:
                continue
            kept.append(result)
            if mask & others:
                found.append((there, cause))
            elif mask & step.accumulates:
                found.append((forward if step.accumulates == mask else there, cause))
        wave.results = kept
        return found

    def _issue(self, wave: Wave, order: int, begin: float, limits: list[tuple[float, Cause]]) -> None:
        if wave.next is None:
            self._end(wave)
            return
        index, access = wave.next
        step, cost = self._steps[index], self._costs[index]
        at = wave.free
        for until, cause in sorted(limits):
            if until > at:
                self._stall(wave, index, at, until, cause)
                at = until
        self.counts[index] += 1
        if step.waits is not None:
            wave.forget(step.waits)
        self._hold(wave, step, cost, begin)
        if cost.queue or access is not None:
            self._access(wave, index, cost, access, begin)
        wave.advance()
        issue = cost.issue
        if step.flow in ("branch", "jump") and wave.is_elsewhere_than(index + 1):
            issue = max(issue, self._values["branch"])
        self._spend(wave, index, begin, begin + issue, cost.cause)
        wave.free = wave.end = begin + issue
        if step.flow == "barrier":
            wave.workgroup.held.append((wave, order, index))
            self._meet(wave.workgroup)
        else:
            heapq.heappush(self._ready, (wave.free, order, wave))

    def _hold(self, wave: Wave, step: Step, cost: IssueCost, begin: float) -> None:
        """Let an instruction hold its port and its unit, and note when its result is there."""
        if cost.port >= 0:
            self._ports[wave.simd][cost.port] = begin + cost.holds
            if cost.port == 0:
                self.worked["vector"] += cost.holds
        if cost.matrix:
            self._matrix_free[wave.simd] = begin + cost.matrix
            self.worked["matrix"] += cost.matrix
        if step.writes and cost.result > cost.issue:
            wave.results.append((begin + cost.result, begin + (cost.forward or cost.result), step.writes, cost.cause))

    def _access(self, wave: Wave, index: int, cost: IssueCost, access: Access | None, begin: float) -> None:
        """Let an access take its place with what it needs, and join its wave's queue."""
        values = self._values
        if cost.queue == "scalar":
            wave.scalar.append(begin + values["scalar_memory_latency"])
            return
        served = begin
        clocks = access.clocks * values["local_cycle"] if access is not None and access.clocks else cost.moved
        if clocks:
            self._local_free = served = max(begin, self._local_free) + clocks
            self.worked["workgroup_memory"] += clocks
        if access is not None:
            self.conflicts[index] += access.clocks - access.fewest
        if cost.queue == "local":
            done = max(served + values["local_latency"], wave.local[-1][1] if wave.local else 0.0)
            wave.local.append((done, done))
        elif cost.queue == "vector":
            alone, done = self._from_memory(access, begin)
            before = wave.vector[-1] if wave.vector else (0.0, 0.0)
            wave.vector.append((max(alone, before[0]), max(alone, done, served, before[1])))

    def _from_memory(self, access: Access | None, begin: float) -> tuple[float, float]:
        """Return when an access to memory is done if nothing else is on its way, and when it is."""
        values = self._values
        lines = () if access is None else access.lines
        first = 0 if access is None else access.first_line
        new = [first + line for line in lines if first + line not in self._lines]
        self._lines.update(new)
        latency = values["memory_latency" if new else "cache_latency"]
        passed = len(lines) * LINE_BYTES / values["cache_rate"]
        fetched = len(new) * LINE_BYTES / self._memory_rate
        self._cache_free = max(begin, self._cache_free) + passed
        self.worked["cache"] += passed
        done = self._cache_free
        if new:
            self._memory_free = max(begin, self._memory_free) + fetched
            self.worked["memory"] += fetched
            done = max(done, self._memory_free)
        return begin + latency, done + latency

    def _meet(self, workgroup: Workgroup) -> None:
        """Let waves go on where all that live of a workgroup stand at a barrier."""
        if not workgroup.held or len(workgroup.held) < workgroup.live:
            return
        go_on = max(wave.free for wave, _, _ in workgroup.held) + self._values["barrier"]
        for wave, order, index in workgroup.held:
            self._stall(wave, index, wave.free, go_on, "barrier")
            wave.free = wave.end = go_on
            heapq.heappush(self._ready, (go_on, int(order), wave))
        workgroup.held.clear()

    def _end(self, wave: Wave) -> None:
        workgroup = wave.workgroup
        workgroup.live -= 1
        self._on[wave.simd] -= 1
        if workgroup.live:
            self._meet(workgroup)
        else:
            self._begin(wave.end)

    def _stall(self, wave: Wave, index: int, begin: float, end: float, cause: Cause) -> None:
        wave.stalls[NUMBER[cause]] += end - begin
        self.stalls[index][NUMBER[cause]] += end - begin
        self._span(wave, begin, end, cause, True)

    def _spend(self, wave: Wave, index: int, begin: float, end: float, cause: Cause) -> None:
        wave.issue[NUMBER[cause]] += end - begin
        self.issue[index] += end - begin
        self._span(wave, begin, end, cause, False)

    def _span(self, wave: Wave, begin: float, end: float, cause: Cause, stalled: bool) -> None:
        if not self._keeps_spans:
            return
        if wave.spans and wave.spans[-1].cause == cause and wave.spans[-1].stalled == stalled:
            wave.spans[-1] = Span(wave.spans[-1].begin, end, cause, stalled)
        else:
            wave.spans.append(Span(begin, end, cause, stalled))
