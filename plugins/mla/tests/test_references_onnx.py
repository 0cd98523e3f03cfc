"""The references against attention as another project defines it: the op Attention of ONNX, in its reference evaluator.

It shares key heads among query heads, takes values of another width than keys, and masks causally from the bottom right
behind a prefix (opset 24, input nonpad_kv_seqlen). It knows nothing of pages, packing and up-projections.
"""

import attrs
import ml_dtypes
import numpy as np
import pytest
from mla_batches import batch, rows
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from kinfolk_mla.prefill_reference import absorbed_prefill, projected_prefill
from kinfolk_mla.reference import decode_reference

MIXED = ([3, 1, 0, 2, 1, 4], [7, 9, 5, 2, 0, 1])
SCORES_WITH_MASK = 2
INPUTS = ("q", "k", "v", "", "", "", "nonpad_kv_seqlen")


def model(scale, causal):
    names = {name: helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in ("q", "k", "v", "y", "s")}
    count = helper.make_tensor_value_info("nonpad_kv_seqlen", TensorProto.INT64, None)
    node = helper.make_node(
        "Attention",
        INPUTS,
        ("y", "", "", "s"),
        scale=scale,
        is_causal=int(causal),
        qk_matmul_output_mode=SCORES_WITH_MASK,
    )
    graph = helper.make_graph(
        [node], "attention", [names["q"], names["k"], names["v"], count], [names["y"], names["s"]]
    )
    return ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)]))


def attention(request, query, keys, values, *, causal=None):
    """Return `out` [tokens, heads, v] and `lse` [tokens, heads] of one sequence; keys and values [heads, keys, ...]."""
    evaluator = model(request.scale, request.causal if causal is None else causal)
    given = {"q": query.transpose(1, 0, 2)[None], "k": keys[None], "v": values[None]}
    out, scores = evaluator.run(None, given | {"nonpad_kv_seqlen": np.array([keys.shape[1]], np.int64)})
    return out[0].transpose(1, 0, 2), np.logaddexp.reduce(scores[0], axis=-1, initial=-np.inf).T


def by_sequence(request, inputs, query, keys_and_values, **changes):
    starts = inputs["cu_seqlens_q"]
    found = []
    for sequence in range(request.num_seqs):
        tokens = slice(starts[sequence], starts[sequence + 1])
        keys = rows(request, inputs, sequence)
        if len(keys) and tokens.stop > tokens.start:
            found.append((tokens, *attention(request, query[tokens], *keys_and_values(keys), **changes)))
    return found


def absorbed(request, inputs, **changes):
    latent = request.kv_lora_rank
    return by_sequence(request, inputs, inputs["qa"], lambda keys: (keys[None], keys[None, :, :latent]), **changes)


def projected(request, inputs, **changes):
    def expanded(keys):
        made = keys[None, :, : request.kv_lora_rank] @ inputs["w_ukv"]
        rope = np.repeat(keys[None, :, request.kv_lora_rank :], request.num_heads, axis=0)
        return np.concatenate([made[..., : request.nope_dim], rope], axis=-1), made[..., request.nope_dim :]

    return by_sequence(request, inputs, inputs["q"], expanded, **changes)


def decode_values(request, inputs):
    expected = decode_reference(request, inputs)
    return expected["out"].value, expected["lse"].value


CONTRACTS = {
    "decode": (decode_values, absorbed, True),
    "absorbed": (absorbed_prefill, absorbed, True),
    "projected": (projected_prefill, projected, False),
}


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", CONTRACTS)
def test_a_reference_is_attention_as_onnx_defines_it(name, causal):
    ours, theirs, is_absorbed = CONTRACTS[name]
    request, inputs = batch(*MIXED, absorbed=is_absorbed, causal=causal)
    out, lse = ours(request, inputs)
    found = theirs(request, inputs)
    assert len(found) == 4
    for tokens, expected, sums in found:
        np.testing.assert_allclose(out[tokens], expected, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(lse[tokens], sums, rtol=1e-11, atol=1e-12)


NARROW = {
    "f8E4M3FN": (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn),
    "f8E4M3FNUZ": (TensorProto.FLOAT8E4M3FNUZ, ml_dtypes.float8_e4m3fnuz),
}


def dequantised(codes, kind, scale):
    """Return what bytes stand for by the op DequantizeLinear, which knows each encoding by its type."""
    node = helper.make_node("DequantizeLinear", ["x", "scale"], ["y"])
    x = helper.make_tensor_value_info("x", kind, None)
    floats = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("scale", "y")]
    graph = helper.make_graph([node], "dequantise", [x, floats[0]], [floats[1]])
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])
    theirs = helper.tensor_dtype_to_np_dtype(kind)
    return ReferenceEvaluator(whole).run(None, {"x": codes.view(theirs), "scale": np.float32(scale)})[0]


def narrowed(request, inputs, kv_dtype):
    """Return request and inputs with a cache of 8-bit floats, and the cache as ONNX reads it."""
    kind, own = NARROW[kv_dtype]
    asked = attrs.evolve(request, kv_dtype=kv_dtype, k_scale=0.3)
    cache = {name: inputs[name].astype(own) for name in ("c_kv", "k_rope")}
    read = {name: dequantised(each.view(np.uint8), kind, 0.3).astype(np.float64) for name, each in cache.items()}
    return asked, inputs | cache, inputs | read


@pytest.mark.parametrize("kv_dtype", NARROW)
@pytest.mark.parametrize("name", CONTRACTS)
def test_a_cache_of_8_bits_stands_for_what_onnx_dequantises(name, kv_dtype):
    ours, theirs, is_absorbed = CONTRACTS[name]
    request, inputs, read = narrowed(*batch(*MIXED, absorbed=is_absorbed), kv_dtype)
    out, lse = ours(request, inputs)
    for tokens, expected, sums in theirs(request, read):
        np.testing.assert_allclose(out[tokens], expected, rtol=1e-6, atol=1e-6)  # its products are of f32
        np.testing.assert_allclose(lse[tokens], sums, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", CONTRACTS)
@pytest.mark.parametrize("fault", ["the other encoding", "no factor", "a factor of latent parts alone"])
def test_the_comparison_sees_a_cache_that_is_read_otherwise(name, fault):
    ours, theirs, is_absorbed = CONTRACTS[name]
    request, inputs, read = narrowed(*batch(*MIXED, absorbed=is_absorbed), "f8E4M3FN")
    if fault == "the other encoding":
        inputs = inputs | {each: inputs[each].view(ml_dtypes.float8_e4m3fnuz) for each in ("c_kv", "k_rope")}
    elif fault == "no factor":
        request = attrs.evolve(request, k_scale=1.0)
    else:
        inputs = inputs | {"k_rope": inputs["k_rope"].astype(np.float64) / 0.3}
    out, _ = ours(request, inputs)
    tokens, expected, _ = theirs(request, read)[0]
    assert not np.abs(out[tokens] - expected).max() < 1e-2


@pytest.mark.parametrize("name", CONTRACTS)
def test_the_comparison_sees_a_mask_that_is_not_there(name):
    ours, theirs, is_absorbed = CONTRACTS[name]
    request, inputs = batch(*MIXED, absorbed=is_absorbed)
    out, _ = ours(request, inputs)
    tokens, unmasked, _ = theirs(request, inputs, causal=False)[0]
    assert np.abs(out[tokens] - unmasked).max() > 1e-2
