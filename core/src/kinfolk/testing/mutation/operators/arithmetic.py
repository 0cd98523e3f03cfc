"""Mistakes in lane functions: the classical ones, and those that kernels are prone to."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from kinfolk.ir.meaning import LaneFunction
from kinfolk.ir.op import Attribute, OpDef
from kinfolk.ir.ops import CORE_OPS, arithmetic, convert
from kinfolk.ir.types import I32, I64, DataType, VectorType, element_type
from kinfolk.ir.value import Operation, Value
from kinfolk.testing.mutation.operators.declare import (
    Change,
    Operator,
    Surroundings,
    commutes,
    constant_bits,
    operand_name,
    operand_replaced,
    operands_swapped,
    result_is,
)
from kinfolk.testing.mutation.rewrite import Place
from kinfolk.testing.mutation.signs import nonnegative

_PREDICATES: Final[Mapping[str, str]] = {
    "eq": "ne",
    "ne": "eq",
    "oeq": "une",
    "une": "oeq",
    "uno": "ord",
    "ord": "uno",
    **{
        f"{order}{a}": f"{order}{b}"
        for order in "suo"
        for a, b in (("lt", "le"), ("le", "lt"), ("gt", "ge"), ("ge", "gt"))
    },
}
"""The comparison that is right but at equality; of those that have none, the opposite."""


def _pairs(*names: tuple[str, str]) -> Mapping[OpDef, OpDef]:
    ops = [(CORE_OPS[f"core.{a}"], CORE_OPS[f"core.{b}"]) for a, b in names]
    return {**dict(ops), **{b: a for a, b in ops}}


_OPPOSITE_EXTREMES: Final = _pairs(("smin", "smax"), ("umin", "umax"), ("fmin", "fmax"))
_OPPOSITE_SUMS: Final = _pairs(("add", "sub"), ("fadd", "fsub"))
_OTHER_BITWISE: Final = {**_pairs(("and", "or"), ("shl", "lshr")), CORE_OPS["core.xor"]: CORE_OPS["core.or"]}
_OTHER_EXTENSION: Final = _pairs(("sext", "zext"))
_LARGE: Final = 4096
"""An integer from here on is no count: of a mask or a rounding, one more is nothing."""
_TERMS: Final = (arithmetic.add, arithmetic.fadd)
_FACTORS: Final = (arithmetic.mul, arithmetic.fmul)
_CLAMPS: Final = tuple(_OPPOSITE_EXTREMES)


def _comparisons(op: Operation, around: Surroundings) -> Iterator[Change]:
    predicate = op.attributes.get("predicate")
    if isinstance(predicate, str) and predicate in _PREDICATES:
        other = _PREDICATES[predicate]
        yield Change(f"{predicate} -> {other}", lambda place: place.again(predicate=other))


def _replaced(pairs: Mapping[OpDef, OpDef]) -> Any:
    def changes(op: Operation, around: Surroundings) -> Iterator[Change]:
        other = pairs.get(op.definition)
        if other is not None:
            yield Change(f"{op.name} -> {other.name}", lambda place: place.again(definition=other))

    return changes


def _either(ops: Sequence[OpDef]) -> Any:
    def changes(op: Operation, around: Surroundings) -> Iterator[Change]:
        if op.definition in ops:
            for number in (0, 1):
                yield Change(f"only {operand_name(op, number)} is left", result_is(number))

    return changes


def _dropped_terms(op: Operation, around: Surroundings) -> Iterator[Change]:
    yield from _either(_TERMS)(op, around)
    if op.definition is arithmetic.fma:
        yield Change("only c is left", result_is(2))
        yield Change("c is left out", lambda place: place.build(arithmetic.fmul, place.operands[:2]))


def _dropped_factors(op: Operation, around: Surroundings) -> Iterator[Change]:
    yield from _either(_FACTORS)(op, around)
    if op.definition is arithmetic.fma:
        yield Change(
            "b is left out", lambda place: place.build(arithmetic.fadd, (place.operands[0], place.operands[2]))
        )


def _strides(op: Operation, around: Surroundings) -> Iterator[Change]:
    """A distance that a kernel is given is one more: where it is a constant, the operator of constants has it."""
    if op.definition is not arithmetic.mul:
        return
    for number, value in enumerate(op.operands):
        if constant_bits(value) is None and isinstance(value.type, DataType):

            def longer(place: Place, value: Value) -> Value:
                assert isinstance(value.type, DataType)
                return place.build(arithmetic.add, (value, place.constant(1, value.type)))[0]

            yield Change(f"{operand_name(op, number)} +1", operand_replaced(number, longer))


def _select_arms(op: Operation, around: Surroundings) -> Iterator[Change]:
    if op.definition is arithmetic.select and op.operands[1] is not op.operands[2]:
        yield Change("its arms have changed places", operands_swapped(1, 2))


def _dropped_selects(op: Operation, around: Surroundings) -> Iterator[Change]:
    if op.definition is arithmetic.select:
        for number in (1, 2):
            yield Change(f"always {operand_name(op, number)}", result_is(number))


def _constants(op: Operation, around: Surroundings) -> Iterator[Change]:
    meaning = op.definition.meaning
    if not isinstance(meaning, LaneFunction) or meaning.form != "elementwise":  # others only move it
        return
    for number, value in enumerate(op.operands):
        bits = constant_bits(value)
        if bits is None or not isinstance(value.type, DataType):
            continue
        for about, other in _near(bits, value.type):
            edit = operand_replaced(number, partial(_bits, bits=other))
            yield Change(f"{operand_name(op, number)} {about}", edit)


def _bits(place: Place, value: Value, *, bits: int) -> Value:
    assert isinstance(value.type, DataType)
    return place.bits(bits, value.type)


def _near(bits: int, type_: DataType) -> Iterator[tuple[str, int]]:
    """Yield constants near one: a small integer one more and one less, a large one doubled and halved, a float doubled
    or, where it is 0, one more.
    """
    element = element_type(type_)
    if element.kind == "int":
        signed = bits - (1 << element.bits) if element.bits > 1 and bits >> (element.bits - 1) else bits
        near = (signed + 1, signed - 1) if abs(signed) < _LARGE else (signed * 2, signed // 2)
        for other in dict.fromkeys(each % (1 << element.bits) for each in near):
            shown = other - (1 << element.bits) if element.bits > 1 and other >> (element.bits - 1) else other
            yield f"{signed} -> {shown}", other
    elif element.name == "f32":
        (value,) = struct.unpack("<f", bits.to_bytes(4, "little"))
        other = 2.0 * value if value not in (0.0, -2.0 * value) and abs(value) < 2.0**100 else value + 1.0
        if other != value and other == other:
            yield f"{value:g} -> {other:g}", int.from_bytes(struct.pack("<f", other), "little")


def _swapped(op: Operation, around: Surroundings) -> Iterator[Change]:
    if not isinstance(op.definition.meaning, LaneFunction) or op.definition is arithmetic.select:
        return
    for a, (one, other) in enumerate(zip(op.operands, op.operands[1:], strict=False)):
        if one.type == other.type and one is not other and not commutes(op, a, a + 1):
            names = f"{operand_name(op, a)} and {operand_name(op, a + 1)}"
            yield Change(f"{names} have changed places", operands_swapped(a, a + 1))
            return


def _extensions(op: Operation, around: Surroundings) -> Iterator[Change]:
    if op.definition in _OTHER_EXTENSION and not nonnegative(op.operands[0]):
        yield from _replaced(_OTHER_EXTENSION)(op, around)


def _narrow_products(op: Operation, around: Surroundings) -> Iterator[Change]:
    if op.definition is not arithmetic.mul or op.results[0].type != I64:
        return

    def narrow(place: Place) -> Sequence[Value]:
        parts = [place.build(convert.trunc, (value,), {"to": I32})[0] for value in place.operands]
        product = place.build(arithmetic.mul, parts, {"nsw": True})
        return place.build(convert.sext, product, {"to": I64})

    yield Change("computed in 32 bits", narrow)


def _components(op: Operation, around: Surroundings) -> Iterator[Change]:
    source = op.operands[0].type if op.operands else None
    if isinstance(index := op.attributes.get("index"), int) and isinstance(source, VectorType) and source.count > 1:
        other = (index + 1) % source.count
        yield Change(f"component {index} -> {other}", lambda place: place.again(index=other))
    for name in ("indices", "selector"):
        order = op.attributes.get(name)
        if isinstance(order, tuple) and len(set(order)) > 1:
            turned = (*order[1:], order[0])
            yield Change(f"{name} turned by one", partial(_with_attribute, name=name, value=turned))


def _with_attribute(place: Place, *, name: str, value: Attribute) -> Sequence[Value]:
    return place.with_attributes({name: value})


OPERATORS: Sequence[Operator] = (
    Operator("comparison", "a comparison is wrong at equality, or the opposite", _comparisons, marginal=True),
    Operator("min_max", "a minimum is a maximum", _replaced(_OPPOSITE_EXTREMES)),
    Operator("dropped_clamp", "a bound by minimum or maximum is left out", _either(_CLAMPS)),
    Operator("select_arms", "a selection has its arms exchanged", _select_arms),
    Operator("dropped_select", "a selection always takes one arm, as without its mask", _dropped_selects),
    Operator("constant", "a constant is one off, or twice what it should be", _constants, marginal=True),
    Operator("add_sub", "a sum is a difference", _replaced(_OPPOSITE_SUMS)),
    Operator("bitwise", "another operation on bits", _replaced(_OTHER_BITWISE)),
    Operator("dropped_term", "a sum lacks a term", _dropped_terms),
    Operator("dropped_factor", "a product lacks a factor, as without its rescale", _dropped_factors),
    Operator("wrong_stride", "a factor of an index is one too large", _strides),
    Operator("swapped_operands", "two operands are exchanged", _swapped),
    Operator("wrong_component", "components of vectors and words are mistaken for others", _components),
    Operator("extension", "a number is extended by its sign, or is not", _extensions),
    Operator("narrow_product", "a 64-bit product is cut to 32 bits", _narrow_products),
)
