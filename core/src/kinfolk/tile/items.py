"""A workgroup that walks over work items, one after the other, as one that is launched for each would do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from kinfolk.ir.builder import current_builder
from kinfolk.ir.ops import control
from kinfolk.ir.ops.memory import ALLOCATE
from kinfolk.ir.value import Operation, Value
from kinfolk.tile.state import loop

Item = TypeVar("Item")
_RESERVES: Final = ALLOCATE.name


def walk_items(count: Value, first: Item, body: Callable[[Item], Item]) -> None:
    """Do `count` items (i32, equal on all lanes); `body(item)` does one and returns the next, a state (`tile.state`).

    Workgroup memory that an item reserves is reserved once, for all of them, and no wave touches it for an item before
    all waves are done with the one before.
    """

    def done(_: Value, item: Item) -> Item:
        following = body(item)
        control.barrier()
        return following

    loop(0, count, first, done)
    operations = current_builder().operations
    [region] = operations[-1].regions
    reserved = [each for each in region.operations if _is_reserved(each)]
    region.operations[:] = [each for each in region.operations if not _is_reserved(each)]
    operations[-1:-1] = reserved


def _is_reserved(operation: Operation) -> bool:
    return operation.name == _RESERVES
