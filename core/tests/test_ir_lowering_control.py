"""Loops, branches and memory as they are lowered: kernels compiled for this host and compared with Python."""

import numpy as np
import pytest
from ir_samples import KERNELS, kernel, number, pointer

from kinfolk.ir.builder import current_builder
from kinfolk.ir.ops import control, convert, lanes, memory, vector
from kinfolk.ir.ops.control import SCHEDULE_FENCE
from kinfolk.ir.types import F32, I32, I64, VectorType

pytestmark = pytest.mark.compile


def call(host, body, *values, results=1):
    """Run `body(*i32 values) -> i32 values` and return what it gives."""

    def whole(out, *arguments):
        for position, value in enumerate(body(*arguments)):
            memory.store(memory.offset(out, current_builder().constant(position, I32)), value)

    out = np.full(results, -99, np.int32)
    names = [number(f"n{i}") for i in range(len(values))]
    host.run(kernel(whole, pointer("out", I32, "write"), *names), out, *values)
    return out.tolist()


@pytest.mark.parametrize("n", (-5, 0, 1, 2, 3, 10))
@pytest.mark.parametrize("step", (1, 3))
def test_a_loop_carries_its_values(host, n, step):
    def body(n):
        zero = current_builder().constant(0, I32)
        return control.for_range(0, n, step, [zero, n], lambda i, c: [c[0] + i, c[1] ^ i])

    total, mixed = 0, n
    for i in range(0, n, step):
        total, mixed = total + i, mixed ^ i
    assert call(host, body, n, results=2) == [total, mixed]


@pytest.mark.parametrize(
    "low, high", [(0, 0), (5, 5), (5, 4), (-3, 2), (-(2**31), -(2**31) + 2), (2**31 - 3, 2**31 - 1)]
)
def test_bounds_are_signed(host, low, high):
    def body(low, high):
        zero = current_builder().constant(0, I32)
        return control.for_range(low, high, 1, [zero], lambda i, c: [c[0] + 1])

    assert call(host, body, low, high) == [max(0, high - low)]


@pytest.mark.parametrize("n", (0, 1, 2, 7))
def test_swapped_carried_values_are_exchanged_at_once(host, n):
    def body(a, b, c, n):
        return control.for_range(0, n, 1, [a, b, c], lambda i, v: [v[1], v[2], v[0]])

    expected = [10, 20, 30]
    for _ in range(n):
        expected = [expected[1], expected[2], expected[0]]
    assert call(host, body, 10, 20, 30, n, results=3) == expected


@pytest.mark.parametrize("n", range(12))
def test_fibonacci(host, n):
    def body(n):
        zero, one = (current_builder().constant(value, I32) for value in (0, 1))
        return control.for_range(0, n, 1, [zero, one], lambda i, v: [v[1], v[0] + v[1]])[:1]

    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    assert call(host, body, n) == [a]


@pytest.mark.parametrize("cold", (False, True))
@pytest.mark.parametrize("a, b", [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)])
def test_branches_give_what_they_yield(host, a, b, cold):
    def body(a, b):
        both = control.if_else(a < b, lambda: [a + 5, b], lambda: [b, a * 7], cold=cold)
        only_then = control.if_else(a < b, lambda: [a - b], lambda: [b], cold=cold)
        only_else = control.if_else(a < b, lambda: [b], lambda: [b - a], cold=cold)
        neither = control.if_else(a < b, lambda: [a], lambda: [b], cold=cold)
        return [*both, *only_then, *only_else, *neither]

    expected = [a + 5, b, a - b, b, a] if a < b else [b, a * 7, b, b - a, b]
    assert call(host, body, a, b, results=5) == expected


@pytest.mark.parametrize("n", (-1, 0, 1, 2, 5, 9))
def test_a_branch_that_only_stores(host, n):
    def body(out, n):
        def step(i, _):
            control.if_else(
                (i % 3).eq(1),
                lambda: memory.store(memory.offset(out, i), i * 10) or (),
                lambda: control.if_else(i > 3, lambda: memory.store(memory.offset(out, i), i) or (), cold=True),
            )
            return []

        control.for_range(0, n, 1, [], step)

    out = np.full(10, -1, np.int32)
    host.run(kernel(body, pointer("out", I32, "write"), number("n")), out, n)
    expected = [-1] * 10
    for i in range(n):
        expected[i] = i * 10 if i % 3 == 1 else (i if i > 3 else -1)
    assert out.tolist() == expected


def nested_by_python(n):
    """The kernel `nested` of the samples, written again."""
    p, q = 1, n
    for i in range(n):
        p, q = q, p
        for j in range(i, n, 3):
            p, q = q, p + j
        p, q = (q, p if q == 7 else i) if p < q else (p, p)
    return p + q if p != q else None


@pytest.mark.parametrize("n", range(-1, 14))
def test_loops_and_branches_in_each_other(host, n):
    out = np.full(1, -99, np.int32)
    host.run(KERNELS["nested"](), out, n)
    expected = nested_by_python(n)
    assert out[0] == (-99 if expected is None else expected)


def test_python_wrote_the_nested_kernel_with_every_outcome():
    """Negative control: the cases above reach both ends of it."""
    found = [nested_by_python(n) for n in range(-1, 14)]
    assert None in found and len(set(found)) > 4


def test_loops_with_branches_inside_and_values_of_vectors(host):
    def body(x, out, n):
        def step(i, carried):
            row = memory.load(memory.offset(x, i * 4), count=4)
            low = vector.extract(row, index=0)
            (row,) = control.if_else(low > 0.0, lambda: [carried[0] + row], lambda: [carried[0] - row], cold=True)
            return [row]

        zero = current_builder().constant(0.0, VectorType(F32, 4))
        (total,) = control.for_range(0, n, 1, [zero], step)
        memory.store(out, total)

    x = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    out, expected = np.zeros(4, np.float32), np.zeros(4, np.float32)
    host.run(kernel(body, pointer("x", F32), pointer("out", F32, "write"), number("n")), x, out, len(x))
    for row in x:
        expected = expected + row if row[0] > 0 else expected - row
    assert (out == expected).all()


def test_memory_of_the_workgroup_with_offsets_scopes_and_markers(host):
    """Reverse an array through workgroup memory, two elements at a time and shifted by the offsets of both accesses."""

    def body(x, out):
        tile = memory.allocate(I32, 16)
        thread = control.opaque(lanes.thread_id() + lanes.lane_id() + lanes.wave_id() + lanes.block_id(axis=2))

        def fill(i, _):
            value = memory.load(memory.offset(x, thread + i * 2), count=2, invariant=True, scope="x")
            swapped = vector.shuffle(value, value, indices=(1, 0))
            memory.workgroup_store(tile, 8 - i * 2, swapped, offset=3, scope="tile")
            return []

        control.for_range(0, 4, 1, [], fill)
        control.barrier()
        SCHEDULE_FENCE.add()

        def drain(i, _):
            found = memory.workgroup_load(tile, lanes.first_lane(lanes.uniform(i)), offset=5, scope="tile")
            present = lanes.any_lane(i >= 0)
            control.if_else(present, lambda: memory.store(memory.offset(out, convert.sext(i, to=I64)), found) or ())
            return []

        control.for_range(0, 8, 1, [], drain)

    x, out = np.arange(100, 108, dtype=np.int32), np.zeros(8, np.int32)
    host.run(kernel(body, pointer("x", I32), pointer("out", I32, "write", 4)), x, out)
    assert out.tolist() == x[::-1].tolist()


def test_an_offset_of_64_bits_is_not_cut(host):
    def body(x, out, n):
        index = convert.sext(n, to=I64) * 3 - convert.sext(n, to=I64)
        memory.store(out, memory.load(memory.offset(x, index)))

    x, out = np.arange(10, dtype=np.int32), np.zeros(1, np.int32)
    view = x[6:]
    host.run(kernel(body, pointer("x", I32, alignment=4), pointer("out", I32, "write"), number("n")), view, out, -2)
    assert out.tolist() == [2]


def test_parameters_may_have_any_name(host):
    """Names of blocks and values that the writer makes up are never a parameter's."""
    names = ["entry", "loop1", "done2", "then3", "join4", "v"]  # with dots these would be the labels

    def body(out, *values):
        def step(i, carried):
            (total,) = carried
            return control.if_else(i > 2, lambda: [total + values[0]], lambda: [total + i])

        (total,) = control.for_range(0, values[1], 1, [values[2]], step)
        memory.store(out, total)

    out = np.zeros(1, np.int32)
    host.run(kernel(body, pointer("out", I32, "write"), *map(number, names)), out, 100, 5, 1, 0, 0, 0)
    assert out.tolist() == [1 + 0 + 1 + 2 + 100 + 100]
