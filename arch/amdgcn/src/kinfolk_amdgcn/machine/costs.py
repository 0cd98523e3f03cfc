"""What instructions of AMD archs cost, in clocks of a SIMD, in the models of `kinfolk.machine.COST_MODELS`.

`llvm`: LLVM's scheduling model of CDNA3, SISchedule.td, in which a cycle is 4 clocks; checked against llvm-mca. It
knows neither how wide workgroup memory is nor that transcendentals issue at a quarter of the rate. `real`: assumed and
not measured on a device. Global memory answers as from a second-level cache under load, workgroup memory serves 128
bytes a clock to all waves of a compute unit, scalar instructions issue beside vector ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kinfolk.machine import Cost, CostModel, MachineClass

if TYPE_CHECKING:
    from kinfolk.arch import Arch

CLOCKS_PER_CYCLE: Final = 4
MATRIX_LATENCY_CLOCKS: Final = 4 * CLOCKS_PER_CYCLE
"""How long after the matrix unit is done its result can be read; an accumulating matrix instruction need not wait."""
SHARED_BYTES_PER_CLOCK: Final = 128

LLVM: Final[Mapping[MachineClass, Cost]] = {
    "vector": Cost(4, 4),
    "accumulator_move": Cost(4, 4),
    "transcendental": Cost(4, 16),
    "workgroup_memory": Cost(4, 20),
    "global_memory": Cost(4, 320),
    "scratch_memory": Cost(4, 320),
    "scalar_memory": Cost(4, 20),
    "scalar": Cost(4, 4),
    "wait": Cost(4, 0),
}
REAL: Final[Mapping[MachineClass, Cost]] = {
    **LLVM,
    "transcendental": Cost(16, 16),
    "workgroup_memory": Cost(4, 128),
    "global_memory": Cost(4, 700),
    "scratch_memory": Cost(4, 700),
    "scalar_memory": Cost(4, 200),
    "scalar": Cost(1, 4),
    "wait": Cost(1, 0),
}
_SHAPE: Final = re.compile(r"v_s?mfmac?_(?:scale_)?[fi]\d+_(\d+)x\d+x(\d+)_?(\d+b)?_?(\w*)")
_NARROW: Final = re.compile(r"cbsz:[234].*blgp:[234]")


def costs(issue: MachineClass, lane_bytes: int, matrix_clocks: float, wave_size: int) -> Mapping[CostModel, Cost]:
    """Return what an instruction of a class costs per model; nothing for one that no model counts."""
    if issue == "matrix":
        matrix = Cost(CLOCKS_PER_CYCLE, matrix_clocks + MATRIX_LATENCY_CLOCKS)
        return MappingProxyType({"llvm": matrix, "real": matrix})
    if issue not in LLVM:
        return MappingProxyType({})
    llvm, real = LLVM[issue], REAL[issue]
    if issue == "workgroup_memory":
        real = Cost(real.issue, real.result, lane_bytes * wave_size / SHARED_BYTES_PER_CLOCK)
    return MappingProxyType({"llvm": llvm, "real": real})


def matrix_clocks(opcode: str, operands: str, arch: Arch) -> float:
    """Return how long an instruction holds the matrix unit: as the arch's table has it, else by shape and types."""
    known = {f"v_{atom.op.name.partition('.')[2]}": atom.passes for atom in arch.matrix}
    return CLOCKS_PER_CYCLE * float(known.get(opcode, _passes(opcode, operands)))


def _passes(opcode: str, operands: str) -> int:
    """Return the passes of a matrix instruction: more for a larger result, twice for wide elements or several blocks.

    8-bit elements that come to the unit that also takes narrower ones have half of those's rate; LLVM's model counts
    them alike.
    """
    match = _SHAPE.match(opcode)
    if match is None:
        return 4
    side, blocks, types = int(match[1]), bool(match[3]), match[4]
    if types == "f64":
        return 8 if side == 16 else 4
    passes = {4: 2, 16: 4, 32: 8}.get(side, 4)
    wide = types == "f32" or blocks or (types == "f8f6f4" and not _NARROW.search(operands))
    return 2 * passes if wide and side > 4 else passes
