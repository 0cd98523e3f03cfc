"""Which requests of attention's gradients are any, and what the command line fills in."""

import attrs
import pytest

from kinfolk_attention_bwd.request import AttentionBwdRequest

REQUEST = AttentionBwdRequest(
    layout="bshd",
    batch=2,
    seqlen_q=20,
    seqlen_k=50,
    num_heads=8,
    num_kv_heads=2,
    num_v_heads=4,
    head_size=128,
    head_size_v=128,
    dtype="bf16",
    causal=True,
    scale=128**-0.5,
)


def test_the_fields_are_those_of_the_family():
    names = "layout batch seqlen_q seqlen_k num_heads num_kv_heads num_v_heads head_size head_size_v dtype causal"
    names += " window_left window_right bottom_right deterministic scale candidate"
    assert [field.name for field in attrs.fields(AttentionBwdRequest)] == names.split()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"num_kv_heads": 3}, "num_heads"),
        ({"num_v_heads": 3}, "num_heads"),
        ({"window_left": -2}, "window_left"),
        ({"window_right": -2}, "window_right"),
        ({"layout": "ragged"}, "layout"),
        ({"scale": 0.0}, "scale"),
        ({"batch": 0}, "batch"),
        ({"seqlen_q": True}, "seqlen_q"),
        ({"deterministic": 1}, "deterministic"),
    ],
    ids=str,
)
def test_fields_that_do_not_fit_are_refused_by_name(changes, field):
    with pytest.raises((TypeError, ValueError), match=rf"AttentionBwdRequest\.{field} "):
        attrs.evolve(REQUEST, **changes)


@pytest.mark.parametrize(
    "changes",
    [{"num_kv_heads": 8}, {"num_v_heads": 1}, {"seqlen_q": 0}, {"seqlen_k": 0}, {"window_left": 0, "window_right": 3}],
    ids=str,
)
def test_fields_that_fit_are_taken(changes):
    assert attrs.evolve(REQUEST, **changes)


def test_the_command_line_fills_in_what_follows():
    found = AttentionBwdRequest.cli_defaults({"seqlen_q": 50, "num_heads": 8, "num_kv_heads": 2, "head_size": 64})
    assert found["scale"] == 0.125 and found["head_size_v"] == 64
    assert found["seqlen_k"] == 50 and found["num_v_heads"] == 2 and "num_kv_heads" not in found
    assert AttentionBwdRequest(seqlen_q=50, num_heads=8, num_kv_heads=2, head_size=64, **found)
