"""Conversions: sign and width of integers, widths of floats, and bits read as another type."""

from __future__ import annotations

from typing import Any

from kinfolk.errors import IRError
from kinfolk.ir import rules
from kinfolk.ir.op import LlvmWriter
from kinfolk.ir.ops.declare import TO, lane_op
from kinfolk.ir.types import F32, F64, I16, I32, ScalarType, VectorType, component_count, integer_of
from kinfolk.ir.value import Operation

_WIDENINGS = (("bf16", "f32"), ("f16", "f32"), ("bf16", "f64"), ("f16", "f64"), ("f32", "f64"))
_NARROWINGS = (("f32", "bf16"), ("f32", "f16"), ("f64", "f32"))  # f64 to 16 bits in two steps would round twice


def _cast(opcode: str) -> Any:
    def lower(w: LlvmWriter, op: Operation) -> None:
        w.define(op.results[0], f"{opcode} {w.typed(op.operands[0])} to {w.type(op.results[0].type)}")

    return lower


@lane_op("core.sext", "x", rules.change_width(wider=True), _cast("sext"), attributes=(TO,))
def sext(m: Any, x: Any, *, to: ScalarType) -> Any:
    """A signed integer in more bits."""
    return m.sext(x, to)


@lane_op("core.zext", "x", rules.change_width(wider=True), _cast("zext"), attributes=(TO,))
def zext(m: Any, x: Any, *, to: ScalarType) -> Any:
    """An unsigned integer in more bits."""
    return m.zext(x, to)


@lane_op("core.trunc", "x", rules.change_width(wider=False), _cast("trunc"), attributes=(TO,))
def trunc(m: Any, x: Any, *, to: ScalarType) -> Any:
    """The low bits of an integer."""
    return m.trunc(x, to)


@lane_op("core.sitofp", "x", rules.change_kind("int", "float"), _cast("sitofp"), attributes=(TO,))
def sitofp(m: Any, x: Any, *, to: ScalarType) -> Any:
    """A signed integer as a float, rounded to nearest even."""
    return m.to_float(x, to)


def _lower_fptosi(w: LlvmWriter, op: Operation) -> None:
    source, target = op.operands[0], op.results[0]
    count = component_count(rules.data(source.type, "the operand"))
    prefix = f"v{count}" if isinstance(source.type, VectorType) else ""
    suffix = f"{prefix}i{target.scalar.bits}.{prefix}f{source.scalar.bits}"
    w.alias(target, w.call(w.type(target.type), f"llvm.fptosi.sat.{suffix}", w.typed(source)))


@lane_op("core.fptosi", "x", rules.change_kind("float", "int"), _lower_fptosi, attributes=(TO,))
def fptosi(m: Any, x: Any, *, to: ScalarType) -> Any:
    """Rounds toward zero, saturates, NaN gives 0."""
    return m.to_int(x, to)


def widen_float(m: Any, x: Any) -> Any:
    """Return bf16 or f16 bits as f32, exactly. A NaN keeps its payload; that of f16 is made quiet."""
    bits = m.zext(m.bits(x, I16), I32)
    if x.type.name == "bf16":
        return m.bits(bits << 16, F32)
    if x.type.name != "f16":
        raise IRError(f"{x.type} has no declared widening")
    sign, magnitude = (bits & 0x8000) << 16, (bits & 0x7FFF) << 13
    exponent = magnitude & 0x0F800000
    normal = m.bits(magnitude + 0x38000000, F32)
    quiet = m.where((magnitude & 0x007FFFFF).eq(0), m.const(0x7F800000, I32), m.const(0x7FC00000, I32))
    special = m.bits(magnitude | quiet, F32)
    denormal = m.to_float(m.lshr(magnitude, 13), F32) * 5.960464477539063e-08  # 2^-24
    value = m.where(exponent.eq(0x0F800000), special, m.where(exponent.eq(0), denormal, normal))
    return m.bits(m.bits(value, I32) | sign, F32)


def narrow_float(m: Any, x: Any, to: ScalarType) -> Any:
    """Return f32 as bf16 or f16 bits, rounded to nearest even; NaN stays a (quiet) NaN."""
    bits = m.bits(x, I32)
    if to.name == "bf16":
        rounded = m.lshr(bits + 0x7FFF + (m.lshr(bits, 16) & 1), 16)
        return m.bits(m.trunc(m.where(x.eq(x), rounded, m.lshr(bits, 16) | 0x40), I16), to)
    if to.name != "f16":
        raise IRError(f"{to} has no declared narrowing")
    sign, magnitude = m.lshr(bits & 0x80000000, 16), bits & 0x7FFFFFFF
    rounded = m.lshr(magnitude - 0x38000000 + 0x0FFF + (m.lshr(magnitude, 13) & 1), 13)
    small = m.bits(magnitude, F32) + 0.5  # at this exponent an ulp is 2^-24, f16's smallest denormal
    denormal = m.bits(small, I32) - 0x3F000000
    value = m.where(magnitude < 0x38800000, denormal, m.where(magnitude >= 0x477FF000, m.const(0x7C00, I32), rounded))
    value = m.where(x.eq(x), value, m.lshr(magnitude, 13) & 0x3FF | 0x7E00)
    return m.bits(m.trunc(value | sign, I16), to)


@lane_op("core.fpext", "x", rules.change_float(*_WIDENINGS), _cast("fpext"), attributes=(TO,))
def fpext(m: Any, x: Any, *, to: ScalarType) -> Any:
    """A narrow float in a wider one, exactly."""
    single = x if x.type == F32 else widen_float(m, x)
    return m.convert(single, F64) if to == F64 else single


@lane_op("core.fptrunc", "x", rules.change_float(*_NARROWINGS), _cast("fptrunc"), attributes=(TO,))
def fptrunc(m: Any, x: Any, *, to: ScalarType) -> Any:
    """Rounds once to nearest even; f64 narrows to f32 only."""
    return m.convert(x, F32) if x.type == F64 else narrow_float(m, x, to)


def _lower_bitcast(w: LlvmWriter, op: Operation) -> None:
    if w.type(op.operands[0].type) == w.type(op.results[0].type):
        w.alias(op.results[0], w.name(op.operands[0]))
    else:
        _cast("bitcast")(w, op)


@lane_op("core.bitcast", "x", rules.same_bits, _lower_bitcast, attributes=(TO,), components=True)
def bitcast(m: Any, x: list[Any], *, result: tuple[Any, ...], to: Any) -> list[Any]:
    """The same bits; a vector's component 0 holds the lowest bits."""
    target = result[0]
    element: ScalarType = target if isinstance(target, ScalarType) else target.element
    if x[0].type.bits == element.bits:
        return [m.bits(component, element) for component in x]
    if x[0].type.bits < element.bits:
        return _join(m, x, element)
    return _split(m, x, element)


def _join(m: Any, x: list[Any], element: ScalarType) -> list[Any]:
    source, target = x[0].type, integer_of(element.bits)
    ratio = element.bits // source.bits
    joined: list[Any] = []
    for start in range(0, len(x), ratio):
        whole = m.zext(m.bits(x[start], integer_of(source.bits)), target)
        for part in range(1, ratio):
            whole = whole | (m.zext(m.bits(x[start + part], integer_of(source.bits)), target) << (part * source.bits))
        joined.append(m.bits(whole, element))
    return joined


def _split(m: Any, x: list[Any], element: ScalarType) -> list[Any]:
    source, target = integer_of(x[0].type.bits), integer_of(element.bits)
    ratio = source.bits // target.bits
    return [
        m.bits(m.trunc(m.lshr(m.bits(component, source), part * target.bits), target), element)
        for component in x
        for part in range(ratio)
    ]
