"""Vector instructions as steps: operands read, the declared meaning evaluated over all lanes, results written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from kinfolk.ir.numpy_lanes import NumpyAlgebra, NumpyLane
from kinfolk.ir.types import I16
from kinfolk_amdgcn.isa.dpp import dpp_source
from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.operands import (
    FIRST_VECTOR,
    LITERAL,
    Read,
    Source,
    Target,
    mask_target,
    vector_source,
    vector_target,
    with_modifiers,
)
from kinfolk_amdgcn.isa.sdwa import selected_source, selected_target
from kinfolk_amdgcn.isa.step import Given, Step, Unit
from kinfolk_amdgcn.isa.waves import EXEC, LANES, SCALAR_BIT, VCC, Waves

ALGEBRA: Final = NumpyAlgebra.of_lanes(LANES)
EXEC_MASK: Final = 3 << SCALAR_BIT + EXEC


def vector_step(given: Given) -> Step:
    """Return the step of an instruction that works on each lane for itself."""
    if given.declared.packed:
        return _packed_step(given)
    sources, targets = _sources(given), _targets(given)
    reads = EXEC_MASK
    if _writes_part(given):
        target, kept = selected_target(given, given.registers.row(given.field("vdst"), False))
        targets, reads = [target], reads | kept
    for source in sources:
        reads |= source.registers
    writes = 0
    for target in targets:
        writes |= target.registers
    run = _runner(given, sources, targets)
    carried = _carried(given, sources, writes)
    return given.step(run, reads=reads, writes=writes, lanes=True, unit=_unit(given), carried=carried)


def _carried(given: Given, sources: list[Source], writes: int) -> tuple[tuple[int, int], ...]:
    """Return what a move carries, register by register; of a product of 32 bits added to 64, the upper half of these.

    Compilers leave an upper half as it is where nobody reads that of the result.
    """
    if given.encoded.modifier:
        return ()
    if given.declared.facts.get("moves"):
        return tuple(zip(_bits(sources[0].registers), _bits(writes), strict=False))
    if given.declared.facts.get("upper_half_is_carried"):
        return (((_bits(sources[2].registers)[-1:] or (0,))[0], _bits(writes)[1]),)
    return ()


def _bits(mask: int) -> tuple[int, ...]:
    return tuple(1 << bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def _unit(given: Given) -> Unit:
    if given.encoded.modifier == "dpp":
        return "crossing"
    return "transcendental" if given.declared.facts.get("transcendental") else "vector"


def _runner(given: Given, sources: list[Source], targets: list[Target]) -> Callable[[Waves], None]:
    meaning = given.declared.meaning
    assert meaning is not None
    reads = [source.read for source in sources]
    finish = _output_modifiers(given)
    write = targets[0].write
    if len(targets) == 1 and finish is None and len(reads) == 2:
        first, second = reads

        def two(w: Waves) -> None:
            write(w, meaning(ALGEBRA, first(w), second(w)).data)

        return two
    if len(targets) == 1 and finish is None:

        def one_result(w: Waves) -> None:
            write(w, meaning(ALGEBRA, *[read(w) for read in reads]).data)

        return one_result

    def general(w: Waves) -> None:
        found: Any = meaning(ALGEBRA, *[read(w) for read in reads])
        results: tuple[Any, ...] = found if len(targets) > 1 else (found,)
        for target, result in zip(targets, results, strict=True):
            target.write(w, (finish(result) if finish else result).data)

    return general


def _sources(given: Given) -> list[Source]:
    """Return the operands in the order of the declaration."""
    encoded, names = given.encoded, given.declared.operands
    vop3 = encoded.format == "VOP3"
    if vop3 and encoded.fields["opsel"] and any(name in ("i16", "f16", "bf16") for name in names):
        raise Stop("unsupported", "selects halves of registers, which is not modelled")
    found: list[Source] = []
    literal_at, taken = given.declared.facts.get("literal_at"), 0
    for number, name in enumerate(names):
        if number == literal_at:
            found.append(vector_source(LITERAL, name, given.registers, encoded.literal))
            continue
        place, taken = taken, taken + 1
        if given.declared.reads_destination and number == len(names) - 1:
            source = vector_source(FIRST_VECTOR + given.field("vdst"), name, given.registers)
        elif name == "mask" and not vop3:
            source = vector_source(VCC, name, given.registers)
        elif place < 2 and encoded.modifier == "sdwa":
            source = selected_source(given, place, name)
        elif place == 0 and encoded.modifier == "dpp":
            source = dpp_source(vector_source(encoded.fields["src0"], name, given.registers), given)
        elif place == 1 and not vop3:
            source = vector_source(FIRST_VECTOR + given.field("vsrc1"), name, given.registers)
        else:
            source = vector_source(given.field(f"src{place}"), name, given.registers, encoded.literal)
        found.append(_signed(source, name, number, given))
    return found


def _signed(source: Source, name: str, number: int, given: Given) -> Source:
    fields = given.encoded.fields
    if given.encoded.format == "VOP3":
        absolute = 0 if _has_scalar_result(given) else fields["abs"]
        return with_modifiers(source, name, bool(fields["neg"] >> number & 1), bool(absolute >> number & 1))
    if given.encoded.modifier and number < 2:
        return with_modifiers(source, name, bool(fields[f"src{number}_neg"]), bool(fields[f"src{number}_abs"]))
    return source


def _has_scalar_result(given: Given) -> bool:
    """Whether bits of an encoding name a scalar destination beside the vector one."""
    return len(given.declared.results) == 2


def _writes_part(given: Given) -> bool:
    """Whether an encoding selects a part of the register that it writes: not where it writes a mask of lanes alone."""
    if given.encoded.modifier != "sdwa" or given.encoded.format == "VOPC":
        return False
    if len(given.declared.results) != 1 or not {"i64", "f64"}.isdisjoint(given.declared.results):
        raise Stop("unsupported", "writes parts of registers and more, which is not modelled")
    if given.field("clamp") or given.field("omod"):
        raise Stop("unsupported", "has an output modifier with a part of a register, which is not modelled")
    return True


def _targets(given: Given) -> list[Target]:
    found: list[Target] = []
    for name in given.declared.results:
        if name != "mask":
            width = 2 if name in ("i64", "f64") else 1
            found.append(vector_target(given.registers.row(given.field("vdst"), False, width), name))
        elif given.encoded.format != "VOP3":
            named = given.encoded.format == "VOPC" and given.encoded.fields.get("sdwa_sdst_used")
            found.append(mask_target(given.field("sdwa_sdst") if named else VCC))
        else:
            found.append(mask_target(given.field("sdst" if _has_scalar_result(given) else "vdst")))
    return found


def _output_modifiers(given: Given) -> Callable[[NumpyLane], NumpyLane] | None:
    """Return what multiplies a float result and keeps it between 0 and 1, where the encoding asks for that."""
    fields = given.encoded.fields
    clamp, scale = (fields.get(name, 0) for name in ("clamp", "omod"))
    if given.encoded.format != "VOP3" or not (clamp or scale):
        return None
    if given.declared.results != ("f32",):
        raise Stop("unsupported", "has an output modifier on a result that is not one f32, which is not modelled")
    factor = (1.0, 2.0, 4.0, 0.5)[scale]

    def finish(x: NumpyLane) -> NumpyLane:
        data: Any = x.data * np.float32(factor)
        return NumpyLane(x.type, np.clip(np.nan_to_num(data, nan=0.0), 0.0, 1.0) if clamp else data)

    return finish


def _packed_step(given: Given) -> Step:
    """Return the step of an instruction that does the same on two f32 a lane, or on two halves of registers."""
    encoded, names, registers = given.encoded, given.declared.operands, given.registers
    low_halves, negate = encoded.fields["opsel"], encoded.fields["neg"]
    high_halves = encoded.fields["opsel_hi"] | encoded.fields["opsel_hi2"] << 2
    if encoded.fields["clamp"]:
        raise Stop("unsupported", "clamps its result, which is not modelled")
    reads = EXEC_MASK
    halves: list[list[Read]] = []
    for chosen, signs in ((low_halves, negate), (high_halves, encoded.fields["neg_hi"])):
        operands: list[Read] = []
        for number, name in enumerate(names):
            code = encoded.fields[f"src{number}"]
            half = chosen >> number & 1
            source = _half_source(code, half, name, given)
            reads |= source.registers
            operands.append(with_modifiers(source, name, bool(signs >> number & 1), False).read)
        halves.append(operands)
    narrow = names[0] == "i16"
    row = registers.row(given.field("vdst"), False, 1 if narrow else 2)
    meaning = given.declared.meaning
    assert meaning is not None

    def run_halves(w: Waves) -> None:
        low = meaning(ALGEBRA, *[read(w) for read in halves[0]]).data.astype(np.uint32)
        high = meaning(ALGEBRA, *[read(w) for read in halves[1]]).data.astype(np.uint32)
        w.put(row, low | high << np.uint32(16))

    def run(w: Waves) -> None:
        low = meaning(ALGEBRA, *[read(w) for read in halves[0]]).data
        high = meaning(ALGEBRA, *[read(w) for read in halves[1]]).data
        w.put(row, low.view(np.uint32))
        w.put(row + 1, high.view(np.uint32))

    writes = (1 if narrow else 3) << row
    return given.step(run_halves if narrow else run, reads=reads, writes=writes, lanes=True, unit="vector")


def _half_source(code: int, half: int, name: str, given: Given) -> Source:
    """Return one of the two parts of an operand: a register of a pair, or the constant, which both see; of 16 bits a
    half of its register.
    """
    if name == "i16":
        whole = vector_source(code, "i32", given.registers, given.encoded.literal)
        read, shift = whole.read, np.uint32(16 * half)
        return Source(lambda w: NumpyLane(I16, (read(w).data >> shift).astype(np.uint16)), whole.registers)
    if code >= FIRST_VECTOR or code < 128:
        return vector_source(code + half, name, given.registers)
    return vector_source(code, name, given.registers, given.encoded.literal)
