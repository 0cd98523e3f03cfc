"""Small kernels for the analyses: built for an arch that exists on paper."""

from collections.abc import Callable

import numpy as np
import pytest

from kinfolk.analysis import ANALYSES, Subject, analyse
from kinfolk.arch import Arch
from kinfolk.ir import build_kernel
from kinfolk.ir.meaning import Matrix, MemoryAccess, OperandMap
from kinfolk.ir.op import AttributeDef, OpDef, effects
from kinfolk.ir.types import F32, I32, I64, PointerType, VectorType
from kinfolk.ir.value import Kernel
from kinfolk.matrix import MatrixCatalog
from kinfolk.parameters import Parameter

WAVE = 64
NOWHERE = OperandMap(np.zeros((WAVE, 4), np.int64), np.zeros((WAVE, 4), np.int64))


def never(*_):
    raise AssertionError("nothing is lowered here")


def turned(wave_size, lane, component):
    return (lane + 1) % wave_size, component


PRODUCT = OpDef(
    name="paper.product",
    operands=("a", "b", "c"),
    result=lambda types, _: (types[2],),
    effects=effects("convergent"),
    issue="matrix",
    meaning=Matrix(16, 16, 16, F32, F32, F32, NOWHERE, NOWHERE, NOWHERE),
    lowering=never,
)
TURNED_LOAD = OpDef(
    name="paper.turned_load",
    operands=("buffer", "index"),
    attributes=(AttributeDef("offset", "int", default=0), AttributeDef("alignment", "int", default=8)),
    result=lambda types, _: (VectorType(types[0].element, 2),),
    effects=effects("reads", "convergent"),
    meaning=MemoryAccess("workgroup", "load", turned),
    lowering=never,
)
PAPER = Arch(
    name="paper",
    target_ids=("paper",),
    wave_size=WAVE,
    facts={"lds_bytes": 4096, "max_workgroup_size": 256, "max_grid_y": 65535},
    matrix=MatrixCatalog(()),
    ops=(PRODUCT, TURNED_LOAD),
    lower_kernel=never,
    read_usage=never,
)
GIVEN = (
    Parameter(name="table", type=PointerType(I32), alignment=4),
    Parameter(name="y", type=PointerType(I32), access="readwrite", alignment=16),
    Parameter(name="n", type=I32),
    Parameter(name="wide", type=I64),
)


@pytest.fixture(scope="session")
def paper() -> Arch:
    """The arch that exists on paper."""
    return PAPER


@pytest.fixture(scope="session")
def built() -> Callable[..., Kernel]:
    """Return a builder: `body` is given a value per parameter, by default `table`, `y`, `n` and `wide`."""

    def build(body, parameters=GIVEN, waves=2) -> Kernel:
        return build_kernel("k", parameters, arch=PAPER, block=waves * WAVE, body=body)

    return build


@pytest.fixture(scope="session")
def defects(built) -> Callable[..., tuple]:
    """Return what one analysis, by name, or all hold against a kernel made of a body."""

    def found(body, check=None, **given):
        kernel = built(body, **given)
        return ANALYSES[check](Subject(kernel=kernel, arch=PAPER)) if check else analyse(kernel, arch=PAPER)

    return found
