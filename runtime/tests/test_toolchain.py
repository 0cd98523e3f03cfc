"""A job that LLVM refuses, aborts on or hangs in fails alone: after every such job the next one passes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kinfolk.errors import ToolError
from kinfolk_runtime.toolchains import CompileJob
from kinfolk_runtime.toolchains.llvmlite_toolchain import LlvmliteToolchain
from kinfolk_runtime.toolchains.pool import WORKER_FILE

GOOD = """
define amdgpu_kernel void @{name}(ptr addrspace(1) %a, float %s) {{
  store float %s, ptr addrspace(1) %a
  ret void
}}
"""
TRANSPOSE_READ = """
declare <4 x i16> @llvm.amdgcn.ds.read.tr16.b64.v4i16(ptr addrspace(3))
define amdgpu_kernel void @k(ptr addrspace(1) %a, ptr addrspace(3) %l) {
  %v = call <4 x i16> @llvm.amdgcn.ds.read.tr16.b64.v4i16(ptr addrspace(3) %l)
  store <4 x i16> %v, ptr addrspace(1) %a
  ret void
}
"""
INLINE_ASSEMBLY = 'define amdgpu_kernel void @k() {\n  call void asm sideeffect "s_nop 0", ""()\n  ret void\n}\n'
NOT_SSA = "define amdgpu_kernel void @k() {\n  %v = add i32 %w, 1\n  %w = add i32 %v, 1\n  ret void\n}\n"
TOO_MUCH_LDS = """
@pool = internal addrspace(3) global [70000 x i8] poison
define amdgpu_kernel void @k(i32 %i) {
  %p = getelementptr i8, ptr addrspace(3) @pool, i32 %i
  store volatile i8 1, ptr addrspace(3) %p
  ret void
}
"""
BRANCH_PER_LANE = """
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @k(ptr addrspace(1) %a) {
  %lane = call i32 @llvm.amdgcn.workitem.id.x()
  %taken = icmp ult i32 %lane, 7
  br i1 %taken, label %some, label %all
some:
  store volatile i32 1, ptr addrspace(1) %a
  br label %all
all:
  ret void
}
"""
WRONG_LAYOUT = 'target datalayout = "e-p:32:32"\n' + GOOD.format(name="k")


def job(llvm_ir: str = GOOD.format(name="k"), *, kernel: str = "k", cpu: str = "gfx942", **more: object) -> CompileJob:
    return CompileJob(kernel=kernel, llvm_ir=llvm_ir, triple="amdgcn-amd-amdhsa", cpu=cpu, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def toolchain():
    made = LlvmliteToolchain(workers=2)
    yield made
    made.close()


def test_object_alone_by_default_and_assembly_on_request(toolchain):
    compiled = toolchain.compile(job())
    assert compiled.object.startswith(b"\x7fELF") and compiled.assembly is None
    assert "global_store_dword" in toolchain.compile(job(assembly=True)).assembly


def test_assembly_is_of_the_module_as_given_not_as_code_generation_left_it(toolchain):
    both = toolchain.compile(job(BRANCH_PER_LANE, assembly=True))
    assert "s_and_saveexec_b64" in both.assembly
    assert both.object == toolchain.compile(job(BRANCH_PER_LANE)).object


def test_the_build_names_both_versions(toolchain):
    import llvmlite
    import llvmlite.binding

    version = ".".join(map(str, llvmlite.binding.llvm_version_info))
    assert toolchain.build == f"llvmlite-{llvmlite.__version__}/llvm-{version}"
    assert toolchain.flavors == (f"llvm{llvmlite.binding.llvm_version_info[0]}",)


def test_equal_jobs_give_equal_bytes_in_different_workers():
    first, second = LlvmliteToolchain(workers=1), LlvmliteToolchain(workers=1)
    assert first.compile(job()).object == second.compile(job()).object
    assert first.pool().pids.isdisjoint(second.pool().pids)
    first.close()
    second.close()


@pytest.mark.parametrize(
    "bad, says",
    [
        pytest.param(job(TRANSPOSE_READ), "Cannot select", id="intrinsic of another arch aborts"),
        pytest.param(job(INLINE_ASSEMBLY), "worker ended", id="inline assembly aborts"),
        pytest.param(job(TOO_MUCH_LDS), "local memory", id="too much workgroup memory"),
        pytest.param(job("define void @k( {"), "expected", id="no IR at all"),
        pytest.param(job(NOT_SSA), "does not dominate", id="verifier"),
        pytest.param(job(WRONG_LAYOUT), "data layout", id="data layout"),
        pytest.param(job('target triple = "x86_64-linux-gnu"\n' + GOOD.format(name="k")), "triple", id="triple"),
    ],
)
def test_a_bad_job_fails_alone(toolchain, bad, says):
    with pytest.raises(ToolError) as caught:
        toolchain.compile(bad)
    message = str(caught.value)
    assert says in message and "compiling k failed" in message
    assert sys.executable in message and str(WORKER_FILE) in message and "amdgcn-amd-amdhsa gfx942 -O3" in message
    assert toolchain.compile(job()).object


def test_the_aborting_intrinsic_compiles_where_the_arch_has_it(toolchain):
    """Negative control: it is the arch that makes it abort, not the text."""
    assert "ds_read_b64_tr_b16" in toolchain.compile(job(TRANSPOSE_READ, cpu="gfx950", assembly=True)).assembly


def test_aborts_in_one_thread_leave_the_other_threads_jobs_alone(toolchain):
    def compile_one(index: int) -> str:
        if index % 4 == 3:
            with pytest.raises(ToolError, match=f"compiling k{index} failed.*Cannot select"):
                toolchain.compile(job(TRANSPOSE_READ, kernel=f"k{index}"))
            return "aborted"
        name = f"k{index}"
        assembly = toolchain.compile(job(GOOD.format(name=name), kernel=name, assembly=True)).assembly
        return name if f"\n{name}:" in assembly else "the answer of another job"

    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(compile_one, range(16)))
    assert results == ["aborted" if index % 4 == 3 else f"k{index}" for index in range(16)]
    assert len(toolchain.pool().pids) <= 2


def test_two_threads_compile_at_the_same_time(tmp_path):
    """Each job waits until the other has started too: one after the other, the first would time out."""
    meet = f"import pathlib; here = pathlib.Path({str(tmp_path)!r}); (here / str(os.getpid())).touch()"
    meet += "\n    while len(list(here.iterdir())) < 2: time.sleep(0.01)"
    toolchain = LlvmliteToolchain(workers=2, timeout_seconds=20.0, worker_command=fake(meet + OR_GOOD))
    with ThreadPoolExecutor(2) as threads:
        assert [each.object for each in threads.map(toolchain.compile, [job(), job()])] == [b"\x7fELF"] * 2
    toolchain.close()


FAKE = """
import json, os, struct, sys, time
sys.path.insert(0, {folder!r})
from worker import read_message, write_message
jobs, replies = sys.stdin.buffer, os.fdopen(1, "wb", buffering=0)
def reply(header, *blobs): write_message(replies, header, list(blobs))
reply({{"llvmlite": "0", "llvm": "22.0.0"}})
while True:
    header, blobs = read_message(jobs)
    text = blobs[0].decode()
    {body}
"""


def fake(body: str) -> list[str]:
    """A worker that speaks the protocol and then does `body` for each job."""
    return [sys.executable, "-c", FAKE.format(folder=str(WORKER_FILE.parent), body=body)]


OR_GOOD = "\n    reply({}, b'\\x7fELF')"


@pytest.mark.parametrize(
    "body, says",
    [
        ("if text == 'bad': time.sleep(60)", "took more than 1 s"),
        (
            "if text == 'bad': print('the last words', file=sys.stderr, flush=True); os.kill(os.getpid(), 9)",
            "the last words",
        ),
        ("if text == 'bad': os.write(1, b'garbage that is no message')", "could not be read"),
        ("if text == 'bad': os.write(1, struct.pack('>I', 2) + b'[]')", "could not be read"),
        ("if text == 'bad': reply({}); continue", "no object"),
        ("if text == 'bad': reply({}, b'not an object'); continue", "no object"),
        ("if text == 'bad': os.write(1, struct.pack('>I', 90) + b'{'); sys.exit(3)", "worker ended with status 3"),
    ],
    ids=["hangs", "killed", "garbage", "wrong shape", "no blob", "no ELF", "cut off"],
)
def test_a_worker_that_misbehaves_costs_one_job(body, says):
    toolchain = LlvmliteToolchain(workers=1, timeout_seconds=1.0, worker_command=fake(body + OR_GOOD))
    assert toolchain.compile(job("good")).object == b"\x7fELF"
    with pytest.raises(ToolError, match=says):
        toolchain.compile(job("bad"))
    assert toolchain.compile(job("good")).object == b"\x7fELF"
    toolchain.close()


def test_a_worker_killed_from_outside_in_mid_job():
    body = "if text == 'bad': time.sleep(60)"
    toolchain = LlvmliteToolchain(workers=1, timeout_seconds=30.0, worker_command=fake(body + OR_GOOD))
    [pid] = (toolchain.compile(job("good")), toolchain.pool().pids)[1]
    threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
    with pytest.raises(ToolError, match="signal 9"):
        toolchain.compile(job("bad"))
    assert toolchain.compile(job("good")).object and pid not in toolchain.pool().pids
    toolchain.close()


def test_a_worker_killed_while_idle_is_replaced_unseen():
    toolchain = LlvmliteToolchain(workers=1)
    toolchain.compile(job())
    [pid] = toolchain.pool().pids
    os.kill(pid, signal.SIGKILL)
    while toolchain.pool().pids:
        time.sleep(0.01)
    assert toolchain.compile(job()).object
    toolchain.close()


def test_option_sets_have_workers_of_their_own(toolchain):
    plain = toolchain.compile(job(assembly=True)).assembly
    traced = toolchain.compile(job(assembly=True, options=("-amdgpu-dump-hsa-metadata",)))
    assert plain == traced.assembly
    assert toolchain.pool().pids.isdisjoint(toolchain.pool(("-amdgpu-dump-hsa-metadata",)).pids)
    with pytest.raises(ToolError, match="no-such-option"):
        toolchain.compile(job(options=("-no-such-option",)))
    assert toolchain.compile(job()).object


def test_a_missing_interpreter_is_a_tool_error_that_names_it():
    toolchain = LlvmliteToolchain("/nowhere/python")
    for ask in (lambda: toolchain.build, lambda: toolchain.compile(job())):
        with pytest.raises(ToolError, match="/nowhere/python"):
            ask()


def test_the_worker_file_imports_only_the_standard_library_and_llvmlite():
    code = f"import sys, runpy; runpy.run_path({str(WORKER_FILE)!r}); "
    code += "loaded = {name.partition('.')[0] for name in sys.modules}; "
    code += "print(loaded - sys.stdlib_module_names - {'__main__'})"
    said = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "set()"


def run_program(body: str, *, kill: bool = False) -> set[int]:
    """Run a program that prints worker ids and return those still alive shortly after it ended."""
    text = Path(__file__).read_text()
    wanted = ("from kinfolk", "import os", "import time")
    header = "\n".join(line for line in text.splitlines() if line.startswith(wanted))
    good = f"JOB = CompileJob(kernel='k', llvm_ir={GOOD.format(name='k')!r}, triple='amdgcn-amd-amdhsa', cpu='gfx942')"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{header}\n{good}\n{body}"],
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "KINFOLK_DISABLE_AUTOLOAD": "1",
        },
    )
    assert process.stdout is not None
    pids = {int(word) for word in process.stdout.readline().split()}
    assert pids, "the program printed no worker"
    if kill:
        process.kill()
    process.stdout.close()
    process.wait()
    deadline = time.monotonic() + 10
    while (alive := {pid for pid in pids if runs(pid)}) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive


def runs(pid: int) -> bool:
    """Whether a process of this id runs; a zombie, whose parent has not asked yet, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


COMPILE = "t = LlvmliteToolchain(workers=1); t.compile(JOB); print(*t.pool().pids, flush=True); "


@pytest.mark.parametrize(
    "body, kill",
    [
        (COMPILE, False),
        (COMPILE + "raise SystemExit(3)", False),
        (COMPILE + "os._exit(0)", False),
        (COMPILE + "time.sleep(60)", True),
        (COMPILE + "os.close(1); os.fork() or time.sleep(20); time.sleep(60)", True),
    ],
    ids=["end", "exit", "hard exit", "killed", "killed while a forked child lives"],
)
def test_no_worker_outlives_its_program(body, kill):
    assert run_program(body, kill=kill) == set()


FORK = """
before = t.pool().pids
child = os.fork()
if not child:
    t.compile(JOB)
    os._exit(0 if len(t.pool().pids) == 1 and before.isdisjoint(t.pool().pids) else 1)
assert os.waitpid(child, 0)[1] == 0
t.compile(JOB)
assert t.pool().pids == before
open({path!r}, "w").write("passed")
"""


def test_a_forked_child_compiles_with_workers_of_its_own(tmp_path):
    assert run_program(COMPILE + FORK.format(path=str(tmp_path / "result"))) == set()
    assert (tmp_path / "result").read_text() == "passed"


HOST = """
import kinfolk
from kinfolk.errors import ToolError
from kinfolk_runtime.toolchains.host import toolchain_for
where = "kinfolk_runtime.toolchains.llvmlite_toolchain"
kinfolk.register("toolchain", "aa-broken", "kinfolk_runtime.no_such_module")
kinfolk.register("toolchain", "zz-rocm", "kinfolk_runtime.toolchains.llc_toolchain:rocm_toolchain")
kinfolk.register("toolchain", "ours", where + ":LlvmliteToolchain")
found = toolchain_for("llvm22")
assert type(found).__name__ == "LlvmliteToolchain" and toolchain_for("llvm22") is found
found.compile(JOB)
print(*found.pool().pids, flush=True)
try:
    toolchain_for("llvm20")
except ToolError as error:
    open({path!r}, "w").write(str(error))
"""


def test_the_hosts_toolchain_is_found_by_flavor_and_a_broken_one_is_named(tmp_path):
    assert run_program(HOST.format(path=str(tmp_path / "said"))) == set()
    said = (tmp_path / "said").read_text()
    assert said.startswith("no toolchain of this host compiles flavor llvm20: aa-broken cannot be used")
    assert "takes llvm22" in said
    assert ".." not in said.replace("...", "")
