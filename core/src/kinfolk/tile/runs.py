"""Rounds with and without mask work from one body: the runs of a walk over tiles, one behind the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.state import State, branch, loop
from kinfolk.tile.unrolled import unrolled_loop


@attrs.frozen(kw_only=True, eq=False)
class Run:
    """Rounds from `begin` to below `end` (signed i32, equal on all lanes), all `masked` or none.

    `single`: there is at most one, which is a branch instead of a loop. `unrolled`: two at a time.
    """

    begin: Value | int
    end: Value | int
    masked: bool
    single: bool = False
    unrolled: bool = False


def walk(runs: Sequence[Run], start: State, body: Callable[[Value, State, bool], State]) -> State:
    """Walk the runs in order and return the last state; `body(index, state, masked)` builds a round of each.

    `masked` is known when the kernel is built: a round without it has no mask work. State passes from run to run, what
    was read ahead included.
    """
    state = start
    for run in runs:
        state = _walked(run, state, body)
    return state


def _walked(run: Run, start: State, body: Callable[[Value, State, bool], State]) -> State:
    def round_(index: Value, state: State) -> State:
        return body(index, state, run.masked)

    if run.single:
        begin = _value(run.begin)
        return branch(begin < run.end, lambda: round_(begin, start), lambda: start)
    return (unrolled_loop if run.unrolled else loop)(run.begin, run.end, start, round_)


def edges_and_interior(
    begin: Value | int, whole_begin: Value | int, whole_end: Value | int, end: Value | int
) -> tuple[Run, Run, Run]:
    """Return the runs from `begin` to `end` with mask work outside of `whole_begin` to `whole_end`.

    Those two may lie anywhere, also the wrong way round: every round is in one run, and an interior that is none is
    left to the edges.
    """
    first, last = _value(begin), _value(end)
    low = arithmetic.smin(arithmetic.smax(_value(whole_begin), first), arithmetic.smax(last, first))
    high = arithmetic.smin(arithmetic.smax(_value(whole_end), low), arithmetic.smax(last, low))
    return (
        Run(begin=first, end=low, masked=True),
        Run(begin=low, end=high, masked=False),
        Run(begin=high, end=last, masked=True),
    )


def _value(bound: Value | int) -> Value:
    return constant(bound, I32) if isinstance(bound, int) else bound
