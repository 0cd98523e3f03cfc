"""MLA decode on gfx950, through the emitter that serves every arch: what it uses, what it costs, what it gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pytest

from kinfolk.ir import Kernel, build_kernel
from kinfolk.ir.meaning import Matrix, MemoryAccess
from kinfolk.ir.op import OpDef
from kinfolk.ir.ops import lanes, memory
from kinfolk.ir.types import BF16, PointerType
from kinfolk.ir.value import Value
from kinfolk.parameters import Parameter
from kinfolk.plugins.composition import Composition, compose
from kinfolk.tile.transposed import TransposedOperand
from kinfolk.tile.workgroup_tile import WorkgroupTile
from kinfolk_amdgcn.target import parse_target_id
from kinfolk_mla.decode.kernel import emit_decode
from kinfolk_mla.decode.limits import PAGE_SIZE
from kinfolk_mla.decode.plan import SCHEDULES, decode_spec, decode_specs
from kinfolk_mla.request import MlaRequest
from kinfolk_mla.spec import MlaDecodeSpec
from kinfolk_runtime.simulator.engine import Simulator
from kinfolk_runtime.spec_space import gated
from kinfolk_runtime.verify import verify

pytestmark = pytest.mark.needs("mla", "gfx950")

Array = npt.NDArray[Any]
LATENT_WINDOWS = 512 // 16
REQUEST = MlaRequest(
    num_heads=128,
    num_seqs=3,
    total_q=3,
    max_seqlen_q=1,
    max_seqlen_k=100,
    absorbed_query=True,
    page_size=16,
    num_pages=21,
    dtype="bf16",
    kv_dtype="bf16",
    causal=True,
    scale=192**-0.5,
)


@pytest.fixture(scope="module")
def composition() -> Composition:
    return compose("mla", "gfx950")


def emitted(composition: Composition) -> Kernel:
    spec, *_ = decode_specs(composition.arch, "llvm22")
    assert isinstance(spec, MlaDecodeSpec) and not spec.idle_waves
    return composition.emit(spec)


def counted(kernel: Kernel) -> Counter[str]:
    return Counter(op.name for op in kernel.walk())


def test_the_kernel_uses_what_the_arch_declares(composition: Composition) -> None:
    ops = counted(emitted(composition))
    assert ops["gfx950.mfma_f32_16x16x32_bf16"] == (512 + 64) // 32
    assert ops["gfx950.mfma_f32_16x16x16_bf16"] == LATENT_WINDOWS
    assert ops["gfx950.transpose_read_16"] == LATENT_WINDOWS
    assert ops["gfx950.narrow_bf16"] == 2 + LATENT_WINDOWS * 2  # pairs: the weights, then the output
    assert ops["core.byte_permute"] == ops["core.fptrunc"] == 0


def test_without_the_roles_it_takes_the_other_way(composition: Composition) -> None:
    """The control: nothing but the declaration of roles makes the difference."""
    bare = counted(emit_decode(decode_spec(), attrs.evolve(composition.arch, roles={})))
    assert bare["gfx950.transpose_read_16"] == bare["gfx950.narrow_bf16"] == 0
    assert bare["core.byte_permute"] == 2 + 2 * LATENT_WINDOWS
    assert bare["gfx950.mfma_f32_16x16x32_bf16"] == 18


@pytest.mark.compile
def test_the_whole_space_of_specs_keeps_its_budget(composition: Composition) -> None:
    *rows, _ = gated(decode_specs(composition.arch, "llvm22"), "llvm22", composition=composition)
    types, units, idle = ("bf16", "f8E4M3FN"), (PAGE_SIZE, 1), (False, True)
    assert len(rows) == len(types) * len(units) * len(idle)
    for row in rows:
        assert row.kernel is not None and not row.refusals, row
        usage = row.kernel.usage
        assert (usage.scratch_bytes, usage.scratch_ops, usage.figure("parked")) == (0, 0, 0)
        assert usage.figure("vgpr") <= 256 and usage.figure("agpr") == 0
        assert usage.figure("workgroups_per_cu") == 2
        assert usage.figure("lds_bytes") * 2 <= composition.arch.lds_bytes
        assert parse_target_id(usage.target).processor == "gfx950"


@pytest.mark.compile
def test_a_schedule_that_spills_is_refused(composition: Composition) -> None:
    """The control: the gate sees a schedule that reads too far ahead."""
    (schedule, _) = (schedule for _, schedule in SCHEDULES)
    spec = decode_spec(schedule=attrs.evolve(schedule, key_read_ahead=8, parked_query_reads=0))
    (row,) = gated([spec], "llvm22", composition=composition)
    assert {refusal.field for refusal in row.refusals} >= {"scratch_bytes", "scratch_ops"}


@pytest.mark.simulate
@pytest.mark.compile
def test_every_scenario_passes() -> None:
    report = verify(REQUEST, "gfx950")
    assert report.status == "pass", report
    assert len(report.scenarios) >= 11 and all(each.outputs for each in report.scenarios)


@pytest.mark.simulate
@pytest.mark.compile
@pytest.mark.parametrize("heads", [16, 80])
def test_waves_without_heads_are_no_matter(heads: int) -> None:
    report = verify(attrs.evolve(REQUEST, num_heads=heads), "gfx950", scenarios=["ragged", "spike", "bad_pages"])
    assert report.status == "pass", report


# The transposed operand on this arch, atom by atom.


def transposed(shape: Matrix, tile_rows: int, columns: int, elements: Mapping[str, OpDef]) -> tuple[Array, Array]:
    """Return the fragments of every window of a tile of element numbers, [fragments, 64, slots], and that tile."""
    data = np.arange(tile_rows * columns, dtype=np.uint16)
    count = columns // shape.m

    def body(source: Value, target: Value) -> None:
        lane = lanes.lane_id()
        tile = WorkgroupTile.allocate(BF16, tile_rows, columns, 8)
        for row in range(tile_rows):
            for start in range(0, columns, 64):
                element = memory.load(memory.offset(source, lane + (row * columns + start)))
                tile.store(lane, element, 1, row=row, column=start)
        operand = TransposedOperand.of(tile, shape)
        assert (operand.reader is None) == (not elements)
        address, slots, number = operand.address(), shape.a.slots, 0
        for window in range(columns // operand.window):
            for fragment in operand.fragments(operand.read(address, window)):
                memory.store(memory.offset(target, lane * slots + number * 64 * slots), fragment)
                number += 1
        assert number == count

    arch = attrs.evolve(compose("mla", "gfx950").arch, roles=elements)
    parameters = [
        Parameter(name=name, type=PointerType(BF16), alignment=16, access="readwrite") for name in ("source", "target")
    ]
    kernel = build_kernel("k", parameters, arch=arch, block=64, body=body)
    found = np.zeros((count, 64, shape.a.slots), np.uint16)
    Simulator().launch(kernel, (1, 1, 1), [data, found])
    return found, data.reshape(tile_rows, columns)


@pytest.mark.parametrize("m, k", [(16, 16), (16, 32), (32, 8), (32, 16)])
def test_a_transposing_read_gives_operand_a_of_every_atom(composition: Composition, m: int, k: int) -> None:
    shape = composition.arch.matrix.find(m=m, n=m, k=k, a="bf16").shape
    found, tile = transposed(shape, k, 64, composition.arch.roles)
    for number, fragment in enumerate(found):
        assert np.array_equal(fragment, tile[shape.a.columns, m * number + shape.a.rows])


def test_an_exchange_that_does_not_give_the_operand_is_not_used(composition: Composition) -> None:
    """The control: an op in the role whose exchange moves nothing is no way to transpose."""
    still = attrs.evolve(
        composition.arch.roles["transpose_read_16"],
        meaning=MemoryAccess("workgroup", "load", lambda size, lane, component: (lane, component)),
    )
    arch = attrs.evolve(composition.arch, roles={"transpose_read_16": still}, ops=(still,))
    shape = composition.arch.matrix.find(m=16, n=16, k=16, a="bf16").shape

    def body() -> None:
        assert TransposedOperand.of(WorkgroupTile.allocate(BF16, 16, 64, 8), shape).reader is None

    build_kernel("k", [], arch=arch, block=64, body=body)
