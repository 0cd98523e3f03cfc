"""Global and workgroup memory: each rule at its edge, what lies inside runs and what lies outside is named."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from kinfolk.errors import SimulationError
from kinfolk.ir import constant
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory
from kinfolk.ir.types import BF16, F32, F64, I1, I16, I32, I64
from kinfolk.parameters import Parameter
from kinfolk_runtime.simulator import Buffer, KernelFault, Simulator, SparseBuffer
from kinfolk_runtime.simulator.buffers import Unavailable
from kinfolk_runtime.simulator.space import LARGEST, AddressSpace

N = Parameter(name="n", type=I32)


def fault(toy, kernel, *arguments, **options) -> KernelFault:
    with pytest.raises(SimulationError) as caught:
        toy.run(kernel, *arguments, **options)
    assert isinstance(caught.value, KernelFault)
    return caught.value


def copier(toy, declare, count=1, alignment=0, shift=0):
    """Each lane copies `count` floats at its thread's place; `shift` moves the reads by elements."""

    def body(x, y):
        place = lanes.thread_id() * count
        value = memory.load(memory.offset(x, place + shift), count=count, alignment=alignment)
        memory.store(memory.offset(y, place), value, alignment=alignment)

    return toy.kernel(body, declare("x", F32, alignment=16), declare("y", F32, "write", alignment=16))


def test_a_copy_copies(toy, declare):
    x = np.arange(4 * toy.wave, dtype=np.float32)
    y = np.zeros_like(x)
    toy.run(copier(toy, declare, count=4, alignment=16), x, y)
    assert (y == x).all()


@pytest.mark.parametrize("count", [1, 2, 4])
def test_reading_one_element_past_the_end_names_lane_and_element(toy, declare, count):
    kernel = copier(toy, declare, count=count)
    size = count * toy.wave
    toy.run(kernel, np.zeros(size, np.float32), np.zeros(size, np.float32))
    found = fault(toy, kernel, np.zeros(size - 1, np.float32), np.zeros(size, np.float32))
    assert (found.kind, found.op, found.buffer) == ("memory", "core.load", "x")
    assert (found.lanes, found.element) == ((toy.wave - 1,), size - count)
    assert f"reads 4 bytes past the end of x (element {size - count} of {size - 1})" in str(found)
    assert "test_simulator_memory.py" in (found.source or "") and found.workgroup == (0, 0, 0) and found.wave == 0


def test_writing_past_the_end_and_reading_before_the_start(toy, declare):
    size = toy.wave
    found = fault(toy, copier(toy, declare), np.zeros(size, np.float32), np.zeros(size - 2, np.float32))
    assert (found.op, found.buffer, found.lanes) == ("core.store", "y", (size - 2, size - 1))
    found = fault(toy, copier(toy, declare, shift=-1), np.zeros(size, np.float32), np.zeros(size, np.float32))
    assert found.lanes == (0,) and "before the start of x" in str(found) and found.element == -1


def test_an_address_in_no_buffer(toy, declare):
    def body(x):
        far = convert.sext(lanes.thread_id(), to=I64) + (1 << 45)
        memory.load(memory.offset(x, far))

    found = fault(toy, toy.kernel(body, declare("x", F32)), np.zeros(4, np.float32))
    assert found.kind == "memory" and "an address in no buffer" in str(found)


def test_lanes_may_read_different_buffers(toy, declare):
    def body(a, b, y):
        t = lanes.thread_id()
        (value,) = control.if_else(t < 3, lambda: [memory.load(memory.offset(a, t))], lambda: [memory.load(b)])
        memory.store(memory.offset(y, t), value)

    kernel = toy.kernel(body, declare("a", F32), declare("b", F32), declare("y", F32, "write"))
    y = np.zeros(toy.wave, np.float32)
    toy.run(kernel, np.array([1, 2, 3], np.float32), np.array([9], np.float32), y)
    assert y[:4].tolist() == [1, 2, 3, 9] and (y[3:] == 9).all()


@pytest.mark.parametrize("claimed, kind", [(8, None), (16, "alignment")])
def test_a_claimed_alignment_is_checked(toy, declare, claimed, kind):
    kernel = copier(toy, declare, count=2, alignment=claimed)
    x, y = np.zeros(2 * toy.wave, np.float32), np.zeros(2 * toy.wave, np.float32)
    if kind is None:
        toy.run(kernel, x, y)
        return
    found = fault(toy, kernel, x, y)
    assert found.kind == kind and found.lanes == tuple(range(1, toy.wave, 2)) and "16 bytes" in str(found)


def test_a_buffer_is_aligned_as_declared_and_no_better(toy, declare):
    """A kernel that claims more than its parameter promises fails, however well the array happens to lie."""

    def body(x):
        memory.load(x, count=4, alignment=16)

    for seed in range(4):
        assert fault(toy, toy.kernel(body, declare("x", F32, alignment=8)), np.zeros(8, np.float32), seed=seed)
        toy.run(toy.kernel(body, declare("x", F32, alignment=16)), np.zeros(8, np.float32), seed=seed)


def test_a_parameter_is_used_as_declared(toy, declare):
    def read(x):
        memory.load(x)

    def write(x):
        memory.store(x, control.current_builder().constant(1.0, F32))

    x = np.zeros(1, np.float32)
    assert fault(toy, toy.kernel(read, declare("x", F32, "write")), x).kind == "permission"
    assert fault(toy, toy.kernel(write, declare("x", F32, "read")), x).kind == "permission"
    toy.run(toy.kernel(read, declare("x", F32, "readwrite")), x)
    toy.run(toy.kernel(write, declare("x", F32, "readwrite")), x)


def test_reading_what_was_never_written(toy, declare):
    kernel = copier(toy, declare)
    x = Buffer(np.zeros(toy.wave, np.float32), initialized=False)
    y = np.zeros(toy.wave, np.float32)
    assert fault(toy, kernel, x, y).kind == "initialisation"
    writer = copier(toy, declare)
    toy.run(writer, np.ones(toy.wave, np.float32), x)
    toy.run(kernel, x, y)
    assert (y == 1).all() and x.initialized_bytes().all()


def test_sparse_buffers_exist_where_they_are_populated(toy, declare):
    """Offsets past 2 GiB and 4 GiB are reached with a 64-bit index; what is not there cannot be read."""
    places = np.array([0, 1 << 29, 3 << 29], np.int64)

    def body(x, p, y):
        t = lanes.thread_id()
        found = memory.load(memory.offset(p, t))
        found = arithmetic.umin(found, constant(1 << 31, I64))
        memory.store(memory.offset(y, t), memory.load(memory.offset(x, found)))

    kernel = toy.kernel(body, declare("x", F32), declare("p", I64), declare("y", F32, "write"))
    x = SparseBuffer(1 << 33, {int(at) * 4: np.array([i + 1.0], np.float32) for i, at in enumerate(places)})
    y = np.zeros(toy.wave, np.float32)
    toy.run(kernel, x, np.resize(places, toy.wave), y)
    assert (y == np.resize([1.0, 2.0, 3.0], toy.wave)).all()
    found = fault(toy, kernel, x, np.full(toy.wave, 1 << 28), y)
    assert found.kind == "initialisation" and found.element == 1 << 28


def test_a_buffer_has_a_largest_size_that_is_named(toy, declare):
    kernel = toy.kernel(lambda x: None, declare("x", F32))
    toy.run(kernel, SparseBuffer(LARGEST, {}))
    found = fault(toy, kernel, SparseBuffer(LARGEST + 1, {}))
    assert found.kind == "argument" and f"has {LARGEST + 1} bytes, the simulator maps at most {LARGEST}" in str(found)


@pytest.mark.parametrize("seed", range(8))
def test_every_base_lies_above_4_gib(seed, declare):
    space = AddressSpace(seed)
    for name, size in (("x", 4), ("y", 1 << 33), ("z", LARGEST)):
        assert int(space.map(declare(name, F32), SparseBuffer(size, {}))[0, 0]) > 1 << 32


def test_bytes_between_rows_are_out_of_reach(toy, declare):
    rows = np.zeros((2, toy.wave), np.float32)[:, : toy.wave // 2]
    kernel = copier(toy, declare)
    found = fault(toy, kernel, rows, np.zeros(toy.wave, np.float32))
    assert found.kind == "memory" and found.lanes == tuple(range(toy.wave // 2, toy.wave))


def test_an_index_product_that_passes_31_bits_is_an_overflow(toy, declare):
    """A page id times a page's elements: in i32 it overflows from page 2^16 on, in i64 it reads the right place."""
    page, elements = 1 << 16, 1 << 15

    def known(ids):
        return arithmetic.umin(memory.load(ids), constant(1 << 18, I32))

    def narrow(x, ids):
        memory.load(memory.offset(x, known(ids) * elements))

    def wide(x, ids, y):
        place = convert.sext(known(ids), to=I64) * elements
        memory.store(y, memory.load(memory.offset(x, place)))

    x = SparseBuffer(1 << 34, {page * elements * 4: np.array([7.0], np.float32)})
    ids, y = np.array([page], np.int32), np.zeros(1, np.float32)
    found = fault(toy, toy.kernel(narrow, declare("x", F32), declare("ids", I32)), x, ids)
    assert found.kind == "integer" and "signed overflow in mul nsw" in str(found) and found.op == "core.mul"
    toy.run(toy.kernel(wide, declare("x", F32), declare("ids", I32), declare("y", F32, "write")), x, ids, y)
    assert y[0] == 7


def test_atomic_additions_of_all_lanes_arrive(toy, declare):
    def body(count, total):
        t = lanes.thread_id()
        control.if_else(t < 10, lambda: memory.atomic_add(count, t) or ())
        memory.atomic_add(total, convert.sitofp(t, to=F32))

    count, total = np.array([5], np.int32), np.zeros(1, np.float32)
    kernel = toy.kernel(body, declare("count", I32, "readwrite"), declare("total", F32, "readwrite"))
    toy.run(kernel, count, total, grid=(2, 1, 1))
    assert count[0] == 5 + 2 * 45 and total[0] == toy.wave * (toy.wave - 1)


def viewer(toy, declare, count, element=BF16):
    """Each lane moves `count` elements through views of n elements of x and y."""

    def body(x, y, n):
        source, target = memory.bound(x, n), memory.bound(y, n)
        place = lanes.thread_id() * count
        memory.view_store(target, place, memory.view_load(source, place, count=count))

    return toy.kernel(body, declare("x", element, alignment=4), declare("y", element, "write", alignment=4), N)


@pytest.mark.parametrize("count", [1, 2, 4, 8])
@pytest.mark.parametrize("bound", [0, 2, 30, 126])
def test_a_view_gives_zero_and_drops_outside_dword_by_dword(toy, declare, count, bound):
    size = count * toy.wave
    x = np.arange(1, size + 1, dtype=np.uint16)
    y = np.full(size, 9999, np.uint16)
    toy.run(viewer(toy, declare, count), x, y, min(bound, size))
    inside = np.arange(size) < min(bound, size)
    assert (y == np.where(inside, x, 9999)).all()


def test_what_a_view_reads_outside_is_zero(toy, declare):
    def body(x, y, n):
        value = memory.view_load(memory.bound(x, n), lanes.thread_id() - 2, count=1)
        memory.store(memory.offset(y, lanes.thread_id()), value)

    kernel = toy.kernel(body, declare("x", I16, alignment=4), declare("y", I16, "write"), N)
    x, y = np.full(4, 5, np.int16), np.full(toy.wave, -1, np.int16)
    toy.run(kernel, x, y, 4)
    assert y.tolist() == [0, 0, 5, 5, 5, 5] + [0] * (toy.wave - 6)


def test_a_bound_past_the_allocation_is_an_error_once_used(toy, declare):
    size = 2 * toy.wave
    kernel = viewer(toy, declare, 2)
    x, y = np.zeros(size, np.uint16), np.zeros(size, np.uint16)
    toy.run(kernel, x, y, size + 64)  # nothing reaches the excess
    found = fault(toy, kernel, x[: size - 2].copy(), y, size)
    assert (found.kind, found.buffer, found.lanes) == ("memory", "x", (toy.wave - 1,))
    assert "reaches past the allocation" in str(found)


def test_the_size_of_a_view_is_checked(toy, declare):
    found = fault(toy, viewer(toy, declare, 2), np.zeros(256, np.uint16), np.zeros(256, np.uint16), 3)
    assert found.kind == "argument" and "6 bytes" in str(found)


def shared(toy, declare, count=4, index_shift=0, written=None, alignment=0):
    """Lanes write `count` values each to workgroup memory and read them back in reversed order of lanes."""

    def body(y):
        t = lanes.thread_id()
        buffer = memory.allocate(I32, count * toy.wave)
        value = control.current_builder().constant(7, I32) + t

        def write():
            for part in range(count):
                memory.workgroup_store(buffer, t * count, value, offset=part)
            return ()

        control.if_else(t < (toy.wave if written is None else written), write)
        control.barrier()
        back = (toy.wave - 1 - t) * count + index_shift
        read = memory.workgroup_load(buffer, back, count=count, alignment=alignment)
        memory.store(memory.offset(y, t * count), read)

    return toy.kernel(body, declare("y", I32, "write"))


def test_workgroup_memory_is_shared(toy, declare):
    y = np.zeros(4 * toy.wave, np.int32)
    toy.run(shared(toy, declare, alignment=16), y)
    assert (y.reshape(-1, 4) == (7 + toy.wave - 1 - np.arange(toy.wave))[:, None]).all()


def test_workgroup_bounds_alignment_and_initialisation(toy, declare):
    y = np.zeros(4 * toy.wave, np.int32)
    found = fault(toy, shared(toy, declare, index_shift=1), y)
    assert (found.kind, found.lanes) == ("memory", (0,)) and "workgroup allocation 0" in str(found)
    found = fault(toy, shared(toy, declare, index_shift=-1), y)
    assert (found.kind, found.lanes) == ("memory", (toy.wave - 1,))
    found = fault(toy, shared(toy, declare, count=2, alignment=16), y)
    assert found.kind == "alignment" and len(found.lanes) == toy.wave // 2
    found = fault(toy, shared(toy, declare, written=toy.wave - 1), y)
    assert (found.kind, found.lanes) == ("initialisation", (0,)) and found.element == 4 * (toy.wave - 1)


def test_each_workgroup_starts_with_unwritten_memory(toy, declare):
    def body(y):
        buffer = memory.allocate(I32, 1)
        first = lanes.block_id(axis=0)
        control.if_else(first.eq(0), lambda: memory.workgroup_store(buffer, first, first) or ())
        memory.store(y, memory.workgroup_load(buffer, first - first))

    kernel = toy.kernel(body, declare("y", I32, "write"))
    toy.run(kernel, np.zeros(1, np.int32), grid=(1, 1, 1))
    found = fault(toy, kernel, np.zeros(1, np.int32), grid=(2, 1, 1))
    assert found.kind == "initialisation" and found.workgroup == (1, 0, 0)


def test_a_load_can_hand_elements_to_other_lanes(toy, declare):
    """An op of the arch, declared by its exchange alone: a 4 by 4 transpose within four lanes."""

    def body(y):
        t = lanes.thread_id()
        buffer = memory.allocate(I16, 4 * toy.wave)
        for part in range(4):
            memory.workgroup_store(buffer, t * 4, convert.trunc(t * 4 + part, to=I16), offset=part)
        memory.store(memory.offset(y, t * 4), toy.transpose(buffer, t * 4, count=4))

    y = np.zeros(4 * toy.wave, np.int16)
    toy.run(toy.kernel(body, declare("y", I16, "write")), y)
    assert (y.reshape(-1, 4, 4) == np.arange(4 * toy.wave).reshape(-1, 4, 4).transpose(0, 2, 1)).all()


def test_arguments_are_checked(toy, declare):
    kernel = toy.kernel(lambda x, n: None, declare("x", F32, "write"), N)
    x = np.zeros(1, np.float32)
    toy.run(kernel, x, (1 << 31) - 1)
    for wrong in ((x,), (x, 1 << 31), (x, 1.0), (3, 1), (np.broadcast_to(np.float32(0), 4), 1)):
        assert fault(toy, kernel, *wrong).kind == "argument"


@pytest.mark.parametrize("shape, picks", [((3, 8, 16), (1, 2, 1)), ((3, 8, 16), (2, 1, 3)), ((2, 5, 7), (1, 1, 2))])
def test_gaps_are_found_at_every_depth(shape, picks):
    """By each byte: those of the array's own elements can be read, the others cannot."""
    whole = np.zeros(shape, np.uint16)
    part = whole[tuple(slice(0, None, step) for step in picks)][..., :-1]
    buffer = Buffer(part)
    mine = np.zeros(buffer.size // 2, np.bool_)
    np.lib.stride_tricks.as_strided(mine, part.shape, [step // 2 for step in part.strides])[...] = True
    offsets = np.arange(buffer.size // 2)[None, :] * 2
    with pytest.raises(Unavailable) as caught:
        buffer.read(offsets, np.dtype(np.uint16))
    assert (caught.value.wrong[0] == ~mine).all()
    assert (buffer.read(offsets[:, mine], np.dtype(np.uint16)) == 0).all()


def test_rows_that_share_elements_and_rows_without_gaps_are_read_anywhere():
    flat = np.arange(6, dtype=np.uint16)
    for rows in (np.lib.stride_tricks.sliding_window_view(flat, 3), flat.reshape(2, 3), flat.reshape(3, 2).T):
        got = Buffer(rows).read(np.arange(6)[None, :] * 2, np.dtype(np.uint16))
        assert (got == flat).all()


@pytest.mark.parametrize("element", [F64, I64])
def test_elements_of_8_bytes_are_cut_by_a_view_at_4(toy, declare, element):
    dtype = np.float64 if element == F64 else np.int64

    def body(x, y, n):
        place = lanes.thread_id() * 2
        value = memory.view_load(memory.bound(x, n), place, count=2)
        memory.view_store(memory.bound(y, n), place, value)

    kernel = toy.kernel(body, declare("x", element), declare("y", element, "write"), N)
    x, y = (np.random.default_rng(0).normal(size=2 * toy.wave) * 1e9).astype(dtype), np.zeros(2 * toy.wave, dtype)
    toy.run(kernel, x, y, 7)
    assert (y[:7] == x[:7]).all() and (y[7:] == 0).all()


def test_truth_values_take_a_byte(toy, declare):
    def body(x, y):
        t = lanes.thread_id()
        value = memory.load(memory.offset(x, t * 2), count=2)
        memory.store(memory.offset(y, t * 2), value ^ value)
        control.if_else(t < 2, lambda: memory.store(memory.offset(y, t * 2), value) or ())

    x, y = np.resize([0, 1, 1], 2 * toy.wave).astype(np.uint8), np.full(2 * toy.wave, 9, np.uint8)
    toy.run(toy.kernel(body, declare("x", I1), declare("y", I1, "write")), x, y)
    assert y.tolist() == [0, 1, 1, 0] + [0] * (2 * toy.wave - 4)


def test_a_prepared_kernel_is_forgotten_with_its_kernel(toy, declare):
    simulator = Simulator()
    kernel = copier(toy, declare)
    simulator.launch(kernel, (1, 1, 1), [np.zeros(toy.wave, np.float32), np.zeros(toy.wave, np.float32)])
    gone = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert gone() is None


def indexed(toy, declare, element, count, index):
    """Return a kernel that reads one element per lane of a view of `count` elements, at `index(lane)`."""

    def body(x, y):
        view = memory.bound(x, constant(count, I32))
        memory.store(memory.offset(y, lanes.thread_id()), memory.view_load(view, index(lanes.thread_id())))

    return toy.kernel(body, declare("x", element, alignment=4), declare("y", element, "write"))


def test_an_index_in_bytes_fits_32_bits(toy, declare):
    """On both sides of 2^31 bytes, and of -2^31: past them a 32-bit byte offset would come back into the view."""
    x, y = np.ones(8, np.int32), np.full(toy.wave, -1, np.int32)
    for place in ((1 << 29) - 1, -(1 << 29)):
        toy.run(indexed(toy, declare, I32, 8, lambda lane, place=place: (lane & 0) ^ place), x, y)
        assert (y == 0).all()
    for place in (1 << 29, -(1 << 29) - 1, 0x40000003):
        found = fault(toy, indexed(toy, declare, I32, 8, lambda lane, place=place: (lane & 0) ^ place), x, y)
        assert found.kind == "integer" and "32 bits" in str(found)


def test_a_constant_is_not_added_to_a_negative_index_that_it_lifts_into_the_view(toy, declare):
    x, y = np.ones(8, np.int32), np.full(toy.wave, -1, np.int32)
    found = fault(toy, indexed(toy, declare, I32, 8, lambda lane: (lane - 2) + 4), x, y)
    assert found.kind == "integer" and found.lanes == (0, 1)
    toy.run(indexed(toy, declare, I32, 8, lambda lane: lane + 4), x, y)
    assert y.tolist() == [1] * 4 + [0] * (toy.wave - 4)
    toy.run(indexed(toy, declare, I32, 8, lambda lane: (lane - toy.wave - 4) + 4), x, y)
    assert (y == 0).all()
