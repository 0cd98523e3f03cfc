"""How far forward attention may err where scores are so large that f32 rounds away what tells keys apart."""

import attrs
import numpy as np
import pytest

from kinfolk_attention_fwd.reference import reference
from kinfolk_attention_fwd.request import AttentionFwdRequest
from kinfolk_attention_fwd.scenarios import dense_scenarios

REQUEST = AttentionFwdRequest(
    layout="dense",
    num_seqs=1,
    total_q=1,
    max_seqlen_q=1,
    max_seqlen_k=3,
    num_heads=1,
    num_kv_heads=1,
    head_size=16,
    head_size_v=2,
    dtype="f16",
    kv_dtype="f16",
    causal=True,
    alibi=True,
    return_lse=True,
    scale=0.125,
)
SMALLEST_OF_LARGE = 2.0**26
"""Units of f32 are 4 below it, and slopes of 1 are rounded away."""


def rows(scores, values):
    """Return inputs whose products, scaled, are `scores`."""
    query, keys = np.zeros((1, 1, 1, 16)), np.zeros((1, len(scores), 1, 16))
    query[..., 0], keys[0, :, 0, 0] = 2.0**14, np.array(scores) / (2.0**14 * REQUEST.scale)
    slopes = np.ones(1, np.float32)
    return {"q": query, "k": keys, "v": np.array(values)[None, :, None], "alibi_slopes": slopes}


def in_singles(scores, values):
    """Return softmax(scores with a slope of 1) of values, as it comes of scores that are f32."""
    rounded = (np.float32(scores) + np.arange(-len(scores) + 1, 1, dtype=np.float32)).astype(np.float64)
    weights = np.exp(rounded - rounded.max())
    return weights @ np.array(values) / weights.sum()


def expected(scores, values, **changes):
    found = reference(attrs.evolve(REQUEST, **changes), rows(scores, values))["out"]
    return found.value[0, 0, 0], found.tolerance.bound[0, 0, 0]


def test_weights_that_f32_cannot_tell_apart_may_be_any():
    scores, values = [SMALLEST_OF_LARGE] * 3, [[100.0, 1.0], [0.0, 1.0], [0.0, 1.0]]
    value, bound = expected(scores, values)
    error = np.abs(in_singles(scores, values) - value)
    assert (error <= bound).all()
    assert error[0] > value[0]  # more than the sum of w|v|


def test_keys_farther_apart_than_scores_err_have_no_weight():
    scores, values = [SMALLEST_OF_LARGE, SMALLEST_OF_LARGE, -SMALLEST_OF_LARGE], [[1.0, 2.0], [1.0, 2.0], [50.0, 90.0]]
    value, bound = expected(scores, values)
    assert (np.abs(in_singles(scores, values) - value) <= bound).all()
    assert (np.abs(np.mean(values, axis=0) - value) > bound).all()


def test_a_bound_does_not_jump_where_errors_become_large():
    values = [[100.0, 1.0], [0.0, 1.0], [0.0, 1.0]]
    bounds = np.array([expected([2.0**power] * 3, values)[1] for power in np.arange(4.0, 30.0, 0.125)])
    grown = bounds[1:] / bounds[:-1]
    assert (grown >= 0.5).all() and (grown <= 2.0).all()
    assert (bounds[0] <= 0.2).all() and (bounds[-1] <= 1.01 * 110.0).all()


@pytest.mark.parametrize(
    "changes",
    [{"scale": 2.0**10}, {"scale": 2.0**10, "k_scale": 2.0**32}, {"scale": 1.0}, {"dtype": "f16", "kv_dtype": "f16"}],
    ids=str,
)
def test_extreme_scores_are_finite_whatever_they_are_scaled_by(changes):
    request = attrs.evolve(REQUEST, **{"dtype": "bf16", "kv_dtype": "bf16", **changes})
    (scenario,) = (each for each in dense_scenarios(request) if each.name == "extreme")
    inputs = scenario.build(np.random.default_rng(0))
    q, k = (inputs[name].astype(np.float64)[..., 0] for name in ("q", "k"))
    largest = np.abs(q).max() * np.abs(k).max() * max(request.scale * request.k_scale, 1.0)
    assert largest * np.log2(np.e) < np.finfo(np.float32).max
    assert largest > (2.0**30 if request.dtype == "f16" else 2.0**125)
