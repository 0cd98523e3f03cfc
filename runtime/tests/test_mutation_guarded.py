"""Numbers that are the same wherever a branch lets something be done with them, against all of small launches."""

from __future__ import annotations

from itertools import product

import pytest
from workgroup_toy import built

from kinfolk.ir import constant
from kinfolk.ir.ops import arithmetic, control, lanes, memory
from kinfolk.ir.types import I32
from kinfolk.parameters import Parameter
from kinfolk.testing.mutation import mutant_classes
from kinfolk.testing.mutation.guarded import same_where_used

MOST_TILES = 40
GUARDS = {
    "idle": lambda segments, tiles: (segments > 1) & (tiles < 1),
    "never": lambda segments, tiles: (segments > 9) & (tiles < 1),
    "few": lambda segments, tiles: (segments > 2) & (tiles < 1),
    "empty": lambda segments, tiles: tiles < 1,
    "split": lambda segments, tiles: segments > 1,
    "either": lambda segments, tiles: (segments > 1) | (tiles < 1),
    "wrong": lambda segments, tiles: (segments > 1) & (tiles > 0),
}


def is_no_matter(guard):
    """Whether slots of no tile are none wherever the guard lets anything be read: by trying."""
    return all(
        (segment * step + (1 << shift) - 1) >> shift == 0
        for segments, shift, step in product((1, 2, 3, 10), (0, 1, 2), (0, 1, 3))
        for segment in range(segments)
        if not guard(segments, 0)
    )


def shown(toy, declare, guard, *, known=True, outside=False):
    """Return the mutants of the selection and its condition that are shown to be equivalent."""

    def body(x, y, segments, count, step, shift):
        tiles, zero = arithmetic.smin(count, MOST_TILES), constant(0, I32)
        first = lanes.block_id(axis=2, below=8) * step
        end = arithmetic.lshr(first + tiles + ((constant(1, I32) << shift) - 1), shift)
        used = arithmetic.select(tiles > 0, end, zero)
        view = memory.bound(x, used)
        if outside:
            memory.store(memory.offset(y, lanes.thread_id()), memory.view_load(view, zero))

        def read():
            memory.store(memory.offset(y, lanes.thread_id()), memory.view_load(view, arithmetic.lshr(first, shift)))
            return ()

        control.if_else(guard(segments, tiles), lambda: (), read)

    scalars = (("segments", 1, 8), ("count", 0, 64), ("step", 0, 100), ("shift", 0, 2))
    kernel = built(
        toy,
        body,
        declare("x", I32),
        declare("y", I32, "write"),
        *(Parameter(name=name, type=I32, minimum=least, maximum=most) for name, least, most in scalars),
    )
    (segment,) = [op.results[0] for op in kernel.walk() if op.definition is lanes.block_id]
    below = {segment: kernel.body.arguments[2]} if known else {}
    return {
        f"{mutant.operator.name} {mutant.change.about}"
        for each in mutant_classes(kernel)
        for mutant in each.mutants
        if each.operator.name in ("comparison", "dropped_select", "constant", "select_arms")
        and same_where_used(mutant, toy.arch, below)
    }


@pytest.mark.parametrize("name", GUARDS)
def test_an_arm_is_no_matter_where_no_branch_lets_it_be_used(reference64, declare, name):
    found = shown(reference64, declare, GUARDS[name])
    assert ("dropped_select always a" in found) is is_no_matter(GUARDS[name])


def test_both_kinds_of_guards_are_tried():
    assert {name for name in GUARDS if is_no_matter(GUARDS[name])} == {"idle", "empty", "split", "either"}


def test_a_condition_that_chooses_the_same_is_no_matter_and_one_that_does_not_is(reference64, declare):
    found = shown(reference64, declare, GUARDS["idle"])
    assert {"comparison sgt -> sge", "constant b 0 -> -1", "dropped_select always a"} <= found
    assert not {"constant b 0 -> 1", "dropped_select always b", "select_arms its arms have changed places"} & found


def test_what_is_used_beside_the_branch_is_a_matter(reference64, declare):
    assert not shown(reference64, declare, GUARDS["idle"], outside=True)


def test_a_segment_is_the_first_of_one_only_where_that_is_known_of_the_launch(reference64, declare):
    assert not shown(reference64, declare, GUARDS["idle"], known=False)
    assert shown(reference64, declare, GUARDS["empty"], known=False)
