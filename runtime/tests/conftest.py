"""Small archs on which the simulator and the binder are tested: no family and no real arch is needed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinfolk.arch import Arch
from kinfolk.ir import Kernel, build_kernel
from kinfolk.ir.meaning import Matrix, MemoryAccess, OperandMap
from kinfolk.ir.op import AttributeDef, OpDef, effects
from kinfolk.ir.types import BF16, F32, PointerType, ScalarType, VectorType
from kinfolk.matrix import Atom, MatrixCatalog
from kinfolk.parameters import Parameter
from kinfolk_runtime.simulator import Simulator
from kinfolk_runtime.simulator.engine import ENGINES, Engine


def _importable(name: str) -> None:
    """Make a module beside the tests importable by name: test folders are no packages."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])


for _name in (
    "double_family",
    "engine_pair",
    "goldens_family",
    "observed_values",
    "random_kernels",
    "paged_sum",
    "workgroup_toy",
    "planted",
    "hip_toy",
):
    _importable(_name)


def _never(*_: Any) -> Any:
    raise AssertionError("nothing is lowered here")


def _transposed(wave_size: int, lane: Any, component: Any) -> Any:
    """Hand elements around in blocks of 4 lanes: a 4 by 4 transpose of (lane, component)."""
    return lane // 4 * 4 + component, lane % 4


def matrix_op(wave_size: int) -> OpDef:
    """Declare a 16x16x16 product of bf16: columns along the lanes, as many rows per lane as the wave size needs."""
    blocks = wave_size // 16
    lane, slot = np.meshgrid(np.arange(wave_size), np.arange(16 // blocks), indexing="ij")
    long, across = lane // 16 * (16 // blocks) + slot, lane % 16
    return OpDef(
        name="toy.multiply",
        operands=("a", "b", "c"),
        result=lambda types, _: (VectorType(F32, 16 // blocks),),
        issue="matrix",
        meaning=Matrix(
            16,
            16,
            16,
            BF16,
            BF16,
            F32,
            a=OperandMap(across, long),
            b=OperandMap(long, across),
            c=OperandMap(long, across),
        ),
        lowering=_never,
    )


TRANSPOSE = OpDef(
    name="toy.load_transposed",
    operands=("buffer", "index"),
    attributes=(AttributeDef("count", "int"),),
    result=lambda types, attributes: (VectorType(types[0].element, attributes["count"]),),
    effects=effects("reads"),
    issue="workgroup_memory",
    meaning=MemoryAccess("workgroup", "load", exchange=_transposed),
    lowering=_never,
)


class Toy:
    """An arch of one wave size, and short ways to build and run kernels on it."""

    transpose = TRANSPOSE

    def __init__(self, wave_size: int, engine: Engine = "fast") -> None:
        self.wave = wave_size
        self.engine: Engine = engine
        self.multiply = matrix_op(wave_size)
        self.arch = Arch(
            name=f"toy{wave_size}",
            target_ids=(f"toy{wave_size}",),
            wave_size=wave_size,
            facts={"lds_bytes": 4096, "max_workgroup_size": 256, "max_grid_x": 16, "max_grid_y": 4, "max_grid_z": 4},
            matrix=MatrixCatalog((Atom(self.multiply, 4),)),
            ops=(TRANSPOSE,),
            lower_kernel=_never,
            read_usage=_never,
        )

    def kernel(self, body: Callable[..., None], *parameters: Parameter, waves: int = 1) -> Kernel:
        """Build a kernel of so many waves per workgroup."""
        return build_kernel("toy_kernel", parameters, arch=self.arch, block=waves * self.wave, body=body)

    def run(
        self,
        kernel: Kernel,
        *arguments: Any,
        grid: Sequence[int] = (1, 1, 1),
        seed: int = 0,
        sanitize: str = "all",
    ) -> None:
        """Launch on the simulator."""
        x, y, z = grid
        simulator = Simulator(engine=self.engine, sanitize=sanitize)
        simulator.launch(kernel, (x, y, z), arguments, seed)


def pointer(name: str, element: ScalarType, access: Any = "read", alignment: int = 0) -> Parameter:
    """Declare a pointer parameter, aligned to its element or more."""
    return Parameter(name=name, type=PointerType(element), access=access, alignment=alignment or element.bytes)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Both engines."""
    return request.param


@pytest.fixture(params=[32, 64], ids=["wave32", "wave64"])
def toy(request: pytest.FixtureRequest, engine: Engine) -> Toy:
    """Both wave sizes, in both engines."""
    return Toy(request.param, engine)


@pytest.fixture(params=[32, 64], ids=["wave32", "wave64"])
def any_toy(request: pytest.FixtureRequest) -> Toy:
    """Both wave sizes, for tests that run both engines themselves."""
    return Toy(request.param)


@pytest.fixture
def toy64(engine: Engine) -> Toy:
    """Waves of 64, in both engines."""
    return Toy(64, engine)


@pytest.fixture
def reference64() -> Toy:
    """Waves of 64, in the reference engine."""
    return Toy(64, "reference")


@pytest.fixture
def declare() -> Callable[..., Parameter]:
    """How to declare a pointer parameter."""
    return pointer


@pytest.fixture
def run(toy64: Toy) -> Callable[..., Any]:
    """How to bind and run the plan of `paged_sum` on the toy arch."""
    from paged_sum import running

    return running(toy64)
