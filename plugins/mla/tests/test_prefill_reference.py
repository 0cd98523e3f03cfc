"""Both contracts of prefill: against decode, against each other, and against causality said in another way."""

import attrs
import ml_dtypes
import numpy as np
import pytest
from mla_batches import batch, rows

from kinfolk.check import compare
from kinfolk_mla.near_ties import farthest
from kinfolk_mla.prefill_reference import absorbed_prefill, projected_prefill, projected_reference
from kinfolk_mla.reference import ABSOLUTE_GATE, LSE_GATE, RELATIVE_GATE, decode_findings, decode_reference

MIXED = ([3, 1, 0, 2, 1, 4], [7, 9, 5, 2, 0, 1])
"""Queries and keys: a cached prefix, one query, no query, no prefix, no keys, fewer keys than queries."""


@pytest.mark.parametrize("causal", [True, False])
def test_absorbed_prefill_of_one_query_each_is_decode(causal):
    request, inputs = batch([1, 1, 0, 1], [7, 0, 3, 12], causal=causal)
    expected = decode_reference(request, inputs)
    out, lse = absorbed_prefill(request, inputs)
    np.testing.assert_allclose(out, expected["out"].value, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(lse, expected["lse"].value, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("causal", [True, False])
def test_absorbed_prefill_is_the_decode_reference_of_several_queries(causal):
    request, inputs = batch(*MIXED, causal=causal)
    expected = decode_reference(request, inputs)
    out, lse = absorbed_prefill(request, inputs)
    np.testing.assert_allclose(out, expected["out"].value, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(lse, expected["lse"].value, rtol=1e-13, atol=1e-14)


def test_a_query_sees_what_it_would_see_alone_in_a_shorter_sequence():
    """Causal, bottom-right: query i of n sees the first k - n + 1 + i keys, as a single query of that many would."""
    request, inputs = batch(*MIXED)
    out, lse = absorbed_prefill(request, inputs)
    starts = inputs["cu_seqlens_q"]
    for sequence, (tokens, length) in enumerate(zip(*MIXED, strict=True)):
        whole = rows(request, inputs, sequence)
        for i in range(tokens):
            token, keys = starts[sequence] + i, whole[: max(0, length - tokens + 1 + i)]
            powers = np.exp(request.scale * inputs["qa"][token] @ keys.T)
            total = powers.sum(axis=1)
            with np.errstate(divide="ignore", invalid="ignore"):
                alone = np.nan_to_num(powers @ keys[:, : request.kv_lora_rank] / total[:, None])
                np.testing.assert_allclose(lse[token], np.log(total), rtol=1e-12)
            np.testing.assert_allclose(out[token], alone, rtol=1e-11, atol=1e-13)


def absorbed_of(request, inputs):
    """Return the request and inputs with the query absorbed: its first columns times the key up-projection."""
    up, width = inputs["w_ukv"], request.nope_dim
    nope, rope = inputs["q"][..., :width], inputs["q"][..., width:]
    qa = np.einsum("thn,hrn->thr", nope, up[:, :, :width])
    return attrs.evolve(request, absorbed_query=True), inputs | {"qa": np.concatenate([qa, rope], axis=-1)}


@pytest.mark.parametrize("causal", [True, False])
def test_the_contracts_agree_once_weights_are_applied(causal):
    request, inputs = batch(*MIXED, absorbed=False, causal=causal)
    out, lse = projected_prefill(request, inputs)
    latent, same = absorbed_prefill(*absorbed_of(request, inputs))
    np.testing.assert_allclose(lse, same, rtol=1e-11, atol=1e-12)
    values = np.einsum("thr,hrv->thv", latent, inputs["w_ukv"][:, :, request.nope_dim :])
    np.testing.assert_allclose(out, values, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("absorbed", [True, False])
def test_queries_without_keys_are_zero_and_their_tolerance_is_none(absorbed):
    request, inputs = batch(*MIXED, absorbed=absorbed)
    expected = (decode_reference if absorbed else projected_reference)(request, inputs)
    starts = inputs["cu_seqlens_q"]
    blind = [*range(starts[4], starts[5]), *range(starts[5], starts[5] + 3)]
    empty = np.isneginf(expected["lse"].value).all(axis=1)
    assert np.flatnonzero(empty).tolist() == blind
    assert (expected["out"].value[blind] == 0.0).all() and (expected["out"].tolerance.bound[blind] == 0.0).all()
    assert (expected["lse"].tolerance.bound[blind] == 0.0).all()
    assert (expected["lse"].tolerance.bound[~empty] > 0.0).all()


def test_page_ids_outside_the_cache_contribute_nothing():
    request, inputs = batch([2], [11], absorbed=False)
    table = inputs["block_table"].copy()
    table[0, 1] = request.num_pages
    expected = projected_reference(request, inputs | {"block_table": table})
    assert expected["status"].tolist() == [1]
    kept = [0, 1, 2, 3, 8, 9, 10]
    keys = rows(request, inputs, 0)[kept]
    made = np.einsum("kr,hrc->hkc", keys[:, : request.kv_lora_rank], inputs["w_ukv"])
    wide = np.concatenate([made[..., : request.nope_dim], np.stack([keys[:, request.kv_lora_rank :]] * 3)], axis=-1)
    powers = np.exp(request.scale * np.einsum("hc,hkc->hk", inputs["q"][1], wide))
    np.testing.assert_allclose(expected["lse"].value[1], np.log(powers.sum(axis=1)), rtol=1e-12)


SINGLE = np.float32
WIDTHS = {"kv_lora_rank": 512, "rope_dim": 64, "nope_dim": 128, "v_dim": 128}


@pytest.fixture(scope="module", params=["mla.prefill", "mla.absorbed.decode"])
def model(request):
    """A projected batch as wide as the models', in bf16, with weights that keep keys and values of unit size; pinned to
    what forms keys and values, or to what absorbs.
    """
    pin = request.param
    request, _ = batch([40, 1], [200, 90], num_heads=2, absorbed=False)
    request = attrs.evolve(
        request, **WIDTHS, page_size=16, num_pages=20, dtype="bf16", kv_dtype="bf16", scale=192**-0.5, candidate=pin
    )
    generator = np.random.default_rng(5)

    def draw(*shape):
        return generator.standard_normal(shape).astype(ml_dtypes.bfloat16)

    return request, {
        "q": draw(41, 2, 192),
        "w_ukv": (draw(2, 512, 256).astype(np.float64) / 512**0.5).astype(ml_dtypes.bfloat16),
        "c_kv": draw(20, 16, 512),
        "k_rope": draw(20, 16, 64),
        "cu_seqlens_q": np.array([0, 40, 41], np.int32),
        "cu_seqlens_k": np.array([0, 200, 290], np.int32),
        "block_table": np.arange(26, dtype=np.int32).reshape(2, 13) % 20,
    }


def rounded_prefill(request, inputs):
    """Prefill as a kernel may do it: what the pinned candidate forms, and weights, rounded to bf16, sums in f32."""
    absorbs = request.candidate == "mla.absorbed.decode"
    out, lse = projected_prefill(request, inputs)
    for sequence, (begin, end) in enumerate(((0, 40), (40, 41))):
        length = int(np.diff(inputs["cu_seqlens_k"])[sequence])
        flat = rows(request, inputs, sequence).astype(SINGLE)
        place = np.arange(length)[None] <= np.arange(end - begin)[:, None] + length - (end - begin)
        for head in range(request.num_heads):
            query, up = inputs["q"][begin:end, head].astype(SINGLE), inputs["w_ukv"][head].astype(SINGLE)
            if absorbs:
                query = np.concatenate([short(query[:, :128] @ up[:, :128].T), query[:, 128:]], axis=1)
                keys, values = flat, flat[:, :512]
            else:
                made = short(flat[:, :512] @ up)
                keys, values = np.concatenate([made[:, :128], flat[:, 512:]], axis=1), made[:, 128:]
            scores = np.where(place, SINGLE(request.scale) * (query @ keys.T), -np.inf)
            powers = np.exp(scores - scores.max(axis=1, keepdims=True))
            total = powers.sum(axis=1)
            made = (short(powers) @ values) / total[:, None]
            out[begin:end, head] = short(made) @ up[:, 128:] if absorbs else made
            lse[begin:end, head] = scores.max(axis=1) + np.log(total)
    return {"out": out.astype(ml_dtypes.bfloat16), "lse": lse.astype(SINGLE), "status": np.zeros(1, np.int32)}


def short(values):
    """Return values rounded to bf16."""
    return values.astype(ml_dtypes.bfloat16).astype(SINGLE)


def failures(outputs, expected):
    compared = [compare("out", "bf16", outputs["out"], expected["out"])]
    compared.append(compare("lse", "f32", outputs["lse"], expected["lse"]))
    findings = [finding for each in compared for finding in each.findings]
    return [finding.code for finding in (*findings, *decode_findings(outputs, expected))]


def test_rounding_where_a_kernel_may_passes_with_room(model):
    expected = projected_reference(*model)
    outputs = rounded_prefill(*model)
    assert failures(outputs, expected) == []
    assert compare("out", "bf16", outputs["out"], expected["out"]).margin > 0.05


def one_signed(request, inputs):
    """Return inputs with values of one sign and scores by the rotated part alone, whose sums hardly err."""
    query = inputs["q"].copy()
    query[..., : request.nope_dim] = 0
    query[..., request.nope_dim + 1 :] = 0
    return request, inputs | {"q": query, "c_kv": np.abs(inputs["c_kv"]), "w_ukv": np.abs(inputs["w_ukv"])}


def test_outputs_whose_digits_are_cut_off_are_told(model):
    """Each within its tolerance, and all too small."""
    signed = one_signed(*model)
    expected, outputs = projected_reference(*signed), rounded_prefill(*signed)
    assert failures(outputs, expected) == []
    bits = projected_prefill(*signed)[0].astype(np.float32).view(np.uint32) & 0xFFFF0000
    cut = bits.view(np.float32).astype(ml_dtypes.bfloat16)
    assert failures(outputs | {"out": cut}, expected) == ["bias"]


def test_no_tolerance_of_prefill_is_wider_than_the_gate(model):
    expected = projected_reference(*model)
    out, lse = expected["out"], expected["lse"]
    size = np.abs(out.value)
    assert (out.tolerance.bound <= ABSOLUTE_GATE + RELATIVE_GATE * size).all()
    assert (out.tolerance.bound <= 2e-2 * size.max(axis=(1, 2), keepdims=True)).all()
    assert (lse.tolerance.bound <= LSE_GATE).all()


FAULTS_AT_ANY_SCALE = {
    "last key dropped": lambda request, inputs: (
        request,
        inputs | {"cu_seqlens_k": np.array([0, 199, 289], np.int32)},
    ),
    "heads exchanged": lambda request, inputs: (request, inputs | {"w_ukv": inputs["w_ukv"][::-1]}),
    "scale a tenth off": lambda request, inputs: (attrs.evolve(request, scale=request.scale * 0.9), inputs),
}


@pytest.mark.parametrize("scale", [3.0, 100.0, 2.0**60])
def test_a_large_scale_leaves_a_tolerance_that_tells_faults(model, scale):
    """Where roundings of keys alone pass the gate it gives way, by what they can come to and no more."""
    request, inputs = model
    steep = attrs.evolve(request, scale=scale), inputs
    expected = projected_reference(*steep)
    assert failures(rounded_prefill(*steep), expected) == []
    size = np.abs(expected["out"].value)
    gate = np.minimum(ABSOLUTE_GATE + RELATIVE_GATE * size, 2e-2 * size.max(axis=(1, 2), keepdims=True))
    assert (expected["out"].tolerance.bound > gate).mean() < 0.3
    for change in FAULTS_AT_ANY_SCALE.values():
        assert "tolerance" in failures(rounded_prefill_of(*change(*steep)), expected)


def test_of_two_scores_within_their_roundings_either_may_have_all_weight(model):
    """At a scale that leaves one key all weight, and every other one too little for an f64."""
    request, inputs = model
    query = np.random.default_rng(1).standard_normal((41, 2, 192)).astype(ml_dtypes.bfloat16)
    steep = attrs.evolve(request, scale=2.0**60), inputs | {"q": query}
    expected, outputs = projected_reference(*steep), rounded_prefill(*steep)
    value = expected["out"].value
    other_key = (np.abs(outputs["out"].astype(float) - value) > 0.1 * np.abs(value).max()).any(axis=-1)
    assert other_key.sum() == (2 if request.candidate == "mla.absorbed.decode" else 0)
    assert failures(outputs, expected) == []
    elsewhere = outputs["out"].copy()
    elsewhere[np.roll(other_key, 1, axis=0)] = outputs["out"][other_key]
    assert ("tolerance" in failures(outputs | {"out": elsewhere}, expected)) is bool(other_key.any())


def test_a_weight_too_small_for_an_f64_may_be_all_there_is():
    """Of two keys with 1000 nats between them: where their scores may err by 500 nats each, and not where by 490."""
    logarithms, distances = np.array([0.0, -1000.0]), np.array([[0.0, 0.0], [3.0, 1.0]])
    assert farthest(logarithms, 600.0, distances).tolist() == [3.0, 1.0]
    assert farthest(logarithms, 490.0, distances) == pytest.approx(np.exp(-20.0) * distances[1])
    assert farthest(logarithms, 10.0, distances).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "change",
    [
        lambda request, inputs: (attrs.evolve(request, causal=False), inputs),
        lambda request, inputs: (request, inputs | {"cu_seqlens_k": np.array([0, 199, 289], np.int32)}),
        lambda request, inputs: (request, inputs | {"w_ukv": inputs["w_ukv"][::-1]}),
        lambda request, inputs: (attrs.evolve(request, scale=576**-0.5), inputs),
    ],
    ids=["not causal", "last key dropped", "heads exchanged", "scale of the absorbed width"],
)
def test_the_nearest_faults_of_prefill_exceed_the_tolerance(model, change):
    expected = projected_reference(*model)
    assert "tolerance" in failures(rounded_prefill_of(*change(*model)), expected)


def rounded_prefill_of(request, inputs):
    """Return what a kernel that is right but for its inputs would give."""
    out, lse = projected_prefill(request, inputs)
    return {"out": out.astype(ml_dtypes.bfloat16), "lse": lse.astype(np.float32), "status": np.zeros(1, np.int32)}


def test_a_request_that_pins_none_may_err_by_either_route(model):
    """Which candidate serves it is not the reference's to know."""
    request, inputs = model
    of_pinned = projected_reference(*model)
    of_any = projected_reference(attrs.evolve(request, candidate=None), inputs)
    for name in ("out", "lse"):
        assert (of_any[name].tolerance.bound >= of_pinned[name].tolerance.bound).all()
    assert of_any["bias"].bound >= of_pinned["bias"].bound
    assert failures(rounded_prefill(*model), of_any) == []
