"""`inspect` on the kernels of MLA: the cold block is the one that the kernel marks, told by what its IR has in it."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner

from kinfolk.errors import Refused
from kinfolk.ir.types import VectorType
from kinfolk.ir.value import Kernel, Operation
from kinfolk.plugins.composition import Composition, compose
from kinfolk.spec import Spec
from kinfolk_mla.spec import MlaSpec
from kinfolk_runtime.cli.inspect import command
from kinfolk_runtime.compilation import compile_specs
from kinfolk_runtime.inspection import InspectedKernel, inspect_function, inspect_spec
from kinfolk_runtime.inspection.files import functions_in
from kinfolk_runtime.spec_space import spec_space

FLAVOR = "llvm22"
ARCHS = ("gfx942", "gfx950")
FEW, DECODE = "mla_decode_idle_bf16", "mla_decode_bf16"
PIPELINED, GROUPED = "mla_pipelined_bf16", "mla_grouped_bf16"
pytestmark = [pytest.mark.compile, pytest.mark.needs("mla", "gfx942")]


@functools.cache
def composed(arch: str) -> Composition:
    return compose("mla", arch)


@functools.cache
def spec_of(arch: str, kind: str, page_size: int = 16) -> Spec:
    """Return the spec whose symbol begins with a kind, such as `mla_decode_idle_bf16`, and that counts such pages."""
    every = [each for each in spec_space(composed(arch), FLAVOR) if each.symbol().startswith(f"{kind}_")]
    [found] = [each for each in every if attrs.asdict(each)["page_size"] == page_size]
    return found


@functools.cache
def inspected(arch: str, kind: str, page_size: int = 16) -> InspectedKernel:
    return inspect_spec(composed(arch), spec_of(arch, kind, page_size), FLAVOR, mca=False)


def exponentials(operations: list[Operation]) -> int:
    """Return how many transcendental instructions a lane runs for these."""
    every = [op for op in operations if op.definition.issue == "transcendental"]
    return sum(op.results[0].type.count if isinstance(op.results[0].type, VectorType) else 1 for op in every)


def inside(region_owner: Operation) -> Iterator[Operation]:
    for region in region_owner.regions:
        for op in region.operations:
            yield op
            yield from inside(op)


def main_loop_of(kernel: Kernel) -> tuple[list[Operation], list[Operation]]:
    """Return the operations of the loop with matrix operations in the IR: those in its cold branch, and the others."""
    [loop] = [
        op for op in kernel.walk() if op.name == "core.for" and any(o.definition.issue == "matrix" for o in inside(op))
    ]
    every = list(inside(loop))
    [cold] = [op for op in every if op.attributes.get("cold")]
    held = list(inside(cold))
    return held, [op for op in every if not any(op is other for other in held)]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("kind", [FEW, DECODE, PIPELINED, GROUPED])
def test_the_cold_block_has_what_the_cold_branch_of_the_ir_has(arch: str, kind: str) -> None:
    """The correction of maxima needs one exponential an atom of heads, the weights of a tile one per score.

    All products are hot.
    """
    found, spec = inspected(arch, kind), spec_of(arch, kind)
    assert isinstance(spec, MlaSpec)
    atoms = spec.rows_per_wave // spec.atom_heads
    cold, others = main_loop_of(composed(arch).emit(spec))
    assert found.hot is not None and found.every is not None and found.loop is not None
    hot, every = found.hot.to_dict(), found.every.to_dict()
    assert hot["issued"]["transcendental"] == exponentials(others) > atoms
    assert every["issued"]["transcendental"] - hot["issued"]["transcendental"] == exponentials(cold) == atoms
    assert hot["issued"]["matrix"] == every["issued"]["matrix"] == sum(o.definition.issue == "matrix" for o in others)
    assert found.loop.rule == "named" and [block.source.partition(".")[0] for block in found.loop.cold] == ["cold"]
    assert found.hot.clocks["llvm"] < found.every.clocks["llvm"]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("kind", [DECODE, PIPELINED, GROUPED])
def test_an_object_says_by_its_layout_what_the_assembly_says_by_name(arch: str, kind: str, tmp_path: Path) -> None:
    spec, marked = spec_of(arch, kind), inspected(arch, kind)
    (compiled,) = compile_specs([spec], FLAVOR, composition=composed(arch))
    path = tmp_path / "kernel.o"
    path.write_bytes(compiled.object)
    [function] = functions_in(path, compiled.object, composed(arch).arch, {})
    read = inspect_function(function, composed(arch).arch, work=spec.work_per_round(), mca=False)
    assert read.every is not None and marked.every is not None and read.hot is not None and marked.hot is not None
    assert read.every.to_dict() == marked.every.to_dict()
    assert read.hot.to_dict() == marked.hot.to_dict()
    assert read.loop is not None and (read.loop.rule, len(read.loop.cold)) == ("layout", 1)
    same = {"vgpr", "agpr", "lds_bytes", "scratch_bytes", "waves_per_simd", "workgroups_per_cu", "parked", "sgpr"}
    assert {name: read.figures[name] for name in same} == {name: marked.figures[name] for name in same}


@pytest.mark.parametrize(
    "arch, matrix, hot, every",
    [("gfx942", 1088, 1568, 1968), ("gfx950", 800, 1168, 1572)],
)
def test_clocks_are_near_those_that_were_recorded(arch: str, matrix: float, hot: float, every: float):
    """Recorded from a program of others with the same latencies; another build of the compiler may move them a little.

    The matrix unit's are exact: 68 products of 4 passes on one arch, 18 of 4 and 16 of 8 on the other, whichever way.
    """
    found = inspected(arch, DECODE)
    assert found.hot is not None and found.every is not None
    assert found.hot.matrix_clocks == matrix
    assert found.hot.clocks["llvm"] == pytest.approx(hot, rel=0.1)
    assert found.every.clocks["llvm"] == pytest.approx(every, rel=0.1)


@pytest.mark.parametrize("arch", ARCHS)
def test_rates_follow_from_clocks_waves_tokens_and_heads(arch: str) -> None:
    found, few = inspected(arch, DECODE), inspected(arch, FEW)
    document = found.to_dict()
    assert document["work"] == {"tokens": 16, "heads": 64}
    assert document["clocks_per_token_64h"] == document["loop"]["hot"]["clocks"]["llvm"] * 4 / 4 / 16
    assert document["clocks_per_token_64h_all"] == document["loop"]["all"]["clocks"]["llvm"] / 16
    assert document["matrix_share"] == round(
        document["loop"]["matrix_clocks"] / document["loop"]["all"]["clocks"]["llvm"], 4
    )
    assert few.to_dict()["work"] == {"tokens": 16, "heads": 64}, "how many of its rows there are is said at launch"


@pytest.mark.parametrize(
    "arch, kind, page_size, matrix, most",
    [
        ("gfx942", PIPELINED, 16, 68, 90),
        ("gfx942", GROUPED, 16, 68, 98),
        ("gfx950", PIPELINED, 16, 34, 42),
        ("gfx950", GROUPED, 16, 34, 46),
        ("gfx950", PIPELINED, 32, 34, 42),
        ("gfx950", GROUPED, 32, 34, 46),
    ],
)
def test_the_wide_kernels_keep_the_matrix_unit_busy(
    arch: str, kind: str, page_size: int, matrix: float, most: float
) -> None:
    """A token of 64 heads is 64 * 2 * (576 + 512) operations; in a clock four SIMDs do 2,048, or 4,096."""
    found = inspected(arch, kind, page_size)
    rates = found.rates()
    hot, every = rates["clocks_per_token_64h"], rates["clocks_per_token_64h_all"]
    assert hot is not None and every is not None
    assert rates["clocks_per_token_64h_matrix"] == matrix == 64 * 2 * (576 + 512) / (4096 if arch == "gfx950" else 2048)
    assert matrix < hot <= most and hot < every
    assert (found.figures["scratch_bytes"], found.scratch_ops) == (0, 0)


@pytest.mark.parametrize(
    "arch, kind, most",
    [
        ("gfx942", "mla_pipelined_f8e4m3fnuz", 90),
        ("gfx942", "mla_grouped_f8e4m3fnuz", 98),
        ("gfx950", "mla_pipelined_f8e4m3fn", 72),
        ("gfx950", "mla_grouped_f8e4m3fn", 78),
    ],
)
def test_widening_hides_beside_matrix_operations(arch: str, kind: str, most: float) -> None:
    """Within what bf16 is held to where that passes through registers too."""
    found = inspected(arch, kind)
    hot = found.rates()["clocks_per_token_64h"]
    assert hot is not None and hot <= most
    assert (found.figures["scratch_bytes"], found.scratch_ops) == (0, 0)


def test_an_arch_that_declares_no_machine_refuses_and_says_what_it_lacks() -> None:
    arch = composed("gfx942").arch
    bare = attrs.evolve(arch, machine=None, facts=arch.facts)
    with pytest.raises(Refused) as caught:
        bare.machine_code(b"s_nop 0")
    [refusal] = caught.value.refusals
    assert (refusal.code, refusal.value) == ("arch.machine", "gfx942")


def ran(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(command, list(words))
    return result.exit_code, result.stdout, result.stderr


REQUEST = ["num_heads=128", "num_seqs=3", "total_q=3", "max_seqlen_q=1", "max_seqlen_k=777", "absorbed_query=true"]


def test_the_document_of_a_request() -> None:
    status, printed, _ = ran("mla", "--arch", "gfx942", "--no-mca", "--json", *REQUEST)
    document = json.loads(printed)
    assert (status, document["schema"], document["status"]) == (0, "kinfolk.inspect/1", "pass")
    assert document["request"]["num_heads"] == 128
    kernel, combine = document["kernels"]
    assert combine["loop"]["matrix_clocks"] == 0 and combine["clocks_per_token_64h"] is None
    assert kernel["spec_digest"] and kernel["loop"]["cold_rule"] == "named"
    assert kernel["loop"]["hot"]["clocks"]["mca"] is None and kernel["loop"]["hot"]["mca_note"] == "not asked"
    assert 0 < kernel["matrix_share"] < kernel["matrix_share_hot"] < 1


def test_a_file_by_its_target_with_tokens_and_heads(tmp_path) -> None:
    path = tmp_path / "loop.s"
    path.write_text(
        '.amdgcn_target "amdgcn-amd-amdhsa--gfx950"\n.type k,@function\nk:\ns_mov_b32 s0, 0\nagain:\n'
        "v_mfma_f32_32x32x16_bf16 a[0:15], v[0:3], v[4:7], a[0:15]\ns_cbranch_scc1 again\ns_endpgm\n"
    )
    status, printed, _ = ran(str(path), "--tokens", "32", "--heads", "32", "--waves", "4", "--no-mca", "--json")
    [kernel] = json.loads(printed)["kernels"]
    assert (status, kernel["symbol"], kernel["target"], kernel["matrix_share"]) == (0, "k", "gfx950", 1.0)
    assert kernel["clocks_per_token_64h"] == 32 / (32 * 32 / 64), "32 clocks a round, on each SIMD"
    assert ran(str(path), "--no-mca", "--kernel", "other")[0] == 2
    assert ran(str(path), "--no-mca", "--arch", "gfx950")[0] == 0
    status, printed, said = ran(str(path), "--no-mca", "--arch", "gfx942")
    assert status == 1 and "is for gfx950, not for gfx942" in printed + said


@pytest.mark.parametrize(
    "words, status, told",
    [
        (["mla"], 2, "--arch"),
        (["mla", "--arch", "gfx942", "--tokens", "16"], 2, "--tokens"),
        (["nowhere/kernel.s"], 1, "cannot read nowhere/kernel.s"),
        (["README.md", "num_heads=16"], 2, "--tokens and --heads"),
        (["README.md"], 1, "names no processor"),
        (["mla", "--arch", "gfx1"], 1, "gfx1"),
    ],
)
def test_what_cannot_be_inspected_is_told(monkeypatch, words, status, told) -> None:
    monkeypatch.chdir(Path(__file__).parent.parent)
    code, printed, said = ran(*words)
    assert code == status and told in printed + said
