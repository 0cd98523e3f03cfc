"""A request under observation: which conditions were asked of it, and which launch fields Python read past them."""

from __future__ import annotations

import functools
from typing import Any, cast

from kinfolk.dispatch.interval import Observation
from kinfolk.expr import Expr, Scope, Value
from kinfolk.request import Request, launch_names


class Observer:
    """Collects what a selection depended on beyond the selection key."""

    def __init__(self) -> None:
        self.observations: list[Observation] = []
        self.read: set[str] = set()

    def value_of(self, expr: Expr, scope: Scope) -> Value:
        """Evaluate and record an expression; its leaves are not counted as reads."""
        request = scope.request
        plain = getattr(request, "__kinfolk_request__", request)
        unobserved = Scope(request=plain, arch=scope.arch, tensors=scope.tensors)
        value = expr.value_in(unobserved)
        self.observations.append(Observation(expr, value, unobserved))
        return value

    def settled(self, since: int) -> None:
        """Drop the observations from position `since` on: what they decided is certain without them."""
        del self.observations[since:]


_MARKS = ("__kinfolk_request__", "__kinfolk_observer__")


@functools.cache
def _watched_type(kind: type[Request]) -> type[Request]:
    """Return a subclass whose instances stand for a request and report launch fields read in Python."""
    launch = frozenset(launch_names(kind))

    def getattribute(self: object, name: str) -> Any:
        if name in _MARKS:
            return object.__getattribute__(self, name)
        if name == "__class__":
            return kind  # so that equality, evolve and isinstance see the request's own class
        if name in launch or name == "__dict__":
            read = launch if name == "__dict__" else (name,)
            cast("Observer", object.__getattribute__(self, "__kinfolk_observer__")).read.update(read)
        return object.__getattribute__(self, name)

    namespace: dict[str, Any] = {
        "__slots__": _MARKS,
        "__getattribute__": getattribute,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__attrs_attrs__": cast("Any", kind).__attrs_attrs__,
    }
    return cast("type[Request]", type(kind.__name__, (kind,), namespace))


def observer_of(request: Request) -> Observer:
    """Return who observes a request; of an unobserved one, an observer that nobody asks."""
    return cast("Observer | None", getattr(request, "__kinfolk_observer__", None)) or Observer()


def watched(request: Request, observer: Observer) -> Request:
    """Return a stand-in for `request` that reports to `observer`; it validates nothing, the request did."""
    kind = type(request)
    twin = object.__new__(_watched_type(kind))
    for field in cast("Any", kind).__attrs_attrs__:
        object.__setattr__(twin, field.name, getattr(request, field.name))
    object.__setattr__(twin, "__kinfolk_request__", request)
    object.__setattr__(twin, "__kinfolk_observer__", observer)
    return twin
