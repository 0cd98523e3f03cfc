"""What is counted of a kernel's run, in all and per instruction: an op at a source line, however often it was built.

Where a line builds an op on values of several types, such as vectors of 16 and of 8 bytes, each is one of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.banks import BankAction, BankCost, BankModel
from kinfolk.ir.meaning import Matrix
from kinfolk.ir.op import OpDef

if TYPE_CHECKING:
    from kinfolk.ir.types import Type
    from kinfolk.ir.value import Operation

Index = npt.NDArray[np.int64]
SEGMENTS: Final = (64, 128)
"""Bytes of the aligned pieces of global memory that are counted per access."""
CHUNK: Final = 1 << 20
"""Bytes of a buffer that are marked together."""


@attrs.define(kw_only=True)
class Segments:
    """Aligned pieces of global memory of `size` bytes: those touched, and as many as would have held the same bytes."""

    size: int
    touched: int = 0
    fewest: int = 0

    @property
    def ratio(self) -> float:
        """How many times the fewest; 1 where nothing was touched."""
        return self.touched / self.fewest if self.fewest else 1.0

    def add(self, other: Segments) -> None:
        """Count what another counted."""
        self.touched += other.touched
        self.fewest += other.fewest


def _segments() -> tuple[Segments, ...]:
    return tuple(Segments(size=size) for size in SEGMENTS)


@attrs.frozen(eq=False)
class WorkgroupAccess:
    """One access of a wave to workgroup memory: active `lanes`, their byte addresses, bytes and alignment per lane."""

    action: BankAction
    lane_bytes: int
    alignment: int
    addresses: Index
    lanes: Index


@attrs.define(kw_only=True, eq=False)
class Instruction:
    """An op at a source line, on values of the same types: how often waves ran it, and what they accessed.

    `active` and `lanes` count the active lanes and all lanes of those runs. Bytes of an access are its distinct ones:
    lanes that read one address share them. `worst` is the access of the most bank conflicts with its cost,
    `worst_segments` that of the least coalescing.
    """

    definition: OpDef
    source: str
    executions: int = 0
    active: int = 0
    lanes: int = 0
    both_ways: int = 0
    global_read: int = 0
    global_written: int = 0
    workgroup_read: int = 0
    workgroup_written: int = 0
    segments: tuple[Segments, ...] = attrs.field(factory=_segments)
    worst_segments: tuple[Segments, ...] = attrs.field(factory=_segments)
    banks: BankCost | None = None
    worst_cost: BankCost | None = None
    worst: WorkgroupAccess | None = None

    @property
    def name(self) -> str:
        """`dialect.op`."""
        return self.definition.name

    @property
    def flops(self) -> int:
        """Multiplications and additions of the matrix products that were run."""
        meaning = self.definition.meaning
        return 2 * meaning.m * meaning.n * meaning.k * self.executions if isinstance(meaning, Matrix) else 0

    def count_segments(self, found: tuple[Segments, ...]) -> None:
        """Count what one access touched."""
        for mine, each in zip(self.segments, found, strict=True):
            mine.add(each)
        if found[-1].ratio > self.worst_segments[-1].ratio or not self.worst_segments[-1].fewest:
            self.worst_segments = found

    def count_banks(self, access: WorkgroupAccess, cost: BankCost) -> None:
        """Count the cycles of one access."""
        self.banks = cost if self.banks is None else self.banks + cost
        if self.worst_cost is None or cost.conflicts > self.worst_cost.conflicts:
            self.worst_cost, self.worst = cost, access


class Touched:
    """Which bytes of a buffer have been accessed."""

    def __init__(self) -> None:
        self._chunks: dict[int, npt.NDArray[np.bool_]] = {}

    def mark(self, offsets: Index, unit: int) -> None:
        """Count units at byte offsets, ascending and distinct."""
        low, high = int(offsets[0]), int(offsets[-1]) + unit
        if high - low == offsets.size * unit:
            for number in range(low // CHUNK, (high - 1) // CHUNK + 1):
                begin = number * CHUNK
                self._chunk(number)[max(low - begin, 0) : high - begin] = True
            return
        every = (offsets[:, None] + np.arange(unit)).reshape(-1)
        for number in np.unique(every // CHUNK):
            self._chunk(int(number))[every[every // CHUNK == number] % CHUNK] = True

    def _chunk(self, number: int) -> npt.NDArray[np.bool_]:
        if number not in self._chunks:
            self._chunks[number] = np.zeros(CHUNK, np.bool_)
        return self._chunks[number]

    @property
    def bytes(self) -> int:
        """How many."""
        return sum(int(np.count_nonzero(chunk)) for chunk in self._chunks.values())


class Counts:
    """All that was counted of one kernel. `banks` is the arch's model of workgroup memory, None where it has none."""

    def __init__(self, banks: BankModel | None = None) -> None:
        self.banks = banks
        self.read: dict[str, Touched] = {}
        self.written: dict[str, Touched] = {}
        self._instructions: dict[tuple[str, str, tuple[Type, ...]], Instruction] = {}

    def instruction(self, op: Operation) -> Instruction:
        """Return the count that an op belongs to."""
        source = str(op.location)
        key = (op.name, source, tuple(value.type for value in (*op.results, *op.operands)))
        if key not in self._instructions:
            self._instructions[key] = Instruction(definition=op.definition, source=source)
        return self._instructions[key]

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """Those that ran, in the order of the kernel's text."""
        return tuple(each for each in self._instructions.values() if each.executions)

    @property
    def flops(self) -> int:
        """Multiplications and additions of all matrix products."""
        return sum(each.flops for each in self.instructions)

    def distinct_read(self) -> int:
        """Return how many different bytes of global memory were read."""
        return _bytes(self.read.values())

    def distinct_written(self) -> int:
        """Return how many different bytes of global memory were written."""
        return _bytes(self.written.values())

    def segments(self) -> tuple[Segments, ...]:
        """Return the segments of all accesses to global memory."""
        total = _segments()
        for each in self.instructions:
            for mine, other in zip(total, each.segments, strict=True):
                mine.add(other)
        return total

    def bank_cost(self) -> BankCost | None:
        """Return the cycles of all accesses to workgroup memory, None where no arch says how they are served."""
        costs = [each.banks for each in self.instructions if each.banks is not None]
        return sum(costs[1:], costs[0]) if costs else None

    def issued(self) -> Counter[str]:
        """Return how many ops waves ran, by issue class; those that issue nothing are left out."""
        found: Counter[str] = Counter()
        for each in self.instructions:
            if each.definition.issue != "none":
                found[each.definition.issue] += each.executions
        return found


def _bytes(touched: Iterable[Touched]) -> int:
    return sum(each.bytes for each in touched)
