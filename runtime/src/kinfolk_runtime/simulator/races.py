"""Races in workgroup memory: who touches which bytes between two barriers, and which bytes are in flight.

An epoch lasts from one barrier, or the start, to the next, or the end. Per granule of bytes it keeps the sets of waves
that read it, wrote it, added to it atomically; when the waves meet, the sets say whether two waves raced, whatever
order they ran in. A staging counts as a write by its wave in the epoch in which it is issued, whose bytes may arrive at
once, and in that of the wait that delivers it; from issue to wait its bytes are in flight, and nobody may touch them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.ir.numpy_lanes import Array
from kinfolk_runtime.simulator.fault import KernelFault, Party

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinfolk.ir.value import Operation
    from kinfolk_runtime.simulator.wave import Wave
    from kinfolk_runtime.simulator.workgroup import Allocation

Role = Literal["load", "store", "atomic_add"]
ROLES: Final[tuple[Role, ...]] = ("load", "store", "atomic_add")
DOES: Final[dict[Role, str]] = {"load": "reads", "store": "writes", "atomic_add": "adds to"}
MOST_NOTED: Final = 8192
"""Accesses kept per epoch to name the parties of a race by; the sets of waves forget nothing."""


@attrs.frozen(eq=False)
class Access:
    """One execution of an op: the granules `spots` [.., lanes or 1] that `lanes` of a wave touched."""

    role: Role
    op: Operation
    wave: int
    lanes: Array
    spots: Array
    waited: bool = False

    def lanes_at(self, spot: int) -> tuple[int, ...]:
        """Return the lanes that touched a granule."""
        here = (self.spots == spot).any(axis=0)
        return tuple(int(lane) for lane in (self.lanes[here] if len(here) == len(self.lanes) else self.lanes))

    def party(self, workgroup: tuple[int, int, int], spot: int) -> Party:
        """Return it as the side of a race at a granule."""
        return Party(self.op.name, str(self.op.location), workgroup, self.wave, self.lanes_at(spot))


class Races:
    """What the race sanitizer knows of one workgroup's memory."""

    def __init__(self, size: int, granule: int, waves: int) -> None:
        self.granule = granule
        self.epoch = 0
        count = -(-size // granule)
        bits = np.min_scalar_type((1 << waves) - 1)
        self._sets: dict[Role, npt.NDArray[Any]] = {role: np.zeros(count, bits) for role in ROLES}
        self._noted: deque[Access] = deque(maxlen=MOST_NOTED)
        self._flying = np.zeros(count, np.int32)
        self._stagings: dict[int, Access] = {}
        self._issued = 0

    def spots(self, allocation: Allocation, numbers: Array, unit: int) -> Array:
        """Return the granules of an allocation's units, [.., lanes or 1]."""
        each = unit // self.granule
        first = numbers * each + allocation.begin // self.granule
        if each == 1:
            return first
        return (first[None] + np.arange(each)[:, None, None]).reshape(-1, first.shape[-1])

    def note(self, access: Access) -> None:
        """Enter an access into the sets of its epoch."""
        held = self._sets[access.role]
        held[access.spots] |= held.dtype.type(1 << access.wave)
        self._noted.append(access)

    def touch(self, w: Wave, access: Access) -> None:
        """Raise the fault of an access to bytes in flight."""
        if not self._stagings:
            return
        numbers = self._flying[access.spots]
        if not numbers.any():
            return
        spot = int(access.spots[numbers != 0].min())
        staging = self._stagings[int(self._flying[spot])]
        byte = spot * self.granule
        named, element = w.group.element_at(byte)
        by = "this wave" if staging.wave == w.index else f"wave {staging.wave}"
        verb = "stages to" if access.op.definition.meaning == staging.op.definition.meaning else DOES[access.role]
        w.fail(
            access.op,
            "race",
            f"{verb} element {element} of {named} while a staging of {by} is on its way there; it has not been waited "
            f"for",
            access.lanes_at(spot),
            address=byte,
            buffer=named,
            element=element,
            other=staging.party(w.group.place, spot),
        )

    def issue(self, w: Wave, access: Access) -> int:
        """Let the bytes of a staging be in flight; return its number."""
        self.touch(w, access)
        self.note(access)
        self._issued += 1
        self._flying[access.spots] = self._issued
        self._stagings[self._issued] = access
        return self._issued

    def arrive(self, number: int) -> None:
        """Let a staging's bytes arrive: its wave writes them now."""
        access = self._stagings.pop(number)
        self._flying[access.spots] = 0
        self.note(attrs.evolve(access, waited=True))

    def meet(self, group: Any) -> None:
        """Raise where two waves raced in the epoch that ends; begin the next."""
        if self._noted:
            spot = self._racing()
            if spot is not None:
                self._raise(group, spot)
            for held in self._sets.values():
                held[...] = 0
            self._noted.clear()
        self.epoch += 1

    def _racing(self) -> int | None:
        read, wrote, added = (self._sets[role] for role in ROLES)
        several = wrote & (wrote - np.minimum(wrote, 1)) != 0
        against_write = (wrote != 0) & ((read | added) & ~wrote != 0)
        alone = (added == read) & (added & (added - np.minimum(added, 1)) == 0)
        against_add = (added != 0) & (read != 0) & ~alone
        racing = np.flatnonzero(several | against_write | against_add)
        return int(racing[0]) if len(racing) else None

    def _raise(self, group: Any, spot: int) -> None:
        (own_role, own_wave), (other_role, other_wave) = raced([_waves(int(self._sets[role][spot])) for role in ROLES])
        own, other = self._first(own_role, own_wave, spot), self._first(other_role, other_wave, spot)
        byte = spot * self.granule
        named, element = group.element_at(byte)
        staged = " (staged, it arrives when it is waited for)" if other is not None and other.waited else ""
        raise KernelFault(
            f"{DOES[own_role]} element {element} of {named}, which wave {other_wave} {DOES[other_role]}{staged} with "
            f"no barrier between",
            kind="race",
            kernel=group.kernel,
            op=own.op if own else None,
            workgroup=group.place,
            wave=own_wave,
            lanes=own.lanes_at(spot) if own else (),
            address=byte,
            buffer=named,
            element=element,
            other=other.party(group.place, spot) if other else Party(None, None, group.place, other_wave),
        )

    def _first(self, role: Role, wave: int, spot: int) -> Access | None:
        for access in self._noted:
            if access.role == role and access.wave == wave and bool((access.spots == spot).any()):
                return access
        return None


def raced(parties: Sequence[Sequence[int]]) -> tuple[tuple[Role, int], tuple[Role, int]]:
    """Return two racing parties, each its role and number, of those that read, wrote and added, numbers ascending.

    The second is the lowest writer, else an adder; the first the lowest other that reads, else writes, else adds.
    """
    read, wrote, added = parties
    if wrote:
        other = wrote[0]
        for role, numbers in zip(ROLES, parties, strict=True):
            for number in numbers:
                if number != other:
                    return (role, number), ("store", other)
    for reader in read:
        for adder in added:
            if adder != reader:
                return ("load", reader), ("atomic_add", adder)
    raise AssertionError("nobody raced")


def _waves(bits: int) -> list[int]:
    return [wave for wave in range(bits.bit_length()) if bits >> wave & 1]
