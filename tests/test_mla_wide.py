"""The decode kernels with 32 heads a wave: any schedule gives the same results, and what a schedule must keep is seen.

Faults are planted in how tiles come and waves meet: the sanitizers must name them, whatever order waves run in. Where
nothing parts the waves, what shows first may be bytes that another wave has still to write.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import pytest
from built_once import artifact_of, runners, simulator

from kinfolk.check import ScenarioReport
from kinfolk.dispatch import dispatch
from kinfolk.errors import Refused
from kinfolk.ir import Kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import control
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.plugins.composition import Composition, compose
from kinfolk.refusal import unmet
from kinfolk.tile import slots, softmax, timeline
from kinfolk_mla.request import MlaRequest
from kinfolk_mla.wide import attend, limits, merge, pipelined, plan, scores
from kinfolk_mla.wide.spec import MlaGroupedSpec, MlaPipelinedSpec, MlaWideSpec
from kinfolk_runtime import bind
from kinfolk_runtime.artifact import Artifact
from kinfolk_runtime.mutation import with_kernel
from kinfolk_runtime.verify import run_scenario

pytestmark = [pytest.mark.simulate, pytest.mark.needs("mla", "gfx942")]

SMALL = MlaRequest(
    num_heads=128,
    num_seqs=2,
    total_q=2,
    max_seqlen_q=1,
    max_seqlen_k=100,
    absorbed_query=True,
    kv_lora_rank=512,
    rope_dim=64,
    nope_dim=128,
    v_dim=128,
    page_size=16,
    num_pages=20,
    dtype="bf16",
    kv_dtype="bf16",
    causal=True,
    scale=192**-0.5,
)
STRUCTURES = [
    pytest.param("gfx942", 128, MlaPipelinedSpec, id="pipelined-registers"),
    pytest.param("gfx942", 64, MlaGroupedSpec, id="grouped-registers"),
    pytest.param("gfx950", 128, MlaPipelinedSpec, id="pipelined-direct"),
    pytest.param("gfx950", 64, MlaGroupedSpec, id="grouped-direct"),
]


@functools.cache
def served(arch: str, heads: int) -> tuple[Composition, Artifact]:
    return compose("mla", arch), artifact_of(attrs.evolve(SMALL, num_heads=heads), arch)


@functools.cache
def right(arch: str, heads: int, scenario: str) -> bool:
    """Return whether the kernel as it is passes a scenario: the control of every fault planted in it."""
    composition, artifact = served(arch, heads)
    return judged(composition, artifact, artifact.kernels[0].kernel, scenario).status == "pass"


def judged(composition: Composition, artifact: Artifact, kernel: Kernel, scenario: str) -> ScenarioReport:
    planted = with_kernel(artifact, artifact.kernels[0].spec, kernel)
    request = artifact.plan.request
    (chosen,) = [each for each in composition.scenarios(request) if each.name == scenario]
    return run_scenario(composition, planted, chosen, runners())


@pytest.mark.parametrize(("arch", "heads", "kind"), STRUCTURES)
def test_the_structure_is_the_one_that_is_chosen(arch: str, heads: int, kind: type[MlaWideSpec]) -> None:
    _, artifact = served(arch, heads)
    assert type(artifact.plan.launches[0].spec) is kind


def other_schedules(spec: MlaWideSpec) -> list[MlaWideSpec]:
    """Five schedules that differ in every field, each allowed by the structure's barrier."""
    late = spec.units_after_barrier
    changes: list[dict[str, int]] = [
        {"key_read_ahead": 1, "value_read_ahead": max(1, spec.value_read_ahead), "fence_every": 0},
        {"key_read_ahead": 8, "fence_every": 2},
        {"key_read_ahead": 3, "value_read_ahead": spec.value_read_ahead + 1},
        {"units_after_barrier": max(0, late - 1), "key_read_ahead": 2},
    ]
    return [spec, *(attrs.evolve(spec, **change) for change in changes)]


def outputs(composition: Composition, artifact: Artifact, kernel: Kernel) -> dict[str, bytes]:
    """Run a kernel on the scenario with sequences of several lengths; return what it wrote, bit for bit."""
    (ragged,) = [each for each in composition.scenarios(artifact.plan.request) if each.name == "ragged"]
    planned = attrs.evolve(artifact, plan=dispatch(ragged.request, artifact.plan.arch))
    planted = with_kernel(planned, artifact.kernels[0].spec, kernel)
    written = bind(planted, ragged.inputs(), executor=simulator())()
    return {name: np.asarray(array).tobytes() for name, array in written.items()}


@pytest.mark.parametrize(("arch", "heads", "kind"), STRUCTURES)
def test_one_set_of_units_in_five_schedules_gives_the_same_bits(arch: str, heads: int, kind: type[MlaWideSpec]) -> None:
    composition, artifact = served(arch, heads)
    spec = artifact.plan.launches[0].spec
    assert isinstance(spec, kind)
    specs = other_schedules(spec)
    assert len({each.identity() for each in specs}) == 5
    kernels = [composition.emit(each) for each in specs]
    assert len({str(each) for each in kernels}) == 5
    first, *others = [outputs(composition, artifact, each) for each in kernels]
    assert all(each == first for each in others)


def no_op(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Leave out every op of a name that the loops build."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(timeline, name, lambda *_: None)

    return plant


def no_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(timeline, "wait_for_tiles", lambda: None)


def no_drain(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pipelined, "drain", lambda: None)


def slot_too_early(patch: pytest.MonkeyPatch) -> None:
    """Tiles go to the slot that is being read."""
    patch.setattr(slots.Slots, "before", lambda self, slot: slot)


FAULTS = [
    pytest.param("gfx942", 128, no_op("barrier"), "race|initialisation", id="pipelined-registers-no-barrier"),
    pytest.param("gfx942", 128, slot_too_early, "race", id="pipelined-registers-slot"),
    pytest.param("gfx942", 64, slot_too_early, "race", id="grouped-registers-slot"),
    pytest.param("gfx950", 128, no_op("barrier"), "race|initialisation", id="pipelined-direct-no-barrier"),
    pytest.param("gfx950", 128, no_wait, "race", id="pipelined-direct-no-wait"),
    pytest.param("gfx950", 128, no_drain, "sync", id="pipelined-direct-no-drain"),
    pytest.param("gfx950", 128, slot_too_early, "race", id="pipelined-direct-slot"),
    pytest.param("gfx950", 64, no_op("barrier"), "race|initialisation", id="grouped-direct-no-barrier"),
    pytest.param("gfx950", 64, no_wait, "race", id="grouped-direct-no-wait"),
]


@pytest.mark.parametrize(("arch", "heads", "plant", "kind"), FAULTS)
def test_a_planted_fault_is_named_in_the_first_order_of_waves(
    monkeypatch: pytest.MonkeyPatch, arch: str, heads: int, plant: Any, kind: str
) -> None:
    composition, artifact = served(arch, heads)
    spec = artifact.plan.launches[0].spec
    assert right(arch, heads, "ragged")
    with monkeypatch.context() as patch:
        plant(patch)
        patch.setattr(slots, "check_passage", lambda *_: None)
        kernel = composition.emit(spec)
    report = judged(composition, artifact, kernel, "ragged")
    assert report.status == "fail"
    assert any(re.search(rf"\[({kind})\]", finding.message) for finding in report.findings), report.findings


def one_key_more(patch: pytest.MonkeyPatch) -> None:
    whole = scores.ScoreUnits.masked
    patch.setattr(scores.ScoreUnits, "masked", lambda self, tile, valid: whole(self, tile, [one + 1 for one in valid]))


def no_rescale(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attend, "scale_accumulators", lambda accumulators, factor: list(accumulators))


def no_rescale_of_the_total(patch: pytest.MonkeyPatch) -> None:
    whole = softmax.OnlineSoftmax.raise_maximum

    def raised(self: softmax.OnlineSoftmax, state: softmax.RowState, largest: Value) -> tuple[softmax.RowState, Value]:
        larger, factor = whole(self, state, largest)
        return softmax.RowState(larger.maximum, state.total), factor

    patch.setattr(softmax.OnlineSoftmax, "raise_maximum", raised)


def refused_pages_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attend.Attention, "_refused", lambda self, tile, valid: constant(0, I32))


def own_maximum_kept(patch: pytest.MonkeyPatch) -> None:
    """The other group's maximum is taken for the own one: both are added up as if they stood under one maximum."""
    whole = merge.Merge._exchanged

    def exchanged(self: merge.Merge, rows: Sequence[softmax.RowState]) -> Any:
        own, others = whole(self, rows)
        kept = zip(own, others, strict=True)
        return own, [softmax.RowState(mine.maximum, theirs.total) for mine, theirs in kept]

    patch.setattr(merge.Merge, "_exchanged", exchanged)


WRONG = [
    (one_key_more, "page_plus_one", "tolerance"),
    (no_rescale, "spike", "tolerance"),
    (no_rescale_of_the_total, "spike", "tolerance"),
    (refused_pages_not_counted, "bad_pages", "page_ids"),
]


def assert_told(
    patch: pytest.MonkeyPatch, arch: str, heads: int, plant: Callable[[pytest.MonkeyPatch], None], told: tuple[str, str]
) -> None:
    """Whatever else shows: a kernel with a fault runs to its end and fails a scenario by a code, one without passes."""
    (scenario, code), (composition, artifact) = told, served(arch, heads)
    spec = artifact.plan.launches[0].spec
    assert right(arch, heads, scenario)
    with patch.context() as within:
        plant(within)
        kernel = composition.emit(spec)
    codes = {finding.code for finding in judged(composition, artifact, kernel, scenario).findings}
    assert code in codes and codes.isdisjoint({"simulation", "bind"}), codes


@pytest.mark.parametrize(("arch", "heads", "kind"), [STRUCTURES[0], STRUCTURES[-1]])
@pytest.mark.parametrize(("plant", "scenario", "code"), WRONG)
def test_a_wrong_result_fails_its_scenario_by_the_check_that_is_for_it(
    monkeypatch: pytest.MonkeyPatch, arch: str, heads: int, kind: type, plant: Any, scenario: str, code: str
) -> None:
    """In each structure once: the faults are where it does not matter how tiles come."""
    assert_told(monkeypatch, arch, heads, plant, (scenario, code))


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_groups_merged_without_their_maxima_fail(monkeypatch: pytest.MonkeyPatch, arch: str) -> None:
    assert_told(monkeypatch, arch, 64, own_maximum_kept, ("ragged", "tolerance"))


def test_waves_that_do_not_fall_half_a_round_behind_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its extra meeting the second group runs beside the first: it reads what is written at that time."""
    composition, artifact = served("gfx942", 64)
    spec = artifact.plan.launches[0].spec
    with monkeypatch.context() as patch:
        patch.setattr(control, "meet", lambda place: None)
        kernel = composition.emit(spec)
    report = judged(composition, artifact, kernel, "ragged")
    assert any("[race]" in finding.message for finding in report.findings), report.findings


def legal_places(spec: MlaWideSpec, composition: Composition, patch: pytest.MonkeyPatch) -> range:
    """Return how many units may be left at the barrier that the spec's field is about, as the laid out round has it."""
    seen: list[range] = []
    whole = timeline.Round.units_after

    def recorded(self: timeline.Round) -> range:
        seen.append(whole(self))
        return seen[-1]

    with patch.context() as within:
        within.setattr(timeline.Round, "units_after", recorded)
        composition.emit(spec)
    return seen[-1]


@pytest.mark.parametrize(("arch", "heads", "kind"), STRUCTURES)
@pytest.mark.parametrize("ahead", [1, 3, 8])
def test_a_place_of_the_barrier_is_refused_by_the_spec_where_the_round_has_none(
    monkeypatch: pytest.MonkeyPatch, arch: str, heads: int, kind: type[MlaWideSpec], ahead: int
) -> None:
    """Nothing is emitted for it; through registers a slot is written again before the next barrier."""
    composition, artifact = served(arch, heads)
    spec = attrs.evolve(artifact.plan.launches[0].spec, value_read_ahead=ahead, units_after_barrier=0)
    assert isinstance(spec, kind)
    legal = legal_places(spec, composition, monkeypatch)
    for left in range(33):
        found = composition.validate_spec(attrs.evolve(spec, units_after_barrier=left))
        assert [refusal.field for refusal in found] == ([] if left in legal else ["units_after_barrier"])
        if found:
            assert f"Leave at most {legal[-1]} units" in str(found[0])
            with pytest.raises(Refused, match="units_after_barrier"):
                composition.emit(attrs.evolve(spec, units_after_barrier=left))


@pytest.mark.parametrize(
    ("arch", "heads", "ahead", "edge"),
    [("gfx942", 128, 2, 2), ("gfx942", 64, 2, 2), ("gfx942", 64, 8, 7), ("gfx950", 128, 2, None), ("gfx950", 64, 2, 2)],
)
def test_at_both_legal_edges_there_is_no_race_and_past_the_last_there_is(
    monkeypatch: pytest.MonkeyPatch, arch: str, heads: int, ahead: int, edge: int | None
) -> None:
    """The last place is as many units as values are read ahead, but one is used before the waves meet; None where all
    that the field takes is legal.
    """
    composition, artifact = served(arch, heads)
    spec = attrs.evolve(artifact.plan.launches[0].spec, value_read_ahead=ahead)
    for left in (0, 32 if edge is None else edge):
        kernel = composition.emit(attrs.evolve(spec, units_after_barrier=left))
        assert judged(composition, artifact, kernel, "ragged").status == "pass"
    if edge is None:
        return
    past = attrs.evolve(spec, units_after_barrier=edge + 1)
    assert [refusal.field for refusal in composition.validate_spec(past)] == ["units_after_barrier"]
    with monkeypatch.context() as patch:
        place = timeline._meeting_place

        def earlier(round_: timeline.Round) -> int:
            asked = None if round_.meeting is None else round_.meeting.units_after
            return place(round_) - (asked == edge)

        patch.setattr(timeline, "_meeting_place", earlier)
        patch.setattr(slots, "check_passage", lambda *_: None)
        kernel = composition.emit(attrs.evolve(spec, units_after_barrier=edge))
    findings = judged(composition, artifact, kernel, "ragged").findings
    assert any("[race]" in finding.message for finding in findings), findings


@pytest.mark.parametrize(("arch", "heads", "count"), [("gfx942", 128, 1), ("gfx950", 128, 1), ("gfx950", 64, 5)])
def test_each_barrier_outside_of_the_loop_is_needed(
    monkeypatch: pytest.MonkeyPatch, arch: str, heads: int, count: int
) -> None:
    """Behind the first tiles, and where groups exchange their rows and hand over accumulators."""
    composition, artifact = served(arch, heads)
    whole, findings = control.barrier, []
    for dropped in range(count):
        numbers = iter(range(count))
        with monkeypatch.context() as patch:
            patch.setattr(control, "barrier", functools.partial(all_but, dropped, numbers, whole))
            kernel = composition.emit(artifact.plan.launches[0].spec)
        assert next(numbers, None) is None
        findings.append(" ".join(each.message for each in judged(composition, artifact, kernel, "ragged").findings))
    assert all(re.search(r"\[(race|initialisation)\]", found) for found in findings), findings


def all_but(dropped: int, numbers: Iterator[int], barrier: Callable[[], None]) -> None:
    if next(numbers) != dropped:
        barrier()


@pytest.mark.needs("gfx950")
def test_direct_staging_needs_an_arch_that_has_it() -> None:
    arch = compose("mla", "gfx942").arch
    spec = plan.wide_spec(MlaPipelinedSpec, plan.PIPELINED_DIRECT)
    codes = [
        refusal.code.removeprefix("mla.pipelined.spec.") for refusal in unmet(limits.spec_limits(spec), spec, arch, "p")
    ]
    assert codes == ["atom", "stage_view_16", "transpose_read_16", "workgroup_memory"]
    assert not unmet(limits.spec_limits(spec), spec, compose("mla", "gfx950").arch, "p")


def test_llvm_20_is_served_by_the_kernel_it_can_compile() -> None:
    assert dispatch(SMALL, "gfx942", "llvm20").candidate == "mla.decode"
    assert dispatch(SMALL, "gfx942", "llvm22").candidate == "mla.pipelined"
