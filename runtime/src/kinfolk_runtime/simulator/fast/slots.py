"""Where values lie in a wave's frame: a linear scan over lifetimes, with values that follow each other in one place.

Positions: op number k reads at 2k and writes at 2k + 1. A region's end is a position of its own.
"""

from __future__ import annotations

import bisect
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from kinfolk.ir.meaning import Control, Matrix
from kinfolk.ir.types import BufferType, ViewType
from kinfolk.ir.value import Operation, Region, Value
from kinfolk_runtime.simulator.fast.layout import slot_bytes

Move = tuple[int, int, int]
"""Target, source, bytes."""
Alias = tuple[Value, int]
"""A value that lies within another, and how many bytes into it."""


@attrs.define(eq=False)
class _Place:
    """Values that share a place, and when they are there: spans [from, to) of positions."""

    size: int
    spans: list[tuple[int, int]]
    loose_end: int = 0
    values: list[Value] = attrs.field(factory=list[Value])

    def meets(self, other: _Place) -> bool:
        """Whether both are there at one time."""
        return any(a < d and c < b for a, b in self.spans for c, d in other.spans)

    @property
    def begin(self) -> int:
        """The first position."""
        return min(begin for begin, _ in self.spans)


class Frame:
    """The offsets of all values of a kernel, and how large the frame is.

    `aliases` lie where they say, `fixed` have a place of their own for good. `loop_ends` and `branch_ends` give, per
    op, the positions at which its regions end.
    """

    def __init__(
        self, body: Region, wave_size: int, aliases: Mapping[Value, Alias], fixed: Iterable[Value], begin: int
    ) -> None:
        self._wave = wave_size
        self._aliases = aliases
        self._fixed = set(fixed)
        self._number = 0
        self._defined: dict[Value, int] = {}
        self._used: dict[Value, int] = {}
        self._held: dict[Value, int] = {}
        self._depth: dict[Value, tuple[Operation, ...]] = {}
        self._loops: list[Operation] = []
        self._loop_end: dict[Operation, int] = {}
        self._late: list[tuple[Value, tuple[Operation, ...]]] = []
        self._preferences: list[tuple[Value, Value]] = []
        self._branch_preferences: list[tuple[Value, Value, int, int, int]] = []
        self._joined: list[tuple[Value, Value, int]] = []
        self._places: dict[Value, _Place] = {}
        for value in body.arguments:
            self._define(value, 0)
        self._region(body)
        self._make_places()
        self._share()
        self.offsets: dict[Value, int] = {}
        self.bytes = self._lay_out(begin)

    def offset(self, value: Value) -> int:
        """Return where a value lies in the frame."""
        root, within = self.root(value)
        return self.offsets[root] + within

    def loops_around(self, value: Value) -> tuple[Operation, ...]:
        """Return the loops in which a value is computed, outermost first."""
        return self._depth[self.root(value)[0]]

    def root(self, value: Value) -> Alias:
        """Return the value that has the place in which `value` lies, and how many bytes into it."""
        within = 0
        while value in self._aliases:
            value, more = self._aliases[value]
            within += more
        return value, within

    # Lifetimes.

    def _define(self, value: Value, at: int) -> None:
        if value in self._aliases or isinstance(value.type, BufferType):
            return
        self._defined[value] = at
        self._depth[value] = tuple(self._loops)

    def _use(self, value: Value, at: int, safe: bool = True) -> None:
        root, _ = self.root(value)
        if isinstance(root.type, BufferType):
            return
        end = at if safe else at + 2
        if self._used.get(root, 0) < end:
            self._used[root] = end
        self._held[root] = at + 2  # positions ascend
        outside = len(self._depth[root])
        if len(self._loops) > outside:
            self._late.append((root, (self._loops[outside],)))

    def _region(self, region: Region) -> None:
        for op in region.operations:
            self._number += 1
            at = 2 * self._number
            meaning = op.definition.meaning
            if isinstance(meaning, Control) and meaning.kind == "for":
                self._for(op, at)
            elif isinstance(meaning, Control) and meaning.kind == "if":
                self._if(op, at)
            elif not (isinstance(meaning, Control) and meaning.kind == "yield"):
                for index, value in enumerate(op.operands):
                    self._use(value, at, safe=not isinstance(meaning, Matrix) or index == 2)
                for value in op.results:
                    self._define(value, at + 1)
                if isinstance(meaning, Matrix):
                    self._preferences.append((op.operands[2], op.results[0]))

    def _for(self, op: Operation, at: int) -> None:
        (region,) = op.regions
        for index, value in enumerate(op.operands):
            self._use(value, at, safe=index >= 3)  # carried values are copied, if at all, before the bounds are read
        self._loops.append(op)
        for value in region.arguments:
            self._define(value, at + 1)
        self._region(region)
        self._number += 1
        end = 2 * self._number
        self._loop_end[op] = end
        yields = region.operations[-1].operands
        for value in yields:
            self._use(value, end)
        self._loops.pop()
        for initial, argument, value, result in zip(
            op.operands[3:], region.arguments[1:], yields, op.results, strict=True
        ):
            self._joined.append((argument, result, end + 1))
            self._define(result, end + 1)
            self._preferences += [(argument, value), (initial, argument)]
        self._held[region.arguments[0]] = end + 2
        self._used[region.arguments[0]] = end + 2

    def _if(self, op: Operation, at: int) -> None:
        self._use(op.operands[0], at)
        ends: list[int] = []
        for region in op.regions:
            self._region(region)
            self._number += 1
            ends.append(2 * self._number)
            for value in region.operations[-1].operands:
                self._use(value, ends[-1])
        yields = [region.operations[-1].operands for region in op.regions]
        for result, a, b in zip(op.results, *yields, strict=True):
            self._define(result, ends[0] + 1)
            if isinstance(result.type, ViewType):  # a second view is compared with the first, so both are there
                continue
            self._branch_preferences += [(result, b, at, ends[0], ends[1]), (result, a, at, ends[0], ends[0])]

    # Places.

    def _make_places(self) -> None:
        for value, loops in self._late:
            self._used[value] = max(self._used[value], self._loop_end[loops[0]] + 2)
            self._held[value] = max(self._held[value], self._loop_end[loops[0]] + 2)
        for value, begin in self._defined.items():
            if value in self._fixed:
                continue
            end = max(self._used.get(value, 0) + 1, begin + 1)
            loose_end = max(self._held.get(value, 0), begin + 1)
            self._places[value] = _Place(slot_bytes(value.type, self._wave), [(begin, end)], loose_end, [value])

    def _share(self) -> None:
        """Let values that may lie in one place do so: carried values with their results, then as preferred."""
        for argument, result, end in self._joined:
            self._unite(argument, result)
            self._places[argument].spans.append((end, end + 1))
        for result, value, begin, first_end, end in self._branch_preferences:
            root, within = self.root(value)
            if within or root not in self._places or slot_bytes(root.type, self._wave) != self._places[result].size:
                continue
            outer = self._defined[root] < begin
            mine = self._places[result]
            if outer and end != first_end and mine.spans[0][0] == first_end + 1 and len(mine.spans) == 1:
                later = _Place(mine.size, [(end + 1, max(mine.spans[0][1], end + 2))])
                if not later.meets(self._places[root]):
                    mine.spans = later.spans
                    self._unite(root, result)
                    continue
            self._prefer(root, result)
        for first, second in self._preferences:
            (a, within_a), (b, within_b) = self.root(first), self.root(second)
            if not within_a and not within_b:
                self._prefer(a, b)

    def _prefer(self, a: Value, b: Value) -> None:
        if a not in self._places or b not in self._places or a.type != b.type:
            return
        if self._places[a] is not self._places[b] and not self._places[a].meets(self._places[b]):
            self._unite(a, b)

    def _unite(self, a: Value, b: Value) -> None:
        keep, drop = self._places[a], self._places[b]
        if keep is drop:
            return
        keep.spans += drop.spans
        keep.size = max(keep.size, drop.size)
        keep.loose_end = max(keep.loose_end, drop.loose_end)
        keep.values += drop.values
        for value in drop.values:
            self._places[value] = keep

    def _lay_out(self, begin: int) -> int:
        top = begin
        for value in self._defined:
            if value in self._fixed:
                self.offsets[value] = top
                top += slot_bytes(value.type, self._wave)
        free: dict[int, list[int]] = {}
        active: list[tuple[int, int, int]] = []  # a heap: the first to end comes first
        offsets: dict[int, int] = {}
        places = {id(place): place for place in self._places.values()}
        for begin, _, place in sorted((one.begin, number, one) for number, one in enumerate(places.values())):
            while active and active[0][0] <= begin:
                _, offset, size = heapq.heappop(active)
                free.setdefault(size, []).append(offset)
            if free.get(place.size):
                offset = free[place.size].pop()
            else:
                offset, top = top, top + place.size
            offsets[id(place)] = offset
            end = max(place.loose_end, *(end for _, end in place.spans))
            heapq.heappush(active, (end, offset, place.size))
        for value, place in self._places.items():
            self.offsets[value] = offsets[id(place)]
        return top


def in_parallel(moves: Sequence[Move], spare: Callable[[int], int]) -> list[Move]:
    """Return copies (target, source, size) one after the other that do what `moves` do at once.

    No source lies partly in a target. `spare(size)` gives a place for what would be overwritten too early.
    """
    pending = {target: (source, size) for target, source, size in moves if target != source}
    targets = sorted(pending)

    def within(source: int) -> int | None:
        """Return the pending target that a source lies in."""
        place = bisect.bisect_right(targets, source) - 1
        target = targets[place] if place >= 0 else -1
        return target if target in pending and source < target + pending[target][1] else None

    readers = Counter(within(source) for target, (source, _) in pending.items() if within(source) != target)
    ready = [target for target in reversed(pending) if not readers[target]]
    result: list[Move] = []
    while pending:
        if not ready:  # only cycles are left: keep what the first would overwrite
            target, (_, size) = next(iter(pending.items()))
            kept = spare(size)
            result.append((kept, target, size))
            for other, (source, count) in pending.items():
                if target <= source < target + size:
                    pending[other] = (kept + source - target, count)
            readers[target] = 0
            ready.append(target)
        target = ready.pop()
        source, size = pending[target]
        result.append((target, source, size))
        read = within(source)
        del pending[target]
        if read is not None and read != target:
            readers[read] -= 1
            if not readers[read]:
                ready.append(read)
    return result
