"""Counters against counts by hand, on small kernels whose every access is known."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from kinfolk.banks import BankCost, BankModel, Phases
from kinfolk.ir import constant
from kinfolk.ir.ops import control, lanes, memory
from kinfolk.ir.types import BF16, F32, I32, VectorType
from kinfolk_runtime.executor import Work
from kinfolk_runtime.profile import Counts
from kinfolk_runtime.profile.observed import CountingSimulator, sampled
from kinfolk_runtime.profile.picture import REMEDY, BankPicture, CannotDraw, check_drawable
from kinfolk_runtime.profile.run import Counter
from kinfolk_runtime.simulator import Buffer, Simulator
from kinfolk_runtime.simulator.program import Program

HALVES = tuple(tuple(range(lane, lane + 32)) for lane in (0, 32))
BANKS = BankModel(
    banks=32,
    bank_bytes=4,
    bytes_per_clock=128,
    phases=(Phases(action="read", bytes=4, lanes=HALVES, source="this test"),),
    unmeasured="only reads of 4 bytes are",
)


@pytest.fixture
def toy(any_toy):
    return any_toy


@pytest.fixture
def wide(reference64):
    return reference64


def counted(kernel, *arguments, grid=(1, 1, 1), most=None, banks=BANKS):
    counts = Counts(banks)
    CountingSimulator(counts, most).launch(kernel, grid, arguments)
    return counts


def one(counts, name):
    [found] = [each for each in counts.instructions if each.name == name]
    return found


def reader(toy, declare, stride, waves=1, limit=None):
    """Each lane reads the float at `stride` times its thread's number, those below `limit` where there is one."""

    def body(x):
        place = lanes.thread_id()

        def read():
            memory.load(memory.offset(x, place * stride))
            return ()

        if limit is None:
            read()
        else:
            control.if_else(place < limit, read)

    return toy.kernel(body, declare("x", F32), waves=waves)


@pytest.mark.parametrize(
    "stride, bytes_read, touched",
    [(1, 256, [(4, 4), (2, 2)]), (2, 256, [(8, 4), (4, 2)]), (32, 256, [(64, 4), (64, 2)]), (0, 4, [(1, 1), (1, 1)])],
)
def test_segments_of_a_wave_are_counted_against_the_fewest(wide, declare, stride, bytes_read, touched):
    counts = counted(reader(wide, declare, stride), np.zeros(64 * 32, np.float32))
    load = one(counts, "core.load")
    assert load.global_read == bytes_read == counts.distinct_read()
    assert [(each.touched, each.fewest) for each in load.segments] == touched
    assert [each.ratio for each in counts.segments()] == [a / b for a, b in touched]


def test_a_buffer_counts_as_if_it_began_a_segment(wide, declare):
    """Where buffers lie is drawn and says nothing of a device; an access that starts 4 bytes in touches one more."""

    def body(x):
        memory.load(memory.offset(x, lanes.thread_id() + 1))

    counts = counted(wide.kernel(body, declare("x", F32)), np.zeros(65, np.float32))
    assert [(each.touched, each.fewest) for each in counts.segments()] == [(5, 4), (3, 2)]


def test_inactive_lanes_touch_nothing_and_are_counted_as_lanes(wide, declare):
    counts = counted(reader(wide, declare, 1, limit=16), np.zeros(16, np.float32))
    load, branch = one(counts, "core.load"), one(counts, "core.if")
    assert (load.executions, load.active, load.lanes, load.global_read) == (1, 16, 64, 64)
    assert (branch.executions, branch.both_ways) == (1, 1)


def test_a_branch_that_all_lanes_take_parts_nobody(wide, declare):
    counts = counted(reader(wide, declare, 1, waves=2, limit=64), np.zeros(64, np.float32))
    branch = one(counts, "core.if")
    assert (branch.executions, branch.both_ways) == (2, 0)
    assert one(counts, "core.load").executions == 1, "the second wave skips it"


def test_distinct_bytes_are_those_of_all_workgroups_together(wide, declare):
    def body(x, y):
        value = memory.load(memory.offset(x, lanes.thread_id()))
        memory.store(memory.offset(y, lanes.block_id(axis=0) * 64 + lanes.thread_id()), value)

    kernel = wide.kernel(body, declare("x", F32), declare("y", F32, "write"))
    counts = counted(kernel, np.ones(64, np.float32), np.zeros(192, np.float32), grid=(3, 1, 1))
    assert (one(counts, "core.load").global_read, counts.distinct_read()) == (3 * 256, 256)
    assert (one(counts, "core.store").global_written, counts.distinct_written()) == (3 * 256, 3 * 256)


def test_what_a_view_cuts_off_is_not_moved(wide, declare):
    def body(x, y):
        value = memory.view_load(memory.bound(x, constant(10, I32)), lanes.thread_id(), count=1)
        memory.view_store(memory.bound(y, constant(10, I32)), lanes.thread_id(), value)

    kernel = wide.kernel(body, declare("x", F32), declare("y", F32, "write"))
    counts = counted(kernel, np.zeros(64, np.float32), np.zeros(64, np.float32))
    assert (one(counts, "core.view_load").global_read, one(counts, "core.view_store").global_written) == (40, 40)


def through_workgroup_memory(toy, declare, stride, rounds=1, limit=64):
    """Every lane writes its place, then `rounds` times those below `limit` read `stride` words apart."""

    def body(y):
        t = lanes.thread_id()
        held = memory.allocate(I32, 64 * 32)
        for part in range(32):
            memory.workgroup_store(held, t + 64 * part, t)
        control.barrier()

        def read(*_):
            def some():
                memory.workgroup_load(held, t * stride, count=1)
                return ()

            control.if_else(t < limit, some)
            return ()

        control.for_range(0, rounds, 1, (), read)
        memory.store(memory.offset(y, t), t)

    return toy.kernel(body, declare("y", I32, "write"))


@pytest.mark.parametrize(
    "stride, limit, cycles, fewest",
    [(1, 64, 2, 2), (32, 64, 64, 2), (31, 64, 2, 2), (0, 64, 2, 2), (1, 32, 1, 1), (32, 32, 32, 1), (2, 64, 4, 2)],
)
def test_bank_cycles_of_reads(wide, declare, stride, limit, cycles, fewest):
    kernel = through_workgroup_memory(wide, declare, stride, rounds=3, limit=limit)
    counts = counted(kernel, np.zeros(64, np.int32))
    load = one(counts, "core.workgroup_load")
    assert (load.executions, load.active, load.workgroup_read) == (3, 3 * limit, 3 * 4 * (limit if stride else 1))
    assert (load.banks, load.worst_cost) == (BankCost(3 * cycles, 3 * fewest, True), BankCost(cycles, fewest, True))
    store = one(counts, "core.workgroup_store")
    assert store.banks == BankCost(64, 64, False), "of writes nothing is declared: a bound, and said to be one"
    assert store.workgroup_written == 32 * 256
    assert counts.bank_cost() == BankCost(3 * cycles + 64, 3 * fewest + 64, False)


def test_without_a_model_nothing_is_said_of_banks(wide, declare):
    counts = counted(through_workgroup_memory(wide, declare, 1), np.zeros(64, np.int32), banks=None)
    assert counts.bank_cost() is None
    assert one(counts, "core.workgroup_load").workgroup_read == 256


@pytest.mark.parametrize("products", [1, 5])
def test_matrix_operations_are_two_per_product_and_element(toy, declare, products):
    slots = 256 // toy.wave

    def body():
        piece, carried = constant(0.0, VectorType(BF16, slots)), constant(0.0, VectorType(F32, slots))
        for _ in range(products):
            carried = toy.multiply(piece, piece, carried)

    counts = counted(toy.kernel(body, waves=2), grid=(3, 1, 1))
    assert counts.flops == 2 * 16**3 * products * 2 * 3
    assert counts.issued()["matrix"] == products * 2 * 3


def adder(toy, declare):
    """Each workgroup adds one to its own element of y, which it reads first."""

    def body(y):
        place = memory.offset(y, lanes.block_id(axis=0))
        memory.store(place, memory.load(place) + 1)

    return toy.kernel(body, declare("y", I32, "readwrite"))


def test_a_sample_is_spread_evenly_and_leaves_memory_as_the_whole_launch_does(toy, declare):
    assert sampled(16, 4).tolist() == [0, 4, 8, 12]
    assert (sampled(3, 4).tolist(), sampled(3, None).tolist(), sampled(5, 2).tolist()) == ([0, 1, 2], [0, 1, 2], [0, 2])
    kernel, held = adder(toy, declare), np.zeros(16, np.int32)
    counter = Counter(toy.arch, 4)
    counter.run(Work(kernel=kernel, compiled=None, grid=(16, 1, 1), arguments=(Buffer(held),)))
    [launch] = counter.launches
    assert (held == 1).all()
    assert (launch.measured, launch.workgroups, one(launch.counts, "core.store").executions) == (4, 16, 4)


def test_the_sample_alone_leaves_the_rest_undone(toy, declare):
    """Negative control of the test above."""
    held = np.zeros(16, np.int32)
    counted(adder(toy, declare), held, grid=(16, 1, 1), most=4)
    assert np.flatnonzero(held).tolist() == [0, 4, 8, 12]


def test_counting_changes_no_result_and_no_other_run(wide, declare):
    kernel, x, y = adder(wide, declare), np.zeros(3, np.int32), np.zeros(3, np.int32)
    plain = Simulator(engine="reference")
    plain.launch(kernel, (3, 1, 1), (x,))
    counted(kernel, y, grid=(3, 1, 1))
    assert (x == y).all() and x.all()
    assert type(plain._program(kernel)) is Program


def test_vector_operations_follow_the_declared_classes(wide, declare):
    counts = counted(reader(wide, declare, 1), np.zeros(64, np.float32))
    issued = counts.issued()
    assert issued["global_memory"] == 1 and "none" not in issued
    assert sum(issued.values()) == sum(e.executions for e in counts.instructions if e.definition.issue != "none")


@pytest.fixture
def conflicted(wide, declare):
    return one(counted(through_workgroup_memory(wide, declare, 32), np.zeros(64, np.int32)), "core.workgroup_load")


def test_the_picture_as_text_has_a_line_per_lane_and_a_column_per_bank(conflicted):
    lines = BankPicture.of(conflicted, BANKS).text().splitlines()
    assert "read of 4 bytes a lane" in lines[0]
    assert lines[1:4] == [
        "64 cycles, 2 without conflicts",
        "lane  bank 0       8       16      24",
        "   0       +" + "·" * 31,
    ]
    assert lines[3 + 32] == "" and lines[3 + 33].startswith("  32 ") and len(lines) == 3 + 65


def test_a_bound_is_drawn_as_one(wide, declare):
    store = one(counted(through_workgroup_memory(wide, declare, 1), np.zeros(64, np.int32)), "core.workgroup_store")
    text = BankPicture.of(store, BANKS).text()
    assert "at least 2 cycles, 2 without conflicts" in text and "is not known" in text
    assert text.splitlines()[4] == "   0       2" + "·" * 31


def test_the_picture_is_drawn(conflicted, tmp_path):
    from PIL import Image

    picture = BankPicture.of(conflicted, BANKS)
    picture.draw(tmp_path / "banks.png")
    seen = Image.open(tmp_path / "banks.png").convert("RGB")
    colours = {colour for _, colour in seen.getcolors(1 << 20)}
    assert (189, 29, 45) in colours, "32 words of one bank are drawn in the last colour"
    assert seen.size[1] > 64 * 14


def test_without_pillow_the_remedy_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(CannotDraw, match=r"pip install 'kinfolk-runtime\[plot\]'") as caught:
        check_drawable(tmp_path / "banks.png")
    assert REMEDY in str(caught.value) and "--plot -" in str(caught.value)
