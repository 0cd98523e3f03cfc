"""Requests take exactly what their fields say, and the command line fills in what a model fixes."""

import math

import attrs
import numpy as np
import pytest

from kinfolk.fields import FieldValueError
from kinfolk.request import launch_names
from kinfolk_mla.decode.plan import BINDINGS
from kinfolk_mla.request import K_SCALE, SCALE, MlaRequest

GIVEN = {
    "num_heads": 128,
    "num_seqs": 3,
    "total_q": 3,
    "max_seqlen_q": 1,
    "max_seqlen_k": 777,
    "absorbed_query": True,
}


def request(**changes):
    given = GIVEN | changes
    return MlaRequest(**given, **MlaRequest.cli_defaults(given))


def test_the_command_line_fills_in_what_deepseek_v3_has():
    assert MlaRequest.cli_defaults(GIVEN) == {
        "kv_lora_rank": 512,
        "rope_dim": 64,
        "nope_dim": 128,
        "v_dim": 128,
        "scale": 1 / math.sqrt(192),
        "page_size": 16,
        "num_pages": 3 * 49,
        "dtype": "bf16",
        "kv_dtype": "bf16",
        "causal": True,
    }


def test_defaults_follow_what_is_given():
    filled = MlaRequest.cli_defaults(GIVEN | {"dtype": "f16", "nope_dim": 192, "page_size": 48, "scale": 0.5})
    assert (filled["kv_dtype"], filled["num_pages"]) == ("f16", 3 * 17)
    assert not {"dtype", "nope_dim", "page_size", "scale"} & filled.keys()
    assert MlaRequest.cli_defaults({"nope_dim": 192})["scale"] == 1 / math.sqrt(256)
    assert "num_pages" not in MlaRequest.cli_defaults({"num_seqs": 3})


def test_only_the_models_widths_have_a_default_in_python():
    optional = {field.name for field in attrs.fields(MlaRequest) if field.default is not attrs.NOTHING}
    assert optional == {"kv_lora_rank", "rope_dim", "nope_dim", "v_dim", "k_scale", "num_seg", "num_cus", "candidate"}


def test_launch_fields_are_those_no_kernel_depends_on():
    shapes = ("num_seqs", "total_q", "max_seqlen_k", "num_pages", "scale")
    assert launch_names(MlaRequest) == (*shapes, "k_scale", "num_seg", "num_cus")


OUT_OF_RANGE = {
    "num_heads": (0, 1),
    "num_seqs": (0, 3),
    "max_seqlen_k": (-1, 0),
    "num_pages": (-1, 0),
    "page_size": (0, 1),
    "total_q": (4, 3),
    "num_seg": (-1, 0),
    "num_cus": (65537, 65536),
    "scale": (2.0**-94, 2.0**-93),
    "k_scale": (2.0**33, 2.0**32),
    "dtype": ("i32", "f8E4M3FN"),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_each_range_ends_where_it_says(name):
    bad, good = OUT_OF_RANGE[name]
    request(**{name: good})
    with pytest.raises(FieldValueError, match=rf"MlaRequest\.{name} must be"):
        attrs.evolve(request(), **{name: bad})


@pytest.mark.parametrize("name", ["scale", "k_scale"])
@pytest.mark.parametrize("scale", [math.inf, math.nan, -0.5, 0.0, 2.0**127])
def test_a_scale_is_a_positive_finite_f32(name, scale):
    with pytest.raises(FieldValueError, match=rf"MlaRequest\.{name} must be"):
        request(**{name: scale})


def test_scales_multiplied_are_scales_that_f32_has_room_for():
    """Their product, and that times log2 e, is normal and finite; the lowest f32 lies 8 below any score near 0."""
    log2_e, lowest = np.float32(1.442695), float(np.finfo(np.float32).min)
    least = np.float32(SCALE.minimum) * np.float32(K_SCALE.minimum)
    most = np.float32(SCALE.maximum) * np.float32(K_SCALE.maximum) * log2_e
    assert float(np.finfo(np.float32).tiny) <= least and np.isfinite(most)
    assert float(least * log2_e) * -lowest > 8.0 > float(least * log2_e) / 4 * -lowest


def test_the_command_line_says_what_an_element_of_8_bits_stands_for():
    assert MlaRequest.cli_defaults(GIVEN | {"kv_dtype": "f8E4M3FN"})["k_scale"] == 1.0
    assert "k_scale" not in MlaRequest.cli_defaults(GIVEN | {"kv_dtype": "f8E4M3FN", "k_scale": 0.5})


@pytest.mark.parametrize("total_q, taken", [(0, False), (1, True), (3, True), (4, False)])
def test_the_queries_fit_the_sequences(total_q, taken):
    if taken:
        request(total_q=total_q)
    else:
        with pytest.raises(FieldValueError, match="total_q must be from max_seqlen_q = 1 to num_seqs"):
            request(total_q=total_q)


def test_a_batch_without_queries_is_a_request():
    assert request(total_q=0, max_seqlen_q=0).total_q == 0


def test_there_is_one_key_head_by_construction():
    """No field counts key heads, and neither part of the cache has an axis of them."""
    assert [field.name for field in attrs.fields(MlaRequest) if "head" in field.name] == ["num_heads"]
    axes = {binding.name: [str(axis.extent) for axis in binding.shape] for binding in BINDINGS}
    assert axes["c_kv"] == ["num_pages", "page_size", "kv_lora_rank"]
    assert axes["k_rope"] == ["num_pages", "page_size", "rope_dim"]
