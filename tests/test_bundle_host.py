"""The C++ reader of bundles: the example host launches a hundred steps as Python would, and damage is told."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kinfolk
from kinfolk.errors import BindError, NoCandidate
from kinfolk.expr import TensorGeometry
from kinfolk_runtime import bind
from kinfolk_runtime.artifact import argument_layout
from kinfolk_runtime.bundles.document import digest_of, text_of
from kinfolk_runtime.packing import packed

ROOT = Path(__file__).resolve().parent.parent
KINFOLK = Path(sys.executable).parent / "kinfolk"
pytestmark = [pytest.mark.compile, pytest.mark.needs("mla", "gfx942")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("host") / "mla"
    command = [KINFOLK, "emit", "mla", "--arch", "gfx942", "--stage", "bundle", "--all", "-o", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return place


def steps_of(printed):
    """Return what the host printed per step: the request, tensors by name, launches, refusals."""
    steps = []
    for line in printed.splitlines():
        word, _, rest = line.partition(" ")
        if word == "step":
            steps.append({"request": rest, "tensor": {}, "launch": [], "refused": []})
        elif word == "tensor":
            name, address = rest.split()
            steps[-1]["tensor"][name] = int(address)
        elif word in ("launch", "refused"):
            steps[-1][word].append(rest)
    return steps


def request_of(text):
    from kinfolk_mla.request import MlaRequest

    words = re.findall(r"(\w+)=('[^']*'|[^,)]+)", text.partition("(")[2])
    return MlaRequest(**{name: ast.literal_eval(value) for name, value in words})


def expected_of(step):
    """Return the launches that Python would make of a step, as the host prints them, or its refusals."""
    request = request_of(step["request"])
    assert str(request) == step["request"]
    try:
        plan = kinfolk.dispatch(request, "gfx942")
    except NoCandidate as error:
        return [], [f"{refusal.code} {refusal.sentence}" for refusal in error.refusals]
    width = request.num_pages // request.num_seqs
    geometries = {"block_table": TensorGeometry.contiguous((request.num_seqs, width))}
    launches = []
    for launch in plan.launches:
        values = plan.arguments(launch, geometries)
        block = packed(values, argument_layout(launch.spec.parameters()), step["tensor"])
        grid = plan.grid(launch, geometries)
        if 0 not in grid:
            launches.append(f"{launch.spec.symbol()} {' '.join(map(str, grid))} {launch.block} {block.hex()}")
    return launches, []


def test_a_host_without_python_launches_a_hundred_steps_as_python_does(folder, built_cpp):
    program = built_cpp(ROOT / "demos" / "host" / "host.cpp")
    done = subprocess.run([str(program), str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    steps = steps_of(done.stdout)
    assert len(steps) == 100
    for step in steps:
        assert (step["launch"], step["refused"]) == expected_of(step)
    assert {len(step["launch"]) for step in steps} == {0, 1, 2}, "refused, in one segment, in several"
    refused = [step for step in steps if step["refused"]]
    assert len(refused) == 14
    assert {line.split()[0].rpartition(".")[2] for step in refused for line in step["refused"]} >= {
        "page_size",
        "num_seqs",
    }


MIXED = {
    "num_heads": 32,
    "num_seqs": 3,
    "total_q": 3,
    "max_seqlen_q": 1,
    "max_seqlen_k": 70,
    "absorbed_query": True,
    "page_size": 16,
    "num_pages": 15,
    "dtype": "bf16",
    "kv_dtype": "bf16",
    "causal": True,
    "scale": 0.0625,
}


def arrays():
    """Return whole tensors for the request, at addresses of 256 bytes."""
    from kinfolk.check.element import numpy_dtype

    shapes = {
        "qa": ("bf16", (3, 32, 576)),
        "c_kv": ("bf16", (15, 16, 512)),
        "k_rope": ("bf16", (15, 16, 64)),
        "cu_seqlens_q": ("i32", (4,)),
        "cu_seqlens_k": ("i32", (4,)),
        "block_table": ("i32", (3, 5)),
        "status": ("i32", (1,)),
        "out": ("bf16", (3, 32, 512)),
        "lse": ("f32", (3, 32)),
        "part_out": ("f32", (0, 3, 32, 512)),
        "part_ml": ("f32", (0, 3, 32, 2)),
    }
    found = {}
    for name, (dtype, shape) in shapes.items():
        element = numpy_dtype(dtype)
        memory = np.zeros(int(np.prod(shape)) * element.itemsize + 1024, np.uint8)
        begin = -memory.ctypes.data % 256
        found[name] = memory[begin : begin + int(np.prod(shape)) * element.itemsize].view(element).reshape(shape)
    return found


def shifted(array):
    flat = np.zeros(array.size + 256, array.dtype)
    begin = -flat.ctypes.data % 256 // array.itemsize + 1
    return flat[begin : begin + array.size].reshape(array.shape)


def wider(array, axis=0):
    shape = list(array.shape)
    shape[axis] += 1
    return np.zeros(shape, array.dtype)


DAMAGE = {
    "nothing": lambda given: {},
    "an extent": lambda given: {"qa": wider(given["qa"], 1)},
    "too small": lambda given: {"block_table": given["block_table"][:, :4]},
    "wider is fine": lambda given: {"block_table": wider(given["block_table"], 1)},
    "rank": lambda given: {"lse": given["lse"].reshape(-1)},
    "strides": lambda given: {"c_kv": given["c_kv"].swapaxes(0, 1).copy().swapaxes(0, 1)},
    "free stride": lambda given: {"block_table": np.zeros((3, 9), np.int32)[:, :5]},
    "negative": lambda given: {"k_rope": given["k_rope"][::-1]},
    "alignment": lambda given: {"qa": shifted(given["qa"])},
    "an alignment that is enough": lambda given: {"cu_seqlens_q": shifted(given["cu_seqlens_q"])},
    "overlap of outputs": lambda given: {"lse": given["out"].reshape(-1).view(np.float32)[:96].reshape(3, 32)},
    "overlap with an input": lambda given: {"out": given["qa"].reshape(-1)[: 3 * 32 * 512].reshape(3, 32, 512)},
    "inputs may overlap": lambda given: {"cu_seqlens_k": given["cu_seqlens_q"]},
}


def passed(given):
    from kinfolk_runtime.tensors import DTYPES

    names = {dtype: name for name, dtype in DTYPES.items()}
    return {
        name: [
            array.ctypes.data,
            names[array.dtype],
            list(array.shape),
            [step // array.itemsize for step in array.strides],
        ]
        for name, array in given.items()
    }


def first_sentence(text):
    """Return what is wrong, without how to mend it, which in Python names numpy."""
    return re.split(r"\. (?:Pass|Allocate|Convert)", text.rstrip("."))[0]


@pytest.fixture(scope="module")
def answers(built_cpp, folder, sibling):
    fuzz, program = sibling("bundle_fuzz"), built_cpp(ROOT / "tests" / "cpp" / "answers.cpp")

    def ask(asked):
        return [json.loads(line) for line in fuzz.answers(program, folder, [json.dumps(each) for each in asked])]

    return ask


def test_tensors_are_refused_as_the_binder_refuses_them(answers):
    plan = kinfolk.dispatch(request_of(str_of(MIXED)), "gfx942")
    said, asked = {}, []
    fields = MIXED | {"scale": {"float": "0.0625"}}
    for name, damage in DAMAGE.items():
        given = arrays()
        given |= damage(given)
        asked.append({"fields": fields, "tensors": passed(given), "bind": True})
        try:
            bind(plan, given)
            said[name] = None
        except BindError as error:
            said[name] = first_sentence(str(error))
    found = [first_sentence(each["bind"]) if "bind" in each else None for each in answers(asked)]
    assert dict(zip(DAMAGE, found, strict=True)) == said
    assert sum(each is None for each in said.values()) == 5


def str_of(fields):
    from kinfolk_mla.request import MlaRequest

    return str(MlaRequest(**fields))


def with_extent(name, axis, change):
    def of(given):
        shape = list(given[name].shape)
        shape[axis] += change
        return {name: placed(shape, given[name].dtype)}

    return of


def with_steps(name, axis):
    """Every second place along an axis, so that its stride is twice what it was."""

    def of(given):
        shape = [extent * (1 + (i == axis)) for i, extent in enumerate(given[name].shape)]
        wide = placed(shape, given[name].dtype)
        return {name: wide[tuple(slice(None, None, 1 + (i == axis)) for i in range(wide.ndim))]}

    return of


def at_offset(name, offset):
    return lambda given: {name: placed(given[name].shape, given[name].dtype, offset)}


def placed(shape, dtype, offset=0):
    """Return memory that begins so many bytes past a multiple of 256."""
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.zeros(size + 512 + offset, np.uint8)
    begin = -memory.ctypes.data % 256 + offset
    return memory[begin : begin + size].view(dtype).reshape(shape)


def after(written, other, apart):
    """The written tensor at the end of another one: past it, or over its last bytes."""

    def of(given):
        first, second = given[other], given[written]
        begin = -(-first.nbytes // 256) * 256 if apart else (first.nbytes - 1) // 256 * 256
        both = placed((max(first.nbytes, begin + second.nbytes),), np.dtype(np.uint8))
        return {
            other: both[: first.nbytes].view(first.dtype).reshape(first.shape),
            written: both[begin : begin + second.nbytes].view(second.dtype).reshape(second.shape),
        }

    return of


def generated():
    """Return damages of every property of every tensor, with the neighbours that are no damage."""
    given = arrays()
    written = ("status", "out", "lse", "part_out", "part_ml")
    axes = [(name, axis) for name, array in given.items() for axis in range(array.ndim)]
    cases = {
        f"extent {name} {axis} {by:+}": with_extent(name, axis, by)
        for name, axis in axes
        for by in (-1, 1)
        if given[name].shape[axis] + by >= 0
    }
    cases |= {f"steps {name} {axis}": with_steps(name, axis) for name, axis in axes}
    cases |= {f"offset {name} {by}": at_offset(name, by) for name in given for by in (2, 4, 8, 16, 32)}
    cases |= {f"rank {name}": lambda given, name=name: {name: given[name][None]} for name in given}
    cases |= {f"without {name}": lambda given, name=name: {name: None} for name in given if name not in written}
    for one in written:
        for other in given:
            if one != other and given[other].size:  # what is empty shares memory with nothing
                cases |= {f"{one} after {other} {apart}": after(one, other, apart) for apart in (True, False)}
    return cases


def test_every_property_of_every_tensor_is_refused_alike(answers):
    """Damages are made from what the plan binds, so that none is left out."""
    from kinfolk.plugins.composition import compose
    from kinfolk_runtime.binder import bind_kernels, kernels_of
    from kinfolk_runtime.simulator import Simulator

    plan, simulator = kinfolk.dispatch(request_of(str_of(MIXED)), "gfx942"), Simulator()
    composition = compose("mla", "gfx942")
    kernels = kernels_of(plan, None, composition, simulator)
    cases, fields = generated(), MIXED | {"scale": {"float": "0.0625"}}
    said, asked = [], []
    for damage in cases.values():
        given = arrays()
        given = {name: array for name, array in (given | damage(given)).items() if array is not None}
        asked.append({"fields": fields, "tensors": passed(given), "bind": True})
        try:
            bind_kernels(plan, kernels, composition.arch, given, simulator)
            said.append(None)
        except BindError as error:
            said.append(first_sentence(str(error)))
    found = [first_sentence(each["bind"]) if "bind" in each else None for each in answers(asked)]
    differing = {name: both for name, *both in zip(cases, said, found, strict=True) if both[0] != both[1]}
    differing = {name: both for name, both in differing.items() if not name.startswith("without ")}
    assert differing == {}
    without = [both for name, *both in zip(cases, said, found, strict=True) if name.startswith("without ")]
    assert all(here and there and here.split(";")[0] == f"input {there.split(';')[0]}" for here, there in without)
    kinds = ("extent of axis", "stride of axis", "its address", "axes", "is missing", "shares memory with")
    counts = [sum(kind in text for text in said if text) for kind in kinds]
    assert all(count >= 6 for count in counts), dict(zip(kinds, counts, strict=True))
    assert len(cases) >= 150
    assert sum(text is None for text in said) >= 40


def test_what_only_cpp_can_be_passed_is_refused_too(answers):
    good = passed(arrays())
    fields = MIXED | {"scale": {"float": "0.0625"}}
    bad = {
        "dtype is f32, bf16 is needed": good | {"qa": [256, "f32", *good["qa"][2:]]},
        "status is missing": {name: each for name, each in good.items() if name != "status"},
        "no tensor is named other": good | {"other": good["qa"]},
        "has 3 extents and 2 strides": good | {"qa": [*good["qa"][:3], [1, 1]]},
        "at least 0 is needed": good | {"lse": [*good["lse"][:2], [3, -32], [32, 1]]},
    }
    found = answers([{"fields": fields, "tensors": tensors, "bind": True} for tensors in bad.values()])
    for needed, each in zip(bad, found, strict=True):
        assert needed in each["bind"]


def test_damage_is_told_before_anything_is_answered(folder, tmp_path, built_cpp):
    program = built_cpp(ROOT / "tests" / "cpp" / "answers.cpp")
    document = json.loads((folder / "launch.json").read_text())

    def refused(content):
        (tmp_path / "launch.json").write_bytes(content)
        done = subprocess.run([str(program), str(tmp_path)], capture_output=True, text=True, input="", check=False)
        assert "runtime error" not in done.stderr
        assert "AddressSanitizer" not in done.stderr
        return done.stderr if done.returncode else ""

    def again(**changes):
        changed = document | changes
        return text_of(changed | {"digest": digest_of(changed)})

    assert refused(text_of(document)) == ""
    assert "its digest is another" in refused(text_of(document | {"family": "other"}))
    assert "is not of schema kinfolk.bundle/1" in refused(again(schema="kinfolk.bundle/2"))
    assert "is no JSON" in refused(b"{")
    assert "no expression has the tag power" in refused(again(plans=[broken(document, ["power", 1, 2])]))
    assert "add takes 2 operands" in refused(again(plans=[broken(document, ["add", ["const", 1]])]))
    assert "the request has no field 'wheels'" in refused(again(plans=[broken(document, ["field", "wheels"])]))
    deep = ["const", 1]
    for _ in range(200):
        deep = ["add", deep, ["const", 0]]
    assert "an expression is" in refused(again(plans=[broken(document, deep)]))
    assert "is not of schema" in refused(again(candidates=[{"name": "one"}]))
    (tmp_path / "launch.json").unlink()
    done = subprocess.run([str(program), str(tmp_path)], capture_output=True, text=True, input="", check=False)
    assert "cannot be read" in done.stderr


def broken(document, tree):
    return document["plans"][0] | {"workspace_bytes": tree}


def test_a_bundle_of_one_request_is_refused_for_another_in_the_same_words(folder, tmp_path, built_cpp, sibling):
    from kinfolk.plugins.composition import compose
    from kinfolk_runtime.bundles import load_bundle, write_bundle

    write_bundle(tmp_path / "one", compose("mla", "gfx942"), "llvm22", request=request_of(str_of(MIXED)))
    bundle = load_bundle(tmp_path / "one")
    other = MIXED | {"num_heads": 64, "causal": False}
    with pytest.raises(NoCandidate) as caught:
        bundle.dispatch(bundle.request(**other))
    program = built_cpp(ROOT / "tests" / "cpp" / "answers.cpp")
    line = json.dumps({"fields": other | {"scale": {"float": "0.0625"}}, "told": True})
    [found] = map(json.loads, sibling("bundle_fuzz").answers(program, tmp_path / "one", [line]))
    assert found["message"] == str(caught.value)
    assert [each["code"] for each in found["refusals"]] == ["bundle.causal", "bundle.num_heads"]
    assert [each.code for each in caught.value.refusals] == ["bundle.causal", "bundle.num_heads"]
