"""Moving components between scalars and vectors. Indices are compile-time constants."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from kinfolk.errors import IRError
from kinfolk.ir import rules
from kinfolk.ir.op import AttributeDef, LlvmWriter
from kinfolk.ir.ops.declare import CORE_OPS, TO, lane_op
from kinfolk.ir.types import ScalarType, Type, VectorType, component_count, element_type, integer_of, vector
from kinfolk.ir.value import Operation


def _constant_rule(types: tuple[Type, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
    to, bits = attributes["to"], attributes["bits"]
    rules.expect(not types and isinstance(to, ScalarType), "a constant is a scalar without operands")
    rules.expect(bits < 1 << to.bits, f"{bits:#x} has more bits than {to}")
    return (to,)


def _lower_constant(w: LlvmWriter, op: Operation) -> None:
    to, bits = op.attributes["to"], op.attributes["bits"]
    assert isinstance(to, ScalarType) and isinstance(bits, int)
    w.alias(op.results[0], literal(bits, to))


def _as_double(bits: int) -> int:
    """Return the bits of an f32 as those of the equal f64; a NaN keeps its payload and stays quiet or signaling."""
    sign, rest = bits >> 31 << 63, bits & 0x7FFFFFFF
    if rest > 0x7F800000:
        return sign | 0x7FF << 52 | (rest & 0x7FFFFF) << 29
    (value,) = struct.unpack("<f", rest.to_bytes(4, "little"))
    return sign | int.from_bytes(struct.pack("<d", value), "little")


def literal(bits: int, type_: ScalarType) -> str:
    """Return an LLVM constant with these storage bits."""
    match type_.name:
        case "i1":
            return "true" if bits else "false"
        case "f32":
            return f"0x{_as_double(bits):016X}"
        case "f64":
            return f"0x{bits:016X}"
        case "f16":
            return f"0xH{bits:04X}"
        case "bf16":
            return f"0xR{bits:04X}"
        case _:
            signed = bits - (1 << type_.bits) if bits >> (type_.bits - 1) else bits
            return str(signed)


@lane_op(
    "core.constant",
    "",
    _constant_rule,
    _lower_constant,
    attributes=(TO, AttributeDef("bits", "bits")),
    components=True,
    issue="none",
    uniform=True,
)
def constant(m: Any, *, result: tuple[Any, ...], to: ScalarType, bits: int) -> list[Any]:
    """A scalar given by its storage bits."""
    integer = integer_of(to.bits)
    value = m.const(bits, integer)
    return [value if integer == to else m.bits(value, to)]


def _splat_rule(types: tuple[Type, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
    rules.expect(isinstance(types[0], ScalarType), f"splats a scalar, got {types[0]}")
    return (VectorType(element_type(types[0]), attributes["count"]),)


def _lower_splat(w: LlvmWriter, op: Operation) -> None:
    (x,), (result,) = op.operands, op.results
    name, element, count = w.name(x), w.type(x.type), component_count(rules.data(result.type, "result"))
    if not name.startswith("%"):
        items = ", ".join([f"{element} {name}"] * count)
        w.alias(result, f"<{items}>")
        return
    seed = w.fresh(f"insertelement {w.type(result.type)} poison, {element} {name}, i32 0")
    zeros = ", ".join(["i32 0"] * count)
    w.define(
        result, f"shufflevector {w.type(result.type)} {seed}, {w.type(result.type)} poison, <{count} x i32> <{zeros}>"
    )


@lane_op(
    "core.splat",
    "x",
    _splat_rule,
    _lower_splat,
    attributes=(AttributeDef("count", "int"),),
    components=True,
    issue="none",
)
def splat(m: Any, x: list[Any], *, result: tuple[Any, ...], count: int) -> list[Any]:
    """A vector of `count` copies of a scalar."""
    return x * count


def _extract_rule(types: tuple[Type, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
    source = rules.vector_of(types[0], "the operand")
    rules.expect(0 <= attributes["index"] < source.count, f"index {attributes['index']} is outside {source}")
    return (source.element,)


def _lower_extract(w: LlvmWriter, op: Operation) -> None:
    w.define(op.results[0], f"extractelement {w.typed(op.operands[0])}, i32 {op.attributes['index']}")


@lane_op(
    "core.extract",
    "x",
    _extract_rule,
    _lower_extract,
    attributes=(AttributeDef("index", "int"),),
    components=True,
    issue="none",
)
def extract(m: Any, x: list[Any], *, result: tuple[Any, ...], index: int) -> list[Any]:
    """Component `index` of a vector."""
    return [x[index]]


def _pack_rule(types: tuple[Type, ...], _: Mapping[str, Any]) -> tuple[Type, ...]:
    rules.expect(len(types) > 0, "packs at least one scalar")
    type_ = rules.all_equal(types)
    rules.expect(isinstance(type_, ScalarType), f"packs scalars, got {type_}")
    return (VectorType(element_type(type_), len(types)),)


def _lower_pack(w: LlvmWriter, op: Operation) -> None:
    (result,) = op.results
    text = "poison"
    for index, part in enumerate(op.operands):
        insert = f"insertelement {w.type(result.type)} {text}, {w.typed(part)}, i32 {index}"
        if index + 1 == len(op.operands):
            w.define(result, insert)
        else:
            text = w.fresh(insert)


@lane_op("core.pack", "parts*", _pack_rule, _lower_pack, components=True, issue="none")
def pack(m: Any, *parts: list[Any], result: tuple[Any, ...]) -> list[Any]:
    """A vector of scalars, in order."""
    return [part[0] for part in parts]


def _shuffle_rule(types: tuple[Type, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
    a = rules.vector_of(types[0], "the first operand")
    rules.expect(types[1] == a, f"shuffles two vectors of one type, got {a} and {types[1]}")
    indices = attributes["indices"]
    if not indices or not all(0 <= index < 2 * a.count for index in indices):
        raise IRError(f"indices {indices} must lie in [0, {2 * a.count})")
    return (vector(a.element, len(indices)),)


def _lower_shuffle(w: LlvmWriter, op: Operation) -> None:
    a, b = op.operands
    indices = op.attributes["indices"]
    assert isinstance(indices, tuple)
    if len(indices) == 1:
        count = component_count(rules.data(a.type, "operand"))
        source = a if indices[0] < count else b
        w.define(op.results[0], f"extractelement {w.typed(source)}, i32 {indices[0] % count}")
        return
    mask = ", ".join(f"i32 {index}" for index in indices)
    w.define(op.results[0], f"shufflevector {w.typed(a)}, {w.typed(b)}, <{len(indices)} x i32> <{mask}>")


@lane_op(
    "core.shuffle",
    "a b",
    _shuffle_rule,
    _lower_shuffle,
    attributes=(AttributeDef("indices", "ints"),),
    components=True,
    issue="none",
)
def shuffle(m: Any, a: list[Any], b: list[Any], *, result: tuple[Any, ...], indices: tuple[int, ...]) -> list[Any]:
    """The components `indices` of a and b laid end to end."""
    both = a + b
    return [both[index] for index in indices]


def slice_(x: Any, start: int, count: int) -> Any:
    """Return `count` components of `x` from `start` on, a scalar for one."""
    return shuffle(x, x, indices=tuple(range(start, start + count)))


__all__ = ["CORE_OPS", "constant", "extract", "literal", "pack", "shuffle", "slice_", "splat"]
