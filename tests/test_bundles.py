"""Bundles as the command line writes them: what they hold, that they are read back as what they were made of."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import attrs
import jsonschema
import msgpack
import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

import kinfolk
from kinfolk.dispatch import explain
from kinfolk.errors import BindError, NoCandidate, Refused, ToolError
from kinfolk.expr import TensorGeometry
from kinfolk.plugins.composition import compose
from kinfolk_runtime import load_bundle
from kinfolk_runtime.bundles import BundleError, kernel_data, write_bundle
from kinfolk_runtime.bundles.document import digest_of, schema, text_of
from kinfolk_runtime.toolchains import linker

KINFOLK = Path(sys.executable).parent / "kinfolk"
ARCHS = ("gfx942", "gfx950")
REQUEST = {
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
GEOMETRY = {"block_table": TensorGeometry((3, 9), (40, 1))}
pytestmark = [pytest.mark.compile, pytest.mark.needs("mla", "gfx942", "gfx950")]


def emitted(folder, *words, **environment):
    """Write a bundle by the command line, in a process of its own."""
    command = [KINFOLK, "emit", "mla", "--stage", "bundle", "-o", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A bundle of the whole spec space per arch."""
    place = tmp_path_factory.mktemp("bundles")
    for arch in ARCHS:
        done = emitted(place / arch, "--arch", arch, "--all")
        assert done.returncode == 0, done.stderr
    return {arch: place / arch for arch in ARCHS}


@pytest.fixture(params=ARCHS)
def arch(request):
    return request.param


@pytest.fixture
def bundle(folders, arch):
    return load_bundle(folders[arch])


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_document_keeps_its_schema(folders, arch):
    document = json.loads((folders[arch] / "launch.json").read_text())
    validator = jsonschema.Draft202012Validator(schema())
    validator.check_schema(schema())
    assert list(validator.iter_errors(document)) == []
    document["candidates"][0]["cases"][0]["when"] = ["all_of", ["equals", ["field", "num_heads"], ["const", 16]]]
    assert not validator.is_valid(document)


def test_it_holds_every_spec_of_the_space(bundle, arch):
    composition = compose("mla", arch)
    space = {
        spec.digest()
        for candidate in composition.candidates()
        for spec in candidate.spec_space(composition.arch, "llvm22")
        if not composition.validate_spec(spec)
    }
    assert set(bundle.data["kernels"]) == space


def metadata_of(code):
    """Return the kernel metadata of a code object, read by the formats' own readers."""
    elf = ELFFile(io.BytesIO(code))
    assert elf["e_type"] == "ET_DYN"
    [note] = [note for section in elf.iter_sections("SHT_NOTE") for note in section.iter_notes()]
    [kernel] = msgpack.unpackb(note["n_descdata"])["amdhsa.kernels"]
    return kernel


def places(entry):
    return [(each["offset"], each["size"], each["kind"] == "pointer") for each in entry["arguments"]]


def test_arguments_lie_where_the_code_object_reads_them(folders, bundle, arch):
    for entry in bundle.data["kernels"].values():
        kernel = metadata_of((folders[arch] / entry["code"]["file"]).read_bytes())
        read = [(each[".offset"], each[".size"], each[".value_kind"] == "global_buffer") for each in kernel[".args"]]
        assert places(entry) == read
        assert (kernel[".name"], kernel[".kernarg_segment_size"]) == (entry["symbol"], entry["argument_bytes"])


def test_an_offset_that_is_not_the_code_objects_stops_the_writing(tmp_path, monkeypatch):
    """The control: the check, of an object that reads its first argument elsewhere."""
    real = kernel_data.check_arguments

    def shifted(usage, spec):
        first, *others = usage.arguments
        real(attrs.evolve(usage, arguments=(attrs.evolve(first, offset=4), *others)), spec)

    monkeypatch.setattr(kernel_data, "check_arguments", shifted)
    with pytest.raises(Exception, match="reads qa as a pointer of 8 bytes at offset 4, declared is"):
        write_bundle(tmp_path / "b", compose("mla", "gfx942"), "llvm22", request=mla_request())
    assert list(tmp_path.iterdir()) == []


def mla_request(**changes):
    from kinfolk_mla.request import MlaRequest

    return MlaRequest(**REQUEST | changes)


def test_two_builds_are_the_same_bytes(folders, tmp_path):
    done = emitted(tmp_path / "again", "--arch", "gfx942", "--all", PYTHONHASHSEED="7", KINFOLK_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    first, second = files_of(folders["gfx942"]), files_of(tmp_path / "again")
    assert first == second
    text = first["launch.json"].decode()
    assert str(tmp_path) not in text
    assert str(folders["gfx942"]) not in text


CHANGES = [
    {},
    {"num_heads": 128, "num_seqs": 70, "total_q": 69},
    {"num_heads": 24, "page_size": 32},
    {"num_heads": 2000},
    {"num_heads": 12, "max_seqlen_q": 20, "total_q": 30},
    {"num_heads": 16, "max_seqlen_q": 4, "total_q": 7},
    {"num_seqs": 65536, "total_q": 65536},
    {"max_seqlen_k": 2**31},
    {"absorbed_query": False, "dtype": "f16"},
    {"candidate": "mla.decode"},
    {"candidate": "mla.other"},
    {"causal": False},
]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_it_dispatches_as_the_family_does(bundle, arch, changes):
    ours, theirs = bundle.request(**REQUEST | changes), mla_request(**changes)
    told = bundle.why(ours).to_dict()
    assert told == explain(compose("mla", arch), theirs, "llvm22").to_dict()
    if told["selected"] is None:
        with pytest.raises(Refused) as here:
            bundle.dispatch(ours)
        with pytest.raises(Refused) as there:
            kinfolk.dispatch(theirs, arch)
        assert (type(here.value), str(here.value)) == (type(there.value), str(there.value))
        return
    plan, expected = bundle.dispatch(ours), kinfolk.dispatch(theirs, arch)
    assert plan.workspace_bytes(GEOMETRY) == expected.workspace_bytes(GEOMETRY)
    for mine, other in zip(plan.launches, expected.launches, strict=True):
        assert mine.spec.of == other.spec.digest()
        assert mine.spec.symbol() == other.spec.symbol()
        assert mine.spec.parameters() == other.spec.parameters()
        assert (mine.block, plan.grid(mine, GEOMETRY)) == (other.block, expected.grid(other, GEOMETRY))
        assert plan.arguments(mine, GEOMETRY) == expected.arguments(other, GEOMETRY)
    assert [each.minimum_bytes() for each in plan.bindings] == [each.minimum_bytes() for each in expected.bindings]
    assert plan.contents == expected.contents


def test_a_wrong_field_is_refused_in_the_same_words(bundle):
    for wrong in (
        {"num_heads": True},
        {"num_heads": 0},
        {"scale": 1},
        {"dtype": "i8"},
        {"total_q": 4},
        {"candidate": ""},
    ):
        with pytest.raises((TypeError, ValueError)) as theirs:
            mla_request(**wrong)
        with pytest.raises(type(theirs.value)) as ours:
            bundle.request(**REQUEST | wrong)
        assert (str(ours.value), ours.value.remedy) == (str(theirs.value), theirs.value.remedy)


def test_the_argument_block_is_what_the_struct_says(bundle):
    plan = bundle.dispatch(bundle.request(**REQUEST))
    launch, _ = plan.launches
    entry = bundle.data["kernels"][launch.spec.of]
    addresses = {binding.name: 0x7F0000000000 + 4096 * i for i, binding in enumerate(plan.bindings)}
    block = bundle.argument_bytes(plan, launch, addresses, GEOMETRY)
    assert len(block) == entry["argument_bytes"]
    kinds = {"pointer": "<u8", "i32": "<i4", "i64": "<i8", "f32": "<f4"}
    form = np.dtype(
        {
            "names": [each["name"] for each in entry["arguments"]],
            "formats": [kinds[each["kind"]] for each in entry["arguments"]],
            "offsets": [each["offset"] for each in entry["arguments"]],
            "itemsize": entry["argument_bytes"],
        }
    )
    [read] = np.frombuffer(block, form)
    assert all(read[name] == address for name, address in addresses.items())
    assert (read["scale"], read["block_table_stride"], read["num_pages"]) == (0.0625, 40, 15)


RUN_WITHOUT_THE_FAMILY = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "kinfolk_mla":
            raise ImportError("the family is not here")
sys.meta_path.insert(0, Blocked())
import numpy as np
from kinfolk_runtime import load_bundle
import ml_dtypes
bundle = load_bundle(sys.argv[1])
stored = np.load(sys.argv[2])
tensors = {name: stored[name] for name in stored.files if name != "scale"}
tensors = {name: each.view(ml_dtypes.bfloat16) if each.dtype == np.uint16 else each for name, each in tensors.items()}
fields = eval(sys.argv[4])
outputs = bundle.bind(bundle.dispatch(bundle.request(**fields)), tensors)()
np.savez(sys.argv[3], **{name: each.view(np.uint16) if each.itemsize == 2 else each for name, each in outputs.items()})
"""


@pytest.mark.simulate
def test_it_runs_on_the_simulator_without_the_family(folders, tmp_path):
    request = mla_request()
    scenario = next(iter(compose("mla", "gfx942").scenarios(request)))
    inputs = scenario.inputs()
    plain = {name: each.view(np.uint16) if each.itemsize == 2 else each for name, each in inputs.items()}
    np.savez(tmp_path / "in.npz", **plain)
    fields = scenario.request.to_dict()
    arguments = [str(folders["gfx942"]), str(tmp_path / "in.npz"), str(tmp_path / "out.npz"), repr(fields)]
    command = [sys.executable, "-c", RUN_WITHOUT_THE_FAMILY, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    from kinfolk_runtime import bind

    expected = bind(kinfolk.dispatch(scenario.request, "gfx942"), inputs)()
    found = np.load(tmp_path / "out.npz")
    assert set(found.files) == set(expected)
    for name, value in expected.items():
        bits = value.view(np.uint16) if value.itemsize == 2 else value
        assert found[name].tobytes() == bits.tobytes()


def test_a_bundle_of_one_request_serves_what_differs_in_launch_fields(tmp_path):
    words = [f"{name}={str(value).lower()}" for name, value in REQUEST.items()]
    done = emitted(tmp_path / "one", "--arch", "gfx942", *words)
    assert done.returncode == 0, done.stderr
    bundle = load_bundle(tmp_path / "one")
    kernels = [kernel["spec"] for kernel in bundle.data["kernels"].values()]
    found = {(spec["class"].rpartition(".")[2], spec["fields"].get("idle_waves")) for spec in kernels}
    slower = {("MlaGroupedSpec", None), ("MlaPipelinedSpec", None)}  # what decode refuses they would serve
    assert found == {("MlaDecodeSpec", True), ("MlaCombineSpec", None)} | slower, "no kernel that no request can get"
    grown = REQUEST | {"num_seqs": 5, "total_q": 5, "max_seqlen_k": 4000, "num_pages": 5000, "scale": 0.5}
    plan = bundle.dispatch(bundle.request(**grown))
    assert plan.launches and plan.candidate == "mla.decode"
    with pytest.raises(NoCandidate) as caught:
        bundle.dispatch(bundle.request(**REQUEST | {"num_heads": 64}))
    [refusal] = caught.value.refusals
    assert (refusal.code, refusal.value, refusal.limit) == ("bundle.num_heads", 64, "32")
    assert "--all" in refusal.remedy


def test_without_a_linker_the_error_says_what_to_install(tmp_path, monkeypatch):
    linker.find_linker.cache_clear()
    monkeypatch.setattr(linker, "paths_on_host", lambda name: iter(()))
    with pytest.raises(ToolError, match=r"no ld\.lld of LLVM 20 or newer is here.*apt install lld-22"):
        write_bundle(tmp_path / "b", compose("mla", "gfx942"), "llvm22")
    linker.find_linker.cache_clear()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_no_bundle_is_left_alone(folders, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    done = emitted(tmp_path / "mine", "--arch", "gfx942", "--all")
    assert done.returncode == 1
    assert "is no empty folder and no bundle" in done.stderr
    assert files_of(tmp_path / "mine") == {"notes.txt": b"mine"}
    assert emitted(tmp_path / "none" / "b", "--arch", "gfx942", "--all").returncode == 1


@pytest.fixture
def copied(folders, tmp_path):
    """A copy of a bundle that a test may damage."""
    for name, content in files_of(folders["gfx942"]).items():
        path = tmp_path / "copy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "copy"


def test_a_changed_document_is_no_bundle(copied):
    document = json.loads((copied / "launch.json").read_text())
    assert text_of(document) == (copied / "launch.json").read_bytes()
    for damage, said in (({"facts": {}}, "its digest is another"), ({"schema": "kinfolk.bundle/2"}, "has the schema")):
        (copied / "launch.json").write_bytes(text_of(document | damage))
        with pytest.raises(BundleError, match=said):
            load_bundle(copied)
    (copied / "launch.json").write_bytes(b"{")
    with pytest.raises(BundleError, match="is no JSON"):
        load_bundle(copied)
    (copied / "launch.json").unlink()
    with pytest.raises(BundleError, match="is no bundle"):
        load_bundle(copied)


def test_a_changed_kernel_is_not_handed_out(copied):
    bundle = load_bundle(copied)
    plan = bundle.dispatch(bundle.request(**REQUEST))
    launch, _ = plan.launches
    code = bundle.code(launch)
    entry = bundle.data["kernels"][launch.spec.of]
    assert hashlib.sha256(code).hexdigest() == entry["code"]["sha256"]
    for part in ("code", "ir"):
        path = copied / entry[part]["file"]
        path.write_bytes(path.read_bytes().replace(b"mla", b"MLA"))
    with pytest.raises(BundleError, match="was changed since it was written"):
        bundle.code(launch)
    with pytest.raises(BundleError, match="was changed since it was written"):
        bundle.emit(launch.spec)


def test_a_plan_of_the_family_is_no_plan_of_the_bundle(bundle, arch):
    with pytest.raises(BindError, match="is no kernel of the bundle"):
        bundle.code(kinfolk.dispatch(mla_request(), arch).launches[0])


def test_another_arch_of_the_name_is_told_by_its_facts(copied):
    document = json.loads((copied / "launch.json").read_text())
    document["facts"]["max_grid_y"] = 77
    document["digest"] = digest_of(document)
    (copied / "launch.json").write_bytes(text_of(document))
    with pytest.raises(BundleError, match="max_grid_y = 77, here it is 65535"):
        _ = load_bundle(copied).arch
