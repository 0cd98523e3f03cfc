"""Changes that make no difference for any number of a parameter, against those that do for one."""

from __future__ import annotations

import pytest
from workgroup_toy import built

from kinfolk.analysis.strided import number
from kinfolk.analysis.values import Values
from kinfolk.ir import constant
from kinfolk.ir.ops import arithmetic, lanes, memory
from kinfolk.ir.types import I32
from kinfolk.parameters import Parameter
from kinfolk.testing.mutation import mutant_classes
from kinfolk.testing.mutation.cases import in_each_case
from kinfolk.testing.mutation.spread import dies_out


def first_of_parts(odd):
    """A lane says whether its part is the first of a page of 2^n parts; it has odd ones alone, or any."""

    def body(x, n, y):
        part = lanes.lane_id() * 2 + 1 if odd else lanes.lane_id()
        first = (part & ((constant(1, I32) << n) - 1)).eq(0)
        memory.store(memory.offset(y, lanes.thread_id()), arithmetic.select(first, constant(1, I32), constant(0, I32)))

    return body


def shown_of(toy, declare, body, most):
    """Return what is shown of the shift to the right in place of that to the left, for n up to `most`."""
    n = Parameter(name="n", type=I32, minimum=0, maximum=most)
    kernel = built(toy, body, declare("x", I32), n, declare("y", I32, "write"))
    [mutant] = [
        mutant
        for each in mutant_classes(kernel)
        for mutant in each.mutants
        if mutant.change.about == "core.shl -> core.lshr"
    ]
    whole = dies_out(mutant, Values(kernel, toy.arch))
    cases = in_each_case(
        mutant,
        lambda parameter, is_: Values(kernel, toy.arch, given={parameter: number(is_)}),
        lambda values: dies_out(mutant, values),
    )
    return bool(whole), bool(cases)


@pytest.mark.parametrize(
    ("odd", "most", "shown"), [(True, 3, True), (False, 3, False), (False, 0, True), (True, 9, False)]
)
def test_a_change_is_none_where_it_is_none_for_each_number(reference64, declare, odd, most, shown):
    """Of 1 part the mask is 0 either way, of more it is all bits, or the lowest, and an odd part is none of the first;
    ten numbers are not few.
    """
    assert shown_of(reference64, declare, first_of_parts(odd), most) == (most == 0, shown)
