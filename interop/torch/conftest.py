"""Operators of the families, and the outputs of the two small problems, made once."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def attention():
    from kinfolk_runtime.torch import operator

    return operator("attention_fwd")


@pytest.fixture(scope="session")
def mla():
    from kinfolk_runtime.torch import operator

    return operator("mla")
