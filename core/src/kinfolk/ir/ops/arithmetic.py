"""Arithmetic on scalars and vectors: integers wrap unless `nsw`, floats round to nearest even, never contracted."""

from __future__ import annotations

from typing import Any

from kinfolk.ir import rules
from kinfolk.ir.op import AttributeDef, LlvmWriter
from kinfolk.ir.ops.declare import BY_TARGET, instruction, intrinsic, lane_op
from kinfolk.ir.types import F32, I32, integer_of
from kinfolk.ir.value import Operation

NSW = AttributeDef("nsw", "bool", default=False)
"""The signed result fits: a claim that the engines check."""


def _wrapping(opcode: str) -> Any:
    def lower(w: LlvmWriter, op: Operation) -> None:
        instruction(f"{opcode} nsw" if op.attributes["nsw"] else opcode)(w, op)

    return lower


@lane_op("core.add", "a b", rules.same_number, _wrapping("add"), attributes=(NSW,))
def add(m: Any, a: Any, b: Any, *, nsw: bool) -> Any:
    """The sum of integers, modulo 2^bits; with `nsw` it is claimed to fit as a signed one."""
    r = a + b
    if nsw:
        m.require(((a ^ r) & (b ^ r)) >= 0, "signed overflow in add nsw")
    return r


@lane_op("core.sub", "a b", rules.same_number, _wrapping("sub"), attributes=(NSW,))
def sub(m: Any, a: Any, b: Any, *, nsw: bool) -> Any:
    """The difference of integers, modulo 2^bits; `nsw` as in `add`."""
    r = a - b
    if nsw:
        m.require(((a ^ b) & (a ^ r)) >= 0, "signed overflow in sub nsw")
    return r


@lane_op("core.mul", "a b", rules.same_number, _wrapping("mul"), attributes=(NSW,))
def mul(m: Any, a: Any, b: Any, *, nsw: bool) -> Any:
    """The product of integers, modulo 2^bits; `nsw` as in `add`."""
    if nsw:
        m.require(m.multiply_overflows(a, b) ^ 1, "signed overflow in mul nsw")
    return a * b


@lane_op("core.udiv", "a b", rules.same_number, instruction("udiv"))
def udiv(m: Any, a: Any, b: Any) -> Any:
    """The quotient of unsigned integers, rounded down; b is claimed not to be 0."""
    m.require(b.ne(0), "division by zero")
    return m.udiv(a, m.where(b.eq(0), m.const(1, b.type), b))


@lane_op("core.urem", "a b", rules.same_number, instruction("urem"))
def urem(m: Any, a: Any, b: Any) -> Any:
    """The remainder of `udiv`."""
    m.require(b.ne(0), "division by zero")
    return a - m.udiv(a, m.where(b.eq(0), m.const(1, b.type), b)) * b


def _signed_quotient(m: Any, a: Any, b: Any) -> Any:
    """The quotient, total: b = 0 and INT_MIN / -1 are reported and divided by 1 instead."""
    lowest = m.const(-(1 << (a.type.bits - 1)), a.type)
    overflow = a.eq(lowest) & b.eq(-1)
    m.require(b.ne(0), "division by zero")
    m.require(overflow ^ 1, "signed overflow in division")
    return m.sdiv(a, m.where(b.eq(0) | overflow, m.const(1, b.type), b))


@lane_op("core.sdiv", "a b", rules.same_number, instruction("sdiv"))
def sdiv(m: Any, a: Any, b: Any) -> Any:
    """The quotient of signed integers, rounded toward zero; b is claimed not to be 0, and the result to fit."""
    return _signed_quotient(m, a, b)


@lane_op("core.srem", "a b", rules.same_number, instruction("srem"))
def srem(m: Any, a: Any, b: Any) -> Any:
    """The remainder of `sdiv`, with the sign of a."""
    return a - _signed_quotient(m, a, b) * b


@lane_op("core.and", "a b", rules.same_integer, instruction("and"))
def and_(m: Any, a: Any, b: Any) -> Any:
    """Bitwise and."""
    return a & b


@lane_op("core.or", "a b", rules.same_integer, instruction("or"))
def or_(m: Any, a: Any, b: Any) -> Any:
    """Bitwise or."""
    return a | b


@lane_op("core.xor", "a b", rules.same_integer, instruction("xor"))
def xor(m: Any, a: Any, b: Any) -> Any:
    """Bitwise exclusive or."""
    return a ^ b


def _in_range(m: Any, a: Any, count: Any) -> Any:
    """The shift count, total: a count past the width is reported and taken modulo the width."""
    m.require(m.unsigned_less(count, a.type.bits), f"shift count of {a.type.bits} or more")
    return count & (a.type.bits - 1)


@lane_op("core.shl", "a count", rules.same_number, instruction("shl"))
def shl(m: Any, a: Any, count: Any) -> Any:
    """a shifted left; the count is claimed to be below the width."""
    return a << _in_range(m, a, count)


@lane_op("core.lshr", "a count", rules.same_number, instruction("lshr"))
def lshr(m: Any, a: Any, count: Any) -> Any:
    """a shifted right with zeros; the count as in `shl`."""
    return m.lshr(a, _in_range(m, a, count))


@lane_op("core.ashr", "a count", rules.same_number, instruction("ashr"))
def ashr(m: Any, a: Any, count: Any) -> Any:
    """a shifted right with its sign; the count as in `shl`."""
    return m.ashr(a, _in_range(m, a, count))


@lane_op("core.smin", "a b", rules.same_number, intrinsic("smin"))
def smin(m: Any, a: Any, b: Any) -> Any:
    """The smaller of signed integers."""
    return m.where(a < b, a, b)


@lane_op("core.smax", "a b", rules.same_number, intrinsic("smax"))
def smax(m: Any, a: Any, b: Any) -> Any:
    """The larger of signed integers."""
    return m.where(a > b, a, b)


@lane_op("core.umin", "a b", rules.same_number, intrinsic("umin"))
def umin(m: Any, a: Any, b: Any) -> Any:
    """The smaller of unsigned integers."""
    return m.where(m.unsigned_less(a, b), a, b)


@lane_op("core.umax", "a b", rules.same_number, intrinsic("umax"))
def umax(m: Any, a: Any, b: Any) -> Any:
    """The larger of unsigned integers."""
    return m.where(m.unsigned_less(a, b), b, a)


_INTEGER_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_FLOAT_PREDICATES = ("oeq", "une", "olt", "ole", "ogt", "oge", "uno", "ord")


def _compare(opcode: str) -> Any:
    def lower(w: LlvmWriter, op: Operation) -> None:
        instruction(f"{opcode} {op.attributes['predicate']}")(w, op)

    return lower


@lane_op(
    "core.icmp",
    "a b",
    rules.compare_integer,
    _compare("icmp"),
    attributes=(AttributeDef("predicate", "str", choices=_INTEGER_PREDICATES),),
)
def icmp(m: Any, a: Any, b: Any, *, predicate: str) -> Any:
    """Compare integers by a predicate of LLVM: eq, ne, slt, sle, sgt, sge, ult, ule, ugt, uge."""
    match predicate:
        case "eq":
            return a.eq(b)
        case "ne":
            return a.ne(b)
        case "slt":
            return a < b
        case "sle":
            return a <= b
        case "sgt":
            return a > b
        case "sge":
            return a >= b
        case "ult":
            return m.unsigned_less(a, b)
        case "uge":
            return m.unsigned_less(a, b) ^ 1
        case "ugt":
            return m.unsigned_less(b, a)
        case _:
            return m.unsigned_less(b, a) ^ 1


@lane_op(
    "core.fcmp",
    "a b",
    rules.compare_float,
    _compare("fcmp"),
    attributes=(AttributeDef("predicate", "str", choices=_FLOAT_PREDICATES),),
)
def fcmp(m: Any, a: Any, b: Any, *, predicate: str) -> Any:
    """Compare floats by a predicate of LLVM, ordered but for une."""
    match predicate:
        case "oeq":
            return a.eq(b)
        case "une":
            return a.eq(b) ^ 1
        case "olt":
            return a < b
        case "ole":
            return a <= b
        case "ogt":
            return a > b
        case "oge":
            return a >= b
        case "ord":
            return a.eq(a) & b.eq(b)
        case _:
            return (a.eq(a) & b.eq(b)) ^ 1


def _lower_select(w: LlvmWriter, op: Operation) -> None:
    condition, a, b = op.operands
    w.define(op.results[0], f"select {w.typed(condition)}, {w.typed(a)}, {w.typed(b)}")


@lane_op("core.select", "condition a b", rules.select, _lower_select)
def select(m: Any, condition: Any, a: Any, b: Any) -> Any:
    """a where the condition holds, else b, lane by lane."""
    return m.where(condition, a, b)


@lane_op("core.fadd", "a b", rules.same_float, instruction("fadd"))
def fadd(m: Any, a: Any, b: Any) -> Any:
    """The sum of floats."""
    return a + b


@lane_op("core.fsub", "a b", rules.same_float, instruction("fsub"))
def fsub(m: Any, a: Any, b: Any) -> Any:
    """The difference of floats."""
    return a - b


@lane_op("core.fmul", "a b", rules.same_float, instruction("fmul"))
def fmul(m: Any, a: Any, b: Any) -> Any:
    """The product of floats."""
    return a * b


@lane_op("core.fdiv", "a b", rules.same_float, instruction("fdiv"))
def fdiv(m: Any, a: Any, b: Any) -> Any:
    """Correctly rounded: many instructions on most hardware; see `rcp`."""
    return a / b


@lane_op("core.fneg", "a", rules.same_float, instruction("fneg"))
def fneg(m: Any, a: Any) -> Any:
    """The float with the other sign."""
    as_int = integer_of(a.type.bits)
    return m.bits(m.bits(a, as_int) ^ (1 << (a.type.bits - 1)), a.type)


@lane_op("core.fabs", "a", rules.same_float, intrinsic("fabs"))
def fabs(m: Any, a: Any) -> Any:
    """The float without its sign."""
    as_int = integer_of(a.type.bits)
    return m.bits(m.bits(a, as_int) & ((1 << (a.type.bits - 1)) - 1), a.type)


@lane_op("core.fma", "a b c", rules.same_f32, intrinsic("fma"))
def fma(m: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    return m.fma(a, b, c)


@lane_op("core.fmax", "a b", rules.same_float, intrinsic("maxnum", flags="nnan"))
def fmax(m: Any, a: Any, b: Any) -> Any:
    """The larger of two numbers; neither may be NaN, so that no operand needs to be made canonical first."""
    m.require(a.eq(a) & b.eq(b), "NaN in fmax; an input may hold a NaN or an infinity, or a sum left f32")
    return m.where(a > b, a, b)


@lane_op("core.fmin", "a b", rules.same_float, intrinsic("minnum", flags="nnan"))
def fmin(m: Any, a: Any, b: Any) -> Any:
    """The smaller of two numbers; neither may be NaN."""
    m.require(a.eq(a) & b.eq(b), "NaN in fmin; an input may hold a NaN or an infinity, or a sum left f32")
    return m.where(a < b, a, b)


@lane_op("core.rint", "a", rules.same_float, intrinsic("rint"))
def rint(m: Any, a: Any) -> Any:
    """The nearest integer as a float, ties to even."""
    return m.rint(a)


@lane_op("core.sqrt", "a", rules.same_f32, intrinsic("sqrt"), issue="transcendental")
def sqrt(m: Any, a: Any) -> Any:
    """The square root, correctly rounded."""
    return m.sqrt(a)


# Coefficients of 2^f on [-1/2, 1/2] by ascending power: the Taylor series of exp(f ln 2), good to 1.2e-7 relative.
_EXP2 = (
    1.0,
    0.6931471805599453,
    0.24022650695910072,
    0.05550410866482158,
    0.009618129107628477,
    0.0013333558146428443,
    0.00015403530393381606,
)


@lane_op("core.exp2", "x", rules.same_f32, BY_TARGET, issue="transcendental")
def exp2(m: Any, x: Any) -> Any:
    """2 to the x. Results below 2^-126 are 0; hardware is within 1 ulp of the true value elsewhere."""
    inside = m.where(x >= -126.0, m.where(x < 128.0, x, m.const(0.0, F32)), m.const(0.0, F32))
    whole = m.rint(inside)
    fraction = inside - whole
    power = m.const(_EXP2[-1], F32)
    for coefficient in reversed(_EXP2[:-1]):
        power = power * fraction + coefficient
    scaled = m.bits(m.bits(power, I32) + (m.to_int(whole, I32) << 23), F32)
    scaled = m.where(whole.eq(128.0), power * 1.7014118346046923e38 * 2.0, scaled)
    result = m.where(x >= 128.0, m.const(float("inf"), F32), m.where(x >= -126.0, scaled, m.const(0.0, F32)))
    return m.where(x.eq(x), result, x)


# log2((1 + s) / (1 - s)) = 2 / ln 2 * (s + s^3 / 3 + s^5 / 5 + ...), |s| < 0.1716 for a mantissa in [1/sqrt 2, sqrt 2).
_LOG2 = (2.8853900817779268, 0.9617966939259756, 0.5770780163555854, 0.4121985831111324, 0.3205988979753252)


@lane_op("core.log2", "x", rules.same_f32, BY_TARGET, issue="transcendental")
def log2(m: Any, x: Any) -> Any:
    """The base-2 logarithm. 0 gives -inf, negatives NaN, denormals count as 0. Hardware is within 1e-6 or 1 ulp."""
    bits = m.bits(x, I32)
    high = (bits & 0x7FFFFF) >= 0x3504F3  # mantissa at or above sqrt 2: halve it
    exponent = m.lshr(bits, 23) - m.where(high, m.const(126, I32), m.const(127, I32))
    mantissa = m.bits((bits & 0x7FFFFF) | m.where(high, m.const(0x3F000000, I32), m.const(0x3F800000, I32)), F32)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square = s * s
    series = m.const(_LOG2[-1], F32)
    for coefficient in reversed(_LOG2[:-1]):
        series = series * square + coefficient
    result = m.to_float(exponent, F32) + series * s
    result = m.where(m.unsigned_less(bits & 0x7FFFFFFF, 0x800000), m.const(float("-inf"), F32), result)
    result = m.where(x < -1.1754942e-38, m.const(float("nan"), F32), result)
    return m.where(x.eq(float("inf")), x, m.where(x.eq(x), result, x))


@lane_op("core.rcp", "x", rules.same_f32, BY_TARGET, issue="transcendental")
def rcp(m: Any, x: Any) -> Any:
    """1 / x; hardware is within 1 ulp. A denormal x counts as 0 of its sign, and so does a denormal result."""
    return _flushed(m, m.const(1.0, F32) / _flushed(m, x))


def _flushed(m: Any, x: Any) -> Any:
    """Return x, with 0 of the same sign for a denormal."""
    bits = m.bits(x, I32)
    return m.bits(m.where((bits & 0x7FFFFFFF) < 0x800000, bits & 0x80000000, bits), F32)
