"""The whole op of a decode step on the simulator: projected queries in, outputs of heads out, whoever multiplies by the
up-projections: the caller, or kernels.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from kinfolk import dispatch
from kinfolk_mla.prefill_reference import projected_prefill
from kinfolk_mla.projection import absorbed_query, joint_up_projection, projected_output, up_projections
from kinfolk_mla.reference import ABSOLUTE_GATE, LSE_GATE, PEAK_GATE, RELATIVE_GATE
from kinfolk_mla.request import MlaRequest
from kinfolk_runtime import call
from kinfolk_runtime.compilation import compile as compile_plan

pytestmark = [pytest.mark.needs("mla", "gfx942"), pytest.mark.compile, pytest.mark.simulate]

HEADS, LENGTHS = 16, (40, 0, 17)
TABLE = [[4, 1, 2], [-1, -1, -1], [5, 0, 7]]


def draw(generator, *shape, size=1.0):
    return (size * generator.standard_normal(shape)).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("candidate", ["mla.decode", "mla.prefill", "mla.absorbed.decode"])
def test_projections_and_kernel_are_attention_of_projected_queries(candidate):
    generator = np.random.default_rng(0)
    fields = {
        "num_heads": HEADS,
        "num_seqs": 3,
        "total_q": 3,
        "max_seqlen_q": 1,
        "max_seqlen_k": 40,
        "page_size": 16,
        "num_pages": 6,
        "dtype": "bf16",
        "kv_dtype": "bf16",
        "causal": True,
        "scale": 1 / math.sqrt(128 + 64),
    }
    q, weight = draw(generator, 3, HEADS, 192), draw(generator, HEADS * 256, 512, size=512**-0.5)
    cache = {
        "c_kv": draw(generator, 6, 16, 512),
        "k_rope": draw(generator, 6, 16, 64),
        "cu_seqlens_q": np.arange(4, dtype=np.int32),
        "cu_seqlens_k": np.cumsum([0, *LENGTHS]).astype(np.int32),
        "block_table": np.array(TABLE, np.int32),
    }
    w_uk, w_uv = up_projections(weight, num_heads=HEADS, nope_dim=128, v_dim=128)
    inputs = {"q": q, "w_ukv": joint_up_projection(weight, num_heads=HEADS, nope_dim=128, v_dim=128), **cache}
    outside = candidate == "mla.decode"
    plan = dispatch(MlaRequest(absorbed_query=outside, candidate=candidate, **fields), "gfx942")
    given = {"qa": absorbed_query(q, w_uk, rope_dim=64), **cache} if outside else inputs
    found = call(compile_plan(plan), given)
    out = (projected_output(found["out"], w_uv) if outside else np.asarray(found["out"])).astype(np.float64)

    expected, sums = projected_prefill(MlaRequest(absorbed_query=False, **fields), inputs)
    error, size = np.abs(out - expected), np.abs(expected)
    assert (error <= ABSOLUTE_GATE + RELATIVE_GATE * size).all()
    assert (error.max(axis=(1, 2)) <= PEAK_GATE * size.max(axis=(1, 2))).all()
    assert (out[1] == 0.0).all() and np.isneginf(found["lse"][1]).all()
    assert (np.abs(found["lse"][[0, 2]] - sums[[0, 2]]) <= LSE_GATE).all()
    exchanged, _ = projected_prefill(MlaRequest(absorbed_query=False, **fields), inputs | {"q": q[:, ::-1]})
    assert np.abs(out - exchanged).max() > 10 * error.max()
