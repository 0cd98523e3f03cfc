"""`kinfolk compare`: two code objects, or a family's kernels and an object, on one problem.

The oracles of outputs are the family's fp64 reference and another compiler's object; wrong objects are planted.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from click.testing import CliRunner, Result

from kinfolk.dispatch import selections
from kinfolk.plugins.composition import compose
from kinfolk_amdgcn.codeobject import read_code_object
from kinfolk_amdgcn.isa.encoding import decoded
from kinfolk_mla.request import MlaRequest
from kinfolk_runtime.binder import bind
from kinfolk_runtime.cli.compare import command
from kinfolk_runtime.comparison import ProblemError, read_problem
from kinfolk_runtime.compilation import compile as compile_plan
from kinfolk_runtime.isa import MachineExecutor
from kinfolk_runtime.verify import written_memory

pytestmark = pytest.mark.needs("mla", "gfx942", "gfx950")
runs = pytest.mark.simulate
compiles = pytest.mark.compile

TRITON = Path(__file__).parent / "triton"
WORDS = "num_heads=16 num_seqs=2 total_q=2 max_seqlen_q=1 max_seqlen_k=40 absorbed_query=true"
NOP = 0xBF800000


def compared(*words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


def document(*words: object) -> tuple[int, Any]:
    result = compared(*words, "--json")
    return result.exit_code, json.loads(result.stdout)


@runs
def test_two_objects_of_one_product_agree_and_differ_in_what_they_do() -> None:
    """Triton's tiles of 32 and of 64 rows, of 70 by 100: 3 and 2 workgroups along rows, each of 2 along columns."""
    sides = [TRITON / f"{name}-gfx942.hsaco" for name in ("matmul", "matmul_tall")]
    status, found = document(*sides, "--problem", TRITON / "matmul.toml")
    assert (status, found["schema"], found["status"], found["arch"]) == (0, "kinfolk.compare/1", "pass", "gfx942")
    [output] = found["outputs"]
    assert (output["output"], output["elements"], output["status"]) == ("c", 3500, "pass")
    [a], [b] = found["a"]["launches"], found["b"]["launches"]
    assert (a["kernel"], a["workgroup_memory"], b["workgroup_memory"]) == ("matmul", 2048, 4096)
    assert a["matrix_products"] > b["matrix_products"] >= 2 * 2 * 64 * 32 * 128
    assert a["bytes_written"] == b["bytes_written"] == 70 * 50 * 4
    assert {"instructions", "lane_operations", "bytes_read", "conflict_clocks", "clocks", "vgpr", "sgpr"} <= set(a)
    assert a["clocks"] > 0 and a["bound"]


@runs
def test_the_same_object_twice_differs_in_nothing() -> None:
    side = TRITON / "softmax-gfx950.hsaco"
    _, found = document(side, side, "--problem", TRITON / "softmax.toml")
    assert found["a"]["launches"] == found["b"]["launches"]
    assert [(each["differing"], each["largest_difference"]) for each in found["outputs"]] == [(0, 0.0)]
    table = compared(side, side, "--problem", TRITON / "softmax.toml").stdout
    assert "softmax-gfx950.hsaco (A) and softmax-gfx950.hsaco (B): pass" in table


def without_wait(code: bytes, symbol: str, number: int) -> bytes:
    """Return an object of which one wait is an s_nop."""
    whole = read_code_object(code).functions[symbol]
    waits = [each.offset for each in decoded(whole) if each.format == "SOPP" and each.opcode == 12]
    at = waits[number]
    return code.replace(whole, whole[:at] + NOP.to_bytes(4, "little") + whole[at + 4 :])


@runs
def test_a_planted_wrong_object_fails(tmp_path: Path) -> None:
    """One addition is a subtraction, which no rule of the machine sees; one wait is taken out, which one does."""
    kept = (TRITON / "add-gfx942.hsaco").read_bytes()
    whole = read_code_object(kept).functions["add"]
    words = np.frombuffer(whole, np.uint32).copy()
    words[np.flatnonzero(words >> 25 == 1)] ^= (1 ^ 2) << 25  # v_add_f32 to v_sub_f32
    wrong, hasty = tmp_path / "wrong.hsaco", tmp_path / "hasty.hsaco"
    wrong.write_bytes(kept.replace(whole, words.tobytes()))
    hasty.write_bytes(without_wait(kept, "add", -1))
    problem = ("--problem", TRITON / "add.toml")
    status, found = document(TRITON / "add-gfx942.hsaco", wrong, *problem)
    assert (status, found["status"]) == (1, "fail")
    assert "1000 of 1000 elements lie outside the tolerance" in found["outputs"][0]["findings"][0]["message"]
    status, found = document(hasty, TRITON / "add-gfx942.hsaco", *problem)
    assert (status, found["a"]["status"], found["b"]["status"], found["outputs"]) == (1, "fail", "pass", [])
    assert "which a load is still writing: nothing waits for it" in found["a"]["findings"][0]["message"]
    assert compared(hasty, wrong, *problem).exit_code == 1


@runs
@compiles
def test_families_are_compared_by_their_reference_under_both_llvms() -> None:
    status, found = document(f"mla {WORDS}", f"mla@llvm20 {WORDS}", "--arch", "gfx942", "--scenario", "ragged")
    assert (status, found["problem"]) == (0, f"mla {WORDS}, scenario ragged")
    assert [(each["output"], each["differing"]) for each in found["outputs"]] == [("out", 0), ("lse", 0)]
    a, b = found["a"]["launches"], found["b"]["launches"]
    assert a[0]["kernel"] == b[0]["kernel"] and a[0]["matrix_products"] == b[0]["matrix_products"]


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a kernel of the family as an object of anybody, with a file that says how it is launched."""
    composition = compose("mla", "gfx942")
    request = MlaRequest(
        num_heads=16,
        num_seqs=2,
        total_q=2,
        max_seqlen_q=1,
        max_seqlen_k=40,
        absorbed_query=True,
        page_size=16,
        num_pages=8,
        dtype="bf16",
        kv_dtype="bf16",
        causal=True,
        scale=192**-0.5,
    )
    plan = selections.plan(composition, request, "llvm22")
    artifact = compile_plan(plan, composition=composition)
    scenario = next(each for each in composition.scenarios_of(plan) if each.name == "ragged")
    inputs = scenario.inputs()
    memory = written_memory(plan, inputs)
    seen: list[Any] = []

    class Noting(MachineExecutor):
        def run(self, work: Any) -> None:
            seen.append(work)

    bound = bind(artifact, {**inputs, **memory}, executor=Noting(), composition=composition)
    bound()
    [work] = seen
    launch = plan.launches[0]
    values = plan.arguments(launch, bound.tensors)
    words = [_argument(value, {*inputs, *memory}) for value in values]
    folder = tmp_path_factory.mktemp("emitted")
    (folder / "ours.o").write_bytes(artifact.kernels[0].object)
    lines = [
        "[launch]",
        f"grid = {list(work.grid)}",
        f"block = {work.kernel.block}",
        f"arguments = [{', '.join(words)}]",
    ]
    (folder / "launch.toml").write_text("\n".join(lines) + "\n")
    return folder / "ours.o", folder / "launch.toml"


def _argument(value: Any, tensors: set[str]) -> str:
    """Return an argument as a file has it; a workspace, which a request of one segment does not touch, is null."""
    if value.kind == "pointer":
        return json.dumps(value.value) if value.value in tensors else "{ null = true }"
    return f'{{ dtype = "{value.kind}", value = {value.value} }}'


@runs
@compiles
def test_an_object_takes_part_in_the_problem_of_a_family_and_a_wrong_one_fails(
    emitted: tuple[Path, Path], tmp_path: Path
) -> None:
    ours, problem = emitted
    common = ("--problem", problem, "--scenario", "ragged", "--arch", "gfx942")
    family = f"mla {WORDS} num_pages=8 scale={192**-0.5!r}"
    status, found = document(ours, family, *common)
    assert status == 0, found
    assert [each["differing"] for each in found["outputs"]] == [0, 0]
    assert found["a"]["launches"] == found["b"]["launches"]
    code = ours.read_bytes()
    [symbol] = read_code_object(code).kernels
    whole = read_code_object(code).functions[symbol]
    swizzle = next(each for each in decoded(whole) if each.format == "DS" and each.opcode == 61)
    changed = ((swizzle.bits & 0xFFFFFFFF) ^ 0x0400).to_bytes(4, "little")
    wrong = tmp_path / "wrong.o"
    wrong.write_bytes(code.replace(whole, whole[: swizzle.offset] + changed + whole[swizzle.offset + 4 :]))
    status, found = document(family, wrong, *common)
    assert (status, found["a"]["status"], found["b"]["status"]) == (1, "pass", "fail")


@runs
@compiles
@pytest.mark.needs("attention_fwd")
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_attention_of_a_family_and_of_triton_are_compared_on_the_problem_of_the_family(arch: str) -> None:
    """By one head of 80 queries and 100 keys; the control is the kernel whose queries see no later keys."""
    request = "attention_fwd layout=dense num_seqs=1 num_heads=1 num_kv_heads=1 max_seqlen_q=80 max_seqlen_k=100"
    theirs, words = TRITON / f"attention_128-{arch}.hsaco", "causal={} return_lse=false"
    problem = ("--problem", TRITON / "attention_fwd.toml")
    status, found = document(f"{request} {words.format('false')}", theirs, *problem)
    assert (status, [each["output"] for each in found["outputs"]]) == (0, ["out"]), found
    made = json.loads((TRITON / "objects.json").read_text())["objects"][theirs.stem]
    assert found["b"]["launches"][0]["workgroup_memory"] == made["dynamic_bytes"]
    status, found = document(f"{request} {words.format('true')}", theirs, *problem)
    assert (status, found["a"]["status"], found["b"]["status"]) == (1, "pass", "fail")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace('dtype = "f32"', 'dtype = "fp32"'), "tensor x: dtype: no numpy type holds 'fp32'"),
        (lambda text: text.replace("shape = [1000]", "shape = [0]", 1), r"tensor x: shape is \[0\]"),
        (lambda text: text.replace('"out"', '"written"', 1), "tensor out: access is 'written', it is in, out, inout"),
        (lambda text: text.replace("grid = 4", "grid = [1, 2, 3, 4]"), r"grid is \[1, 2, 3, 4\], it is one to three"),
        (lambda text: text.replace("grid = 4", "grids = 4"), "launch has grids, which is none of arguments, block"),
        (lambda text: text.replace("block = 256", ""), r"does not say its block: add it to \[launch\]"),
        (lambda text: text.replace("[tensors.x]", "[tensors.x]\nlow = 'a'"), "tensor x: low is 'a'"),
        (
            lambda text: text.replace("{ null = true }", "{ nul = true }", 1),
            "argument 4 has nul, which is none of dtype",
        ),
        (lambda text: text.replace("1000, {", '{ dtype = "i8", value = 1000 }, {', 1), "argument 3 is .*'value': 1000"),
        (lambda text: "seed = -1\n" + text, "seed is -1, it is an int from 0 on"),
        (lambda text: text + "=", "cannot be read"),
    ],
)
def test_a_problem_that_cannot_be_is_told(tmp_path: Path, change: Callable[[str], str], said: str) -> None:
    kept = (TRITON / "add.toml").read_text()
    file = tmp_path / "add.toml"
    file.write_text(change(kept))
    assert file.read_text() != kept
    with pytest.raises(ProblemError, match=said):
        read_problem(file).launch_of("a", Path("add-gfx942.hsaco"))
    file.write_text(kept)
    assert read_problem(file).launch_of("a", Path("add-gfx942.hsaco")).shape.grid == (4, 1, 1)


def test_the_problem_that_the_page_shows_is_read(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent / "docs" / "cli.md").read_text()
    [shown] = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "shown.toml").write_text(shown)
    problem = read_problem(tmp_path / "shown.toml")
    assert set(problem.arrays()) == {"a", "c"}
    common, own = (problem.launch_of("b", Path(f"{name}.hsaco")) for name in ("matmul", "matmul_tall-gfx942"))
    assert (common.shape.grid, common.shape.dynamic_bytes) == ((3, 2, 1), 0)
    assert (own.shape.grid, own.shape.dynamic_bytes, own.arguments) == ((2, 2, 1), 4096, common.arguments)


def test_files_and_sides_that_are_not_there_are_told(tmp_path: Path) -> None:
    side, other = TRITON / "add-gfx942.hsaco", TRITON / "add-gfx950.hsaco"
    problem = ("--problem", TRITON / "add.toml")
    short = tmp_path / "short.toml"
    short.write_text((TRITON / "add.toml").read_text().replace("{ null = true }, ", "", 1))
    unnamed = tmp_path / "unnamed.toml"
    unnamed.write_text((TRITON / "add.toml").read_text().replace('"y", ', '"z", ', 1))
    for words, status, said in (
        ((side, tmp_path / "none.o", *problem), 2, "there is no file"),
        ((side, side), 2, "two objects are compared on a --problem"),
        ((side, other, *problem), 1, "both sides run on one arch"),
        ((side, other, *problem, "--arch", "gfx942"), 1, "is for gfx950, not for gfx942"),
        ((side, side, "--problem", tmp_path / "none.toml"), 1, "cannot be read"),
        ((side, side, "--problem", short), 1, "takes 6 arguments"),
        ((side, side, "--problem", unnamed), 1, "argument 1 is z; there are x, y, out"),
        (("mla num_heads=16", "mla num_heads=16"), 2, "families are compared on an --arch"),
        ((side, "mla num_heads=16", "--arch", "gfx942"), 1, "missing: num_seqs"),
    ):
        result = compared(*words)
        assert result.exit_code == status, result.output
        assert said in result.output.replace("\n", " ")
        if status == 1:
            assert document(*words)[1]["refusals"]


def test_tensors_are_filled_as_the_file_says(tmp_path: Path) -> None:
    np.save(tmp_path / "kept.npy", np.arange(6, dtype=np.int32).reshape(2, 3))
    file = tmp_path / "p.json"
    tensors = {
        "kept": {"dtype": "i32", "shape": [2, 3], "file": "kept.npy"},
        "drawn": {"dtype": "i32", "shape": [500], "fill": "uniform", "low": 3, "high": 5},
        "small": {"dtype": "bf16", "shape": [500], "scale": 0.01},
        "counted": {"dtype": "f32", "shape": [4], "fill": "index"},
        "one": {"dtype": "f16", "shape": [4], "fill": "ones", "scale": 2},
    }
    file.write_text(json.dumps({"tensors": tensors, "seed": 3}))
    problem = read_problem(file)
    arrays = problem.arrays()
    assert arrays["kept"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert set(arrays["drawn"].tolist()) == {3, 4, 5}
    assert 0.005 < arrays["small"].astype(float).std() < 0.02
    assert (arrays["counted"].tolist(), arrays["one"].tolist()) == ([0, 1, 2, 3], [2, 2, 2, 2])
    assert all((arrays[name] == again).all() for name, again in problem.arrays().items())
    other = attrs.evolve(problem, seed=4).arrays()
    assert (other["small"] != arrays["small"]).any()
    shutil.copy(tmp_path / "kept.npy", tmp_path / "p.npy")
    file.write_text(json.dumps({"tensors": {"kept": {"dtype": "i32", "shape": [3, 2], "file": "p.npy"}}}))
    with pytest.raises(ProblemError, match=r"tensor kept is i32 of shape \(3, 2\); .* holds int32 of \(2, 3\)"):
        read_problem(file).arrays()
