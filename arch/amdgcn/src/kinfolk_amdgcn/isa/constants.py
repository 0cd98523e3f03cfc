"""What the model of time counts with: every number, its unit and where it comes from.

Those of `kinfolk inspect` are taken from there (`kinfolk_amdgcn.machine.costs`); what an arch declares of its memory
and its matrix unit are its facts. A source that begins with "assumed" was neither measured nor looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kinfolk.timing import Constant
from kinfolk_amdgcn.machine.costs import CLOCKS_PER_CYCLE, LLVM, REAL

if TYPE_CHECKING:
    from kinfolk.arch import Arch

_GCN: Final = "AMD, 'Graphics Cores Next architecture', from memory: a SIMD of 16 lanes issues every fourth clock"
_INSPECT: Final = "assumed, as model `real` of kinfolk inspect"
_SCHEDULE: Final = "LLVM, SISchedule.td, CDNA3, as model `llvm` of kinfolk inspect"
FACTS: Final = ("matrix_result_states", "hbm_bytes_per_clock", "compute_units")
"""Facts of an arch that the model needs, beside those that every AMD arch declares."""


def constants(arch: Arch) -> tuple[Constant, ...]:
    """Return the constants of an arch; none where it does not declare the facts they are made of."""
    if not all(name in arch.facts for name in FACTS):
        return ()
    states = arch.matrix_result_states
    return tuple(
        Constant(name=name, value=float(value), unit=unit, meaning=meaning, source=source)
        for name, value, unit, meaning, source in (
            ("wave_issue", CLOCKS_PER_CYCLE, "clocks", "from one instruction of a wave to its next", _GCN),
            ("wait_issue", REAL["wait"].issue, "clocks", "the same, after a wait that finds all there", _INSPECT),
            ("vector_issue", LLVM["vector"].issue, "clocks", "a vector instruction holds its SIMD", _GCN),
            (
                "transcendental_issue",
                REAL["transcendental"].issue,
                "clocks",
                "the same, of transcendentals and integer products: a quarter of the rate",
                _INSPECT,
            ),
            ("vector_latency", LLVM["vector"].result, "clocks", "until what it writes can be read", _SCHEDULE),
            (
                "transcendental_latency",
                LLVM["transcendental"].result,
                "clocks",
                "the same, of transcendentals and integer products",
                _SCHEDULE,
            ),
            ("scalar_issue", CLOCKS_PER_CYCLE, "clocks", "a scalar instruction holds its SIMD's scalar port", _GCN),
            ("scalar_latency", LLVM["scalar"].result, "clocks", "until what it writes can be read", _SCHEDULE),
            (
                "matrix_pass",
                CLOCKS_PER_CYCLE,
                "clocks",
                "a pass of a matrix instruction; after its passes the unit is free, and it can be added to",
                "AMD matrix instruction calculator; passes are the instruction's",
            ),
            (
                "matrix_result",
                CLOCKS_PER_CYCLE * (states + 1),
                "clocks",
                "from then until others can read its result; of products of f32 in proportion to their wait states",
                "the arch's fact matrix_result_states: LLVM's hazard recogniser",
            ),
            ("local_latency", REAL["workgroup_memory"].result, "clocks", "of workgroup memory, served", _INSPECT),
            (
                "local_cycle",
                1,
                "clocks",
                "workgroup memory serves lanes that are served together; one for all waves of a compute unit",
                "the arch's banks (kinfolk.banks), which kinfolk profile counts with",
            ),
            ("scalar_memory_latency", REAL["scalar_memory"].result, "clocks", "of scalar loads", _INSPECT),
            (
                "memory_latency",
                REAL["global_memory"].result,
                "clocks",
                "of lines of memory that no wave of the compute unit touched before",
                _INSPECT,
            ),
            ("cache_latency", LLVM["global_memory"].result, "clocks", "of lines that one did", _SCHEDULE),
            (
                "cache_rate",
                64,
                "bytes/clock",
                "of lines, to a compute unit from its caches",
                "assumed: a line of 64 bytes a clock",
            ),
            (
                "memory_rate",
                arch.hbm_bytes_per_clock,
                "bytes/clock",
                "of lines that no wave of the compute unit touched before, to all compute units at work together",
                "the arch's fact hbm_bytes_per_clock",
            ),
            ("barrier", 16, "clocks", "from the last wave's arrival until they go on", "assumed"),
            ("branch", 16, "clocks", "from a branch that is taken to the next instruction", "assumed"),
        )
    )


def scaled(known: tuple[Constant, ...], factors: Mapping[str, float]) -> dict[str, float]:
    """Return values by name, some of them multiplied; ValueError for a name of none, or a factor not above 0."""
    values = {each.name: each.value for each in known}
    for name, factor in factors.items():
        if name not in values:
            raise ValueError(f"the model has no constant {name!r}; it has {', '.join(values)}")
        if not factor > 0:
            raise ValueError(f"constant {name} is multiplied by what is above 0, got {factor}")
        values[name] *= factor
    return values
