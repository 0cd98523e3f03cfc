"""The binder on what tensors hold: offsets and page ids, on the plain call and where it is asked for."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from paged_sum import PAGES, SEQUENCES, Composed, PagedSumRequest, expected, plan_of, refused, tensors

from kinfolk.contents import Lengths, PageIds
from kinfolk.errors import BindError
from kinfolk.expr import field
from kinfolk.plan import Axis
from kinfolk_runtime.binder import StatusError, call

BAD_CONTENTS = [
    ("offsets", [1, 9, 9, 14], "offsets[0] is 1"),
    ("offsets", [0, 9, 8, 14], "offsets[2] - offsets[1] is 8 - 9 = -1"),
    ("offsets", [0, 10, 10, 14], "offsets[1] - offsets[0] is 10 - 0 = 10"),
    ("table", [[3, 1, PAGES], [0, 0, 0], [0, 5, 0]], f"table[0, 2] is page {PAGES}"),
    ("table", [[3, 1, 6], [0, 0, 0], [0, -1, 0]], "table[2, 1] is page -1"),
]


@pytest.mark.parametrize("name, values, text", BAD_CONTENTS)
def test_contents_are_checked_when_asked(run, name, values, text):
    given = tensors() | {name: np.array(values, np.int32)}
    refused(run, given, text, check_contents=True)
    bound, _ = run(tensors(), check_contents=True)
    bound.tensors[name].array[...] = given[name]
    with pytest.raises(BindError):
        bound()


def test_ids_that_no_length_reaches_are_not_looked_at(run):
    given = tensors()
    given["table"][1] = 1000
    given["table"][2, 2] = -5
    run(given, check_contents=True)


def test_the_last_offset_where_the_plan_states_it(run):
    plan = plan_of()
    plan = attrs.evolve(plan, contents=(attrs.evolve(plan.contents[0], last=field("pages") * 2),))
    run(tensors(), plan, check_contents=True)
    given = tensors() | {"offsets": np.array([0, 9, 9, 13], np.int32)}
    refused(run, given, "offsets[3] is 13, the last offset is", plan=plan, check_contents=True)


def test_a_table_too_narrow_for_the_offsets(run):
    plan = plan_of(request=PagedSumRequest(sequences=SEQUENCES, longest=13, pages=PAGES, scale=0.5))
    given = tensors() | {"table": np.zeros((SEQUENCES, 4), np.int32), "offsets": np.array([0, 13, 13, 13], np.int32)}
    run(given, plan, check_contents=True)
    narrow = attrs.evolve(plan.binding("table"), shape=(Axis(SEQUENCES), Axis(1, at_least=True)))
    plan = attrs.evolve(plan, bindings=tuple(narrow if one.name == "table" else one for one in plan.bindings))
    given["table"] = np.zeros((SEQUENCES, 3), np.int32)
    refused(run, given, "table has 3 columns, sequence 0 of length 13 needs 4 pages", plan=plan, check_contents=True)


@pytest.mark.parametrize(
    "offsets, text",
    [
        ([10, 9, 8, 0], "offsets[0] is 10, a length in [0, 9]"),
        ([9, -1, 8, 0], "offsets[1] is -1, a length in [0, 9]"),
        ([9, 0, 9, 0], f"table[2, 2] is page {PAGES}"),
    ],
)
def test_lengths_say_how_many_there_are_and_how_many_pages_these_take(run, offsets, text):
    plan = attrs.evolve(
        plan_of(),
        contents=(
            Lengths(tensor="offsets", count=field("sequences"), most=field("longest")),
            PageIds(table="table", lengths="offsets", page_size=4, bound=field("pages")),
        ),
    )
    table = np.array([[3, 1, 6], [PAGES, 0, 0], [0, 5, PAGES]], np.int32)
    run(tensors() | {"table": table, "offsets": np.array([0, 0, 8, 8], np.int32)}, plan, check_contents=True)
    refused(
        run, tensors() | {"table": table, "offsets": np.array(offsets, np.int32)}, text, plan=plan, check_contents=True
    )


def test_the_plain_call_looks_into_contents_and_raises_on_the_status(toy64, run):
    composed, given = Composed(toy64), tensors()
    assert (call(plan_of(), given, composition=composed)["out"] == expected(given)).all()
    given["table"][2, 1] = PAGES
    with pytest.raises(BindError, match=r"table\[2, 1\]"):
        call(plan_of(), given, composition=composed)
    bound, outputs = run(given)  # not looked into: the kernel leaves the page out and counts its one row
    assert bound.status() == {"status": 1} and (outputs["out"] == expected(given)).all()
    unchecked = attrs.evolve(plan_of(), contents=())
    with pytest.raises(StatusError, match="status word status is 1"):
        call(unchecked, given, composition=composed)
