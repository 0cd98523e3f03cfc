"""Result rules: which operand types an op takes, and the types it gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kinfolk.errors import IRError
from kinfolk.ir.types import (
    F32,
    I1,
    I32,
    I64,
    BufferType,
    DataType,
    PointerType,
    ScalarType,
    Type,
    VectorType,
    component_count,
    element_type,
    with_element,
)

Types = tuple[Type, ...]
Attributes = Mapping[str, Any]

ARITHMETIC_FLOATS = ("f32", "f64")


def data(type_: Type, role: str) -> DataType:
    """Return `type_` if it is a scalar or vector, else raise."""
    if not isinstance(type_, DataType):
        raise IRError(f"{role} must be a scalar or a vector, got {type_}")
    return type_


def expect(condition: bool, message: str) -> None:
    """Raise `IRError` with `message` unless `condition`."""
    if not condition:
        raise IRError(message)


def all_equal(types: Types) -> DataType:
    """All operands have one scalar or vector type: return it."""
    first = data(types[0], "an operand")
    expect(all(type_ == first for type_ in types), f"operands must have one type, got {', '.join(map(str, types))}")
    return first


def same_integer(types: Types, _: Attributes) -> Types:
    """Integers of one type give that type."""
    type_ = all_equal(types)
    expect(element_type(type_).kind == "int", f"takes integers, got {type_}")
    return (type_,)


def same_number(types: Types, attributes: Attributes) -> Types:
    """Integers of one type, i1 excepted, give that type: one bit has no sign and no arithmetic."""
    (type_,) = same_integer(types, attributes)
    expect(element_type(type_) != I1, f"takes integers of 8 to 64 bits, got {type_}")
    return (type_,)


def same_float(types: Types, _: Attributes) -> Types:
    """f32 or f64 of one type give that type."""
    type_ = all_equal(types)
    expect(
        element_type(type_).name in ARITHMETIC_FLOATS, f"takes f32 or f64 (convert narrow floats first), got {type_}"
    )
    return (type_,)


def same_f32(types: Types, _: Attributes) -> Types:
    """f32 of one type give that type."""
    type_ = all_equal(types)
    expect(element_type(type_) == F32, f"takes f32, got {type_}")
    return (type_,)


def compare_integer(types: Types, attributes: Attributes) -> Types:
    """Integers of one type give i1 of the same width; one bit is compared for equality alone."""
    (type_,) = same_integer(types, attributes)
    equality = attributes["predicate"] in ("eq", "ne")
    expect(equality or element_type(type_) != I1, f"{type_} is compared by eq and ne, got {attributes['predicate']}")
    return (with_element(data(type_, "operand"), I1),)


def compare_float(types: Types, attributes: Attributes) -> Types:
    """Floats of one type give i1 of the same width."""
    (type_,) = same_float(types, attributes)
    return (with_element(data(type_, "operand"), I1),)


def select(types: Types, _: Attributes) -> Types:
    """An i1, or an i1 per component, chooses between two values of one type."""
    condition, a, b = types
    expect(a == b, f"chooses between values of one type, got {a} and {b}")
    value = data(a, "a choice")
    expect(
        condition in (I1, with_element(value, I1)), f"condition of {a} is i1 or one i1 per component, got {condition}"
    )
    return (a,)


def change_width(wider: bool) -> Any:
    """Return a rule: an integer becomes attribute `to`, which is strictly wider, or strictly narrower."""

    def rule(types: Types, attributes: Attributes) -> Types:
        source, target = data(types[0], "the operand"), _target(attributes)
        expect(target.kind == "int", f"converts to int types, got {target}")
        expect(element_type(source).kind == "int", f"converts from int types, got {source}")
        bits = element_type(source).bits
        expect(
            target.bits > bits if wider else target.bits < bits,
            f"{source} to {target} is not {'wider' if wider else 'narrower'}",
        )
        return (with_element(source, target),)

    return rule


def change_float(*pairs: tuple[str, str]) -> Any:
    """Return a rule: a float becomes attribute `to`, by one of these pairs of type names."""

    def rule(types: Types, attributes: Attributes) -> Types:
        source, target = data(types[0], "the operand"), _target(attributes)
        known = ", ".join(f"{a} to {b}" for a, b in pairs)
        expect((element_type(source).name, target.name) in pairs, f"converts {known}; got {source} to {target}")
        return (with_element(source, target),)

    return rule


def change_kind(source_kind: str, target_kind: str) -> Any:
    """Return a rule for int to float or float to int, by attribute `to`; floats are f32 or f64, an integer is no i1."""

    def rule(types: Types, attributes: Attributes) -> Types:
        source, target = data(types[0], "the operand"), _target(attributes)
        scalars = (element_type(source), target)
        expect(
            (scalars[0].kind, scalars[1].kind) == (source_kind, target_kind),
            f"converts {source_kind} to {target_kind}, got {source} to {target}",
        )
        expect(
            all(scalar.name in ARITHMETIC_FLOATS if scalar.kind == "float" else scalar != I1 for scalar in scalars),
            f"converts between f32 or f64 and integers of 8 to 64 bits, got {source} to {target}",
        )
        return (with_element(source, target),)

    return rule


def _target(attributes: Attributes) -> ScalarType:
    target = attributes["to"]
    if not isinstance(target, ScalarType):
        raise IRError(f"converts to a scalar type, component by component, got {target}")
    return target


def same_bits(types: Types, attributes: Attributes) -> Types:
    """A bitcast keeps the number of bits: the result is attribute `to`."""
    source, target = data(types[0], "the operand"), attributes["to"]
    source_bits = element_type(source).bits * component_count(source)
    target_bits = element_type(target).bits * component_count(target)
    expect(
        source_bits == target_bits,
        f"a bitcast keeps the bits, got {source} ({source_bits}) to {target} ({target_bits})",
    )
    return (target,)


def fixed(*result: Type) -> Any:
    """Return a rule for no operands and a fixed result."""

    def rule(types: Types, _: Attributes) -> Types:
        expect(not types, f"takes no operands, got {len(types)}")
        return result

    return rule


def vector_of(type_: Type, role: str) -> VectorType:
    """Return `type_` if it is a vector, else raise."""
    if not isinstance(type_, VectorType):
        raise IRError(f"{role} must be a vector, got {type_}")
    return type_


def pointer(type_: Type) -> PointerType:
    """Return `type_` if it is a pointer, else raise."""
    if not isinstance(type_, PointerType):
        raise IRError(f"takes a pointer, got {type_}")
    return type_


def buffer(type_: Type) -> BufferType:
    """Return `type_` if it is a workgroup-memory buffer, else raise."""
    if not isinstance(type_, BufferType):
        raise IRError(f"takes a workgroup-memory buffer, got {type_}")
    return type_


def index(type_: Type, wide: bool = False) -> None:
    """Raise unless `type_` is an element index: i32, or i64 where `wide`."""
    expect(type_ == I32 or (wide and type_ == I64), f"an element index is i32{' or i64' if wide else ''}, got {type_}")
