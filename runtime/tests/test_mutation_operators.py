"""Tiny kernels, each mutant of which is noticed by what is meant for it; what each computes is said in numpy."""

from __future__ import annotations

from collections import defaultdict

import ml_dtypes
import numpy as np
import pytest
from workgroup_toy import STAGE, WAIT, built

from kinfolk.errors import IRError
from kinfolk.ir import constant, verify
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory, vector
from kinfolk.ir.types import BF16, F32, I32, I64
from kinfolk.testing.mutation import OPERATORS, mutant_classes, rewritten, sample
from kinfolk_runtime.simulator import Buffer, Simulator
from kinfolk_runtime.simulator.fault import KernelFault

WAVE = 64


class Case:
    """A kernel, its inputs and what it leaves in its last argument, an output that it writes whole."""

    def __init__(self, body, inputs, expected, waves=1, grid=(1, 1, 1), elements=(I32,)):
        self.body, self.inputs, self.expected = body, inputs, expected
        self.waves, self.grid, self.elements = waves, grid, elements

    def build(self, toy, declare):
        """Build the kernel on an arch."""
        output = {np.dtype(np.int32): I32, np.dtype(np.float32): F32}[self.expected.dtype]
        names = [declare(f"x{n}", element) for n, element in enumerate(self.elements)]
        self.kernel = built(toy, self.body, *names, declare("y", output, "write"), waves=self.waves)
        return self

    def verdict(self, kernel, engine="fast"):
        """What notices a kernel in place of this one; None for nothing."""
        try:
            verify(kernel)
        except IRError:
            return "verifier"
        out = np.full_like(self.expected, 77)
        y = Buffer(out, initialized=False)
        try:
            Simulator(engine=engine, threads=1, round_limit=200).launch(kernel, self.grid, [*self.inputs, y])
        except KernelFault as fault:
            return fault.kind
        if not y.initialized_bytes().all():
            return "unwritten"
        return None if np.array_equal(out, self.expected, equal_nan=True) else "comparison"

    def found(self):
        """What notices the mutants of each operator."""
        assert self.verdict(self.kernel) is None
        seen = defaultdict(set)
        for each in mutant_classes(self.kernel):
            for mutant in each.mutants:
                seen[each.operator.name].add(self.verdict(mutant.kernel()))
        return dict(seen)


LANE = np.arange(WAVE, dtype=np.int32)
MANY = np.arange(100, 100 + 8 * WAVE, dtype=np.int32)


def lane_pointer(y):
    return memory.offset(y, lanes.thread_id())


def classical(toy):
    def body(x, y):
        a = memory.load(lane_pointer(x))
        b = constant(31, I32) - a
        low = arithmetic.smin(a, 40)
        picked = arithmetic.select(a < 48, low, b)
        neighbour = memory.load(memory.offset(x, lanes.lane_id() ^ 1))
        mixed = ((picked & 0x5A) ^ (a << 1)) * 3
        memory.store(lane_pointer(y), mixed + arithmetic.smax(a, 50) + neighbour)

    a = LANE.copy()
    picked = np.where(a < 48, np.minimum(a, 40), 31 - a)
    return Case(body, [LANE], (((picked & 0x5A) ^ (a << 1)) * 3 + np.maximum(a, 50) + (a ^ 1)).astype(np.int32))


def wide_addresses(toy):
    """A product past 2^32, of which the upper half is looked at."""

    def body(x, y):
        first = memory.load(x)
        far = convert.sext(first, to=I64) * 0x10000
        memory.store(lane_pointer(y), convert.trunc(arithmetic.lshr(far, constant(32, I64)), to=I32) + lanes.lane_id())

    return Case(body, [np.array([-70000], np.int32)], (LANE + (-70000 * 0x10000 >> 32)).astype(np.int32))


def looped(toy):
    def body(x, y):
        def step(i, carried):
            both = memory.load(memory.offset(x, i * WAVE + lanes.lane_id()))
            return [carried[0] + both, arithmetic.smin(carried[1], both)]

        total, least = control.for_range(0, 4, 1, [constant(0, I32), constant(5000, I32)], step)
        (out,) = control.if_else(lanes.lane_id() < 20, lambda: [total], lambda: [least])
        memory.store(memory.offset(y, lanes.block_id(axis=0) * WAVE + lanes.lane_id()), out)

    rounds = MANY[: 4 * WAVE].reshape(4, WAVE)
    row = np.where(LANE < 20, rounds.sum(axis=0), rounds.min(axis=0)).astype(np.int32)
    return Case(body, [MANY[: 4 * WAVE].copy()], np.tile(row, 2), grid=(2, 1, 1))


def shared(toy):
    """Two waves leave a value each in one buffer and a sum in another, and read the other wave's."""

    def body(x, y):
        first, second = (memory.allocate(I32, 2 * WAVE) for _ in range(2))
        t = lanes.thread_id()
        value = memory.load(memory.offset(x, t))
        memory.workgroup_store(first, t, value)
        memory.workgroup_store(second, t, value * 3)
        control.barrier()
        other = t ^ WAVE
        both = memory.workgroup_load(first, other) + memory.workgroup_load(second, other)
        memory.store(memory.offset(y, t), both)

    x = MANY[: 2 * WAVE].copy()
    return Case(body, [x], 4 * np.roll(x, WAVE), waves=2)


def staged(toy):
    def body(x, y):
        place = memory.allocate(I32, 2 * WAVE)
        for half in range(2):
            STAGE.add(memory.offset(x, lanes.lane_id() + half * WAVE), place, constant(half * WAVE, I32))
        WAIT.add(outstanding=1)
        early = memory.workgroup_load(place, lanes.lane_id())
        WAIT.add(outstanding=0)
        late = memory.workgroup_load(place, lanes.lane_id(), offset=WAVE)
        memory.store(lane_pointer(y), early - late * 2)

    x = MANY[: 2 * WAVE].copy()
    return Case(body, [x], x[:WAVE] - 2 * x[WAVE:])


def bounded(toy):
    """A view smaller than what it is of."""

    def body(x, y):
        view = memory.bound(x, constant(40, I32))
        memory.store(lane_pointer(y), memory.view_load(view, lanes.lane_id()))

    return Case(body, [MANY.copy()], np.where(LANE < 40, MANY[:WAVE], 0).astype(np.int32))


def exchanged(toy):
    def body(x, y):
        a = memory.load(lane_pointer(x))
        near, far = lanes.shuffle_xor(a, mask=2), lanes.shuffle_xor(a, mask=16)
        memory.store(lane_pointer(y), near - far * 5)

    x = MANY[:WAVE].copy()
    return Case(body, [x], x[LANE ^ 2] - 5 * x[LANE ^ 16])


def multiplied(toy):
    shape = toy.multiply.meaning

    def body(a, b, y):
        lane = lanes.lane_id()
        first = memory.load(memory.offset(a, lane * 4), count=4)
        second = memory.load(memory.offset(b, lane * 4), count=4)
        ones = vector.splat(constant(1.0, F32), count=4)
        once = toy.multiply(first, second, ones)
        twice = toy.multiply(second, first, once)
        memory.store(memory.offset(y, lane * 4), twice, alignment=4)

    generator = np.random.default_rng(3)
    a, b = (generator.integers(-4, 5, (16, 16)).astype(np.float32) for _ in range(2))
    laid = [
        a[shape.a.rows, shape.a.columns].astype(ml_dtypes.bfloat16),
        b[shape.b.rows, shape.b.columns].astype(ml_dtypes.bfloat16),
    ]
    # What holds A as rows along k holds its transpose as columns, and the other way round.
    product = 1.0 + a @ b + b.T @ a.T
    return Case(body, laid, product[shape.c.rows, shape.c.columns].astype(np.float32), elements=(BF16, BF16))


CASES = {
    make.__name__: make for make in (classical, wide_addresses, looped, shared, staged, bounded, exchanged, multiplied)
}
MEANT = {
    "classical": {
        "comparison": {"comparison"},
        "min_max": {"comparison"},
        "dropped_clamp": {"comparison"},
        "select_arms": {"comparison"},
        "dropped_select": {"comparison"},
        "add_sub": {"comparison"},
        "bitwise": {"comparison"},
        "dropped_term": {"comparison"},
        "dropped_factor": {"comparison"},
        "lost_write": {"unwritten"},
        "exchanged_index": {"comparison"},
        "swapped_operands": {"comparison", "integer"},
    },
    "wide_addresses": {"extension": {"comparison"}, "narrow_product": {"integer"}},
    "looped": {
        "loop_bound": {"comparison", "memory"},
        "loop_step": {"comparison"},
        "negated_condition": {"comparison"},
        "dropped_guard": {"comparison"},
        "uninitialised": {"comparison"},
        "exchanged_results": {"comparison"},
        "wrong_axis": {"race"},
        "wrong_stride": {"memory"},
    },
    "shared": {"dropped_barrier": {"race"}, "wrong_buffer": {"comparison", "initialisation"}},
    "staged": {
        "lax_wait": {"race"},
        "offset_off_by_one": {"comparison", "memory", "race"},
        "lost_write": {"initialisation", "race", "unwritten"},
    },
    "bounded": {"view_bound": {"comparison"}, "index_off_by_one": {"comparison", "memory"}},
    "exchanged": {"lane_map": {"comparison"}, "lane_distance": {"comparison"}, "dropped_exchange": {"comparison"}},
    "multiplied": {
        "lane_map": {"comparison"},
        "swapped_factors": {"comparison"},
        "wrong_accumulator": {"comparison"},
    },
}


FOUND = {}


@pytest.fixture
def everything(reference64, declare):
    """What notices the mutants of each kernel, by operator; found once."""
    if not FOUND:
        FOUND.update({name: make(reference64).build(reference64, declare).found() for name, make in CASES.items()})
    return FOUND


@pytest.mark.parametrize("name", CASES)
def test_mutants_are_noticed_by_what_is_meant_for_them(everything, name):
    found = everything[name]
    assert {operator: found.get(operator) for operator in MEANT[name]} == MEANT[name]


def test_every_operator_applies_to_some_of_these_kernels(everything):
    applied = {operator for found in everything.values() for operator in found}
    assert applied | {"wrong_component"} == {operator.name for operator in OPERATORS}


def test_a_scenario_that_looks_at_nothing_lets_mutants_live(reference64, declare):
    """Control: on inputs that are all 0, the same kernel's mistakes do not show."""
    weak = classical(reference64)
    weak.inputs, weak.expected = [np.zeros(WAVE, np.int32)], np.full(WAVE, 50, np.int32)
    found = weak.build(reference64, declare).found()
    assert None in found["dropped_factor"] and None in found["dropped_term"]


def test_an_endless_loop_is_ended(reference64, declare):
    """A bound that is 1 less than nothing runs for ever, as it seems."""

    def body(x, y):
        until = memory.load(x) - 1
        [total] = control.for_range(0, until & 0x7FFFFFF, 1, [constant(0, I32)], lambda i, c: [c[0] + 1])
        memory.store(lane_pointer(y), total)

    case = Case(body, [np.array([4], np.int32)], np.full(WAVE, 3, np.int32)).build(reference64, declare)
    found = case.found()
    assert "limit" in found["constant"] | found["add_sub"] | found["swapped_operands"]
    endless = next(
        mutant
        for each in mutant_classes(case.kernel)
        for mutant in each.mutants
        if case.verdict(mutant.kernel()) == "limit"
    )
    assert case.verdict(endless.kernel(), engine="reference") == "limit"


def test_what_only_tells_about_order_or_time_is_left_alone(reference64, declare):
    """Schedule markers, and where the line is drawn for a branch that may be taken at any time."""

    def body(cold):
        def build(x, y):
            control.schedule_fence()
            a = memory.load(lane_pointer(x))
            near = lanes.any_lane(a > 8)
            (out,) = control.if_else(near, lambda: [a * 2], lambda: [a + a], cold=cold)
            memory.store(lane_pointer(y), out)

        return build

    def changes(cold):
        case = Case(body(cold), [LANE], 2 * LANE).build(reference64, declare)
        names = {(each.operator.name, each.site.op) for each in mutant_classes(case.kernel)}
        assert not any(op == "core.schedule_fence" for _, op in names)
        return names

    line = {("comparison", "core.icmp"), ("constant", "core.icmp")}
    assert line <= changes(cold=False) and not line & changes(cold=True)
    assert ("swapped_operands", "core.icmp") in changes(cold=True)


def test_what_is_the_same_by_meaning_is_no_mutant(reference64, declare):
    """Swapped operands of what commutes, and the extension of what is never negative."""

    def body(x, y):
        wide = convert.sext(lanes.block_id(axis=0), to=I64)
        signed = convert.sext(memory.load(x), to=I64)
        total = convert.trunc(wide + signed, to=I32) * lanes.lane_id() - memory.load(x)
        memory.store(lane_pointer(y), total)

    case = Case(body, [np.array([3], np.int32)], (3 * LANE - 3).astype(np.int32)).build(reference64, declare)
    classes = mutant_classes(case.kernel)
    assert [each.site.op for each in classes if each.operator.name == "swapped_operands"] == ["core.sub"]
    assert len([each for each in classes if each.operator.name == "extension"]) == 1


def test_a_sample_has_every_operator_and_is_the_same_for_a_seed(reference64, declare):
    classes = mutant_classes(looped(reference64).build(reference64, declare).kernel)
    names = {each.operator.name for each in classes}
    drawn = sample(classes, 1, seed=0)
    assert {mutant.operator.name for mutant in drawn} == names and len(drawn) == len(names)
    assert [mutant.name for mutant in drawn] == [mutant.name for mutant in sample(classes, 1, seed=0)]
    assert [mutant.name for mutant in drawn] != [mutant.name for mutant in sample(classes, 1, seed=1)]
    everything = sample(classes, 1000, seed=0)
    assert len(everything) == len(classes)
    assert len({mutant.name for each in classes for mutant in each.mutants}) == sum(len(c.mutants) for c in classes)


def test_only_an_operation_of_the_kernel_is_replaced(reference64, declare):
    one, other = (shared(reference64).build(reference64, declare).kernel for _ in range(2))
    with pytest.raises(ValueError, match="is no operation of"):
        rewritten(one, next(other.walk()), lambda place: place.again())
