"""Vector instructions that do the same on two f32 a lane, or on both halves of a register (VOP3P), as steps.

Source: "AMD Instinct MI300 Instruction Set Architecture", section "Packed Math".
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kinfolk.ir.numpy_lanes import NumpyLane
from kinfolk.ir.types import F32, ScalarType
from kinfolk_amdgcn.isa.declare import TYPES
from kinfolk_amdgcn.isa.modifiers import finishing
from kinfolk_amdgcn.isa.operands import (
    ALGEBRA,
    EXEC_MASK,
    FIRST_VECTOR,
    Read,
    Source,
    rows_mask,
    vector_source,
    with_modifiers,
)
from kinfolk_amdgcn.isa.step import Given, Step
from kinfolk_amdgcn.isa.waves import Waves

NARROW: Final = ("i16", "f16", "bf16")


def packed_step(given: Given) -> Step:
    """Return the step of an instruction that does the same on both parts of its operands."""
    encoded, names, registers = given.encoded, given.declared.operands, given.registers
    vop2 = encoded.format == "VOP2"
    low_halves, negate = (0, 0) if vop2 else (encoded.fields["opsel"], encoded.fields["neg"])
    high_halves = 0b111 if vop2 else encoded.fields["opsel_hi"] | encoded.fields["opsel_hi2"] << 2
    negate_high = 0 if vop2 else encoded.fields["neg_hi"]
    reads = EXEC_MASK
    halves: list[list[Read]] = []
    for chosen, signs in ((low_halves, negate), (high_halves, negate_high)):
        operands: list[Read] = []
        for number, name in enumerate(names):
            code = _code(given, number)
            source = half_source(code, chosen >> number & 1, name, given)
            reads |= source.registers
            operands.append(with_modifiers(source, name, bool(signs >> number & 1), False).read)
        halves.append(operands)
    narrow = names[0] in NARROW
    row = registers.row(given.field("vdst"), False, 1 if narrow else 2)
    finish, meaning = finishing(given)

    def results(w: Waves) -> list[Any]:
        found = [meaning(ALGEBRA, *[read(w) for read in operands]) for operands in halves]
        return [(finish(each) if finish else each).data for each in found]

    def run_halves(w: Waves) -> None:
        low, high = (each.astype(np.uint32) for each in results(w))
        w.put(row, low | high << np.uint32(16))

    def run(w: Waves) -> None:
        low, high = results(w)
        w.put(row, low.view(np.uint32))
        w.put(row + 1, high.view(np.uint32))

    writes = rows_mask(row, 1 if narrow else 2)
    return given.step(run_halves if narrow else run, reads=reads, writes=writes, lanes=True, unit="vector")


def _code(given: Given, number: int) -> int:
    """Return what an operand's field says; of VOP2 the second is a register and the third the destination."""
    if given.encoded.format != "VOP2" or number == 0:
        return given.field(f"src{number}")
    return FIRST_VECTOR + given.field("vsrc1" if number == 1 else "vdst")


def half_source(code: int, half: int, name: str, given: Given) -> Source:
    """Return one of the two parts of an operand: a register of a pair, or the constant, which both see; of 16 bits a
    half of its register, or of a constant of 32 bits: one of floats has zeros above it.
    """
    type_ = TYPES[name]
    if name in NARROW:
        literal = given.encoded.literal
        if type_.kind == "float" and code < FIRST_VECTOR and (240 <= code <= 248):
            plain = vector_source(code, name, given.registers, literal)
            zero = NumpyLane(type_, np.zeros((), np.uint16))
            return Source(lambda w: zero, 0) if half else plain
        return register_half(vector_source(code, "i32", given.registers, literal), half, type_)
    if code >= FIRST_VECTOR or code < 128:
        return vector_source(code + half, name, given.registers)
    return vector_source(code, name, given.registers, given.encoded.literal)


def register_half(whole: Source, half: int, type_: ScalarType) -> Source:
    """Return a half of a source of 32 bits as a type of 16."""
    read, shift = whole.read, np.uint32(16 * half)
    return Source(lambda w: NumpyLane(type_, (read(w).data >> shift).astype(np.uint16)), whole.registers)


def mixed_step(given: Given) -> Step:
    """Return the step of a product and sum of operands each of which is f32 or a half of a register as f16.

    The result is f32, or f16 in one half of its register, of which the other stays.
    """
    encoded, registers = given.encoded, given.registers
    halves = encoded.fields["opsel_hi"] | encoded.fields["opsel_hi2"] << 2
    reads, operands = EXEC_MASK, list[Read]()
    for number in range(3):
        code, narrow = encoded.fields[f"src{number}"], bool(halves >> number & 1)
        name = "f16" if narrow else "f32"
        source = vector_source(code, name, registers)
        if narrow:
            source = half_source(code, encoded.fields["opsel"] >> number & 1, "f16", given)
        signs = (bool(encoded.fields[field] >> number & 1) for field in ("neg", "neg_hi"))
        source = with_modifiers(source, name, *signs)
        reads |= source.registers
        operands.append(source.read)
    row, place = registers.row(given.field("vdst"), False), given.declared.facts["half"]
    finish, meaning = finishing(given)

    def run(w: Waves) -> None:
        found = meaning(ALGEBRA, *[read(w) for read in operands])
        data = (finish(found) if finish else found).data
        if found.type == F32:
            w.put(row, data.view(np.uint32))
            return
        shift = 16 * place
        w.put(row, data.astype(np.uint32) << np.uint32(shift) | w.v[row] & np.uint32(0xFFFF0000 >> shift))

    return given.step(run, reads=reads, writes=rows_mask(row), lanes=True, unit="vector")
