"""Loops of a program: an instruction that all ways to another pass, which leads back to it, and what lies between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from kinfolk_amdgcn.isa.step import Step


@attrs.frozen
class StepLoop:
    """Indices of the instruction that a loop is entered at, of the last one that leads back there, and of its body.

    Where `innermost`, no other loop is inside.
    """

    header: int
    latch: int
    body: frozenset[int]
    innermost: bool = True


def loops(steps: Sequence[Step]) -> tuple[StepLoop, ...]:
    """Return the loops in order of their headers; those with one header are one."""
    order = _reached(steps)
    before: dict[int, list[int]] = {number: [] for number in order}
    for number in order:
        for follower in _following(steps, number):
            before[follower].append(number)
    rank = {number: place for place, number in enumerate(order)}
    dominator = _dominators(order, rank, before)
    latches: dict[int, list[int]] = {}
    for number in order:
        for follower in _following(steps, number):
            if rank[follower] <= rank[number] and _dominates(follower, number, dominator):
                latches.setdefault(follower, []).append(number)
    found = [StepLoop(header, max(ends), _body(header, ends, before)) for header, ends in sorted(latches.items())]
    return tuple(attrs.evolve(each, innermost=not any(other.body < each.body for other in found)) for each in found)


def _following(steps: Sequence[Step], number: int) -> tuple[int, ...]:
    step = steps[number]
    if step.flow == "end":
        return ()
    after = (number + 1,) if number + 1 < len(steps) else ()
    if step.flow != "branch":
        return after
    return (step.target,) if step.taken is None else (step.target, *after)


def _reached(steps: Sequence[Step]) -> list[int]:
    """Return the instructions that can be reached, each before those that only it leads to (reverse postorder)."""
    done: list[int] = []
    seen = {0}
    stack = [(0, iter(_following(steps, 0)))]
    while stack:
        number, followers = stack[-1]
        for follower in followers:
            if follower not in seen:
                seen.add(follower)
                stack.append((follower, iter(_following(steps, follower))))
                break
        else:
            done.append(number)
            stack.pop()
    return done[::-1]


def _dominators(order: Sequence[int], rank: dict[int, int], before: dict[int, list[int]]) -> dict[int, int]:
    """Return of each instruction the nearest other one that all ways to it pass; of the first, itself.

    Source: Cooper, Harvey, Kennedy, "A simple, fast dominance algorithm".
    """
    found = {order[0]: order[0]}
    changed = True
    while changed:
        changed = False
        for number in order[1:]:
            new = -1
            for one in before[number]:
                if one in found:
                    new = one if new < 0 else _meeting(one, new, found, rank)
            if found.get(number) != new:
                found[number] = new
                changed = True
    return found


def _meeting(one: int, two: int, found: dict[int, int], rank: dict[int, int]) -> int:
    while one != two:
        while rank[one] > rank[two]:
            one = found[one]
        while rank[two] > rank[one]:
            two = found[two]
    return one


def _dominates(one: int, two: int, dominator: dict[int, int]) -> bool:
    while two != one and dominator[two] != two:
        two = dominator[two]
    return two == one


def _body(header: int, latches: list[int], before: dict[int, list[int]]) -> frozenset[int]:
    """Return the header and what leads to a latch without passing it."""
    body, left = {header}, list(latches)
    while left:
        number = left.pop()
        if number not in body:
            body.add(number)
            left.extend(before[number])
    return frozenset(body)
