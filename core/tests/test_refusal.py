"""Limits are data: the check, the words and the row are read from one condition."""

import json

import attrs
import pytest

from kinfolk.errors import PluginError
from kinfolk.expr import all_of, ceil_div, const, eq, fact, field, multiple_of, not_, one_of, select
from kinfolk.fields import ExactBool, ExactInt, FieldError, OneOf
from kinfolk.refusal import Limit, Refusal, field_refusal, unmet


@attrs.frozen(kw_only=True)
class Problem:
    num_heads: int = attrs.field(default=16, validator=ExactInt())
    page_size: int = attrs.field(default=16, validator=ExactInt())
    causal: bool = attrs.field(default=True, validator=ExactBool())
    dtype: str = attrs.field(default="bf16", validator=OneOf(("bf16", "f16")))


def limit(name, condition, code="toy.limit"):
    return Limit(code, "cannot", name, condition, because="it is so", remedy="Change it.")


ARCH = {"lds_bytes": 65536, "max_index": 2147483647}
LDS_KIB = fact("lds_bytes") // 1024
HEADS, PAGE = field("num_heads"), field("page_size")
OWN = select(fact("lds_bytes") > 1024, "bf16", "f16")

WORDED = [
    ("num_heads", one_of(HEADS, (16, 32, 48, 64)), "16, 32, 48 or 64", (16, 64), (15, 65)),
    ("num_heads", HEADS <= 65535, "at most 65535", (65535,), (65536,)),
    ("num_heads", const(65535) >= HEADS, "at most 65535", (65535,), (65536,)),
    ("num_heads", HEADS < 128, "less than 128", (127,), (128,)),
    ("num_heads", HEADS > 2, "more than 2", (3,), (2,)),
    ("num_heads", eq(HEADS, 64), "64", (64,), (63, 65)),
    ("num_heads", HEADS.ne(64), "anything but 64", (63, 65), (64,)),
    ("num_heads", multiple_of(HEADS, 16), "a multiple of 16", (16, 32), (15, 17)),
    ("num_heads", all_of(HEADS >= 16, HEADS <= 128), "at least 16 and at most 128", (16, 128), (15, 129)),
    ("num_heads", HEADS <= LDS_KIB, "at most 64 (lds_bytes // 1024)", (64,), (65,)),
    ("num_heads", ceil_div(HEADS, 16) <= LDS_KIB, "at most 1024 (lds_bytes // 1024 * 16)", (1024,), (1025,)),
    ("dtype", eq(field("dtype"), OWN), "bf16 (by lds_bytes)", ("bf16",), ("f16",)),
    ("num_heads", HEADS * PAGE <= 1024, "num_heads * page_size <= 1024", (64,), (65,)),
    ("causal", field("causal"), "True", (True,), (False,)),
    ("causal", not_(field("causal")), "False", (False,), (True,)),
    ("dtype", one_of(field("dtype"), ("bf16",)), "bf16", ("bf16",), ("f16",)),
]


@pytest.mark.parametrize("name, condition, words, good, bad", WORDED)
def test_each_condition_is_enforced_on_both_sides_of_its_edge_and_says_so(name, condition, words, good, bad):
    rule = limit(name, condition)
    for value in good:
        assert unmet((rule,), Problem(**{name: value}), ARCH, "toy") == ()
    for value in bad:
        [refusal] = unmet((rule,), Problem(**{name: value}), ARCH, "toy")
        assert refusal.limit == words
        assert (refusal.field, refusal.value, refusal.plugin) == (name, value, "toy")


def test_what_is_asked_of_an_arch_alone_is_said_of_it():
    [refusal] = unmet((limit("num_heads", fact("lds_bytes") >= 2**20),), Problem(), ARCH, "toy")
    assert refusal.limit == "an arch whose lds_bytes is at least 1048576"


def test_words_of_its_own_stand_for_a_condition_about_more_than_its_field():
    rule = attrs.evolve(limit("num_heads", HEADS * PAGE <= 1024), takes="few enough for their pages")
    [refusal] = unmet((rule,), Problem(num_heads=65), ARCH, "toy")
    assert refusal.limit == rule.limit == rule.takes
    assert unmet((rule,), Problem(num_heads=64), ARCH, "toy") == ()


def test_a_word_that_people_use_has_a_remedy_of_its_own():
    takes = OneOf(("bf16", "f16"), instead={"half": "Pass f16."})
    for word, remedy in (("Half", "Pass f16."), ("whole", "Pass bf16 or f16.")):
        with pytest.raises(FieldError) as caught:
            takes(Problem(), attrs.fields(Problem).dtype, word)
        assert str(caught.value).endswith(f". {remedy}")


def test_every_unmet_limit_is_reported_in_order():
    limits = [
        limit("num_heads", HEADS < 4, "a"),
        limit("page_size", PAGE < 100, "b"),
        limit("page_size", PAGE < 4, "c"),
    ]
    assert [refusal.code for refusal in unmet(limits, Problem(), ARCH, "toy")] == ["a", "c"]


def test_the_sentence():
    rule = Limit(
        "toy.page",
        "not_implemented",
        field="page_size",
        condition=one_of(PAGE, (1, 16, 32, 64, 128)),
        because="a tile holds whole pages",
        remedy="Re-page the cache.",
    )
    [refusal] = unmet((rule,), Problem(page_size=48), ARCH, "kinfolk-toy")
    assert str(refusal) == (
        "kinfolk-toy: page_size is 48, supported: 1, 16, 32, 64 or 128 (a tile holds whole pages). Re-page the cache."
    )
    assert refusal.to_dict() == {
        "code": "toy.page",
        "kind": "not_implemented",
        "field": "page_size",
        "value": 48,
        "limit": "1, 16, 32, 64 or 128",
        "because": "a tile holds whole pages",
        "remedy": "Re-page the cache.",
        "plugin": "kinfolk-toy",
    }
    assert rule.limit == "1, 16, 32, 64 or 128"


def test_a_request_too_large_for_a_condition_is_refused_by_it():
    rule = limit("num_heads", HEADS * PAGE <= 1024)
    assert unmet((rule,), Problem(num_heads=1, page_size=1024), ARCH, "toy") == ()
    for page_size in (1025, 2**62):
        [refusal] = unmet((rule,), Problem(num_heads=2, page_size=page_size), ARCH, "toy")
        assert refusal.limit == "num_heads * page_size <= 1024"
    assert refusal.because.startswith("it is so; num_heads * page_size: 2 and 4611686018427387904 give")


@pytest.mark.parametrize(
    "heads, remedy",
    [(17, "Use 16 or 32 heads."), (33, "Use 32 or 48 heads."), (2**63 - 1, f"Use {2**63 - 16} or {{}} heads.")],
)
def test_a_remedy_names_the_values_nearby(heads, remedy):
    below = HEADS // 16 * 16
    rule = Limit(
        "toy.heads",
        "cannot",
        "num_heads",
        multiple_of(HEADS, 16),
        because="it is so",
        remedy="Use {below} or {above} heads.",
        suggestions={"below": below, "above": below + 16},
    )
    [refusal] = unmet((rule,), Problem(num_heads=heads), ARCH, "toy")
    assert refusal.remedy == remedy.format(below + 16)
    assert unmet((rule,), Problem(num_heads=32), ARCH, "toy") == ()


def test_a_kind_that_no_reader_knows_is_refused():
    with pytest.raises(ValueError, match="slower"):
        Limit("toy.slow", "slower", "page_size", PAGE < 4, because="b", remedy="r")
    with pytest.raises(TypeError):
        Limit("toy.slow", "cannot", "page_size", True, because="b", remedy="r")


@attrs.frozen
class Machine:
    facts: dict = attrs.field(factory=lambda: dict(ARCH))


def test_a_fact_that_an_arch_does_not_declare_is_a_refusal_that_names_it():
    """Nobody's fault: of an arch that nobody thought of, less is known. What is known is judged as before."""
    rule = limit("num_heads", fact("registers") // fact("simds") >= HEADS * 64)
    other = limit("page_size", PAGE < 4)
    [refusal, judged] = unmet((rule, limit("num_heads", HEADS <= LDS_KIB), other), Problem(), Machine(), "toy")
    assert (refusal.code, refusal.kind, refusal.field, refusal.value) == ("toy.limit", "cannot", "num_heads", 16)
    assert refusal.limit == "an arch that declares registers and simds"
    assert refusal.because == "it is so; judged by registers // simds >= num_heads * 64"
    assert refusal.remedy.startswith("Declare registers and simds among the arch's facts")
    assert judged.field == "page_size"
    declared = Machine({**ARCH, "registers": 4096, "simds": 4})
    assert unmet((rule,), Problem(), declared, "toy") == ()


@pytest.mark.parametrize("rule", [limit("num_heads", field("absent") < 4), limit("absent", HEADS < 4)])
def test_a_limit_that_cannot_be_judged_is_its_plugins_fault(rule):
    with pytest.raises(PluginError, match=r"toy: limit toy\.limit .*absent"):
        unmet((rule,), Problem(), ARCH, "toy")


def test_a_condition_that_is_no_condition_is_its_plugins_fault():
    with pytest.raises(PluginError, match="not a bool"):
        unmet((limit("num_heads", HEADS),), Problem(), ARCH, "toy")


@pytest.mark.parametrize(
    "value, code",
    [(True, "request.num_heads.type"), (2.0, "request.num_heads.type"), (0, "request.num_heads.range")],
)
def test_a_field_error_becomes_a_row(value, code):
    with pytest.raises(FieldError) as caught:
        Problem(num_heads=value)
    row = field_refusal(caught.value, "kinfolk-toy").to_dict()
    assert (row["code"], row["kind"], row["field"], row["value"]) == (code, "invalid", "num_heads", value)
    assert row["limit"]
    assert row["because"]
    assert row["remedy"]
    json.dumps(row)


def test_a_value_that_json_cannot_hold_is_shown():
    refusal = Refusal(code="c", kind="invalid", field="f", value=object, limit="l", because="b", remedy="r", plugin="p")
    assert refusal.to_dict()["value"] == "<class 'object'>"
