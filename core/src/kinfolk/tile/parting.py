"""Barriers of a stretch of code around a tile in workgroup memory, placed by what its operations read and write.

Rounds over a ring of tiles have one barrier a tile (`slots.round_of`). Here is the rest: a tile with one place, which
is read and written in turns, and what stands before and behind a loop. A barrier stands at every turn and nowhere else,
so that none is missing and none parts nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Literal

from kinfolk.errors import IRError
from kinfolk.ir.builder import current_builder
from kinfolk.ir.meaning import MemoryAccess
from kinfolk.ir.ops import control
from kinfolk.ir.value import Operation, Value, walked
from kinfolk.tile.passage import access_of, orders
from kinfolk.tile.timeline import wait_for_tiles

Turn = Literal["read", "write"]


@contextmanager
def parted(buffer: Value, *, earlier: Turn | None = None, later: Turn | None = None) -> Generator[None]:
    """Build a stretch inside; a barrier is put before each access to `buffer` of the other kind than the last one, and
    before what only computes values for it.

    `earlier` is what was last done to the buffer before the stretch and no barrier parts from it, `later` what is done
    first behind it: in a loop, by the next round. Bytes that come directly are waited for before the barrier. Writes in
    a row are taken to be of different bytes. Raises IRError for a barrier or a wait by hand, and where one branch or
    loop both reads and writes, naming the two accesses.
    """
    emitted = current_builder().operations
    begin = len(emitted)
    yield
    stretch = emitted[begin:]
    del emitted[begin:]
    last, directly = earlier, False
    for operation in stretch:
        now, stages = _turn(buffer, operation)
        if now is not None:
            if last not in (None, now):
                values = _values_behind(emitted, begin)
                _part(directly)
                emitted += values
                directly = False
            last, directly = now, directly or stages
        emitted.append(operation)
    if last is not None and later not in (None, last):
        _part(directly)


def drain() -> None:
    """Wait for what, by the operations so far, may still be on its way to workgroup memory; nothing where none is.

    It must not arrive where another workgroup, or what stands behind, has its own.
    """
    if _on_its_way(current_builder().operations, False):
        wait_for_tiles()


def _values_behind(emitted: list[Operation], begin: int) -> list[Operation]:
    """Take off the operations at the end that only compute values: they need not wait before the barrier."""
    end = len(emitted)
    while end > begin and emitted[end - 1].definition.pure:
        end -= 1
    values = emitted[end:]
    del emitted[end:]
    return values


def _part(directly: bool) -> None:
    if directly:
        wait_for_tiles()
    control.barrier()


def _turn(buffer: Value, operation: Operation) -> tuple[Turn | None, bool]:
    """Return what an operation does to a buffer, itself or in its regions, and whether bytes come directly by it."""
    found: dict[Turn, Operation] = {}
    stages = False
    for each in walked([operation]):
        if orders(each) and access_of(each) is None:
            raise IRError(f"{each.name} is placed by what is read and written, not by hand (at {each.location})")
        access = access_of(each)
        if access is not None and access.buffer is buffer:
            found.setdefault("read" if access.kind == "read" else "write", each)
            stages = stages or access.kind == "stage"
    if len(found) > 1:
        read, write = found["read"], found["write"]
        raise IRError(
            f"{read.name} and {write.name} stand in one branch or loop, where no barrier parts them (at "
            f"{read.location}; at {write.location})"
        )
    return next(iter(found), None), stages


def _on_its_way(operations: Sequence[Operation], before: bool) -> bool:
    """Whether something may be on its way behind operations, if something may be before them."""
    left = before
    for operation in operations:
        meaning = operation.definition.meaning
        if operation.regions:
            left = left or any(_on_its_way(region.operations, left) for region in operation.regions)
        elif isinstance(meaning, MemoryAccess) and meaning.action == "stage":
            left = True
        elif isinstance(meaning, MemoryAccess) and meaning.action == "wait":
            left = left and operation.attributes["outstanding"] != 0
    return left
