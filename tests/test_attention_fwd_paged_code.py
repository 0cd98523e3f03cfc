"""What the kernels of pages are made of: accesses in the emitted loop, and what the compiled one waits for."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from kinfolk.ir.types import I32
from kinfolk.ir.value import Operation, walked
from kinfolk.plugins.composition import Composition, compose
from kinfolk.spec import Spec
from kinfolk_attention_fwd.dense.plan import dense_spec
from kinfolk_attention_fwd.kinds import Kind
from kinfolk_attention_fwd.paged.plan import gathered_spec, paged_spec
from kinfolk_runtime.artifact import compile_job, lower_spec
from kinfolk_runtime.inspection import inspect_spec
from kinfolk_runtime.toolchains.host import toolchain_for

ARCHS = ("gfx942", "gfx950")
KIND = Kind(head_size=128, head_size_v=128, dtype="bf16")
pytestmark = pytest.mark.needs("attention_fwd", "gfx942", "gfx950")


def matrix_operations(loop: Operation) -> int:
    return sum("mfma" in each.name for each in walked(loop.regions[0].operations))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(
    "changes", [{}, {"head_size_v": 192, "head_size": 192}, {"head_size_v": 256, "head_size": 256}], ids=str
)
def test_a_wave_asks_for_one_page_id_a_tile_and_has_one_view_of_it_per_tensor(arch: str, changes: Any) -> None:
    """In the loop over two tiles at a time that takes no mask: no id and no view a copy, whatever the page's size."""
    composition = compose("attention_fwd", arch)
    kernel = composition.emit(paged_spec(composition.arch, attrs.evolve(KIND, **changes)))
    loops = [each for each in walked(kernel.body.operations) if each.name == "core.for"]
    pair = max(loops, key=matrix_operations)
    assert (
        matrix_operations(pair) == 2 * sorted(map(matrix_operations, loops))[-2]
    )  # the masked one walks one at a time
    inner = pair.regions[0].operations
    assert sum(each.name == "core.view_load" and each.results[0].type == I32 for each in inner) == 2
    assert sum(each.name == "core.bound" for each in inner) == 4


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("changes", [{"tile_keys": 96}, {"tile_keys": 128, "waves": 4}], ids=str)
def test_a_tile_of_which_waves_stage_rows_of_several_pages_is_an_error(arch: str, changes: dict[str, int]) -> None:
    composition = compose("attention_fwd", arch)
    spec = paged_spec(composition.arch, KIND)
    assert not composition.validate_spec(spec)
    codes = {each.code for each in composition.validate_spec(attrs.evolve(spec, **changes))}
    assert "attention_fwd.paged.spec.tile_keys" in codes


@pytest.mark.compile
@pytest.mark.parametrize("arch", ARCHS)
def test_no_page_id_is_waited_for_until_nothing_is_on_its_way(arch: str) -> None:
    """The loop drains no queue more often than that over rows, which looks nothing up."""
    composition = compose("attention_fwd", arch)
    specs = dense_spec(composition.arch, KIND), paged_spec(composition.arch, KIND)
    rows, pages = (inspect_spec(composition, spec, "llvm22", mca=False) for spec in specs)
    assert rows.hot is not None and pages.hot is not None
    assert drains(pages) <= drains(rows)
    assert pages.scratch_ops == 0


def drains(found: Any) -> int:
    return sum(each.drains and "vmcnt" in each.waits for each in found.hot.instructions)


@pytest.mark.compile
@pytest.mark.parametrize("arch", ARCHS)
def test_no_scalar_is_parked_in_a_loop_over_tiles(arch: str) -> None:
    """As the spec of a window says of what the compiler parks; others park nothing."""
    composition = compose("attention_fwd", arch)
    spec = paged_spec(composition.arch, attrs.evolve(KIND, windowed=True))
    assert spec.reason_for("parked") is not None
    assert paged_spec(composition.arch, KIND).reason_for("parked") is None
    assert parked_in_loops(composition, spec) == []


def parked_in_loops(composition: Composition, spec: Spec) -> list[str]:
    """Return the moves to and from lanes in blocks that lie in a cycle with a matrix operation."""
    _, module = lower_spec(composition, spec, "llvm22")
    compiled = toolchain_for("llvm22").compile(compile_job(module, assembly=True))
    [function] = composition.arch.machine_code((compiled.assembly or "").encode(), given={})
    blocks = function.blocks
    reach = np.zeros((len(blocks), len(blocks)), bool)
    for number, block in enumerate(blocks):
        reach[number, list(block.successors)] = True
    for _ in range(len(blocks).bit_length()):
        reach |= reach @ reach
    matrix = [number for number, block in enumerate(blocks) if any("mfma" in each.text for each in block.instructions)]
    cycles = (reach & reach.T)[:, matrix].any(axis=1)
    assert cycles.any()
    texts = [each.text for block, inside in zip(blocks, cycles, strict=True) if inside for each in block.instructions]
    return [text for text in texts if "v_writelane" in text or "v_readlane" in text]


@pytest.mark.parametrize("arch", ARCHS)
def test_pages_of_a_few_rows_have_a_kernel_whatever_is_asked_of_scores(arch: str) -> None:
    composition = compose("attention_fwd", arch)
    plain, windowed = (gathered_spec(composition.arch, attrs.evolve(KIND, windowed=each)) for each in (False, True))
    assert plain == windowed and plain.windowed
    assert not composition.validate_spec(plain)
    codes = {each.code for each in composition.validate_spec(attrs.evolve(plain, tile_keys=96))}
    assert "attention_fwd.paged.spec.tile_keys" in codes
