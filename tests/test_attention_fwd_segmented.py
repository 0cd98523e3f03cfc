"""Attention over segments of paged keys: its kernels on the simulator, against the reference and with faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest
from built_once import artifact_of, judged
from emitter_faults import assert_seen, with_fault

from kinfolk.banks import BankCost
from kinfolk.dispatch import dispatch
from kinfolk.errors import PinRefused
from kinfolk.expr import Scope
from kinfolk.ir.value import Value
from kinfolk.plugins.composition import Composition, compose
from kinfolk.spec import Spec
from kinfolk.tile.layout import Table
from kinfolk_attention_fwd import preference
from kinfolk_attention_fwd.request import AttentionFwdRequest
from kinfolk_attention_fwd.segmented import bend, division, frame, kernel, merge, tiles, work
from kinfolk_attention_fwd.segmented.plan import segment_spec
from kinfolk_attention_fwd.segmented.reduce import kernel as reduce_kernel
from kinfolk_attention_fwd.segmented.reduce.spec import AttentionReduceSpec
from kinfolk_attention_fwd.segmented.segments import Segments
from kinfolk_attention_fwd.segmented.spec import AttentionSegmentSpec
from kinfolk_runtime.artifact import Artifact
from kinfolk_runtime.inspection import inspect_spec
from kinfolk_runtime.isa import MachineExecutor
from kinfolk_runtime.verify import Runner

ARCHS = ("gfx942", "gfx950")
pytestmark = pytest.mark.needs("attention_fwd", *ARCHS)

REQUEST = AttentionFwdRequest(
    layout="paged",
    num_seqs=2,
    total_q=4,
    max_seqlen_q=2,
    max_seqlen_k=700,
    num_heads=16,
    num_kv_heads=2,
    head_size=128,
    head_size_v=128,
    page_size=16,
    num_pages=100,
    dtype="bf16",
    kv_dtype="bf16",
    causal=True,
    return_lse=True,
    scale=128**-0.5,
    num_seg=3,
    candidate="attention_fwd.segmented",
)
WINDOW = {"window_left": 40, "max_seqlen_q": 9, "total_q": 18}
F16 = {"dtype": "f16", "kv_dtype": "f16"}
OF_HEADS = {"sinks": True, "alibi": True}
Patch = pytest.MonkeyPatch


def wide(columns: int) -> dict[str, int]:
    return {"head_size": columns, "head_size_v": columns}


def served(arch: str, flavor: str = "llvm22", **changes: Any) -> tuple[Composition, Artifact]:
    return compose("attention_fwd", arch), artifact_of(attrs.evolve(REQUEST, **changes), arch, flavor)


@pytest.mark.simulate
@pytest.mark.parametrize(
    ("arch", "changes"),
    [
        ("gfx942", OF_HEADS),
        ("gfx950", {"page_size": 64, "num_seg": 2, "softcap": 20.0, "alibi": True, **WINDOW}),
        ("gfx942", {"page_size": 128, "num_seg": 7, "sinks": True, **F16, **WINDOW, "causal": False}),
        ("gfx950", {"page_size": 32, "num_seg": 0, "num_heads": 2}),
    ],
    ids=str,
)
def test_every_scenario_passes(arch: str, changes: dict[str, Any]) -> None:
    composition, artifact = served(arch, **changes)
    for each in composition.scenarios(artifact.plan.request):
        report = judged(composition, artifact, each.name)
        assert report.status == "pass", (each.name, report.findings)


@pytest.mark.simulate
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("columns", [64, 80, 96, 192, 256])
def test_other_widths_are_served(arch: str, columns: int) -> None:
    composition, artifact = served(arch, **wide(columns), num_heads=10)
    for name in ("whole", "ragged", "segments", "climb"):
        report = judged(composition, artifact, name)
        assert report.status == "pass", (name, report.findings)


@pytest.mark.simulate
@pytest.mark.parametrize(
    ("arch", "changes"),
    [
        ("gfx942", {"page_size": 1, "num_pages": 3000, **OF_HEADS}),
        ("gfx950", {"page_size": 4, "softcap": 20.0, **F16, **WINDOW}),
        ("gfx950", {"page_size": 8, "num_pages": 1000, **wide(192)}),
        ("gfx942", {"page_size": 2, "num_pages": 3000, **wide(256)}),
        ("gfx942", {"page_size": 1, "num_pages": 3000, **wide(80)}),
    ],
    ids=str,
)
def test_pages_of_few_rows_are_served(arch: str, changes: dict[str, Any]) -> None:
    composition, artifact = served(arch, **changes)
    for name in ("whole", "ragged", "segments", "climb", "bad_pages", "strange_numbers"):
        report = judged(composition, artifact, name)
        assert report.status == "pass", (name, report.findings)


@pytest.mark.simulate
@pytest.mark.parametrize(
    ("arch", "changes"),
    [("gfx942", OF_HEADS), ("gfx950", {"softcap": 20.0}), ("gfx942", {"page_size": 2, **F16})],
    ids=str,
)
def test_the_machine_code_computes_it_too(arch: str, changes: dict[str, Any]) -> None:
    """As compiled, with its waits and wait states looked at."""
    small = {"max_seqlen_k": 150, "num_heads": 6, "num_seg": 2, "num_pages": 200}
    composition, artifact = served(arch, **small, **changes)
    report = judged(composition, artifact, "whole", (Runner(MachineExecutor()),))
    assert report.status == "pass", report.findings


@pytest.mark.simulate
@pytest.mark.parametrize("count", [1, 2, 7, 16, 64])
@pytest.mark.parametrize("heads", [(2, 2), (8, 2), (32, 1)], ids=str)
def test_any_number_of_segments_gives_the_same(count: int, heads: tuple[int, int]) -> None:
    """Of a batch whose sequences leave many of them empty: those write no more than that, and read nothing. Sinks count
    once, in the kernel that has the last word.
    """
    changes = {"num_heads": heads[0], "num_kv_heads": heads[1], "num_seg": count, "max_seqlen_k": 2100}
    composition, artifact = served("gfx942", **changes, sinks=heads == (8, 2))
    report = judged(composition, artifact, "whole")
    assert report.status == "pass", report.findings


@pytest.mark.compile
@pytest.mark.parametrize("flavor", ["llvm22", "llvm20"])
@pytest.mark.parametrize(("arch", "in_flight"), [("gfx942", 12), ("gfx950", 28)])
def test_the_loop_keeps_loads_in_flight_and_takes_few_instructions(arch: str, in_flight: int, flavor: str) -> None:
    """Of the hot blocks; no wave waits for another, and none for all that it has asked for, in cold blocks either."""
    composition = compose("attention_fwd", arch)
    found = inspect_spec(composition, segment_spec(composition.arch, 128, "bf16"), flavor, mca=False)
    assert found.hot is not None and found.every is not None and found.work is not None
    keys = found.work.tokens // found.waves
    assert len(found.hot.instructions) <= 8 * keys
    waits = [each.waits["vmcnt"] for each in found.hot.instructions if "vmcnt" in each.waits]
    assert waits and min(waits) == in_flight
    if flavor == "llvm22":  # LLVM 20 waits for an idle half of a pair of registers where it rescales on gfx942
        assert all(each.waits.get("vmcnt", 1) > 0 for each in found.every.instructions)
    assert not any("s_barrier" in each.text for each in found.every.instructions)
    loads = [each for each in found.hot.instructions if each.text.startswith("buffer_load")]
    assert len(loads) * 8 == keys * 4  # all of them whole lines of 16 bytes a lane: 4 of keys and 4 of values a tile
    assert all("dwordx4" in each.text for each in loads)
    assert found.scratch_ops == 0


@pytest.mark.parametrize("columns", [64, 96, 128, 192, 256])
def test_keys_meet_no_bank_twice(columns: int) -> None:
    """Where the lanes that are served together are published; read one column after the other, they do."""
    arch = compose("attention_fwd", "gfx942").arch
    laid = frame.Frame.of(segment_spec(arch, columns, "bf16"), arch)
    contraction, rows = laid.contraction, laid.score.shape.a.rows[:, 0]
    pitch = laid.padded_columns + AttentionSegmentSpec.row_padding_bytes // 2

    def cost(first: Table, step: int) -> BankCost:
        total = BankCost(0, 0, exact=True)
        for number in range(contraction.reads):
            places = (rows * pitch + first + number * step) * 2
            total += arch.banks.access_cost("read", contraction.width * 2, 16, places, np.arange(64))
        return total

    found = cost(laid.first_read(contraction.start_a), laid.read_step)
    assert found.exact and found.conflicts == 0
    if columns != 96:
        assert cost(contraction.start_a, contraction.width).conflicts > 0


@pytest.mark.compile
@pytest.mark.parametrize("arch", ARCHS)
def test_segments_are_put_together_after_one_wait(arch: str) -> None:
    """What is read of 64 segments is asked for before any of it is waited for."""
    composition = compose("attention_fwd", arch)
    found = inspect_spec(composition, AttentionReduceSpec(head_size=128, dtype="bf16"), "llvm22", mca=False)
    assert found.hot is not None
    order = [
        "load" if each.text.startswith("buffer_load") else "wait"
        for each in found.hot.instructions
        if each.text.startswith("buffer_load") or "vmcnt" in each.waits
    ]
    assert order.count("load") == 1 + 64 // AttentionReduceSpec.waves
    assert "load" not in order[order.index("wait") :]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"layout": "dense", "page_size": 0, "num_pages": 0}, "layout"),
        (wide(112), "head_size"),
        ({"head_size_v": 64}, "head_size_v"),
        ({"page_size": 12}, "page_size"),
        ({"page_size": 1, "num_pages": 2**22}, "small_pages"),
        ({"page_size": 256}, "page_size"),
        ({"kv_dtype": "f16"}, "kv_dtype"),
        ({"num_seg": 2**12 + 1}, "num_seg"),
        ({"num_pages": 2**27 + 1}, "num_pages"),
    ],
    ids=str,
)
def test_what_is_not_served_is_refused_by_name(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(PinRefused) as refused:
        dispatch(attrs.evolve(REQUEST, **changes), "gfx942")
    assert f"attention_fwd.segmented.{field}" in {each.code for each in refused.value.refusals}


@pytest.mark.parametrize(
    ("sequences", "keys", "heads", "window", "count"),
    [
        (1, 8192, 8, -1, 64),  # 8 workgroups of 304 times 3: more segments would have fewer than 128 keys
        (1, 2048, 8, -1, 16),
        (1, 127, 8, -1, 1),
        (64, 8192, 8, -1, 1),  # 512 workgroups, and no room for as many again
        (16, 8192, 8, -1, 7),  # 128 * 7 <= 912
        (256, 8192, 8, -1, 1),
        (1, 8192, 8, 254, 1),
        (1, 8192, 8, 255, 2),
    ],
)
def test_segments_fill_the_compute_units(sequences: int, keys: int, heads: int, window: int, count: int) -> None:
    arch = compose("attention_fwd", "gfx942").arch
    changes = {"num_seqs": sequences, "total_q": sequences, "max_seqlen_q": 1, "max_seqlen_k": keys, "num_seg": 0}
    changes |= {"window_left": window}
    request = attrs.evolve(REQUEST, num_heads=4 * heads, num_kv_heads=heads, **changes)
    segments = Segments.of(segment_spec(arch, 128, "bf16"))
    assert arch.facts["compute_units"] == 304
    assert segments.count.integer(Scope(request=request, arch=arch)) == count


@pytest.mark.parametrize("arch", ARCHS)
def test_few_queries_are_served_by_segments_and_many_by_blocks(arch: str) -> None:
    """As facts of others' selector have it: decode by segments whatever the batch, prompts by blocks."""
    arch_ = compose("attention_fwd", arch).arch

    def by_segments(sequences: int, queries: int, keys: int, heads: int = 32) -> bool:
        changes = {"num_seqs": sequences, "max_seqlen_q": queries, "total_q": sequences * queries}
        request = attrs.evolve(REQUEST, **changes, max_seqlen_k=keys, num_heads=heads, num_kv_heads=8)
        return preference.by_segments().holds(Scope(request=request, arch=arch_))

    assert by_segments(1, 1, 8192) and by_segments(256, 1, 8192) and by_segments(256, 1, 17, heads=128)
    assert by_segments(1, 64, 8192) and by_segments(8, 16, 2048)
    assert not by_segments(1, 8192, 8192) and not by_segments(64, 256, 4096) and not by_segments(4, 2048, 2048)


def no_mask(patch: Patch) -> None:
    patch.setattr(tiles, "mask_scores", lambda scores, keys, valid: list(scores))


def mask_off_by_one(patch: Patch) -> None:
    whole = tiles.mask_scores
    patch.setattr(tiles, "mask_scores", lambda scores, keys, valid: whole(scores, keys, valid + 1))


def window_off_by_one(patch: Patch) -> None:
    whole = kernel.mask_before
    patch.setattr(kernel, "mask_before", lambda scores, keys, first: whole(scores, keys, first - 1))


def diagonal_of_the_first_token(patch: Patch) -> None:
    """Every token sees as many keys as the first of a workgroup's rows does."""
    whole = work.Work.token_of
    patch.setattr(work.Work, "token_of", lambda self, row: whole(self, self.first_row))


def every_tile_whole(patch: Patch) -> None:
    patch.setattr(work.Work, "seen_by_all", lambda self: self.sequence.length)


def dropped_rescale(patch: Patch) -> None:
    patch.setattr(kernel, "scale_accumulators", lambda accumulators, factor: list(accumulators))


def values_not_transposed(patch: Patch) -> None:
    whole = kernel.transpose_16_bit

    def turned(rows: Sequence[Value]) -> list[Value]:
        columns = whole(rows)
        return [columns[1], columns[0], *columns[2:]]

    patch.setattr(kernel, "transpose_16_bit", turned)


def first_part_of_every_page(patch: Patch) -> None:
    patch.setattr(tiles.Parts, "place", lambda self, tile: tile & 0)


def words_of_the_tile_before(patch: Patch) -> None:
    whole = tiles.PageTiles.read
    patch.setattr(tiles.PageTiles, "read", lambda self, tile: whole(self, tile - 1))


def words_not_written_again(patch: Patch) -> None:
    """The words of the first tiles serve for the next as many, too."""
    patch.setattr(kernel.Segment, "_refilled", lambda self, first, identifiers: identifiers)


def a_tile_in_two_segments(patch: Patch) -> None:
    whole = division.Division.segment

    def segment(self: division.Division, number: Value) -> tuple[Value, Value]:
        begin, end = whole(self, number)
        return begin, division.arithmetic.smin(end + 1, self.tiles)

    patch.setattr(division.Division, "segment", segment)


def a_wave_left_out(patch: Patch) -> None:
    """What one wave has of the rows is not added."""
    whole = merge.Merge._read
    patch.setattr(merge.Merge, "_read", lambda self, wave: whole(self, wave if wave < 3 else 0))


def waves_do_not_meet(patch: Patch) -> None:
    count = iter(range(1 << 20))
    barrier = merge.control.barrier
    patch.setattr(merge.control, "barrier", lambda: barrier() if next(count) != 1 else None)


def heads_of_the_first_key_head(patch: Patch) -> None:
    whole = work.Work.head_of
    patch.setattr(work.Work, "head_of", lambda self, row: whole(attrs.evolve(self, kv_head=self.kv_head & 0), row))


def rows_past_the_last(patch: Patch) -> None:
    """A tile's rows are read whole, whatever of it the sequence has."""
    patch.setattr(tiles, "bounded", lambda number, most: tiles.constant(most, tiles.I32))


def identifiers_not_checked(patch: Patch) -> None:
    """The nearest page that there is serves for one that is not."""
    whole = tiles.arithmetic.icmp

    def icmp(a: Value, b: Value, *, predicate: str) -> Value:
        return a.eq(a) if predicate == "ult" else whole(a, b, predicate=predicate)

    patch.setattr(tiles.arithmetic, "icmp", icmp)


def empty_segments_weigh(patch: Patch) -> None:
    """All segments are read, those that nothing was written of, too."""
    patch.setattr(division.Division, "used", lambda self: division.constant(1 << 20, division.I32))


def weights_of_other_segments(patch: Patch) -> None:
    whole = reduce_kernel.Reduce._handed
    patch.setattr(reduce_kernel.Reduce, "_handed", lambda self, factor: whole(self, factor)[::-1])


def segments_under_their_own_maxima(patch: Patch) -> None:
    patch.setattr(
        reduce_kernel.FusedSoftmax, "weight", lambda self, row, score: reduce_kernel.constant(1.0, reduce_kernel.F32)
    )


def sinks_left_out_of_segments(patch: Patch) -> None:
    patch.setattr(reduce_kernel, "with_sink", lambda arguments, head, inverse, lse: (inverse, lse))


def sinks_left_out_of_the_only_segment(patch: Patch) -> None:
    patch.setattr(merge, "with_sink", lambda arguments, head, inverse, lse: (inverse, lse))


def slope_of_the_first_row(patch: Patch) -> None:
    whole = bend.Row.of
    patch.setattr(bend, "Row", SimpleNamespace(of=lambda work, column: whole(work, column & 0)))


def slope_from_the_last_query(patch: Patch) -> None:
    """Places are counted from the last query, so that LSE is another."""
    whole = bend.Bend.of

    def of(work_: work.Work, laid: frame.Frame, first_tile: Value) -> bend.Bend:
        found = whole(work_, laid, first_tile)
        return attrs.evolve(found, place=found.place - work_.sequence.queries)

    patch.setattr(bend.Bend, "of", of)


def slope_of_a_lanes_first_key(patch: Patch) -> None:
    whole = bend.Bend._score
    patch.setattr(bend.Bend, "_score", lambda self, product, place, begin: whole(self, product, 0, begin))


Plant = Callable[[Patch], None]
FAULTS: list[tuple[Plant, str, type[Spec], set[str]]] = [
    (no_mask, "lengths", AttentionSegmentSpec, {"tolerance"}),
    (mask_off_by_one, "ragged", AttentionSegmentSpec, {"tolerance"}),
    (diagonal_of_the_first_token, "long", AttentionSegmentSpec, {"untouched"}),
    (every_tile_whole, "chunk", AttentionSegmentSpec, {"tolerance"}),
    (window_off_by_one, "own_key", AttentionSegmentSpec, {"tolerance"}),
    (dropped_rescale, "climb", AttentionSegmentSpec, {"tolerance"}),
    (values_not_transposed, "whole", AttentionSegmentSpec, {"tolerance"}),
    (first_part_of_every_page, "lengths", AttentionSegmentSpec, {"tolerance"}),
    (words_of_the_tile_before, "lengths", AttentionSegmentSpec, {"tolerance"}),
    (words_not_written_again, "long", AttentionSegmentSpec, {"tolerance"}),
    (a_tile_in_two_segments, "segments", AttentionSegmentSpec, {"tolerance"}),
    (a_wave_left_out, "lengths", AttentionSegmentSpec, {"tolerance"}),
    (waves_do_not_meet, "lengths", AttentionSegmentSpec, {"simulation"}),
    (heads_of_the_first_key_head, "whole", AttentionSegmentSpec, {"simulation"}),
    (rows_past_the_last, "lengths", AttentionSegmentSpec, {"simulation"}),
    (identifiers_not_checked, "bad_pages", AttentionSegmentSpec, {"simulation"}),
    (empty_segments_weigh, "segments", AttentionReduceSpec, {"simulation"}),
    (weights_of_other_segments, "segments", AttentionReduceSpec, {"tolerance"}),
    (segments_under_their_own_maxima, "climb", AttentionReduceSpec, {"tolerance"}),
]
FAULTS_OF_HEADS: list[tuple[Plant, int, type[Spec]]] = [
    (sinks_left_out_of_segments, 2, AttentionReduceSpec),
    (sinks_left_out_of_the_only_segment, 1, AttentionSegmentSpec),
    (slope_of_the_first_row, 2, AttentionSegmentSpec),
    (slope_from_the_last_query, 2, AttentionSegmentSpec),
    (slope_of_a_lanes_first_key, 2, AttentionSegmentSpec),
]


@pytest.mark.simulate
@pytest.mark.parametrize(("plant", "name", "kind", "wanted"), FAULTS, ids=lambda each: getattr(each, "__name__", None))
def test_a_planted_fault_is_seen(
    plant: Plant, name: str, kind: type[Spec], wanted: set[str], monkeypatch: Patch
) -> None:
    windowed = WINDOW if name == "own_key" else {**WINDOW, "window_left": -1}
    composition, artifact = served("gfx942", page_size=32, num_seg=2, **windowed)
    assert judged(composition, artifact, name).status == "pass"
    assert_seen(judged(composition, with_fault(composition, artifact, kind, plant, monkeypatch), name), wanted)


@pytest.mark.simulate
@pytest.mark.parametrize(("plant", "count", "kind"), FAULTS_OF_HEADS, ids=lambda each: getattr(each, "__name__", None))
def test_a_planted_fault_of_sinks_or_slopes_is_seen(
    plant: Plant, count: int, kind: type[Spec], monkeypatch: Patch
) -> None:
    composition, artifact = served("gfx942", page_size=32, num_seg=count, **OF_HEADS)
    assert judged(composition, artifact, "whole").status == "pass"
    assert_seen(
        judged(composition, with_fault(composition, artifact, kind, plant, monkeypatch), "whole"), {"tolerance"}
    )
