"""What kinfolk does on the host: compile a plan, bind tensors to it, run it on an executor.

Every name below is imported when it is first used, so that importing this package loads neither numpy nor LLVM.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinfolk_runtime.artifact import Artifact, ArtifactError, CompiledKernel
    from kinfolk_runtime.binder import bind, call  # pyright: ignore
    from kinfolk_runtime.bundles import load_bundle
    from kinfolk_runtime.compilation import compile, compile_specs  # noqa: A004
    from kinfolk_runtime.runner import Runner

__all__ = [
    "Artifact",
    "ArtifactError",
    "CompiledKernel",
    "Runner",
    "bind",
    "call",
    "compile",
    "compile_specs",
    "load_bundle",
]

_MODULES = {
    "Artifact": "artifact",
    "ArtifactError": "artifact",
    "CompiledKernel": "artifact",
    "Runner": "runner",
    "bind": "binder",
    "call": "binder",
    "compile": "compilation",
    "compile_specs": "compilation",
    "load_bundle": "bundles",
}


def __getattr__(name: str) -> Any:
    """Import what `name` stands for; an unknown name is an AttributeError as in any module."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
