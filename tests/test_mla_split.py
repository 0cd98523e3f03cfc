"""Decode over segments of the keys: however many there are, the outputs are those of one pass over all of them.

The reference knows nothing of segments. Every run has poisoned workspaces and all sanitizers, across both launches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest
from built_once import artifact_of, runners

from kinfolk.check import ScenarioReport, compare, numpy_dtype
from kinfolk.dispatch import dispatch
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.plugins.composition import Composition, compose
from kinfolk.tile import softmax
from kinfolk_mla.combine import kernel as combine
from kinfolk_mla.decode import epilogue, sequence
from kinfolk_mla.request import MlaRequest
from kinfolk_runtime import call
from kinfolk_runtime.artifact import Artifact
from kinfolk_runtime.simulator import Simulator, SparseBuffer
from kinfolk_runtime.simulator.fault import KernelFault
from kinfolk_runtime.verify import run_scenario

pytestmark = [pytest.mark.simulate, pytest.mark.needs("mla", "gfx942", "gfx950")]

REQUEST = MlaRequest(
    num_heads=16,
    num_seqs=4,
    total_q=4,
    max_seqlen_q=1,
    max_seqlen_k=150,
    absorbed_query=True,
    page_size=16,
    num_pages=40,
    dtype="bf16",
    kv_dtype="bf16",
    causal=True,
    scale=192**-0.5,
)
STRUCTURES = [
    pytest.param(arch, heads, candidate, id=f"{candidate}-{heads}-{arch}")
    for arch in ("gfx942", "gfx950")
    for heads, candidate in ((16, "mla.decode"), (128, "mla.pipelined"), (64, "mla.grouped"))
]
SEGMENTS = [1, 2, 7, 16, 64]
SCENARIOS = ["ragged", "empty", "bad_pages", "address_table"]
Patch = pytest.MonkeyPatch


def served(arch: str, heads: int, candidate: str, **changes: Any) -> tuple[Composition, Artifact]:
    request = attrs.evolve(REQUEST, num_heads=heads, candidate=candidate, **changes)
    return compose("mla", arch), artifact_of(request, arch)


@functools.cache
def right(arch: str, heads: int, candidate: str) -> bool:
    """Return whether the kernels as they are pass in seven segments: the control of every fault planted in them."""
    return judged(*served(arch, heads, candidate, num_seg=7), "ragged").status == "pass"


def judged(composition: Composition, artifact: Artifact, name: str) -> ScenarioReport:
    (chosen,) = [each for each in composition.scenarios(artifact.plan.request) if each.name == name]
    return run_scenario(composition, artifact, chosen, runners())


@pytest.mark.parametrize(("arch", "heads", "candidate"), STRUCTURES)
@pytest.mark.parametrize("num_seg", SEGMENTS)
def test_any_number_of_segments_is_right(arch: str, heads: int, candidate: str, num_seg: int) -> None:
    """Of ten pages or fewer: from one segment to more than there are pages, so that most have no keys."""
    composition, artifact = served(arch, heads, candidate, num_seg=num_seg)
    names = [*SCENARIOS, "spike", "no_query"] if num_seg == 7 else SCENARIOS
    for name in names if heads == 16 else SCENARIOS[:1]:
        report = judged(composition, artifact, name)
        assert report.status == "pass", (name, report.findings)


@pytest.mark.parametrize(("arch", "heads", "candidate"), STRUCTURES[:1] + STRUCTURES[-2:])
def test_automatic_forced_and_one_segment_agree(arch: str, heads: int, candidate: str) -> None:
    """Within the tolerance of either; and the automatic number is the one that is told."""
    keys = 2200
    changes: dict[str, Any] = {"max_seqlen_k": keys, "num_seqs": 2, "total_q": 2, "num_pages": 300}
    composition, artifact = served(arch, heads, candidate, **changes)
    (ragged,) = [each for each in composition.scenarios(artifact.plan.request) if each.name == "ragged"]
    inputs = ragged.inputs()
    expected = composition.reference(ragged.request, inputs)
    found: dict[int, dict[str, Any]] = {}
    for num_seg in (0, 1, 3):
        request = attrs.evolve(artifact.plan.request, num_seg=num_seg)
        plan = dispatch(request, arch)
        outputs = call(attrs.evolve(artifact, plan=plan), inputs)
        found[num_seg] = {name: np.array(each) for name, each in outputs.items()}
        segments = {value.name: value.value for value in plan.arguments(plan.launches[0], bound_to(inputs))}
        assert segments["num_segments"] == (num_seg or keys // (16 if arch == "gfx942" else 32) // 32) > 0
    for name in ("out", "lse"):
        for each in found.values():
            assert not compare(name, plan.binding(name).dtype, each[name], expected[name]).findings
        for num_seg in (0, 3):
            near = attrs.evolve(expected[name], value=found[1][name].astype(np.float64))
            assert not compare(name, plan.binding(name).dtype, found[num_seg][name], near).findings


def bound_to(inputs: Any) -> Any:
    from kinfolk.expr import TensorGeometry

    steps = {name: tuple(step // each.itemsize for step in each.strides) for name, each in inputs.items()}
    return {name: TensorGeometry(each.shape, steps[name]) for name, each in inputs.items()}


def test_a_segment_without_keys_reads_nothing_and_writes_two_numbers() -> None:
    """Neither query nor cache nor page table exist. Control: as the only segment it reads its query."""
    composition, artifact = served("gfx942", 16, "mla.decode")
    rows = (2, 1, 16)
    arguments: dict[str, Any] = {
        **{name: SparseBuffer(2**20, {}) for name in ("qa", "c_kv", "k_rope", "block_table")},
        "cu_seqlens_q": np.array([0, 1], np.int32),
        "cu_seqlens_k": np.array([0, 0], np.int32),
        "status": np.zeros(1, np.int32),
        "out": np.full((1, 16, 512), 7, numpy_dtype("bf16")),
        "lse": np.full((1, 16), 7, np.float32),
        "scale": 1.0,
        "k_scale": 1.0,
        "block_table_stride": 4,
        "num_pages": 1,
        "total_q": 1,
        "max_seqlen_q": 1,
        "max_seqlen_k": 64,
        "num_heads": 16,
        "heads_inverse": 0,
        "part_out": np.full((*rows, 512), 7, np.float32),
        "part_ml": np.full((*rows, 2), 7, np.float32),
        "num_segments": 2,
        "segment_pages": 2,
        "page_shift": 0,
    }
    emitted = composition.emit(artifact.plan.launches[0].spec)
    Simulator().launch(emitted, (1, 1, 2), arguments)
    lowest = np.finfo(np.float32).min
    assert (arguments["part_ml"] == [lowest, 0.0]).all()
    assert all((arguments[name].astype(np.float32) == 7).all() for name in ("part_out", "lse", "out"))
    with pytest.raises(KernelFault, match="qa"):
        Simulator().launch(emitted, (1, 1, 1), arguments | {"num_segments": 1})


def a_page_too_late(patch: Patch) -> None:
    whole = sequence._segment_of

    def segment_of(length: Value, segment: Value, segment_pages: Value, page_size: int) -> tuple[Value, Value]:
        late = length - arithmetic.smin(segment, constant(1, I32)) * page_size
        first, keys = whole(late, segment, segment_pages, page_size)
        return first + arithmetic.smin(segment, constant(1, I32)), keys

    patch.setattr(sequence, "_segment_of", segment_of)


def a_page_too_many(patch: Patch) -> None:
    def held(ahead: Value, segment_pages: Value, page_size: int) -> Value:
        return arithmetic.smin(ahead, (segment_pages + 1) * page_size)

    patch.setattr(sequence, "_keys_held", held)


def rows_of_the_first_segment(patch: Patch) -> None:
    """All segments write the same rows of the workspace."""

    def rows(self: sequence.Work, tensor: Value, width: int) -> Value:
        return self._rows(tensor, self._first(), width)

    patch.setattr(sequence.Work, "rows_of_segment", rows)


def empty_segments_untold(patch: Patch) -> None:
    patch.setattr(epilogue, "store_pair", lambda work, maximum, total, tile=0: None)


def no_rescale(patch: Patch) -> None:
    patch.setattr(combine.Combine, "_factor", lambda self, maximum, largest: arithmetic.exp2(maximum - maximum))


def log2_for_ln(patch: Patch) -> None:
    patch.setattr(softmax, "LN_2", 1.0)


def empty_segments_read(patch: Patch) -> None:
    whole = combine.Combine._columns
    patch.setattr(combine.Combine, "_columns", lambda self, segment, factor: whole(self, segment, factor + 1.0))


FAULTS = [
    (a_page_too_late, "tolerance"),
    (a_page_too_many, "tolerance"),
    (rows_of_the_first_segment, "race"),
    (empty_segments_untold, "initialisation"),
    (no_rescale, "tolerance"),
    (log2_for_ln, "tolerance"),
    (empty_segments_read, "initialisation"),
]


@pytest.mark.parametrize(("plant", "told"), FAULTS, ids=lambda each: getattr(each, "__name__", each))
@pytest.mark.parametrize(("arch", "heads", "candidate"), [STRUCTURES[0], STRUCTURES[-1]])
def test_a_planted_fault_is_told(
    monkeypatch: Patch, plant: Callable[[Patch], None], told: str, arch: str, heads: int, candidate: str
) -> None:
    composition, artifact = served(arch, heads, candidate, num_seg=7)
    assert right(arch, heads, candidate)
    with monkeypatch.context() as patch:
        plant(patch)
        kernels = tuple(attrs.evolve(each, kernel=composition.emit(each.spec)) for each in artifact.kernels)
    report = judged(composition, attrs.evolve(artifact, kernels=kernels), "ragged")
    seen = {finding.code for finding in report.findings} | {
        word for word in ("race", "initialisation") for finding in report.findings if f"[{word}]" in finding.message
    }
    assert told in seen, report.findings
