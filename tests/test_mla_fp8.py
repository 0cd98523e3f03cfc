"""Caches of 8-bit floats: each arch serves its own, exactly, by one factor for whole rows, and refuses the others'."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from built_once import artifact_of, runners, simulator

from kinfolk.check import ScenarioReport, compare
from kinfolk.dispatch import dispatch
from kinfolk.errors import BindError, NoCandidate, PinRefused
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import convert, vector
from kinfolk.ir.types import F32, ScalarType, VectorType
from kinfolk.ir.value import Value
from kinfolk.plugins.composition import Composition, compose
from kinfolk.tile import softmax, staging, widen
from kinfolk_mla.prefill_reference import projected_reference
from kinfolk_mla.reference import decode_reference
from kinfolk_mla.request import MlaRequest
from kinfolk_runtime import bind, call
from kinfolk_runtime.artifact import Artifact
from kinfolk_runtime.compilation import compile as compile_plan
from kinfolk_runtime.mutation import with_kernel
from kinfolk_runtime.verify import run_scenario

pytestmark = [pytest.mark.simulate, pytest.mark.needs("mla", "gfx942", "gfx950")]

ARCHS = ("gfx942", "gfx950")
OWN = {"gfx942": "f8E4M3FNUZ", "gfx950": "f8E4M3FN"}
THEIRS = {"f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "f8E4M3FN": ml_dtypes.float8_e4m3fn}
DECODE = MlaRequest(
    num_heads=16,
    num_seqs=3,
    total_q=3,
    max_seqlen_q=1,
    max_seqlen_k=70,
    absorbed_query=True,
    page_size=32,
    num_pages=12,
    dtype="bf16",
    kv_dtype="bf16",
    causal=True,
    scale=192**-0.5,
    num_seg=1,
    candidate="mla.decode",
)
SPLIT = attrs.evolve(DECODE, num_seg=3)
PIPELINED = attrs.evolve(DECODE, num_heads=128, candidate="mla.pipelined")
GROUPED = attrs.evolve(DECODE, num_heads=64, candidate="mla.grouped", num_seg=2)
PREFILL = attrs.evolve(
    DECODE, candidate="mla.prefill", absorbed_query=False, num_heads=2, max_seqlen_q=40, total_q=45, num_seqs=2
)
ASKED = {"decode": DECODE, "split": SPLIT, "pipelined": PIPELINED, "grouped": GROUPED, "prefill": PREFILL}
K_SCALE = 0.25
"""A power of two, so that what is planted about it is exact."""
Array = npt.NDArray[Any]
Patch = pytest.MonkeyPatch


@functools.cache
def served(arch: str, name: str, k_scale: float = K_SCALE) -> tuple[Composition, Artifact]:
    request = attrs.evolve(ASKED[name], kv_dtype=OWN[arch], k_scale=k_scale)
    return compose("mla", arch), artifact_of(request, arch)


def judged(composition: Composition, artifact: Artifact, name: str) -> ScenarioReport:
    [chosen] = [each for each in composition.scenarios(artifact.plan.request) if each.name == name]
    return run_scenario(composition, artifact, chosen, runners())


def inputs_of(composition: Composition, request: MlaRequest, name: str) -> dict[str, Any]:
    [chosen] = [each for each in composition.scenarios(request) if each.name == name]
    return {key: np.array(each) for key, each in chosen.build(np.random.default_rng(5)).items()}


def reference(request: MlaRequest, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return (decode_reference if request.absorbed_query else projected_reference)(request, inputs)


def is_right(request: MlaRequest, outputs: Mapping[str, Any], inputs: Mapping[str, Any]) -> bool:
    expected, types = reference(request, inputs), {"out": "bf16", "lse": "f32"}
    return not any(compare(name, kind, outputs[name], expected[name]).findings for name, kind in types.items())


SCENARIOS = {
    "decode": ("ragged", "codes", "extreme", "climb", "one_sign", "bad_pages", "address_5gib"),
    "split": ("ragged", "codes", "extreme", "empty"),
    "pipelined": ("ragged", "codes"),
    "grouped": ("ragged", "codes"),
    "prefill": ("whole", "extreme", "bad_pages"),
}


@pytest.mark.compile
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", ASKED)
def test_each_arch_serves_its_own(arch: str, name: str) -> None:
    composition, artifact = served(arch, name)
    for scenario in SCENARIOS[name]:
        report = judged(composition, artifact, scenario)
        assert report.status == "pass", (scenario, report.findings)


@pytest.mark.compile
@pytest.mark.parametrize("k_scale", [2.0**-32, 0.037, 448.0, 2.0**32])
def test_any_factor_that_is_taken_passes(k_scale: float) -> None:
    for name in ASKED:
        composition, artifact = served("gfx942", name, k_scale)
        report = judged(composition, artifact, "ragged")
        assert report.status == "pass", (name, report.findings)


SAME_KERNEL = [
    (name, arch)
    for arch in ARCHS
    for name in ASKED
    if (name, arch) not in (("pipelined", "gfx950"), ("grouped", "gfx950"))
]
"""Where tiles of bf16 come directly, they are added up in another order than those that pass through registers."""


@pytest.mark.compile
@pytest.mark.parametrize("name, arch", SAME_KERNEL)
def test_it_gives_the_very_bits_that_the_same_numbers_give_as_bf16(name: str, arch: str) -> None:
    """Widening is exact: the cache as ml_dtypes reads it, stored as bf16, is the same cache."""
    composition, artifact = served(arch, name)
    request = artifact.plan.request
    assert isinstance(request, MlaRequest)
    inputs = inputs_of(composition, request, "ragged")
    asked = inputs_request(composition, request, "ragged")
    wide = {key: inputs[key].astype(np.float32).astype(ml_dtypes.bfloat16) for key in ("c_kv", "k_rope")}
    plain = attrs.evolve(asked, kv_dtype="bf16")
    narrow, other = (
        call(artifact_of(each, arch), given, simulator()) for each, given in ((asked, inputs), (plain, inputs | wide))
    )
    for output in ("out", "lse"):
        np.testing.assert_array_equal(narrow[output].view(np.uint8), other[output].view(np.uint8))


def inputs_request(composition: Composition, request: MlaRequest, name: str) -> MlaRequest:
    [chosen] = [each for each in composition.scenarios(request) if each.name == name]
    assert isinstance(chosen.request, MlaRequest)
    return chosen.request


def at(artifact: Artifact, request: MlaRequest) -> Artifact:
    """Return the artifact for a request that its kernels serve too."""
    return artifact_of(request, artifact.plan.arch)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", ASKED)
def test_what_no_sequence_owns_is_nan_in_its_scenarios(arch: str, name: str) -> None:
    """The pair: rows that are owned are none, and those that are not are all."""
    composition, artifact = served(arch, name)
    request = inputs_request(composition, artifact.plan.request, "ragged")
    inputs = inputs_of(composition, request, "ragged")
    assert inputs["c_kv"].dtype == THEIRS[OWN[arch]]
    unowned = np.isnan(inputs["c_kv"].astype(np.float32)).all(axis=-1)
    owned = int(np.diff(inputs["cu_seqlens_k"]).sum())
    assert 0 < int((~unowned).sum()) == owned < unowned.size
    assert not np.isnan(inputs["c_kv"].astype(np.float32))[~unowned].any()
    codes = set(inputs["c_kv"].view(np.uint8)[unowned].ravel().tolist())
    assert codes == ({0x80} if arch == "gfx942" else {0x7F})


def scores_in_the_units_of_the_cache(patch: Patch) -> None:
    def of(cls: Any, scale: Value, masks: tuple[int, ...], threshold: float = 8.0, unit: Value | None = None) -> Any:
        return cls(scale, scale * softmax.LOG2_E, masks, threshold, unit)

    patch.setattr(softmax.OnlineSoftmax, "of", classmethod(of))


def outputs_in_the_units_of_the_cache(patch: Patch) -> None:
    whole = softmax.OnlineSoftmax.finish

    def finish(self: softmax.OnlineSoftmax, state: softmax.RowState) -> tuple[Value, Value]:
        inverse, _ = whole(attrs.evolve(self, unit=None), state)
        return inverse, whole(self, state)[1]

    patch.setattr(softmax.OnlineSoftmax, "finish", finish)


def factor_of_latent_parts_alone(patch: Patch) -> None:
    """Divide rotated parts by the factor, which they are multiplied by with the rest, while they are staged."""

    def widened(value: Value, element: ScalarType) -> Value:
        wide = widen.widened(value, element)
        is_rope = isinstance(value.type, VectorType) and value.type.element.bytes == 1 and value.type.count == 4
        return narrowed(widen.widened(wide, F32), element) if is_rope else wide

    def narrowed(value: Value, element: ScalarType) -> Value:
        factor = vector.splat(constant(1.0 / K_SCALE, F32), count=4)
        return convert.fptrunc(value * factor, to=element)

    patch.setattr(staging, "widened", widened)


FAULTS: tuple[Callable[[Patch], None], ...] = (
    scores_in_the_units_of_the_cache,
    outputs_in_the_units_of_the_cache,
    factor_of_latent_parts_alone,
)


@pytest.mark.compile
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_factor_that_is_dropped_somewhere_is_seen(arch: str, plant: Callable[[Patch], None]) -> None:
    """Negative control: the scenario that passes does not with a factor missing in scores, outputs or half a row."""
    composition, artifact = served(arch, "decode")
    spec = artifact.kernels[0].spec
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        faulty = composition.emit(spec)
    report = judged(composition, with_kernel(artifact, spec, faulty), "ragged")
    assert {finding.code for finding in report.findings} >= {"tolerance"}


@pytest.mark.compile
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("scenario", ["ragged", "codes"])
def test_the_same_bytes_in_the_other_encoding_are_seen(arch: str, scenario: str) -> None:
    """Negative control: what the other arch's kernel makes of the bytes is none of what they stand for here.

    Bytes that are NaN there, which tell by themselves, are made 0 first.
    """
    other = next(each for each in ARCHS if each != arch)
    composition, artifact = served(arch, "decode")
    asked = inputs_request(composition, artifact.plan.request, scenario)
    inputs = inputs_of(composition, asked, scenario)
    for name in ("c_kv", "k_rope"):
        inputs[name][np.isnan(inputs[name].view(THEIRS[OWN[other]]).astype(np.float32))] = 0.0
    assert is_right(asked, call(at(artifact, asked), inputs), inputs)
    misread = {name: inputs[name].view(THEIRS[OWN[other]]) for name in ("c_kv", "k_rope")}
    wrong = call(compile_plan(dispatch(attrs.evolve(asked, kv_dtype=OWN[other]), other)), inputs | misread)
    assert not is_right(asked, wrong, inputs)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", ASKED)
def test_the_other_encoding_is_refused_with_the_name_of_the_right_one(arch: str, name: str) -> None:
    other = next(OWN[each] for each in ARCHS if each != arch)
    with pytest.raises((NoCandidate, PinRefused)) as refused:
        dispatch(attrs.evolve(ASKED[name], kv_dtype=other), arch)
    told = [each for each in refused.value.refusals if each.code.endswith(".kv_dtype")]
    assert told and {each.value for each in told} == {other}
    assert all(each.remedy == f"Store the cache as bf16 or as {OWN[arch]}." for each in told)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("tensor", ["c_kv", "k_rope"])
def test_a_tensor_of_another_type_is_refused_before_anything_runs(arch: str, tensor: str) -> None:
    """The other encoding, plain bytes and bf16; what the request says is taken."""
    composition, artifact = served(arch, "decode")
    asked = inputs_request(composition, artifact.plan.request, "ragged")
    inputs, fitting = inputs_of(composition, asked, "ragged"), at(artifact, asked)
    bind(fitting, inputs)
    other = next(THEIRS[OWN[each]] for each in ARCHS if each != arch)
    for wrong in (inputs[tensor].view(other), inputs[tensor].view(np.uint8), inputs[tensor].astype(ml_dtypes.bfloat16)):
        with pytest.raises(BindError, match=rf"{tensor}.*{OWN[arch]}"):
            bind(fitting, inputs | {tensor: wrong})
