"""`key=value` words: which type a text is, and which request or refusals the words make."""

import math
import re
from typing import ClassVar

import attrs
import click
import pytest

from kinfolk.cli.request_fields import field_rows
from kinfolk.cli.values import assignments, parsed_value, request_from
from kinfolk.errors import PluginError
from kinfolk.fields import ExactBool, ExactFloat, ExactInt, OneOf, launch_field, means
from kinfolk.request import Request


@attrs.frozen(kw_only=True)
class RowsRequest(Request):
    family: ClassVar[str] = "rows"
    rows: int = launch_field(validator=ExactInt(1, 64, 16), metadata=means("rows of the matrix"))
    width: int = attrs.field(validator=ExactInt())
    scale: float = attrs.field(validator=ExactFloat(0.0))
    causal: bool = attrs.field(validator=ExactBool())
    dtype: str = attrs.field(default="bf16", validator=OneOf(("bf16", "f16")))

    @classmethod
    def cli_defaults(cls, given):
        filled = {"causal": True}
        if "width" in given:
            filled["scale"] = 1 / math.sqrt(given["width"])
        return filled

    def check(self):
        if self.width > 10 * self.rows:
            raise ValueError("RowsRequest.width must be at most ten times rows")


@pytest.mark.parametrize(
    "text, value",
    [
        ("true", True),
        ("True", True),
        ("FALSE", False),
        ("truth", "truth"),
        ("0", 0),
        ("128", 128),
        ("-7", -7),
        ("007", 7),
        ("1_000", "1_000"),
        ("٣", "٣"),
        ("0x10", "0x10"),
        ("+5", "+5"),
        ("", ""),
        ("2.0", 2.0),
        ("-0.5", -0.5),
        (".25", 0.25),
        ("1.", 1.0),
        ("1e-3", 1e-3),
        ("2.5E+2", 250.0),
        ("1e", "1e"),
        (".", "."),
        ("1.2.3", "1.2.3"),
        ("nan", "nan"),
        ("inf", "inf"),
        ("None", "None"),
        ("bf16", "bf16"),
        ("a=b", "a=b"),
        ("1 ", "1 "),
    ],
)
def test_a_text_has_one_type(text, value):
    found = parsed_value(text)
    assert (found, type(found)) == (value, type(value))


def test_words_keep_their_order_and_all_behind_the_first_equals_sign():
    assert list(assignments(["b=1", "a=x=y"]).items()) == [("b", 1), ("a", "x=y")]


@pytest.mark.parametrize(
    "words, said",
    [
        (["rows"], "is no field"),
        (["=3"], "is no field"),
        (["2rows=3"], "is no field"),
        (["rows=1", "rows=2"], "rows is given twice: 1 and 2"),
    ],
)
def test_a_word_of_another_form_is_a_usage_error(words, said):
    with pytest.raises(click.UsageError, match=said) as caught:
        assignments(words)
    assert caught.value.exit_code == 2


def test_an_unknown_field_is_a_usage_error_with_the_nearest():
    with pytest.raises(click.UsageError, match=r"no rows field \'rwos\'\. Did you mean rows\?"):
        request_from(RowsRequest, ["rwos=1"])
    with pytest.raises(click.UsageError, match="Known: rows, width, scale, causal, dtype"):
        request_from(RowsRequest, ["zzz=1"])


def test_a_request_is_made_and_what_was_filled_in_is_told():
    read = request_from(RowsRequest, ["rows=16", "width=64"])
    assert read.request == RowsRequest(rows=16, width=64, scale=0.125, causal=True)
    assert read.defaults == {"causal": True, "scale": 0.125}
    assert (read.given, read.refusals) == ({"rows": 16, "width": 64}, ())


def test_what_is_given_wins_over_what_would_be_filled_in():
    read = request_from(RowsRequest, ["rows=16", "width=64", "causal=false", "scale=1.0", "dtype=f16"])
    assert read.defaults == {}
    assert read.request == RowsRequest(rows=16, width=64, scale=1.0, causal=False, dtype="f16")


@pytest.mark.parametrize(
    "word, code, value",
    [
        ("rows=True", "request.rows.type", True),
        ("rows=2.0", "request.rows.type", 2.0),
        ("rows=x", "request.rows.type", "x"),
        ("rows=17", "request.rows.range", 17),
        ("rows=80", "request.rows.range", 80),
        ("scale=1", "request.scale.type", 1),
        ("scale=1e999", "request.scale.range", math.inf),
        ("causal=1", "request.causal.type", 1),
        ("dtype=f64", "request.dtype.range", "f64"),
    ],
)
def test_a_wrong_value_is_a_refusal_with_field_value_limit_and_remedy(word, code, value):
    words = {"rows": "rows=16", "width": "width=64"} | {word.partition("=")[0]: word}
    read = request_from(RowsRequest, words.values())
    [refusal] = read.refusals
    assert read.request is None
    assert (refusal.code, refusal.kind, refusal.field, refusal.value) == (
        code,
        "invalid",
        word.partition("=")[0],
        value,
    )
    assert type(refusal.value) is type(value)
    assert refusal.limit
    assert refusal.remedy
    assert refusal.plugin == "rows"


def test_all_wrong_values_are_refused_at_once():
    codes = [refusal.code for refusal in request_from(RowsRequest, ["rows=2.0", "width=0", "causal=maybe"]).refusals]
    assert codes == ["request.rows.type", "request.width.range", "request.causal.type"]


def test_every_missing_field_is_a_refusal():
    read = request_from(RowsRequest, [])
    assert [refusal.code for refusal in read.refusals] == [f"request.{name}.missing" for name in ("rows", "width")], (
        "scale follows from width"
    )


def retyped(word):
    """Return the word that the remedy of a refused one says to pass."""
    words = {"rows": "rows=16", "width": "width=64"} | {word.partition("=")[0]: word}
    [refusal] = request_from(RowsRequest, words.values()).refusals
    [said] = re.findall(rf"{refusal.field}=[^ ?]*[^ ?.]", refusal.remedy)
    return refusal, words | {refusal.field: said}


@pytest.mark.parametrize(
    "word, remedy",
    [
        ("rows=True", "Pass a whole number, as in rows=16."),
        ("rows=32.0", "Pass rows=32."),
        ("rows=17", "Pass rows=32."),
        ("rows=64.0", "Pass rows=64."),
        ("rows=80.0", "Pass a whole number, as in rows=16."),
        ("scale=1", "Pass scale=1.0."),
        ("scale=0", "Pass scale=0.0."),
        ("scale=-1", "Pass a decimal number, as in scale=1.0."),
        ("scale=x", "Pass a decimal number, as in scale=1.0."),
        ("causal=1", "Pass causal=true."),
        ("dtype=fp16", "Did you mean dtype=f16?"),
        ("dtype=bfloat16", "Did you mean dtype=bf16?"),
        ("dtype=16", "Did you mean dtype=f16?"),
        ("dtype=BF16", "Did you mean dtype=bf16?"),
        ("dtype=zzz", "Pass dtype=bf16."),
    ],
)
def test_a_remedy_is_what_to_type_and_is_taken(word, remedy):
    refusal, words = retyped(word)
    assert refusal.remedy == remedy
    assert "Python" not in str(refusal)
    assert request_from(RowsRequest, words.values()).request is not None


def test_the_fields_of_a_class_are_told_from_it():
    rows = {row.name: row for row in field_rows(RowsRequest)}
    assert [rows[name].filled_in for name in rows] == ["", "", "from the others", "true", "bf16"]
    assert rows["rows"].takes == "a whole number, a multiple of 16, from 1 to 64"
    assert (rows["dtype"].takes, rows["causal"].takes) == ("bf16 or f16", "true or false")
    assert (rows["rows"].means, rows["rows"].role, rows["width"].role) == ("rows of the matrix", "launch", "compiled")


def test_fields_that_do_not_fit_each_other_are_a_refusal():
    [refusal] = request_from(RowsRequest, ["rows=16", "width=161"]).refusals
    assert (refusal.code, refusal.limit) == ("request.width.range", "RowsRequest.width must be at most ten times rows")
    assert request_from(RowsRequest, ["rows=16", "width=160"]).request is not None


def test_defaults_that_fail_are_the_plugin_s_error():
    class Careless(RowsRequest):
        @classmethod
        def cli_defaults(cls, given):
            return {"scale": given["absent"]}

    with pytest.raises(PluginError, match="cli_defaults raised KeyError: 'absent'"):
        request_from(attrs.frozen(kw_only=True)(Careless), ["rows=16"])
