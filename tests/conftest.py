"""Fixtures for what crosses distributions: the checkout's root, and the modules of `.ci`, which are no package."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def ci_module() -> Callable[[str], ModuleType]:
    """Return a loader of the modules of `.ci` by name."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"kinfolk_ci_{name}", ROOT / ".ci" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
        return module

    return load
