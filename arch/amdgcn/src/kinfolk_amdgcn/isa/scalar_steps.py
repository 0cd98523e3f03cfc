"""Scalar instructions as steps."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kinfolk.ir.numpy_lanes import NumpyLane
from kinfolk.ir.types import I32
from kinfolk_amdgcn.isa.operands import ALGEBRA, EXEC_MASK, Source, scalar_source, scalar_target
from kinfolk_amdgcn.isa.step import Given, Step
from kinfolk_amdgcn.isa.unknown import of_bits
from kinfolk_amdgcn.isa.waves import CONDITION, EXEC, Waves

SIGN_16: Final = 0x8000


def scalar_step(given: Given) -> Step:
    """Return the step of an instruction that computes on scalar registers."""
    declared, sources = given.declared, _sources(given)
    reads = 0
    for source in sources:
        reads |= source.registers
    result_name = declared.results[0]
    register = -1 if result_name == "scc" else given.field("sdst")
    target = scalar_target(register, result_name)
    meaning, scc, saves = declared.meaning, declared.scc, bool(declared.facts.get("saves_exec"))
    gives = bool(declared.facts.get("gives_exec"))
    assert meaning is not None
    if saves:
        exec_target = scalar_target(EXEC, "i64")
        exec_source = scalar_source(EXEC, "i64")
        read = sources[0].read
        assert scc is not None

        def save(w: Waves) -> None:
            before, mask = exec_source.read(w), read(w)
            found = meaning(ALGEBRA, mask, before)
            saved = found.data if gives else before.data.copy()
            target.write(w, saved)
            exec_target.write(w, found.data)
            w.scc = scc(ALGEBRA, found).data.copy()

        writes = target.registers | EXEC_MASK | CONDITION
        bits = of_bits([sources[0], exec_source], meaning, target.registers, conditional=True, to_exec=True)
        return _step(given, save, reads | EXEC_MASK, writes, bits)
    operand_reads = [source.read for source in sources]
    write = target.write

    def run(w: Waves) -> None:
        operands = [read(w) for read in operand_reads]
        found = meaning(ALGEBRA, *operands)
        if scc is not None:
            condition = scc(ALGEBRA, found, *operands).data
            write(w, found.data)
            w.scc = np.broadcast_to(condition, w.scc.shape).copy()
        else:
            write(w, found.data)

    bits = None
    if declared.facts.get("bitwise") and result_name != "scc":
        many = 1 if declared.facts.get("moves_bits") else len(sources)
        bits = of_bits(sources, meaning, target.registers, conditional=scc is not None, many=many)
    return _step(given, run, reads, target.registers | (CONDITION if scc is not None else 0), bits)


def _step(given: Given, run: Any, reads: int, writes: int, bits: Any = None) -> Step:
    return given.step(run, reads=reads, writes=writes, unit="scalar", bits=bits)


def _sources(given: Given) -> list[Source]:
    """Return the operands in the order of the declaration: of SOPK its destination, if it is read, then 16 bits."""
    declared, encoded = given.declared, given.encoded
    if encoded.format == "SOPK":
        bits = encoded.fields["simm16"]
        if not declared.facts.get("unsigned"):
            bits = (bits ^ SIGN_16) - SIGN_16
        held = NumpyLane(I32, np.array(bits & 0xFFFFFFFF, np.uint32))
        immediate = Source(lambda w: held, 0)
        before = [scalar_source(encoded.fields["sdst"], "i32")] if declared.reads_destination else []
        conditions = [scalar_source(0, name) for name in declared.operands if name == "scc"]
        return [*before, immediate, *conditions]
    found: list[Source] = []
    for number, name in enumerate(declared.operands):
        if declared.reads_destination and number == 1:
            code = encoded.fields["sdst"]
        else:
            code = 0 if name == "scc" else encoded.fields[f"ssrc{number}"]
        found.append(scalar_source(code, name, encoded.literal))
    return found
