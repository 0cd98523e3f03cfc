"""Which toolchain of this host compiles a flavor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from kinfolk.errors import KinfolkError, ToolError
from kinfolk.plugins.loading import installed, load
from kinfolk_runtime.toolchains.base import Toolchain

_made: Final[dict[object, Toolchain]] = {}


def named_toolchain(name: str) -> Toolchain:
    """Return the toolchain of an entry point, one per process, so that its workers are shared.

    Raises UnknownPlugin or UnusablePlugin; whether its LLVM works shows when it is first asked for its build.
    """
    made = load("toolchain", name).plugin
    found = _made.get(made)
    return found or _made.setdefault(made, cast("Callable[[], Toolchain]", made)())


def toolchain_for(flavor: str) -> Toolchain:
    """Return the first installed toolchain, by name, that takes a flavor's LLVM IR.

    Raises ToolError that says what each installed one takes, or why it cannot be used.
    """
    seen: list[str] = []
    for name in installed("toolchain"):
        try:
            toolchain = named_toolchain(name)
            if flavor in toolchain.flavors:
                return toolchain
            seen.append(f"{name} takes {' and '.join(toolchain.flavors)}")
        except KinfolkError as error:
            seen.append(f"{name} cannot be used: {error}")
    raise ToolError(
        f"no toolchain of this host compiles flavor {flavor}: {'; '.join(seen) or 'none is installed'}. "
        f"Install one of that LLVM generation, or dispatch for a flavor that is there"
    )
