"""A change of how lanes meet in a reduction: the same if, in the end, every lane has combined the same lanes.

A reduction across lanes is a chain: what a lane has, combined with what another has, and that again with a third. With
other partners the lanes that come together in between are others, not those in the end. Which they are is worked out
for every lane. A maximum is the same however often a lane is met; of a sum each lane must be met as often, and one of
floats is then added up in another order, which is no mistake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from kinfolk.errors import KinfolkError
from kinfolk.ir.meaning import LanePermutation
from kinfolk.ir.ops import arithmetic
from kinfolk.ir.value import Operation, Region, Value
from kinfolk.testing.mutation.mutant import Mutant
from kinfolk.testing.mutation.rewrite import Place

_IDEMPOTENT: Final = (
    arithmetic.fmax,
    arithmetic.fmin,
    arithmetic.smax,
    arithmetic.smin,
    arithmetic.umax,
    arithmetic.umin,
)
_COUNTED: Final = (arithmetic.add, arithmetic.fadd)
Met = list["Counter[int]"]
"""By lane, how often each lane is combined in it."""


def same_lanes_meet(mutant: Mutant) -> str:
    """Return why a changed exchange of a reduction changes nothing in its end; "" where that is not shown."""
    op = mutant.operation
    if not isinstance(op.definition.meaning, LanePermutation) or len(op.operands) != 1 or len(op.results) != 1:
        return ""
    chain = _chain(op, _users(mutant.original.body))
    place = Place(op, (), {op.operands[0]: op.operands[0]})
    try:
        (result,) = mutant.change.edit(place)
    except (KeyError, ValueError, KinfolkError):
        return ""
    if chain is None or len(place.operations) != 1 or result is not place.operations[0].results[0]:
        return ""
    size = mutant.original.wave_size
    (changed,) = place.operations
    before, after = (_met([instead if each is op else each for each in chain], size) for instead in (op, changed))
    if before is None or after is None:
        return ""
    (user,) = _users(mutant.original.body)[op.results[0]]
    if user.definition in _IDEMPOTENT:
        same = [set(each) for each in before] == [set(each) for each in after]
        return f"every lane is the {user.name.removeprefix('core.')} of the same lanes" if same else ""
    return "every lane is the sum of the same lanes" if before == after else ""


def _users(region: Region) -> dict[Value, list[Operation]]:
    users: dict[Value, list[Operation]] = {}
    for op in region.walk():
        for operand in op.operands:
            users.setdefault(operand, []).append(op)
    return users


def _chain(op: Operation, users: dict[Value, list[Operation]]) -> list[Operation] | None:
    """Return the exchanges of the reduction that an exchange is part of, in order; None where it is part of none."""
    combine = _combining(op, users)
    if combine is None:
        return None
    chain = [op]
    while (before := _exchange_of(chain[0].operands[0], combine, users)) is not None:
        chain.insert(0, before)
    while (after := _exchange_after(chain[-1], combine, users)) is not None:
        chain.append(after)
    return chain


def _combining(exchange: Operation, users: dict[Value, list[Operation]]) -> Operation | None:
    """Return the one use of what an exchange gives, if that combines it with what it was given."""
    using = users.get(exchange.results[0], [])
    if len(using) != 1 or using[0].definition not in (*_IDEMPOTENT, *_COUNTED):
        return None
    return using[0] if set(using[0].operands) == {exchange.operands[0], exchange.results[0]} else None


def _exchange_of(value: Value, like: Operation, users: dict[Value, list[Operation]]) -> Operation | None:
    """Return the exchange that a value was combined with, in a step of the same reduction that nothing else reads."""
    made = value.defining_op
    if made is None or made.definition is not like.definition or len(users[value]) != 2:
        return None
    exchanges = [operand.defining_op for operand in made.operands]
    found = [each for each in exchanges if each is not None and isinstance(each.definition.meaning, LanePermutation)]
    return next((each for each in found if len(each.operands) == 1 and _combining(each, users) is made), None)


def _exchange_after(exchange: Operation, like: Operation, users: dict[Value, list[Operation]]) -> Operation | None:
    combined = _combining(exchange, users)
    assert combined is not None
    for each in users.get(combined.results[0], []):
        following = _combining(each, users) if isinstance(each.definition.meaning, LanePermutation) else None
        if following is not None and following.definition is like.definition:
            return each if _exchange_of(each.operands[0], like, users) is exchange else None
    return None


def _met(chain: Sequence[Operation], size: int) -> Met | None:
    """Return which lanes are combined in each lane at the end of a chain; None where a lane is none of the wave."""
    met: Met = [Counter([lane]) for lane in range(size)]
    for exchange in chain:
        meaning = exchange.definition.meaning
        assert isinstance(meaning, LanePermutation)
        ((operand, lanes),) = meaning.sources(size, np.ones(size, np.bool_), **exchange.attributes)
        sources = np.broadcast_to(lanes, size).tolist()
        if np.any(operand) or min(sources) < 0 or max(sources) >= size:
            return None
        met = [met[lane] + met[sources[lane]] for lane in range(size)]
    return met
