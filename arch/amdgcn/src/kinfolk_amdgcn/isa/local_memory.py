"""Workgroup memory of a batch of workgroups, with who read and wrote each unit of it since the last barrier.

Source of the rules: LLVM, "Memory Model gfx942": a wave sees what another wrote after that one waited for its write and
both met at a barrier. Waves that write one place alike need none: compilers let several do the same work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.waves import Array, Outstanding, Waves

NOBODY: Final = 0
NO_LANE: Final = np.zeros((), np.bool_)
"""The lanes that have no unit, where every lane has one."""
MOST_KEPT: Final = 4096
ADDRESS_MASK: Final = 0xFFFFFFFF
"""Addresses have 32 bits and wrap: a register with a negative part of an address and an offset make a place."""


class LocalMemory:
    """`size` bytes for each of `groups` workgroups of `waves` waves; `unit` bytes are marked at once."""

    def __init__(self, groups: int, waves: int, size: int, unit: int, poison: int) -> None:
        self.groups, self.waves, self.unit = groups, waves, unit
        self.size = -(-size // 16) * 16
        self.limit = size
        self.bytes = np.full(groups * self.size // 4, poison, np.uint32).view(np.uint8)
        self.units = self.size // unit
        self.written = np.zeros(groups * self.units, np.bool_)
        self.staging = np.zeros(groups * self.units, np.bool_)
        self.writers = np.zeros(groups * self.units, np.uint32)
        self.has_atomics = False
        self.by_atomics = np.zeros(groups * self.units, np.bool_)
        self.readers = np.zeros((waves, groups * self.units), np.bool_)
        self._read = self.readers.reshape(-1)
        self._reached: dict[tuple[bytes, bytes, int, int, int], tuple[Array, Array]] = {}
        self._has_staging = False

    def places(self, w: Waves, address: Array, size: int, align: int) -> Array:
        """Return the byte of the batch's memory that each lane's address is, -1 for lanes that are not live.

        Stops at an address outside the workgroup's memory or no multiple of `align`.
        """
        wide = np.broadcast_to(address, w.live.shape).astype(np.int64) & ADDRESS_MASK
        wrong = wide + size > self.limit
        if not w.all_live:
            wrong &= w.live
        if wrong.any():
            what = f"reaches past the {self.limit} bytes of the workgroup's memory, the launch's dynamic_bytes included"
            raise _stop("memory", what, wrong, wide)
        if align > 1:
            wrong = wide % align != 0
            if not w.all_live:
                wrong &= w.live
            if wrong.any():
                raise _stop("alignment", f"is at an address that is no multiple of {align}", wrong, wide)
        if w.batch.trace is not None:
            w.batch.trace.local(w, wide, size)
        placed = wide + (w.group * self.size)[:, None]
        return placed if w.all_live else np.where(w.live, placed, -1)

    def units_of(self, places: Array, size: int) -> Array:
        """Return the units [waves, lanes, units] of accesses of so many bytes; -1 where a lane has none."""
        first = places // self.unit
        count = max(1, size // self.unit)
        units = first[..., None] + np.arange(count)
        return units if places.min(initial=0) >= 0 else np.where(places[..., None] < 0, -1, units)

    def reached(self, w: Waves, row: int, offset: int, size: int, align: int) -> tuple[Array, Array]:
        """Return places and units that an address register and an offset say; those of whole waves are kept.

        Loops come to the same places again.
        """
        if not w.all_live or w.batch.trace is not None:
            places = self.places(w, w.v[row].astype(np.int64) + offset, size, align)
            return places, self.units_of(places, size)
        key = w.v[row].tobytes(), w.group.tobytes(), offset, size, align
        found = self._reached.get(key)
        if found is None:
            if len(self._reached) > MOST_KEPT:
                self._reached.clear()
            places = self.places(w, w.v[row].astype(np.int64) + offset, size, align)
            found = self._reached[key] = places, self.units_of(places, size)
        return found

    def check_read(self, w: Waves, units: Array) -> None:
        """Stop where units were never written, are being staged, or were written by another wave since the barrier."""
        whole = units.min(initial=0) >= 0
        flat = units if whole else np.maximum(units, 0)
        dead = NO_LANE if whole else units < 0
        written = self.written[flat]
        if not written.all():
            never: Array = ~(written | dead)
            if never.any():
                what = "reads workgroup memory that was never written"
                raise _stop("uninitialised", what, np.any(never, axis=-1), None)
        self._check_staging(flat, dead, "reads")
        writers = self.writers[flat]
        if not writers.any():
            return
        bits = self._bits(w)
        others, alone = writers & ~bits, writers & bits == 0
        foreign = (others != NOBODY) & (alone | self.by_atomics[flat] if self.has_atomics else alone) & ~dead
        if foreign.any():
            raise _race("reads", "wrote", foreign, others)

    def _bits(self, w: Waves) -> Array:
        """Return each wave's bit among those who wrote [waves, 1, 1]."""
        bits: Array = np.uint32(1) << w.number.astype(np.uint32)
        return bits[:, None, None]

    def mark_read(self, w: Waves, units: Array) -> None:
        """Note that waves read units."""
        places = (w.number * self.writers.size)[:, None, None] + units
        self._read[places if units.min(initial=0) >= 0 else places[units >= 0]] = True

    def check_write(self, w: Waves, units: Array, alike: Callable[[], Array] | None = None) -> None:
        """Stop where units are being staged, or another wave read or wrote them since the barrier.

        `alike` says which units [waves, lanes, units] hold already what is written: with another write that is no race.
        """
        flat, dead = np.maximum(units, 0), units < 0
        self._check_staging(flat, dead, "writes")
        writers = self.writers[flat]
        foreign = (writers & ~self._bits(w) != NOBODY) & ~dead
        if foreign.any() and alike is not None:
            foreign &= ~alike()
        if foreign.any():
            raise _race("writes", "wrote", foreign, writers & ~self._bits(w))
        for step in range(1, self.waves):
            other = (w.number + step) % self.waves
            read = self.readers[other[:, None, None], flat] & ~dead
            if read.any():
                bits = np.uint32(1) << other.astype(np.uint32)
                raise _race("writes", "read", read, np.broadcast_to(bits[:, None, None], read.shape))

    def mark_write(self, w: Waves, units: Array, alike: bool = False) -> None:
        """Note that waves wrote units; stop where two of them wrote one at the same time, unless that was `alike`."""
        there = units >= 0
        bits = np.broadcast_to(self._bits(w), units.shape)
        whole = bool(there.all())
        flat, owner = (units, bits) if whole else (units[there], bits[there])
        before = self.writers[flat]
        if self.has_atomics:
            self.by_atomics[flat] = False
        self.writers[flat] = owner
        self.written[flat] = True
        if (self.writers[flat] == owner).all():
            self.writers[flat] = before | owner
            return
        if not alike:
            raise Stop("race", "is run by two waves that write the same workgroup memory with no barrier between them")
        self.writers[flat] = before
        np.bitwise_or.at(self.writers, flat, owner)

    def check_atomic(self, w: Waves, units: Array) -> None:
        """Stop where an atomic access meets others than atomics of another wave since the barrier."""
        flat, dead = np.maximum(units, 0), units < 0
        never: Array = ~(self.written[flat] | dead)
        if never.any():
            raise _stop("uninitialised", "reads workgroup memory that was never written", np.any(never, axis=-1), None)
        self.check_write(w, units, alike=lambda: self.by_atomics[flat])

    def mark_atomic(self, w: Waves, units: Array) -> None:
        """Note that waves changed units atomically: others may so, too."""
        there = units >= 0
        flat, owner = units[there], np.broadcast_to(self._bits(w), units.shape)[there]
        self.has_atomics = True
        self.by_atomics[flat] |= self.writers[flat] == NOBODY
        np.bitwise_or.at(self.writers, flat, owner)

    def stage(self, units: Array) -> None:
        """Note that units are on their way from memory."""
        self.staging[units[units >= 0]] = True
        self._has_staging = True

    def settle(self, access: Outstanding) -> None:
        """Note that what an access wrote without passing registers is there."""
        if access.staged is not None:
            self.staging[access.staged[access.staged >= 0]] = False
            self._has_staging = bool(self.staging.any())

    def barrier(self, groups: Array, arrived: list[Waves]) -> None:
        """Forget who read and wrote in workgroups whose waves met, but for their accesses that are still going on."""
        writers, readers = self.writers.reshape(self.groups, -1), self.readers.reshape(self.waves, self.groups, -1)
        writers[groups] = NOBODY
        self.by_atomics.reshape(self.groups, -1)[groups] = False
        readers[:, groups] = False
        for w in arrived:
            for access in (*w.local_loads, *w.vector_loads):
                for units in (access.writes, access.staged):
                    if units is not None and access.atomic:
                        self.mark_atomic(w, units)
                    elif units is not None:
                        self.mark_write(w, units, alike=units is access.writes)
                if access.reads is not None:
                    self.mark_read(w, access.reads)

    def _check_staging(self, flat: Array, dead: Array, verb: str) -> None:
        if not self._has_staging:
            return
        staged: Array = self.staging[flat] & ~dead
        if staged.any():
            what = f"{verb} workgroup memory that a load is still writing: its wave has not waited for it"
            raise _stop("outstanding", what, np.any(staged, axis=-1), None)


def _stop(kind: str, what: str, wrong: Array, address: Array | None) -> Stop:
    wave, lane = (int(axis[0]) for axis in np.nonzero(wrong))
    lanes = np.flatnonzero(wrong[wave])
    at = f" (address {int(address[wave, lane]):#x})" if address is not None else ""
    return Stop(kind, f"{what}{at}", wave, lanes.tolist())  # pyright: ignore[reportArgumentType]


def _race(verb: str, other_verb: str, wrong: Array, owners: Array) -> Stop:
    wave, lane, unit = (int(axis[0]) for axis in np.nonzero(wrong))
    lanes = np.flatnonzero(wrong[wave].any(axis=-1)).tolist()
    bits = int(owners[wave, lane, unit])
    other = (bits & -bits).bit_length() - 1
    what = f"{verb} workgroup memory that wave {other} {other_verb} with no wait and barrier between them"
    return Stop("race", what, wave, lanes)
