"""Which toolchain of this host compiles a flavor."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from kinfolk.errors import KinfolkError, ToolError
from kinfolk.fields import shown
from kinfolk.flavor import flavor_named
from kinfolk.plugins.containment import WrongAnswerError, contained
from kinfolk.plugins.loading import installed, load
from kinfolk_runtime.toolchains.base import Compiled, CompileJob, Toolchain
from kinfolk_runtime.toolchains.llc_toolchain import LlcToolchain
from kinfolk_runtime.toolchains.llvmlite_toolchain import LlvmliteToolchain

PREFERRED: Final = ("llvmlite", "llvmlite20")
"""The toolchains that are fixed to the version by what is installed with us: asked before a host's own."""

OURS: Final = (LlcToolchain, LlvmliteToolchain)
T = TypeVar("T")

_made: Final[dict[str, tuple[object, Toolchain]]] = {}


def named_toolchain(name: str) -> Toolchain:
    """Return the toolchain of an entry point, one per process, so that its workers are shared.

    Raises UnknownPlugin, UnusablePlugin, or HookFault where it makes no toolchain; whether its LLVM works shows when it
    is first asked for its build.
    """
    plugin = load("toolchain", name).plugin
    found = _made.get(name)
    if found is None or found[0] is not plugin:
        make = cast("Callable[[], Any]", plugin)
        made = contained(f"toolchain {name}", "entry point", make, take=_toolchain, passing=(KinfolkError,))
        found = _made[name] = plugin, made if type(made) in OURS else HostToolchain(name, made)
    return found[1]


def _toolchain(answer: Any) -> Toolchain:
    parts = ("name", "build", "flavors", "compile")
    if missing := [part for part in parts if inspect.getattr_static(answer, part, None) is None]:
        raise WrongAnswerError(f"gave {shown(answer)}, a toolchain has {', '.join(missing)}")
    return answer


def _build(answer: Any) -> str:
    if type(answer) is not str or not answer:
        raise WrongAnswerError(f"is {shown(answer)}, it is a str with exact versions")
    return answer


def _flavors(answer: Any) -> tuple[str, ...]:
    if type(answer) is not tuple or not all(isinstance(each, str) for each in cast("tuple[Any, ...]", answer)):
        raise WrongAnswerError(f"are {shown(cast('object', answer))}, they are a tuple of names")
    return cast("tuple[str, ...]", answer)


def _compiled(answer: Any) -> Compiled:
    if not isinstance(answer, Compiled) or type(cast("Any", answer).object) is not bytes:
        raise WrongAnswerError(f"returned {shown(answer)}, it returns a Compiled with the object's bytes")
    return answer


class HostToolchain:
    """A toolchain of another distribution; whatever it raises or answers wrongly is a HookFault that names it."""

    def __init__(self, name: str, inner: Toolchain) -> None:
        self.name = name
        self._inner = inner

    @property
    def build(self) -> str:
        """Exact versions."""
        return self._asked("build", lambda: self._inner.build, _build)

    @property
    def flavors(self) -> tuple[str, ...]:
        """The registered flavors it takes, oldest first."""
        return self._asked("flavors", lambda: self._inner.flavors, _flavors)

    def compile(self, job: CompileJob) -> Compiled:
        """Compile one kernel. Raises ToolError and HookFault."""
        return self._asked("compile", lambda: self._inner.compile(job), _compiled)

    def _asked(self, part: str, function: Callable[[], Any], take: Callable[[Any], T]) -> T:
        return contained(f"toolchain {self.name}", part, function, take=take, passing=(KinfolkError,))


def toolchain_for(flavor: str) -> Toolchain:
    """Return the toolchain of this host that compiles a flavor's LLVM IR.

    One whose own generation it is comes first, then one that serves it by rank; among those, ours, then by name.
    Raises UnknownFlavor for a name that is not registered, and ToolError that says what each installed toolchain takes,
    or why it cannot be used.
    """
    flavor_named(flavor)
    seen: list[str] = []
    serving: list[Toolchain] = []
    for name in sorted(installed("toolchain"), key=_order):
        try:
            toolchain = named_toolchain(name)
            taken = toolchain.flavors
        except KinfolkError as error:
            seen.append(f"{name} cannot be used: {str(error).removesuffix('.')}")
            continue
        if taken and flavor == taken[-1]:
            return toolchain
        if flavor in taken:
            serving.append(toolchain)
        seen.append(f"{name} takes {' and '.join(taken) or 'no flavor that is known'}")
    if serving:
        return serving[0]
    raise ToolError(
        f"no toolchain of this host compiles flavor {flavor}: {'; '.join(seen) or 'none is installed'}. "
        f"Install one of that LLVM generation, or dispatch for a flavor that is there"
    )


def _order(name: str) -> tuple[int, str]:
    return (PREFERRED.index(name) if name in PREFERRED else len(PREFERRED), name)
