"""Code objects of another compiler, as it wrote them: Triton's run on the executor and give what numpy gives in fp64.

`tests/triton` holds the objects, the problems they are launched on, and what made them (`tools/compile_triton.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kinfolk.plugins.faults import UnknownPlugin
from kinfolk.plugins.loading import load
from kinfolk_amdgcn.codeobject import read_code_object
from kinfolk_runtime.comparison import Problem, read_problem
from kinfolk_runtime.comparison.sides import run_object
from kinfolk_runtime.isa import MachineExecutor

pytestmark = [pytest.mark.simulate, pytest.mark.needs("gfx942", "gfx950")]

FOLDER = Path(__file__).parent / "triton"
MADE = json.loads((FOLDER / "objects.json").read_text())
OBJECTS: list[str] = sorted(MADE["objects"])
Arrays = dict[str, Any]


def product(given: Arrays) -> Arrays:
    return {"c": given["a"] @ given["b"]}


def softmax(x: Any) -> Any:
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def layer_norm(given: Arrays) -> Arrays:
    x = given["x"]
    scaled = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    return {"out": scaled * given["weight"] + given["bias"]}


def attention(given: Arrays, causal: bool) -> Arrays:
    q, k, v = given["q"], given["k"], given["v"]
    scores = q @ k.swapaxes(1, 2) * q.shape[-1] ** -0.5
    rows, keys = scores.shape[1:]
    seen = np.arange(keys) <= np.arange(rows)[:, None] + keys - rows
    return {"out": softmax(np.where(seen, scores, -np.inf) if causal else scores) @ v}


REFERENCES: dict[str, tuple[Callable[[Arrays], Arrays], float]] = {
    "add": (lambda given: {"out": given["x"] + given["y"]}, 2**-23),
    "softmax": (lambda given: {"out": softmax(given["x"])}, 2**-20),
    "layer_norm": (layer_norm, 2**-8),
    "matmul": (product, 2**-19),
    "matmul_tall": (product, 2**-19),
    "matmul_fp8": (product, 2**-19),
    "split_k": (product, 2**-19),
    "attention_64": (lambda given: attention(given, True), 2**-7),
    "attention_128": (lambda given: attention(given, False), 2**-7),
}
"""By name: the outputs in fp64, and how far they may lie apart over the largest: roundings of type and parts."""


def problem_of(name: str) -> tuple[Problem, str, str]:
    """Return an object's problem, with the name of its case and its arch."""
    case, _, arch = name.rpartition("-")
    kept = case.replace("matmul_tall", "matmul")
    files = (FOLDER / f"{name}.toml", FOLDER / f"{kept}.toml")
    return read_problem(next(file for file in files if file.exists())), case, arch


def largest_error(name: str, code: bytes, **changes: Any) -> float:
    """Run an object and return its error over the largest value, or infinity where it did not run."""
    problem, case, arch = problem_of(name)
    arrays = problem.arrays() | changes
    access = {tensor.name: tensor.access for tensor in problem.tensors.values()}
    launch = problem.launch_of("a", Path(f"{name}.hsaco"))
    machine = load("arch", arch).plugin.kinfolk_arch()
    side = run_object(name, code, machine, launch, arrays, access, traced=False)
    assert not side.findings, side.findings
    wide = {each: array.astype(np.float64) for each, array in arrays.items()}
    expected = REFERENCES[case][0](wide)
    assert set(expected) == set(side.outputs)
    [(output, value)] = expected.items()
    return float(np.abs(side.outputs[output].astype(np.float64) - value).max() / np.abs(value).max())


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_of_triton_runs_as_it_is_and_gives_what_numpy_gives(name: str) -> None:
    code = (FOLDER / f"{name}.hsaco").read_bytes()
    assert largest_error(name, code) <= REFERENCES[name.rpartition("-")[0]][1]


@pytest.mark.parametrize("name", OBJECTS)
def test_the_objects_are_those_that_were_made_and_are_launched_as_they_were_compiled(name: str) -> None:
    made, code = MADE["objects"][name], (FOLDER / f"{name}.hsaco").read_bytes()
    assert hashlib.sha256(code).hexdigest() == made["sha256"]
    problem, _, arch = problem_of(name)
    launch = problem.launch_of("a", Path(f"{name}.hsaco"))
    assert (launch.shape.block, launch.shape.dynamic_bytes) == ((made["block"], 1, 1), made["dynamic_bytes"])
    [kernel] = read_code_object(code).kernels.values()
    assert kernel.processor == arch and len(launch.arguments) == len(made["arguments"]) + 2


def test_both_archs_have_every_case_and_every_matrix_instruction_that_triton_makes_for_them() -> None:
    cases = [name.rpartition("-") for name in OBJECTS]
    assert {case for case, _, arch in cases if arch == "gfx942"} == {
        case for case, _, arch in cases if arch == "gfx950"
    }
    assert {case for case, _, _ in cases} == set(REFERENCES)


def test_an_object_whose_words_are_changed_is_wrong() -> None:
    """The control: an f32 addition that became a subtraction, and a product of the wrong register."""
    code = (FOLDER / "add-gfx942.hsaco").read_bytes()
    whole = read_code_object(code).functions["add"]
    words = np.frombuffer(whole, np.uint32).copy()
    additions = np.flatnonzero((words >> 25) == 0b0000001)  # v_add_f32, a VOP2
    assert len(additions)
    words[additions] ^= (1 ^ 2) << 25  # v_sub_f32
    assert largest_error("add-gfx942", code) <= 2**-23
    assert largest_error("add-gfx942", code.replace(whole, words.tobytes())) > 0.5


def test_the_reference_sees_an_input_that_is_changed() -> None:
    problem, _, _ = problem_of("matmul_fp8-gfx942")
    code = (FOLDER / "matmul_fp8-gfx942.hsaco").read_bytes()
    a = problem.arrays()["a"]
    assert a.dtype == ml_dtypes.float8_e4m3fnuz
    assert largest_error("matmul_fp8-gfx942", code, a=np.flip(a, axis=1).copy()) <= 2**-19


def test_an_object_is_launched_on_an_arch_or_on_the_name_of_one() -> None:
    problem, _, arch = problem_of("add-gfx942")
    launch, code = problem.launch_of("a", Path("add-gfx942.hsaco")), (FOLDER / "add-gfx942.hsaco").read_bytes()
    for each in (arch, load("arch", arch).plugin.kinfolk_arch()):
        tensors = problem.arrays()
        given = [tensors[name] if isinstance(name, str) else name.value for name in launch.arguments]
        executed = MachineExecutor(traced=True).launch_object(code, each, launch.shape, given)
        assert np.abs(tensors["out"] - (tensors["x"] + tensors["y"])).max() <= 2**-23
        assert executed.trace and len(repr(executed)) < 10_000  # an executed launch prints without its object
    with pytest.raises(UnknownPlugin, match="gfx90a"):
        MachineExecutor().launch_object(code, "gfx90a", launch.shape, [])
