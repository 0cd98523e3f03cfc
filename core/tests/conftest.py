"""What the tests of core share."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def samples() -> ModuleType:
    """The kernels of `ir_samples.py`, which lies beside the tests and is no package."""
    if "ir_samples" not in sys.modules:
        spec = importlib.util.spec_from_file_location("ir_samples", Path(__file__).with_name("ir_samples.py"))
        module = importlib.util.module_from_spec(spec)
        sys.modules["ir_samples"] = module
        spec.loader.exec_module(module)
    return sys.modules["ir_samples"]
