"""Selections that are kept: a request that differs only in launch values is looked up, and nobody is asked again."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final, cast

import attrs

from kinfolk.dispatch.composed import Composed
from kinfolk.dispatch.interval import Range, holding
from kinfolk.dispatch.select import chosen
from kinfolk.dispatch.watch import Observer, watched
from kinfolk.expr import I64_MAX, I64_MIN
from kinfolk.expr.node import Field
from kinfolk.fields import is_launch
from kinfolk.flavor import flavor_named
from kinfolk.plan import Domain, Plan
from kinfolk.record import fields_of
from kinfolk.request import Request, launch_names

_PER_KEY: Final = 16


@attrs.frozen(kw_only=True)
class Selection:
    """A plan and where it holds: `ranges` for launch fields that conditions read, `exact` for those that Python read.

    A launch field in neither may have any value. `plan` is the one of the request that was judged.
    """

    plan: Plan
    ranges: tuple[tuple[str, int, int], ...]
    exact: tuple[tuple[str, Any], ...]
    composition: Composed

    def covers(self, request: Request) -> bool:
        """Return whether the selection holds for a request of the same selection key."""
        for name, low, high in self.ranges:
            if not low <= getattr(request, name) <= high:
                return False
        for name, value in self.exact:
            found = getattr(request, name)
            if type(found) is not type(value) or found != value:
                return False
        return True

    def interval(self, name: str) -> Range | None:
        """Return the range of an integer launch field; None where only equality was established."""
        for found, low, high in self.ranges:
            if found == name:
                return Range(low, high)
        return None if any(found == name for found, _ in self.exact) else Range(I64_MIN, I64_MAX)


_class_of: Final = cast("Callable[[object], type]", type)


def _classes(values: object) -> Hashable:
    """Return the classes of a selection key's values: True is no 1, and what is no int was never validated."""
    if type(values) is not tuple:
        return _class_of(values)
    return tuple(map(_class_of, cast("tuple[object, ...]", values)))


@functools.cache
def _launch_checks(kind: type[Request]) -> tuple[tuple[Any, str, Callable[..., None]], ...]:
    fields = (field for field in fields_of(kind) if is_launch(field))
    return tuple((field, field.name, cast("Callable[..., None]", field.validator)) for field in fields)


def _expect_launch_values(request: Request) -> None:
    """Raise what construction raises where launch fields were changed into values that the class does not take."""
    for field, name, validator in _launch_checks(type(request)):
        validator(request, field, getattr(request, name))
    request.check()


def select(composition: Composed, request: Request, flavor: str) -> Selection:
    """Judge every candidate and return the choice with the intervals in which it holds.

    Raises PinRefused or NoCandidate with every reason, and what construction raises for a request that was changed into
    one that its class does not take. Touches no device, file, clock or environment.
    """
    request.revalidate()
    observer = Observer()
    verdict = chosen(composition, watched(request, observer), flavor_named(flavor))
    judged = cast("Plan", verdict.plan).with_request(request)
    values = {name: getattr(request, name) for name in launch_names(type(request))}
    # Only integers have ranges; a flag or a float that anything read is matched exactly.
    leaves = (leaf for seen in observer.observations for leaf in seen.expr.leaves())
    asked = {leaf.name for leaf in leaves if isinstance(leaf, Field)}
    exact = {name for name in values if name in observer.read or (name in asked and type(values[name]) is not int)}
    moving = {name: value for name, value in values.items() if name in asked and name not in exact}
    box = holding(observer.observations, moving)
    fixed = (field.name for field in fields_of(type(request)) if field.name not in values)
    domain = Domain(
        key=tuple((name, getattr(request, name)) for name in fixed),
        ranges=tuple((name, found.low, found.high) for name, found in box.items()),
        exact=tuple((name, values[name]) for name in values if name in exact),
    )
    plan = judged.within(domain)
    return Selection(plan=plan, ranges=domain.ranges, exact=domain.exact, composition=composition)


class SelectionCache:
    """The most recently used selections; `size` bounds the selection keys, each with a few intervals."""

    def __init__(self, size: int = 1024) -> None:
        self._size = size
        self._entries: OrderedDict[Hashable, tuple[Selection, ...]] = OrderedDict()
        self._lock = threading.Lock()
        self.hits = self.misses = 0

    def __len__(self) -> int:
        return len(self._entries)

    def selection(self, composition: Composed, request: Request, flavor: str) -> Selection:
        """Return a kept selection that covers the request, else judge it and keep the result."""
        # One composition object per set of plugins, kept alive by its selections: its id is its identity.
        fixed = cast("Hashable", request.selection_key())
        key: Hashable = (type(request), fixed, _classes(fixed), composition.arch.name, flavor, id(composition))
        try:
            hash(key)
        except TypeError:
            request.revalidate()
            raise
        with self._lock:
            kept = self._entries.get(key, ())
            if kept:
                _expect_launch_values(request)  # the other fields are equal to some that were validated
            for selection in kept:
                if selection.covers(request):
                    self._entries.move_to_end(key)
                    self.hits += 1
                    return selection
            self.misses += 1
        made = select(composition, request, flavor)
        with self._lock:
            self._entries[key] = (made, *self._entries.get(key, ()))[:_PER_KEY]
            self._entries.move_to_end(key)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)
        return made

    def plan(self, composition: Composed, request: Request, flavor: str) -> Plan:
        """Return the plan of a request; of a kept selection, without judging or checking anything again."""
        return self.selection(composition, request, flavor).plan.with_request(request)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()
            self.hits = self.misses = 0
