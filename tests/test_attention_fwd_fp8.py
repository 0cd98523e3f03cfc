"""Keys and values of 8-bit floats in pages: each arch serves its own, exactly, by one factor a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import ml_dtypes
import numpy as np
import pytest
from built_once import artifact_of, judged
from emitter_faults import assert_seen, with_fault

from kinfolk.dispatch import dispatch
from kinfolk.errors import NoCandidate, PinRefused
from kinfolk.fields import FieldValueError
from kinfolk.ir.types import ScalarType, VectorType
from kinfolk.ir.value import Value
from kinfolk.plugins.composition import Composition, compose
from kinfolk.tile import kept_transposed, staging
from kinfolk_attention_fwd.paged.spec import AttentionPagedSpec
from kinfolk_attention_fwd.request import AttentionFwdRequest
from kinfolk_attention_fwd.segmented import bend, kernel, rows
from kinfolk_attention_fwd.segmented.spec import AttentionSegmentSpec
from kinfolk_runtime import call
from kinfolk_runtime.artifact import Artifact
from kinfolk_runtime.isa import MachineExecutor
from kinfolk_runtime.verify import Runner

ARCHS = ("gfx942", "gfx950")
pytestmark = [pytest.mark.simulate, pytest.mark.needs("attention_fwd", *ARCHS)]
OWN = {"gfx942": "f8E4M3FNUZ", "gfx950": "f8E4M3FN"}
THEIRS = {"f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "f8E4M3FN": ml_dtypes.float8_e4m3fn}
REQUEST = AttentionFwdRequest(
    layout="paged",
    num_seqs=2,
    total_q=4,
    max_seqlen_q=2,
    max_seqlen_k=700,
    num_heads=16,
    num_kv_heads=2,
    head_size=64,
    head_size_v=64,
    page_size=16,
    num_pages=100,
    dtype="bf16",
    kv_dtype="bf16",
    causal=True,
    return_lse=True,
    scale=64**-0.5,
    num_seg=3,
    candidate="attention_fwd.segmented",
)
WIDE = {"head_size": 128, "head_size_v": 128}
BLOCKS = {"candidate": "attention_fwd.paged", "num_seg": 0}
Patch = pytest.MonkeyPatch


def served(arch: str, **changes: Any) -> tuple[Composition, Artifact]:
    request = attrs.evolve(REQUEST, kv_dtype=OWN[arch], **changes)
    return compose("attention_fwd", arch), artifact_of(request, arch)


@pytest.mark.parametrize(
    ("arch", "changes"),
    [
        ("gfx942", {"sinks": True}),
        ("gfx950", {**WIDE, "dtype": "f16", "page_size": 64, "softcap": 20.0}),
        ("gfx942", {**WIDE, "page_size": 128, "num_seg": 1, "window_left": 40, "alibi": True}),
        ("gfx950", {"k_scale": 0.25, "v_scale": 3.0}),
    ],
    ids=str,
)
def test_each_arch_serves_its_own(arch: str, changes: dict[str, Any]) -> None:
    composition, artifact = served(arch, **changes)
    for name in ("whole", "ragged", "lengths", "climb", "extreme", "one_sign", "bad_pages", "address_5gib"):
        report = judged(composition, artifact, name)
        assert report.status == "pass", (name, report.findings)


@pytest.mark.parametrize(
    ("arch", "changes"),
    [
        ("gfx942", {**WIDE, "sinks": True, "k_scale": 0.25, "v_scale": 3.0}),
        ("gfx950", {**WIDE, "page_size": 64, "window_left": 70}),
        ("gfx942", {"dtype": "f16", "page_size": 128, "softcap": 20.0, "alibi": True}),
        ("gfx950", {"dtype": "f16", "page_size": 32, "causal": False}),
    ],
    ids=str,
)
def test_each_arch_serves_its_own_by_blocks_of_queries(arch: str, changes: dict[str, Any]) -> None:
    queries = {"total_q": 70, "max_seqlen_q": 60, "max_seqlen_k": 200, "num_heads": 4}
    composition, artifact = served(arch, **BLOCKS, **queries, **changes)
    for name in ("whole", "ragged", "climb", "extreme", "one_sign", "bad_pages", "address_5gib"):
        report = judged(composition, artifact, name)
        assert report.status == "pass", (name, report.findings)


@pytest.mark.parametrize("arch", ARCHS)
def test_the_machine_code_computes_it_too(arch: str) -> None:
    composition, artifact = served(arch, **WIDE, max_seqlen_k=150, num_heads=6, num_seg=2)
    report = judged(composition, artifact, "whole", (Runner(MachineExecutor()),))
    assert report.status == "pass", report.findings


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("by", [{"num_seg": 1}, BLOCKS], ids=["segments", "blocks"])
def test_every_code_is_what_others_say_it_is(arch: str, by: dict[str, Any]) -> None:
    """Of one key each: a row of `out` is its value, and each LSE an element of it, that of which the query is 1."""
    codes = np.arange(256, dtype=np.uint8).view(THEIRS[OWN[arch]]).astype(np.float32)
    numbers = np.where(np.isnan(codes), 0.0, codes).reshape(4, 64)
    cache = np.zeros((4, 16, 1, 64), THEIRS[OWN[arch]])
    cache[:, 0, 0] = numbers.astype(cache.dtype)
    changes = {"num_seqs": 4, "total_q": 32, "max_seqlen_q": 8, "max_seqlen_k": 1, "num_heads": 8, "num_kv_heads": 1}
    _, artifact = served(arch, **changes, num_pages=4, **by, causal=False, scale=1.0, k_scale=0.5, v_scale=0.25)
    tensors = {
        "q": np.tile(np.eye(64, dtype=np.float32).reshape(8, 8, 64), (4, 1, 1)).astype(ml_dtypes.bfloat16),
        "k": cache,
        "v": cache,
        "cu_seqlens_q": np.arange(0, 40, 8, dtype=np.int32),
        "seqused_k": np.ones(4, np.int32),
        "block_table": np.arange(4, dtype=np.int32)[:, None],
    }
    found = {name: np.asarray(each).astype(np.float32) for name, each in call(artifact, tensors).items()}
    np.testing.assert_array_equal(found["out"], np.repeat(0.25 * numbers, 64, axis=0).reshape(32, 8, 64))
    scores = found["lse"].T.reshape(4, 64)  # tokens and heads in the order of columns
    np.testing.assert_allclose(scores, 0.5 * numbers, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("arch", ARCHS)
def test_the_other_encoding_is_refused_by_name(arch: str) -> None:
    [other] = set(OWN.values()) - {OWN[arch]}
    dispatch(attrs.evolve(REQUEST, kv_dtype=OWN[arch]), arch)
    with pytest.raises(PinRefused) as refused:
        dispatch(attrs.evolve(REQUEST, kv_dtype=other), arch)
    [told] = [each for each in refused.value.refusals if each.code == "attention_fwd.segmented.kv_dtype"]
    assert told.value == other and f"or as {OWN[arch]}" in told.remedy


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"head_size": 256, "head_size_v": 256}, "attention_fwd.segmented.narrow.head_size"),
        ({"page_size": 8}, "attention_fwd.segmented.narrow.page_size"),
        ({**BLOCKS, "kv_dtype": "f8E4M3FN"}, "attention_fwd.paged.kv_dtype"),
        ({**BLOCKS, "head_size": 192}, "attention_fwd.paged.narrow.head_size"),
        ({**BLOCKS, "page_size": 4}, "attention_fwd.paged.narrow.page_size"),
        ({"kv_dtype": "f8E5M2FNUZ"}, "attention_fwd.segmented.kv_dtype"),
        ({"dtype": "f8E4M3FNUZ"}, "attention_fwd.segmented.dtype"),
    ],
    ids=str,
)
def test_what_is_not_served_is_refused_by_name(changes: dict[str, Any], code: str) -> None:
    with pytest.raises(PinRefused) as refused:
        dispatch(attrs.evolve(REQUEST, **({"kv_dtype": OWN["gfx942"]} | changes)), "gfx942")
    assert code in {each.code for each in refused.value.refusals}


def test_a_name_that_is_none_of_both_is_told_apart() -> None:
    with pytest.raises(FieldValueError, match="Pass f8E4M3FN where the arch's fp8_format is ocp"):
        attrs.evolve(REQUEST, kv_dtype="fp8")


@pytest.mark.parametrize(("queries", "candidate"), [(1, "segmented"), (4096, "paged")])
def test_few_queries_go_to_segments_and_many_to_blocks(queries: int, candidate: str) -> None:
    asked = {"total_q": queries, "max_seqlen_q": queries, "max_seqlen_k": 4096, "num_seqs": 1, "num_pages": 256}
    request = attrs.evolve(REQUEST, kv_dtype=OWN["gfx942"], candidate=None, num_seg=0, **asked)
    assert dispatch(request, "gfx942").candidate == f"attention_fwd.{candidate}"
    with pytest.raises(NoCandidate):
        dispatch(attrs.evolve(request, head_size=256, head_size_v=256), "gfx942")


def other_encoding(module: Any, patch: Patch) -> None:
    """The exponent's bias is one less, so that all numbers are twice as large."""
    whole, raised = module.widened, 1 << 7 | 1 << 23  # both exponents of a word

    def widened(value: Value, element: ScalarType) -> Value:
        words = rows.words_of(whole(value, element))
        assert isinstance(words.type, VectorType)
        every = [rows.vector.extract(words, index=index) + raised for index in range(words.type.count)]
        return rows.codes_of(rows.vector.pack(*every), element)

    patch.setattr(module, "widened", widened)


def codes_of_the_other_encoding(patch: Patch) -> None:
    other_encoding(kernel, patch)


def factor_of_keys_left_out(patch: Patch) -> None:
    whole = bend.Bend.of

    def of(*given: Any) -> bend.Bend:
        return attrs.evolve(whole(*given), scale=given[0].arguments.scale)

    patch.setattr(bend.Bend, "of", of)


def words_of_a_vector_the_wrong_way_round(patch: Patch) -> None:
    whole = kernel.codes_of

    def codes(words: Value, element: Any) -> Value:
        low, high = (rows.vector.extract(words, index=index) for index in range(2))
        return whole(rows.vector.pack(high, low), element)

    patch.setattr(kernel, "codes_of", codes)


FAULTS: list[Callable[[Patch], None]] = [
    codes_of_the_other_encoding,
    factor_of_keys_left_out,
    words_of_a_vector_the_wrong_way_round,
]


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_seen(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    composition, artifact = served("gfx942", **WIDE, k_scale=0.25, v_scale=3.0)
    assert judged(composition, artifact, "whole").status == "pass"
    faulty = with_fault(composition, artifact, AttentionSegmentSpec, plant, monkeypatch)
    assert_seen(judged(composition, faulty, "whole"), {"tolerance"})


@pytest.mark.parametrize("module", [staging, kept_transposed], ids=["keys", "values"])
def test_codes_of_the_other_encoding_are_seen_by_blocks_too(module: Any, monkeypatch: Patch) -> None:
    composition, artifact = served("gfx942", **BLOCKS, **WIDE)
    assert judged(composition, artifact, "whole").status == "pass"
    faulty = with_fault(
        composition, artifact, AttentionPagedSpec, lambda patch: other_encoding(module, patch), monkeypatch
    )
    assert_seen(judged(composition, faulty, "whole"), {"tolerance"})
