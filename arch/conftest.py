"""What the tests of all archs share; those of an arch that lies elsewhere have a `conftest.py` like this one."""

from kinfolk_amdgcn.testing.llvm import llvm

__all__ = ["llvm"]
