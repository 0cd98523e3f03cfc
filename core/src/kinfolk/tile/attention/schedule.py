"""The fields of a spec that say how tiles go by, and where the waves meet."""

from __future__ import annotations

from typing import ClassVar, Protocol

from kinfolk.tile.rotation import Rotation


class Schedule(Protocol):
    """`key_slots` tiles of keys and `value_slots` of values have a place in workgroup memory. `reads_together` reads of
    keys make a unit; keys and values are read so many units before their use; the order is fenced after `fence_every`
    units of the first product; `weights_after` pairs of weights are formed during the second product, and
    `units_after_barrier` of its units come after its barrier.
    """

    value_slots: ClassVar[int]

    @property
    def tile_keys(self) -> int: ...
    @property
    def key_slots(self) -> int: ...
    @property
    def reads_together(self) -> int: ...
    @property
    def key_read_ahead(self) -> int: ...
    @property
    def value_read_ahead(self) -> int: ...
    @property
    def fence_every(self) -> int: ...
    @property
    def weights_after(self) -> int: ...
    @property
    def units_after_barrier(self) -> int: ...


def rotation(schedule: Schedule, slots: int) -> Rotation:
    """Return what happens to the tiles of a ring of `slots`.

    With one slot for keys, the waves meet once more, between their being read and being written.
    """
    return Rotation(slots=slots, reads=(0, 1), writes=(1,), meetings=2 if schedule.key_slots == 1 else 1)


def meeting_of(schedule: Schedule) -> Rotation:
    """Return what the second product's barrier parts; the one before it, where there is one, does for a slot more."""
    slots = schedule.value_slots + (schedule.key_slots == 1)
    return Rotation(slots=slots, reads=(0, 1), writes=(1,))
