"""Forms of ops that few kernels have, in both engines: additions in workgroup memory, views that branches choose,
exchanges of wide elements, elements that do not exist.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve
from engine_pair import run_both
from workgroup_toy import ADD, never

from kinfolk.errors import InternalError
from kinfolk.ir import build_kernel, constant
from kinfolk.ir.meaning import MemoryAccess
from kinfolk.ir.op import AttributeDef, OpDef, effects
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory
from kinfolk.ir.types import BF16, F32, F64, I8, I16, I32, I64, VectorType
from kinfolk.parameters import Parameter
from kinfolk_runtime.simulator import Simulator

NUMBERS = {I8: np.int8, I16: np.int16, I32: np.int32, I64: np.int64, F32: np.float32, F64: np.float64}


def on(toy, *ops):
    """Return the toy's arch with more ops."""
    return evolve(toy.arch, ops=(*toy.arch.ops, *ops))


def built(toy, body, *parameters, ops=(), waves=1):
    return build_kernel("forms", parameters, arch=on(toy, *ops), block=waves * toy.wave, body=body)


def adding(toy, declare, element, spread=5, limit=1 << 20, fills=True, offset=0, count=1):
    """Threads below `limit` add what they load to place `thread % spread`; then the first wave stores all places."""
    size = 2 * toy.wave

    def body(x, y):
        t = lanes.thread_id()
        tile = memory.allocate(element, size)
        if fills:
            memory.workgroup_store(tile, t, memory.load(memory.offset(y, t)))
        control.barrier()

        def add():
            ADD.add(tile, t % spread, memory.load(memory.offset(x, t * count), count=count), offset=offset)
            return ()

        control.if_else(t < limit, add)
        control.barrier()
        memory.store(memory.offset(y, t), memory.workgroup_load(tile, t))

    return built(toy, body, declare("x", element), declare("y", element, "readwrite"), ops=(ADD,), waves=2)


def numbers(element, size: int, seed: int):
    random = np.random.default_rng(seed)
    dtype = np.dtype(NUMBERS[element])
    if dtype.kind == "f":
        return (random.normal(size=size) * 2.0 ** random.integers(-30, 30, size)).astype(dtype)
    return random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, size, dtype, endpoint=True)


@pytest.mark.parametrize("element", NUMBERS, ids=str)
@pytest.mark.parametrize("spread, limit", [(1, 1 << 20), (5, 1 << 20), (7, 40), (1 << 20, 3)])
def test_additions_in_workgroup_memory(any_toy, declare, element, spread, limit):
    """In order of waves, and in a wave of lanes; integers wrap."""
    size = 2 * any_toy.wave
    x, start = numbers(element, size, 1), numbers(element, size, 2)
    expected = start.copy()
    with np.errstate(over="ignore"):
        for thread in range(min(size, limit)):
            expected[thread % spread] += x[thread]
    kernel = adding(any_toy, declare, element, spread, limit)
    left = [x, start.copy()]
    fault, fast = run_both(kernel, (1, 1, 1), lambda: [x.copy(), start.copy()])
    assert fault is None and fast.notes == ()
    Simulator().launch(kernel, (1, 1, 1), left)
    assert left[1].tobytes() == expected.tobytes()


def test_vectors_added_in_workgroup_memory(any_toy, declare):
    """Component after component: lane 0's second element may be lane 1's first."""
    size = 2 * any_toy.wave
    kernel = adding(any_toy, declare, F32, spread=9, count=3)
    fault, fast = run_both(kernel, (1, 1, 1), lambda: [numbers(F32, 3 * size, 1), numbers(F32, size, 2)])
    assert fault is None and fast.notes == ()


@pytest.mark.parametrize(
    "kind, given", [("initialisation", {"fills": False}), ("memory", {"offset": 200}), ("memory", {"offset": -1})]
)
def test_additions_that_are_faults(any_toy, declare, kind, given):
    size = 2 * any_toy.wave
    kernel = adding(any_toy, declare, I32, **given)
    fault, _ = run_both(kernel, (1, 1, 1), lambda: [numbers(I32, size, 1), numbers(I32, size, 2)])
    assert fault.kind == kind and fault.op == ADD.name


def test_narrow_floats_are_not_added_in_memory(any_toy, declare):
    kernel = adding(any_toy, declare, BF16)
    size = 2 * any_toy.wave
    with pytest.raises(InternalError, match=r"toy\.add adds bf16"):
        Simulator().launch(kernel, (1, 1, 1), [np.zeros(size, np.uint16), np.zeros(size, np.uint16)])


def choosing(toy, declare, condition, rounds=0):
    """Store through a view of x or of y from its second half on; `rounds`: in a loop that carries it."""

    def body(x, y, out, which):
        t = lanes.thread_id()
        first = memory.bound(x, constant(toy.wave, I32))
        second = memory.bound(memory.offset(y, constant(4, I32)), constant(8, I32))

        def chosen(then, otherwise):
            (view,) = control.if_else(condition(t, which), lambda: [then], lambda: [otherwise])
            return view

        if rounds:
            (view, total) = control.for_range(
                0,
                rounds,
                1,
                [first, t],
                lambda index, held: [
                    chosen(second, held[0]),
                    arithmetic.add(held[1], memory.view_load(held[0], t), nsw=False),
                ],
            )
            memory.store(memory.offset(out, t), total ^ memory.view_load(view, t))
        else:
            memory.store(memory.offset(out, t), memory.view_load(chosen(first, second), t))

    parameters = [declare("x", I32), declare("y", I32), declare("out", I32, "write")]
    return toy.kernel(body, *parameters, Parameter(name="which", type=I32), waves=2)


@pytest.mark.parametrize("rounds", [0, 1, 3])
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("name", ["uniform", "by wave", "by lane"])
def test_a_branch_that_chooses_a_view(any_toy, declare, name, which, rounds):
    conditions = {
        "uniform": lambda t, which: which > 0,
        "by wave": lambda t, which: lanes.wave_id() < which,
        "by lane": lambda t, which: lanes.lane_id() < which * any_toy.wave // 2,
    }
    kernel = choosing(any_toy, declare, conditions[name], rounds)
    size = 2 * any_toy.wave

    def arguments():
        return [np.arange(size, dtype=np.int32) + 1, -np.arange(size, dtype=np.int32), np.zeros(size, np.int32), which]

    fault, fast = run_both(kernel, (1, 1, 1), arguments)
    assert fast.notes == ()
    parts = name == "by lane" and which == 1
    assert (fault is not None) == parts
    if fault is not None:
        assert fault.kind == "uniformity" and "two different views" in str(fault)


def test_lanes_that_part_may_hold_one_view(any_toy, declare):
    def body(x, out):
        t = lanes.thread_id()

        def made():
            return [memory.bound(x, constant(32, I32)), t + 1]

        view, index = control.if_else(t % 3 < 1, made, made)
        memory.store(memory.offset(out, t), memory.view_load(view, index))

    kernel = any_toy.kernel(body, declare("x", I32), declare("out", I32, "write"))
    size = any_toy.wave
    fault, fast = run_both(kernel, (1, 1, 1), lambda: [np.arange(size, dtype=np.int32), np.zeros(size, np.int32)])
    assert fault is None and fast.notes == ()


def across(wave_size: int, lane: Any, component: Any) -> Any:
    """Hand elements around in blocks of 2 lanes: a 2 by 2 transpose of (lane, component)."""
    return lane // 2 * 2 + component, lane % 2


def handing(space: str):
    """Declare a load of two elements a lane, exchanged among neighbours, `offset` elements further."""
    operands = {"global": ("pointer",), "view": ("view", "index"), "workgroup": ("buffer", "index")}[space]
    return OpDef(
        name=f"toy.{space}_exchange",
        operands=operands,
        attributes=(AttributeDef("offset", "int", default=0),),
        result=lambda types, _: (VectorType(types[0].element, 2),),
        effects=effects("reads"),
        issue="global_memory",
        meaning=MemoryAccess(space, "load", exchange=across),
        lowering=never,
    )


@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("element", [I8, BF16, I32, I64, F64], ids=str)
@pytest.mark.parametrize("space", ["global", "view", "workgroup"])
def test_elements_of_every_width_are_handed_to_other_lanes(any_toy, declare, space, element, some):
    op = handing(space)
    count = 2 * any_toy.wave + 8

    def body(x, out):
        t = lanes.lane_id()
        if space == "workgroup":
            tile = memory.allocate(element, count)
            memory.workgroup_store(tile, t * 2, memory.load(memory.offset(x, t * 2), count=2))
            memory.workgroup_store(tile, (t & 3) * 2, memory.load(memory.offset(x, (t & 3) * 2 + count - 8), count=2))
            memory.workgroup_store(tile, (t & 3) * 2 + count - 8, memory.load(memory.offset(x, (t & 3) * 2), count=2))

        def read():
            given = {
                "global": lambda: (memory.offset(x, t * 2),),
                "view": lambda: (memory.bound(x, constant(8 * (count // 8), I32)), t * 2),
                "workgroup": lambda: (tile, t * 2),
            }[space]()
            memory.store(memory.offset(out, t * 2), op(*given, offset=2))
            return ()

        control.if_else((t & 2).eq(0) if some else t < 1 << 20, read)

    kernel = built(any_toy, body, declare("x", element, alignment=8), declare("out", element, "write"), ops=(op,))
    dtype = f"u{element.bytes}"

    def arguments():
        random = np.random.default_rng(1)
        return [random.integers(0, 256, count * element.bytes).astype(np.uint8).view(dtype), np.zeros(count, dtype)]

    fault, fast = run_both(kernel, (1, 1, 1), arguments)
    assert fault is None and fast.notes == ()
    if space != "workgroup" and not some:
        x, out = arguments()
        Simulator().launch(kernel, (1, 1, 1), [x, out])
        moved = x[2 : 2 + 2 * any_toy.wave].reshape(-1, 2, 2).transpose(0, 2, 1).reshape(-1)
        assert (out[: 2 * any_toy.wave] == moved).all()


@pytest.mark.parametrize("space", ["global", "view", "workgroup"])
def test_an_inactive_lane_hands_over_nothing(any_toy, declare, space):
    op = handing(space)

    def body(x, out):
        t = lanes.lane_id()
        tile = memory.allocate(I32, 2 * any_toy.wave)
        memory.workgroup_store(tile, t * 2, memory.load(memory.offset(x, t * 2), count=2))
        view = memory.bound(x, constant(2 * any_toy.wave, I32))

        def read():
            given = {"global": (memory.offset(x, t * 2),), "view": (view, t * 2), "workgroup": (tile, t * 2)}[space]
            memory.store(memory.offset(out, t * 2), op(*given))
            return ()

        control.if_else(t < 5, read)

    kernel = built(any_toy, body, declare("x", I32), declare("out", I32, "write"), ops=(op,))
    size = 2 * any_toy.wave
    fault, _ = run_both(kernel, (1, 1, 1), lambda: [np.arange(size, dtype=np.int32), np.zeros(size, np.int32)])
    assert (fault.kind, fault.lanes) == ("lane", (4,))


def test_an_access_larger_than_its_allocation(any_toy, declare):
    """A fault where it is executed, and nothing where it is not."""

    def body(out, limit):
        tile = memory.allocate(I32, 3)

        def store():
            memory.workgroup_store(tile, constant(0, I32), memory.load(out, count=4))
            return ()

        control.if_else(lanes.lane_id() < limit, store)

    kernel = any_toy.kernel(body, declare("out", I32), Parameter(name="limit", type=I32))
    for limit in (0, 1):
        fault, fast = run_both(kernel, (1, 1, 1), lambda limit=limit: [np.zeros(4, np.int32), limit])
        assert fast.notes == () and (fault is not None) == (limit == 1)
    assert fault.kind == "memory"


def test_offsets_below_zero(any_toy, declare):
    """An index that an op's own offset brings back into the allocation, and one that it does not."""

    def body(x, out, less):
        t = lanes.lane_id()
        tile = memory.allocate(F32, any_toy.wave)
        memory.workgroup_store(tile, t, convert.sitofp(memory.load(memory.offset(x, t)), to=F32))
        memory.store(memory.offset(out, t), memory.workgroup_load(tile, t + 7 - less, offset=-7))

    kernel = any_toy.kernel(body, declare("x", I32), declare("out", F32, "write"), Parameter(name="less", type=I32))
    size = any_toy.wave
    for less in (0, 1):
        fault, fast = run_both(
            kernel, (1, 1, 1), lambda less=less: [np.arange(size, dtype=np.int32), np.zeros(size, np.float32), less]
        )
        assert fast.notes == () and (fault is not None) == (less == 1)
    assert fault.kind == "memory" and fault.lanes == (0,)
