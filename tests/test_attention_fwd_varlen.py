"""Attention over sequences of any lengths in rows, held against the same kernel over equal ones, and with faults."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest
from built_once import artifact_of, judged
from emitter_faults import assert_seen, with_fault

from kinfolk.dispatch import dispatch
from kinfolk.errors import BindError, NoCandidate
from kinfolk.ir.ops import convert, memory
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.plugins.composition import compose
from kinfolk_attention_fwd import queries
from kinfolk_attention_fwd.dense import feed, sequence
from kinfolk_attention_fwd.dense.spec import AttentionDenseSpec
from kinfolk_attention_fwd.drawn import drawn
from kinfolk_attention_fwd.request import AttentionFwdRequest
from kinfolk_attention_fwd.sequence import wide
from kinfolk_attention_fwd.varlen_scenarios import packed
from kinfolk_runtime import call

pytestmark = [pytest.mark.simulate, pytest.mark.needs("attention_fwd", "gfx942", "gfx950")]

Patch = pytest.MonkeyPatch
REQUEST = AttentionFwdRequest(
    layout="varlen",
    num_seqs=4,
    total_q=500,
    max_seqlen_q=300,
    total_k=900,
    max_seqlen_k=330,
    num_heads=6,
    num_kv_heads=2,
    head_size=128,
    head_size_v=128,
    dtype="bf16",
    kv_dtype="bf16",
    causal=True,
    return_lse=True,
    scale=128**-0.5,
)
F16 = {"dtype": "f16", "kv_dtype": "f16"}
ALL_OF_HEADS = {"alibi": True, "sinks": True, "softcap": 20.0, "num_heads": 2}


@pytest.mark.parametrize(
    ("arch", "changes"),
    [
        *((arch, {}) for arch in ("gfx942", "gfx950")),
        ("gfx942", {"head_size": 64, "head_size_v": 64, "window_left": 70, "num_heads": 2}),
        ("gfx950", {**F16, **ALL_OF_HEADS, "window_left": 63}),
    ],
    ids=str,
)
def test_every_scenario_passes(arch: str, changes: dict[str, Any]) -> None:
    composition, artifact = compose("attention_fwd", arch), artifact_of(attrs.evolve(REQUEST, **changes), arch)
    for each in composition.scenarios(artifact.plan.request):
        report = judged(composition, artifact, each.name)
        assert report.status == "pass", (each.name, report.findings)


QUERIES, LENGTHS = (40, 0, 1, 270, 3), (33, 70, 129, 290, 0)


def batch(**changes: Any) -> tuple[AttentionFwdRequest, dict[str, Any]]:
    counts = {"total_q": sum(QUERIES), "max_seqlen_q": 270, "total_k": sum(LENGTHS), "max_seqlen_k": 290}
    request = attrs.evolve(REQUEST, num_seqs=len(LENGTHS), **counts, **changes)
    return request, packed(request, drawn(request, np.random.default_rng(4), QUERIES, LENGTHS))


@pytest.mark.parametrize(
    "changes", [{}, {"causal": False, "num_kv_heads": 6}, {**F16, **ALL_OF_HEADS, "window_left": 20}], ids=str
)
def test_each_sequence_gives_the_bits_that_it_gives_alone(changes: dict[str, Any]) -> None:
    request, inputs = batch(**changes)
    found = call(artifact_of(request, "gfx942"), inputs)
    ends = [np.cumsum([0, *counts]) for counts in (QUERIES, LENGTHS)]
    for number, (count, length) in enumerate(zip(QUERIES, LENGTHS, strict=True)):
        tokens, rows = (slice(*end[number : number + 2]) for end in ends)
        own = {"layout": "dense", "num_seqs": 1, "total_q": count, "total_k": 0}
        alone = attrs.evolve(request, **own, max_seqlen_q=count, max_seqlen_k=length)
        parts = {name: inputs[name][None, where] for name, where in (("q", tokens), ("k", rows), ("v", rows))}
        of_heads = {name: inputs[name] for name in ("alibi_slopes", "sink") if name in inputs}
        expected = call(artifact_of(alone, "gfx942"), parts | of_heads)
        np.testing.assert_array_equal(np.asarray(found["out"])[tokens], np.asarray(expected["out"])[0])
        np.testing.assert_array_equal(np.asarray(found["lse"])[:, tokens], np.asarray(expected["lse"])[0])


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        ("cu_seqlens_k", -1, sum(LENGTHS) - 1),
        ("cu_seqlens_k", 1, 104),
        ("cu_seqlens_q", 0, 1),
        ("cu_seqlens_q", 2, 39),
    ],
)
def test_offsets_that_do_not_cover_the_rows_are_refused_by_name(name: str, at: int, value: int) -> None:
    request, inputs = batch()
    inputs[name][at] = value
    with pytest.raises(BindError, match=name):
        call(artifact_of(request, "gfx942"), inputs)


def test_rows_are_counted_in_32_bits_and_a_row_more_is_refused() -> None:
    most = {"num_seqs": 300, "max_seqlen_q": 2**23 - 128, "max_seqlen_k": 2**30}
    fits = attrs.evolve(REQUEST, **most, total_q=2**31 - 1, total_k=2**31 - 1)
    assert dispatch(fits, "gfx942").candidate == "attention_fwd.dense"
    for field in ("total_q", "total_k"):
        with pytest.raises(NoCandidate) as refused:
            dispatch(attrs.evolve(fits, **{field: 2**31}), "gfx942")
        assert f"attention_fwd.dense.{field}" in {each.code for each in refused.value.refusals}


def keys_past_the_last(patch: Patch) -> None:
    """Tiles are read whole, whoever owns what lies behind the last key."""
    patch.setattr(feed, "bounded", lambda number, most: queries.constant(most, queries.I32))


def keys_by_the_offsets_of_queries(patch: Patch) -> None:
    whole = sequence.Rows.between
    first: list[Any] = []

    def between(offsets: Any, *given: Any) -> sequence.Rows:
        first.append(offsets)
        return whole(first[0], *given)

    patch.setattr(sequence.Rows, "between", between)


def all_as_long_as_the_longest(patch: Patch) -> None:
    whole = sequence.rows_between
    patch.setattr(sequence, "rows_between", lambda *given: (whole(*given)[0], given[-1]))


def sums_in_rows_of_a_sequence(patch: Patch) -> None:
    """LSE of a head begins where it would if all sequences were as long as the longest."""
    whole = sequence.RowSequence.first_sum

    def first_sum(self: sequence.RowSequence, head: Any) -> Any:
        longest = attrs.evolve(self.arguments, lse_row=self.arguments.max_seqlen_q)
        return whole(attrs.evolve(self, arguments=longest), head)

    patch.setattr(sequence.RowSequence, "first_sum", first_sum)


def elements_counted_in_32_bits(patch: Patch) -> None:
    def offset(pointer: Value, index: Value) -> Value:
        return memory.offset(pointer, wide(convert.trunc(index, to=I32)))

    patch.setattr(feed, "memory", SimpleNamespace(offset=offset, bound=memory.bound))


FAULTS = [
    (keys_past_the_last, "ragged", {"simulation"}),
    (keys_by_the_offsets_of_queries, "ragged", {"simulation"}),
    (all_as_long_as_the_longest, "ragged", {"simulation"}),
    (sums_in_rows_of_a_sequence, "ragged", {"simulation"}),
    (elements_counted_in_32_bits, "far", {"simulation"}),
]


@pytest.mark.parametrize(("plant", "scenario", "seen"), FAULTS, ids=lambda part: getattr(part, "__name__", ""))
def test_a_planted_fault_is_seen(plant: Any, scenario: str, seen: set[str], monkeypatch: Patch) -> None:
    composition, artifact = compose("attention_fwd", "gfx942"), artifact_of(REQUEST, "gfx942")
    faulty = with_fault(composition, artifact, AttentionDenseSpec, plant, monkeypatch)
    assert_seen(judged(composition, faulty, scenario), seen)
