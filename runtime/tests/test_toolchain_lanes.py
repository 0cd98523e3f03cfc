"""Every LLVM this project compiles with: each found, named apart, failing alone and in words, chosen by rank."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import attrs
import pytest
from elftools.elf.elffile import ELFFile

from kinfolk.errors import ToolError
from kinfolk.flavor import UnknownFlavor
from kinfolk_runtime import storage
from kinfolk_runtime.toolchains import CompileJob, find_linker, find_llvm20, install_llvm20, link, llvm20
from kinfolk_runtime.toolchains.generation import served_flavors
from kinfolk_runtime.toolchains.host import toolchain_for
from kinfolk_runtime.toolchains.llc_toolchain import LlcToolchain, rocm_toolchain
from kinfolk_runtime.toolchains.llvm20 import llvm20_folder, llvm20_toolchain
from kinfolk_runtime.toolchains.llvmlite_toolchain import LlvmliteToolchain
from kinfolk_runtime.toolchains.tool import examined, find_tool, paths_on_host, run_tool

GOOD = """
define amdgpu_kernel void @k(ptr addrspace(1) %a, float %s) {
  store float %s, ptr addrspace(1) %a
  ret void
}
"""
TRANSPOSE_READ = """
declare <4 x i16> @llvm.amdgcn.ds.read.tr16.b64.v4i16(ptr addrspace(3))
define amdgpu_kernel void @k(ptr addrspace(1) %a, ptr addrspace(3) %l) {
  %v = call <4 x i16> @llvm.amdgcn.ds.read.tr16.b64.v4i16(ptr addrspace(3) %l)
  store <4 x i16> %v, ptr addrspace(1) %a
  ret void
}
"""
UNKNOWN_NAME = """
declare void @llvm.amdgcn.no.such.thing()
define amdgpu_kernel void @k() {
  call void @llvm.amdgcn.no.such.thing()
  ret void
}
"""
NOT_SSA = "define amdgpu_kernel void @k() {\n  %v = add i32 %w, 1\n  %w = add i32 %v, 1\n  ret void\n}\n"


def job(llvm_ir: str = GOOD, cpu: str = "gfx942", **more: object) -> CompileJob:
    return CompileJob(kernel="k", llvm_ir=llvm_ir, triple="amdgcn-amd-amdhsa", cpu=cpu, **more)  # type: ignore[arg-type]


def program(path: Path, body: str) -> Path:
    """Write an executable Python program."""
    path.write_text(f"#!{sys.executable}\nimport os, sys, time\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def llvm20_lane() -> LlvmliteToolchain:
    if find_llvm20() is None:
        pytest.skip("LLVM 20 is not installed: kinfolk doctor --install llvm20")
    return llvm20_toolchain()


def llc_lane() -> LlcToolchain:
    toolchain = LlcToolchain()
    try:
        assert toolchain.build
    except ToolError as error:
        pytest.skip(str(error))
    return toolchain


def asked(toolchain: object, name: str) -> object:
    """Return one answer of a toolchain that is not used further."""
    answer = getattr(toolchain, name)
    if isinstance(toolchain, LlvmliteToolchain):
        toolchain.close()
    return answer


LANES = {"llvmlite": LlvmliteToolchain, "llvmlite20": llvm20_lane, "llc": llc_lane}


@pytest.fixture(scope="module", params=LANES)
def lane(request):
    made = LANES[request.param]()
    yield made
    if isinstance(made, LlvmliteToolchain):
        made.close()


def test_each_lane_compiles_and_says_who_it_is(lane):
    compiled = lane.compile(job(assembly=True))
    assert compiled.object.startswith(b"\x7fELF") and "global_store_dword" in compiled.assembly
    assert lane.build.startswith(lane.name.rstrip("20") + "-") and lane.flavors


TEXT_ALONE = """
define ptx_kernel void @k(ptr addrspace(1) %a, float %s) {
  store float %s, ptr addrspace(1) %a
  ret void
}
"""


def test_each_lane_gives_the_text_of_a_target_that_has_no_objects_where_that_is_asked_for(lane):
    wanted = CompileJob(kernel="k", llvm_ir=TEXT_ALONE, triple="nvptx64-nvidia-cuda", cpu="sm_90", code="assembly")
    text = lane.compile(wanted).object.decode()
    assert ".visible .entry k(" in text and "st.global" in text
    both = lane.compile(attrs.evolve(wanted, assembly=True))
    assert both.object.decode() == text and ".entry k(" in both.assembly
    with pytest.raises(ToolError, match="compiling k failed"):
        lane.compile(attrs.evolve(wanted, code="object"))
    assert lane.compile(job()).object.startswith(b"\x7fELF")


@pytest.mark.parametrize(
    "bad, says",
    [
        (job(TRANSPOSE_READ), "Cannot select"),
        (job("define void @k( {"), "expected"),
        (job(NOT_SSA), "does not dominate"),
        (job('target datalayout = "e-p:32:32"\n' + GOOD), "data layout"),
        (job('target triple = "x86_64-linux-gnu"\n' + GOOD), "triple"),
        (job(options=("-no-such-option",)), "no-such-option"),
    ],
    ids=["another arch's", "no IR", "verifier", "layout", "triple", "unknown option"],
)
def test_each_lane_fails_in_words_and_goes_on(lane, bad, says):
    with pytest.raises(ToolError) as caught:
        lane.compile(bad)
    message = str(caught.value)
    assert message.startswith("compiling k failed: ") and says in message and "amdgcn-amd-amdhsa gfx942 -O3" in message
    assert lane.compile(job()).object


def test_an_option_that_llvm_has_is_taken(lane):
    """Negative control of the refused one."""
    assert lane.compile(job(options=("-amdgpu-dump-hsa-metadata",))).object == lane.compile(job()).object


OPTION_VALUES = {
    "int": ("-unroll-count", "4", ("xyz", "99999999999", "-1", "")),
    "enum": ("-vgpr-regalloc", "greedy", ("bogus", "")),
    "bool": ("-enable-misched", "false", ("maybe", "2")),
}


@pytest.mark.parametrize(
    "option, value, good",
    [(option, value, value == good) for option, good, bad in OPTION_VALUES.values() for value in (good, *bad)],
)
def test_a_value_that_an_option_does_not_take_is_an_error_naming_it(lane, option, value, good):
    given = job(options=(f"{option}={value}",))
    if good:
        assert lane.compile(given).object
        return
    with pytest.raises(ToolError) as caught:
        lane.compile(given)
    message = str(caught.value)
    assert message.startswith("compiling k failed: ") and f"{option}={value}" in message
    assert f"for the -{option} option: " in message
    assert lane.compile(job()).object


@pytest.mark.parametrize("before, after", [((), ()), (("-enable-misched",), ()), ((), ("-enable-misched",))])
def test_an_option_without_the_value_it_takes_does_not_take_its_neighbour(lane, before, after):
    with pytest.raises(ToolError, match=r"for the --amdgpu-sched-strategy option: requires a value!"):
        lane.compile(job(options=(*before, "-amdgpu-sched-strategy", *after)))
    assert lane.compile(job(options=(*before, "-amdgpu-sched-strategy=max-ilp", *after))).object


def test_a_value_that_is_taken_shows_in_the_code(lane):
    """The control: what the test above takes for taken is not merely kept quiet about."""
    waits = [lane.compile(job(options=(f"-amdgpu-waitcnt-forcezero={each}",))).object for each in ("false", "true")]
    assert waits[0] == lane.compile(job()).object != waits[1]


def test_builds_are_told_apart():
    builds = {name: asked(make(), "build") for name, make in LANES.items()}
    assert len(set(builds.values())) == len(builds)
    assert builds["llvmlite"].partition("/")[2].startswith("llvm-22.")
    assert builds["llvmlite20"].partition("/")[2].startswith("llvm-20.")


def test_the_default_flavor_is_taken_by_both_builds_of_its_generation():
    assert asked(LlvmliteToolchain(), "flavors") == asked(llc_lane(), "flavors") == ("llvm22",)
    assert asked(llvm20_lane(), "flavors") == ("llvm20",)


def test_flavors_are_served_by_rank():
    assert {llvm: served_flavors(llvm) for llvm in (19, 20, 21, 22, 23, 40)} == {
        19: (),
        20: ("llvm20",),
        21: ("llvm20",),
        22: ("llvm22",),  # measured: LLVM 22 rejects llvm20's make.buffer.rsrc
        23: ("llvm22",),
        40: ("llvm22",),
    }


def test_an_unknown_flavor_is_refused_by_name():
    with pytest.raises(UnknownFlavor, match=r"llvm99.*llvm20, llvm22"):
        toolchain_for("llvm99")


NEWER = """
import kinfolk
from kinfolk.errors import ToolError
from kinfolk.flavor import register_flavor
from kinfolk_runtime.toolchains.host import toolchain_for
from kinfolk_runtime.toolchains.llvmlite_toolchain import LlvmliteToolchain
def newer():
    made = LlvmliteToolchain(name="simulated23", workers=1)
    made._versions = lambda: {"llvmlite": "0.51.0", "llvm": "23.1.0"}
    return made
kinfolk.register("toolchain", "simulated23", newer)
served = toolchain_for("llvm22").build
try:
    toolchain_for("llvm23")
except Exception as error:
    before = type(error).__name__
register_flavor("llvm23")
after = toolchain_for("llvm23").build, toolchain_for("llvm22").build
kinfolk.register("toolchain", "own22", LlvmliteToolchain)
own = toolchain_for("llvm22").build
print([before, served, *after, own])
"""


def test_a_newer_lane_is_served_by_rank():
    """LLVM 23 takes llvm22 as the nearest below; its own flavor once there is one; and yields to an LLVM 22."""
    answer = subprocess.run(
        [sys.executable, "-c", NEWER],
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "KINFOLK_DISABLE_AUTOLOAD": "1",
        },
    ).stdout
    before, served, its_own, older, own = eval(answer)
    assert before == "UnknownFlavor"
    assert served == its_own == older == "llvmlite-0.51.0/llvm-23.1.0"
    assert own == asked(LlvmliteToolchain(), "build")


@pytest.mark.parametrize(
    "body, says",
    [
        ("time.sleep(60)", "took more than 1 s and was stopped"),
        ("os.kill(os.getpid(), 11)", "ended with signal 11"),
        ("print('the last words', file=sys.stderr); sys.exit(70)", "ended with status 70; the last words"),
        ("print('no object at all')", "wrote no object"),
        ("", "wrote no object"),
        ("os.close(0); os.write(1, b'cut'); os._exit(0)", "wrote no object"),
    ],
    ids=["hangs", "crashes", "fails", "garbage", "nothing", "reads nothing"],
)
def test_an_llc_that_misbehaves_is_a_tool_error(tmp_path, body, says):
    version = "'--version' in sys.argv and (print('Some LLVM version 22.1.8'), sys.exit())"
    layout = "'-stop-after=finalize-isel' in sys.argv and (print('target datalayout = \"e\"'), sys.exit())"
    llc = program(tmp_path / "llc", f"{version}\n{layout}\n{body}")
    toolchain = LlcToolchain([llc], timeout_seconds=1.0)
    assert toolchain.build.startswith("llc-22.1.8/some-")
    with pytest.raises(ToolError) as caught:
        toolchain.compile(job())
    message = str(caught.value)
    assert says in message and "compiling k failed" in message and str(llc) in message


def test_what_a_stopped_tool_started_ends_with_it(tmp_path):
    child = tmp_path / "child"
    body = f"child = os.fork() or time.sleep(60)\nopen({str(child)!r}, 'w').write(str(child))\ntime.sleep(60)"
    with pytest.raises(ToolError, match="took more than 2 s"):
        run_tool([str(program(tmp_path / "tool", body))], seconds=2.0)
    assert ends(int(child.read_text()))


def ends(pid: int, seconds: float = 20.0) -> bool:
    """Whether a process that was killed is gone within some time: of a signal it dies when it is next run."""
    until = time.monotonic() + seconds
    while runs(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return not runs(pid)


def runs(pid: int) -> bool:
    """Whether a process of this id runs; a zombie, whose parent has not asked yet, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_two_builds_of_one_version_have_different_names(tmp_path):
    body = "print('Some LLVM version 22.1.8')"
    first, second = (program(tmp_path / name, body + comment) for name, comment in (("a", ""), ("b", " # rebuilt")))
    assert LlcToolchain([first]).build != LlcToolchain([second]).build
    (tmp_path / "x" / "bin").mkdir(parents=True)
    (tmp_path / "x" / "lib").mkdir()
    third = program(tmp_path / "x" / "bin" / "llc", body)
    before = LlcToolchain([third]).build
    (tmp_path / "x" / "lib" / "libLLVM.so.22").write_bytes(b"the code generator itself")
    assert LlcToolchain([third]).build != before


def test_an_old_tool_is_passed_over_and_named(tmp_path):
    old = program(tmp_path / "old", "print('Debian LLVM version 14.0.6')")
    mute = program(tmp_path / "mute", "print('no version')")
    new = program(tmp_path / "new", "print('AMD LLVM version 20.0.0git')")
    found = find_tool("llc", (old, mute, tmp_path / "absent", new))
    assert (found.path, found.llvm, found.vendor) == (new, 20, "amd")
    with pytest.raises(ToolError) as caught:
        LlcToolchain((old, mute, tmp_path / "absent")).compile(job())
    said = str(caught.value)
    assert "LLVM 14.0.6" in said and "names no LLVM version" in said and "absent" in said and "apt install" in said


def test_rocm_is_found_where_it_installs_itself(monkeypatch, tmp_path):
    module = sys.modules[LlcToolchain.__module__]
    monkeypatch.setattr(module, "ROCM_FOLDER", tmp_path)
    with pytest.raises(ToolError, match=r"the rocm toolchain does not start.*Install ROCm"):
        rocm_toolchain().build  # noqa: B018
    program(tmp_path / "llc", "print('AMD LLVM version 20.0.0git')")
    assert rocm_toolchain().build.startswith("llc-20.0.0git/amd-") and rocm_toolchain().flavors == ("llvm20",)


def test_the_newest_name_on_the_search_path_is_tried_first(monkeypatch, tmp_path):
    for name in ("llc", "llc-21", "llc-23"):
        program(tmp_path / name, "print('LLVM version 23.0.0')")
    monkeypatch.setenv("PATH", str(tmp_path))
    names = [path.name for path in paths_on_host("llc") if path.parent == tmp_path]
    assert names == ["llc-23", "llc-21", "llc"]


def linker():
    try:
        return find_linker()
    except ToolError as error:
        pytest.skip(str(error))


def test_an_object_is_linked_into_what_a_host_loads():
    linker()
    toolchain = LlvmliteToolchain(workers=1)
    linked = link(toolchain.compile(job()).object, kernel="k")
    toolchain.close()
    elf = ELFFile(io.BytesIO(linked))
    assert elf["e_type"] == "ET_DYN" and elf["e_machine"] == "EM_AMDGPU"
    assert {symbol.name for symbol in elf.get_section_by_name(".dynsym").iter_symbols()} >= {"k", "k.kd"}


def test_an_unknown_intrinsic_compiles_and_does_not_link(lane):
    """The trap that makes linking part of every check of a name."""
    linker()
    compiled = lane.compile(job(UNKNOWN_NAME)).object
    with pytest.raises(ToolError, match=r"linking k failed.*undefined.*llvm\.amdgcn\.no\.such\.thing"):
        link(compiled, kernel="k")


def test_without_a_linker_the_remedy_is_said(monkeypatch):
    find_linker.cache_clear()
    monkeypatch.setattr("kinfolk_runtime.toolchains.linker.paths_on_host", lambda name: iter(()))
    with pytest.raises(ToolError, match=r"no ld.lld.*none was found.*apt install lld-22"):
        link(b"")
    monkeypatch.undo()
    assert linker().llvm >= 20  # the failure was not remembered


@pytest.mark.parametrize(
    "body, says",
    [
        ("sys.exit(1)", "ended with status 1"),
        ("", "No such file"),
        ("open(sys.argv[sys.argv.index('-o') + 1], 'w').write('text')", "no shared object"),
    ],
)
def test_a_linker_that_misbehaves_is_a_tool_error(tmp_path, body, says):
    version = "'--version' in sys.argv and (print('LLD 22.1.8'), sys.exit())"
    fake = examined(program(tmp_path / "ld.lld", f"{version}\n{body}"))
    with pytest.raises(ToolError, match=f"linking k failed.*{says}"):
        link(b"\x7fELF", kernel="k", linker=fake)


def test_the_storage_root_is_the_setting_or_the_platforms(monkeypatch, tmp_path):
    monkeypatch.setenv("KINFOLK_CACHE_DIR", str(tmp_path / "here"))
    assert storage.storage_root() == tmp_path / "here"
    assert llvm20_folder() == tmp_path / "here" / "toolchains" / "llvm20" and find_llvm20() is None
    with pytest.raises(ToolError, match="kinfolk doctor --install llvm20"):
        llvm20_toolchain()
    monkeypatch.setenv("KINFOLK_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "platform"))
    assert storage.storage_root().name == "kinfolk"
    assert sys.platform != "linux" or storage.storage_root() == tmp_path / "platform" / "kinfolk"


def test_an_installation_that_fails_leaves_what_was_there(monkeypatch, tmp_path):
    monkeypatch.setenv("KINFOLK_CACHE_DIR", str(tmp_path))
    python = llvm20_folder() / "bin" / "python"
    python.parent.mkdir(parents=True)
    program(python, "print('not an LLVM')")
    monkeypatch.setattr(llvm20.venv, "create", lambda *_, **__: None)  # nothing to install with
    with pytest.raises(ToolError, match="installing llvmlite"):
        install_llvm20()
    assert python.exists() and list(python.parents[2].iterdir()) == [llvm20_folder()]


def test_a_python_that_makes_no_environment_is_told_so(monkeypatch, tmp_path):
    def fails(*_, **__):
        raise subprocess.CalledProcessError(1, ["python", "-m", "ensurepip"])

    monkeypatch.setenv("KINFOLK_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(llvm20.venv, "create", fails)
    with pytest.raises(ToolError, match=r"no environment could be made.*ensurepip.*python3-venv"):
        install_llvm20()
    assert list((tmp_path / "toolchains").iterdir()) == []


def test_an_environment_that_another_process_made_meanwhile_is_kept(tmp_path):
    """Its folder cannot be replaced by a rename, and need not be."""
    installed = llvm20_lane() and llvm20_folder()
    (tmp_path / "made").mkdir()
    theirs = tmp_path / "theirs"
    (theirs / "bin").mkdir(parents=True)
    (theirs / "bin" / "python").symlink_to(installed / "bin" / "python")
    (theirs / "pyvenv.cfg").write_bytes((installed / "pyvenv.cfg").read_bytes())
    (theirs / "lib").symlink_to(installed / "lib")
    llvm20._put(tmp_path / "made", NeverThere(theirs), tmp_path / "before")
    assert (theirs / "bin" / "python").exists()
    (theirs / "lib").unlink()
    with pytest.raises(ToolError, match="could not be moved"):
        llvm20._put(tmp_path / "made", NeverThere(theirs), tmp_path / "before")


class NeverThere(type(Path())):
    """A folder that is not seen yet when it is looked for."""

    def exists(self, **_):
        return False


def test_an_installation_that_works_is_kept():
    llvm20_lane()
    before = (llvm20_folder() / "pyvenv.cfg").read_bytes()
    assert install_llvm20() == find_llvm20()
    assert (llvm20_folder() / "pyvenv.cfg").read_bytes() == before
