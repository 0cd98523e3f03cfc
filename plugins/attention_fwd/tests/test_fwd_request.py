"""Which requests of forward attention are any, and what the command line fills in."""

import math

import attrs
import pytest

from kinfolk_attention_fwd.request import AttentionFwdRequest

DENSE = AttentionFwdRequest(
    layout="dense",
    num_seqs=3,
    total_q=60,
    max_seqlen_q=20,
    max_seqlen_k=50,
    num_heads=8,
    num_kv_heads=2,
    head_size=128,
    head_size_v=128,
    dtype="bf16",
    kv_dtype="bf16",
    causal=True,
    return_lse=True,
    scale=128**-0.5,
)
PAGED = attrs.evolve(DENSE, layout="paged", page_size=16, num_pages=9, total_q=44)
VARLEN = attrs.evolve(DENSE, layout="varlen", total_q=44, total_k=71)


def test_the_fields_are_those_of_the_family():
    names = "layout num_seqs total_q max_seqlen_q max_seqlen_k total_k num_heads num_kv_heads head_size head_size_v"
    names += (
        " page_size num_pages dtype kv_dtype causal window_left softcap sinks alibi return_lse scale k_scale v_scale"
    )
    assert [field.name for field in attrs.fields(AttentionFwdRequest)] == [
        *names.split(),
        *("num_seg", "num_cus", "persistent", "candidate"),
    ]


@pytest.mark.parametrize(
    ("request_", "changes", "field"),
    [
        (DENSE, {"num_kv_heads": 3}, "num_heads"),
        (DENSE, {"num_heads": 9}, "num_heads"),
        (DENSE, {"total_q": 59}, "total_q"),
        (DENSE, {"total_q": 61}, "total_q"),
        (DENSE, {"max_seqlen_q": 0}, "total_q"),
        (DENSE, {"page_size": 16}, "page_size"),
        (DENSE, {"num_pages": 1}, "num_pages"),
        (PAGED, {"page_size": 0}, "page_size"),
        (PAGED, {"total_q": 19}, "total_q"),
        (PAGED, {"total_q": 61}, "total_q"),
        (PAGED, {"total_k": 1}, "total_k"),
        (DENSE, {"total_k": 150}, "total_k"),
        (VARLEN, {"total_k": 49}, "total_k"),
        (VARLEN, {"total_k": 151}, "total_k"),
        (VARLEN, {"max_seqlen_k": 0}, "total_k"),
        (VARLEN, {"total_q": 61}, "total_q"),
        (VARLEN, {"page_size": 16}, "page_size"),
        (VARLEN, {"num_pages": 1}, "num_pages"),
        (DENSE, {"window_left": -2}, "window_left"),
        (DENSE, {"softcap": -1.0}, "softcap"),
        (DENSE, {"softcap": 30}, "softcap"),
        (DENSE, {"layout": "ragged"}, "layout"),
        (DENSE, {"scale": 0.0}, "scale"),
        (DENSE, {"scale": math.nextafter(2.0**-93, 0.0)}, "scale"),
        (DENSE, {"scale": math.nextafter(2.0**10, math.inf)}, "scale"),
    ],
    ids=str,
)
def test_fields_that_do_not_fit_are_refused_by_name(request_, changes, field):
    with pytest.raises((TypeError, ValueError), match=rf"AttentionFwdRequest\.{field} "):
        attrs.evolve(request_, **changes)


@pytest.mark.parametrize(
    ("request_", "changes"),
    [
        (DENSE, {"num_kv_heads": 8}),
        (DENSE, {"num_kv_heads": 1}),
        (DENSE, {"max_seqlen_q": 0, "total_q": 0}),
        (DENSE, {"max_seqlen_k": 0}),
        (DENSE, {"window_left": 0, "softcap": 30.0, "sinks": True, "alibi": True}),
        (DENSE, {"scale": 2.0**-93, "k_scale": 2.0**-32}),
        (DENSE, {"scale": 2.0**10, "k_scale": 2.0**32}),
        (PAGED, {"total_q": 20}),
        (PAGED, {"total_q": 60}),
        (PAGED, {"page_size": 1, "num_pages": 0}),
        (VARLEN, {"total_k": 50}),
        (VARLEN, {"total_k": 150, "total_q": 60}),
        (VARLEN, {"max_seqlen_k": 0, "total_k": 0}),
    ],
    ids=str,
)
def test_fields_that_fit_are_taken(request_, changes):
    assert attrs.evolve(request_, **changes)


def test_a_refused_number_comes_with_one_that_fits():
    with pytest.raises(ValueError, match=r"num_heads must be a multiple of num_kv_heads = 3, got 8"):
        attrs.evolve(DENSE, num_kv_heads=3)
    with pytest.raises(ValueError, match=r"total_q must be from max_seqlen_q = 20 to num_seqs \* max_seqlen_q = 60"):
        attrs.evolve(PAGED, total_q=61)
    with pytest.raises(ValueError, match=r"total_k must be from max_seqlen_k = 50 to .* got 49. Pass 50"):
        attrs.evolve(VARLEN, total_k=49)


@pytest.mark.parametrize(
    ("layout", "filled"),
    [("dense", {"total_q": 60}), ("varlen", {"total_q": 60, "total_k": 150}), ("paged", {"page_size": 16})],
)
def test_the_command_line_fills_in_what_follows(layout, filled):
    given = {"layout": layout, "num_seqs": 3, "max_seqlen_q": 20, "max_seqlen_k": 50, "num_heads": 8, "head_size": 64}
    found = AttentionFwdRequest.cli_defaults(given)
    assert found["scale"] == 0.125 and found["head_size_v"] == 64 and found["num_kv_heads"] == 8
    assert filled.items() <= found.items()
    total = {} if "total_q" in found else {"total_q": 44}
    assert AttentionFwdRequest(**given, **found, **total)
