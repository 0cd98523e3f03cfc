"""What a loop carries or a branch gives, as one object: an attrs class, a list or a tuple of values, nested at will.

Loops and branches take flat lists; this is the one place that flattens and rebuilds. What is no value (None, a number,
a string) stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

import attrs

from kinfolk.errors import IRError
from kinfolk.ir.ops import control
from kinfolk.ir.value import Value

State = TypeVar("State")


def flattened(state: object) -> list[Value]:
    """Return the values of a state, in the order of its fields. Raises IRError for what is neither value nor made of
    them, naming its type.
    """
    if isinstance(state, Value):
        return [state]
    if isinstance(state, list | tuple):
        return [value for part in cast("Sequence[object]", state) for value in flattened(part)]
    if attrs.has(type(state)):
        return [value for field in attrs.fields(type(state)) for value in flattened(getattr(state, field.name))]
    if state is None or isinstance(state, int | float | str):
        return []
    raise IRError(f"a state is made of values, lists, tuples and attrs classes, got a {type(state).__name__}")


def rebuilt(like: State, values: Sequence[Value]) -> State:
    """Return a state of the shape of `like` that holds `values`. Raises IRError where their number is another."""
    left = iter(values)
    try:
        found = _filled(like, left)
    except StopIteration:
        raise IRError(f"a {type(like).__name__} holds {len(flattened(like))} values, got {len(values)}") from None
    if next(left, None) is not None:
        raise IRError(f"a {type(like).__name__} holds {len(flattened(like))} values, got {len(values)}")
    return cast("State", found)


def _filled(like: Any, values: Iterator[Value]) -> Any:
    if isinstance(like, Value):
        return next(values)
    if isinstance(like, list | tuple):
        parts = [_filled(part, values) for part in cast("Sequence[Any]", like)]
        return parts if isinstance(like, list) else tuple(parts)
    kind = cast("type[Any]", type(like))
    if attrs.has(kind):
        fields = attrs.fields(kind)
        return attrs.evolve(like, **{field.alias: _filled(getattr(like, field.name), values) for field in fields})
    return like


def loop(lower: Value | int, upper: Value | int, start: State, body: Callable[[Value, State], State]) -> State:
    """Run `body(index, state)` for index = lower, lower + 1, ... below upper (signed i32); return the last state."""
    values = control.for_range(
        lower, upper, 1, flattened(start), lambda index, now: flattened(body(index, rebuilt(start, now)))
    )
    return rebuilt(start, values)


def branch(condition: Value, then: Callable[[], State], otherwise: Callable[[], State], *, cold: bool = False) -> State:
    """Run one of two branches, lane by lane, and return its state, of the same shape. `cold`: rarely taken."""
    given: list[State] = []

    def kept(do: Callable[[], State]) -> Callable[[], Sequence[Value]]:
        def run() -> Sequence[Value]:
            given.append(do())
            return flattened(given[-1])

        return run

    values = control.if_else(condition, kept(then), kept(otherwise), cold=cold)
    return rebuilt(given[-1], values)
