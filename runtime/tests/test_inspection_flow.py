"""Loops and cold blocks of machine code, on graphs drawn by hand."""

from __future__ import annotations

import pytest

from kinfolk.machine import Block, Instruction
from kinfolk_runtime.inspection.flow import Flow
from kinfolk_runtime.inspection.loops import main_loop

MATRIX = Instruction(text="multiply", issue="matrix")
OTHER = Instruction(text="add", issue="vector")


def blocks(*drawn: tuple[str, str, str]) -> tuple[Block, ...]:
    """Return blocks from (name, what it leads to, contents): `m` is a matrix instruction, anything else another."""
    places = {name: number for number, (name, _, _) in enumerate(drawn)}
    return tuple(
        Block(
            label=name,
            source=f"{name}.1" if name.startswith("cold") else "",
            instructions=tuple(MATRIX if each == "m" else OTHER for each in contents),
            successors=tuple(places[other] for other in following.split()),
        )
        for name, following, contents in drawn
    )


NESTED = blocks(
    ("entry", "outer", "x"),
    ("outer", "inner", "mmmm"),
    ("inner", "inner after", "mm"),
    ("after", "outer second", "m"),
    ("second", "second end", "m"),
    ("end", "", "x"),
)


def test_dominators_of_a_graph_with_two_ways():
    """entry to left or right to join: only the entry is on every way to the join; what cannot be reached is no part."""
    flow = Flow.of(
        blocks(
            ("entry", "left right", "x"),
            ("left", "join", "x"),
            ("right", "join", "x"),
            ("join", "", "x"),
            ("lost", "join", "x"),
        )
    )
    assert dict(flow.dominators) == {0: 0, 1: 0, 2: 0, 3: 0}
    assert flow.dominates(0, 3) and not flow.dominates(1, 3) and flow.dominates(3, 3)
    assert flow.loops() == {}


def test_the_loops_of_a_nest_and_the_main_one():
    assert Flow.of(NESTED).loops() == {1: {1, 2, 3}, 2: {2}, 4: {4}}
    loop = main_loop(NESTED)
    assert loop is not None and loop.header == "inner", "the outer loop has more, but another loop inside"


def test_a_jump_into_the_middle_makes_no_natural_loop():
    irreducible = blocks(("entry", "a b", "x"), ("a", "b", "m"), ("b", "a end", "m"), ("end", "", "x"))
    assert Flow.of(irreducible).loops() == {} and main_loop(irreducible) is None


def test_code_without_a_loop_and_without_code():
    assert main_loop(blocks(("entry", "", "mm"))) is None and main_loop(()) is None


def test_without_matrix_instructions_it_is_the_largest_innermost_loop():
    plain = blocks(("entry", "a", "x"), ("a", "a b", "xx"), ("b", "b c", "xxx"), ("c", "", "x"))
    loop = main_loop(plain)
    assert loop is not None and loop.header == "b"


def labels(found):
    return [block.label for block in found]


MARKED = (
    ("entry", "loop", "x"),
    ("loop", "split cold", "m"),
    ("split", "join", "x"),
    ("cold", "part join", "x"),
    ("part", "join", "mx"),
    ("join", "loop end", "m"),
    ("end", "", "x"),
)


def test_a_named_block_is_cold_with_what_only_it_leads_to():
    loop = main_loop(blocks(*MARKED))
    assert loop is not None and (labels(loop.cold), loop.rule) == (["cold", "part"], "named")
    assert len(loop.instructions) - len(loop.hot) == 3


def test_a_block_that_leads_to_nothing_else_is_cold_as_well():
    drawn = [("loop", "split way", "m") if name == "loop" else (name, to, held) for name, to, held in MARKED]
    drawn.insert(3, ("way", "cold", "x"))
    loop = main_loop(blocks(*drawn))
    assert loop is not None and labels(loop.cold) == ["way", "cold", "part"]


def test_the_control_without_the_name_nothing_is_cold():
    unmarked = [(name.replace("cold", "warm"), to.replace("cold", "warm"), held) for name, to, held in MARKED]
    loop = main_loop(blocks(*unmarked))
    assert loop is not None and (loop.cold, loop.rule) == ((), "layout")


BEHIND = (
    ("entry", "loop", "x"),
    ("loop", "next rare", "m"),
    ("next", "loop out", "m"),
    ("out", "end", "x"),
    ("rare", "next", "x"),
    ("end", "", "x"),
)


@pytest.mark.parametrize("held, cold", [("x", ["rare"]), ("xmx", [])], ids=["rare", "with a matrix instruction"])
def test_by_layout_a_block_behind_the_loop_is_cold_unless_it_multiplies(held, cold):
    loop = main_loop(blocks(*((name, to, held if name == "rare" else had) for name, to, had in BEHIND)))
    assert loop is not None and (labels(loop.cold), loop.rule) == (cold, "layout")


def test_by_layout_a_block_in_line_or_one_that_every_round_takes_is_not_cold():
    inline = blocks(("e", "loop", "x"), ("loop", "rare next", "m"), ("rare", "next", "x"), ("next", "loop", "m"))
    loop = main_loop(inline)
    assert loop is not None and loop.cold == ()
    taken = blocks(
        ("e", "loop", "x"), ("loop", "far", "m"), ("next", "loop out", "m"), ("out", "", "x"), ("far", "next", "x")
    )
    loop = main_loop(taken)
    assert loop is not None and loop.cold == ()


def test_a_caller_that_knows_better_says_by_which_rule():
    loop = main_loop(blocks(*BEHIND), rule="named")
    assert loop is not None and (loop.cold, loop.rule) == ((), "named")
