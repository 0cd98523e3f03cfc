"""Whether an object is the plugin it says it is: every hook known, every argument known, none missing.

All or nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Final

from kinfolk import hooks

PREFIX: Final = "kinfolk_"
_SPECS: Final[dict[str, tuple[str, ...]]] = {
    name: tuple(inspect.signature(value).parameters)
    for name, value in vars(hooks).items()
    if hasattr(value, "kinfolk_spec")
}
_HOOK_KINDS: Final = tuple(hooks.REQUIRED)


def takes_hooks(kind: str) -> bool:
    """Return whether plugins of a kind answer hooks; executors, toolchains and commands are objects of their own."""
    return kind in _HOOK_KINDS


def rejections(plugin: object, kind: str) -> tuple[str, ...]:
    """Return everything that keeps `plugin` from being one of `kind`, a sentence each; empty means that it is one."""
    if inspect.isclass(plugin):
        return (f"{plugin.__qualname__} is a class; name a module or an instance",)
    found: list[str] = []
    answered: set[str] = set()
    for name, function, options in _functions(plugin):
        hook = str((options or {}).get("specname") or name)
        difference = _difference(hook, function, options, kind)
        answered.add(hook)
        if difference:
            found.append(difference)
    found += [
        f"it does not implement {hook}, without which it is no {kind}"
        for hook in hooks.REQUIRED[kind]
        if hook not in answered
    ]
    if not answered:
        found.append("it implements no hook")
    return tuple(found)


def _functions(plugin: object) -> Iterator[tuple[str, Callable[..., object], dict[str, Any] | None]]:
    """Yield the functions of a plugin that are hooks by mark or by name, with the mark."""
    for name in dir(plugin):
        value = inspect.getattr_static(plugin, name, None)
        if isinstance(value, property):
            continue
        value = getattr(plugin, name, None)
        if not inspect.isroutine(value) or hasattr(value, "kinfolk_spec"):
            continue
        options = getattr(value, "kinfolk_impl", None)
        if options is not None or name.startswith(PREFIX):
            yield name, value, options


def _difference(hook: str, function: Callable[..., object], options: dict[str, Any] | None, kind: str) -> str:
    """Return how one function differs from the hook of its name, or nothing."""
    if hook not in _SPECS:
        return f"{hook} is not a hook; the hooks are {', '.join(sorted(_SPECS))}"
    if options is None:
        return f"{hook} is not marked with kinfolk.hookimpl, so it would never be asked"
    owner = hooks.RESERVED.get(hook, kind)
    if owner != kind:
        return f"{hook} is answered by a plugin of kind {owner} only, this is one of kind {kind}"
    special = [name for name in ("hookwrapper", "wrapper", "tryfirst", "trylast") if options.get(name)]
    if special:
        return f"{hook} uses {', '.join(special)}; a plugin neither wraps nor orders the answers of others"
    return _argument_difference(hook, function)


def _argument_difference(hook: str, function: Callable[..., object]) -> str:
    expected = _SPECS[hook]
    parameters = inspect.signature(function).parameters.values()
    written = ", ".join(str(parameter.replace(annotation=inspect.Parameter.empty)) for parameter in parameters)
    unknown = [parameter.name for parameter in parameters if parameter.name not in expected]
    plain = inspect.Parameter.POSITIONAL_OR_KEYWORD
    odd = [p.name for p in parameters if p.kind is not plain or p.default is not inspect.Parameter.empty]
    if unknown:
        what = f"unknown: {', '.join(unknown)}"
    elif odd:
        what = f"no defaults, keyword-only or variable arguments, found: {', '.join(odd)}"
    elif inspect.iscoroutinefunction(function):
        what = "it is a coroutine function and would never run"
    else:
        return ""
    return f"{hook} takes ({', '.join(expected)}), the plugin's takes ({written}): {what}"
