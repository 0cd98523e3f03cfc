"""Attention over pages: its kernel on the simulator, against the reference and with faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest
from built_once import artifact_of, judged
from emitter_faults import assert_seen, with_fault

from kinfolk.dispatch import dispatch
from kinfolk.errors import BindError, PinRefused
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, convert, memory
from kinfolk.ir.types import I1, I32, I64
from kinfolk.ir.value import Value
from kinfolk.plugins.composition import Composition, compose
from kinfolk.tile import paging
from kinfolk_attention_fwd import attention, bending, queries
from kinfolk_attention_fwd.paged import feed, sequence, table
from kinfolk_attention_fwd.paged.spec import AttentionPagedSpec
from kinfolk_attention_fwd.request import AttentionFwdRequest
from kinfolk_runtime import call
from kinfolk_runtime.artifact import Artifact

pytestmark = [pytest.mark.simulate, pytest.mark.needs("attention_fwd", "gfx942", "gfx950")]

REQUEST = AttentionFwdRequest(
    layout="paged",
    num_seqs=3,
    total_q=320,
    max_seqlen_q=300,
    max_seqlen_k=330,
    num_heads=6,
    num_kv_heads=2,
    head_size=128,
    head_size_v=128,
    page_size=16,
    num_pages=40,
    dtype="bf16",
    kv_dtype="bf16",
    causal=True,
    return_lse=True,
    scale=128**-0.5,
    candidate="attention_fwd.paged",
)
Patch = pytest.MonkeyPatch
F16 = {"dtype": "f16", "kv_dtype": "f16"}


def served(arch: str, **changes: Any) -> tuple[Composition, Artifact]:
    return compose("attention_fwd", arch), artifact_of(attrs.evolve(REQUEST, **changes), arch)


def passes(composition: Composition, artifact: Artifact, names: tuple[str, ...] | None = None) -> None:
    found = [each.name for each in composition.scenarios(artifact.plan.request) if each.request.num_seg <= 1]
    for name in found if names is None else names:
        report = judged(composition, artifact, name)
        assert report.status == "pass", (name, report.findings)


@pytest.mark.parametrize(
    ("arch", "changes"),
    [
        ("gfx942", {"num_heads": 4, "sinks": True}),
        ("gfx950", {**F16, "causal": False, "page_size": 32, "num_heads": 2}),
        ("gfx942", {**F16, "window_left": 70, "head_size": 64, "head_size_v": 64, "num_heads": 2, "page_size": 128}),
        ("gfx950", {"window_left": 63, "softcap": 20.0, "alibi": True, "num_heads": 2, "page_size": 64}),
    ],
    ids=str,
)
def test_every_scenario_passes(arch: str, changes: dict[str, Any]) -> None:
    passes(*served(arch, **changes))


@pytest.mark.parametrize(
    ("arch", "changes"),
    [
        ("gfx942", {"alibi": True, "page_size": 32, "num_heads": 2}),
        ("gfx950", {**F16, "alibi": True, "sinks": True, "window_left": 70, "num_heads": 7, "num_kv_heads": 1}),
        ("gfx950", {"alibi": True, "sinks": True, "page_size": 8, "num_heads": 2}),
        ("gfx942", {"alibi": True, "softcap": 20.0, "window_left": 63, "page_size": 2, "num_heads": 2}),
    ],
    ids=str,
)
def test_slopes_and_sinks_are_served(arch: str, changes: dict[str, Any]) -> None:
    given = served(arch, num_pages=640 // changes.get("page_size", 16), **changes)
    of_sinks = ("high_sinks", "low_sinks") if "sinks" in changes else ()
    passes(*given, ("whole", "ragged", "chunk", "bad_pages", "steep", "steepest", "address_bad_ids", *of_sinks))


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("widths", [(64, 64), (80, 80), (96, 96), (192, 128)], ids=str)
def test_other_widths_are_served(arch: str, widths: tuple[int, int]) -> None:
    given = served(arch, head_size=widths[0], head_size_v=widths[1], num_heads=7, num_kv_heads=1)
    passes(*given, ("ragged", "bad_pages", "address_5gib"))


@pytest.mark.parametrize(
    ("arch", "page", "changes"),
    [
        ("gfx942", 1, {"num_heads": 2}),
        ("gfx950", 1, {**F16, "window_left": 63, "num_heads": 2}),
        ("gfx950", 8, {"head_size": 192, "head_size_v": 128, "softcap": 20.0, "causal": False, "num_heads": 2}),
        ("gfx942", 4, {"head_size": 80, "head_size_v": 80, "num_heads": 7, "num_kv_heads": 1}),
    ],
    ids=str,
)
def test_pages_of_a_few_rows_are_served(arch: str, page: int, changes: dict[str, Any]) -> None:
    names = ("ragged", "bad_pages", "address_5gib", "address_bad_ids")
    passes(*served(arch, page_size=page, num_pages=640 // page, **changes), names)


@pytest.mark.parametrize("page", [16, 32, 64, 128])
def test_one_kernel_has_pages_of_all_sizes(page: int) -> None:
    composition, artifact = served("gfx942", page_size=page)
    assert artifact.plan.launches[0].spec == dispatch(REQUEST, "gfx942").launches[0].spec
    passes(composition, artifact, ("lengths", "bad_pages", "address_2gib"))


def test_a_batch_of_prompts_chunks_and_last_tokens_is_attention() -> None:
    """Against softmax straight from its definition; ids that name no page raise on the plain call."""
    generator = np.random.default_rng(5)
    counts, lengths = (5, 1, 0, 3), (5, 70, 9, 40)
    request = attrs.evolve(
        REQUEST, num_seqs=4, total_q=9, max_seqlen_q=5, max_seqlen_k=70, num_pages=20, return_lse=False, **F16
    )
    q = generator.standard_normal((9, 6, 128)).astype(np.float16)
    k, v = (generator.standard_normal((20, 16, 2, 128)).astype(np.float16) for _ in range(2))
    tables = generator.permutation(20).reshape(4, 5).astype(np.int32)
    tensors = {
        "q": q,
        "k": k,
        "v": v,
        "cu_seqlens_q": np.cumsum([0, *counts]).astype(np.int32),
        "seqused_k": np.array(lengths, np.int32),
        "block_table": tables,
    }
    out = np.asarray(call(artifact_of(request, "gfx942"), tensors)["out"]).astype(float)
    row = 0
    for count, length, ids in zip(counts, lengths, tables, strict=True):
        keys, values = (each[ids].reshape(80, 2, 128)[:length].astype(float) for each in (k, v))
        for token in range(count):
            seen = length - count + token + 1
            scores = keys[:seen, 1] @ q[row, 4].astype(float) * 128**-0.5
            weights = np.exp(scores - scores.max())
            np.testing.assert_allclose(out[row, 4], weights @ values[:seen, 1] / weights.sum(), atol=2e-3)
            row += 1
    tensors["block_table"] = np.where(tables == tables[1, 2], 20, tables).astype(np.int32)
    with pytest.raises(BindError, match=r"block_table\[1, 2\] is page 20"):
        call(artifact_of(request, "gfx942"), tensors)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"page_size": 48}, "page_size"),
        ({"page_size": 1, "num_pages": 2**28 + 1}, "num_pages.gathered"),
        ({"page_size": 8, "max_seqlen_k": 2**27 + 1}, "max_seqlen_k.gathered"),
        ({"head_size": 112}, "head_size"),
        ({"kv_dtype": "f16"}, "kv_dtype"),
        ({"num_seg": 2}, "num_seg"),
    ],
    ids=str,
)
def test_what_is_not_served_is_refused_by_name(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(PinRefused) as refused:
        dispatch(attrs.evolve(REQUEST, **changes), "gfx942")
    assert f"attention_fwd.paged.{field}" in {each.code for each in refused.value.refusals}


def no_page_mask(patch: Patch) -> None:
    """Keys of a page that is not there count, as zeros."""
    patch.setattr(paging.PageTable, "rows_held", lambda self, identifier: constant(self.page_size, I32))


def only_the_last_tile_is_looked_at(patch: Patch) -> None:
    """Ids are counted, but tiles before the last are taken to be whole."""
    whole = table.Census.all_there
    patch.setattr(table.Census, "all_there", lambda self: whole(self) | constant(1, I1))


def counted_by_every_head(patch: Patch) -> None:
    whole = table.Census._missing
    patch.setattr(
        table.Census,
        "all_there",
        lambda self: (
            memory.atomic_add(self.arguments.status, whole(self)),
            constant(0, I1),
        )[1],
    )


def rows_past_the_last(patch: Patch) -> None:
    """A last page is read as a whole, what no sequence owns included."""
    whole = paging.PageTable.resolve

    def resolve(self: paging.PageTable, identifier: Value, tile: Value) -> paging.Page:
        found = whole(self, identifier, tile)
        return attrs.evolve(found, rows=arithmetic.select(found.rows > 0, self.page_size, found.rows))

    patch.setattr(paging.PageTable, "resolve", resolve)


def offsets_of_32_bits(patch: Patch) -> None:
    def rows(self: feed.PageFeed, tensor: Value, page: paging.Page, width: int) -> Value:
        row = self.arguments.num_kv_heads * width
        first = arithmetic.mul(convert.trunc(page.identifier, to=I32), row * self.spec.part)
        return memory.bound(memory.offset(tensor, convert.sext(first, to=I64)), page.rows * row)

    patch.setattr(feed.PageFeed, "_rows", rows)


def values_of_the_tile_behind(patch: Patch) -> None:
    """Values are staged from the pages of the keys that are staged in the same round."""
    patch.setattr(feed.PageFeed, "value_place", lambda self, place: None)
    whole = feed.PageFeed.value_loads
    kept: list[Any] = []
    keys = feed.PageFeed.key_loads

    def key_loads(self: feed.PageFeed, place: Any, tile: Value, loaded: list[Value]) -> Any:
        kept[:] = [place]
        return keys(self, place, tile, loaded)

    patch.setattr(feed.PageFeed, "key_loads", key_loads)
    patch.setattr(feed.PageFeed, "value_loads", lambda self, place, tile, loaded: whole(self, kept[0], tile, loaded))


def part_of_another_wave(patch: Patch) -> None:
    """Each wave looks up the page of the tile's first part."""
    patch.setattr(feed.PageFeed, "_part", lambda self, tile: arithmetic.umin(tile * 4, self.table.tiles))


def sums_of_a_sequence_after_the_other(patch: Patch) -> None:
    """LSE is written [tokens, heads]."""
    patch.setattr(
        sequence.PackedSequence,
        "first_sum",
        lambda self, head: sequence.wide(self.first) * sequence.wide(self.arguments.num_heads) + sequence.wide(head),
    )


def keys_of_all_queries(patch: Patch) -> None:
    """A sequence is as long as the longest."""
    whole = sequence.PackedSequence.of
    patch.setattr(
        sequence.PackedSequence,
        "of",
        lambda arguments: attrs.evolve(whole(arguments), length=arguments.max_seqlen_k),
    )


def queries_past_the_sequence(patch: Patch) -> None:
    """Rows of a block that are the next sequence's are stored too."""
    patch.setattr(queries, "bounded", lambda number, most: constant(most, I32))


def sinks_left_out(patch: Patch) -> None:
    patch.setattr(attention, "with_sink", lambda arguments, head, inverse, lse: (inverse, lse))


def slope_from_the_first_tile_that_is_walked(patch: Patch) -> None:
    """Keys are counted from the first tile in a window on, those before all queries from the first there is."""
    whole = bending.Slope.begin

    def begin(self: bending.Slope, tile: Value, behind: int) -> Value:
        walked = attrs.evolve(self.queries, origin=None)
        return whole(attrs.evolve(self, queries=walked), tile, behind)

    patch.setattr(bending.Slope, "begin", begin)


def slope_of_the_first_head(patch: Patch) -> None:
    whole = bending.Slope.of

    def of(spec: Any, scores: Any, rows: queries.Queries) -> bending.Slope | None:
        found = whole(spec, scores, attrs.evolve(rows, head=rows.head & 0))
        return None if found is None else attrs.evolve(found, queries=rows)

    patch.setattr(bending.Slope, "of", of)


Plant = Callable[[Patch], None]
FAULTS: list[tuple[Plant, str, set[str]]] = [
    (no_page_mask, "bad_pages", {"tolerance"}),
    (only_the_last_tile_is_looked_at, "bad_pages", {"tolerance"}),
    (counted_by_every_head, "bad_pages", {"page_ids"}),
    (rows_past_the_last, "lengths", {"untouched"}),
    (offsets_of_32_bits, "address_5gib", {"simulation"}),
    (values_of_the_tile_behind, "ragged", {"tolerance"}),
    (part_of_another_wave, "ragged", {"tolerance"}),
    (sums_of_a_sequence_after_the_other, "ragged", {"simulation"}),
    (keys_of_all_queries, "lengths", {"simulation"}),
    (queries_past_the_sequence, "ragged", {"simulation"}),
]
FAULTS_OF_HEADS: list[Plant] = [sinks_left_out, slope_from_the_first_tile_that_is_walked, slope_of_the_first_head]


@pytest.fixture(scope="module", name="kernel")
def kernel_with_no_fault() -> tuple[Composition, Artifact]:
    return served("gfx942")


@pytest.mark.parametrize(("plant", "scenario", "seen"), FAULTS, ids=lambda part: getattr(part, "__name__", ""))
def test_a_planted_fault_is_seen(
    plant: Plant, scenario: str, seen: set[str], kernel: tuple[Composition, Artifact], monkeypatch: Patch
) -> None:
    composition, artifact = kernel
    faulty = with_fault(composition, artifact, AttentionPagedSpec, plant, monkeypatch)
    assert_seen(judged(composition, faulty, scenario), seen)


@pytest.mark.parametrize("plant", FAULTS_OF_HEADS, ids=lambda part: part.__name__)
def test_a_planted_fault_of_sinks_or_slopes_is_seen(plant: Plant, monkeypatch: Patch) -> None:
    composition, artifact = served("gfx942", alibi=True, sinks=True, window_left=63, num_heads=4)
    assert judged(composition, artifact, "chunk").status == "pass"
    faulty = with_fault(composition, artifact, AttentionPagedSpec, plant, monkeypatch)
    assert_seen(judged(composition, faulty, "chunk"), {"tolerance"})
