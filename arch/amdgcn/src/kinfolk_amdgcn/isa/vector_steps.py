"""Vector instructions as steps: operands read, the declared meaning evaluated over all lanes, results written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kinfolk_amdgcn.isa.dpp import dpp_source, dpp_writes
from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.modifiers import finishing
from kinfolk_amdgcn.isa.operands import (
    ALGEBRA,
    EXEC_MASK,
    FIRST_VECTOR,
    LITERAL,
    Source,
    Target,
    half_target,
    mask_target,
    vector_source,
    vector_target,
    with_modifiers,
)
from kinfolk_amdgcn.isa.packed_steps import NARROW, half_source, mixed_step, packed_step
from kinfolk_amdgcn.isa.sdwa import WHOLE, selected_source, selected_target
from kinfolk_amdgcn.isa.step import Given, Run, Step, Unit
from kinfolk_amdgcn.isa.waves import EXEC, SCALAR_BIT, VCC, Waves

FIRST_OF_VOP3: Final = 448
"""Opcodes of VOP3 from here on are of instructions that have no shorter form."""


def vector_step(given: Given) -> Step:
    """Return the step of an instruction that works on each lane for itself."""
    if given.declared.packed:
        return packed_step(given)
    if "half" in given.declared.facts:
        return mixed_step(given)
    sources, targets = _sources(given), _targets(given)
    reads = EXEC_MASK
    if _writes_part(given):
        target, kept = selected_target(given, given.registers.row(given.field("vdst"), False))
        targets[0], reads = target, reads | kept
    for source in sources:
        reads |= source.registers
    masks = 0
    for source, name in zip(sources, given.declared.operands, strict=True):
        masks |= source.registers if name == "mask" else 0
    writes = 0
    for target in targets:
        writes |= target.registers
    run = _runner(given, sources, targets)
    if given.encoded.modifier == "dpp":
        run = dpp_writes(given, run)
    if given.declared.facts.get("writes_exec"):
        run, writes = _also_to_exec(run, targets[0]), writes | EXEC_MASK
    carried = _carried(given, sources, writes)
    return given.step(run, reads=reads, writes=writes, lanes=True, unit=_unit(given), carried=carried, masks=masks)


def _also_to_exec(run: Run, target: Target) -> Run:
    """Return a comparison that decides which lanes live, too: its mask of lanes is the first register's there."""
    register = (target.registers >> SCALAR_BIT).bit_length() - 2

    def compare(w: Waves) -> None:
        run(w)
        w.s[:, EXEC : EXEC + 2] = w.s[:, register : register + 2]
        w.exec_written()

    return compare


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
    if given.declared.facts.get("implied_mask"):
        return "last_division"
    if given.encoded.modifier == "sdwa" and given.encoded.format != "VOPC" and given.field("dst_sel") != WHOLE:
        return "shifting"
    if _halves(given) >> 3:
        return "shifting"
    return "transcendental" if given.declared.facts.get("transcendental") else "vector"


def _runner(given: Given, sources: list[Source], targets: list[Target]) -> Callable[[Waves], None]:
    reads = [source.read for source in sources]
    finish, meaning = finishing(given)
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
    vop3 = encoded.format in ("VOP3", "VOP3P")
    halves = _halves(given)
    found: list[Source] = []
    literal_at, taken = given.declared.facts.get("literal_at"), 0
    for number, name in enumerate(names):
        if number == literal_at:
            found.append(vector_source(LITERAL, name, given.registers, encoded.literal))
            continue
        place, taken = taken, taken + 1
        if given.declared.reads_destination and number == len(names) - 1:
            source = vector_source(FIRST_VECTOR + given.field("vdst"), name, given.registers)
        elif name == "mask" and (not vop3 or given.declared.facts.get("implied_mask")):
            source = vector_source(VCC, name, given.registers)
        elif place < 2 and encoded.modifier == "sdwa":
            source = selected_source(given, place, name)
        elif place == 0 and encoded.modifier == "dpp":
            source = dpp_source(vector_source(encoded.fields["src0"], name, given.registers), given)
        elif place == 1 and not vop3:
            source = vector_source(FIRST_VECTOR + given.field("vsrc1"), name, given.registers)
        elif halves >> place & 1 and name in NARROW:
            source = half_source(given.field(f"src{place}"), 1, name, given)
        else:
            source = vector_source(given.field(f"src{place}"), name, given.registers, encoded.literal)
        found.append(_signed(source, name, number, given))
    return found


def _halves(given: Given) -> int:
    """Return which operands, and in bit 3 whether the result, are the upper half of their register (VOP3)."""
    if given.encoded.format != "VOP3" or _has_scalar_result(given):
        return 0
    names = given.declared.operands + given.declared.results
    halves = given.field("opsel")
    if halves and (given.encoded.opcode < FIRST_OF_VOP3 or not any(name in NARROW for name in names)):
        raise Stop("unsupported", "selects halves of registers where there are none, which is not modelled")
    return halves


def _signed(source: Source, name: str, number: int, given: Given) -> Source:
    fields, facts = given.encoded.fields, given.declared.facts
    selects = bool(facts.get("selects") or facts.get("moves"))
    if given.encoded.format == "VOP3":
        absolute = 0 if _has_scalar_result(given) else fields["abs"]
        return with_modifiers(source, name, bool(fields["neg"] >> number & 1), bool(absolute >> number & 1), selects)
    if given.encoded.format == "VOP3P":
        if fields["neg"] or fields["neg_hi"] or fields["opsel"] or (fields["opsel_hi"], fields["opsel_hi2"]) != (3, 1):
            raise Stop("unsupported", "selects or negates parts of its operands, which is not modelled")
        return source
    if given.encoded.modifier and number < 2:
        return with_modifiers(source, name, bool(fields[f"src{number}_neg"]), bool(fields[f"src{number}_abs"]), selects)
    return source


def _has_scalar_result(given: Given) -> bool:
    """Whether bits of an encoding name a scalar destination beside the vector one."""
    return len(given.declared.results) == 2


def _writes_part(given: Given) -> bool:
    """Whether an encoding selects a part of the register that it writes: not where it writes a mask of lanes alone."""
    if given.encoded.modifier != "sdwa" or given.encoded.format == "VOPC":
        return False
    if not {"i64", "f64"}.isdisjoint(given.declared.results):
        raise Stop("unsupported", "writes a part of a pair of registers, which is not modelled")
    return True


def _targets(given: Given) -> list[Target]:
    found: list[Target] = []
    for name in given.declared.results:
        if name != "mask":
            width = 2 if name in ("i64", "f64") else 1
            row = given.registers.row(given.field("vdst"), False, width)
            keeps = given.encoded.format == "VOP3" and given.encoded.opcode >= FIRST_OF_VOP3 and name in NARROW
            upper = _halves(given) >> 3
            if keeps and (upper or not given.declared.facts.get("clears_upper_half")):
                found.append(half_target(row, upper))
            else:
                found.append(vector_target(row, name))
        elif given.encoded.format != "VOP3":
            named = given.encoded.format == "VOPC" and given.encoded.fields.get("sdwa_sdst_used")
            found.append(mask_target(given.field("sdwa_sdst") if named else VCC))
        else:
            found.append(mask_target(given.field("sdst" if _has_scalar_result(given) else "vdst")))
    return found
