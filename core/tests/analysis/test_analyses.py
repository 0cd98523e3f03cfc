"""Each analysis on a kernel with the defect it is for, and on the twin in which it is mended."""

from __future__ import annotations

import pytest

from kinfolk.analysis import ANALYSES, loop_divisions
from kinfolk.ir.builder import constant, current_builder
from kinfolk.ir.ops import arithmetic, control, lanes, memory, vector
from kinfolk.ir.types import F32, I32, PointerType
from kinfolk.parameters import Parameter


def nothing():
    return ()


def branch(condition, *body, cold=False):
    """Run what is in `body` under a condition."""

    def then():
        for each in body:
            each()
        return ()

    control.if_else(condition, then, nothing, cold=cold)


def either(condition, one, other):
    """Run one of two bodies."""
    control.if_else(condition, lambda: (one(), ())[1], lambda: (other(), ())[1])


def meeting():
    control.meet("here")


def loop(upper, body, lower=0):
    control.for_range(lower, upper, 1, (), lambda i, _: body(i) or ())


def number(value):
    return constant(value, I32)


def shared():
    return memory.allocate(F32, 256)


def product():
    part = vector.splat(constant(1.0, F32), count=4)
    current_builder().table["paper.product"](part, part, part)


def turned(buffer):
    current_builder().table["paper.turned_load"](buffer, number(0))


# What is wrong with it: the kernel, its mended twin.
BARRIERS = {
    "a barrier for some lanes": (
        lambda table, y, n, wide: branch(lanes.lane_id() < n, control.barrier),
        lambda table, y, n, wide: branch(lanes.block_id(axis=0) < n, control.barrier),
    ),
    "a barrier for some waves": (
        lambda table, y, n, wide: branch(lanes.wave_id() < n, control.barrier),
        lambda table, y, n, wide: either(lanes.wave_id() < n, meeting, meeting),
    ),
    "a meeting of some lanes": (
        lambda table, y, n, wide: branch(lanes.thread_id() < n, meeting),
        lambda table, y, n, wide: either(lanes.uniform(lanes.thread_id() // 64) < n, meeting, meeting),
    ),
    "a meeting to which the other waves do not come": (
        lambda table, y, n, wide: branch(lanes.wave_id() < n, meeting),
        lambda table, y, n, wide: [branch(lanes.wave_id() < 1, meeting), branch(lanes.wave_id() >= 1, meeting)],
    ),
    "a meeting more of the first wave": (
        lambda table, y, n, wide: [branch(lanes.wave_id() < 1, meeting), loop(n, lambda i: meeting())],
        lambda table, y, n, wide: either(
            lanes.wave_id() < 1,
            lambda: [meeting(), loop(n, lambda i: meeting())],
            lambda: [loop(n, lambda i: meeting()), meeting()],
        ),
    ),
    "a meeting elsewhere": (
        lambda table, y, n, wide: either(lanes.wave_id() < 1, lambda: control.meet("there"), meeting),
        lambda table, y, n, wide: either(lanes.wave_id() < 1, meeting, meeting),
    ),
    "meetings in rounds that the waves have each": (
        lambda table, y, n, wide: loop(lanes.wave_id(), lambda i: meeting()),
        lambda table, y, n, wide: [
            loop(lanes.wave_id(), lambda i: meeting()),
            loop(1 - lanes.wave_id(), lambda i: meeting()),
        ],
    ),
    "a barrier in a loop whose bound the waves have each": (
        lambda table, y, n, wide: loop(lanes.wave_id(), lambda i: control.barrier()),
        lambda table, y, n, wide: loop(memory.load(table), lambda i: control.barrier()),
    ),
    "a barrier behind what the kernel writes itself": (
        lambda table, y, n, wide: branch(memory.load(y) < n, control.barrier),
        lambda table, y, n, wide: branch(memory.load(table) < n, control.barrier),
    ),
    "a barrier by what a loop carries": (
        lambda table, y, n, wide: branch(
            control.for_range(0, n, 1, (n,), lambda i, v: (v[0] + lanes.lane_id(),))[0] < n, control.barrier
        ),
        lambda table, y, n, wide: branch(
            control.for_range(0, n, 1, (n,), lambda i, v: (v[0] + i,))[0] < n, control.barrier
        ),
    ),
    "a barrier by what a parted branch gives": (
        lambda table, y, n, wide: branch(
            control.if_else(lanes.lane_id() < 3, lambda: (n,), lambda: (number(1),))[0] < 9, control.barrier
        ),
        lambda table, y, n, wide: branch(
            control.if_else(lanes.lane_id() < 3, lambda: (n,), lambda: (n,))[0] < 9, control.barrier
        ),
    ),
    "an exchange among some lanes": (
        lambda table, y, n, wide: branch(lanes.lane_id() < n, lambda: lanes.shuffle_xor(n, mask=1)),
        lambda table, y, n, wide: branch(lanes.lane_id() < n, lambda: lanes.first_lane(n)),
    ),
    "a product of some lanes": (
        lambda table, y, n, wide: branch(lanes.lane_id() < n, product),
        lambda table, y, n, wide: branch(lanes.any_lane(lanes.lane_id() < n), product),
    ),
    "a read that exchanges lanes, of some": (
        lambda table, y, n, wide: [branch(lanes.lane_id() < n, lambda b=b: turned(b)) for b in (shared(),)],
        lambda table, y, n, wide: [branch(lanes.wave_id() < n, lambda b=b: turned(b)) for b in (shared(),)],
    ),
}


@pytest.mark.parametrize("case", BARRIERS)
def test_what_needs_lanes_together(defects, case):
    wrong, right = BARRIERS[case]
    [defect] = defects(wrong, "divergent_barrier")
    assert defects(right, "divergent_barrier") == ()
    assert "test_analyses.py:" in defect.where
    assert "test_analyses.py:" in defect.problem or "wave 0 meets at 'here' " in defect.problem


def test_one_wave_is_the_workgroup(defects):
    body = BARRIERS["a barrier for some waves"][0]
    assert defects(body, "divergent_barrier") != () and defects(body, "divergent_barrier", waves=1) == ()


def test_loops_go_round_equally_often_on_all_lanes(defects):
    def counted(upper):
        return defects(
            lambda table, y, n, wide: loop(upper(n), lambda i: memory.store(y, i)),
            "divergent_loop",
        )

    [defect] = counted(lambda n: lanes.lane_id())
    assert "bounds" in defect.problem
    assert counted(lambda n: lanes.wave_id()) == counted(lambda n: n) == counted(lanes.first_lane) == ()


def parameters(*names):
    kinds = {"x": PointerType(I32), "y": PointerType(I32), "n": I32, "m": I32}
    access = {"y": "write"}
    return [
        Parameter(name=name, type=kinds[name], access=access.get(name, "read"), alignment=4 if name in "xy" else 0)
        for name in names
    ]


def into(y, value):
    memory.store(y, value)


ALIVE = {
    "stored": lambda x, y, n: into(y, n),
    "where it is stored": lambda x, y, n: into(memory.offset(y, n), number(1)),
    "a condition": lambda x, y, n: branch(n < 3, lambda: into(y, number(1))),
    "a condition of a barrier": lambda x, y, n: branch(n < 3, control.barrier),
    "the bound of a loop": lambda x, y, n: loop(n, lambda i: into(y, number(1))),
    "counted": lambda x, y, n: loop(9, lambda i: into(y, i), lower=n),
    "carried round": lambda x, y, n: into(y, control.for_range(0, 9, 1, (n,), lambda i, v: (v[0],))[0]),
    "carried on": lambda x, y, n: into(y, control.for_range(0, 9, 1, (number(1),), lambda i, v: (v[0] + n,))[0]),
    "used by the next round": lambda x, y, n: control.for_range(
        0, 9, 1, (number(1),), lambda i, v: into(y, v[0]) or (n,)
    ),
    "given by a branch": lambda x, y, n: into(y, control.if_else(number(1) < 2, lambda: (n,), lambda: (number(1),))[0]),
}
DEAD = {
    "not used": lambda x, y, n: None,
    "computed with": lambda x, y, n: n + 1,
    "read at": lambda x, y, n: memory.load(memory.offset(x, n)),
    "a condition of nothing": lambda x, y, n: branch(n < 3, lambda: memory.load(x)),
    "the bound of an empty loop": lambda x, y, n: loop(n, lambda i: None),
    "carried only": lambda x, y, n: control.for_range(0, 9, 1, (n,), lambda i, v: (v[0] + 1,)),
    "another value that is carried": lambda x, y, n: into(
        y, control.for_range(0, 9, 1, (number(1), n), lambda i, v: (v[0], v[1]))[0]
    ),
}


@pytest.mark.parametrize("case", [*ALIVE, *DEAD])
def test_parameters_that_nothing_depends_on(defects, case):
    def body(x, y, n):
        into(y, memory.load(x))
        (ALIVE | DEAD)[case](x, y, n)

    found = defects(body, "dead_parameter", parameters=parameters("x", "y", "n"))
    assert [defect.where for defect in found] == (["k, parameter n"] if case in DEAD else [])


def test_loads_that_nothing_depends_on(defects):
    def body(use):
        def made(x, y, n):
            into(y, n)
            use(memory.load(x, count=2), y)

        return defects(made, "unused_load", parameters=parameters("x", "y", "n"))

    [defect] = body(lambda value, y: None)
    assert "core.load reads vector<2xi32>" in defect.problem
    assert len(body(lambda value, y: value + 1)) == 1
    assert body(lambda value, y: into(y, value)) == ()


def test_staged_reads_of_workgroup_memory_are_loads_too(defects):
    def body(used):
        def made(x, y, n):
            buffer = memory.allocate(I32, 64)
            memory.workgroup_store(buffer, number(0), n)
            value = memory.workgroup_load(buffer, number(0))
            into(y, value if used else n)

        return defects(made, "unused_load", parameters=parameters("x", "y", "n"))

    assert len(body(False)) == 1 and body(True) == ()


def divided(defects, divide, *, cold=False, looped=True):
    def body(x, y, n, m):
        def turn(i):
            if cold:
                branch(n < 3, lambda: into(y, divide(i, m)), cold=True)
            else:
                into(y, divide(i, m))

        loop(n, turn) if looped else turn(n)

    return defects(body, "loop_division", parameters=parameters("x", "y", "n", "m"))


def test_divisions_by_runtime_values_in_loops(defects):
    for divide in (lambda a, b: a // b, lambda a, b: a % b, arithmetic.sdiv, arithmetic.srem):
        [defect] = divided(defects, divide)
        assert "known only when the kernel runs" in defect.problem
        assert divided(defects, divide, looped=False) == divided(defects, divide, cold=True) == ()
        assert divided(defects, lambda a, b, divide=divide: divide(a, number(12))) == ()


def test_divisions_in_loops_are_listed(built):
    def body(x, y, n, m):
        def turn(i):
            into(y, i // 8 + i // 12 + i % 64)
            branch(n < 3, lambda: into(y, i // m), cold=True)

        loop(n, turn)
        into(y, n // 12)

    listed = loop_divisions(built(body, parameters=parameters("x", "y", "n", "m")))
    assert [(each.op.name, each.divisor, each.cold) for each in listed] == [
        ("core.udiv", 12, False),
        ("core.udiv", None, True),
    ]
    assert "by 12, which is no power of two in a loop" in str(listed[0])


def test_an_unchecked_index_is_a_defect_like_any(defects):
    def body(checked):
        def made(x, y, n):
            index = memory.load(x)
            into(memory.offset(y, arithmetic.umin(index, n) if checked else index), n)

        return defects(made, parameters=parameters("x", "y", "n"))

    [defect] = body(False)
    assert defect.check == "unchecked_indirection" and "core.load at" in defect.problem
    assert body(True) == ()


def test_what_one_line_does_many_times_is_told_once(defects):
    def body(x, y, n):
        into(y, n)
        for _ in range(5):
            memory.load(x)

    parameters_ = parameters("x", "y", "n")
    assert len(defects(body, "unused_load", parameters=parameters_)) == 5
    found = defects(body, parameters=parameters_)
    assert [defect.check for defect in found] == ["dead_parameter", "unused_load"]


def test_every_analysis_has_its_name_and_passes_a_kernel_without_fault(defects):
    def body(x, y, n):
        into(y, memory.load(x))
        into(memory.offset(y, number(1)), n)

    assert {name: defects(body, name, parameters=parameters("x", "y", "n")) for name in ANALYSES} == dict.fromkeys(
        ANALYSES, ()
    )
