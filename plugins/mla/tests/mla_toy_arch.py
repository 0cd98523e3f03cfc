"""An arch for tests of limits: facts and atoms, of which nothing is lowered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kinfolk.arch import Arch, Facts
from kinfolk.ir.meaning import Matrix, OperandMap
from kinfolk.ir.op import OpDef
from kinfolk.ir.types import F32, SCALARS
from kinfolk.matrix import Atom, MatrixCatalog


def atoms(*types: str, k: int = 16, sizes: Sequence[int] = (16,)) -> MatrixCatalog:
    """Return a catalog of square atoms of some types; where their elements lie does not matter here."""
    where = OperandMap(np.zeros((64, 4), np.int64), np.zeros((64, 4), np.int64))

    def atom(name: str, size: int) -> Atom:
        meaning = Matrix(size, size, k, SCALARS[name], SCALARS[name], F32, where, where, where)
        name = f"toy.{name}_{size}"
        return Atom(OpDef(name=name, result=lambda *_: (), issue="matrix", meaning=meaning, lowering=print), 4)

    return MatrixCatalog(tuple(atom(name, size) for name in types for size in sizes))


def arch(*, roles: Iterable[str] = (), **changes: Any) -> Arch:
    """Return the arch with some of its parts changed, and with an op in each of some roles."""
    grid = {"max_grid_x": 2**31 - 1, "max_grid_y": 65535, "max_grid_z": 65535, "max_workgroup_size": 1024}
    facts = {"compute_units": 304, "lds_bytes": 65536, "simds_per_cu": 4, "vgprs_per_simd": 512, **grid}
    parts = {"name": "toy", "target_ids": ("toy",), "wave_size": 64, "facts": facts, "matrix": atoms("bf16", "f16")}
    made = Arch(**(parts | {"lower_kernel": None, "read_usage": None} | changes))
    object.__setattr__(made, "roles", dict.fromkeys(roles))  # no op: nothing here builds one
    object.__setattr__(made, "facts", Facts(dict(made.facts), made.wave_size, made.matrix, roles))
    return made
