"""Tests that every AMD arch owes, to be subclassed in the tests of an arch; needs pytest (`kinfolk-amdgcn[testing]`).

from kinfolk_amdgcn.testing.archs import ArchTests            facts, gates, and a kernel to its code object
from kinfolk_amdgcn.testing.atoms import AtomTests            every matrix atom, lane by lane
from kinfolk_amdgcn.testing.legality import LegalityTests     every call of every op, against what was measured
from kinfolk_amdgcn.testing.llvm import llvm                  the fixture they compile with, for a conftest.py
"""

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in ("archs", "atoms", "kernels", "legality")))
