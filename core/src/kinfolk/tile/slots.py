"""Where the tiles of a ring begin in workgroup memory, and which of them a round's accesses are of."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import attrs

from kinfolk.errors import IRError
from kinfolk.ir.builder import current_builder
from kinfolk.ir.ops import arithmetic
from kinfolk.ir.value import Value
from kinfolk.tile.passage import check_passage
from kinfolk.tile.rotation import Rotation


@attrs.frozen(kw_only=True, eq=False)
class Slots:
    """Where the tiles of a ring begin, in elements (i32); the first of them at `begin`, the others `elements` apart."""

    begin: Value
    count: int
    elements: int

    @property
    def last(self) -> Value:
        """The last slot."""
        return self.begin + (self.count - 1) * self.elements

    def at(self, number: int) -> Value:
        """Return a slot by number."""
        return self.begin + number * self.elements if number else self.begin

    def after(self, slot: Value) -> Value:
        """Return the slot after one."""
        if self.count == 2:
            return (self.begin + self.last) - slot
        return arithmetic.select(slot.eq(self.last), self.begin, slot + self.elements)

    def before(self, slot: Value) -> Value:
        """Return the slot before one."""
        return arithmetic.select(slot.eq(self.begin), self.last, slot - self.elements)


@attrs.frozen(eq=False)
class RoundSlots:
    """The slots of the tiles that a round is about, by how many tiles they are ahead of its own, the slot of which is
    `own`.
    """

    slots: Slots
    own: Value
    named: dict[int, Value] = attrs.field(factory=dict[int, Value])

    def __attrs_post_init__(self) -> None:
        self.named[0] = self.own

    def ahead(self, distance: int) -> Value:
        """Return the slot of the tile `distance` ahead."""
        if distance not in self.named:
            self.named[distance] = self._found(distance)
        return self.named[distance]

    def _found(self, distance: int) -> Value:
        if distance == 1:
            return self.slots.after(self.own)
        if distance % self.slots.count == self.slots.count - 1:
            return self.slots.before(self.own)
        return self.slots.after(self.ahead(distance - 1))


@contextmanager
def round_of(rotation: Rotation, slots: Slots, own: Value, tiles: int = 1) -> Generator[RoundSlots]:
    """Build a round of a loop, which moves on by `tiles` tiles, inside; `own` is the slot of its own tile.

    At the end every access that was emitted to the slots is looked at, and waits for tiles that come directly are told
    how much may still be on its way. Raises IRError where no barrier parts two accesses that must not meet, naming
    both, for what cannot be judged (`check_passage`), and for a constant as `own`: equal constants are one value, so an
    index that has nothing to do with the slot may be computed from it.
    """
    if own.defining_op is not None and own.defining_op.name == "core.constant":
        raise IRError("the slot of a round's own tile is carried by the loop, got a constant")
    named = RoundSlots(slots, own)
    emitted = current_builder().operations
    begin = len(emitted)
    yield named
    check_passage(rotation, {value: distance for distance, value in named.named.items()}, emitted[begin:], tiles)
