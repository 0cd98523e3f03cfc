"""What the tests of core share. Test folders are no packages, so modules beside the tests are made importable here."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _importable(name: str) -> ModuleType:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


for _name in ("dispatch_toy", "ir_evaluation", "ir_samples"):
    _importable(_name)


@pytest.fixture(scope="session")
def samples() -> ModuleType:
    """The kernels of `ir_samples.py`."""
    return _importable("ir_samples")


@pytest.fixture(scope="session")
def host() -> object:
    """The compiler for this host; only its users import it, with LLVM."""
    return _importable("ir_host").Host()
