"""Every op on registers as compiled: the machine code of each gives what its declaration says.

Kernels and operands are those in which both engines of the simulator are compared; the simulator runs the IR, the
executor of machine code what LLVM made of it. Which of two NaNs goes on is nobody's, as there.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from kinfolk.plugins.loading import load
from kinfolk.testing.op_cases import cases
from kinfolk_runtime.artifact import compile_job
from kinfolk_runtime.isa import MachineExecutor
from kinfolk_runtime.simulator import Simulator
from kinfolk_runtime.toolchains.host import toolchain_for

pytestmark = [pytest.mark.compile, pytest.mark.simulate, pytest.mark.needs("gfx942", "gfx950")]

NOT_COMPILED = {"core.opaque": "LLVM does not compile all of its cases"}
QUIETED = {"core.fneg": "LLVM negates two f32 by v_pk_add_f32, which makes a signalling NaN a quiet one"}
ARCHS = {name: load("arch", name).plugin.kinfolk_arch() for name in ("gfx942", "gfx950")}
OPS = {f"{name}:{op.name}": (arch, op) for name, arch in ARCHS.items() for op in arch.op_table}
KEYS = [key for key, (arch, op) in OPS.items() if cases(arch, op) and op.name not in NOT_COMPILED]


@pytest.fixture
def engines(sibling: Callable[[str], ModuleType]) -> ModuleType:
    """Return the module with the kernels of ops and what compares two runs of one."""
    return sibling("test_engines_every_op")


@pytest.mark.parametrize("flavor", ["llvm20", "llvm22"])
@pytest.mark.parametrize("key", KEYS)
def test_machine_code_of_an_op_gives_what_is_declared(
    engines: ModuleType, monkeypatch: pytest.MonkeyPatch, key: str, flavor: str
) -> None:
    arch, op = OPS[key]
    if op.name in QUIETED:
        monkeypatch.setattr(engines, "COMPUTED", {*engines.COMPUTED, op.name.removeprefix("core.")})
    bench = engines.Bench(arch, cases(arch, op))
    module = arch.lower(bench.kernel, None, int(flavor.removeprefix("llvm")))
    code = toolchain_for(flavor).compile(compile_job(module)).object
    simulated, ran = bench.arguments(3, masked=True), bench.arguments(3, masked=True)
    Simulator().launch(bench.kernel, (1, 1, 1), simulated)
    MachineExecutor().launch(code, module.symbol, arch, (1, 1, 1), 64, bench.kernel.parameters, ran)
    assert engines.differing(bench, [(simulated, None), (ran, None)]) == []


def test_a_result_that_differs_in_a_bit_is_seen(engines: ModuleType) -> None:
    arch, op = OPS["gfx942:core.add"]
    bench = engines.Bench(arch, cases(arch, op))
    once, again = bench.arguments(3, masked=True), bench.arguments(3, masked=True)
    again[list(bench.sizes).index("out_i32")][5] ^= 1
    assert len(engines.differing(bench, [(once, None), (again, None)])) == 1


@pytest.mark.parametrize("name", sorted(QUIETED))
def test_what_is_told_of_nan_is_so(engines: ModuleType, name: str) -> None:
    """Where a NaN comes out another one it says why above; without that, the difference is seen."""
    arch, op = OPS[f"gfx942:{name}"]
    bench = engines.Bench(arch, cases(arch, op))
    module = arch.lower(bench.kernel, None, 22)
    code = toolchain_for("llvm22").compile(compile_job(module)).object
    simulated, ran = bench.arguments(3, masked=True), bench.arguments(3, masked=True)
    Simulator().launch(bench.kernel, (1, 1, 1), simulated)
    MachineExecutor().launch(code, module.symbol, arch, (1, 1, 1), 64, bench.kernel.parameters, ran)
    assert engines.differing(bench, [(simulated, None), (ran, None)])
