"""The ops of gfx950 against published formulas and LLVM's instructions, on the simulator and in compiled code."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from kinfolk.errors import IRError, PluginError
from kinfolk.ir import build_kernel
from kinfolk.ir.ops import control, convert, lanes, memory
from kinfolk.ir.types import BF16, F16, F32, I8, I16, I32, PointerType, ScalarType, VectorType
from kinfolk.parameters import Parameter
from kinfolk.roles import ROLES, check_roles
from kinfolk_gfx950 import ops
from kinfolk_gfx950.plugin import PLUGIN
from kinfolk_runtime.simulator.engine import Simulator
from kinfolk_runtime.simulator.fault import KernelFault

# Triton's chooseDotDsReadB64TrLayout and Composable Kernel's Quad16 and Quad8: what lane L gets as element e.
PUBLISHED = {
    16: "src[16 * (L // 16) + 4 * e + (L % 16) // 4][L % 4]",
    8: "src[16 * (L // 16) + 2 * e + (L % 16) // 8][L % 8]",
}
READS = {16: ops.TRANSPOSE_READ_16, 8: ops.TRANSPOSE_READ_8}
ELEMENTS = {16: I16, 8: I8}


def kernel(body, *types, block=64, of=None):
    """Build a kernel whose parameters are pointers to `types`, the last one written."""
    parameters = [
        Parameter(name=f"p{index}", type=PointerType(type_), alignment=16, access="readwrite")
        for index, type_ in enumerate(types)
    ]
    return build_kernel("k", parameters, arch=of or PLUGIN.arch, block=block, body=body)


def ran(built, *arrays):
    Simulator().launch(built, (1, 1, 1), arrays)
    return arrays[-1]


def transposing(bits: int, count: int, permuted: bool = False):
    """Each lane loads its own 8 bytes, of element numbers, and stores what it then holds."""
    element = ELEMENTS[bits]

    def body(source, target):
        lane = lanes.lane_id()
        tile = memory.allocate(element, 64 * count)
        memory.workgroup_store(tile, lane * count, memory.load(memory.offset(source, lane * count), count=count))
        control.barrier()
        place = lane ^ 5 if permuted else lane
        memory.store(memory.offset(target, lane * count), READS[bits](tile, place * count))

    return kernel(body, element, element)


@pytest.mark.parametrize("bits", READS)
@pytest.mark.parametrize("permuted", [False, True])
def test_a_transposing_read_gives_what_is_published(bits, permuted):
    count = 64 // bits
    data = np.arange(64 * count).astype(f"u{bits // 8}").reshape(64, count)
    if bits == 8:
        data ^= np.arange(64, dtype=np.uint8)[:, None] << 2 & 0xFF  # 512 numbers in 256 values: make blocks differ
    src = data[np.arange(64) ^ 5] if permuted else data
    found = ran(transposing(bits, count, permuted), data.copy(), np.zeros_like(data))
    expected = [[eval(PUBLISHED[bits], {"src": src, "L": L, "e": e}) for e in range(count)] for L in range(64)]
    assert np.array_equal(found, expected)
    assert not np.array_equal(found, src), "the control: a plain read would give something else"


def test_the_other_rule_for_bytes_is_told_apart():
    """The control: the rule of a later arch, which one public emulator has for this one too."""
    lane, component = np.indices((64, 8))
    source, element = ops.TRANSPOSE_READ_8.meaning.exchange(64, lane, component)
    later = (16 * (lane // 16) + 8 * (component // 4) + 4 * (lane % 16 // 8) + component % 4, lane % 8)
    assert np.array_equal(element, later[1]) and not np.array_equal(source, later[0])


@pytest.mark.parametrize("bits", READS)
def test_a_block_is_transposed_by_addresses(bits):
    """Lanes pointed at row blocks of a tile of 16 columns end up with whole columns: lane l with column l % 16."""
    count = 64 // bits
    lane, component = np.indices((64, count))
    source, element = READS[bits].meaning.exchange(64, lane, component)
    row, column = source % 16 // (16 // count), source % (16 // count) * count + element
    assert (column == lane % 16).all() and (row == component).all()


@pytest.mark.compile
@pytest.mark.parametrize("bits", READS)
@pytest.mark.parametrize("generation", [20, 22])
def test_a_transposing_read_is_one_instruction(llvm, bits, generation):
    module = PLUGIN.arch.lower(transposing(bits, 64 // bits), None, generation)
    assert f"llvm.amdgcn.ds.read.tr{bits}.b64" in module.text
    if generation == 22:
        assembly = llvm.assembly(module)
        assert len(re.findall(rf"ds_read_b64_tr_b{bits} ", assembly)) == 1


def test_a_transposing_read_refuses_other_elements_and_addresses():
    def other(tile):
        return lambda source: READS[16](memory.allocate(tile, 256), lanes.lane_id()) and None

    with pytest.raises(IRError, match="transposes elements of 16 bits, got f32"):
        kernel(other(F32), F32)

    def claimed(source):
        READS[16](memory.allocate(BF16, 256), lanes.lane_id(), alignment=4)

    with pytest.raises(IRError, match="multiple of 8 bytes, alignment is 4"):
        kernel(claimed, F32)


def test_an_unaligned_transposing_read_and_inactive_lanes_are_faults():
    def body(source, target):
        lane = lanes.lane_id()
        tile = memory.allocate(I16, 512)
        memory.workgroup_store(tile, lane * 8, memory.load(memory.offset(source, lane * 8), count=8))
        memory.store(memory.offset(target, lane * 4), READS[16](tile, lane * 4 + 1))

    data = np.arange(512, dtype=np.uint16)
    with pytest.raises(KernelFault, match="no multiple of 8 bytes"):
        ran(kernel(body, I16, I16), data, np.zeros(256, np.uint16))

    def some(source, target):
        lane = lanes.lane_id()
        tile = memory.allocate(I16, 256)
        memory.workgroup_store(tile, lane * 4, memory.load(memory.offset(source, lane * 4), count=4))

        def read():
            memory.store(memory.offset(target, lane * 4), READS[16](tile, lane * 4))
            return ()

        control.if_else(lane < 40, read)

    with pytest.raises(KernelFault, match="inactive lane"):
        ran(kernel(some, I16, I16), data, np.zeros(256, np.uint16))


# Packed conversion.


def narrowing():
    def body(source, target):
        lane = lanes.lane_id()
        a, b = (memory.load(memory.offset(source, lane + 64 * half)) for half in (0, 1))
        memory.store(memory.offset(target, lane * 2), ops.NARROW_BF16(a, b))

    return kernel(body, F32, BF16)


def test_a_pair_is_narrowed_to_nearest_even():
    generator = np.random.default_rng(11)
    ties = (generator.integers(0, 1 << 15, 32, dtype=np.uint32) << 16 | 0x8000).view(np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, 1e-40, -3.4e38], np.float32)
    values = np.concatenate([ties, special, generator.standard_normal(128 - 38).astype(np.float32)])
    values[np.isnan(values)] = 1.0
    found = ran(narrowing(), values, np.zeros((64, 2), ml_dtypes.bfloat16))
    with np.errstate(over="ignore"):
        expected = values.reshape(2, 64).T.astype(ml_dtypes.bfloat16)
    assert np.array_equal(found.view(np.uint16), expected.view(np.uint16))


@pytest.mark.compile
def test_a_pair_is_narrowed_by_one_instruction(llvm):
    assembly = llvm.assembly(PLUGIN.arch.lower(narrowing(), None, 22))
    assert len(re.findall("v_cvt_pk_bf16_f32", assembly)) == 1
    assert "v_perm_b32" not in assembly and "v_bfe_u32" not in assembly


# Swaps.

# LLVM and the ISA document, by rows of 16 lanes: which of x and y, and which of its rows, each row of a result is.
ROWS = {
    16: ([("x", 0), ("y", 0), ("x", 2), ("y", 2)], [("x", 1), ("y", 1), ("x", 3), ("y", 3)]),
    32: ([("x", 0), ("x", 1), ("y", 0), ("y", 1)], [("x", 2), ("x", 3), ("y", 2), ("y", 3)]),
}
SWAPS = {16: ops.SWAP_16, 32: ops.SWAP_32}


def swapping(apart: int, element: ScalarType = I32):
    def body(source, target):
        lane = lanes.lane_id()
        x, y = (memory.load(memory.offset(source, lane + 64 * half)) for half in (0, 1))
        for number, value in enumerate(SWAPS[apart].add(x, y).results):
            memory.store(memory.offset(target, lane + 64 * number), value)

    return kernel(body, element, element)


@pytest.mark.parametrize("apart", SWAPS)
def test_a_swap_gives_the_rows_that_are_published(apart):
    data = np.arange(128, dtype=np.uint32).reshape(2, 4, 16) + 1000
    found = ran(swapping(apart), data.copy(), np.zeros_like(data))
    for result, rows in zip(found, ROWS[apart], strict=True):
        for row, (of, number) in zip(result, rows, strict=True):
            assert np.array_equal(row, data["xy".index(of)][number])


def test_a_swap_of_a_value_with_itself_brings_the_other_half():
    def body(source, target):
        x = memory.load(memory.offset(source, lanes.lane_id()))
        low, high = ops.SWAP_32.add(x, x).results
        memory.store(memory.offset(target, lanes.lane_id()), low + high)

    data = np.arange(64, dtype=np.uint32)
    assert np.array_equal(ran(kernel(body, I32, I32), data, np.zeros(64, np.uint32)), data + (data + 32) % 64)


@pytest.mark.compile
@pytest.mark.parametrize("apart", SWAPS)
@pytest.mark.parametrize("element", [I32, F32], ids=str)
def test_a_swap_is_one_instruction(llvm, apart, element):
    assembly = llvm.assembly(PLUGIN.arch.lower(swapping(apart, element), None, 22))
    assert len(re.findall(rf"v_permlane{apart}_swap_b32", assembly)) == 1


# Loads straight to workgroup memory.


def staging(count: int, *, through_view: bool, waits: bool = True, elements: int | None = None, element=BF16):
    """Lane l stages what lies at block 63 - l of the source, then reads block l of workgroup memory."""

    def body(source, target):
        lane = lanes.lane_id()
        tile = memory.allocate(element, 128 * count)
        index, start = (63 - lane) * count, lanes.wave_id() * (64 * count)
        if through_view:
            view = memory.bound(source, lane * 0 + (elements or 64 * count))
            ops.STAGE_VIEW.add(view, index, tile, start, count=count, offset=64 * count)
        else:
            ops.STAGE.add(memory.offset(source, index), tile, start, count=count, offset=64 * count)
        if waits:
            ops.WAIT_STAGED.add()
        control.barrier()
        held = memory.workgroup_load(tile, lane * count, count=count, offset=64 * count)
        memory.store(memory.offset(target, lane * count), held)

    return kernel(body, element, element)


@pytest.mark.parametrize("count", [2, 8])
@pytest.mark.parametrize("through_view", [True, False])
def test_staged_elements_lie_in_order_of_lanes(count, through_view):
    data = np.arange(64 * count).astype(ml_dtypes.bfloat16).view(np.uint16).reshape(64, count)
    data[:, 0] = np.arange(64)
    found = ran(staging(count, through_view=through_view), data.copy(), np.zeros_like(data))
    assert np.array_equal(found, data[::-1])


def test_what_lies_outside_the_view_is_staged_as_zero():
    data = np.arange(1, 513, dtype=np.uint16).reshape(64, 8)
    found = ran(staging(8, through_view=True, elements=40 * 8), data.copy(), np.zeros_like(data))
    expected = np.where(np.arange(64)[:, None] < 40, data, 0)[::-1]
    assert np.array_equal(found, expected)


def test_reading_before_the_wait_is_a_fault():
    data = np.ones((64, 8), np.uint16)
    with pytest.raises(KernelFault, match="has not been waited for"):
        ran(staging(8, through_view=True, waits=False), data, np.zeros_like(data))


def in_two_halves(outstanding: int, again: bool = False):
    """Stage two blocks, wait for all but `outstanding`, read the first block; with `again` it was written before."""

    def body(source, target):
        lane, zero = lanes.lane_id(), lanes.wave_id()
        tile = memory.allocate(F32, 512)
        if again:
            memory.workgroup_store(tile, lane * 4, memory.load(memory.offset(source, lane * 4), count=4))
            memory.workgroup_load(tile, lane * 4, count=4)
        for half in (0, 1):
            ops.STAGE.add(memory.offset(source, lane * 4), tile, zero, count=4, offset=256 * half)
        ops.WAIT_STAGED.add(outstanding=outstanding)
        memory.store(memory.offset(target, lane * 4), memory.workgroup_load(tile, lane * 4, count=4))
        ops.WAIT_STAGED.add()

    return kernel(body, F32, F32)


def test_a_wait_leaves_the_latest_on_their_way():
    data = np.arange(256, dtype=np.float32)
    assert np.array_equal(ran(in_two_halves(1), data, np.zeros_like(data)), data)
    for again in (False, True):
        with pytest.raises(KernelFault, match="has not been waited for"):
            ran(in_two_halves(2, again), data, np.zeros_like(data))


def for_the_other_wave(waits):
    """Each of two waves reads what the other staged."""

    def body(source, target):
        lane, wave = lanes.lane_id(), lanes.wave_id()
        tile, own, other = memory.allocate(F32, 512), wave * 256, (wave ^ 1) * 256
        ops.STAGE.add(memory.offset(source, own + lane * 4), tile, own, count=4)
        if waits:
            ops.WAIT_STAGED.add()
        control.barrier()
        memory.store(memory.offset(target, own + lane * 4), memory.workgroup_load(tile, other + lane * 4, count=4))

    return kernel(body, F32, F32, block=128)


def test_a_barrier_alone_delivers_nothing():
    data = np.arange(512, dtype=np.float32).reshape(2, 256)
    assert np.array_equal(ran(for_the_other_wave(True), data.copy(), np.zeros_like(data)), data[::-1])
    with pytest.raises(KernelFault, match="has not been waited for"):
        ran(for_the_other_wave(False), data, np.zeros_like(data))


@pytest.mark.compile
def test_the_wait_stands_between_the_load_and_the_barrier(llvm):
    """LLVM 22 waits there by itself as well; the op does not count on it, and says for how many not to."""
    assembly = llvm.assembly(PLUGIN.arch.lower(for_the_other_wave(True), None, 22))
    places = [assembly.index(word) for word in ("global_load_lds_dwordx4", "vmcnt(0)", "s_barrier", "ds_read")]
    assert places == sorted(places)


@pytest.mark.parametrize("outstanding", [0, 1, 15, 16, 63])
def test_a_wait_is_encoded_as_llvm_reads_it(outstanding):
    """The fields of s_waitcnt: vmcnt in bits 3:0 and 15:14, expcnt in 6:4, lgkmcnt in 11:8."""

    def body(source):
        ops.WAIT_STAGED.add(outstanding=outstanding)

    text = PLUGIN.arch.lower(kernel(body, F32), None, 22).text
    (number,) = map(int, re.findall(r"call void @llvm.amdgcn.s.waitcnt\(i32 (\d+)\)", text))
    assert (number & 15 | number >> 14 << 4, number >> 4 & 7, number >> 8 & 15) == (outstanding, 7, 15)


def test_a_wait_for_more_than_the_counter_holds_is_refused():
    with pytest.raises(IRError, match="leaves 0 to 63 outstanding, got 64"):
        kernel(lambda source: ops.WAIT_STAGED.add(outstanding=64) and None, F32)


def test_a_place_that_differs_between_lanes_is_a_fault():
    def body(source, target):
        tile = memory.allocate(F32, 1024)
        ops.STAGE.add(source, tile, lanes.lane_id() * 4, count=4)

    with pytest.raises(KernelFault, match="place in workgroup memory that differs from lane 0"):
        ran(kernel(body, F32, F32), np.zeros(64, np.float32), np.zeros(64, np.float32))


@pytest.mark.parametrize(
    "offset, said", [(1 << 10, "reaches outside"), (2, "at a place that is no multiple of 16 bytes")]
)
def test_a_place_outside_or_unaligned_is_a_fault(offset, said):
    def body(source, target):
        tile = memory.allocate(F32, 1024)
        ops.STAGE.add(source, tile, lanes.wave_id(), count=4, offset=offset)

    with pytest.raises(KernelFault, match=said):
        ran(kernel(body, F32, F32), np.zeros(64, np.float32), np.zeros(64, np.float32))


@pytest.mark.parametrize("count, said", [(1, "2$"), (4, "8$"), (6, "12$"), (16, "32$")])
def test_other_widths_are_refused(count, said):
    with pytest.raises(IRError, match=rf"a lane stages 4 or 16 bytes, got {count} of bf16: {said[:-1]}"):
        staging(count, through_view=True)


@pytest.mark.compile
@pytest.mark.parametrize("count, name", [(2, "dword"), (8, "dwordx4")])
def test_a_staging_is_one_instruction_and_its_wait_another(llvm, count, name):
    view = llvm.assembly(PLUGIN.arch.lower(staging(count, through_view=True), None, 22))
    assert len(re.findall(rf"buffer_load_{name} .* lds", view)) == 1
    plain = llvm.assembly(PLUGIN.arch.lower(staging(count, through_view=False), None, 22))
    assert len(re.findall(rf"global_load_lds_{name} ", plain)) == 1
    for assembly in (view, plain):
        places = [
            assembly.index(word) for word in ("m0", " lds" if assembly is view else "_lds_", "vmcnt(0)", "ds_read")
        ]
        assert places == sorted(places)
        assert "scratch_" not in assembly


# Roles, and what another arch of the kind does not have.


def test_the_roles_are_kept_and_a_wrong_op_is_refused():
    check_roles("gfx950", ops.ROLES, ops.OPS)
    assert set(ops.ROLES) == set(ROLES)
    wrong = {"transpose_read_16": ops.TRANSPOSE_READ_8, "transpose_read_8": ops.NARROW_BF16, "narrow_bf16": ops.SWAP_16}
    for role, op in wrong.items():
        with pytest.raises(
            PluginError, match=role if role != "transpose_read_16" else "transpose_read_8 does not take"
        ):
            check_roles("gfx950", {role: op}, ops.OPS)
    with pytest.raises(PluginError, match="the role 'transposer', roles are: transpose_read_16"):
        check_roles("gfx950", {"transposer": ops.TRANSPOSE_READ_16}, ops.OPS)
    with pytest.raises(PluginError, match="does not list it among its ops"):
        check_roles("gfx950", ops.ROLES, ())


def test_the_ops_are_known_by_name_here_alone():
    assert all(PLUGIN.arch.has(op.name) for op in ops.OPS)
    assert {op.name.partition(".")[0] for op in ops.OPS} == {"amdgcn", "gfx950"}


def test_f16_and_bf16_tiles_are_read_alike():
    def reading(element):
        def body(source):
            tile = memory.allocate(element, 256)
            value = READS[16](tile, lanes.lane_id() * 4)
            assert value.type == VectorType(element, 4)
            convert.bitcast(value, to=VectorType(I32, 2))

        return kernel(body, I32)

    assert [op.name for op in reading(F16).walk()] == [op.name for op in reading(BF16).walk()]
