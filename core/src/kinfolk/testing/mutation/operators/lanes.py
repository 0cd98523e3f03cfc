"""Mistakes in what crosses lanes: permutations, lane maps of matrix operands, accumulators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from kinfolk.ir.meaning import LaneIndex, LanePermutation, Matrix, Meaning, MemoryAccess, OperandMap
from kinfolk.ir.op import OpDef
from kinfolk.ir.types import DataType
from kinfolk.ir.value import Operation
from kinfolk.testing.mutation.operators.declare import (
    Change,
    Operator,
    Surroundings,
    operand_replaced,
    operands_swapped,
)

_meant: dict[tuple[OpDef, str], OpDef] = {}


def _with_meaning(definition: OpDef, about: str, make: Callable[[], Meaning]) -> OpDef:
    """Return a declaration of another meaning, the same one each time, so that engines prepare it once."""
    key = (definition, about)
    if key not in _meant:
        _meant[key] = attrs.evolve(definition, meaning=make())
    return _meant[key]


def _meaning_changed(op: Operation, about: str, make: Callable[[], Meaning]) -> Change:
    def edit(place: Any) -> Any:
        return place.again(definition=_with_meaning(op.definition, about, make))

    return Change(about, edit, in_code=False)


def _exchanged_lanes(given: OperandMap) -> OperandMap:
    """Return the map in which every second lane has its neighbour's elements."""
    lanes = np.arange(len(given.rows)) ^ 1
    return OperandMap(given.rows[lanes], given.columns[lanes])


def _wrong_maps(op: Operation, around: Surroundings) -> Iterator[Change]:
    meaning = op.definition.meaning
    if isinstance(meaning, Matrix):
        for name in ("a", "b", "c"):

            def exchanged(name: str = name, meaning: Matrix = meaning) -> Matrix:
                return attrs.evolve(meaning, **{name: _exchanged_lanes(getattr(meaning, name))})

            yield _meaning_changed(op, f"lanes of operand {name} changed places with their neighbours", exchanged)
    elif isinstance(meaning, LanePermutation):

        def turned(size: int, active: Any, **attributes: Any) -> Any:
            found = meaning.sources(size, active, **attributes)
            return tuple((operand, lanes[np.arange(size) ^ 1]) for operand, lanes in found)

        yield _meaning_changed(op, "lanes take from their neighbour's source", lambda: LanePermutation(turned))
    elif isinstance(meaning, MemoryAccess) and (exchange := meaning.exchange) is not None:

        def turned_exchange(size: int, lane: LaneIndex, component: LaneIndex) -> tuple[LaneIndex, LaneIndex]:
            return exchange(size, lane ^ 1, component)

        yield _meaning_changed(
            op, "lanes get what is their neighbour's", lambda: attrs.evolve(meaning, exchange=turned_exchange)
        )


def _wrong_masks(op: Operation, around: Surroundings) -> Iterator[Change]:
    mask = op.attributes.get("mask")
    if not isinstance(op.definition.meaning, LanePermutation) or type(mask) is not int:
        return
    for other in (mask * 2, mask // 2):
        if 0 < other < around.kernel.wave_size:
            yield Change(f"mask {mask} -> {other}", lambda place, other=other: place.again(mask=other))


def _dropped_moves(op: Operation, around: Surroundings) -> Iterator[Change]:
    meaning = op.definition.meaning
    if not isinstance(meaning, LanePermutation) or len(op.operands) != len(op.results):
        return
    size = around.kernel.wave_size
    found = meaning.sources(size, np.ones(size, np.bool_), **op.attributes)
    if all(len(set(np.broadcast_to(lanes, size).tolist())) == size for _, lanes in found):
        yield Change("lanes keep their own", lambda place: place.operands)


def _swapped_factors(op: Operation, around: Surroundings) -> Iterator[Change]:
    if isinstance(op.definition.meaning, Matrix):
        a, b, _ = op.operands
        if a.type == b.type and a is not b:
            yield Change("A and B have changed places", operands_swapped(0, 1))


def _wrong_accumulators(op: Operation, around: Surroundings) -> Iterator[Change]:
    if not isinstance(op.definition.meaning, Matrix):
        return
    own = op.operands[2]
    assert isinstance(own.type, DataType)
    type_ = own.type
    yield Change("C is 0", operand_replaced(2, lambda place, _: place.bits(0, type_)))
    products = (each.results[0] for each in around.before(op) if isinstance(each.definition.meaning, Matrix))
    another = next((product for product in products if product is not own and product.type == type_), None)
    if another is not None:
        yield Change("C is another product", operand_replaced(2, lambda place, _: place.value(another)))


OPERATORS: Sequence[Operator] = (
    Operator("lane_map", "elements lie in other lanes than the kernel believes", _wrong_maps),
    Operator("lane_distance", "values cross to lanes at another distance", _wrong_masks),
    Operator("dropped_exchange", "values do not cross lanes", _dropped_moves),
    Operator("swapped_factors", "a matrix product has its factors exchanged", _swapped_factors),
    Operator("wrong_accumulator", "a matrix product is added to something else", _wrong_accumulators),
)
