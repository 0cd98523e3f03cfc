"""A round's accesses to the slots of a ring, read from the operations that were emitted, and judged over many rounds.

Nothing is taken from the schedule that made them: which slot an access is of follows from its address, what it does
from the op's declared meaning, when it happens from the barriers around it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import attrs

from kinfolk.errors import IRError
from kinfolk.ir.meaning import Control, MemoryAccess
from kinfolk.ir.value import Operation, Value, walked
from kinfolk.tile.rotation import Rotation

Kind = Literal["read", "write", "stage", "wait", "barrier"]
KINDS: Final[Mapping[str, Kind]] = {"load": "read", "store": "write", "atomic_add": "write", "stage": "stage"}


@attrs.frozen(eq=False)
class Access:
    """What an operation does to workgroup memory: in which buffer, at which element index."""

    kind: Kind
    buffer: Value
    index: Value


def access_of(operation: Operation) -> Access | None:
    """Return an operation's access to workgroup memory, by its declared meaning; None where it is none."""
    meaning = operation.definition.meaning
    if not isinstance(meaning, MemoryAccess) or meaning.action not in KINDS:
        return None
    kind = KINDS[meaning.action]
    if kind == "stage":
        return Access(kind, *operation.operands[-2:])
    return Access(kind, *operation.operands[:2]) if meaning.space == "workgroup" else None


@attrs.frozen(eq=False)
class Event:
    """What an operation does, `distance` being how many tiles ahead of the round's own the one it touches is."""

    kind: Kind
    operation: Operation
    distance: int = 0


@attrs.frozen(eq=False)
class Accessed:
    """When a tile was written, arrived and was read: barriers since the first round, and by which event."""

    written: list[tuple[int, Event]] = attrs.field(factory=list[tuple[int, Event]])
    arrived: list[int] = attrs.field(factory=list[int])
    read: list[tuple[int, Event]] = attrs.field(factory=list[tuple[int, Event]])


def check_passage(
    rotation: Rotation, distances: Mapping[Value, int], operations: Sequence[Operation], tiles: int = 1
) -> None:
    """Judge a round that was emitted as `operations`, and set what its waits leave on its way.

    `distances` are those of the slots' values, `tiles` how many tiles a round moves on, so many groups of waves being
    at it, each a tile and a barrier behind the one before. Raises IRError for an access that no barrier parts from one
    it must not meet, for another number of barriers a tile than the rotation's, for one to a place that is no slot's,
    and for barriers, waits and stagings in a branch or a loop of the round.
    """
    events = list(_events(distances, operations))
    met = sum(event.kind == "barrier" for event in events)
    if met != tiles * rotation.meetings:
        times = "once" if rotation.meetings == 1 else f"{rotation.meetings} times"
        raise IRError(f"the waves meet {met} times in a round of {tiles} tiles, they must {times} a tile")
    _set_waits(events, tiles, rotation.slots)
    _check(_accessed(events, tiles, rotation.slots), rotation.slots, tiles)


def _events(distances: Mapping[Value, int], operations: Sequence[Operation]) -> Iterator[Event]:
    slot_of = _SlotOf(distances)
    buffers: set[Value] = set()
    elsewhere: list[tuple[Value, Operation]] = []
    top = set(operations)
    for operation in walked(operations):
        meaning = operation.definition.meaning
        if operation not in top and orders(operation):
            raise IRError(f"{operation.name} stands in a branch or a loop of the round (at {operation.location})")
        if meaning == Control("barrier"):
            yield Event("barrier", operation)
        elif isinstance(meaning, MemoryAccess) and meaning.action == "wait":
            yield Event("wait", operation)
        elif (access := access_of(operation)) is not None:
            slot = slot_of(access.index)
            if slot is None:
                elsewhere.append((access.buffer, operation))
            else:
                buffers.add(access.buffer)
                yield Event(access.kind, operation, distances[slot])
    for buffer, operation in elsewhere:
        if buffer in buffers:
            raise IRError(f"{operation.name} is of no slot of the round (at {operation.location})")


def orders(operation: Operation) -> bool:
    """Whether an operation is one of those whose order and number in a round count."""
    meaning = operation.definition.meaning
    if isinstance(meaning, MemoryAccess):
        return meaning.action in ("stage", "wait")
    return meaning == Control("barrier")


class _SlotOf:
    """Finds the slot that an index is computed from."""

    def __init__(self, distances: Mapping[Value, int]) -> None:
        self._found: dict[Value, Value | None] = {value: value for value in distances}

    def __call__(self, index: Value) -> Value | None:
        if index not in self._found:
            operation = index.defining_op
            operands = operation.operands if operation is not None and operation.definition.pure else ()
            held = list(dict.fromkeys(slot for operand in operands if (slot := self(operand)) is not None))
            if len(held) > 1:
                raise IRError(f"an index is computed from {len(held)} slots (at {operation and operation.location})")
            self._found[index] = held[0] if held else None
        return self._found[index]


def _set_waits(events: Sequence[Event], tiles: int, slots: int) -> None:
    """Tell each wait how many of the latest stagings nobody reads before the waves have met twice."""
    accessed = _accessed(events, tiles, slots)
    asked: list[int] = []
    time = 0
    for first in _rounds(tiles, slots)[: 2 * slots + 2]:
        for event in events:
            time += event.kind == "barrier"
            if event.kind == "stage":
                asked.append(first + event.distance)
            elif event.kind == "wait":
                needed = {tile for tile, each in accessed.items() if any(read == time + 1 for read, _ in each.read)}
                last = max((place for place, tile in enumerate(asked) if tile in needed), default=-1)
                event.operation.attributes["outstanding"] = len(asked) - 1 - last


def _rounds(tiles: int, slots: int) -> range:
    """Return the own tiles of so many rounds that each slot is written and read a few times over."""
    return range(0, 4 * (slots + 1) * tiles, tiles)


def _accessed(events: Sequence[Event], tiles: int, slots: int) -> dict[int, Accessed]:
    """Return what happens to each tile in the round over and over."""
    found: dict[int, Accessed] = defaultdict(Accessed)
    for group in range(tiles):
        time, on_the_way = group, list[int]()
        for first in _rounds(tiles, slots):
            for event in events:
                tile = first + group + event.distance
                match event.kind:
                    case "barrier":
                        time += 1
                    case "read":
                        found[tile].read.append((time, event))
                    case "write" | "stage":
                        found[tile].written.append((time, event))
                        (on_the_way if event.kind == "stage" else found[tile].arrived).append(
                            tile if event.kind == "stage" else time
                        )
                    case "wait":
                        left = event.operation.attributes["outstanding"]
                        assert isinstance(left, int)
                        there = max(0, len(on_the_way) - left)
                        for each in on_the_way[:there]:
                            found[each].arrived.append(time)
                        del on_the_way[:there]
    return found


def _check(accessed: Mapping[int, Accessed], slots: int, tiles: int) -> None:
    """Raise IRError for the first tile, of those in the midst, of which an access is too early or too late."""
    begin = _rounds(tiles, slots).stop // 3  # past the first rounds, which find no tile, and far from the last
    for tile in range(begin, begin + slots * tiles):
        now, again = (accessed.get(each, Accessed()) for each in (tile, tile + slots))
        for time, event in now.read:
            if now.written and (len(now.arrived) < len(now.written) or max(now.arrived) >= time):
                _, latest = max(now.written, key=_time)
                _fail(event, "reads a tile that no barrier parts from its being written", latest)
        if not again.written:
            continue
        anew, first = min(again.written, key=_time)
        for time, event in (*now.read, *now.written):
            if anew <= time:
                _fail(event, f"is of a tile whose slot, one of {slots}, is written again by then", first)


def _time(access: tuple[int, Event]) -> int:
    return access[0]


def _fail(event: Event, what: str, write: Event) -> None:
    raise IRError(
        f"{event.operation.name} {what}: {event.distance} tiles ahead (at {event.operation.location}), by "
        f"{write.operation.name} (at {write.operation.location})"
    )
