"""The reference against differences of another project's attention: the op of ONNX, in its reference evaluator.

Gradients of sum(o * dout) are differences of it at two places, divided by how far these are apart. torch's autograd
is asked where torch is (`interop/torch`).
"""

import tracemalloc

import attrs
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from kinfolk_attention_bwd import reference as of_family
from kinfolk_attention_bwd.reference import findings, heads, reference, useful_flops
from kinfolk_attention_bwd.request import AttentionBwdRequest
from kinfolk_attention_bwd.scenarios import forward

STEP = 2.0**-9
REQUEST = AttentionBwdRequest(
    layout="bshd",
    batch=1,
    seqlen_q=3,
    seqlen_k=4,
    num_heads=4,
    num_kv_heads=2,
    num_v_heads=2,
    head_size=4,
    head_size_v=4,
    dtype="f32",
    causal=True,
    scale=0.5,
)


def drawn(request):
    generator = np.random.default_rng(0)
    rows = {"q": request.num_heads, "k": request.num_kv_heads, "v": request.num_v_heads, "dout": request.num_heads}
    tokens = {"q": request.seqlen_q, "k": request.seqlen_k, "v": request.seqlen_k, "dout": request.seqlen_q}
    return {
        name: generator.standard_normal((request.batch, tokens[name], count, request.head_size))
        for name, count in rows.items()
    }


def with_forward(request, given):
    out, lse = forward(request, given)
    return {**given, "o": out, "lse": lse}


def mask(request):
    """Return what is added to scores, straight from the definition."""
    ahead = request.seqlen_k - request.seqlen_q if request.bottom_right else 0
    added = np.zeros((request.seqlen_q, request.seqlen_k))
    for query in range(request.seqlen_q):
        for key in range(request.seqlen_k):
            late = request.causal and key > query + ahead
            early = 0 <= request.window_left < query + ahead - key
            too_late = 0 <= request.window_right < key - query - ahead
            added[query, key] = -np.inf if late or early or too_late else 0.0
    return added


def loss(request):
    """Return sum(o * dout) by ONNX, of tensors by name."""
    names = ("q", "k", "v", "mask", "y")
    values = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in names]
    node = helper.make_node("Attention", names[:4], names[4:], scale=request.scale)
    graph = helper.make_graph([node], "attention", values[:4], values[4:])
    evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)]))
    added = mask(request)

    def of(given):
        turned = {name: given[name].transpose(0, 2, 1, 3) for name in ("q", "k", "v")}
        [out] = evaluator.run(None, {**turned, "mask": added})
        return float((out.transpose(0, 2, 1, 3) * given["dout"]).sum())

    return of


def differences(request, given, name):
    """Return the gradient by a tensor, an element after the other: of fourth order, so that steps may be large."""
    of, found = loss(request), np.zeros_like(given[name])

    def at(place, steps):
        moved = given[name].copy()
        moved[place] += steps * STEP
        return of({**given, name: moved})

    for place in np.ndindex(found.shape):
        found[place] = (8 * (at(place, 1) - at(place, -1)) - (at(place, 2) - at(place, -2))) / (12 * STEP)
    return found


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"causal": False},
        {"causal": False, "window_left": 1, "window_right": 1},
        {"bottom_right": False, "window_left": 1},
        {"num_v_heads": 4},
    ],
    ids=str,
)
def test_it_agrees_with_differences_of_onnx(changes):
    request = attrs.evolve(REQUEST, **changes)
    given = drawn(request)
    if request.num_v_heads != request.num_kv_heads:  # ONNX has one number of heads for both
        given["k"] = np.repeat(given["k"], 2, axis=2)
        onnx, expected = attrs.evolve(request, num_kv_heads=4), reference(request, with_forward(request, pairs(given)))
        by_keys = differences(onnx, given, "k")
        np.testing.assert_allclose(expected["dk"].value, by_keys[:, :, 0::2] + by_keys[:, :, 1::2], atol=1e-5)
        return
    expected = reference(request, with_forward(request, given))
    for name in ("q", "k", "v"):
        np.testing.assert_allclose(expected[f"d{name}"].value, differences(request, given, name), atol=1e-5)


def pairs(given):
    return {**given, "k": given["k"][:, :, ::2]}


def test_a_row_that_sees_nothing_has_gradients_of_exactly_0():
    """Of more queries than keys the first see none; nor does a row whose LSE is no number, whatever it sees."""
    request = attrs.evolve(REQUEST, seqlen_q=5, seqlen_k=2)
    inputs = with_forward(request, drawn(request))
    assert np.isneginf(inputs["lse"][:, :, :3]).all()
    expected = reference(request, inputs)
    assert (expected["dq"].value[:, :3] == 0.0).all() and (expected["dq"].tolerance.bound[:, :3] == 0.0).all()
    assert (expected["dq"].value[:, 4] != 0.0).all()
    inputs["lse"][...] = np.nan
    assert all(
        (each.value == 0.0).all() and (each.tolerance.bound == 0.0).all()
        for each in reference(request, inputs).values()
    )


def test_what_is_not_exactly_0_there_is_found():
    request = attrs.evolve(REQUEST, seqlen_q=5, seqlen_k=2)
    expected = reference(request, with_forward(request, drawn(request)))
    outputs = {name: each.value.astype(np.float32) for name, each in expected.items()}
    assert list(findings(request, outputs, expected)) == []
    outputs["dq"][0, 2, 1, 3] = 1e-30
    assert [finding.code for finding in findings(request, outputs, expected)] == ["empty"]


@pytest.mark.parametrize("name", ["dq", "dk", "dv"])
def test_an_lse_of_another_base_is_far_outside_of_the_tolerance(name):
    """Negative control: what a caller gets who passes log2 of the sum."""
    request = attrs.evolve(REQUEST, seqlen_q=40, seqlen_k=50, head_size=64, head_size_v=64, dtype="bf16")
    inputs = with_forward(request, drawn(request))
    right = reference(request, inputs)[name]
    wrong = reference(request, {**inputs, "lse": inputs["lse"] * np.log2(np.e)})[name]
    assert (right.tolerance.margins(np.abs(wrong.value - right.value)) > 1.0).mean() > 0.9


@pytest.mark.parametrize(("dtype", "relative", "absolute"), [("f16", 4e-3, 1e-4), ("bf16", 2.5e-2, 1e-3)])
def test_no_tolerance_is_wider_than_a_share_of_the_largest_element(dtype, relative, absolute):
    request = attrs.evolve(REQUEST, seqlen_q=150, seqlen_k=170, head_size=64, head_size_v=64, scale=0.125, dtype=dtype)
    for each in reference(request, with_forward(request, drawn(request))).values():
        assert each.tolerance.bound.max() <= absolute + relative * np.abs(each.value).max()


def test_heads_and_operations_are_counted():
    request = attrs.evolve(REQUEST, batch=2)
    inputs = with_forward(request, drawn(request))
    assert [(number, head) for number, head, _ in heads(request, inputs)] == [
        (n, h) for n in range(2) for h in range(4)
    ]
    assert useful_flops(request, inputs) == 2 * 5 * 4 * 2 * 4 * (2 + 3 + 4)  # products, widths, batch, heads, pairs


@pytest.mark.parametrize("queries", [255, 256, 257])
@pytest.mark.parametrize("changes", [{}, {"causal": False, "window_left": 40, "window_right": 3}], ids=str)
def test_queries_of_any_number_are_those_of_blocks_of_other_sizes(queries, changes, monkeypatch):
    request = attrs.evolve(REQUEST, seqlen_q=queries, seqlen_k=230, num_heads=2, num_kv_heads=1, num_v_heads=1)
    request = attrs.evolve(request, **changes)
    given = drawn(request)
    out, lse = forward(request, given)
    scores = 0.5 * np.einsum("bqhd,bkd->bhqk", given["q"], given["k"][:, :, 0]) + mask(request)
    weights = np.exp(scores)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(lse, np.log(weights.sum(axis=-1)))
    shares = weights / np.maximum(weights.sum(axis=-1), 1e-300)[..., None]
    np.testing.assert_allclose(out, np.einsum("bhqk,bkd->bqhd", shares, given["v"][:, :, 0]), atol=1e-13)
    seen = int((mask(request) == 0.0).sum())
    assert useful_flops(request, given) == 2 * 5 * 4 * 2 * seen
    monkeypatch.setattr(of_family, "QUERIES_AT_ONCE", 100)
    np.testing.assert_allclose(forward(request, given)[1], lse)
    assert useful_flops(request, given) == 2 * 5 * 4 * 2 * seen


def most_memory(request):
    given = drawn(request)
    tracemalloc.start()
    with_forward(request, given)
    useful_flops(request, given)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def test_what_a_profile_asks_for_takes_no_table_of_all_pairs(monkeypatch):
    """Of a long sequence such a table is more than any host has."""
    request = attrs.evolve(REQUEST, seqlen_q=2048, seqlen_k=2048, num_heads=1, num_kv_heads=1, num_v_heads=1)
    table = 2048 * 2048 * np.dtype(np.float64).itemsize
    assert most_memory(request) < 0.9 * table
    monkeypatch.setattr(of_family, "QUERIES_AT_ONCE", 2048)
    assert most_memory(request) > table
