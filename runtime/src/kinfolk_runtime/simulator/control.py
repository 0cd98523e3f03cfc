"""Which lanes run, and where waves wait: loops, branches, barriers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from kinfolk.ir.numpy_lanes import Array
from kinfolk_runtime.simulator.wave import Stops, Wave

if TYPE_CHECKING:
    from kinfolk.ir.value import Operation

MOST_BACK_EDGES: Final = 1 << 22
"""The rounds that the loops of a workgroup may begin after their first ones, between two barriers."""
Step = Callable[[Wave], None]
Stop = Callable[[Wave], Stops]
Body = tuple[list[tuple[list[Step], Stop]], list[Step]]
"""A region: runs of plain steps, each followed by a step that may stop, then the plain steps of the end."""
Made = tuple[Step | None, Stop | None]


def run(segments: list[tuple[list[Step], Stop]], tail: list[Step], wave: Wave) -> Stops:
    """Run a region that may stop."""
    for steps, stop in segments:
        for step in steps:
            step(wave)
        yield from stop(wave)
    for step in tail:
        step(wave)


def meeting_place(op: Operation) -> Hashable:
    """Return what waves that meet at barriers have in common: the place they name, or the barrier itself."""
    return op.attributes.get("place", op)


def _go_round(w: Wave, op: Operation) -> None:
    """Count a further round against the limit of the run."""
    group = w.group
    group.rounds += 1
    if group.round_limit is not None and group.rounds > group.round_limit:
        w.fail(op, "limit", past_the_limit(group.round_limit))


def past_the_limit(round_limit: int) -> str:
    """Return what a workgroup does whose loops take more rounds than the run allows."""
    return (
        f"goes round too often: the workgroup's loops begin more than {round_limit} further rounds, the limit of this "
        f"run (round_limit={round_limit} of the simulator)"
    )


def barrier(op: Operation) -> Stop:
    """Return the step of a barrier: the wave stops here with all its lanes active."""

    def stop(w: Wave) -> Stops:
        if not w.full and "sync" in w.group.sanitize:
            idle = np.flatnonzero(~w.mask)
            w.fail(op, "sync", "is reached while some lanes of the wave are inactive", idle)
        yield op

    return stop


def loop(
    op: Operation,
    sources: Sequence[int],
    targets: Sequence[int],
    arguments: Sequence[int],
    body: Body,
    yields: Sequence[int],
) -> Made:
    """Return the step of a loop; its bounds and step are equal on all active lanes, or that is a fault."""
    lower, upper, stride = sources[:3]
    initial, carried, counter = sources[3:], arguments[1:], arguments[0]
    segments, tail = body

    def bounds(w: Wave) -> range:
        step = w.integer(op, stride, "step")
        if step < 1:
            w.fail(op, "argument", f"takes a step of {step}, at least 1 is needed")
        rounds = range(w.integer(op, lower, "lower bound"), w.integer(op, upper, "upper bound"), step)
        if rounds and rounds[-1] + step >= 1 << 31 and "integer" in w.group.sanitize:
            w.fail(op, "integer", f"counts past 2^31 - 1: the last round has index {rounds[-1]}, the step is {step}")
        return rounds

    def go_back(w: Wave, edges: int) -> None:
        """Count back edges of the workgroup since its waves last met; a limit of the run is reached before theirs."""
        if w.group.round_limit is not None and w.group.round_limit <= MOST_BACK_EDGES:
            return
        w.group.back_edges += edges
        if w.group.back_edges > MOST_BACK_EDGES and "sync" in w.group.sanitize:
            w.fail(
                op,
                "sync",
                f"goes round for ever, as it seems: the workgroup's loops begin more than {MOST_BACK_EDGES} further "
                f"rounds with no barrier between. A wave cannot wait for another one in a loop; where so many rounds "
                f"are meant, run without the sanitizer sync",
            )

    def enter(w: Wave, index: int, values: list[Any]) -> None:
        r = w.registers
        r[counter] = np.array([[index]], np.int32).view(np.uint32)
        for slot, value in zip(carried, values, strict=True):
            r[slot] = value

    def leave(w: Wave, values: list[Any]) -> None:
        for slot, value in zip(targets, values, strict=True):
            w.registers[slot] = value

    def plain(w: Wave) -> None:
        r = w.registers
        values = [r[slot] for slot in initial]
        rounds = bounds(w)
        if len(rounds) > 1:
            go_back(w, len(rounds) - 1)
        for index in rounds:
            if index != rounds[0]:
                _go_round(w, op)
            enter(w, index, values)
            for step in tail:
                step(w)
            values = [r[slot] for slot in yields]
        leave(w, values)

    def stopping(w: Wave) -> Stops:
        r = w.registers
        values = [r[slot] for slot in initial]
        rounds = bounds(w)
        for index in rounds:
            if index != rounds[0]:
                go_back(w, 1)
                _go_round(w, op)
            enter(w, index, values)
            yield from run(segments, tail, w)
            values = [r[slot] for slot in yields]
        leave(w, values)

    return (None, stopping) if segments else (plain, None)


def branch(
    op: Operation, condition: int, targets: Sequence[int], bodies: Sequence[Body], yields: Sequence[Sequence[int]]
) -> Made:
    """Return the step of a branch. Lanes may part; a side that no lane takes is skipped; results join by lane."""
    then, otherwise = bodies

    def sides(w: Wave) -> tuple[Array, bool, bool]:
        asked: Array = w.registers[condition]
        taken = w.mask & asked[0]
        some = bool(taken.any())
        return taken, some, int(np.count_nonzero(taken)) != len(w.lanes)

    def take(w: Wave, side: int) -> None:
        r = w.registers
        for target, slot in zip(targets, yields[side], strict=True):
            r[target] = r[slot]

    def join(w: Wave, taken: Array) -> None:
        r = w.registers
        for target, a, b in zip(targets, yields[0], yields[1], strict=True):
            r[target] = _joined(w, op, taken, r[a], r[b])

    def plain(w: Wave) -> None:
        taken, some, rest = sides(w)
        if not (some and rest):
            for step in bodies[0 if some else 1][1]:
                step(w)
            take(w, 0 if some else 1)
            return
        before = w.mask
        w.enter(taken)
        for step in then[1]:
            step(w)
        w.enter(before & ~taken)
        for step in otherwise[1]:
            step(w)
        w.enter(before)
        join(w, taken)

    def stopping(w: Wave) -> Stops:
        taken, some, rest = sides(w)
        if not (some and rest):
            yield from run(*bodies[0 if some else 1], w)
            take(w, 0 if some else 1)
            return
        before = w.mask
        w.enter(taken)
        yield from run(*then, w)
        w.enter(before & ~taken)
        yield from run(*otherwise, w)
        w.enter(before)
        join(w, taken)

    return (None, stopping) if then[0] or otherwise[0] else (plain, None)


def _joined(w: Wave, op: Operation, taken: Array, a: Any, b: Any) -> Any:
    if a is b:
        return a
    if isinstance(a, np.ndarray):
        return np.where(taken, cast("Array", a), b)
    if a == b:
        return a
    return w.fail(op, "uniformity", "joins two different views of lanes that parted")


def any_lane(source: int, target: int) -> Step:
    """Return the step that asks whether a condition holds on any active lane."""

    def step(w: Wave) -> None:
        asked: Array = w.registers[source]
        w.registers[target] = (asked & w.mask).any(axis=1, keepdims=True)

    return step


def uniform(op: Operation, source: int, target: int) -> Step:
    """Return the step that checks a claim: the operand is equal, bit for bit, on all active lanes."""

    def step(w: Wave) -> None:
        w.registers[target] = w.one(op, source, "operand claimed uniform")

    return step


__all__ = ["Body", "any_lane", "barrier", "branch", "loop", "meeting_place", "run", "uniform"]
