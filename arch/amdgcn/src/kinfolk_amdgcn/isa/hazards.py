"""What software has to keep apart on these processors: makers of registers and their users, by wait states.

An instruction takes one wait state, `s_nop` as many as it says and one. Sources: "AMD Instinct MI300 Instruction Set
Architecture", section "Manually Inserted Wait States"; LLVM's hazard recogniser, measured by compiling pairs of
instructions: a matrix result of p passes may be touched p and some wait states later (an arch's fact
`matrix_result_states`). Matrix instructions take it as what they add to, whole, and write it again, with no wait
between: they run in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.step import Step, Unit
from kinfolk_amdgcn.isa.waves import EXEC, M0, SCALAR_BIT, VCC, Waves

VECTOR_REGISTERS: Final = (1 << SCALAR_BIT) - 1
EXEC_PAIR: Final = 0b11 << SCALAR_BIT + EXEC
SCALAR_REGISTERS: Final = ~VECTOR_REGISTERS & ~EXEC_PAIR
_VECTOR: Final[tuple[Unit, ...]] = (
    *("vector", "transcendental", "shifting", "lane_read", "lane_write", "lane_swap", "crossing", "last_division"),
)
_LANES: Final[tuple[Unit, ...]] = ("lane_read", "lane_write", "lane_swap")


@attrs.frozen
class Apart:
    """What `makers` write of some registers, `users` read at least so many wait states later."""

    makers: tuple[Unit, ...]
    users: tuple[Unit, ...]
    registers: int
    states: int


RULES: Final = (
    Apart(_VECTOR, ("memory",), SCALAR_REGISTERS, 5),
    Apart(_VECTOR, _VECTOR, SCALAR_REGISTERS, 2),
    Apart(_VECTOR, ("last_division",), 0b11 << SCALAR_BIT + VCC, 4),
    Apart(_VECTOR, ("matrix",), VECTOR_REGISTERS, 2),
    Apart(_VECTOR, ("crossing",), VECTOR_REGISTERS, 2),
    Apart(_VECTOR, ("crossing",), EXEC_PAIR, 5),
    Apart(_VECTOR, ("lane_read",), VECTOR_REGISTERS, 1),
    Apart(_VECTOR, ("lane_swap",), VECTOR_REGISTERS, 2),
    Apart(_VECTOR, ("lane_read",), SCALAR_REGISTERS, 4),
    Apart(_VECTOR, _LANES, EXEC_PAIR, 4),
    Apart(("shifting",), _VECTOR, VECTOR_REGISTERS, 1),
    Apart(("transcendental",), tuple(unit for unit in _VECTOR if unit != "transcendental"), VECTOR_REGISTERS, 1),
    Apart(("scalar",), ("memory",), 1 << SCALAR_BIT + M0, 1),
)
WINDOW: Final = 19
"""So many wait states LLVM looks back for a matrix instruction. After the longest ones of one arch it asks for 20 where
it finds them, and lets 19 stand where the code has those already: what it emits runs, so that is no fault here."""
STRICTEST_FIRST: Final = sorted(RULES, key=lambda rule: -rule.states)
LONGEST: Final = STRICTEST_FIRST[0].states


def too_early(steps: Sequence[Step], index: int) -> tuple[int, str] | None:
    """Return the instruction before one that it follows too soon, and how; None where the code keeps them apart.

    Looked at is the way straight down the code.
    """
    step, states = steps[index], 0
    for before in range(index - 1, -1, -1):
        maker = steps[before]
        if states >= LONGEST or (maker.flow and maker.taken is None):
            return None
        for rule in STRICTEST_FIRST:
            if (
                states < rule.states
                and maker.unit in rule.makers
                and step.unit in rule.users
                and maker.writes & (step.reads | step.accumulates) & rule.registers
            ):
                what = f"reads what {maker.name} at offset {maker.offset:#x} writes after {states} wait states"
                return before, f"{what}, {rule.states} are needed"
        states += maker.states
    return None


def check_matrix_results(w: Waves, step: Step, extra: int) -> None:
    """Stop where an instruction touches a matrix result too early; forget results that are there."""
    kept: list[tuple[int, int, int]] = []
    for rows, at, needed in w.matrix_results:
        since = w.states - at
        if since >= min(needed, WINDOW):
            continue
        kept.append((rows, at, needed))
        early = rows & (step.reads | (0 if step.matrix else step.writes))
        if early or (rows & step.accumulates and step.accumulates != rows):
            raise Stop(
                "wait_states",
                f"touches the result of a matrix instruction after {since} wait states, {needed} are needed",
            )
    w.matrix_results = kept


def note_matrix_result(w: Waves, step: Step, needed: int) -> None:
    """Keep in mind what a matrix instruction writes; of registers that are on their way already it is the last."""
    older = ((rows & ~step.writes, at, states) for rows, at, states in w.matrix_results)
    w.matrix_results = [*(each for each in older if each[0]), (step.writes, w.states, needed)]
