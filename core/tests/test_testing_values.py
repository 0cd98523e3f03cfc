"""Values that the kit offers to fields: those that a field takes, and those that it must not."""

import attrs
import pytest

from kinfolk.expr import all_of, eq, fact, field, select
from kinfolk.fields import ExactBool, ExactFloat, ExactInt, ExactStr, OneOf, Optional, TupleOf
from kinfolk.testing.values import (
    annotated,
    equalled,
    held,
    kind_of,
    numbers_in,
    out_of_range,
    pool,
    takes,
    takes_none,
    wrong_types,
)


@attrs.frozen(kw_only=True)
class Fields:
    count: int = attrs.field(validator=ExactInt(minimum=16, maximum=128, step=16))
    flag: bool = attrs.field(validator=ExactBool())
    scale: float = attrs.field(validator=ExactFloat(minimum=0.0, maximum=4.0, exclusive_minimum=True))
    dtype: str = attrs.field(validator=OneOf(("bf16", "f16")))
    pin: str | None = attrs.field(default=None, validator=Optional(ExactStr()))
    widths: tuple[int, ...] = attrs.field(validator=TupleOf(ExactInt()))
    plain: int = attrs.field(validator=attrs.validators.instance_of(int))


BY_NAME = {each.name: each for each in attrs.fields(Fields)}
EXAMPLES = {"count": 16, "flag": True, "scale": 1.0, "dtype": "f16", "pin": "a", "widths": (1,), "plain": 3}


MACHINE = {"lanes": 96}
"""As much of an arch as conditions ask for: its facts."""


@pytest.mark.parametrize("name", BY_NAME)
def test_a_pool_holds_values_that_the_field_takes_of_its_type(name):
    declared = BY_NAME[name]
    found = pool(Fields, declared, ())
    assert found
    assert all(takes(Fields, declared, value) for value in found)
    assert {type(value) for value in found} <= {type(EXAMPLES[name]), *([type(None)] if name == "pin" else [])}


@pytest.mark.parametrize("name", BY_NAME)
def test_wrong_values_are_refused_by_an_exact_field_and_seen_where_it_is_not_exact(name):
    declared, kind = BY_NAME[name], kind_of(BY_NAME[name], EXAMPLES[name])
    offered = wrong_types(kind, EXAMPLES[name]) + out_of_range(declared, kind)
    taken = [value for value in offered if takes(Fields, declared, value)]
    assert bool(taken) is (name == "plain"), taken


def test_out_of_range_is_the_first_value_outside_at_both_ends():
    assert {0, 15, 129, 24} & set(out_of_range(BY_NAME["count"], int)) == {15, 129, 24}
    found = out_of_range(BY_NAME["scale"], float)
    assert 0.0 in found and any(4.0 < value < 4.0001 for value in found)


def test_none_stands_for_something_only_where_it_is_declared():
    assert [name for name, declared in BY_NAME.items() if takes_none(declared)] == ["pin"]


def test_types_are_read_from_annotations():
    assert annotated(BY_NAME["plain"]) is int
    assert annotated(BY_NAME["widths"]) is tuple


def test_a_pool_has_both_sides_of_every_number_that_a_limit_names():
    limits = (field("count") <= fact("lanes"), field("count").one_of((32, 64)), field("other") <= 7)
    numbers = list(numbers_in(limits, "count", MACHINE))
    assert set(numbers) == {96, 32, 64}
    assert {48, 64, 80, 96, 112} <= set(pool(Fields, BY_NAME["count"], numbers))


def test_a_condition_that_leaves_64_bits_does_not_hold():
    condition = field("count") * 2**62 >= 0
    assert held(condition, {"count": 1}, MACHINE)
    assert not held(condition, {"count": 4}, MACHINE)


def test_an_equality_with_other_fields_says_what_a_field_would_have_to_be():
    """Wherever it stands in a condition, on either side; not with itself, with constants, or where it has no value."""
    whole = select(field("flag"), eq(field("count"), field("rows") * 3), True)
    assert list(equalled([whole], "count", {"flag": True, "rows": 7, "count": 1}, {})) == [21]
    assert list(equalled([eq(field("rows") * 3, field("count"))], "count", {"rows": 2}, {})) == [6]
    others = all_of(
        eq(field("count"), 5), eq(field("count"), field("count") + 1), eq(field("count"), field("rows") * 4)
    )
    assert list(equalled([others], "count", {"rows": 2**62, "count": 1}, {})) == []
