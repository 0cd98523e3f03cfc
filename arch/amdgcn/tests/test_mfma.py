"""Rows of a table of matrix atoms: what is refused, and what only published data can tell."""

from __future__ import annotations

import pytest

from kinfolk.errors import InternalError
from kinfolk_amdgcn import mfma
from kinfolk_amdgcn.testing.atoms import DENSE, disagreements


@pytest.mark.parametrize("damage", [{"run": 3}, {"run": 8}, {"lane_axis": "diagonal"}])
def test_a_row_whose_lanes_do_not_cover_the_operand_is_refused(damage):
    good = {"type": "f32", "word": "<16 x float>", "lane_axis": "column", "run": 4}
    narrow = {"type": "bf16", "word": "<4 x i16>", "run": 4}
    row = {"name": "mfma_test", "m": 32, "n": 32, "k": 8, "passes": 8, "intrinsic": "llvm.amdgcn.mfma.test"}
    row |= {"a": narrow | {"lane_axis": "row"}, "b": narrow | {"lane_axis": "column"}}
    settings = {"dialect": "test", "wave_size": 64, "source": "none"}
    assert mfma.atom(row | {"c": good}, **settings).shape.c.slots == 16
    if damage == {"run": 8}:  # another true layout: it covers, and only the published mapping can tell that it is wrong
        assert disagreements(mfma.atom(row | {"c": good | damage}, **settings).shape, DENSE["mfma_f32_32x32x8_bf16"])
        return
    with pytest.raises(InternalError):
        mfma.atom(row | {"c": good | damage}, **settings)
