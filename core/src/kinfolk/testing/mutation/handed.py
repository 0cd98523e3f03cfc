"""Who has stored what a thread reads from workgroup memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kinfolk.ir.meaning import Control, MemoryAccess
from kinfolk.ir.numpy_lanes import NumpyLane
from kinfolk.ir.types import BufferType, DataType, component_count
from kinfolk.ir.value import Operation, Value
from kinfolk.testing.mutation.threads import Threads

Known = Callable[[Value], NumpyLane | None]
"""The integer that each thread has as a value; None where it is not known."""


def stored_before(load: Operation, before: Sequence[Operation], known: Known) -> tuple[Operation, Threads] | None:
    """Return the store of which a read of workgroup memory gets all components in order, and for each thread the one
    that has stored what it gets; None where that is not known.

    `before` are the operations before it in its region. What the last barrier among them parts from the read must have
    been stored after the barrier before that, in a kernel without races.
    """
    buffer, place = load.operands
    index, stores = known(place), _parted_stores(before)
    if index is None or stores is None or not isinstance(buffer.type, BufferType):
        return None
    size = buffer.type.count
    stored, thread, part = (np.full(size, -1, np.int64) for _ in range(3))
    own = [each for each in stores if each.operands[0] is buffer]
    for number, store in enumerate(own):
        begin = known(store.operands[1])
        if begin is None:
            return None
        elements = _elements(begin, store, store.operands[2])
        if elements.min() < 0 or elements.max() >= size or len(np.unique(elements)) != elements.size:
            return None
        stored[elements], part[elements] = number, np.arange(elements.shape[1])
        thread[elements] = np.arange(len(elements))[:, None]
    wanted = _elements(index, load, load.results[0])
    if wanted.min() < 0 or wanted.max() >= size:
        return None
    number, whose = int(stored[wanted[0, 0]]), thread[wanted]
    order = np.arange(wanted.shape[1], dtype=np.int64)
    if number < 0 or np.any(stored[wanted] != number) or np.any(part[wanted] != order) or np.any(whose != whose[:, :1]):
        return None
    return own[number], whose[:, 0]


def _parted_stores(before: Sequence[Operation]) -> list[Operation] | None:
    """Return the stores to workgroup memory that the last barrier parts from what follows, back to the barrier before;
    None where something else writes there, or there is no barrier.
    """
    stores: list[Operation] = []
    barriers = 0
    for op in reversed(before):
        if op.name == "core.barrier":
            barriers += 1
            if barriers == 2:
                break
        elif op.name == "core.workgroup_store" and barriers:
            stores.append(op)
        elif any(map(_disturbs, (op, *(inner for region in op.regions for inner in region.walk())))):
            return None
    return stores[::-1] if barriers else None


def _disturbs(op: Operation) -> bool:
    meaning = op.definition.meaning
    if isinstance(meaning, MemoryAccess):
        return meaning.action in ("stage", "wait") or (
            meaning.space == "workgroup" and meaning.action in ("store", "atomic_add")
        )
    return isinstance(meaning, Control) and meaning.kind == "barrier"


def _elements(begin: NumpyLane, access: Operation, data: Value) -> Threads:
    """Return the elements that each thread accesses, one row a thread."""
    offset = access.attributes["offset"]
    assert isinstance(offset, int) and isinstance(data.type, DataType)
    return begin.data.astype(np.int64)[:, None] + offset + np.arange(component_count(data.type))
