"""What each instruction of a program costs in the model of time, for given constants."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

import attrs

from kinfolk_amdgcn.isa.waves import LANES
from kinfolk_amdgcn.machine.operands import machine_class

if TYPE_CHECKING:
    from kinfolk.machine import MachineClass
    from kinfolk.timing import Cause
    from kinfolk_amdgcn.isa.step import Step

Queue = Literal["", "vector", "local", "scalar"]
"""What an access ends in the order of; scalar loads end in none."""
VECTOR, SCALAR, LOCAL, MEMORY, BRANCH = range(5)
"""Ports of a SIMD: at each, one instruction begins at a time, of whichever wave."""
PORTS: Final = 5
_QUARTER: Final = re.compile(r"v_mul_(lo|hi)_[iu]32|v_mad_[iu]64_[iu]32")
"""Products of integers that issue as slowly as transcendentals."""
_CAUSES: Final[Mapping[MachineClass, Cause]] = {
    "matrix": "matrix",
    "vector": "vector",
    "accumulator_move": "vector",
    "transcendental": "vector",
    "workgroup_memory": "workgroup_memory",
    "global_memory": "memory_latency",
    "scratch_memory": "memory_latency",
    "scalar_memory": "memory_latency",
    "barrier": "barrier",
    "branch": "branch",
}
_PORTS: Final[Mapping[MachineClass, int]] = {
    "matrix": VECTOR,
    "vector": VECTOR,
    "accumulator_move": VECTOR,
    "transcendental": VECTOR,
    "workgroup_memory": LOCAL,
    "global_memory": MEMORY,
    "scratch_memory": MEMORY,
    "scalar_memory": SCALAR,
    "scalar": SCALAR,
    "branch": BRANCH,
}
_QUEUES: Final[Mapping[MachineClass, Queue]] = {
    "workgroup_memory": "local",
    "global_memory": "vector",
    "scratch_memory": "vector",
    "scalar_memory": "scalar",
}


@attrs.frozen(kw_only=True)
class IssueCost:
    """One instruction: its wave goes on after `issue` clocks, it holds a `port` (-1: none) for `holds`.

    A matrix instruction holds its unit for `matrix` clocks. What it writes can be read after `result` clocks, and added
    to by a matrix instruction after `forward`. An access joins `queue`; `moved` are clocks of workgroup memory of one
    that passes through it without an address.
    """

    cause: Cause
    issue: float
    port: int
    holds: float
    matrix: float = 0.0
    result: float = 0.0
    forward: float = 0.0
    queue: Queue = ""
    moved: float = 0.0


def issue_costs(
    steps: Sequence[Step], values: Mapping[str, float], extra_states: int, local_bytes_per_clock: int
) -> list[IssueCost]:
    """Return what each step costs.

    `extra_states` are the wait states past its passes that a matrix result takes, and that `matrix_result` is of.
    """
    known: dict[tuple[str, int, int], IssueCost] = {}
    found: list[IssueCost] = []
    for step in steps:
        key = (step.name, step.states, step.matrix)
        if key not in known:
            known[key] = _cost(step, values, extra_states, local_bytes_per_clock)
        found.append(known[key])
    return found


def _cost(step: Step, values: Mapping[str, float], extra_states: int, local_bytes_per_clock: int) -> IssueCost:
    issue = machine_class(step.name)
    cause: Cause = _CAUSES.get(issue, "scalar")
    port = _PORTS.get(issue, -1)
    wave = values["wave_issue"]
    if issue == "wait":
        return IssueCost(cause=cause, issue=values["wait_issue"], port=port, holds=0.0)
    if step.matrix:
        passes = step.matrix * values["matrix_pass"]
        states = step.settles - step.matrix if step.settles else extra_states
        settled = passes + values["matrix_result"] * (states + 1) / (extra_states + 1)
        return IssueCost(
            cause=cause,
            issue=wave,
            port=port,
            holds=values["vector_issue"],
            matrix=passes,
            result=settled,
            forward=passes,
        )
    if port == VECTOR:
        slow = issue == "transcendental" or bool(_QUARTER.match(step.name))
        kind = "transcendental" if slow else "vector"
        return IssueCost(
            cause=cause, issue=wave, port=port, holds=values[f"{kind}_issue"], result=values[f"{kind}_latency"]
        )
    if issue == "scalar":
        return IssueCost(
            cause=cause, issue=wave, port=port, holds=values["scalar_issue"], result=values["scalar_latency"]
        )
    if issue == "branch":
        return IssueCost(cause=cause, issue=wave, port=port, holds=wave)
    queue: Queue = _QUEUES.get(issue, "")
    moved = 4 * LANES / local_bytes_per_clock * values["local_cycle"] if queue == "local" else 0.0
    return IssueCost(cause=cause, issue=wave * step.states, port=port, holds=wave, queue=queue, moved=moved)
