"""What software has to keep apart on these processors: results of matrix instructions and what touches them.

Source: LLVM's hazard recogniser, measured by compiling pairs of instructions: a result of p passes may be touched p and
some wait states later (an arch's fact `matrix_result_states`). Matrix instructions take it as what they add to, whole,
and write it again, with no wait between: they run in order.
"""

from __future__ import annotations

from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.step import Step
from kinfolk_amdgcn.isa.waves import Waves


def check_matrix_results(w: Waves, step: Step, extra: int) -> None:
    """Stop where an instruction touches a matrix result too early; forget results that are there."""
    kept: list[tuple[int, int, int]] = []
    for rows, at, needed in w.matrix_results:
        since = w.states - at
        if since >= needed:
            continue
        kept.append((rows, at, needed))
        early = rows & (step.reads | (0 if step.matrix else step.writes))
        if early or (rows & step.accumulates and step.accumulates != rows):
            raise Stop(
                "wait_states",
                f"touches the result of a matrix instruction after {since} wait states, {needed} are needed",
            )
    w.matrix_results = kept
