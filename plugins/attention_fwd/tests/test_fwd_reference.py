"""The reference against attention as another project defines it: the op Attention of ONNX, in its reference evaluator.

It scales, caps and shares heads of keys, and takes what is added to scores: a mask, slopes. A sink is to it one key
more, of a value of 0. LSE follows from the scores that it gives.
"""

import attrs
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from kinfolk_attention_fwd.reference import Head, findings, heads, reference, sequences, useful_flops
from kinfolk_attention_fwd.request import AttentionFwdRequest

SCORES_WITH_ALL = 2
REQUEST = AttentionFwdRequest(
    layout="dense",
    num_seqs=2,
    total_q=18,
    max_seqlen_q=9,
    max_seqlen_k=14,
    num_heads=6,
    num_kv_heads=2,
    head_size=16,
    head_size_v=24,
    dtype="bf16",
    kv_dtype="bf16",
    causal=True,
    return_lse=True,
    scale=0.5,
)


def drawn(request, seed=0):
    generator = np.random.default_rng(seed)
    sequences, queries, keys = request.num_seqs, request.max_seqlen_q, request.max_seqlen_k
    return {
        "q": generator.standard_normal((sequences, queries, request.num_heads, request.head_size)),
        "k": generator.standard_normal((sequences, keys, request.num_kv_heads, request.head_size)),
        "v": generator.standard_normal((sequences, keys, request.num_kv_heads, request.head_size_v)),
        "alibi_slopes": np.float32(generator.uniform(0.01, 0.5, request.num_heads)),
        "sink": np.float32(generator.standard_normal(request.num_heads)),
    }


def model(scale, softcap):
    names = ("q", "k", "v", "mask", "y", "s")
    values = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in names]
    node = helper.make_node(
        "Attention",
        ("q", "k", "v", "mask"),
        ("y", "", "", "s"),
        scale=scale,
        softcap=softcap,
        qk_matmul_output_mode=SCORES_WITH_ALL,
    )
    graph = helper.make_graph([node], "attention", values[:4], values[4:])
    return ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)]))


def added(request, inputs):
    """Return what is added to scores [heads, queries, keys], one pair after the other, straight from the definition."""
    queries, keys = request.max_seqlen_q, request.max_seqlen_k
    ahead = keys - queries
    found = np.zeros((request.num_heads, queries, keys))
    for head in range(request.num_heads):
        for query in range(queries):
            for key in range(keys):
                too_late = request.causal and key > query + ahead
                too_early = 0 <= request.window_left < query + ahead - key
                slope = float(inputs["alibi_slopes"][head]) if request.alibi else 0.0
                found[head, query, key] = -np.inf if too_late or too_early else slope * (key - ahead)
    return found


def by_onnx(request, inputs):
    assert not (request.sinks and request.softcap)  # the sink would be capped too
    mask = added(request, inputs)
    q, k, v = (inputs[name].transpose(0, 2, 1, 3) for name in ("q", "k", "v"))
    if request.sinks:
        sink = np.broadcast_to(inputs["sink"][:, None, None].astype(float), (*mask.shape[:2], 1))
        mask = np.concatenate([mask, sink], axis=2)
        k, v = (np.concatenate([rows, np.zeros((*rows.shape[:2], 1, rows.shape[3]))], axis=2) for rows in (k, v))
    given = {"q": q, "k": k, "v": v, "mask": np.broadcast_to(mask, (request.num_seqs, *mask.shape))}
    out, scores = model(request.scale, request.softcap).run(None, given)
    return out.transpose(0, 2, 1, 3), np.logaddexp.reduce(scores, axis=-1)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"causal": False},
        {"window_left": 0},
        {"window_left": 3},
        {"window_left": 3, "causal": False},
        {"softcap": 1.5},
        {"alibi": True},
        {"alibi": True, "softcap": 2.0, "window_left": 5},
        {"sinks": True},
        {"sinks": True, "alibi": True, "window_left": 2},
        {"num_kv_heads": 6},
        {"num_kv_heads": 1},
        {"max_seqlen_q": 14, "total_q": 28},
        {"max_seqlen_q": 1, "total_q": 2},
    ],
    ids=str,
)
def test_it_agrees_with_onnx(changes):
    request = attrs.evolve(REQUEST, **changes)
    inputs = drawn(request)
    expected, (out, lse) = reference(request, inputs), by_onnx(request, inputs)
    np.testing.assert_allclose(expected["out"].value, out, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(expected["lse"].value, lse, rtol=1e-5, atol=1e-6)


QUERIES, LENGTHS = (5, 0, 1, 9, 3), (14, 8, 6, 4, 0)


def one_after_the_other(request):
    """Return the request over sequences of any lengths, its inputs, and for each one that has queries where they are,
    the request of it alone, and its inputs.
    """
    counts = {"total_q": sum(QUERIES), "max_seqlen_q": 9, "total_k": sum(LENGTHS), "max_seqlen_k": 14}
    whole = attrs.evolve(request, layout="varlen", num_seqs=len(LENGTHS), **counts)
    drawn_rows = drawn(attrs.evolve(request, num_seqs=1, total_q=18, max_seqlen_q=18, max_seqlen_k=32))
    inputs = drawn_rows | {name: drawn_rows[name][0] for name in ("q", "k", "v")}
    inputs |= {f"cu_seqlens_{name}": np.cumsum([0, *rows]) for name, rows in (("q", QUERIES), ("k", LENGTHS))}
    alone = []
    for number, (queries, keys) in enumerate(zip(QUERIES, LENGTHS, strict=True)):
        tokens, rows = (slice(*inputs[f"cu_seqlens_{name}"][number : number + 2]) for name in ("q", "k"))
        parts = {name: inputs[name][None, where] for name, where in (("q", tokens), ("k", rows), ("v", rows))}
        own = attrs.evolve(request, num_seqs=1, total_q=queries, max_seqlen_q=queries, max_seqlen_k=keys)
        alone += [(tokens, own, inputs | parts)] if queries else []
    return whole, inputs, alone


@pytest.mark.parametrize(
    "changes",
    [{}, {"causal": False}, {"window_left": 3}, {"alibi": True, "softcap": 2.0}, {"sinks": True, "window_left": 2}],
    ids=str,
)
def test_sequences_of_any_lengths_are_each_as_onnx_says_alone(changes):
    request, inputs, alone = one_after_the_other(attrs.evolve(REQUEST, **changes))
    expected = reference(request, inputs)
    assert len(list(sequences(request, inputs))) == len(alone) == 4
    for tokens, own, parts in alone:
        if own.max_seqlen_k:
            (out,), (lse,) = by_onnx(own, parts)
            seen = np.isfinite(lse.T)
            found, sums = expected["out"].value[tokens], expected["lse"].value[:, tokens]
            np.testing.assert_allclose(found[seen], out[seen], rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(sums, lse, rtol=1e-5, atol=1e-6)
            assert (found[~seen] == 0.0).all()
    last = slice(15, 18)  # has no keys
    assert (expected["out"].value[last] == 0.0).all() and useful_flops(request, inputs) == sum(
        useful_flops(own, parts) for _, own, parts in alone
    )


def test_keys_of_the_sequence_before_are_seen():
    """Negative control: offsets of keys that begin one earlier."""
    request, inputs, _ = one_after_the_other(REQUEST)
    right, moved = reference(request, inputs), inputs["cu_seqlens_k"].copy()
    moved[1:-1] -= 1
    wrong = reference(request, inputs | {"cu_seqlens_k": moved})
    apart = np.abs(right["out"].value - wrong["out"].value) > right["out"].tolerance.bound
    assert apart[:5].any() and apart[5].any() and apart[6:15].any()


@pytest.mark.parametrize(
    ("strange", "rows"), [((5, 3), 0), ((-1, 3), 0), ((0, 11), 0), ((3, 3), 0), ((2, 10), 4), ((2, 5), 3)], ids=str
)
def test_offsets_that_no_caller_may_pass_have_a_meaning(strange, rows):
    """Rows that fall, or of which some do not exist, are none; more than the longest sequence has are not looked at."""
    changes = {"num_seqs": 1, "total_q": 1, "max_seqlen_q": 1, "max_seqlen_k": 4, "total_k": 4}
    request = attrs.evolve(REQUEST, layout="varlen", causal=False, **changes)
    object.__setattr__(request, "total_k", 10)
    inputs = drawn(attrs.evolve(REQUEST, num_seqs=1, total_q=1, max_seqlen_q=1, max_seqlen_k=10))
    flat = {name: inputs[name][0] for name in ("q", "k", "v")}
    offsets = {"cu_seqlens_q": np.array([0, 1]), "cu_seqlens_k": np.array(strange)}
    [found] = sequences(request, inputs | flat | offsets)
    assert len(found.keys) == found.length == rows


@pytest.mark.parametrize(
    ("changes", "other"),
    [
        ({"window_left": 3}, {"window_left": 4}),
        ({"softcap": 1.5}, {"softcap": 0.0}),
        ({"alibi": True}, {"alibi": False}),
        ({"sinks": True}, {"sinks": False}),
        ({}, {"causal": False}),
        ({}, {"num_kv_heads": 3}),
    ],
    ids=str,
)
def test_the_nearest_other_meaning_does_not(changes, other):
    request = attrs.evolve(REQUEST, **changes)
    inputs = drawn(attrs.evolve(request, **other))
    wrong = attrs.evolve(request, **other)
    if "num_kv_heads" in other:
        inputs |= {name: inputs[name][:, :, :2] for name in ("k", "v")}
        wrong = attrs.evolve(request)
        inputs["k"] = inputs["k"][:, :, ::-1]
        expected, (out, _) = reference(wrong, inputs), by_onnx(request, inputs | {"k": inputs["k"][:, :, ::-1]})
    else:
        expected, (out, _) = reference(wrong, inputs), by_onnx(request, inputs)
    assert (np.abs(expected["out"].value - out) > expected["out"].tolerance.bound).any()


def test_queries_before_the_first_key_see_nothing():
    request = attrs.evolve(REQUEST, max_seqlen_k=5)
    expected = reference(request, drawn(request))
    assert (expected["out"].value[:, :4] == 0.0).all() and np.isneginf(expected["lse"].value[:, :, :4]).all()
    assert (expected["out"].tolerance.bound[:, :4] == 0.0).all() and np.isfinite(expected["lse"].value[:, :, 4:]).all()


def test_a_query_that_sees_nothing_has_the_sink_alone():
    request = attrs.evolve(REQUEST, max_seqlen_k=5, sinks=True)
    inputs = drawn(request)
    expected = reference(request, inputs)
    assert (expected["out"].value[:, :4] == 0.0).all()
    np.testing.assert_array_equal(expected["lse"].value[0, :, 0], inputs["sink"].astype(float))


def test_units_of_keys_and_values_are_multiplied_in():
    inputs = drawn(REQUEST)
    scaled = attrs.evolve(REQUEST, k_scale=0.25, v_scale=4.0)
    plain = reference(REQUEST, inputs | {"k": inputs["k"] * 0.25, "v": inputs["v"] * 4.0})
    np.testing.assert_allclose(reference(scaled, inputs)["out"].value, plain["out"].value, rtol=1e-12)


def test_lse_is_given_where_it_is_asked_for():
    assert list(reference(attrs.evolve(REQUEST, return_lse=False), drawn(REQUEST))) == ["out"]


@pytest.mark.parametrize("changes", [{}, {"causal": False}, {"window_left": 3}], ids=str)
def test_flops_count_the_pairs_that_are_seen(changes):
    request = attrs.evolve(REQUEST, **changes)
    inputs = drawn(request)
    pairs = np.isfinite(added(request, inputs)).sum() * request.num_seqs
    assert useful_flops(request, inputs) == 2 * pairs * (16 + 24)


def test_no_tolerance_is_wider_than_the_gates_but_for_few_keys():
    """Where all keys have the same weight, roundings cancel among 700, and the gates are all there is."""
    request = attrs.evolve(
        REQUEST, max_seqlen_k=700, causal=False, head_size=128, scale=128**-0.5, num_seqs=1, total_q=9
    )
    inputs = drawn(request)
    expected = reference(request, inputs | {"q": inputs["q"] * 0.0})
    gate = 2e-3 + 2.0**-8 * np.abs(expected["out"].value)
    assert (expected["out"].tolerance.bound <= gate).all()
    few = reference(REQUEST, drawn(REQUEST))
    assert (few["out"].tolerance.bound > 2e-3 + 2.0**-8 * np.abs(few["out"].value)).any()


def test_a_row_without_keys_that_is_not_0_is_a_finding():
    request = attrs.evolve(REQUEST, max_seqlen_k=5)
    expected = reference(request, drawn(request))
    outputs = {name: expected[name].value.copy() for name in ("out", "lse")}
    assert not list(findings(request, outputs, expected))
    outputs["out"][1, 2, 3, 4] = 1e-30
    outputs["lse"][0, 5, 0] = 0.0
    assert {(each.code, each.output) for each in findings(request, outputs, expected)} == {
        ("empty", "out"),
        ("empty", "lse"),
    }


def test_every_head_of_every_sequence_is_looked_at():
    inputs = drawn(REQUEST)
    assert len(list(sequences(REQUEST, inputs))) == 2
    assert [head for _, head, _ in heads(REQUEST, inputs)] == [*range(6), *range(6)]
    assert all(isinstance(found, Head) for _, _, found in heads(REQUEST, inputs))
