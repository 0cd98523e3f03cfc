"""Faults planted in the decode kernel, each in the way it is made in practice, and the check that must see it.

The simulator and the reference judge the emitted kernel, the gate what the compiler made of it, the artifact its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import attrs
import numpy as np
import pytest
from built_once import artifact_of, expected_of, runners
from emitter_faults import assert_seen, codes

from kinfolk.check import ScenarioReport, numpy_dtype
from kinfolk.errors import Refused
from kinfolk.ir import Kernel, Operation
from kinfolk.ir.meaning import Matrix, OperandMap
from kinfolk.ir.op import OpDef
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory, vector
from kinfolk.ir.types import BF16 as BF16_TYPE
from kinfolk.ir.types import F32, I32, ScalarType, VectorType, element_type
from kinfolk.ir.value import Value
from kinfolk.matrix import Atom
from kinfolk.plugins.composition import Composition, compose
from kinfolk.tile import paging, parting, softmax
from kinfolk_mla.decode import epilogue, kernel, keys, values
from kinfolk_mla.request import MlaRequest
from kinfolk_runtime.artifact import Artifact
from kinfolk_runtime.compilation import compile_specs
from kinfolk_runtime.mutation import with_kernel
from kinfolk_runtime.verify import ORDER_SEEDS, run_scenario

pytestmark = [pytest.mark.simulate, pytest.mark.needs("mla", "gfx942")]

REQUEST = MlaRequest(
    num_heads=16,
    num_seqs=2,
    total_q=2,
    max_seqlen_q=1,
    max_seqlen_k=40,
    absorbed_query=True,
    kv_lora_rank=512,
    rope_dim=64,
    nope_dim=128,
    v_dim=128,
    page_size=16,
    num_pages=8,
    dtype="bf16",
    kv_dtype="bf16",
    causal=True,
    scale=192**-0.5,
)
LONGER = attrs.evolve(REQUEST, max_seqlen_k=150, num_pages=30)
Patch = pytest.MonkeyPatch
BF16 = numpy_dtype("bf16")


@pytest.fixture(scope="module")
def composition() -> Composition:
    return compose("mla", "gfx942")


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return artifact_of(REQUEST, "gfx942")


def judged(
    composition: Composition,
    artifact: Artifact,
    emitted: Kernel,
    scenario: str,
    request: MlaRequest = REQUEST,
    order_seeds: Sequence[int] = ORDER_SEEDS,
) -> ScenarioReport:
    """Run one scenario of the request on `emitted` in place of the artifact's kernel, in verify's orders of waves."""
    planted = with_kernel(artifact, artifact.kernels[0].spec, emitted)
    (chosen,) = [each for each in composition.scenarios(request) if each.name == scenario]
    return run_scenario(composition, planted, chosen, runners(tuple(order_seeds)), expected_of(composition, chosen))


def emitted(composition: Composition, artifact: Artifact) -> Kernel:
    return composition.emit(artifact.kernels[0].spec)


def test_the_kernel_without_a_fault_passes_each_scenario_used_here(
    composition: Composition, artifact: Artifact
) -> None:
    kernel = emitted(composition, artifact)
    for scenario in sorted({case[1] for case in FAULTS}):
        report = judged(composition, artifact, kernel, scenario)
        assert codes(report) == set(), (scenario, report.findings)


def swapped_operands(patch: Patch) -> None:
    patch.setattr(Atom, "__call__", lambda self, a, b, c: self.op(b, a, c))


def mask_off_by_one(patch: Patch) -> None:
    def mask(scores: Sequence[Any], keys: Sequence[Any], valid: Any) -> list[Any]:
        return softmax.mask_scores(scores, keys, valid + 1)

    patch.setattr(keys, "mask_scores", mask)


def no_mask(patch: Patch) -> None:
    patch.setattr(keys, "mask_scores", lambda scores, keys, valid: list(scores))


def dropped_rescale(patch: Patch) -> None:
    patch.setattr(kernel, "scale_accumulators", lambda accumulators, factor: list(accumulators))


def dropped_rescale_of_the_total(patch: Patch) -> None:
    whole = softmax.OnlineSoftmax.raise_maximum

    def raised(self: softmax.OnlineSoftmax, state: softmax.RowState, tile_maximum: Any) -> Any:
        new, factor = whole(self, state, tile_maximum)
        return softmax.RowState(new.maximum, state.total), factor

    patch.setattr(softmax.OnlineSoftmax, "raise_maximum", raised)


def infinity_not_handled(patch: Patch) -> None:
    def finish(self: softmax.OnlineSoftmax, state: softmax.RowState) -> tuple[Any, Any]:
        total = softmax.across_lanes(state.total, self.masks, arithmetic.fadd)
        logarithm = arithmetic.log2(total) * softmax.LN_2
        return arithmetic.rcp(total), arithmetic.fma(state.maximum, self.scale, logarithm)

    patch.setattr(softmax.OnlineSoftmax, "finish", finish)


def masked_scores_read_as_finite(patch: Patch) -> None:
    """The old sentinel: scores at or below -1e30 count as masked, and the maximum starts there."""
    patch.setattr(softmax, "LOWEST", -1e30)


def row_not_written(patch: Patch) -> None:
    """One of the stores of the output, that is; sums of segments are f32."""
    stores = memory.view_store
    count = iter(range(1 << 20))

    def store(view: Value, index: Value, value: Value) -> None:
        if element_type(view.type) != BF16_TYPE or next(count) != 5:
            stores(view, index, value)

    patch.setattr(epilogue.memory, "view_store", store)


def bad_page_not_counted(patch: Patch) -> None:
    patch.setattr(keys, "count_refused_pages", lambda work, refused: None)


def page_id_not_checked(patch: Patch) -> None:
    whole = paging.PageTable.resolve

    def resolve(self: paging.PageTable, identifier: Any, tile: Any) -> Any:
        return whole(attrs.evolve(self, num_pages=self.num_pages + 1), identifier, tile)

    patch.setattr(paging.PageTable, "resolve", resolve)


FAULTS: list[tuple[Callable[[Patch], None], str, set[str]]] = [
    (swapped_operands, "ragged", {"tolerance"}),
    (mask_off_by_one, "page_plus_one", {"tolerance"}),
    (mask_off_by_one, "ragged", {"tolerance"}),
    (no_mask, "single_key", {"tolerance"}),
    (dropped_rescale, "spike", {"tolerance"}),
    (dropped_rescale_of_the_total, "spike", {"tolerance"}),
    (infinity_not_handled, "empty", {"empty", "nan"}),
    (masked_scores_read_as_finite, "extreme", {"infinite", "tolerance"}),
    (row_not_written, "ragged", {"untouched"}),
    (bad_page_not_counted, "bad_pages", {"page_ids"}),
    (page_id_not_checked, "bad_pages", {"simulation"}),
]


def case_name(part: object) -> str:
    """Name a part of a case; sets in order, for workers that hash differently must collect the same tests."""
    if isinstance(part, set):
        return "+".join(sorted(str(code) for code in cast("set[object]", part)))
    return str(getattr(part, "__name__", part))


@pytest.mark.parametrize(("plant", "scenario", "seen"), FAULTS, ids=case_name)
def test_a_fault_in_the_emitter_fails_its_scenario_by_the_check_that_is_for_it(
    plant: Callable[[Patch], None],
    scenario: str,
    seen: set[str],
    composition: Composition,
    artifact: Artifact,
    monkeypatch: Patch,
) -> None:
    plant(monkeypatch)
    faulty = emitted(composition, artifact)
    monkeypatch.undo()
    report = judged(composition, artifact, faulty, scenario)
    assert_seen(report, seen)
    assert fault_kinds(report) == ({"memory"} if "simulation" in seen else set())


def fault_kinds(report: ScenarioReport) -> set[str]:
    """Return the kinds of the simulator's faults, which end their messages."""
    faults = [finding.message for finding in report.findings if finding.code == "simulation"]
    return {message.partition("] [order seed")[0].rpartition("[")[2] for message in faults}


def truncated(values: Sequence[Value], element: ScalarType) -> Value:
    """bf16 pairs as they come of dropping the 0x8000 that rounds."""
    words = [convert.bitcast(value, to=I32) for value in values]
    pairs = [
        lanes.byte_permute(words[index], words[index + 1], selector=(2, 3, 6, 7)) for index in range(0, len(words), 2)
    ]
    packed = pairs[0] if len(pairs) == 1 else vector.pack(*pairs)
    return convert.bitcast(packed, to=VectorType(element, len(words)))


def to_bf16_and_back(value: Value) -> Value:
    return convert.fpext(convert.fptrunc(value, to=BF16_TYPE), to=F32)


def truncated_weights(patch: Patch) -> None:
    patch.setattr(values, "narrow_weights", truncated)


def truncated_outputs(patch: Patch) -> None:
    patch.setattr(epilogue, "narrow", truncated)


def accumulators_in_bf16(patch: Patch) -> None:
    whole = values.ValueProduct.accumulate
    patch.setattr(
        values.ValueProduct, "accumulate", lambda *given: [to_bf16_and_back(value) for value in whole(*given)]
    )


def total_of_rounded_weights(patch: Patch) -> None:
    """The sum is of the weights before they are rounded: log(sum) is an output, and f32."""

    def weights(
        self: softmax.OnlineSoftmax, state: softmax.RowState, scores: Sequence[Value]
    ) -> tuple[softmax.RowState, list[Value]]:
        _, exact = whole(self, state, scores)
        rounded = [to_bf16_and_back(weight) for weight in exact]
        return softmax.RowState(state.maximum, state.total + softmax.in_lane(rounded, arithmetic.fadd)), exact

    whole = softmax.OnlineSoftmax.weights
    patch.setattr(softmax.OnlineSoftmax, "weights", weights)


ROUNDINGS: list[tuple[Callable[[Patch], None], set[str]]] = [
    (truncated_weights, {"bias"}),
    (truncated_outputs, {"bias"}),
    (accumulators_in_bf16, {"tolerance"}),
    (total_of_rounded_weights, {"tolerance"}),
]


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_rounding_as_it_should_be_passes_with_room(arch: str) -> None:
    composition, artifact = compose("mla", arch), artifact_of(LONGER, arch)
    report = judged(composition, artifact, emitted(composition, artifact), "one_sign", LONGER)
    assert codes(report) == set(), report.findings
    assert all(output.margin < 0.75 for output in report.outputs if output.margin is not None)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize(("plant", "seen"), ROUNDINGS, ids=case_name)
def test_a_value_rounded_wrongly_or_too_early_is_seen(
    plant: Callable[[Patch], None], seen: set[str], arch: str, monkeypatch: Patch
) -> None:
    composition, artifact = compose("mla", arch), artifact_of(LONGER, arch)
    plant(monkeypatch)
    faulty = emitted(composition, artifact)
    monkeypatch.undo()
    report = judged(composition, artifact, faulty, "one_sign", LONGER)
    assert_seen(report, seen)


BARRIERS = ("after the first tile is stored", "between attending and storing", "after a tile is stored")


def drop_barrier(patch: Patch, dropped: int) -> None:
    """Leave out one of the kernel's barriers, counted as they are emitted."""
    emitted_so_far = iter(range(len(BARRIERS)))
    given = vars(control) | {"barrier": lambda: None if next(emitted_so_far) == dropped else control.barrier()}
    patch.setattr(parting, "control", SimpleNamespace(**given))


@pytest.mark.parametrize("heads", [16, 64])
@pytest.mark.parametrize("barrier", [*BARRIERS, None])
def test_a_dropped_barrier_is_a_race_in_the_ascending_order_alone(
    composition: Composition, monkeypatch: Patch, barrier: str | None, heads: int
) -> None:
    """With idle waves too, where the one wave that attends comes first and every value is right by chance."""
    request = attrs.evolve(REQUEST, num_heads=heads, candidate="mla.decode")
    artifact = artifact_of(request, "gfx942")
    if barrier is not None:
        drop_barrier(monkeypatch, BARRIERS.index(barrier))
    faulty = emitted(composition, artifact)
    monkeypatch.undo()
    report = judged(composition, artifact, faulty, "ragged", request, order_seeds=(0,))
    if barrier is None:
        assert len(list(operations(faulty, "core.barrier"))) == len(BARRIERS)
        assert codes(report) == set()
        return
    assert len(list(operations(faulty, "core.barrier"))) == len(BARRIERS) - 1
    assert_seen(report, {"simulation"})
    assert fault_kinds(report) == {"race"}
    [message] = {finding.message for finding in report.findings}
    own, _, other = message.partition("; the other party: ")
    assert "core.workgroup_load reads" in own and other.startswith("core.workgroup_store at ")


def operations(emitted_kernel: Kernel, name: str) -> Iterator[Operation]:
    return (operation for operation in emitted_kernel.walk() if operation.name == name)


def test_a_wrong_lane_map_fails(composition: Composition, artifact: Artifact) -> None:
    """The lanes' rows of C as an out-of-date table has them: the emitter believes one map, the hardware has another."""
    faulty = emitted(composition, artifact)
    (name,) = {operation.name for operation in faulty.walk() if isinstance(operation.definition.meaning, Matrix)}
    for operation in operations(faulty, name):
        operation.definition = with_rows_of_c_exchanged(operation.definition)
    assert_seen(judged(composition, artifact, faulty, "ragged"), {"tolerance"})


def with_rows_of_c_exchanged(definition: OpDef) -> OpDef:
    shape = definition.meaning
    assert isinstance(shape, Matrix)
    lane, slot = np.indices(shape.c.rows.shape)
    rows = OperandMap(4 * slot + lane // 16, shape.c.columns)
    return attrs.evolve(definition, meaning=attrs.evolve(shape, c=rows))


@pytest.mark.compile
def test_scratch_in_the_compiled_code_is_refused(composition: Composition, artifact: Artifact) -> None:
    """Everything of the query in registers, and reads far ahead: more than the registers of two workgroups hold."""
    greedy = attrs.evolve(artifact.kernels[0].spec, parked_query_reads=0, key_read_ahead=8, value_read_ahead=4)
    with pytest.raises(Refused, match="scratch"):
        compile_specs([greedy], "llvm22", composition=composition)
