"""Operands of instructions: what a number in a source or destination field names, and how to read it as a type."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import attrs
import numpy as np

from kinfolk.ir.numpy_lanes import NumpyAlgebra, NumpyLane
from kinfolk.ir.types import F32, I1, I32, ScalarType
from kinfolk_amdgcn.isa.declare import TYPES
from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.waves import CONDITION, EXEC, LANES, SCALAR_BIT, SHARED_APERTURE, VCC, Array, Waves

Read = Callable[[Waves], NumpyLane]
Write = Callable[[Waves, Array], None]

LITERAL, FIRST_VECTOR = 255, 256
ALGEBRA: Final = NumpyAlgebra.of_lanes(LANES)
"""Evaluates the meaning of instructions, over all lanes of all waves that run one."""
EXEC_MASK: Final = 3 << SCALAR_BIT + EXEC
_FLOATS: Final = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0}
_INVERSE_TWO_PI: Final = {32: 0x3E22F983, 16: 0x3118, 64: 0x3FC45F306DC9C882}
APERTURES: Final = {235: SHARED_APERTURE, 237: SHARED_APERTURE + 1}
"""Operands that are where flat addresses of workgroup memory, and of private memory, begin: their upper halves."""
SCC_SOURCE, VCCZ, EXECZ = 253, 251, 252
_READABLE: Final = frozenset((*range(102), VCC, VCC + 1, 124, EXEC, EXEC + 1))
"""Scalar registers that code may name: 102 of its own, VCC, M0, EXEC."""


@attrs.frozen
class Source:
    """How an operand is read, and a mask of the registers that it is."""

    read: Read
    registers: int


@attrs.frozen
class Target:
    """How a result is written, and a mask of the registers that it is."""

    write: Write
    registers: int


@attrs.frozen
class RegisterFile:
    """How many vector registers a wave has; those for accumulation come after the others as rows."""

    vectors: int
    accumulators: int

    @property
    def rows(self) -> int:
        """Rows of all of them."""
        return self.vectors + self.accumulators

    def row(self, number: int, accumulator: bool, width: int = 1) -> int:
        """Return the row of the first of `width` registers; stop where the wave has not so many."""
        have = self.accumulators if accumulator else self.vectors
        if number + width > have:
            name = "a" if accumulator else "v"
            raise Stop("unsupported", f"names {name}{number + width - 1}, the kernel has {have} such registers")
        return (self.vectors if accumulator else 0) + number


def rows_mask(row: int, width: int = 1) -> int:
    """Return the mask of vector registers."""
    return ((1 << width) - 1) << row


def scalar_mask(register: int, width: int = 1) -> int:
    """Return the mask of scalar registers."""
    return ((1 << width) - 1) << SCALAR_BIT + register


def constant(code: int, type_: ScalarType, literal: int | None) -> int | None:
    """Return the bits of an operand that is a constant; None for one that is a register."""
    bits = max(type_.bits, 16)
    if code == LITERAL:
        if literal is None:
            raise Stop("unsupported", "names a literal that its encoding has not")
        if type_.kind == "float" and bits == 64:
            return literal << 32
        return literal & (1 << bits) - 1  # of 64 bits the upper half is 0
    if 128 <= code <= 192:
        return code - 128
    if 193 <= code <= 208:
        return (192 - code) & (1 << bits) - 1
    if code in _FLOATS:
        form = {64: "<d", 16: "<e"}.get(bits, "<f")
        return int.from_bytes(struct.pack(form, _FLOATS[code]), "little")
    if code == 248:
        return _INVERSE_TWO_PI[bits]
    return None


def _lane_of(bits: int, type_: ScalarType) -> NumpyLane:
    if type_.name in ("f32", "f64"):
        form, kind = ("u4", np.float32) if type_.bits == 32 else ("u8", np.float64)
        return NumpyLane(type_, np.array(bits, form).view(kind))
    return NumpyLane(type_, np.array(bits, f"u{type_.bits // 8}"))


def _checked(register: int, width: int) -> None:
    if any(number not in _READABLE for number in range(register, register + width)):
        raise Stop("unsupported", f"names scalar register {register}, which is not modelled")


def vector_source(
    code: int, name: str, registers: RegisterFile, literal: int | None = None, accumulator: bool = False
) -> Source:
    """Return how an operand of a vector instruction is read: as [waves, lanes], or equal on all lanes."""
    type_ = TYPES[name]
    if name == "mask":
        _checked(code, 2)
        return Source(lambda w: NumpyLane(I1, w.lane_mask(code)), scalar_mask(code, 2))
    if code >= FIRST_VECTOR:
        width = max(1, type_.bits // 32)
        row = registers.row(code - FIRST_VECTOR, accumulator, width)
        return Source(vector_reader(row, type_), rows_mask(row, width))
    bits = constant(code, type_, literal)
    if bits is not None:
        held = _lane_of(bits, type_)
        return Source(lambda w: held, 0)
    scalar = scalar_source(code, name, literal)

    def read(w: Waves) -> NumpyLane:
        value = scalar.read(w)
        return NumpyLane(value.type, value.data[:, None])

    return Source(read, scalar.registers)


def vector_reader(row: int, type_: ScalarType) -> Read:
    """Return what reads one vector register, or a pair, as a type."""
    if type_ == F32:
        return lambda w: NumpyLane(F32, w.f[row])
    if type_ == I32:
        return lambda w: NumpyLane(I32, w.v[row])
    if type_.bits == 64:
        kind = np.float64 if type_.kind == "float" else np.uint64

        def pair(w: Waves) -> NumpyLane:
            whole = w.v[row].astype(np.uint64) | w.v[row + 1].astype(np.uint64) << np.uint64(32)
            return NumpyLane(type_, whole.view(kind))

        return pair
    return lambda w: NumpyLane(type_, w.v[row].astype(np.uint16))


def scalar_source(code: int, name: str, literal: int | None = None) -> Source:
    """Return how an operand that is equal on all lanes is read: as [waves]."""
    type_ = TYPES[name]
    if name == "scc" or code == SCC_SOURCE:
        as_is = name == "scc"
        return Source(
            lambda w: NumpyLane(I1, w.scc) if as_is else NumpyLane(type_, w.scc.astype(f"u{type_.bits // 8}")),
            CONDITION,
        )
    bits = constant(code, type_, literal)
    if bits is not None:
        held = _lane_of(bits, type_)
        return Source(lambda w: held, 0)
    if code in (VCCZ, EXECZ):
        register = VCC if code == VCCZ else EXEC
        return Source(
            lambda w: NumpyLane(I32, (w.s64[:, register // 2] == 0).astype(np.uint32)), scalar_mask(register, 2)
        )
    if code in APERTURES and type_.bits == 64:
        aperture = _lane_of(APERTURES[code] << 32, type_)
        return Source(lambda w: aperture, 0)
    if type_.bits == 64:
        _checked(code, 2)
        if code % 2:
            raise Stop("unsupported", f"names a pair of scalar registers that begins at {code}, which is odd")
        kind = np.float64 if type_.kind == "float" else np.uint64
        return Source(lambda w: NumpyLane(type_, w.s64[:, code // 2].view(kind)), scalar_mask(code, 2))
    _checked(code, 1)
    if type_ == F32:
        return Source(lambda w: NumpyLane(F32, w.s[:, code].view(np.float32)), scalar_mask(code))
    if type_.bits == 16:
        return Source(lambda w: NumpyLane(type_, w.s[:, code].astype(np.uint16)), scalar_mask(code))
    return Source(lambda w: NumpyLane(I32, w.s[:, code]), scalar_mask(code))


def vector_target(row: int, name: str) -> Target:
    """Return how the result of lanes is written, from bits of its type or a float."""
    type_ = TYPES[name]
    if type_.bits == 64:

        def write_pair(w: Waves, data: Array) -> None:
            bits = data.view(np.uint64)
            low, high = bits.astype(np.uint32), (bits >> np.uint64(32)).astype(np.uint32)
            w.put(row, low)
            w.put(row + 1, high)

        return Target(write_pair, rows_mask(row, 2))
    if type_ == F32:
        return Target(lambda w, data: w.put(row, data.view(np.uint32)), rows_mask(row))
    if type_.bits == 16:  # the upper half of the register becomes 0
        return Target(lambda w, data: w.put(row, data.astype(np.uint32)), rows_mask(row))
    return Target(lambda w, data: w.put(row, data), rows_mask(row))


def half_target(row: int, half: int) -> Target:
    """Return how a result of 16 bits is written to a half of a register, of which the other stays.

    A register of which a half was written counts as written: compilers leave the other half as it is.
    """
    shift, kept = np.uint32(16 * half), np.uint32(0xFFFF0000 >> 16 * half)
    return Target(lambda w, data: w.put(row, data.astype(np.uint32) << shift | w.v[row] & kept), rows_mask(row))


def mask_target(register: int) -> Target:
    """Return how a mask of lanes is written to a pair of scalar registers."""
    _checked(register, 2)
    return Target(lambda w, data: w.put_mask(register, data), scalar_mask(register, 2))


def scalar_target(register: int, name: str) -> Target:
    """Return how a scalar result is written; a write of EXEC changes which lanes live."""
    type_ = TYPES[name]
    if name == "scc":

        def condition(w: Waves, data: Array) -> None:
            w.scc = np.broadcast_to(data, w.scc.shape).copy()

        return Target(condition, CONDITION)
    width = type_.bits // 32
    _checked(register, width)
    is_exec = register in (EXEC, EXEC + 1)

    def write(w: Waves, data: Array) -> None:
        if width == 2:
            w.s64[:, register // 2] = data.view(np.uint64)
        else:
            w.s[:, register] = data.view(np.uint32)
        if is_exec:
            w.exec_written()

    return Target(write, scalar_mask(register, width))


def with_modifiers(source: Source, name: str, negate: bool, absolute: bool, selects: bool = False) -> Source:
    """Return a float operand with its sign changed or taken away; stop for modifiers of other types.

    What only `selects` an operand takes that of 32 bits for a float.
    """
    if not (negate or absolute):
        return source
    read = source.read
    if name in ("f16", "bf16") or (name == "i32" and selects):
        bits, kind = (32, np.uint32) if name == "i32" else (16, np.uint16)
        sign = 1 << bits - 1
        kept, flipped = kind(sign - 1 if absolute else 2 * sign - 1), kind(sign if negate else 0)

        def narrow(w: Waves) -> NumpyLane:
            value = read(w)
            return NumpyLane(value.type, value.data & kept ^ flipped)

        return Source(narrow, source.registers)
    if name not in ("f32", "f64"):
        raise Stop("unsupported", f"has a sign modifier on an operand of type {name}, which is not modelled")

    def changed(w: Waves) -> NumpyLane:
        value = read(w)
        data: Any = np.abs(value.data) if absolute else value.data
        return NumpyLane(value.type, -data if negate else data)

    return Source(changed, source.registers)
