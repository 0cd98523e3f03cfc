"""The lane algebra written as LLVM IR: a vector of a wave's lanes per component.

A value is `<wave x T>` of storage bits: i1 as `<wave x i1>`, f32 and f64 as floats, narrow floats as integers. Every
step is total: what LLVM leaves undefined (a shift past the width, a division by zero) gives what `NumpyAlgebra` gives,
or some number where the algebra asks for nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from kinfolk.errors import InternalError
from kinfolk.ir.types import F32, F64, I1, I32, ScalarType


def storage_type(type_: ScalarType) -> str:
    """Return the LLVM type of one lane's storage bits."""
    return {"f32": "float", "f64": "double"}.get(type_.name, f"i{type_.bits}")


def constant_text(value: int | float, type_: ScalarType) -> str:
    """Return a number as an LLVM constant in the storage of `type_`; integers wrap modulo the width."""
    if type_ in (F32, F64):
        rounded = struct.unpack("<f", _f32_bytes(float(value)))[0] if type_ == F32 else float(value)
        return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
    if type_ == I1:
        return "true" if int(value) & 1 else "false"
    return str(int(value) & ((1 << type_.bits) - 1))


def _f32_bytes(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:  # rounds to infinity
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


class LlvmLane:
    """A `Lane` known by an LLVM name. `origin` is the operand component whose storage bits it is, if it is one."""

    __slots__ = ("algebra", "name", "origin", "type")

    def __init__(self, algebra: LlvmAlgebra, type_: ScalarType, name: str, origin: Any = None) -> None:
        self.algebra = algebra
        self.type = type_
        self.name = name
        self.origin = origin

    def __add__(self, other: Any) -> LlvmLane:
        return self.algebra.operate("or" if self.type == I1 else "add", "fadd", self, other)

    def __sub__(self, other: Any) -> LlvmLane:
        return self.algebra.operate("sub", "fsub", self, other)

    def __mul__(self, other: Any) -> LlvmLane:
        return self.algebra.operate("mul", "fmul", self, other)

    def __truediv__(self, other: Any) -> LlvmLane:
        return self.algebra.operate("", "fdiv", self, other)

    def __and__(self, other: Any) -> LlvmLane:
        return self.algebra.operate("and", "", self, other)

    def __or__(self, other: Any) -> LlvmLane:
        return self.algebra.operate("or", "", self, other)

    def __xor__(self, other: Any) -> LlvmLane:
        return self.algebra.operate("xor", "", self, other)

    def __lshift__(self, other: Any) -> LlvmLane:
        return self.algebra.shift("shl", self, other)

    def __lt__(self, other: Any) -> LlvmLane:
        return self.algebra.compare("lt", self, other)

    def __le__(self, other: Any) -> LlvmLane:
        return self.algebra.compare("le", self, other)

    def __gt__(self, other: Any) -> LlvmLane:
        return self.algebra.compare("gt", self, other)

    def __ge__(self, other: Any) -> LlvmLane:
        return self.algebra.compare("ge", self, other)

    def eq(self, other: Any) -> LlvmLane:
        """Equality; for floats ordered."""
        return self.algebra.compare("eq", self, other)

    def ne(self, other: Any) -> LlvmLane:
        """The negation of `eq`."""
        return self.algebra.compare("ne", self, other)


class LlvmAlgebra:
    """Writes lane functions for waves of `wave_size` lanes.

    `let(text)` writes an instruction and returns the name of its result, `declare(text)` declares a function once.
    `place(name)` gives the name of `lane_id`, `wave_id`, `thread_id` or `block_id0` to `block_id2` as `<wave x i32>`.
    Failed requirements collect in `violations`, `<wave x i1>` of lanes whether active or not; `reasons` says of what.
    """

    def __init__(
        self,
        wave_size: int,
        let: Callable[[str], str],
        declare: Callable[[str], None],
        place: Callable[[str], str],
    ) -> None:
        self.wave_size = wave_size
        self.let, self.declare, self.place = let, declare, place
        self.violations: list[str] = []
        self.reasons: list[str] = []

    def vector(self, type_: ScalarType) -> str:
        """Return the LLVM type of a value on all lanes."""
        return f"<{self.wave_size} x {storage_type(type_)}>"

    def lane(self, type_: ScalarType, name: str, origin: Any = None) -> LlvmLane:
        """Return the lane known by `name`."""
        return LlvmLane(self, type_, name, origin)

    def const(self, value: int | float, type_: ScalarType) -> LlvmLane:
        return LlvmLane(self, type_, f"splat ({storage_type(type_)} {constant_text(value, type_)})")

    def _other(self, other: Any, like: LlvmLane) -> LlvmLane:
        return other if isinstance(other, LlvmLane) else self.const(other, like.type)

    def _made(self, type_: ScalarType, text: str) -> LlvmLane:
        return LlvmLane(self, type_, self.let(text))

    def operate(self, integer: str, floating: str, a: LlvmLane, other: Any) -> LlvmLane:
        """Write a two-operand instruction: `integer` on bits, `floating` on f32 and f64."""
        opcode = floating if a.type in (F32, F64) else integer
        if not opcode:
            raise InternalError(f"the lane algebra has no such operator on {a.type}")
        return self._made(a.type, f"{opcode} {self.vector(a.type)} {a.name}, {self._other(other, a).name}")

    def compare(self, predicate: str, a: LlvmLane, other: Any) -> LlvmLane:
        """Write a comparison: signed on integers, ordered on floats but for `ne`."""
        b = self._other(other, a)
        if a.type in (F32, F64):
            opcode = f"fcmp {'une' if predicate == 'ne' else 'o' + predicate}"
        else:
            signed = "u" if a.type == I1 else "s"
            opcode = f"icmp {predicate if predicate in ('eq', 'ne') else signed + predicate}"
        return self._made(I1, f"{opcode} {self.vector(a.type)} {a.name}, {b.name}")

    def shift(self, opcode: str, a: LlvmLane, count: Any) -> LlvmLane:
        """Write a shift; past the width nothing is left, or copies of the sign."""
        type_ = self.vector(a.type)
        if not isinstance(count, LlvmLane):
            if not 0 <= count < a.type.bits:
                raise InternalError(f"a lane function shifts {a.type} by {count}")
            return self._made(a.type, f"{opcode} {type_} {a.name}, {self.const(count, a.type).name}")
        last = self.const(a.type.bits - 1, a.type).name
        inside = self.let(f"icmp ule {type_} {count.name}, {last}")
        limited = self.let(f"select <{self.wave_size} x i1> {inside}, {type_} {count.name}, {type_} {last}")
        shifted = self._made(a.type, f"{opcode} {type_} {a.name}, {limited}")
        if opcode == "ashr":
            return shifted
        return self.where(self.lane(I1, inside), shifted, self.const(0, a.type))

    def where(self, condition: LlvmLane, a: LlvmLane, b: LlvmLane) -> LlvmLane:
        type_ = self.vector(a.type)
        text = f"select <{self.wave_size} x i1> {condition.name}, {type_} {a.name}, {type_} {b.name}"
        return self._made(a.type, text)

    def _convert(self, opcode: str, x: LlvmLane, type_: ScalarType) -> LlvmLane:
        return self._made(type_, f"{opcode} {self.vector(x.type)} {x.name} to {self.vector(type_)}")

    def bits(self, x: LlvmLane, type_: ScalarType) -> LlvmLane:
        if storage_type(x.type) == storage_type(type_):
            return LlvmLane(self, type_, x.name, x.origin)
        made = self._convert("bitcast", x, type_)
        made.origin = x.origin
        return made

    def lshr(self, x: LlvmLane, count: Any) -> LlvmLane:
        return self.shift("lshr", x, count)

    def ashr(self, x: LlvmLane, count: Any) -> LlvmLane:
        return self.shift("ashr", x, count)

    def trunc(self, x: LlvmLane, type_: ScalarType) -> LlvmLane:
        return self._resized("trunc", x, type_)

    def zext(self, x: LlvmLane, type_: ScalarType) -> LlvmLane:
        return self._resized("zext", x, type_)

    def sext(self, x: LlvmLane, type_: ScalarType) -> LlvmLane:
        return self._resized("sext", x, type_)

    def _resized(self, opcode: str, x: LlvmLane, type_: ScalarType) -> LlvmLane:
        return self.bits(x, type_) if x.type.bits == type_.bits else self._convert(opcode, x, type_)

    def unsigned_less(self, a: LlvmLane, b: Any) -> LlvmLane:
        return self._made(I1, f"icmp ult {self.vector(a.type)} {a.name}, {self._other(b, a).name}")

    def sdiv(self, a: LlvmLane, b: LlvmLane) -> LlvmLane:
        zero, minus = b.eq(0), b.eq(-1) & a.eq(1 << (a.type.bits - 1))
        safe = self.where(zero | minus, self.const(1, b.type), b)  # the processor would stop the program
        return self._made(a.type, f"sdiv {self.vector(a.type)} {a.name}, {safe.name}")

    def udiv(self, a: LlvmLane, b: LlvmLane) -> LlvmLane:
        safe = self.where(b.eq(0), self.const(1, b.type), b)
        return self._made(a.type, f"udiv {self.vector(a.type)} {a.name}, {safe.name}")

    def multiply_overflows(self, a: LlvmLane, b: LlvmLane) -> LlvmLane:
        type_, lanes = self.vector(a.type), f"<{self.wave_size} x i1>"
        function = f"@llvm.smul.with.overflow.v{self.wave_size}i{a.type.bits}"
        self.declare(f"declare {{{type_}, {lanes}}} {function}({type_}, {type_})")
        both = self.let(f"call {{{type_}, {lanes}}} {function}({type_} {a.name}, {type_} {b.name})")
        return self._made(I1, f"extractvalue {{{type_}, {lanes}}} {both}, 1")

    def rint(self, x: LlvmLane) -> LlvmLane:
        return self._float_call("rint", x)

    def fma(self, a: LlvmLane, b: LlvmLane, c: LlvmLane) -> LlvmLane:
        return self._float_call("fma", a, b, c)

    def sqrt(self, x: LlvmLane) -> LlvmLane:
        return self._float_call("sqrt", x)

    def _float_call(self, function: str, *arguments: LlvmLane) -> LlvmLane:
        type_ = self.vector(arguments[0].type)
        name = f"@llvm.{function}.v{self.wave_size}{arguments[0].type.name}"
        self.declare(f"declare {type_} {name}({', '.join([type_] * len(arguments))})")
        given = ", ".join(f"{type_} {argument.name}" for argument in arguments)
        return self._made(arguments[0].type, f"call {type_} {name}({given})")

    def to_int(self, x: LlvmLane, type_: ScalarType) -> LlvmLane:
        source, target = self.vector(x.type), self.vector(type_)
        name = f"@llvm.fptosi.sat.v{self.wave_size}i{type_.bits}.v{self.wave_size}{x.type.name}"
        self.declare(f"declare {target} {name}({source})")
        return self._made(type_, f"call {target} {name}({source} {x.name})")

    def to_float(self, x: LlvmLane, type_: ScalarType) -> LlvmLane:
        return self._convert("sitofp", x, type_)

    def convert(self, x: LlvmLane, type_: ScalarType) -> LlvmLane:
        if x.type == type_:
            return x
        return self._convert("fpext" if type_.bits > x.type.bits else "fptrunc", x, type_)

    def require(self, condition: LlvmLane, why: str) -> None:
        self.violations.append(self.let(f"xor <{self.wave_size} x i1> {condition.name}, splat (i1 true)"))
        self.reasons.append(why)

    def lane_id(self) -> LlvmLane:
        return self.lane(I32, self.place("lane_id"))

    def wave_id(self) -> LlvmLane:
        return self.lane(I32, self.place("wave_id"))

    def thread_id(self) -> LlvmLane:
        return self.lane(I32, self.place("thread_id"))

    def block_id(self, axis: int) -> LlvmLane:
        return self.lane(I32, self.place(f"block_id{axis}"))


__all__ = ["LlvmAlgebra", "LlvmLane", "constant_text", "storage_type"]
