"""The state of waves that stand at one instruction: registers, masks, and what is on its way to registers.

Waves of several workgroups run in lockstep as long as they take the same way: every array has an axis of waves.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from kinfolk.machine import MachineMemory as Memory
    from kinfolk_amdgcn.isa.local_memory import LocalMemory
    from kinfolk_amdgcn.isa.trace import Trace

Array = npt.NDArray[Any]

LANES: Final = 64
SHARED_APERTURE: Final = 1 << 20
"""The upper half of flat addresses of workgroup memory; that of private memory is the next one."""
VCC, M0, EXEC = 106, 124, 126
"""Numbers of special scalar registers as operands have them; VCC and EXEC are pairs."""
SCALARS: Final = 128
SCALAR_BIT: Final = 512
"""In masks of registers, bits from 0 on are rows of vector registers, those from here on scalar registers."""
CONDITION: Final = 1 << SCALAR_BIT + SCALARS
"""In masks of registers, the condition bit."""


@attrs.frozen(eq=False)
class Outstanding:
    """An access on its way: the registers it will write, and the units of workgroup memory that it reads or writes.

    Units are arrays whose first axis is of waves, -1 where a lane has none. `staged` units are written from memory
    without passing registers. `scalar` loads end in no order. `atomic` is what
    writes by one.
    """

    registers: int
    staged: Array | None = None
    reads: Array | None = None
    writes: Array | None = None
    scalar: bool = False
    atomic: bool = False

    @property
    def arrays(self) -> tuple[Array | None, ...]:
        """Staged, read and written units."""
        return self.staged, self.reads, self.writes

    def part(self, index: Array) -> Outstanding:
        """Return what of it waves of these indices have on their way."""
        staged, reads, writes = (None if each is None else each[index] for each in self.arrays)
        return Outstanding(self.registers, staged, reads, writes, self.scalar, self.atomic)

    def like(self, other: Outstanding) -> bool:
        """Whether it is the same access of other waves."""
        mine, theirs = ([None if e is None else e.shape[1:] for e in one.arrays] for one in (self, other))
        return (self.registers, self.scalar, mine) == (other.registers, other.scalar, theirs)

    def joined(self, other: Outstanding) -> Outstanding:
        """Return both as one access of all waves."""
        staged, reads, writes = (
            None if one is None or two is None else np.concatenate((one, two))
            for one, two in zip(self.arrays, other.arrays, strict=True)
        )
        return Outstanding(self.registers, staged, reads, writes, self.scalar, self.atomic)


@attrs.frozen(eq=False)
class Batch:
    """What waves of workgroups that run together share; the kernel's code lies at the address `code`.

    `private` [waves, lanes, bytes] is memory of each lane alone, with which bytes of it were written. A `trace` takes
    down what they do, where somebody asked for it.
    """

    local: LocalMemory
    memory: Memory
    code: int
    trace: Trace | None = None
    private: Array = attrs.field(factory=lambda: np.zeros((1, LANES, 0), np.uint8))
    private_written: Array = attrs.field(factory=lambda: np.zeros((1, LANES, 0), np.bool_))


class Waves:
    """Waves at one place in the code, all of one batch of workgroups.

    `v` [rows, waves, lanes] holds vector registers as bits, accumulation registers after the others; `f` are the same
    as f32. `s` [waves, 128] holds scalar registers, `s64` the same as pairs. `live` is EXEC as a mask, or of its lanes
    those that an instruction writes (`live_before` is EXEC then too), `group` the
    workgroup of each wave in its batch and `number` the wave in its workgroup. `undefined` are the registers that
    in some wave nothing has written, and `unknown` the bits of scalar ones [waves, 128] that it is about. Of all waves
    are `pending`, registers that accesses on their way will write, and
    these accesses in order: `vector_loads` to memory, `local_loads` to workgroup memory, with scalar loads. `states`
    counts wait states; `jumps` are the instructions, per wave, to which a jump leads; `matrix_results` are registers,
    when a matrix instruction took them, and how long it needs.
    """

    __slots__ = (
        "all_live",
        "batch",
        "count",
        "f",
        "group",
        "jumps",
        "live",
        "live_before",
        "local_loads",
        "matrix_results",
        "number",
        "pc",
        "pending",
        "s",
        "s64",
        "scc",
        "states",
        "undefined",
        "undefined_before",
        "unknown",
        "v",
        "vector_loads",
        "written",
    )

    def __init__(self, batch: Batch, v: Array, s: Array, scc: Array, group: Array, number: Array) -> None:
        self.batch = batch
        self.v, self.s, self.scc, self.group, self.number = v, s, scc, group, number
        self.f = v.view(np.float32)
        self.s64 = s.view(np.uint64)
        self.count: int = s.shape[0]
        self.pc = 0
        self.jumps: list[int] = []
        self.vector_loads: deque[Outstanding] = deque()
        self.local_loads: deque[Outstanding] = deque()
        self.pending = 0
        self.undefined_before: list[int] = [0] * self.count
        self.undefined = self.written = 0
        self.unknown = np.full(s.shape, 0xFFFFFFFF, np.uint32)
        self.states = 0
        self.matrix_results: list[tuple[int, int, int]] = []
        self.exec_written()

    @classmethod
    def fresh(cls, batch: Batch, rows: int, group: Array, number: Array, poison: int) -> Waves:
        """Return waves whose registers hold `poison`."""
        count = len(group)
        return cls(
            batch,
            np.full((rows, count, LANES), poison, np.uint32),
            np.full((count, SCALARS), poison, np.uint32),
            np.zeros(count, np.bool_),
            group,
            number,
        )

    def exec_written(self) -> None:
        """Take the mask of live lanes from EXEC."""
        self.live = self.live_before = self.lane_mask(EXEC)
        self.all_live = bool(self.live.all())

    def lane_mask(self, register: int) -> Array:
        """Return a pair of scalar registers as a mask [waves, lanes]."""
        pair = np.ascontiguousarray(self.s[:, register : register + 2])
        return np.unpackbits(pair.view(np.uint8), axis=1, bitorder="little").view(np.bool_)

    def undefined_now(self) -> list[int]:
        """Return the registers that nothing has written, of each wave."""
        return [mask & ~self.written for mask in self.undefined_before]

    def leave_undefined(self, masks: list[int]) -> None:
        """Set which registers nothing has written, of each wave; `written` counts from here on."""
        self.undefined_before, self.written, self.undefined = masks, 0, 0
        for mask in masks:
            self.undefined |= mask

    def carry_undefined(self, carried: tuple[tuple[int, int], ...], before: list[int]) -> None:
        """Take registers for unwritten to which an instruction carried what, before it, nothing had written."""
        masks = self.undefined_now()
        for source, target in carried:
            for register in range(SCALARS) if target >> SCALAR_BIT else ():
                if target >> SCALAR_BIT + register & 1:
                    self.unknown[:, register] = 0xFFFFFFFF
            masks = [mask | target if old & source else mask for mask, old in zip(masks, before, strict=True)]
        self.leave_undefined(masks)

    def put_mask(self, register: int, mask: Array) -> None:
        """Write a mask of live lanes to a pair of scalar registers; lanes that are not live get 0."""
        full = np.broadcast_to(mask, self.live.shape)
        packed = np.packbits(full if self.all_live else full & self.live, axis=1, bitorder="little")
        self.s[:, register : register + 2] = packed.view(np.uint32)
        if register == EXEC:
            self.exec_written()

    def put(self, row: int, data: Array) -> None:
        """Write a vector register in live lanes."""
        if self.all_live:
            self.v[row] = data
        else:
            np.copyto(self.v[row], data, where=self.live)

    def part(self, chosen: Array) -> Waves:
        """Return those waves that a mask chooses, with copies of their registers."""
        index = np.flatnonzero(chosen)
        other = Waves(
            self.batch, self.v[:, index], self.s[index], self.scc[index], self.group[index], self.number[index]
        )
        other.pc, other.pending = self.pc, self.pending
        other.leave_undefined([mask for mask, kept in zip(self.undefined_now(), chosen, strict=True) if kept])
        other.unknown = self.unknown[index]
        other.states, other.matrix_results = self.states, list(self.matrix_results)
        other.vector_loads.extend(each.part(index) for each in self.vector_loads)
        other.local_loads.extend(each.part(index) for each in self.local_loads)
        return other

    def joins(self, other: Waves) -> bool:
        """Whether other waves at the same place can run on together with these: they wait for the same accesses."""
        return all(
            len(mine) == len(theirs) and all(one.like(two) for one, two in zip(mine, theirs, strict=True))
            for mine, theirs in ((self.vector_loads, other.vector_loads), (self.local_loads, other.local_loads))
        )

    def load(self, queue: deque[Outstanding], access: Outstanding) -> None:
        """Note an access on its way."""
        queue.append(access)
        self.pending |= access.registers

    def arrived(self, queue: deque[Outstanding], access: Outstanding) -> None:
        """Note that an access has ended."""
        queue.remove(access)
        self.batch.local.settle(access)
        self.pending = 0
        for each in (*self.vector_loads, *self.local_loads):
            self.pending |= each.registers

    def joined(self, other: Waves) -> Waves:
        """Return these waves and others, which stand at the same place and `join` them."""
        both = Waves(
            self.batch,
            np.concatenate((self.v, other.v), axis=1),
            np.concatenate((self.s, other.s)),
            np.concatenate((self.scc, other.scc)),
            np.concatenate((self.group, other.group)),
            np.concatenate((self.number, other.number)),
        )
        both.pc, both.pending = self.pc, self.pending | other.pending
        both.leave_undefined(self.undefined_now() + other.undefined_now())
        both.unknown = np.concatenate((self.unknown, other.unknown))
        both.states = min(self.states, other.states)
        both.matrix_results = [
            (rows, both.states - (waves.states - at), needed)
            for waves in (self, other)
            for rows, at, needed in waves.matrix_results
        ]
        for queue, mine, theirs in (
            (both.vector_loads, self.vector_loads, other.vector_loads),
            (both.local_loads, self.local_loads, other.local_loads),
        ):
            queue.extend(one.joined(two) for one, two in zip(mine, theirs, strict=True))
        return both
