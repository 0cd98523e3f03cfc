"""The one way in which code of plugins is called: whatever it raises becomes an error that names plugin and call.

What it prints meanwhile is not the answer of a command (`inside_plugin`), and what it was lent must be as it was.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar, cast

import attrs

from kinfolk.errors import IRError, PluginError
from kinfolk.fields import shown
from kinfolk.plugins.faults import HookFault, sentence_of

T = TypeVar("T")
PASSING: Final[tuple[type[BaseException], ...]] = (IRError, PluginError)
"""Errors that say by themselves whose fault they are; the call is noted on them."""

_depth = threading.local()


class WrongAnswerError(Exception):
    """Code of a plugin answered with something that its contract does not allow."""


def inside_plugin() -> bool:
    """Return whether this thread is in code of a plugin."""
    return getattr(_depth, "calls", 0) > 0


class entered:  # noqa: N801 - used as a statement
    """A context in which this thread counts as being in code of a plugin."""

    def __enter__(self) -> None:
        _depth.calls = getattr(_depth, "calls", 0) + 1

    def __exit__(self, *_: object) -> None:
        _depth.calls -= 1


def contained(
    plugin: object,
    call: str,
    function: Callable[..., Any],
    *arguments: Any,
    take: Callable[[Any], T],
    passing: tuple[type[BaseException], ...] = PASSING,
    package: str = "",
) -> T:
    """Call a plugin's function and return its answer as `take` checks it.

    Raises HookFault, naming `plugin` and `call`, whatever the plugin raises, SystemExit included, where it answers what
    `take` refuses (WrongAnswerError), and where it changes an attrs object among `arguments`, which is then restored.
    Errors of the classes `passing` are raised as they are with a note. A KeyboardInterrupt is the user's. `package`
    says whose lines are named, by default those of the package that the function is of, unless it is one of ours.
    """
    lent = _Lent(arguments)
    try:
        with entered():
            answer = take(function(*arguments))
    except KeyboardInterrupt:
        raise
    except WrongAnswerError as error:
        raise HookFault(str(plugin), call, str(error)) from None
    except passing as error:
        error.add_note(f"in {call} of {plugin}")
        raise
    except BaseException as error:
        raise HookFault(str(plugin), call, f"raised {sentence_of(error, package or _package_of(function))}") from error
    finally:
        changes = lent.restore()
    if changes:
        raise HookFault(str(plugin), call, f"changed {changes}, which is not its own")
    return answer


_class_of: Final = cast("Callable[[object], type]", type)


def _package_of(function: object) -> str:
    package = str(getattr(function, "__module__", "") or "").partition(".")[0]
    return "" if package in ("kinfolk", "kinfolk_runtime") else package


class _Lent:
    """The attrs objects among some arguments, with the values of their fields."""

    def __init__(self, arguments: Iterable[Any]) -> None:
        self._held: list[tuple[object, tuple[str, ...], tuple[Any, ...]]] = []
        for argument in arguments:
            kind: type = _class_of(argument)
            if "__attrs_attrs__" in kind.__dict__:
                self._hold(argument, _names(kind))
                plain: object = getattr(argument, "__kinfolk_request__", argument)
                if plain is not argument:
                    self._hold(plain, _names(_class_of(plain)))

    def _hold(self, thing: object, names: tuple[str, ...]) -> None:
        self._held.append((thing, names, tuple(object.__getattribute__(thing, name) for name in names)))

    def restore(self) -> str:
        """Put back every value that was exchanged; return what it was, or nothing."""
        told: list[str] = []
        for thing, names, values in self._held:
            for name, value in zip(names, values, strict=True):
                found = _value(thing, name)
                if found is not value:
                    object.__setattr__(thing, name, value)
                    kind = getattr(thing, "__class__", type(thing)).__name__
                    told.append(f"{kind}.{name} from {shown(value)} to {shown(found)}")
        return " and ".join(dict.fromkeys(told))


@functools.cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in cast("Any", kind).__attrs_attrs__)


def _value(thing: object, name: str) -> object:
    try:
        return object.__getattribute__(thing, name)
    except AttributeError:
        return attrs.NOTHING


def bounded(items: Iterable[T], most: int = 100_000) -> Iterator[T]:
    """Yield a plugin's items; WrongAnswerError where there is no end of them."""
    for count, item in enumerate(items):
        if count >= most:
            raise WrongAnswerError(f"gave more than {most} items")
        yield item


def guard(cls: type, checks: Mapping[str, Callable[[Any], Any]]) -> None:
    """Contain the methods of these names that a class defines itself; each check takes what the method answered."""
    for name, check in checks.items():
        found = cls.__dict__.get(name)
        function = cast("Any", found).__func__ if isinstance(found, classmethod) else found
        if function is None or getattr(function, "__kinfolk_guarded__", False):
            continue
        guarded = _guarded(cls, name, cast("Callable[..., Any]", function), check)
        setattr(cls, name, classmethod(guarded) if isinstance(found, classmethod) else guarded)


def _guarded(cls: type, name: str, function: Callable[..., Any], check: Callable[[Any], Any]) -> Callable[..., Any]:
    package = cls.__module__.partition(".")[0]

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        return contained(
            package,
            f"{cls.__name__}.{name}",
            lambda: function(*arguments, **named),
            take=check,
            package=package,
        )

    cast("Any", call).__kinfolk_guarded__ = True
    return call
