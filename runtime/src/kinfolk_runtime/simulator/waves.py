"""The waves of one workgroup in the reference engine: each a generator that yields the barriers it stands at."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kinfolk_runtime.simulator.control import meeting_place
from kinfolk_runtime.simulator.fault import KernelFault, spans
from kinfolk_runtime.simulator.order import wave_order
from kinfolk_runtime.simulator.transfers import WorkgroupsRace
from kinfolk_runtime.simulator.wave import Wave

if TYPE_CHECKING:
    from kinfolk.ir.value import Operation
    from kinfolk_runtime.simulator.program import Program
    from kinfolk_runtime.simulator.workgroup import Workgroup


def run_workgroup(program: Program, group: Workgroup, template: list[Any], seed: int, place: int) -> None:
    """Run the waves of a workgroup from barrier to barrier, in an order drawn from `seed`, and judge each meeting."""
    runs: dict[int, Generator[Operation]] = {}
    waves: dict[int, Wave] = {}
    for index in range(program.block // program.wave_size):
        waves[index] = Wave(group, index, program.wave_size, template.copy(), program.memory_slots)
        runs[index] = program.start(waves[index])
    returned: list[int] = []
    round_ = 0
    while runs:
        stands: dict[int, Operation] = {}
        group.back_edges = 0
        order = [index for index in wave_order(seed, place, round_, len(waves)) if index in runs]
        for turn, index in enumerate(order):
            try:
                at = next(runs[index], None)
            except KernelFault as fault:
                if fault.kind == "initialisation" and group.races is not None:
                    _rather_race(group, [runs[later] for later in order[turn + 1 :]])
                raise
            if at is None:
                returned.append(index)
                _check_waited(waves[index])
            else:
                stands[index] = at
        runs = {index: runs[index] for index in sorted(stands)}
        if "sync" in group.sanitize:
            _check_meeting(group, stands, returned)
        if group.races is not None:
            group.races.meet(group)
        round_ += 1


def _rather_race(group: Workgroup, later: Sequence[Generator[Operation]]) -> None:
    """Raise a race instead of bytes that nobody has written, where a wave that has yet to run would write them.

    Which of the two shows would depend on the order of waves.
    """
    assert group.races is not None
    for run in later:
        with suppress(KernelFault, WorkgroupsRace):
            next(run, None)
    group.races.meet(group)


def _check_meeting(group: Workgroup, stands: Mapping[int, Operation], returned: Sequence[int]) -> None:
    """Raise unless all waves have returned, or all stand at one barrier or at barriers of one place."""
    barriers = list(dict.fromkeys(stands.values()))
    if not stands or (len({meeting_place(op) for op in barriers}) == 1 and not returned):
        return
    parties = [
        f"wave{'s' if len(at) > 1 else ''} {spans(at)} at the one of {op.location}"
        for op in barriers
        if (at := sorted(index for index, stand in stands.items() if stand is op))
    ]
    if returned:
        parties.append(f"wave{'s' if len(returned) > 1 else ''} {spans(sorted(returned))} returned without another")
    raise KernelFault(
        f"is not reached by all waves of the workgroup ({'; '.join(parties)})",
        kind="sync",
        kernel=group.kernel,
        op=barriers[0],
        workgroup=group.place,
        wave=min(stands),
    )


def _check_waited(wave: Wave) -> None:
    """Raise where a wave ends with stagings on their way."""
    if not wave.pending or "sync" not in wave.group.sanitize:
        return
    first = wave.pending[0]
    unit = int(first.places.flat[0]) if first.places.size else 0  # all may be outside
    byte = first.allocation.begin + unit * first.units.dtype.itemsize
    name, element = wave.group.element_at(byte)
    more = f" and {len(wave.pending) - 1} after it" if len(wave.pending) > 1 else ""
    wave.fail(
        first.op,
        "sync",
        f"to element {element} of {name}{more} is never waited for: the wave ends with it on its way",
        first.lanes,
        address=byte,
        buffer=name,
        element=element,
    )
