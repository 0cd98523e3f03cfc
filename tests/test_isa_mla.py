"""Kernels of MLA as machine code: what LLVM made of them runs, meets the reference, and faults in it are found.

The oracle of results is the fp64 reference, and the simulator, which runs the IR; neither knows of machine code. Faults
are planted in the words of a compiled object.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
import pytest
from built_once import artifact_of, judged, simulator
from isa_edits import NOP, WAIT, edited, instructions, kind_found, told

from kinfolk.errors import BindError
from kinfolk.plugins.composition import Composition, compose
from kinfolk_amdgcn.isa.encoding import Encoded
from kinfolk_amdgcn.isa.flow_steps import counts_of_wait
from kinfolk_mla.request import MlaRequest
from kinfolk_runtime.artifact import Artifact
from kinfolk_runtime.binder import bind
from kinfolk_runtime.isa import MachineExecutor
from kinfolk_runtime.verify import Runner, written_memory

pytestmark = [pytest.mark.compile, pytest.mark.simulate, pytest.mark.needs("mla", "gfx942", "gfx950")]

REQUEST = MlaRequest(
    num_heads=16,
    num_seqs=2,
    total_q=2,
    max_seqlen_q=1,
    max_seqlen_k=100,
    absorbed_query=True,
    page_size=16,
    num_pages=20,
    dtype="bf16",
    kv_dtype="bf16",
    causal=True,
    scale=192**-0.5,
    num_seg=2,
)
SMALL: dict[str, Any] = {"num_seg": 1, "max_seqlen_k": 40, "num_pages": 8}
TARGETS = [(arch, flavor) for arch in ("gfx942", "gfx950") for flavor in ("llvm20", "llvm22")]


def served(arch: str, flavor: str = "llvm22", **changes: Any) -> tuple[Composition, Artifact]:
    return compose("mla", arch), artifact_of(attrs.evolve(REQUEST, **changes), arch, flavor)


def outputs(composition: Composition, artifact: Artifact, name: str, executor: Any) -> dict[str, bytes]:
    [scenario] = [each for each in composition.scenarios(artifact.plan.request) if each.name == name]
    inputs = scenario.inputs()
    memory = written_memory(artifact.plan, inputs)
    bind(artifact, {**inputs, **memory}, executor=executor, composition=composition)()
    return {output: memory[output].tobytes() for output in artifact.plan.outputs}


@pytest.mark.parametrize(("arch", "flavor"), TARGETS)
def test_decode_in_segments_and_their_combination_meet_the_reference(arch: str, flavor: str) -> None:
    composition, artifact = served(arch, flavor)
    for name in ("ragged", "bad_pages"):
        executor = MachineExecutor()
        report = judged(composition, artifact, name, (Runner(executor),))
        assert report.status == "pass", report.findings
        assert [launch.products > 0 for launch in executor.executed] == [True, False]


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_machine_code_gives_the_bits_of_the_simulator(arch: str) -> None:
    """Exactness is part of what ops mean, and nothing that LLVM does may change it."""
    composition, artifact = served(arch)
    simulated = outputs(composition, artifact, "ragged", simulator())
    assert outputs(composition, artifact, "ragged", MachineExecutor()) == simulated


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize(("heads", "candidate"), [(128, "mla.pipelined"), (64, "mla.grouped")])
def test_wide_structures_meet_the_reference(arch: str, heads: int, candidate: str) -> None:
    """With accumulation registers, and on the arch that has them, loads that pass no registers and wide products."""
    composition, artifact = served(arch, num_heads=heads, candidate=candidate, max_seqlen_k=70, num_seg=1)
    report = judged(composition, artifact, "ragged", (Runner(MachineExecutor()),))
    assert report.status == "pass", report.findings


@pytest.mark.parametrize(("arch", "kv_dtype"), [("gfx942", "f8E4M3FNUZ"), ("gfx950", "f8E4M3FN")])
def test_a_cache_of_8_bit_floats_meets_the_reference(arch: str, kv_dtype: str) -> None:
    composition, artifact = served(arch, **SMALL, kv_dtype=kv_dtype)
    report = judged(composition, artifact, "ragged", (Runner(MachineExecutor()),))
    assert report.status == "pass", report.findings


def test_prefill_meets_the_reference() -> None:
    changes: dict[str, Any] = {"num_heads": 1, "absorbed_query": False, "max_seqlen_q": 20, "total_q": 30}
    composition, artifact = served("gfx942", num_seg=0, **changes)
    report = judged(composition, artifact, "ragged", (Runner(MachineExecutor()),))
    assert report.status == "pass", report.findings


def messages(composition: Composition, artifact: Artifact) -> str:
    return told(judged(composition, artifact, "ragged", (Runner(MachineExecutor()),)))


def found_kinds(composition: Composition, artifact: Artifact, places: Iterable[dict[int, int]]) -> list[str]:
    """Return what is found of each of several faults: the kind of the first finding, `wrong` outputs, or nothing."""
    executor = MachineExecutor()
    return [kind_found(composition, edited(artifact, place), "ragged", executor) for place in places]


def of(artifact: Artifact, format_: str, *opcodes: int) -> list[Encoded]:
    found = [each for each in instructions(artifact) if each.format == format_ and each.opcode in opcodes]
    assert found
    return found


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_a_wait_that_is_taken_out_is_found(arch: str) -> None:
    """Waits spread over the code, of both kinds of accesses; what is read is told by name."""
    composition, artifact = served(arch, **SMALL)
    waits = of(artifact, "SOPP", WAIT)
    places = [{each.offset: NOP} for each in waits[4:-6:7]]
    assert len(places) >= 6
    assert set(found_kinds(composition, artifact, places)) <= {"outstanding", "race"}
    told = messages(composition, edited(artifact, places[0]))
    assert "which a load is still writing: nothing waits for it" in told and "at offset 0x" in told


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_waits_that_one_request_does_not_reach_are_found_with_another(arch: str) -> None:
    """The last waits are on the ways of whole outputs and of segments: each is found where its way is gone."""
    whole, parts = served(arch, **SMALL), served(arch, **{**SMALL, "num_seg": 2})
    places = [{each.offset: NOP} for each in of(whole[1], "SOPP", WAIT)[-7:]]
    alone, apart = (found_kinds(*request, places) for request in (whole, parts))
    assert alone.count("") == 3 and apart.count("") == 2
    assert {one or other for one, other in zip(alone, apart, strict=True)} == {"outstanding"}


def test_a_load_to_workgroup_memory_that_nothing_waits_for_is_found() -> None:
    """Where tiles pass no registers, the wait for them is all that keeps readers from what is not there yet."""
    wide: dict[str, Any] = {"num_heads": 128, "candidate": "mla.pipelined", "num_seg": 1}
    composition, artifact = served("gfx950", **wide)
    assert any(each.fields["lds"] for each in of(artifact, "MUBUF", 23))
    waits = [each for each in of(artifact, "SOPP", WAIT) if counts_of_wait(each.fields["simm16"]) == (0, 0)]
    told = messages(composition, edited(artifact, {waits[0].offset: NOP}))
    assert "workgroup memory that a load is still writing: its wave has not waited for it" in told


def test_a_barrier_that_is_taken_out_is_a_race_that_names_both_waves() -> None:
    composition, artifact = served("gfx942", **SMALL)
    for each in of(artifact, "SOPP", 10):
        told = messages(composition, edited(artifact, {each.offset: NOP}))
        assert "workgroup memory that wave" in told and "[race]" in told


def test_wait_states_that_are_taken_out_are_found() -> None:
    composition, artifact = served("gfx942", **SMALL)
    idle = [each for each in of(artifact, "SOPP", 0) if each.fields["simm16"]]
    places = [{each.offset: NOP} for each in idle[::8]]
    assert len(places) > 3
    assert set(found_kinds(composition, artifact, places)) == {"wait_states"}


def test_a_lane_swizzle_that_is_changed_is_wrong() -> None:
    """Each exchanges rows that a maximum or a sum is taken over: with others, outputs leave their tolerance."""
    composition, artifact = served("gfx942", **SMALL)
    swizzles = of(artifact, "DS", 61)
    places = [{each.offset: (each.bits & 0xFFFFFFFF) ^ 0x0400} for each in swizzles]
    assert found_kinds(composition, artifact, places).count("wrong") >= 2


def test_a_register_that_is_changed_is_found() -> None:
    """A fragment read to another register, one at another offset of workgroup memory, and a source never written."""
    composition, artifact = served("gfx942", **SMALL)
    reads = of(artifact, "DS", 255)
    [moved] = found_kinds(composition, artifact, [{reads[0].offset + 4: (reads[0].bits >> 32) ^ 1 << 26}])
    assert moved in ("wrong", "outstanding", "uninitialised")
    [shifted] = found_kinds(composition, artifact, [{reads[2].offset: (reads[2].bits & 0xFFFFFFFF) ^ 0x10}])
    assert shifted == "wrong"


def test_an_access_past_workgroup_memory_and_a_misaligned_one_stop() -> None:
    composition, artifact = served("gfx942", **SMALL)
    read = of(artifact, "DS", 255)[0]
    low = read.bits & 0xFFFF0000
    assert "past the" in messages(composition, edited(artifact, {read.offset: low | 0xFFF0}))
    assert "no multiple of 16" in messages(composition, edited(artifact, {read.offset: low | 0x0008}))


def test_an_instruction_that_is_not_modelled_stops_with_its_words_and_its_place() -> None:
    """v_cubeid_f32, which is of pictures, in the place of another; what comes before it has run."""
    composition, artifact = served("gfx942", **SMALL)
    each = next(each for each in instructions(artifact) if each.format == "VOP3" and each.opcode == 510)
    word = (each.bits & 0xFFFFFFFF) ^ (510 ^ 452) << 16
    told = messages(composition, edited(artifact, {each.offset: word}))
    assert f"VOP3 opcode 452 ({word:08X}" in told and f"at offset {each.offset:#x}" in told


def test_the_words_as_they_are_show_no_fault() -> None:
    """The control of all of the above: an object that was taken apart and put together again unchanged."""
    composition, artifact = served("gfx942", **SMALL)
    assert messages(composition, edited(artifact, {})) == ""


def test_what_ran_is_counted_and_told() -> None:
    """Of a launch of one workgroup with 40 keys and 16 heads: products by hand, two products of 16 heads a key tile."""
    composition, artifact = served("gfx942", **SMALL, num_seqs=1, total_q=1)
    executor = MachineExecutor()
    judged(composition, artifact, "single_key", (Runner(executor),))
    [launch] = executor.executed
    waves = launch.by_name["s_endpgm"]
    assert waves == 4 and launch.by_name["s_barrier"] % waves == 0
    assert launch.products == launch.by_name["v_mfma_f32_16x16x16_bf16"] * 16 * 16 * 16 > 0
    assert launch.lane_operations % 64 == 0 and launch.instructions > launch.lane_operations // 64
    [note] = executor.notes
    assert note.startswith("launches of machine code: 1, in ") and MachineExecutor().notes == ()


def test_an_executor_of_machine_code_needs_some() -> None:
    """A plan has none, and an arch may not say how its own is run."""
    composition, artifact = served("gfx942", **SMALL)
    scenario = next(each for each in composition.scenarios(artifact.plan.request) if each.name == "ragged")
    inputs = scenario.inputs()
    bound = bind(artifact.plan, {**inputs, **written_memory(artifact.plan, inputs)}, executor=MachineExecutor())
    with pytest.raises(BindError, match="no machine code to run"):
        bound()
    silent = attrs.evolve(composition.arch, machine=None)
    first = artifact.kernels[0]
    with pytest.raises(BindError, match="does not say how its machine code is run"):
        MachineExecutor().launch(first.object, first.symbol, silent, (1, 1, 1), 256, (), ())
