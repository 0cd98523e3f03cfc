"""What forward attention refuses, and how it says so: fields of requests, specs by hand, tensors of other plans."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
import pytest
from built_once import artifact_of

from kinfolk.dispatch import dispatch
from kinfolk.errors import BindError, PinRefused, Refused
from kinfolk.plugins.composition import compose
from kinfolk_attention_fwd.request import AttentionFwdRequest
from kinfolk_attention_fwd.segmented.spec import AttentionSegmentSpec
from kinfolk_runtime import call

ARCHS = ("gfx942", "gfx950")
pytestmark = pytest.mark.needs("attention_fwd", *ARCHS)

DENSE = AttentionFwdRequest(
    layout="dense",
    num_seqs=3,
    total_q=60,
    max_seqlen_q=20,
    max_seqlen_k=50,
    num_heads=8,
    num_kv_heads=2,
    head_size=128,
    head_size_v=128,
    dtype="bf16",
    kv_dtype="bf16",
    causal=True,
    return_lse=True,
    scale=128**-0.5,
)
PAGED = attrs.evolve(DENSE, layout="paged", page_size=16, num_pages=20, total_q=44)
NUMBERS = [
    0,
    -1,
    1,
    2,
    3,
    7,
    *(2**power + more for power in (15, 16, 27, 28, 30, 31, 32, 53, 63) for more in (-1, 0, 1)),
]
NUMBERS += [10**30]
FLOATS = [0.0, -1.0, 1e300, 1e-300, math.nan, math.inf, -math.inf]
WORDS = ["", "x", "dense", "paged", "bf16", "f32", "f64", "f8E4M3FN", "f8E5M2FNUZ", "attention_fwd.dense", "mla.decode"]
OTHERS = [True, False, None, np.int64(4), np.float32(1), np.bool_(True), [1], (1,), b"bf16", 1j, 2.0]
LONGEST = 420
"""So many characters of a refusal, a line or two, are read; a tree of a condition is not."""


def answers(request: AttentionFwdRequest, name: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield what comes of a field's value on each arch, in a word, and each reason of it."""
    try:
        asked = attrs.evolve(request, **{name: value})
    except (TypeError, ValueError) as error:
        yield "invalid", str(error)
        return
    for arch in ARCHS:
        try:
            dispatch(asked, arch)
            yield "served", ""
        except Refused as refused:
            for each in refused.refusals:
                told = all((each.code, each.field, each.limit, each.because, each.remedy, each.plugin))
                yield "refused" if told else "bare", str(each)


@pytest.mark.parametrize("request_", [DENSE, PAGED], ids=lambda each: each.layout)
def test_whatever_a_field_holds_is_served_or_refused_in_words(request_: AttentionFwdRequest) -> None:
    """A value that no request has is an error that names the field; one that no candidate takes has every reason."""
    counts: Counter[str] = Counter()
    for each in attrs.fields(AttentionFwdRequest):
        for value in (*NUMBERS, *FLOATS, *WORDS, *OTHERS):
            for kind, said in answers(request_, each.name, value):
                counts[kind] += 1
                assert kind != "invalid" or each.name in said, (each.name, value, said)
                assert len(said) <= LONGEST, said
    assert min(counts[kind] for kind in ("invalid", "served", "refused")) > 50 and "bare" not in counts


@pytest.mark.parametrize("page", [1, 8])
@pytest.mark.parametrize("heads", [1, 8])
def test_pages_are_served_up_to_the_bound_that_the_refusal_names(page: int, heads: int) -> None:
    """Segments over small pages: as many elements of a cache as 32 bits count the bytes of."""
    base = attrs.evolve(PAGED, page_size=page, num_heads=heads, num_kv_heads=heads, candidate="attention_fwd.segmented")
    most = AttentionSegmentSpec.most_elements // (heads * 128) // page
    assert dispatch(attrs.evolve(base, num_pages=most), "gfx942")
    with pytest.raises(PinRefused) as refused:
        dispatch(attrs.evolve(base, num_pages=most + 1), "gfx942")
    [refusal] = refused.value.refusals
    assert (refusal.code, refusal.value) == ("attention_fwd.segmented.small_pages", most + 1)
    assert str(AttentionSegmentSpec.most_elements) in refusal.because and "Re-page" in refusal.remedy
    blocks = attrs.evolve(base, num_pages=most + 1, candidate="attention_fwd.paged")
    assert dispatch(blocks, "gfx942").candidate == "attention_fwd.paged"


@pytest.mark.parametrize("candidate", ["dense", "paged", "segmented"])
def test_a_width_that_no_layout_is_proved_for_is_refused_of_a_spec_too(candidate: str) -> None:
    request = attrs.evolve(DENSE if candidate == "dense" else PAGED, candidate=f"attention_fwd.{candidate}")
    composition, spec = compose("attention_fwd", "gfx942"), dispatch(request, "gfx942").launches[0].spec
    assert not composition.validate_spec(spec)
    widths = {"head_size": 112} if candidate == "segmented" else {"head_size": 112, "head_size_v": 112}
    with pytest.raises(Refused, match="head_size is 112"):
        composition.emit(attrs.evolve(spec, **widths))


@pytest.mark.compile
@pytest.mark.parametrize(
    ("name", "shape"), [("alibi_slopes", (8,)), ("sink", (8,)), ("q", (3, 20, 8, 64)), ("k", (3, 50, 8, 128))]
)
def test_what_the_plan_does_not_have_is_not_bound(name: str, shape: tuple[int, ...]) -> None:
    """Slopes of which the request said nothing, widths and heads of another one: by name, before anything runs."""
    shapes = {"q": (3, 20, 8, 128), "k": (3, 50, 2, 128), "v": (3, 50, 2, 128), name: shape}
    dtype = np.dtype(np.float32 if name == "alibi_slopes" else np.float16)
    tensors = {each: np.zeros(size, dtype if each == name else np.float16) for each, size in shapes.items()}
    with pytest.raises(BindError, match=rf"\b{name}\b"):
        call(artifact_of(attrs.evolve(DENSE, dtype="f16", kv_dtype="f16"), "gfx942"), tensors)


@pytest.mark.parametrize("candidate", ["dense", "paged", "segmented"])
def test_any_number_of_heads_for_a_head_of_keys_is_served(candidate: str) -> None:
    request = attrs.evolve(DENSE if candidate == "dense" else PAGED, candidate=f"attention_fwd.{candidate}")
    pairs = [(shared * kept, kept) for shared in (*range(1, 18), 71) for kept in (1, 3, 8)]
    for heads, kept in [*pairs, (1024, 1), (1024, 1024)]:
        asked: dict[str, Any] = {"num_heads": heads, "num_kv_heads": kept}
        assert dispatch(attrs.evolve(request, **asked), "gfx942").candidate == request.candidate
    with pytest.raises(PinRefused, match=r"num_heads is 1025, supported: at most 1024"):
        dispatch(attrs.evolve(request, num_heads=1025, num_kv_heads=1), "gfx942")
