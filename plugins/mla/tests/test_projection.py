"""Projections around the latent kernels: with them absorbed attention is attention of projected queries."""

import types

import attrs
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mla_batches import batch

from kinfolk_mla.prefill_reference import projected_prefill
from kinfolk_mla.projection import absorbed_query, joint_up_projection, projected_output, up_projections
from kinfolk_mla.reference import decode_reference


def parts(request, inputs):
    return inputs["w_ukv"][:, :, : request.nope_dim], inputs["w_ukv"][:, :, request.nope_dim :]


def whole_op(request, inputs):
    """Return `out` and `lse` of projected queries, by way of the absorbed reference."""
    w_uk, w_uv = parts(request, inputs)
    qa = absorbed_query(inputs["q"], w_uk, rope_dim=request.rope_dim)
    expected = decode_reference(attrs.evolve(request, absorbed_query=True), inputs | {"qa": qa})
    return projected_output(expected["out"].value, w_uv), expected["lse"].value


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12)), min_size=1, max_size=4), st.booleans())
def test_the_whole_op_is_prefill_of_projected_queries(sizes, causal):
    tokens, lengths = ([size[i] for size in sizes] for i in (0, 1))
    request, inputs = batch(tokens, lengths, absorbed=False, causal=causal)
    out, lse = whole_op(request, inputs)
    expected, sums = projected_prefill(request, inputs)
    np.testing.assert_allclose(out, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(lse, sums, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("change", [lambda up: up[::-1], lambda up: up[:, ::-1], lambda up: up[:, :, ::-1]])
def test_exchanged_weights_show(change):
    request, inputs = batch([3], [9], absorbed=False)
    out, _ = whole_op(request, inputs | {"w_ukv": change(inputs["w_ukv"])})
    assert np.abs(out - projected_prefill(request, inputs)[0]).max() > 1e-2


def test_a_models_weight_is_taken_apart_by_head():
    """As models do it: latent rows times the transposed weight, then a view per head, keys before values."""
    generator = np.random.default_rng(0)
    weight, latent = generator.standard_normal((3 * (7 + 5), 10)), generator.standard_normal((4, 10))
    made = (latent @ weight.T).reshape(4, 3, 12)
    w_uk, w_uv = up_projections(weight, num_heads=3, nope_dim=7, v_dim=5)
    np.testing.assert_allclose(np.einsum("kr,hrn->khn", latent, w_uk), made[..., :7], rtol=1e-12)
    np.testing.assert_allclose(np.einsum("kr,hrv->khv", latent, w_uv), made[..., 7:], rtol=1e-12)


def test_kernels_of_projected_queries_get_both_side_by_side_and_row_by_row():
    """What is only put together keeps the order of the model's weight in memory, which no kernel reads."""
    weight = np.random.default_rng(0).standard_normal((3 * (7 + 5), 10))
    both = np.concatenate(up_projections(weight, num_heads=3, nope_dim=7, v_dim=5), axis=2)
    joint = joint_up_projection(weight, num_heads=3, nope_dim=7, v_dim=5)
    assert (joint == both).all() and joint.flags.c_contiguous and not both.flags.c_contiguous
    with pytest.raises(ValueError, match="36 rows, 4 heads"):
        joint_up_projection(weight, num_heads=4, nope_dim=7, v_dim=5)


def draw(*shape, dtype=ml_dtypes.bfloat16, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32])
def test_sums_are_rounded_once_to_the_dtype_that_was_passed(dtype):
    q, w_uk = draw(3, 2, 192, dtype=dtype), draw(2, 512, 128, dtype=dtype, seed=1)
    qa = absorbed_query(q, w_uk, rope_dim=64)
    assert qa.dtype == np.dtype(dtype) and qa.shape == (3, 2, 576)
    assert qa[:, :, 512:].tobytes() == q[:, :, 128:].tobytes()
    exact = np.einsum("thn,hrn->thr", q[:, :, :128].astype(float), w_uk.astype(float))
    magnitude = np.einsum("thn,hrn->thr", np.abs(q[:, :, :128].astype(float)), np.abs(w_uk.astype(float)))
    bound = 0.5 * float(ml_dtypes.finfo(dtype).eps) * np.abs(exact) + 128 * 2.0**-24 * magnitude
    assert (np.abs(qa[:, :, :512].astype(float) - exact) <= bound).all()


def test_only_what_the_array_standard_has_is_asked_of_a_namespace():
    names = ("astype", "concat", "matmul", "permute_dims", "reshape", "float32", "float64")
    space = types.SimpleNamespace(**{name: getattr(np, name) for name in names})
    weight, q = draw(2 * 12, 10, dtype=np.float32), draw(4, 2, 13, dtype=np.float32)
    w_uk, w_uv = up_projections(weight, num_heads=2, nope_dim=7, v_dim=5, xp=space)
    qa = absorbed_query(q, w_uk, rope_dim=6, xp=space)
    np.testing.assert_array_equal(qa, absorbed_query(q, w_uk, rope_dim=6))
    assert projected_output(qa[:, :, :10], w_uv, xp=space).shape == (4, 2, 5)


WRONG = {
    "rows": (lambda: up_projections(draw(10, 24), num_heads=2, nope_dim=7, v_dim=5), ValueError, "10 rows, 2 heads"),
    "axes of the weight": (
        lambda: up_projections(draw(24), num_heads=2, nope_dim=7, v_dim=5),
        ValueError,
        r"weight has the shape \(24,\), 2 axes",
    ),
    "columns of q": (
        lambda: absorbed_query(draw(3, 2, 190), draw(2, 512, 128), rope_dim=64),
        ValueError,
        "q has 190 columns, 128 of w_uk and rope_dim 64 make 192",
    ),
    "an absorbed query": (
        lambda: absorbed_query(draw(3, 2, 576), draw(2, 512, 128), rope_dim=64),
        ValueError,
        "pass the query before absorption",
    ),
    "heads of q": (
        lambda: absorbed_query(draw(3, 4, 192), draw(2, 512, 128), rope_dim=64),
        ValueError,
        "q has 4 heads, w_uk 2",
    ),
    "dtype of w_uk": (
        lambda: absorbed_query(draw(3, 2, 192), draw(2, 512, 128, dtype=np.float32), rope_dim=64),
        TypeError,
        "q is bfloat16 and w_uk float32",
    ),
    "axes of q": (
        lambda: absorbed_query(draw(2, 192), draw(2, 512, 128), rope_dim=64),
        ValueError,
        r"q has the shape \(2, 192\), 3 axes",
    ),
    "columns of latent": (
        lambda: projected_output(draw(3, 2, 512), draw(2, 128, 512)),
        ValueError,
        "latent has 512 columns, w_uv takes 128",
    ),
    "heads of latent": (lambda: projected_output(draw(3, 1, 8), draw(2, 8, 4)), ValueError, "latent has 1 heads, w_uv"),
    "dtype of latent": (
        lambda: projected_output(draw(3, 2, 8, dtype=np.float32), draw(2, 8, 4)),
        TypeError,
        "latent is float32 and w_uv bfloat16",
    ),
    "no array": (lambda: projected_output([[[1.0]]], draw(1, 1, 1)), TypeError, "a list names no namespace"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_told(name):
    run, kind, told = WRONG[name]
    with pytest.raises(kind, match=told):
        run()
