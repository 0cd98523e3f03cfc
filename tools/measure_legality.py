"""Measure which LLVM intrinsics each AMD processor has, with each LLVM, and write or check the table of kinfolk-amdgcn.

    python tools/measure_legality.py           write the table anew
    python tools/measure_legality.py --check   compare it with a new measurement; exit 1 where they differ

Needs both LLVMs, ld.lld and llvm-mc: `kinfolk doctor` names what is missing. Every installed arch's ops are lowered to
learn what they write; `legality/candidates.txt` names what is of interest beyond that.
"""

from __future__ import annotations

import argparse
import difflib
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kinfolk.arch import Arch
from kinfolk.plugins.loading import installed, load
from kinfolk_amdgcn.legality import Legality, Statement, measured
from kinfolk_amdgcn.legality.measure import measure
from kinfolk_amdgcn.legality.table import FILE
from kinfolk_amdgcn.legality.usage import candidates, statements_of
from kinfolk_amdgcn.lowering import lower_kernel
from kinfolk_amdgcn.target import TRIPLE
from kinfolk_runtime.toolchains import CompileJob, Toolchain, find_linker, link
from kinfolk_runtime.toolchains.host import toolchain_for
from kinfolk_runtime.toolchains.tool import Tool, find_tool, paths_on_host

FLAVORS = {20: "llvm20", 22: "llvm22"}
PROCESSORS = ("gfx942", "gfx950")
TABLE = Path(__file__).resolve().parents[1] / "arch/amdgcn/src/kinfolk_amdgcn/legality" / FILE


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


def installed_archs() -> list[Arch]:
    """Return the installed archs that kinfolk-amdgcn lowers for."""
    found = [load("arch", name).plugin.kinfolk_arch() for name in installed("arch")]
    archs = [arch for arch in found if getattr(arch.lower_kernel, "func", arch.lower_kernel) is lower_kernel]
    if not archs:
        raise SystemExit("no arch that kinfolk-amdgcn lowers for is installed")
    return archs


def used_statements(archs: Sequence[Arch], known: Sequence[Statement]) -> dict[Statement, dict[int, tuple[str, ...]]]:
    """Return what the ops of all archs write, and which ops do."""
    merged: dict[Statement, dict[int, set[str]]] = {}
    for arch in archs:
        for statement, uses in statements_of(arch, FLAVORS, [*known, *merged]).items():
            for llvm, ops in uses.items():
                merged.setdefault(statement, {}).setdefault(llvm, set()).update(ops)
    return {
        statement: {llvm: tuple(sorted(ops)) for llvm, ops in sorted(uses.items())}
        for statement, uses in merged.items()
    }


def measured_now() -> Legality:
    """Return the whole table, measured on this host."""
    assembler = find_tool("llvm-mc", paths_on_host("llvm-mc"), oldest=max(FLAVORS))
    lanes = {llvm: HostLane(toolchain_for(flavor), assembler) for llvm, flavor in FLAVORS.items()}
    known = candidates()
    used = used_statements(installed_archs(), known)
    rows = measure([*known, *used], used, lanes, PROCESSORS)
    tools = {FLAVORS[llvm]: lane.toolchain.build for llvm, lane in lanes.items()}
    linker = find_linker()
    return Legality(rows, {**tools, "assembler": assembler.version, "linker": linker.version})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args()
    table = measured_now()
    text, before = table.to_json(), TABLE.read_text(encoding="utf-8") if TABLE.exists() else ""
    changes = list(difflib.unified_diff(before.splitlines(), text.splitlines(), "kept", "measured", n=0))
    print(*changes, sep="\n")
    print(f"{len(table.rows)} statements on {len(PROCESSORS)} processors with {len(FLAVORS)} LLVMs")
    if arguments.check:
        return int(bool(changes))
    TABLE.write_text(text, encoding="utf-8")
    measured.cache_clear()
    return 0


if __name__ == "__main__":
    sys.exit(main())
