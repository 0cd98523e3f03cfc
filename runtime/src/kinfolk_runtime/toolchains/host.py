"""Which toolchain of this host compiles a flavor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from kinfolk.errors import KinfolkError, ToolError
from kinfolk.flavor import flavor_named
from kinfolk.plugins.loading import installed, load
from kinfolk_runtime.toolchains.base import Toolchain

PREFERRED: Final = ("llvmlite", "llvmlite20")
"""The toolchains that are fixed to the version by what is installed with us: asked before a host's own."""

_made: Final[dict[object, Toolchain]] = {}


def named_toolchain(name: str) -> Toolchain:
    """Return the toolchain of an entry point, one per process, so that its workers are shared.

    Raises UnknownPlugin or UnusablePlugin; whether its LLVM works shows when it is first asked for its build.
    """
    made = load("toolchain", name).plugin
    found = _made.get(made)
    return found or _made.setdefault(made, cast("Callable[[], Toolchain]", made)())


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
            seen.append(f"{name} cannot be used: {error}")
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
