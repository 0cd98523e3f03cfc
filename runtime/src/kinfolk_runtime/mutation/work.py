"""What a kernel does on a scenario, in amounts that cost time; a mistake may show in nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.ir.meaning import Control, LanePermutation, Matrix, MemoryAccess, ScheduleMarker
from kinfolk.ir.ops import vector
from kinfolk.ir.types import DataType, element_type
from kinfolk_runtime.mutation.outcome import Kill
from kinfolk_runtime.simulator.entries import regions_of

if TYPE_CHECKING:
    from kinfolk.ir.value import Kernel, Operation, Region
    from kinfolk_runtime.simulator.entries import Counted

OTHER: Final = "instructions"
LOADED: Final = "bytes loaded"
STORED: Final = "bytes stored"
ROUNDS: Final = "rounds of loops"


@attrs.frozen
class Work:
    """Amounts by what they are of: `rounds of loops`, `matrix products` and the like count those of each wave,
    `bytes loaded` and the like those of each active lane.
    """

    amounts: Mapping[str, int]

    def more_than(self, other: Work) -> dict[str, tuple[int, int]]:
        """Return each amount that is greater here, with the other's."""
        names = {**self.amounts, **other.amounts}
        pairs = {name: (self.amounts.get(name, 0), other.amounts.get(name, 0)) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] > pair[1]}


@attrs.frozen
class Tariff:
    """What it is to enter each region of a kernel: amounts per wave and per active lane, each by name."""

    regions: Sequence[tuple[Mapping[str, int], Mapping[str, int]]]

    @classmethod
    def of(cls, kernel: Kernel, original: Kernel) -> Tariff:
        """Read a kernel. Instructions are counted as `original` has them, in whose place an op may stand as several."""
        loops = {id(op.regions[0]) for op in kernel.walk() if _is_loop(op)}
        found: list[tuple[Mapping[str, int], Mapping[str, int]]] = []
        for region, before in zip(regions_of(kernel), regions_of(original), strict=True):
            by_wave = Counter({OTHER: _instructions(before), ROUNDS: int(id(region) in loops)})
            by_lane: Counter[str] = Counter()
            for name, of_wave, of_lane in _dear(region):
                by_wave[name] += of_wave
                by_lane[name] += of_lane
            found.append((+by_wave, +by_lane))
        return cls(found)

    def work(self, counted: Counted) -> Work:
        """Return what was done where regions were entered so often."""
        *entries, (read, written) = counted.tolist()
        amounts = Counter({LOADED: read, STORED: written})
        for (by_wave, by_lane), (waves, lanes) in zip(self.regions, entries, strict=True):
            for entered, each in ((waves, by_wave), (lanes, by_lane)):
                for name, amount in each.items():
                    amounts[name] += entered * amount
        return Work(dict(amounts))


def _is_loop(op: Operation) -> bool:
    meaning = op.definition.meaning
    return isinstance(meaning, Control) and meaning.kind == "for"


def _instructions(region: Region) -> int:
    return sum(
        not isinstance(op.definition.meaning, ScheduleMarker) and op.definition is not vector.constant
        for op in region.operations[:-1]
    )


def _dear(region: Region) -> Iterator[tuple[str, int, int]]:
    """Yield what an op of a region is a piece of work of, how much per wave and how much per active lane."""
    for op in region.operations:
        meaning = op.definition.meaning
        if isinstance(meaning, Matrix):
            yield "matrix products", 1, 0
        elif isinstance(meaning, LanePermutation):
            yield "exchanges between lanes", 1, 0
        elif isinstance(meaning, Control) and meaning.kind == "barrier":
            yield "barriers", 1, 0
        elif isinstance(meaning, MemoryAccess):
            yield from _of_access(op, meaning)


def _of_access(op: Operation, meaning: MemoryAccess) -> Iterator[tuple[str, int, int]]:
    where = " of workgroup memory" if meaning.space == "workgroup" else ""
    inside = meaning.space == "view"  # counted as they are, where they are inside
    match meaning.action:
        case "load" if not inside:
            yield f"{LOADED}{where}", 0, _bytes(op.results[0].type)
        case "store" if not inside:
            yield f"{STORED}{where}", 0, _bytes(op.operands[-1].type)
        case "atomic_add":
            yield f"atomic additions{where}", 0, 1
        case "stage":
            yield "stagings", 1, 0
        case "wait":
            yield "waits", 1, 0
        case _:
            return


def _bytes(type_: object) -> int:
    assert isinstance(type_, DataType)
    return element_type(type_).bytes * getattr(type_, "count", 1)


def told(more: Mapping[str, tuple[int, int]]) -> str:
    """Return the amounts that differ most, in words."""
    dearest = sorted(more.items(), key=lambda item: -abs(item[1][0] - item[1][1]) / max(1, item[1][1]))
    return ", ".join(f"{one:,} {name} in place of {other:,}" for name, (one, other) in dearest[:3])


def compared(works: Iterable[tuple[str, Work, Work]]) -> tuple[Kill | None, str]:
    """Return a kill where a mutant does more than its original in some scenario and nowhere less; else what is less.

    Both came to the same, so that what is more is for nothing: and what is less was, in the kernel as it is.
    """
    found: Kill | None = None
    less = ""
    for scenario, work, before in works:
        if fewer := before.more_than(work):
            fewer = {name: (after, amount) for name, (amount, after) in fewer.items()}
            less = less or f"comes to the same with less work ({told(fewer)}, in {scenario}): the kernel does too much"
        if more := work.more_than(before):
            name = max(more, key=lambda name: more[name][0] / max(1, more[name][1]))
            found = found or Kill(tool="slower", kind=name, message=told(more), scenario=scenario)
    return (None, less) if less else (found, "")
