"""GPU kernel families as plugins: `dispatch(request, arch, flavor)` picks a kernel, `why` says why this one.

Every name below is imported when it is first used, so that `import kinfolk` costs nothing and loads no plugin.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kinfolk._version import __version__

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.candidate import Candidate
    from kinfolk.dispatch import dispatch, why
    from kinfolk.errors import (
        BindError,
        IllegalOp,
        InternalError,
        IRError,
        KinfolkError,
        NoCandidate,
        PinRefused,
        PluginError,
        Refused,
        SimulationError,
        ToolError,
    )
    from kinfolk.hooks import hookimpl
    from kinfolk.plan import Plan
    from kinfolk.plugins.composition import compose
    from kinfolk.plugins.loading import register
    from kinfolk.refusal import Limit, Refusal
    from kinfolk.request import Request
    from kinfolk.spec import Spec

__all__ = [
    "Arch",
    "BindError",
    "Candidate",
    "IRError",
    "IllegalOp",
    "InternalError",
    "KinfolkError",
    "Limit",
    "NoCandidate",
    "PinRefused",
    "Plan",
    "PluginError",
    "Refusal",
    "Refused",
    "Request",
    "SimulationError",
    "Spec",
    "ToolError",
    "__version__",
    "compose",
    "dispatch",
    "hookimpl",
    "register",
    "why",
]

_MODULES = {
    "Arch": "kinfolk.arch",
    "Candidate": "kinfolk.candidate",
    "Limit": "kinfolk.refusal",
    "Plan": "kinfolk.plan",
    "Refusal": "kinfolk.refusal",
    "Request": "kinfolk.request",
    "Spec": "kinfolk.spec",
    "compose": "kinfolk.plugins.composition",
    "dispatch": "kinfolk.dispatch",
    "hookimpl": "kinfolk.hooks",
    "register": "kinfolk.plugins.loading",
    "why": "kinfolk.dispatch",
}


def __getattr__(name: str) -> Any:
    """Import what `name` stands for; an unknown name is an AttributeError as in any module."""
    if name not in __all__:
        raise AttributeError(f"module 'kinfolk' has no attribute {name!r}")
    module = importlib.import_module(_MODULES.get(name, "kinfolk.errors"))
    if name == "dispatch":
        return sys.modules[__name__].__dict__["dispatch"]
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _CallableModule(ModuleType):
    """`kinfolk.dispatch` is a module and, under the same name, the function that the module is about."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.dispatch(*args, **kwargs)

    @property
    def __signature__(self) -> Any:
        from inspect import signature

        return signature(self.dispatch)


class _Package(ModuleType):
    """Make `kinfolk.dispatch(...)` work whichever of function and module was asked for first.

    The import system stores an imported submodule as an attribute of its package, which would hide the function.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name == "dispatch" and type(value) is ModuleType:
            value.__class__ = _CallableModule
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
