"""Measure which LLVM intrinsics each AMD processor has, with each LLVM, and write or check the table of its arch.

    python tools/measure_legality.py                     write `legality.json` into the package of every installed arch
    python tools/measure_legality.py PROCESSOR...        of the archs alone that have one of these in their target ids
    python tools/measure_legality.py [...] --check       compare with a new measurement; exit 1 where they differ

Needs both LLVMs, ld.lld and llvm-mc: `kinfolk doctor` names what is missing. The processors are those of an arch's
target ids. Its ops are lowered to learn what they write; `candidates.txt` of kinfolk-amdgcn names what is of interest
beyond that. What one arch's table says depends on no other arch.
"""

from __future__ import annotations

import argparse
import difflib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

import attrs

from kinfolk.arch import Arch
from kinfolk.errors import KinfolkError
from kinfolk.plugins.loading import installed, load
from kinfolk_amdgcn.legality import Legality
from kinfolk_amdgcn.legality.measure import measure
from kinfolk_amdgcn.legality.table import FILE
from kinfolk_amdgcn.legality.usage import candidates, statements_of
from kinfolk_amdgcn.lowering import lower_kernel
from kinfolk_amdgcn.target import TRIPLE, parse_target_id
from kinfolk_runtime.toolchains import CompileJob, Toolchain, find_linker, link
from kinfolk_runtime.toolchains.host import toolchain_for
from kinfolk_runtime.toolchains.tool import Tool, find_tool, paths_on_host

FLAVORS = {20: "llvm20", 22: "llvm22"}


class HostLane:
    """One LLVM of this host, its linker, and its newest assembler."""

    def __init__(self, toolchain: Toolchain, assembler: Tool) -> None:
        self.toolchain = toolchain
        self.assembler = assembler

    def compile(self, llvm_ir: str, processor: str) -> tuple[bytes, str]:
        job = CompileJob(kernel="probe", llvm_ir=llvm_ir, triple=TRIPLE, cpu=processor, assembly=True)
        compiled = self.toolchain.compile(job)
        return compiled.object, compiled.assembly or ""

    def link(self, code: bytes) -> bytes:
        return link(code, kernel="probe")

    def refused_lines(self, lines: Sequence[str], processor: str) -> set[int]:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "all.s"
            source.write_text("\n".join(lines) + "\n")
            command = [str(self.assembler.path), f"-triple={TRIPLE}", f"-mcpu={processor}", "-filetype=null"]
            done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False, timeout=120)
        refused = {int(number) - 1 for number in re.findall(r"all\.s:(\d+):\d+: error:", done.stderr)}
        if bool(refused) != bool(done.returncode):
            raise SystemExit(f"{self.assembler.path} ended with {done.returncode}: {done.stderr[:500]}")
        return refused


@attrs.frozen
class Measured:
    """An installed arch that kinfolk-amdgcn lowers for, and the package that holds its table."""

    arch: Arch
    package: str

    @property
    def processors(self) -> tuple[str, ...]:
        """What its target ids are for, in their order."""
        return tuple(dict.fromkeys(parse_target_id(each).processor for each in self.arch.target_ids))

    @property
    def path(self) -> Path:
        """Where its table lies: in the sources of an editable install."""
        return Path(str(files(self.package) / FILE))

    @property
    def table(self) -> Legality:
        """The table that it ships; without rows where there is none yet."""
        return Legality.of_package(self.package)


def installed_archs(processors: Iterable[str] = ()) -> list[Measured]:
    """Return the installed archs that kinfolk-amdgcn lowers for; of `processors`, where some are named."""
    loaded = [load("arch", name) for name in installed("arch")]
    found = [Measured(each.plugin.kinfolk_arch(), each.offer.module.partition(".")[0]) for each in loaded]
    ours = [each for each in found if getattr(each.arch.lower_kernel, "func", None) is lower_kernel]
    known = sorted({processor for each in ours for processor in each.processors})
    if unknown := sorted(set(processors) - set(known)):
        raise SystemExit(
            f"no installed arch has {', '.join(unknown)} in its target ids; there are {', '.join(known)}. "
            "A processor is LLVM's name of it alone, without features: gfx942, not gfx942:xnack-"
        )
    wanted = set(processors) or set(known)
    if not wanted:
        raise SystemExit("no arch that kinfolk-amdgcn lowers for is installed")
    return [each for each in ours if wanted & set(each.processors)]


def host_lanes() -> dict[int, HostLane]:
    """Return the LLVM of each generation on this host; ToolError names what is missing."""
    find_linker()
    assembler = find_tool("llvm-mc", paths_on_host("llvm-mc"), oldest=max(FLAVORS))
    return {llvm: HostLane(toolchain_for(flavor), assembler) for llvm, flavor in FLAVORS.items()}


def measured_now(measured: Measured, lanes: dict[int, HostLane]) -> Legality:
    """Return an arch's whole table, measured on this host."""
    known = candidates()
    used = statements_of(measured.arch, FLAVORS, known)
    rows = measure([*known, *used], used, lanes, measured.processors)
    tools = {FLAVORS[llvm]: lane.toolchain.build for llvm, lane in lanes.items()}
    return Legality(rows, {**tools, "assembler": lanes[max(lanes)].assembler.version, "linker": find_linker().version})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("processors", nargs="*", help="measure only the archs of these; by default all")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args()
    try:
        archs, lanes, differing = installed_archs(arguments.processors), host_lanes(), False
    except KinfolkError as error:  # an arch that cannot be made, such as by its target id, or a tool that is missing
        raise SystemExit(str(error)) from error
    for each in archs:
        table = measured_now(each, lanes)
        text, before = table.to_json(), each.path.read_text(encoding="utf-8") if each.path.exists() else ""
        changes = list(difflib.unified_diff(before.splitlines(), text.splitlines(), "kept", "measured", n=0))
        differing |= bool(changes)
        state = "is as measured" if not changes else "differs" if arguments.check else "written"
        print(*changes if before else (), sep="\n", end="\n" if changes and before else "")
        print(
            f"{each.arch.name}: {len(table.rows)} statements on {', '.join(each.processors)} "
            f"with {len(FLAVORS)} LLVMs; {each.path} {state}"
        )
        if changes and not arguments.check:
            each.path.write_text(text, encoding="utf-8")
    return int(arguments.check and differing)


if __name__ == "__main__":
    sys.exit(main())
