"""hip-python itself: without a library, with Debian's and no device, and with a library that writes down what it is
passed. Each case is a process of its own, since hip-python opens a library once.
"""

from __future__ import annotations

import ctypes.util
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from kinfolk_runtime.executor import executor_of
from kinfolk_runtime.hip import HipExecutor, HipUnavailable, hip_python

pytestmark = [pytest.mark.compile, pytest.mark.needs("mla", "gfx942")]

ROOT = Path(__file__).resolve().parent.parent
VERSION = "71526333"  # what hip-python 10.0 is made for
ASKS = """
from kinfolk_runtime.hip import HipExecutor, HipUnavailable
try:
    print(HipExecutor().target)
except HipUnavailable as error:
    print(error)
"""


def python(program, rocm, **settings):
    """Run a program where hip-python finds its library in the folder `rocm` alone; return what it prints."""
    environment = {**os.environ, **settings, "ROCM_PATH": str(rocm)}
    environment.pop("LD_LIBRARY_PATH", None)
    command = [sys.executable, "-X", "faulthandler", "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def with_library(folder, library):
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "libamdhip64.so").symlink_to(library)
    return folder


@pytest.fixture(scope="module")
def debian():
    """Debian's library: the file that the loader finds under its versioned name."""
    name = ctypes.util.find_library("amdhip64")
    if name is None:
        pytest.skip("no HIP library is installed (Debian: libamdhip64-5)")
    program = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print(open('/proc/self/maps').read())"
    maps = subprocess.run([sys.executable, "-c", program, name], capture_output=True, text=True, check=True).stdout
    return Path(re.search(r"(/\S*libamdhip64\.so\S*)", maps)[1])


@pytest.fixture(scope="module")
def stub(built_cpp, tmp_path_factory):
    """A library of one device whose kernels do nothing."""
    built = built_cpp(ROOT / "tests" / "cpp" / "hip_stub.cpp", "-O1", "-shared", "-fPIC")
    return with_library(tmp_path_factory.mktemp("stub"), built)


def test_hip_python_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "hip", None)
    hip_python.hip_python.cache_clear()
    with pytest.raises(HipUnavailable, match=r"hip-python is not installed. pip install 'kinfolk-runtime\[hip\]'"):
        HipExecutor()
    monkeypatch.setitem(sys.modules, "hip", types.ModuleType("hip"))
    with pytest.raises(HipUnavailable, match="a module named hip is installed that is not hip-python's"):
        executor_of("hip")


def test_there_is_no_library(tmp_path, debian):
    """Debian installs the versioned name alone, which hip-python does not open."""
    said = python(ASKS, tmp_path)
    assert said.startswith("hip-python cannot open the HIP library: failed to dlopen 'libamdhip64.so'")
    assert f"The loader knows {debian.name[: debian.name.index('.so') + 5]}, but hip-python opens" in said
    assert "set ROCM_PATH to a folder that has it as lib/libamdhip64.so" in said
    nothing = f"import kinfolk_runtime.hip.hip_python as found; found._library_here = lambda: ''\n{ASKS}"
    assert "Install ROCm's HIP runtime; where it is not in /opt/rocm, set ROCM_PATH" in python(nothing, tmp_path)


def test_there_is_a_library_and_no_device(tmp_path, debian):
    """By the remedy that the test before was told."""
    said = python(ASKS, with_library(tmp_path / "rocm", debian))
    assert re.match(r"no AMD GPU on this host: HIP 5\.2\.\d+ finds no device\. Run on a host with one", said)


EVERY_CALL = """
import numpy as np
from kinfolk_runtime.hip.driver import HipError
from kinfolk_runtime.hip.hip_python import HipPython, _module
driver, data = HipPython(_module()), np.zeros(4, np.uint8)
for name, *passed in (
    ("runtime_version",), ("device_count",), ("properties", 0), ("device",), ("set_device", 0),
    ("load_module", bytes(64)), ("unload_module", 0), ("function", 0, "x"),
    ("launch", 0, (1, 1, 1), 64, 0, bytes(8)), ("allocate", 16, 0), ("free", 4096, 0), ("upload", 4096, data, 0),
    ("download", data, 4096, 0), ("fill", 4096, 0, 4, 0), ("create_stream",), ("destroy_stream", 0),
    ("synchronize", 0), ("create_event",), ("destroy_event", 0), ("record", 0, 0), ("wait", 0, 0),
    ("wait_for_event", 0), ("elapsed_ms", 0, 0), ("is_capturing", 0), ("begin_capture", 0), ("end_capture", 0),
    ("instantiate", 0), ("launch_graph", 0, 0), ("destroy_graph", 0), ("destroy_executable", 0),
):
    try:
        print(name, getattr(driver, name)(*passed))
    except HipError as error:
        print(name, error.call, error.name)
"""


def test_every_call_reaches_the_library(tmp_path, debian):
    """What is passed is what hip-python takes, and a call that this library lacks is told as one."""
    from kinfolk_runtime.hip.driver import Driver

    said = dict(line.split(" ", 1) for line in python(EVERY_CALL, with_library(tmp_path / "r", debian)).splitlines())
    assert set(said) == {name for name in vars(Driver) if not name.startswith("_")}
    assert said.pop("runtime_version").startswith("502")
    assert said.pop("device_count") == "hipGetDeviceCount hipErrorNoDevice"
    assert said.pop("properties") == "hipGetDeviceProperties hipErrorNotSupported"  # its name is newer than 5.2
    assert said.pop("is_capturing").startswith("hipStreamIsCapturing hipError")
    assert {line.split()[1] for line in said.values()} == {"hipErrorInvalidDevice"}
    assert len({line.split()[0] for line in said.values()}) == len(said) - 1  # both copies are one call


def test_a_library_of_another_version(stub):
    assert python(ASKS, stub, HIP_STUB_VERSION=VERSION) == "gfx942:sramecc+:xnack-"
    assert python(ASKS, stub, HIP_STUB_VERSION="70226015") == "gfx942:sramecc+:xnack-"  # the same structures
    said = python(ASKS, stub, HIP_STUB_VERSION="60443482")
    assert "hip-python is made for HIP 7, the HIP of this host is 6.4.43482: their structures differ" in said
    assert "pip install 'hip-python==6.4.*'), or a ROCm with HIP 7." in said
    said = python(ASKS, stub, HIP_STUB_VERSION=VERSION, HIP_STUB_FAIL="hipGetDeviceCount")
    assert "HIP 7.15.26333 does not start: hipGetDeviceCount failed with hipErrorOutOfMemory (2), as requested" in said


RUNS = """
import sys
import numpy as np, kinfolk, kinfolk_runtime
from kinfolk.plugins.composition import compose
from kinfolk_mla.request import MlaRequest
from kinfolk_runtime.hip import HipError, HipExecutor
request = MlaRequest(num_heads=16, num_seqs=2, total_q=2, max_seqlen_q=1, max_seqlen_k=40, absorbed_query=True,
                     page_size=16, num_pages=9, dtype="bf16", kv_dtype="bf16", causal=True, scale=0.0625)
given = compose("mla", "gfx942").scenarios(request)[0].inputs()
executor = HipExecutor(stream=0)
executor = executor.on(executor.driver.create_stream())
runner = kinfolk_runtime.Runner("mla", "gfx942", executor=executor)
lent = {name: executor.array(value) for name, value in given.items()}
assert all(lent[name].numpy().tobytes() == value.tobytes() for name, value in given.items())
step = runner.bind(request, lent)
outputs = step()
assert step.status() == {"status": 0}
poison = {name: np.unique(one.numpy().view(np.uint8)).tolist() for name, one in outputs.items()}
assert poison == {"out": [255], "lse": [255]}
start, end = executor.mark(), executor.mark()
assert executor.elapsed_ms(start, end) == 1.5
runner.capture(request, lent)()
executor.synchronize()
launch, _ = step.bound.plan.launches
from kinfolk_runtime.bound import BoundKernel
from kinfolk_runtime.packing import packed
image = step.bound._kernels[0].image
addresses = {name: one.address for name, one in step.bound.tensors.items()}
print(executor.stream, step.bound.plan.grid(launch, step.bound.tensors), launch.block,
      packed(step.bound.plan.arguments(launch, step.bound.tensors), image.usage.arguments, addresses).hex(),
      image.code[:20].hex())
for mark in (start, end):
    executor.forget(mark)
try:
    executor.driver.function(executor.driver.load_module(image.code), "nothing")
except HipError as error:
    print(error)
"""


def test_what_is_passed_arrives_as_it_is(stub, tmp_path):
    log = tmp_path / "log"
    said = python(RUNS, stub, HIP_STUB_VERSION=VERSION, HIP_STUB_LOG=str(log))
    first, error = said.splitlines()
    stream, x, y, z, block, arguments, code = re.fullmatch(
        r"(\d+) \((\d+), (\d+), (\d+)\) (\d+) (\w+) (\w+)", first
    ).groups()
    told = [line.split() for line in log.read_text().splitlines()]
    launches = [line[1:] for line in told if line[0] == "hipModuleLaunchKernel"]
    assert launches[0] == [f"{x},{y},{z}", f"{block},1,1", "0", stream, "none", arguments]
    assert len(launches) == 2
    assert launches[1][3] != stream  # captured on a stream of its own
    assert ["hipModuleLoadData", code] in told
    assert code.startswith("7f454c46")
    where = {line[0]: line[-1] for line in told if line[0] in ("hipMallocAsync", "hipFreeAsync", "hipGraphLaunch")}
    assert set(where.values()) == {stream}
    assert ["hipStreamCreateWithFlags", "1"] in told
    assert [line[2] for line in told if line[0] == "hipMemcpyAsync"].count("1") == 6
    assert sum(line[0] == "hipMallocAsync" for line in told) - sum(line[0] == "hipFreeAsync" for line in told) >= 0
    assert error.startswith("hipModuleGetFunction failed with hipErrorNotFound (500), as requested. The code object")
