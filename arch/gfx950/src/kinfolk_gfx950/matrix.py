"""The matrix atoms of gfx950, from `matrix_table.json`: the one table that simulator, lowering and proofs share."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

from kinfolk.matrix import MatrixCatalog
from kinfolk_amdgcn import mfma


@cache
def matrix_catalog() -> MatrixCatalog:
    """Return every dense atom with one block. The 8-bit floats of this arch are the OCP ones."""
    table = json.loads((files("kinfolk_gfx950") / "matrix_table.json").read_text(encoding="utf-8"))
    atoms = mfma.atoms(table["atoms"], dialect="gfx950", wave_size=table["wave_size"], source=table["source"])
    return MatrixCatalog(atoms)
