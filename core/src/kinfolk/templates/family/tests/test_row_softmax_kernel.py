"""The kernel on the simulator, with waves of 32 and of 64; and faults planted in it, each of which must be seen."""

import itertools

import numpy as np
import pytest

from kinfolk.arch import Arch
from kinfolk.check import SparseArray, compare, poison
from kinfolk.errors import SimulationError
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control
from kinfolk.ir.types import F32
from kinfolk.matrix import MatrixCatalog
from kinfolk.tile.reduction import across_lanes
from kinfolk.tile.softmax import RowState, mask_scores
from kinfolk_row_softmax import kernel as kernel_module
from kinfolk_row_softmax.kernel import RowWalk, emit_row_softmax
from kinfolk_row_softmax.reference import row_softmax_findings, row_softmax_reference
from kinfolk_row_softmax.request import RowSoftmaxRequest
from kinfolk_row_softmax.row import Row
from kinfolk_row_softmax.scenarios import row_softmax_scenarios
from kinfolk_row_softmax.spec import DTYPES, RowSoftmaxSpec
from kinfolk_runtime.simulator import Simulator, SparseBuffer


def arch(wave_size):
    return Arch(
        name=f"plain{wave_size}",
        target_ids=(),
        wave_size=wave_size,
        facts={},
        matrix=MatrixCatalog(()),
        lower_kernel=lambda *given: pytest.fail("lowered"),
        read_usage=lambda *given: pytest.fail("read"),
    )


def findings(request, x, kernel):
    """Return what is wrong with a kernel's outputs."""
    given = SparseBuffer(x.nbytes, x.ranges()) if isinstance(x, SparseArray) else x
    y, lse = poison(request.dtype, x.shape), poison("f32", x.shape[:1])
    stride = x.strides[0] // x.itemsize
    Simulator().launch(kernel, (request.rows, 1, 1), [given, y, lse, request.scale, request.columns, stride])
    expected = row_softmax_reference(request, {"x": x})
    outputs = {"y": y, "lse": lse}
    dtypes = {"y": request.dtype, "lse": "f32"}
    compared = [compare(name, dtypes[name], output, expected[name]).findings for name, output in outputs.items()]
    return [*itertools.chain(*compared), *row_softmax_findings(request, outputs)]


def run(dtype="f32", wave_size=64, waves=4, only=None):
    """Return the findings of each scenario that has any."""
    request = RowSoftmaxRequest(rows=4, columns=777, dtype=dtype, scale=0.7)
    kernel = emit_row_softmax(RowSoftmaxSpec(dtype=dtype, waves=waves), arch(wave_size))
    found = {
        scenario.name: findings(scenario.request, scenario.inputs()["x"], kernel)
        for scenario in row_softmax_scenarios(request)
        if only in (None, scenario.name)
    }
    assert found
    return {name: wrong for name, wrong in found.items() if wrong}


@pytest.mark.simulate
@pytest.mark.parametrize("wave_size", [32, 64])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_scenario_is_right(dtype, wave_size):
    assert run(dtype, wave_size) == {}


@pytest.mark.simulate
@pytest.mark.parametrize(("waves", "wave_size"), [(1, 64), (2, 32), (8, 32)])
def test_any_number_of_waves_is_right(waves, wave_size):
    assert run("bf16", wave_size, waves) == {}


@pytest.mark.simulate
@pytest.mark.parametrize("columns", [1, 2, 3, 31, 32, 33, 511, 512, 513])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_lengths_around_lanes_and_steps(dtype, columns):
    """Rows lie next to each other: the words that two rows share belong to both."""
    request = RowSoftmaxRequest(rows=3, columns=columns, dtype=dtype, scale=1.0)
    x = poison(dtype, (3, columns))
    x[...] = np.random.default_rng(columns).normal(size=x.shape)
    kernel = emit_row_softmax(RowSoftmaxSpec(dtype=dtype, waves=4), arch(32))
    assert findings(request, x, kernel) == []


def test_the_loop_asks_for_no_more_than_it_needs():
    """Workgroup memory is two numbers a wave, and one barrier keeps writers and readers apart."""
    kernel = emit_row_softmax(RowSoftmaxSpec(dtype="f32", waves=4), arch(64))
    names = [op.name for op in kernel.walk()]
    assert names.count("core.barrier") == 1
    [allocated] = [op for op in kernel.walk() if op.name == "core.allocate"]
    assert allocated.results[0].type.bytes == 4 * 2 * 4
    assert kernel.block == 256


# ------------------------------------------------------------------------------------------------ planted faults


def mask_moved(by):
    return lambda scores, columns, count: mask_scores(scores, columns, count + by)


def no_exchange(partials, softmax, state):
    return RowState(state.maximum, across_lanes(state.total, softmax.masks, arithmetic.fadd))


def maximum_of_zero(self, state, scores):
    return RowState(constant(0.0, F32), state.total)


def never_scaled_down(self, state, scores):
    highest = self.softmax.tile_maximum(scores)
    return RowState(arithmetic.fmax(state.maximum, highest), state.total)


def masks_without_the_widest(wave_size):
    return tuple(1 << bit for bit in range(wave_size.bit_length() - 2))


def masks_with_one_twice(wave_size):
    return (1, *(1 << bit for bit in range(wave_size.bit_length() - 2)))


# Where each is planted, and how it is seen: by wrong numbers, or by the simulator as an access that must not be.
FAULTS = {
    "mask one too many": (kernel_module, "mask_scores", mask_moved(1), "values"),
    "mask one too few": (kernel_module, "mask_scores", mask_moved(-1), "values"),
    "row one too long": (Row, "holds", lambda self, column: column <= self.columns, "access"),
    "no exchange of waves": (kernel_module, "exchanged", no_exchange, "values"),
    "no maximum": (RowWalk, "_raised", maximum_of_zero, "values"),
    "no rescale": (RowWalk, "_raised", never_scaled_down, "values"),
    "a lane mask missing": (kernel_module, "wave_masks", masks_without_the_widest, "values"),
    "a lane mask twice": (kernel_module, "wave_masks", masks_with_one_twice, "values"),
}


@pytest.mark.simulate
@pytest.mark.parametrize(("owner", "name", "fault", "seen"), FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_is_seen(monkeypatch, owner, name, fault, seen):
    monkeypatch.setattr(owner, name, fault)
    if seen == "access":
        with pytest.raises(SimulationError, match="between the rows of x"):
            run("bf16", wave_size=32)
    else:
        assert run("f32", wave_size=32)


@pytest.mark.simulate
def test_a_missing_barrier_is_a_race(monkeypatch):
    monkeypatch.setattr(control, "barrier", lambda: None)
    with pytest.raises(SimulationError, match="with no barrier between"):
        run(only="unit")


@pytest.mark.simulate
def test_the_fault_that_is_none_is_not_seen(monkeypatch):
    """Control of the control: replacing a part by itself finds nothing."""
    monkeypatch.setattr(kernel_module, "mask_scores", mask_moved(0))
    assert run(only="block_plus_one") == {}
