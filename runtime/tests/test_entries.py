"""How often regions are entered, and the work that follows from it."""

from __future__ import annotations

import numpy as np

from kinfolk.ir.ops import control, lanes, memory
from kinfolk.ir.types import I32
from kinfolk.parameters import Parameter
from kinfolk_runtime.mutation.work import Tariff, Work, compared
from kinfolk_runtime.simulator import Simulator
from kinfolk_runtime.simulator.entries import Entries, regions_of

ROUNDS, STORING = 5, 3


def looping(toy, declare):
    """A kernel of a loop in which the first lanes store."""

    def body(y, rounds):
        def step(number, _):
            def store():
                memory.store(memory.offset(y, lanes.thread_id()), number)
                return ()

            control.if_else(lanes.lane_id() < STORING, store)
            return []

        control.for_range(0, rounds, 1, [], step)

    return toy.kernel(body, declare("y", I32, "write"), Parameter(name="rounds", type=I32))


def counted(toy, kernel, rounds, groups=1, **options):
    entries = Entries()
    simulator = Simulator(entries=entries, **options)
    simulator.launch(kernel, (groups, 1, 1), [np.zeros(toy.wave, np.int32), rounds])
    return entries.take(kernel), entries


def test_waves_and_lanes_of_each_region_are_counted(toy, declare):
    kernel = looping(toy, declare)
    found, entries = counted(toy, kernel, ROUNDS, sanitize="none", threads=1)
    waves = kernel.block // kernel.wave_size
    body, loop, taken, other, views = found.tolist()
    assert len(regions_of(kernel)) == 4
    assert body == [waves, waves * kernel.wave_size]
    assert loop == [waves * ROUNDS, waves * ROUNDS * kernel.wave_size]
    assert taken == [waves * ROUNDS, waves * ROUNDS * STORING]
    assert other == [waves * ROUNDS, waves * ROUNDS * (kernel.wave_size - STORING)]
    assert views == [0, 0]
    assert entries.take(kernel) is None, "it is counted anew"


def test_bytes_are_counted_where_they_are_inside_of_a_view(toy, declare):
    size, held = 4, 5

    def body(x, y, bound):
        found = memory.view_load(memory.bound(x, bound), lanes.lane_id())
        memory.view_store(memory.bound(y, bound + 1), lanes.lane_id(), found)

    kernel = toy.kernel(body, declare("x", I32), declare("y", I32, "write"), Parameter(name="bound", type=I32))
    waves = kernel.block // kernel.wave_size
    entries = Entries()
    arguments = [np.ones(toy.wave, np.int32), np.zeros(toy.wave, np.int32), held]
    Simulator(entries=entries, sanitize="none", threads=1).launch(kernel, (1, 1, 1), arguments)
    assert entries.take(kernel).tolist()[-1] == [waves * size * held, waves * size * (held + 1)]


def test_threads_count_together_and_the_reference_engine_not_at_all(toy, declare):
    kernel = looping(toy, declare)
    one, _ = counted(toy, kernel, ROUNDS, sanitize="none", threads=1)
    many, _ = counted(toy, kernel, ROUNDS, groups=40, sanitize="none", threads=2)
    assert (many == 40 * one).all()
    assert counted(toy, kernel, ROUNDS, engine="reference", sanitize="none")[0] is None


def test_work_is_told_by_loops_and_lanes(toy, declare):
    kernel = looping(toy, declare)
    tariff = Tariff.of(kernel, kernel)
    works = [tariff.work(counted(toy, kernel, rounds, sanitize="none", threads=1)[0]) for rounds in (ROUNDS, 7)]
    waves = kernel.block // kernel.wave_size
    assert [work.amounts["rounds of loops"] for work in works] == [waves * ROUNDS, waves * 7]
    assert [work.amounts["bytes stored"] for work in works] == [4 * waves * n * STORING for n in (ROUNDS, 7)]


def test_more_work_is_a_kill_and_less_is_told_of_the_kernel():
    few, many, other = Work({"barriers": 4}), Work({"barriers": 6}), Work({"barriers": 4, "bytes loaded": 8})
    kill, note = compared([("a", few, few), ("b", many, few)])
    assert kill is not None and (kill.by, kill.scenario, note) == ("slower barriers", "b", "")
    assert "6 barriers in place of 4" in kill.message
    kill, note = compared([("a", few, many)])
    assert kill is None and "4 barriers in place of 6, in a" in note
    kill, note = compared([("a", many, few), ("b", few, other)])
    assert kill is None and "less work" in note, "where some is less, more is no kill"
    assert compared([("a", few, few)]) == (None, "")
