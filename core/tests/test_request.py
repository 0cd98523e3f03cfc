"""Relations that requests share: heads that others read are a divisor of theirs."""

from typing import ClassVar

import attrs
import pytest

from kinfolk.fields import ExactInt
from kinfolk.request import Relation, Request, heads_divide


@attrs.frozen(kw_only=True)
class Heads(Request):
    family: ClassVar[str] = "heads"
    relations: ClassVar[tuple[Relation, ...]] = (heads_divide("num_heads", "num_kv_heads", "keys"),)
    num_heads: int = attrs.field(validator=ExactInt())
    num_kv_heads: int = attrs.field(validator=ExactInt())


@pytest.mark.parametrize(("heads", "shared"), [(1, 1), (8, 8), (8, 2), (9, 3)])
def test_a_multiple_is_taken(heads, shared):
    assert Heads(num_heads=heads, num_kv_heads=shared)


@pytest.mark.parametrize(("heads", "shared", "nearest"), [(7, 8, 8), (9, 8, 16), (8, 3, 9)])
def test_another_number_is_refused_with_the_next_that_is_one(heads, shared, nearest):
    words = f"num_heads .* a multiple of num_kv_heads = {shared}, .*Repeat the keys of heads, or pass {nearest}."
    with pytest.raises(ValueError, match=words):
        Heads(num_heads=heads, num_kv_heads=shared)
