"""Loops, parted lanes, barriers, claims of uniformity, and the order in which waves run."""

from __future__ import annotations

import numpy as np
import pytest

from kinfolk.errors import SimulationError
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory
from kinfolk.ir.types import F32, I32
from kinfolk.parameters import Parameter
from kinfolk_runtime.simulator import KernelFault

N = Parameter(name="n", type=I32)


def fault(toy, kernel, *arguments, **options):
    with pytest.raises(SimulationError) as caught:
        toy.run(kernel, *arguments, **options)
    return caught.value


def zero(type_=I32):
    return control.current_builder().constant(0 if type_ == I32 else 0.0, type_)


@pytest.mark.parametrize("bounds", [(0, 5), (3, 3), (4, 2), (-3, 4)])
def test_a_loop_carries_values(toy, declare, bounds):
    def body(y, low, high):
        first, second = zero(), zero() + 1
        a, b = control.for_range(low, high, 2, [first, second], lambda i, ab: [ab[1], ab[0] + ab[1] + i])
        memory.store(memory.offset(y, lanes.thread_id()), a * 1000 + b)

    low = Parameter(name="low", type=I32)
    y = np.zeros(toy.wave, np.int32)
    toy.run(toy.kernel(body, declare("y", I32, "write"), low, N), y, *bounds)
    a, b = 0, 1
    for i in range(*bounds, 2):
        a, b = b, a + b + i
    assert (y == a * 1000 + b).all()


def test_loop_bounds_are_claimed_uniform(toy, declare):
    def body(n_of_lane):
        n = memory.load(memory.offset(n_of_lane, lanes.thread_id()))
        control.for_range(0, n, 1, [], lambda i, _: [])

    kernel = toy.kernel(body, declare("n_of_lane", I32))
    toy.run(kernel, np.full(toy.wave, 3, np.int32))
    uneven = np.full(toy.wave, 3, np.int32)
    uneven[5] = 4
    found = fault(toy, kernel, uneven)
    assert (found.kind, found.op, found.lanes) == ("uniformity", "core.for", (5,)) and "upper bound" in str(found)


def test_only_active_lanes_must_agree_on_a_bound(toy, declare):
    def body(n_of_lane, y):
        t = lanes.thread_id()

        def inside():
            n = memory.load(memory.offset(n_of_lane, t))
            return control.for_range(0, n, 1, [zero()], lambda i, carried: [carried[0] + 1])

        (count,) = control.if_else(t >= 2, inside, lambda: [zero() - 1])
        memory.store(memory.offset(y, t), count)

    n, y = np.full(toy.wave, 3, np.int32), np.zeros(toy.wave, np.int32)
    n[:2] = 100
    toy.run(toy.kernel(body, declare("n_of_lane", I32), declare("y", I32, "write")), n, y)
    assert y.tolist() == [-1, -1] + [3] * (toy.wave - 2)


def test_lanes_part_nest_and_join(toy, declare):
    def body(x, y):
        t = lanes.thread_id()
        v = memory.load(memory.offset(x, t))

        def high():
            return control.if_else(v > 10.0, lambda: [v * 2.0, t], lambda: [v + 1.0, t + 100])

        a, b = control.if_else(v > 5.0, high, lambda: [v, zero()])
        memory.store(memory.offset(y, t), a + convert.sitofp(b, to=F32))

    x, t = np.linspace(0, 15, toy.wave, dtype=np.float32), np.arange(toy.wave, dtype=np.float32)
    y = np.zeros_like(x)
    toy.run(toy.kernel(body, declare("x", F32), declare("y", F32, "write")), x, y)
    assert (y == np.where(x > 5, np.where(x > 10, x * 2 + t, x + 1 + (t + 100)), x)).all()


def test_a_side_that_no_lane_takes_does_not_run(toy, declare):
    kernel = toy.kernel(_guarded_load, declare("x", F32), N)
    toy.run(kernel, np.zeros(1, np.float32), 3)
    assert fault(toy, kernel, np.zeros(1, np.float32), 4).kind == "memory"


def _guarded_load(x, n):
    def inside():
        memory.load(memory.offset(x, n))
        return ()

    control.if_else(n > 3, inside, cold=True)


def test_a_rule_is_asked_of_active_lanes_only(toy, declare):
    """Division by zero in lanes that do not take the branch is nobody's fault."""

    def body(x, y, guard):
        t = lanes.thread_id()
        v = memory.load(memory.offset(x, t))
        (q,) = control.if_else(v.ne(0) | guard.eq(0), lambda: [arithmetic.sdiv(v + 100, v)], lambda: [zero()])
        memory.store(memory.offset(y, t), q)

    guard = Parameter(name="guard", type=I32)
    kernel = toy.kernel(body, declare("x", I32), declare("y", I32, "write"), guard)
    x, y = np.arange(toy.wave, dtype=np.int32), np.zeros(toy.wave, np.int32)
    toy.run(kernel, x, y, 1)
    assert y.tolist() == [0] + [(v + 100) // v for v in range(1, toy.wave)]
    found = fault(toy, kernel, x, y, 0)
    assert (found.kind, found.lanes) == ("integer", (0,)) and "division by zero" in str(found)


def test_cross_lane_reads_take_active_lanes_only(toy, declare):
    def body(y, n):
        t = lanes.thread_id()
        (v,) = control.if_else(t < n, lambda: [lanes.shuffle_xor(t, mask=1)], lambda: [zero() - 1])
        memory.store(memory.offset(y, t), v)

    y = np.zeros(toy.wave, np.int32)
    kernel = toy.kernel(body, declare("y", I32, "write"), N)
    toy.run(kernel, y, 4)
    assert y[:6].tolist() == [1, 0, 3, 2, -1, -1]
    found = fault(toy, kernel, y, 3)
    assert (found.kind, found.lanes) == ("lane", (2,)) and "reads lane 3" in str(found)


def test_first_lane_any_lane_and_uniform(toy, declare):
    def body(y, n):
        t = lanes.thread_id()

        def inside():
            first = lanes.first_lane(t)
            some = lanes.any_lane(t.eq(7))
            return [first, arithmetic.select(some, first - first + 1, first - first)]

        first, some = control.if_else(t >= n, inside, lambda: [zero() - 1, zero() - 1])
        memory.store(memory.offset(y, t * 2), first)
        memory.store(memory.offset(y, t * 2 + 1), some)

    kernel = toy.kernel(body, declare("y", I32, "write"), N)
    for n in (3, 8):
        y = np.zeros((toy.wave, 2), np.int32)
        toy.run(kernel, y, n)
        assert (y[:n] == -1).all() and (y[n:] == [n, int(n <= 7)]).all()


def test_the_claim_of_uniform_is_checked_on_active_lanes(toy, declare):
    def body(x):
        t = lanes.thread_id()
        value = memory.load(memory.offset(x, t))
        control.if_else(t < 4, lambda: [lanes.uniform(value)], lambda: [value])

    kernel = toy.kernel(body, declare("x", F32))
    x = np.full(toy.wave, np.nan, np.float32)
    x[4:] = 1
    toy.run(kernel, x)  # NaN equals NaN here: the bits are compared
    x[3] = 2
    found = fault(toy, kernel, x)
    assert (found.kind, found.op, found.lanes) == ("uniformity", "core.uniform", (3,))


def ring(toy, declare, barriers=2):
    """Each wave hands its number to the next by workgroup memory, twice, with a barrier after each write."""
    waves = 4

    def body(y):
        buffer = memory.allocate(I32, 2 * waves)
        w = lanes.wave_id()
        memory.workgroup_store(buffer, w, w + 10)
        if barriers > 0:
            control.barrier()
        got = memory.workgroup_load(buffer, (w + 1) % waves)
        memory.workgroup_store(buffer, w, got, offset=waves)
        if barriers > 1:
            control.barrier()
        memory.store(memory.offset(y, w), memory.workgroup_load(buffer, (w + 1) % waves, offset=waves))

    return toy.kernel(body, declare("y", I32, "write"), waves=waves)


@pytest.mark.parametrize("seed", range(6))
def test_barriers_order_waves_whatever_the_seed(toy, declare, seed):
    y = np.zeros(4, np.int32)
    toy.run(ring(toy, declare), y, seed=seed)
    assert y.tolist() == [12, 13, 10, 11]


def test_a_dropped_barrier_is_found_in_every_order_of_waves(toy, declare):
    """Without the sanitizer only some orders show it, as memory that was never written."""
    kernel, seen = ring(toy, declare, barriers=1), set()
    for seed in range(12):
        with pytest.raises(KernelFault) as caught:
            toy.run(kernel, np.zeros(4, np.int32), seed=seed, sanitize="race")
        assert caught.value.kind == "race"
        y = np.zeros(4, np.int32)
        try:
            toy.run(kernel, y, seed=seed, sanitize="initialisation")
            seen.add("right" if y.tolist() == [12, 13, 10, 11] else "wrong")
        except SimulationError as error:
            seen.add(error.kind)
    assert "initialisation" in seen


def test_waves_and_workgroups_run_in_an_order_drawn_from_the_seed(toy, declare):
    def body(y, turn):
        place = memory.load(turn)
        memory.store(memory.offset(y, place), lanes.block_id(axis=0) * 8 + lanes.wave_id())
        memory.store(turn, place + 1)

    kernel = toy.kernel(body, declare("y", I32, "write"), declare("turn", I32, "readwrite"), waves=3)
    orders = {}
    for seed in range(5):
        y = np.zeros(6, np.int32)
        toy.run(kernel, y, np.zeros(1, np.int32), grid=(2, 1, 1), seed=seed, sanitize="none")
        orders[seed] = tuple(y)
        again = np.zeros(6, np.int32)
        toy.run(kernel, again, np.zeros(1, np.int32), grid=(2, 1, 1), seed=seed, sanitize="none")
        assert (again == y).all()
    assert orders[0] == (0, 1, 2, 8, 9, 10)
    assert len(set(orders.values())) > 2 and all(sorted(order) == [0, 1, 2, 8, 9, 10] for order in orders.values())


def test_a_barrier_in_a_uniform_branch_in_a_loop(toy, declare):
    def body(y, n):
        buffer = memory.allocate(I32, 2)
        w = lanes.wave_id()

        def turn(i, carried):
            def exchange():
                memory.workgroup_store(buffer, w, carried[0] + w + 1)
                control.barrier()
                got = memory.workgroup_load(buffer, 1 - w)
                control.barrier()
                return [got]

            return control.if_else(i.ne(1), exchange, lambda: [carried[0]])

        (v,) = control.for_range(0, n, 1, [zero()], turn)
        memory.store(memory.offset(y, w), v)

    kernel = toy.kernel(body, declare("y", I32, "write"), N, waves=2)
    a = [0, 0]
    for i in range(5):
        a = [a[1] + 2, a[0] + 1] if i != 1 else a
    for seed in range(4):
        y = np.zeros(2, np.int32)
        toy.run(kernel, y, 5, seed=seed)
        assert y.tolist() == a


def conditional_barrier(toy, condition):
    def body():
        def inside():
            control.barrier()
            return ()

        control.if_else(condition(), inside)

    return toy.kernel(body, waves=3)


def test_a_barrier_with_inactive_lanes(toy):
    found = fault(toy, conditional_barrier(toy, lambda: lanes.lane_id() < 5))
    assert (found.kind, found.op) == ("sync", "core.barrier")
    assert found.lanes == tuple(range(5, toy.wave)) and "inactive" in str(found)
    toy.run(conditional_barrier(toy, lambda: lanes.lane_id() >= 0))


def test_waves_that_return_while_others_wait(toy):
    found = fault(toy, conditional_barrier(toy, lambda: lanes.wave_id() < 2))
    assert found.kind == "sync" and "waves 0-1 at the one of" in str(found) and "wave 2 returned" in str(found)
    toy.run(conditional_barrier(toy, lambda: lanes.wave_id() < 3))


def test_waves_at_different_barriers(toy):
    def body():
        def wait():
            control.barrier()
            return ()

        control.if_else(lanes.wave_id().eq(0), wait, wait)

    found = fault(toy, toy.kernel(body, waves=2))
    assert found.kind == "sync" and "wave 0 at" in str(found) and "wave 1 at" in str(found)


def test_the_grid_has_three_axes(toy, declare):
    def body(y):
        x, b, z = (lanes.block_id(axis=axis) for axis in range(3))
        memory.store(memory.offset(y, (z * 3 + b) * 2 + x), x + b * 10 + z * 100)

    y = np.zeros((2, 3, 2), np.int32)
    toy.run(toy.kernel(body, declare("y", I32, "write")), y, grid=(2, 3, 2), seed=3)
    assert (y == np.arange(2) + np.arange(3)[:, None] * 10 + np.arange(2)[:, None, None] * 100).all()


def test_a_loop_does_not_count_past_the_largest_index(toy, declare):
    """The index is compared once more at the end and must fit i32: the last that does, and the first that does not."""
    step = 1 << 30

    def body(y, low, n):
        (rounds,) = control.for_range(low, n, step, [zero()], lambda i, carried: [carried[0] + 1])
        memory.store(memory.offset(y, lanes.thread_id()), rounds)

    low, y = Parameter(name="low", type=I32), np.zeros(toy.wave, np.int32)
    kernel = toy.kernel(body, declare("y", I32, "write"), low, N)
    toy.run(kernel, y, (1 << 30) - 1, (1 << 31) - 1)
    assert (y == 1).all()
    found = fault(toy, kernel, y, 1 << 30, (1 << 31) - 1)
    assert found.kind == "integer" and "counts past 2^31 - 1" in str(found)
