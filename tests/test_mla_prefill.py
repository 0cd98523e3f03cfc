"""Prefill of projected queries as a whole: both kernels on the simulator, against the reference and with faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import ml_dtypes
import numpy as np
import pytest
from built_once import artifact_of, judged, simulator
from emitter_faults import assert_seen, with_fault

from kinfolk.check import compare
from kinfolk.dispatch import dispatch
from kinfolk.errors import PinRefused
from kinfolk.ir.builder import constant
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.plugins.composition import Composition, compose
from kinfolk.tile import paging
from kinfolk.tile.attention import ahead, frame
from kinfolk_mla.prefill import attend, batch, expand, queries
from kinfolk_mla.prefill import scores as scoring
from kinfolk_mla.prefill.spec import MlaExpandSpec, MlaPrefillSpec, MlaProjectedSpec
from kinfolk_mla.projection import absorbed_query, projected_output
from kinfolk_mla.request import MlaRequest
from kinfolk_runtime import call
from kinfolk_runtime.artifact import Artifact

pytestmark = [pytest.mark.simulate, pytest.mark.needs("mla", "gfx942", "gfx950")]

ARCHS = ["gfx942", "gfx950"]
REQUEST = MlaRequest(
    num_heads=2,
    num_seqs=2,
    total_q=60,
    max_seqlen_q=40,
    max_seqlen_k=330,
    absorbed_query=False,
    page_size=16,
    num_pages=60,
    dtype="bf16",
    kv_dtype="bf16",
    causal=True,
    scale=192**-0.5,
    candidate="mla.prefill",
)
Patch = pytest.MonkeyPatch
BF16 = ml_dtypes.bfloat16


def served(arch: str, **changes: Any) -> tuple[Composition, Artifact]:
    return compose("mla", arch), artifact_of(attrs.evolve(REQUEST, **changes), arch)


@pytest.mark.parametrize("arch", ARCHS)
def test_every_scenario_passes(arch: str) -> None:
    composition, artifact = served(arch, page_size=32)
    names = [each.name for each in composition.scenarios(artifact.plan.request)]
    assert len(names) == 11
    for name in names:
        report = judged(composition, artifact, name)
        assert report.status == "pass", (name, report.findings)


@pytest.mark.parametrize(
    "changes",
    [
        {"causal": False},
        {"page_size": 128, "num_pages": 8},
        {"max_seqlen_q": 1, "total_q": 2},
        {"max_seqlen_q": 0, "total_q": 0},
        {"max_seqlen_q": 129, "total_q": 140},
        {"scale": 3.0},
    ],
    ids=str,
)
def test_other_requests_are_served_by_the_same_kernels(changes: dict[str, Any]) -> None:
    composition, artifact = served("gfx942", **changes)
    usual = [launch.spec for launch in dispatch(REQUEST, "gfx942").launches]
    assert [launch.spec for launch in artifact.plan.launches] == usual
    for name in ("whole", "ragged"):
        report = judged(composition, artifact, name)
        assert report.status == "pass", (name, report.findings)


def test_heads_in_groups_have_the_workspace_in_turn() -> None:
    """17 heads of up to 2 * 4100 keys are more than fit: 9, then 8."""
    composition, artifact = served("gfx942", num_heads=17, max_seqlen_k=4100, num_pages=600)
    generator = np.random.default_rng(1)
    tokens, lengths = [40, 3], [50, 20]
    request = attrs.evolve(artifact.plan.request, total_q=43)
    pages = generator.permutation(600)[:6].astype(np.int32)
    table = np.full((2, 257), -1, np.int32)
    table[0, :4], table[1, :2] = pages[:4], pages[4:]
    cache = {"c_kv": np.full((600, 16, 512), np.nan, BF16), "k_rope": np.full((600, 16, 64), np.nan, BF16)}
    for sequence, length in enumerate(lengths):
        for key in range(length):
            for rows in cache.values():
                rows[table[sequence, key // 16], key % 16] = generator.standard_normal(rows.shape[2])
    inputs = {
        "q": generator.standard_normal((43, 17, 192)).astype(BF16),
        "w_ukv": (generator.standard_normal((17, 512, 256)) / 22.0).astype(BF16),
        **cache,
        "cu_seqlens_q": np.cumsum([0, *tokens]).astype(np.int32),
        "cu_seqlens_k": np.cumsum([0, *lengths]).astype(np.int32),
        "block_table": table,
    }
    expected = composition.reference(request, inputs)
    found = call(artifact_of(request, "gfx942"), inputs)
    for name in ("out", "lse"):
        report = compare(name, "bf16" if name == "out" else "f32", np.asarray(found[name]), expected[name])
        assert not report.findings, report


@pytest.mark.parametrize(
    "candidate", ["mla.prefill", "mla.absorbed.pipelined", "mla.absorbed.grouped", "mla.absorbed.decode"]
)
@pytest.mark.parametrize("arch", ARCHS)
def test_it_agrees_with_decode_of_absorbed_queries(arch: str, candidate: str) -> None:
    """One query a sequence: keys and values formed, or queries absorbed on the device, give what decode of queries that
    were absorbed before does, as far as bf16 goes.
    """
    generator = np.random.default_rng(2)
    request = attrs.evolve(REQUEST, num_heads=16, num_seqs=3, total_q=3, max_seqlen_q=1, max_seqlen_k=70, num_pages=20)
    lengths = [70, 1, 33]
    table = generator.permutation(20)[:15].reshape(3, 5).astype(np.int32)
    shared = {
        "c_kv": generator.standard_normal((20, 16, 512)).astype(BF16),
        "k_rope": generator.standard_normal((20, 16, 64)).astype(BF16),
        "cu_seqlens_q": np.arange(4, dtype=np.int32),
        "cu_seqlens_k": np.cumsum([0, *lengths]).astype(np.int32),
        "block_table": table,
    }
    q = generator.standard_normal((3, 16, 192)).astype(BF16)
    up = (generator.standard_normal((16, 512, 256)) / 22.0).astype(BF16)
    asked = attrs.evolve(request, candidate=candidate)
    found = call(artifact_of(asked, arch), {"q": q, "w_ukv": up, **shared}, simulator())
    absorbed = absorbed_query(q, up[:, :, :128], rope_dim=64)
    plain = attrs.evolve(request, absorbed_query=True, candidate="mla.decode")
    decode = call(artifact_of(plain, arch), {"qa": absorbed, **shared}, simulator())
    projected = projected_output(np.asarray(decode["out"]), up[:, :, 128:])
    np.testing.assert_allclose(np.asarray(found["out"]).astype(float), projected.astype(float), atol=4e-2, rtol=2e-2)
    np.testing.assert_allclose(found["lse"], decode["lse"], atol=1.7e-2)


@pytest.mark.parametrize("absorbed", [True, False])
def test_neither_contract_serves_the_others_requests(absorbed: bool) -> None:
    """A pin cannot make it so, and the refusal says which field is the cause."""
    decode = {"absorbed_query": True, "max_seqlen_q": 1, "total_q": 2}
    request = attrs.evolve(REQUEST, num_heads=16, candidate=None, **(decode if absorbed else {}))
    own, others = (
        ["mla.decode"],
        ["mla.prefill", *(f"mla.absorbed.{each}" for each in ("pipelined", "grouped", "decode"))],
    )
    own, others = (own, others) if absorbed else (others, own)
    assert dispatch(request, "gfx942").candidate in own
    for other in others:
        with pytest.raises(PinRefused) as refused:
            dispatch(attrs.evolve(request, candidate=other), "gfx942")
        assert f"{other}.absorbed_query" in {each.code for each in refused.value.refusals}


def no_mask(patch: Patch) -> None:
    patch.setattr(scoring, "mask_scores", lambda scores, keys, valid: list(scores))


def mask_off_by_one(patch: Patch) -> None:
    whole = scoring.mask_scores
    patch.setattr(scoring, "mask_scores", lambda scores, keys, valid: whole(scores, keys, valid + 1))


def diagonal_from_the_first_key(patch: Patch) -> None:
    """Causal top-left: query i sees i + 1 keys, whatever stands before the queries."""
    patch.setattr(queries.Queries, "_seen", lambda self, number: number)


def keys_of_refused_pages_count(patch: Patch) -> None:
    whole = scoring.SeenKeys.masked

    def masked(self: scoring.SeenKeys, scores: Any, seen: Value, valid: Sequence[Value]) -> list[Value]:
        return whole(self, scores, seen, [constant(self.spec.part, I32) for _ in valid])

    patch.setattr(scoring.SeenKeys, "masked", masked)


def refused_pages_are_forgotten(patch: Patch) -> None:
    """Tiles that all queries see are taken unmasked although a page is not there."""
    patch.setattr(attend.Attention, "_complete", lambda self: self.queries.exist)


def a_tile_too_many_unmasked(patch: Patch) -> None:
    whole = queries.Queries.seen_by_all
    patch.setattr(queries.Queries, "seen_by_all", lambda self: whole(self) + self.spec.tile_keys)


def dropped_rescale(patch: Patch) -> None:
    patch.setattr(ahead, "scale_accumulators", lambda accumulators, factor: list(accumulators))


def dropped_fragment(patch: Patch) -> None:
    """The last quarter of a head's columns is never stored."""
    whole = frame.memory.view_store
    count = iter(range(1 << 20))

    def store(view: Value, index: Value, value: Value) -> None:
        if next(count) != 1:
            whole(view, index, value)

    patch.setattr(frame.memory, "view_store", store)


def page_id_not_checked(patch: Patch) -> None:
    whole = paging.PageTable.resolve

    def resolve(self: paging.PageTable, identifier: Any, tile: Any) -> Any:
        return whole(attrs.evolve(self, num_pages=self.num_pages + 1), identifier, tile)

    patch.setattr(paging.PageTable, "resolve", resolve)


def keys_for_values(patch: Patch) -> None:
    whole = batch.Sequence.rows
    patch.setattr(batch.Sequence, "rows", lambda self, half, *part: whole(self, 0, *part))


def weights_of_the_first_head(patch: Patch) -> None:
    patch.setattr(batch.Sequence, "head", property(lambda self: self.place * 0))


def page_not_counted(patch: Patch) -> None:
    patch.setattr(expand.Expansion, "_count", lambda self, pages: None)


def rows_past_the_last_key(patch: Patch) -> None:
    """Expanded rows are read past a sequence's last key, where nothing was written."""
    whole = batch.Sequence.rows
    patch.setattr(
        batch.Sequence,
        "rows",
        lambda self, half, *part: whole(attrs.evolve(self, length=self.length + 64), half, *part),
    )


def stored_before_the_others_have_read(patch: Patch) -> None:
    count = iter(range(1 << 20))
    barrier = ahead.control.barrier
    patch.setattr(ahead.control, "barrier", lambda: barrier() if next(count) != 1 else None)


Plant = Callable[[Patch], None]
FAULTS: list[tuple[Plant, type[MlaProjectedSpec], str, set[str]]] = [
    (no_mask, MlaPrefillSpec, "ragged", {"tolerance"}),
    (mask_off_by_one, MlaPrefillSpec, "ragged", {"tolerance"}),
    (diagonal_from_the_first_key, MlaPrefillSpec, "ragged", {"tolerance"}),
    (keys_of_refused_pages_count, MlaPrefillSpec, "bad_pages", {"tolerance"}),
    (refused_pages_are_forgotten, MlaPrefillSpec, "bad_pages", {"tolerance"}),
    (a_tile_too_many_unmasked, MlaPrefillSpec, "ragged", {"tolerance"}),
    (dropped_rescale, MlaPrefillSpec, "climb", {"tolerance"}),
    (dropped_fragment, MlaPrefillSpec, "ragged", {"untouched"}),
    (page_id_not_checked, MlaPrefillSpec, "bad_pages", {"simulation"}),
    (page_id_not_checked, MlaExpandSpec, "bad_pages", {"simulation"}),
    (keys_for_values, MlaPrefillSpec, "ragged", {"tolerance"}),
    (weights_of_the_first_head, MlaExpandSpec, "whole", {"tolerance"}),
    (page_not_counted, MlaExpandSpec, "bad_pages", {"page_ids"}),
    (rows_past_the_last_key, MlaPrefillSpec, "ragged", {"simulation"}),
    (stored_before_the_others_have_read, MlaPrefillSpec, "ragged", {"simulation"}),
]


@pytest.fixture(scope="module", name="usual")
def usual_kernels() -> tuple[Composition, Artifact]:
    return served("gfx942")


@pytest.mark.parametrize(("plant", "kind", "scenario", "seen"), FAULTS, ids=lambda part: getattr(part, "__name__", ""))
def test_a_planted_fault_is_seen(
    plant: Plant,
    kind: type[MlaProjectedSpec],
    scenario: str,
    seen: set[str],
    usual: tuple[Composition, Artifact],
    monkeypatch: Patch,
) -> None:
    composition, artifact = usual
    faulty = with_fault(composition, artifact, kind, plant, monkeypatch)
    assert_seen(judged(composition, faulty, scenario), seen)
