"""The bias of outputs, roundings done by numpy: nearest passes, digits cut off do not; its bound from both sides."""

import attrs
import ml_dtypes
import numpy as np
import pytest
from mla_requests import asking, scenario_of

from kinfolk.check import Expected, Tolerance
from kinfolk_mla.bias import Bias, leverage
from kinfolk_mla.reference import attend, decode_findings, decode_reference, gathered
from kinfolk_mla.scenarios import decode_scenarios

request = asking(num_heads=16, num_seqs=2, max_seqlen_k=150)


def one_sign(**changes):
    found = scenario_of(request(**changes), "one_sign")
    return found.request, found.inputs()


def nearest(values):
    return values.astype(ml_dtypes.bfloat16).astype(np.float64)


def cut_off(values):
    """Drop the low half of an f32."""
    return (values.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32).astype(np.float64)


def exact(values):
    return values


def attended(problem, inputs, round_weights, round_result, reference_maximum=0.0):
    """Attention whose weights, relative to some maximum, and results are rounded by the given functions."""
    out = np.zeros((problem.total_q, problem.num_heads, problem.kv_lora_rank))
    for token in range(problem.total_q):
        keys = gathered(problem, inputs, token)
        scores = problem.scale * inputs["qa"][token].astype(float) @ keys.rows.T
        weights = np.exp(scores - scores.max(axis=1, keepdims=True) + reference_maximum)
        out[token] = round_weights(weights) @ keys.latent / weights.sum(axis=1, keepdims=True)
    return round_result(out)


def findings(expected, out):
    outputs = {"out": out, "lse": expected["lse"].value, "status": expected["status"]}
    return [finding.code for finding in decode_findings(outputs, expected)]


ROUNDINGS = [
    (nearest, nearest, []),
    (exact, exact, []),
    (cut_off, nearest, ["bias"]),
    (nearest, cut_off, ["bias"]),
    (cut_off, cut_off, ["bias"]),
]


@pytest.mark.parametrize("weights, results, codes", ROUNDINGS)
@pytest.mark.parametrize("reference_maximum", [0.0, 0.3, -1.7])
def test_what_rounds_to_nearest_passes_whatever_maximum_its_weights_are_relative_to(
    weights, results, codes, reference_maximum
):
    problem, inputs = one_sign()
    expected = decode_reference(problem, inputs)
    assert findings(expected, attended(problem, inputs, weights, results, reference_maximum)) == codes


@pytest.mark.parametrize("changes", [{}, {"num_heads": 128}, {"max_seqlen_k": 33}, {"num_seqs": 1, "total_q": 1}])
def test_right_and_wrong_are_far_apart(changes):
    problem, inputs = one_sign(**changes)
    expected = decode_reference(problem, inputs)
    bias, out = expected["bias"], expected["out"]
    right = bias.measured(attended(problem, inputs, nearest, nearest), out)
    wrong = bias.measured(attended(problem, inputs, cut_off, nearest), out)
    assert abs(right) < 0.2 * bias.bound and wrong < -1.5 * bias.bound


@pytest.mark.parametrize("sign", [1, -1])
def test_the_bound_from_both_sides(sign):
    problem, inputs = one_sign()
    expected = decode_reference(problem, inputs)
    value, bound = expected["out"].value, expected["bias"].bound
    assert findings(expected, value * (1 + 0.999 * sign * bound)) == []
    assert findings(expected, value * (1 + 1.001 * sign * bound)) == ["bias"]


def test_each_element_of_the_truncated_output_is_within_its_tolerance():
    """Why the check is there: no tolerance of an element sees it."""
    problem, inputs = one_sign()
    expected = decode_reference(problem, inputs)
    error = np.abs(attended(problem, inputs, cut_off, nearest) - expected["out"].value)
    assert expected["out"].tolerance.margins(error).max() <= 1


@pytest.mark.parametrize("changes", [{"max_seqlen_k": 0}, {"total_q": 0, "max_seqlen_q": 0}, {"max_seqlen_k": 1}])
def test_outputs_that_are_exact_or_absent_have_no_bias(changes):
    problem, inputs = one_sign(**changes)
    expected = decode_reference(problem, inputs)
    assert findings(expected, expected["out"].value) == []


@pytest.mark.parametrize("spoiled", [np.nan, np.inf])
def test_what_is_not_finite_is_left_to_the_comparison(spoiled):
    problem, inputs = one_sign()
    expected = decode_reference(problem, inputs)
    out = expected["out"].value.copy()
    out[0, 0, 0] = spoiled
    assert findings(expected, out) == []


def test_weights_of_one_score_err_together_and_others_apart():
    scores = np.array([[1.0, 2.0, 1.0, 3.0], [4.0, 4.0, 4.0, 4.0], [1.0, 2.0, 3.0, 4.0]])
    pull = np.array([[1.0, 2.0, 3.0, 4.0]] * 3)
    assert leverage(scores, pull).tolist() == [(1 + 3) ** 2 + 4 + 16, 100, 30]
    assert leverage(np.zeros((3, 0)), np.zeros((3, 0))).tolist() == [0, 0, 0]


def test_tokens_add_up():
    """Two tokens of size 4 and 16 whose weights move the first by 2^-8 of 3, in units of its own size."""
    bias = Bias(weight=2.0**-8, result=0.0)
    for value in (2.0, 4.0):
        one = np.array([[value]])
        bias = bias.with_token(one, one, np.array([0.0]), np.array([9.0]))
    assert bias.size == 20.0
    assert bias.bound == pytest.approx(5 * 2.0**-8 * np.sqrt(18.0) / 20.0)
    expected = Expected(np.array([2.0, 4.0]), Tolerance(np.ones(2)))
    assert bias.measured(np.array([2.5, 4.0]), expected) == pytest.approx(1.0 / 20.0)


def test_the_leverage_of_a_head_is_by_definition():
    """The largest change of sum(out * error) that one weight's relative error makes is w_j (v_j . out)."""
    problem, inputs = one_sign(num_heads=2)
    keys = gathered(problem, inputs, 0)
    query = inputs["qa"][0].astype(float)
    found = attend(query, keys, problem.scale)
    scores = problem.scale * query @ keys.rows.T
    weights = np.exp(scores - found.lse[:, None])
    for head in range(2):
        moved = {}
        for key, score in enumerate(scores[head].astype(np.float32).tolist()):
            moved[score] = moved.get(score, 0.0) + weights[head, key] * keys.latent[key] @ found.out[head]
        assert 100 < len(moved) < len(keys.latent)
        assert found.leverage[head] == pytest.approx(sum(one**2 for one in moved.values()), rel=1e-9)


def test_other_scenarios_pass_with_right_roundings():
    problem = request()
    for found in decode_scenarios(problem):
        if found.request == problem and found.name not in ("bad_pages", "empty"):
            inputs = found.inputs()
            expected = decode_reference(problem, inputs)
            assert findings(expected, nearest(expected["out"].value)) == [], found.name


def test_a_bias_takes_the_roundoffs_of_its_request():
    assert attrs.astuple(Bias.of(request()))[:2] == (2.0**-8, 2.0**-8)
