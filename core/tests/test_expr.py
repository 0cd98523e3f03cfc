"""Expressions against Python's own evaluator, exact fractions and hand-counted tables."""

import ast
import json
import math
import types
from fractions import Fraction

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinfolk.expr import (
    I64_MAX,
    I64_MIN,
    ExprError,
    Scope,
    TensorGeometry,
    all_of,
    any_of,
    ceil_div,
    const,
    eq,
    extent,
    fact,
    field,
    floor_div,
    from_data,
    from_json,
    is_zero,
    maximum,
    minimum,
    multiple_of,
    ne,
    not_,
    one_of,
    select,
    stride,
)
from kinfolk.expr.node import MAX_HEIGHT
from kinfolk.expr.predicate import surely_holds


class Fields:
    """A request of any fields."""

    def __init__(self, **values):
        self.__dict__.update(values)


def value(expr, arch=None, tensors=None, **fields):
    return expr.evaluate(Scope(request=Fields(**fields), arch=arch or {}, tensors=tensors or {}))


NAMES = ("x", "y", "z")
leaf = st.one_of(st.integers(-40, 40).map(const), st.sampled_from(NAMES).map(field))


def integers(inner):
    conditions = st.builds(lambda a, b, build: build(a, b), inner, inner, st.sampled_from(COMPARISONS))
    pair = st.builds(lambda a, b, build: build(a, b), inner, inner, st.sampled_from(ARITHMETIC))
    return st.one_of(pair, st.builds(select, logic(conditions), inner, inner))


def logic(conditions):
    several = st.lists(conditions, max_size=3)
    return st.one_of(
        conditions,
        conditions.map(not_),
        several.map(lambda terms: all_of(*terms)),
        several.map(lambda terms: any_of(*terms)),
        st.builds(one_of, leaf, st.lists(st.integers(-5, 5), min_size=1, max_size=4)),
    )


ARITHMETIC = (
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a // b,
    ceil_div,
    minimum,
    maximum,
)
COMPARISONS = (
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
    eq,
    ne,
)
expressions = st.recursive(leaf, integers, max_leaves=12)
conditions = logic(st.builds(lambda a, b, build: build(a, b), expressions, expressions, st.sampled_from(COMPARISONS)))
numbers = st.integers(-60, 60)


def lazy_select(text):
    """Evaluate printed text with Python's parser; select becomes a conditional expression, so it is lazy as ours."""

    class Rewrite(ast.NodeTransformer):
        def visit_Call(self, node):
            self.generic_visit(node)
            if node.func.id == "select":
                return ast.IfExp(test=node.args[0], body=node.args[1], orelse=node.args[2])
            return node

    tree = ast.fix_missing_locations(Rewrite().visit(ast.parse(text, mode="eval")))
    return compile(tree, text, "eval")


ORACLE = {
    "ceil_div": lambda a, b: math.ceil(Fraction(a, b)),
    "min": min,
    "max": max,
    "all_of": lambda *terms: all(terms),
    "any_of": lambda *terms: any(terms),
}


@given(st.one_of(expressions, conditions), numbers, numbers, numbers)
def test_printed_text_means_to_python_what_the_tree_means_to_us(expr, x, y, z):
    try:
        expected = eval(lazy_select(str(expr)), dict(ORACLE), {"x": x, "y": y, "z": z})
    except ZeroDivisionError:
        with pytest.raises(ExprError):
            value(expr, x=x, y=y, z=z)
        return
    found = value(expr, x=x, y=y, z=z)
    assert found == expected
    assert type(found) is type(expected)


@given(st.one_of(expressions, conditions))
def test_json_gives_back_the_same_tree_and_the_same_text(expr):
    twin = from_json(expr.to_json())
    assert twin == expr
    assert hash(twin) == hash(expr)
    assert twin.to_json() == expr.to_json()
    assert json.loads(expr.to_json()) == expr.data()


@given(expressions, expressions)
def test_canonical_text_is_equal_only_for_equal_trees(first, second):
    assert (first.to_json() == second.to_json()) == (first == second)


# Hand-counted: a, b, floor(a / b), ceil(a / b).
QUOTIENTS = [
    (7, 2, 3, 4),
    (-7, 2, -4, -3),
    (7, -2, -4, -3),
    (-7, -2, 3, 4),
    (6, 3, 2, 2),
    (-6, 3, -2, -2),
    (0, -5, 0, 0),
    (I64_MIN, 2, -(2**62), -(2**62)),
    (I64_MAX, 2, 2**62 - 1, 2**62),
    (I64_MIN, I64_MAX, -2, -1),
]


@pytest.mark.parametrize("a, b, floor, ceil", QUOTIENTS)
def test_divisions_round_as_named(a, b, floor, ceil):
    assert value(floor_div(a, b)) == floor == math.floor(Fraction(a, b))
    assert value(ceil_div(a, b)) == ceil == math.ceil(Fraction(a, b))
    assert value(field("a").ceil_div(field("b")), a=a, b=b) == ceil


@pytest.mark.parametrize(
    "build, fits, overflows",
    [
        (lambda x: x + 1, I64_MAX - 1, I64_MAX),
        (lambda x: x - 1, I64_MIN + 1, I64_MIN),
        (lambda x: x * 2, 2**62 - 1, 2**62),
        (lambda x: 0 - x, -I64_MAX, I64_MIN),
        (lambda x: x // -1, I64_MIN + 1, I64_MIN),
        (lambda x: x.ceil_div(-1), I64_MIN + 1, I64_MIN),
    ],
)
def test_arithmetic_stops_at_64_bits(build, fits, overflows):
    expr = build(field("total"))
    value(expr, total=fits)
    with pytest.raises(ExprError) as caught:
        value(expr, total=overflows)
    assert str(expr) in str(caught.value)
    assert str(overflows) in str(caught.value)


def test_division_by_zero_names_expression_and_values():
    with pytest.raises(ExprError, match=r"total // splits: 12 divided by zero"):
        value(field("total") // field("splits"), total=12, splits=0)


def test_branches_and_terms_that_do_not_decide_are_not_evaluated():
    broken = const(1) // field("zero") > 0
    assert value(all_of(field("zero") > 0, broken), zero=0) is False
    assert value(any_of(field("zero").eq(0), broken), zero=0) is True
    assert value(select(field("zero").eq(0), 7, const(1) // field("zero")), zero=0) == 7
    with pytest.raises(ExprError):
        value(all_of(field("zero") < 1, broken), zero=0)


def test_strings_and_flags_are_only_compared_for_equality():
    dtype = field("dtype")
    assert value(dtype.eq("bf16"), dtype="bf16") is True
    assert value(dtype.ne("bf16"), dtype="bf16") is False
    assert value(dtype.one_of(("f16", "bf16")), dtype="f32") is False
    assert value(field("causal"), causal=True) is True
    for wrong in (lambda: const("a") + 1, lambda: const("a") < 1, lambda: const(True) * 2, lambda: eq(const("a"), 1)):
        with pytest.raises(TypeError):
            wrong()
    for wrong in (lambda: not_(const(1)), lambda: all_of(const(3)), lambda: select(const(1), 2, 3)):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(TypeError):
        one_of(field("x"), (1, True))


@pytest.mark.parametrize("found", [True, "4", 4.0, None, 2**63, -(2**63) - 1])
def test_a_field_of_another_type_is_no_number(found):
    with pytest.raises(ExprError):
        value(field("num_heads") + 1, num_heads=found)
    assert value(field("num_heads") + 1, num_heads=I64_MAX - 1) == I64_MAX


def test_equality_across_types_is_an_error_not_a_no():
    with pytest.raises(ExprError, match="different types"):
        value(field("causal").eq(1), causal=True)
    with pytest.raises(ExprError):
        value(field("causal").one_of((0, 1)), causal=True)
    assert const(1) != const(True)
    assert one_of(field("x"), (1,)) != one_of(field("x"), (True,))


def test_no_node_has_a_truth_value_in_python():
    heads = field("num_heads")
    with pytest.raises(TypeError, match="all_of"):
        bool(heads)
    with pytest.raises(TypeError):
        _ = 0 < heads < 5
    with pytest.raises(TypeError):
        _ = heads > 1 and heads < 5


def test_leaves_find_facts_strides_and_extents():
    geometry = {"table": TensorGeometry((3, 7), (16, 1)), "plain": TensorGeometry.contiguous((2, 3, 4))}
    assert value(stride("table", 0), tensors=geometry) == 16
    assert value(extent("table", -1), tensors=geometry) == 7
    assert [value(stride("plain", axis), tensors=geometry) for axis in range(3)] == [12, 4, 1]
    assert value(fact("lds_bytes") // 2, arch={"lds_bytes": 100}) == 50
    for expr in (stride("table", 2), extent("other", 0), fact("vgprs"), field("absent")):
        with pytest.raises(ExprError):
            value(expr, arch={"lds_bytes": 1}, tensors=geometry)
    with pytest.raises(ExprError, match="lds_bytes"):
        value(fact("vgprs"), arch={"lds_bytes": 1})


def test_a_property_is_no_field():
    """C++ could not evaluate it, and a selection would not see what it depends on."""

    @attrs.frozen
    class Problem:
        length: int = 32

        @property
        def pages(self):
            return self.length // 16

    scope = Scope(request=Problem())
    assert field("length").evaluate(scope) == 32
    with pytest.raises(ExprError, match="no field 'pages'"):
        field("pages").evaluate(scope)


def test_leaves_are_listed_once_in_order():
    expr = field("b") * fact("c") + minimum(field("b"), stride("t", 1), 4)
    assert expr.leaves() == (field("b"), fact("c"), stride("t", 1))


TEXTS = [
    (field("num_heads") * field("kv_lora_rank"), "num_heads * kv_lora_rank"),
    ((field("a") + 1) * 2, "(a + 1) * 2"),
    (field("a") + 1 * field("b"), "a + 1 * b"),
    (field("a") - (field("b") - 1), "a - (b - 1)"),
    (field("a") - field("b") - 1, "a - b - 1"),
    (ceil_div(field("a"), 16) * 16, "ceil_div(a, 16) * 16"),
    (all_of(field("a") < 1, any_of(field("b"), not_(field("c")))), "a < 1 and (b or not c)"),
    (eq(field("a") < 1, field("b")), "(a < 1) == b"),
    (one_of(field("dtype"), ("bf16",)), "dtype in ('bf16',)"),
    (not_(all_of(field("a"), field("b"))), "not (a and b)"),
    (stride("table", 0) <= 5, "stride(table, 0) <= 5"),
]


@pytest.mark.parametrize("expr, text", TEXTS)
def test_text_reads_as_written(expr, text):
    assert str(expr) == text


@pytest.mark.parametrize("n", range(-33, 34))
def test_multiple_of_agrees_with_the_remainder(n):
    assert value(multiple_of(field("n"), 16), n=n) is (n % 16 == 0)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        ["pow", ["const", 1], ["const", 2]],
        ["add", ["const", 1]],
        ["add", ["const", 1], ["const", 2], ["const", 3]],
        ["const", 1.5],
        ["const", None],
        ["const", 2**63],
        ["field", 3],
        ["stride", "t"],
        ["add", ["const", "a"], ["const", 1]],
        ["one_of", ["field", "x"], []],
        ["one_of", ["field", "x"], [1, "a"]],
        [["const", 1]],
    ],
)
def test_data_that_is_no_tree_is_refused(data):
    with pytest.raises(ValueError, match=r"expression|64 bits"):
        from_data(data)


@pytest.mark.parametrize("wrong", [1.5, None, 2**63, (1,)])
def test_constants_hold_only_what_expressions_hold(wrong):
    with pytest.raises((TypeError, ValueError)):
        const(wrong)


def nested(count):
    expr = field("rows")
    for _ in range(count):
        expr = expr + 1
    return expr


def test_an_expression_nests_so_deep_and_no_deeper():
    deepest = nested(MAX_HEIGHT)
    assert deepest.evaluate(Scope(request=types.SimpleNamespace(rows=1))) == 1 + MAX_HEIGHT
    assert from_json(deepest.to_json()) == deepest and hash(deepest) == hash(nested(MAX_HEIGHT))
    with pytest.raises(ValueError, match=f"at most {MAX_HEIGHT} operations deep"):
        nested(MAX_HEIGHT + 1)


@pytest.mark.parametrize("levels", [MAX_HEIGHT + 1, 100_000])
def test_a_text_that_nests_deeper_is_no_expression(levels):
    text = '["not",' * levels + '["const",true]' + "]" * levels
    with pytest.raises(ValueError, match="operations deep"):
        from_json(text)


def test_depth_is_no_part_of_what_an_expression_is():
    assert nested(2) == field("rows") + 1 + 1 and "height" not in nested(2).to_json()


@pytest.mark.parametrize(("held", "answer"), [(0.0, True), (-0.0, True), (5e-324, False), (-1.5, False), (0, True)])
def test_of_a_float_only_whether_it_is_zero_is_asked(held, answer):
    assert value(is_zero("cap"), cap=held) is answer
    assert value(not_(is_zero("cap")), cap=held) is not answer
    assert from_json(is_zero("cap").to_json()) == is_zero("cap") and str(is_zero("cap")) == "is_zero(cap)"
    assert surely_holds(is_zero("cap"))(Fields(cap=held)) is answer


@pytest.mark.parametrize("held", [True, "0", None])
def test_what_is_no_number_is_not_zero_either(held):
    with pytest.raises(ExprError, match=r"^field cap is .*, not a number$"):
        value(is_zero("cap"), cap=held)


def test_whether_something_is_zero_is_asked_of_fields():
    with pytest.raises(ValueError, match="is asked of a field, not of x \\+ y"):
        from_data(["is_zero", ["add", ["field", "x"], ["field", "y"]]])
    with pytest.raises(ExprError, match="has no field 'cap'"):
        value(is_zero("cap"), cup=1)
