"""The reference against attention written out in loops, and its tolerance against the nearest faults."""

import math

import attrs
import ml_dtypes
import numpy as np
import pytest
from mla_requests import asking, scenario_of

from kinfolk.check import compare
from kinfolk_mla.reference import ABSOLUTE_GATE, LSE_GATE, RELATIVE_GATE, decode_findings, decode_reference

request = asking(num_heads=32, num_seqs=3, max_seqlen_k=1024)


def scenario(name, **changes):
    return scenario_of(request(**changes), name)


def in_loops(problem, inputs):
    """Attention as a textbook has it, one key after the other in exact Python arithmetic."""
    out = np.zeros((problem.total_q, problem.num_heads, problem.kv_lora_rank))
    lse = np.full((problem.total_q, problem.num_heads), -math.inf)
    page, scale = problem.page_size, float(np.float32(problem.scale))
    for sequence in range(problem.num_seqs):
        for token in range(inputs["cu_seqlens_q"][sequence], inputs["cu_seqlens_q"][sequence + 1]):
            length = inputs["cu_seqlens_k"][sequence + 1] - inputs["cu_seqlens_k"][sequence]
            for head in range(problem.num_heads):
                query = inputs["qa"][token, head].astype(float)
                terms, rows = [], []
                for key in range(length):
                    identifier = int(inputs["block_table"][sequence, key // page])
                    if 0 <= identifier < problem.num_pages:
                        rows.append(inputs["c_kv"][identifier, key % page].astype(float))
                        whole = np.append(rows[-1], inputs["k_rope"][identifier, key % page].astype(float))
                        terms.append(scale * math.fsum(query * whole))
                if terms:
                    highest = max(terms)
                    weights = [math.exp(term - highest) for term in terms]
                    lse[token, head] = highest + math.log(math.fsum(weights))
                    out[token, head] = sum(w * row for w, row in zip(weights, rows, strict=True)) / math.fsum(weights)
    return out, lse


@pytest.mark.parametrize("name", ["page_plus_one", "empty", "no_query", "bad_pages", "spike"])
def test_the_reference_is_attention(name):
    found = scenario(name, num_heads=2)
    inputs = found.inputs()
    expected = decode_reference(found.request, inputs)
    out, lse = in_loops(found.request, inputs)
    np.testing.assert_allclose(expected["out"].value, out, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(expected["lse"].value, lse, rtol=1e-12, atol=1e-12)


def test_rows_without_keys_are_zero_with_no_tolerance():
    found = scenario("empty")
    expected = decode_reference(found.request, found.inputs())
    assert np.diff(found.inputs()["cu_seqlens_k"]).tolist()[0] == 0
    assert (expected["out"].value[0] == 0).all() and np.isneginf(expected["lse"].value[0]).all()
    assert (expected["out"].tolerance.bound[0] == 0).all() and (expected["out"].tolerance.bound[1] > 0).all()


@pytest.mark.parametrize("name", ["ragged", "peaked", "spike", "constant"])
def test_no_tolerance_is_wider_than_the_gate(name):
    found = scenario(name)
    expected = decode_reference(found.request, found.inputs())
    out, lse = expected["out"], expected["lse"]
    size = np.abs(out.value)
    assert (out.tolerance.bound <= ABSOLUTE_GATE + RELATIVE_GATE * size).all()
    assert (out.tolerance.bound <= 2e-2 * size.max(axis=(1, 2), keepdims=True)).all()
    assert (lse.tolerance.bound <= LSE_GATE + 2.0**-22 * np.abs(lse.value)).all()


def rounded(expected):
    return {
        "out": expected["out"].value.astype(ml_dtypes.bfloat16),
        "lse": expected["lse"].value.astype(np.float32),
        "status": expected["status"].astype(np.int32),
    }


def failures(outputs, expected):
    compared = [compare("out", "bf16", outputs["out"], expected["out"])]
    compared.append(compare("lse", "f32", outputs["lse"], expected["lse"]))
    return [finding.code for each in compared for finding in each.findings] + [
        finding.code for finding in decode_findings(outputs, expected)
    ]


def without_last_keys(count):
    def change(problem, inputs):
        lengths = np.maximum(np.diff(inputs["cu_seqlens_k"]) - count, 0)
        return problem, inputs | {"cu_seqlens_k": np.append(0, np.cumsum(lengths)).astype(np.int32)}

    return change


def without_last_page(problem, inputs):
    lengths = np.diff(inputs["cu_seqlens_k"])
    lengths = np.maximum(lengths - 1, 0) // problem.page_size * problem.page_size
    return problem, inputs | {"cu_seqlens_k": np.append(0, np.cumsum(lengths)).astype(np.int32)}


def without_a_middle_key(problem, inputs):
    """Repeat the key before the middle one of the longest sequence in its place."""
    cache = {name: inputs[name].copy() for name in ("c_kv", "k_rope")}
    slot = inputs["block_table"][0, 8]
    for array in cache.values():
        array[slot, 7] = array[slot, 6]
    return problem, inputs | cache


def scale_of_the_absorbed_width(problem, inputs):
    return attrs.evolve(problem, scale=problem.scale * math.sqrt(192 / 576)), inputs


FAULTS = {
    "last page dropped": without_last_page,
    "mask one key short": without_last_keys(1),
    "one key of a thousand replaced": without_a_middle_key,
    "scale of the absorbed width": scale_of_the_absorbed_width,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_nearest_fault_exceeds_the_tolerance(fault):
    found = scenario("ragged")
    inputs = found.inputs()
    expected = decode_reference(found.request, inputs)
    assert failures(rounded(expected), expected) == []
    wrong = rounded(decode_reference(*FAULTS[fault](found.request, inputs)))
    for name in ("out", "lse"):
        assert "tolerance" in failures(rounded(expected) | {name: wrong[name]}, expected), name


def test_weights_in_another_order_exceed_the_tolerance():
    """Two neighbouring keys of the last page exchange their weights: only the values tell."""
    found = scenario("ragged")
    inputs = found.inputs()
    expected = decode_reference(found.request, inputs)
    swapped = {name: inputs[name].copy() for name in ("c_kv", "k_rope")}
    page = inputs["block_table"][0, 0]
    swapped["k_rope"][page, [0, 1]] = swapped["k_rope"][page, [1, 0]]
    wrong = rounded(decode_reference(found.request, inputs | swapped))
    assert "tolerance" in failures(rounded(expected) | {"out": wrong["out"]}, expected)


def test_a_dropped_rescale_exceeds_the_tolerance():
    """Accumulators that keep the weight of a maximum that is past."""
    found = scenario("spike")
    inputs = found.inputs()
    expected = decode_reference(found.request, inputs)
    middle = np.diff(inputs["cu_seqlens_k"])[0] // 2
    early = decode_reference(
        attrs.evolve(found.request, num_seqs=1, total_q=1),
        inputs | {"cu_seqlens_k": np.array([0, middle], np.int32)},
    )
    wrong = rounded(expected)
    wrong["out"][0] = (expected["out"].value[0] + early["out"].value[0]).astype(ml_dtypes.bfloat16)
    assert "tolerance" in failures(wrong, expected)


def test_the_status_word_counts_every_refused_id():
    found = scenario("bad_pages")
    inputs = found.inputs()
    expected = decode_reference(found.request, inputs)
    used = -(-np.diff(inputs["cu_seqlens_k"]) // 16)
    strange = sum(
        not 0 <= identifier < found.request.num_pages
        for row, count in zip(inputs["block_table"], used, strict=True)
        for identifier in row[:count].tolist()
    )
    assert expected["status"].tolist() == [strange] and strange > 2
    outputs = rounded(expected)
    assert failures(outputs, expected) == []
    assert failures(outputs | {"status": outputs["status"] - 1}, expected) == ["page_ids"]


@pytest.mark.parametrize("name, number", [("out", 1e-30), ("lse", -1e30)])
def test_rows_without_keys_take_no_sentinel(name, number):
    found = scenario("empty")
    expected = decode_reference(found.request, found.inputs())
    outputs = rounded(expected)
    outputs[name][0] = number
    assert "empty" in failures(outputs, expected)


def test_earlier_queries_of_a_causal_sequence_see_fewer_keys():
    problem = request(num_seqs=1, total_q=2, max_seqlen_q=2, num_heads=2)
    single = scenario("single_key", num_seqs=1, total_q=1, num_heads=2)
    inputs = dict(single.inputs())
    inputs["qa"] = np.repeat(inputs["qa"], 2, axis=0)
    inputs["cu_seqlens_q"] = np.array([0, 2], np.int32)
    causal = decode_reference(problem, inputs)
    assert np.isneginf(causal["lse"].value).tolist() == [[True, True], [False, False]]
    assert not np.isneginf(decode_reference(attrs.evolve(problem, causal=False), inputs)["lse"].value).any()


def near_tie(scale):
    """Return a request, its inputs and what f32 makes of `out` where two keys' raw scores differ by less than it has.

    In 16 columns the query is 0, and the values of the two keys are of either sign.
    """
    found = scenario("page_plus_one", num_heads=2, num_seqs=1, total_q=1, scale=scale)
    inputs = {name: np.array(each) for name, each in found.inputs().items()}
    page = inputs["block_table"][0, 0]
    for name in ("c_kv", "k_rope"):
        inputs[name][page, 1] = inputs[name][page, 0]
    inputs["qa"][0] = np.concatenate([inputs["c_kv"][page, 0], inputs["k_rope"][page, 0]])
    inputs["qa"][..., :16], inputs["qa"][..., 16] = 0.0, 2.0**-20
    inputs["c_kv"][page, 0, :16], inputs["c_kv"][page, 1, :16] = 2.0, -2.0
    inputs["c_kv"][page, 0, 16], inputs["c_kv"][page, 1, 16] = 1.0, 1.0 + 2.0**-7
    tied = inputs["c_kv"][page, :2].astype(np.float64).mean(axis=0)
    return found.request, inputs, np.broadcast_to(tied, (1, 2, 512)).astype(ml_dtypes.bfloat16)


def test_a_near_tie_that_f32_does_not_see_is_within_the_tolerance_of_a_huge_scale():
    """Control: no key's value is as far as what is refused there, and the scale of a model leaves no such room."""
    problem, inputs, tied = near_tie(1e28)
    expected = decode_reference(problem, inputs)["out"]
    assert (expected.value[..., :16] == -2.0).all() and (tied[..., :16] == 0.0).all()
    assert not compare("out", "bf16", tied, expected).findings
    wrong = np.array(tied)
    wrong[..., :16] = 7.0
    assert compare("out", "bf16", wrong, expected).findings
    problem, inputs, tied = near_tie(192**-0.5)
    expected = decode_reference(problem, inputs)["out"]
    assert not compare("out", "bf16", tied, expected).findings
    off = np.array(tied)
    off[..., :16] = 2.0**-3
    assert compare("out", "bf16", off, expected).findings


def test_keys_of_one_exact_score_weigh_alike_at_any_scale():
    """Scores of one product each: a mean of equal keys leaves no room, and the pair, one more product, does."""
    for columns, tolerated in ((1, False), (2, True)):
        problem, inputs, _ = near_tie(1e28)
        inputs["qa"][:] = 0.0
        inputs["qa"][..., -columns:] = 1.0
        inputs["k_rope"][:, :, -columns:] = 1.0
        expected = decode_reference(problem, inputs)["out"]
        moved = (0.9 * expected.value).astype(ml_dtypes.bfloat16)
        assert bool(compare("out", "bf16", moved, expected).findings) is not tolerated
