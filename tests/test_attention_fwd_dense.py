"""Attention over whole rows: its kernel on the simulator, against the reference and with faults."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest
from built_once import artifact_of, judged
from emitter_faults import assert_seen, with_fault

from kinfolk.dispatch import dispatch
from kinfolk.errors import PinRefused
from kinfolk.ir.value import Value
from kinfolk.plugins.composition import Composition, compose
from kinfolk.tile import fused_softmax
from kinfolk.tile.attention import ahead, frame
from kinfolk_attention_fwd import attention, bending, queries, sinks
from kinfolk_attention_fwd import scores as scoring
from kinfolk_attention_fwd.dense import feed
from kinfolk_attention_fwd.dense.spec import AttentionDenseSpec
from kinfolk_attention_fwd.request import AttentionFwdRequest
from kinfolk_runtime import call
from kinfolk_runtime.artifact import Artifact

pytestmark = [pytest.mark.simulate, pytest.mark.needs("attention_fwd", "gfx942", "gfx950")]

REQUEST = AttentionFwdRequest(
    layout="dense",
    num_seqs=1,
    total_q=300,
    max_seqlen_q=300,
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
PAGE = Path(__file__).resolve().parent.parent / "docs" / "attention_fwd.md"
Patch = pytest.MonkeyPatch
F16 = {"dtype": "f16", "kv_dtype": "f16"}


def served(arch: str, **changes: Any) -> tuple[Composition, Artifact]:
    return compose("attention_fwd", arch), artifact_of(attrs.evolve(REQUEST, **changes), arch)


@pytest.mark.parametrize(
    ("arch", "changes"),
    [
        *((arch, {"causal": False}) for arch in ("gfx942", "gfx950")),
        *((arch, {**F16, "softcap": 20.0, "num_kv_heads": 6}) for arch in ("gfx942", "gfx950")),
        ("gfx942", {"head_size": 64, "head_size_v": 64, "window_left": 127, "num_heads": 2}),
        ("gfx950", {**F16, "window_left": 63, "softcap": 20.0, "causal": False, "num_heads": 2}),
        ("gfx942", {"alibi": True, "sinks": True, "num_heads": 2}),
        ("gfx950", {**F16, "alibi": True, "sinks": True, "window_left": 63, "softcap": 20.0, "num_heads": 2}),
    ],
    ids=str,
)
def test_every_scenario_passes(arch: str, changes: dict[str, Any]) -> None:
    composition, artifact = served(arch, **changes)
    for each in composition.scenarios(artifact.plan.request):
        report = judged(composition, artifact, each.name)
        assert report.status == "pass", (each.name, report.findings)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize(
    ("widths", "window"),
    [((64, 64), -1), ((80, 80), 9), ((96, 96), -1), ((192, 128), 70), ((192, 192), -1), ((256, 256), 70)],
    ids=str,
)
def test_other_widths_are_served(arch: str, widths: tuple[int, int], window: int) -> None:
    changes = {"head_size": widths[0], "head_size_v": widths[1], "window_left": window, "sinks": window >= 0}
    composition, artifact = served(arch, **changes, total_q=40, max_seqlen_q=40)
    for name in ("whole", "prefix", "tile_plus_one"):
        report = judged(composition, artifact, name)
        assert report.status == "pass", (name, report.findings)


def test_it_agrees_with_itself_whatever_is_asked_for_beside_it() -> None:
    """LSE that is not asked for changes no bit of `out`, nor do units of keys and values that are powers of two."""
    generator = np.random.default_rng(3)
    dtype = np.dtype(np.float16)
    small = attrs.evolve(REQUEST, total_q=20, max_seqlen_q=20, max_seqlen_k=70, dtype="f16", kv_dtype="f16")
    q = generator.standard_normal((1, 20, 6, 128)).astype(dtype)
    k, v = (generator.standard_normal((1, 70, 2, 128)).astype(dtype) for _ in range(2))
    whole = call(artifact_of(small, "gfx942"), {"q": q, "k": k, "v": v})
    alone = attrs.evolve(small, return_lse=False, k_scale=0.5, v_scale=2.0)
    given = {"q": q, "k": k * dtype.type(2.0), "v": v / dtype.type(2.0)}
    found = call(artifact_of(alone, "gfx942"), given)
    assert list(found) == ["out"]
    np.testing.assert_array_equal(np.asarray(found["out"]), np.asarray(whole["out"]))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"head_size": 112}, "head_size"),
        ({"head_size": 272, "head_size_v": 272}, "head_size"),
        ({"head_size_v": 112}, "head_size_v"),
        ({"kv_dtype": "f16"}, "kv_dtype"),
        ({"num_seg": 2}, "num_seg"),
    ],
    ids=str,
)
def test_what_is_not_served_is_refused_by_name(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(PinRefused) as refused:
        dispatch(attrs.evolve(REQUEST, candidate="attention_fwd.dense", **changes), "gfx942")
    assert f"attention_fwd.dense.{field}" in {each.code for each in refused.value.refusals}


def test_the_python_of_the_page_runs_and_computes_attention(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    [block] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(block, str(PAGE), "exec"), names)
    assert capsys.readouterr().out == "(2, 20, 8, 128) (2, 8, 20)\n"
    query, keys, values = (names["tensors"][name][1].astype(float) for name in ("q", "k", "v"))
    scores = query[5, 6] @ keys[:56, 1].T / 128**0.5  # query 5 of 20 sees 70 - 14 keys, head 6 reads head 1
    weights = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(names["outputs"]["out"][1, 5, 6].astype(float), weights @ values[:56, 1], atol=0.01)
    np.testing.assert_allclose(names["outputs"]["lse"][1, 6, 5], np.log(np.exp(scores).sum()), rtol=1e-6)


def no_mask(patch: Patch) -> None:
    patch.setattr(scoring, "mask_scores", lambda scores, keys, valid: list(scores))


def mask_off_by_one(patch: Patch) -> None:
    whole = scoring.mask_scores
    patch.setattr(scoring, "mask_scores", lambda scores, keys, valid: whole(scores, keys, valid + 1))


def diagonal_from_the_first_key(patch: Patch) -> None:
    """Causal top-left: query i sees i + 1 keys, whatever stands before the queries."""
    patch.setattr(queries.Queries, "_seen", lambda self, number: number)


def a_tile_too_many_unmasked(patch: Patch) -> None:
    whole = queries.Queries.seen_by_all
    patch.setattr(queries.Queries, "seen_by_all", lambda self: whole(self) + self.spec.tile_keys)


def dropped_rescale(patch: Patch) -> None:
    patch.setattr(ahead, "scale_accumulators", lambda accumulators, factor: list(accumulators))


def anchor_not_bounded(patch: Patch) -> None:
    patch.setattr(fused_softmax, "FARTHEST", 2.0**100)


def dropped_fragment(patch: Patch) -> None:
    """A part of a head's columns is never stored."""
    whole = frame.memory.view_store
    count = iter(range(1 << 20))

    def store(view: Value, index: Value, value: Value) -> None:
        if next(count) != 1:
            whole(view, index, value)

    patch.setattr(frame.memory, "view_store", store)


def heads_of_keys_in_turn(patch: Patch) -> None:
    """Query head h reads head h mod num_kv_heads."""
    whole = queries.Queries.of

    def of(*given: Any) -> queries.Queries:
        found = whole(*given)
        return attrs.evolve(found, kv_head=found.head % found.arguments.num_kv_heads)

    patch.setattr(queries.Queries, "of", of)


def keys_past_the_last(patch: Patch) -> None:
    """Rows are read past a sequence's last key, where another's are, or nothing."""
    patch.setattr(feed, "bounded", lambda number, most: queries.constant(most, queries.I32))


def stored_before_the_others_have_read(patch: Patch) -> None:
    count = iter(range(1 << 20))
    barrier = ahead.control.barrier
    patch.setattr(ahead.control, "barrier", lambda: barrier() if next(count) != 1 else None)


def window_off_by_one(patch: Patch) -> None:
    whole = scoring.mask_before
    patch.setattr(scoring, "mask_before", lambda scores, keys, first: whole(scores, keys, first - 1))


def window_not_masked(patch: Patch) -> None:
    patch.setattr(scoring, "mask_before", lambda scores, keys, first: list(scores))


def window_from_the_first_key(patch: Patch) -> None:
    """Of query i are seen keys from i - window_left on, whatever stands before the queries."""
    whole = queries.Queries._before

    def before(self: queries.Queries, number: Value) -> Value | None:
        return whole(self, number - (self.sequence.length - self.sequence.queries))

    patch.setattr(queries.Queries, "_before", before)


def window_of_the_last_query(patch: Patch) -> None:
    """Tiles are skipped that lie before the last window of a workgroup, not before the first."""
    whole = queries.Queries._before

    def before(self: queries.Queries, number: Value) -> Value | None:
        begins = self.origin is None and number is self.workgroup_first
        return whole(self, number + self.spec.block - 1 if begins else number)

    patch.setattr(queries.Queries, "_before", before)


def first_edge_unmasked(patch: Patch) -> None:
    patch.setattr(queries.Queries, "before_workgroup", lambda self: queries.constant(0, queries.I32))


def a_row_begins_at_0(patch: Patch) -> None:
    """A row without a key in the first tile begins with a maximum of 0, which lower scores do not raise."""
    patch.setattr(fused_softmax, "LOWEST", 0.0)


def sink_with_a_value(patch: Patch) -> None:
    """The sink is in LSE alone."""
    whole = attention.with_sink
    patch.setattr(attention, "with_sink", lambda of, head, inverse, lse: (inverse, whole(of, head, inverse, lse)[1]))


def sink_not_in_lse(patch: Patch) -> None:
    whole = attention.with_sink
    patch.setattr(attention, "with_sink", lambda of, head, inverse, lse: (whole(of, head, inverse, lse)[0], lse))


def a_row_without_keys_from_minus_infinity(patch: Patch) -> None:
    """What is above an LSE of -inf and a sink of -inf is no number."""
    patch.setattr(sinks, "LOWEST", float("-inf"))


def sink_of_the_first_head(patch: Patch) -> None:
    patch.setattr(sinks, "memory", SimpleNamespace(load=sinks.memory.load, offset=lambda pointer, index: pointer))


def slope_of_the_tile_before(patch: Patch) -> None:
    whole = bending.Slope.begin
    patch.setattr(bending.Slope, "begin", lambda self, tile, behind: whole(self, tile, 0))


def slope_of_the_first_block(patch: Patch) -> None:
    """What a slope adds to each block of a tile is what it adds to the first."""
    whole = bending.Bend._score
    patch.setattr(bending.Bend, "_score", lambda self, product, place, begin: whole(self, product, place % 32, begin))


Plant = Callable[[Patch], None]
FAULTS: list[tuple[Plant, str, set[str]]] = [
    (no_mask, "whole", {"tolerance"}),
    (mask_off_by_one, "prefix", {"tolerance"}),
    (diagonal_from_the_first_key, "prefix", {"tolerance"}),
    (a_tile_too_many_unmasked, "prefix", {"tolerance"}),
    (dropped_rescale, "climb", {"tolerance"}),
    (anchor_not_bounded, "extreme", {"nan", "infinite"}),
    (dropped_fragment, "one_query", {"untouched"}),
    (heads_of_keys_in_turn, "whole", {"tolerance"}),
    (keys_past_the_last, "one_query", {"simulation"}),
    (stored_before_the_others_have_read, "prefix", {"simulation"}),
]
FAULTS_OF_WINDOWS: list[tuple[Plant, str, set[str]]] = [
    (window_off_by_one, "own_key", {"tolerance"}),
    (window_not_masked, "late", {"tolerance"}),
    (window_from_the_first_key, "both_edges", {"tolerance"}),
    (window_of_the_last_query, "late", {"tolerance"}),
    (first_edge_unmasked, "both_edges", {"tolerance"}),
    (a_row_begins_at_0, "late_extreme", {"infinite"}),
]
FAULTS_OF_HEADS: list[tuple[Plant, str, set[str]]] = [
    (sink_with_a_value, "prefix", {"tolerance"}),
    (sink_not_in_lse, "prefix", {"tolerance"}),
    (a_row_without_keys_from_minus_infinity, "low_sinks", {"simulation"}),
    (sink_of_the_first_head, "prefix", {"tolerance"}),
    (slope_of_the_tile_before, "prefix", {"tolerance"}),
    (slope_of_the_first_block, "prefix", {"tolerance"}),
    (dropped_rescale, "steep", {"tolerance"}),
]
KINDS: dict[str, dict[str, Any]] = {
    "usual": {},
    "of_heads": {"alibi": True, "sinks": True, "num_heads": 2},
    "windowed": {"window_left": 70, "head_size": 64, "head_size_v": 64, "num_heads": 2},
}


@pytest.fixture(scope="module", name="kernels")
def kernels_with_no_fault() -> dict[str, tuple[Composition, Artifact]]:
    return {kind: served("gfx942", **changes) for kind, changes in KINDS.items()}


@pytest.mark.parametrize(
    ("kind", "plant", "scenario", "seen"),
    [
        *(("usual", *fault) for fault in FAULTS),
        *(("windowed", *fault) for fault in FAULTS_OF_WINDOWS),
        *(("of_heads", *fault) for fault in FAULTS_OF_HEADS),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_a_planted_fault_is_seen(
    kind: str,
    plant: Plant,
    scenario: str,
    seen: set[str],
    kernels: dict[str, tuple[Composition, Artifact]],
    monkeypatch: Patch,
) -> None:
    composition, artifact = kernels[kind]
    faulty = with_fault(composition, artifact, AttentionDenseSpec, plant, monkeypatch)
    assert_seen(judged(composition, faulty, scenario), seen)
