"""llvm-mca's opinion of a loop, where this host has it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import attrs

from kinfolk.errors import ToolError
from kinfolk.flavor import DEFAULT_FLAVOR, flavor_named
from kinfolk.machine import Instruction
from kinfolk_runtime.toolchains.tool import Tool, find_tool, paths_on_host, run_tool

MCA_SECONDS: Final = 8.0
"""How long llvm-mca may take: on some bodies it takes for ever (LLVM 22)."""
NOT_ASKED: Final = "not asked"
"""The note where a caller wants no opinion."""
FEW, MANY = 20, 60
"""Rounds of two runs; the difference is of the steady state."""

_TOTAL: Final = re.compile(r"Total Cycles:\s+(\d+)")


@attrs.frozen
class McaResult:
    """Cycles of a round in llvm-mca's count, or None with the reason in `note`."""

    cycles: float | None
    note: str = ""


@cache
def find_mca() -> Tool:
    """Return this host's llvm-mca; ToolError where there is none. A failure is not remembered."""
    rank = flavor_named(DEFAULT_FLAVOR).rank
    return find_tool("llvm-mca", paths_on_host("llvm-mca"), oldest=rank)


def mca_cycles(
    body: Sequence[Instruction], triple: str, cpu: str, *, tool: Tool, seconds: float = MCA_SECONDS
) -> McaResult:
    """Return what llvm-mca says of a round, without jumps and barriers, which its model does not time."""
    text = "".join(f"{each.text}\n" for each in body if each.costs)
    if not text:
        return McaResult(None, "nothing to count")
    totals: list[int] = []
    for rounds in (FEW, MANY):
        try:
            said = _run(tool.path, text, triple, cpu, rounds, seconds)
        except ToolError as error:
            return McaResult(None, f"llvm-mca says nothing: {error}")
        match = _TOTAL.search(said)
        if match is None:
            return McaResult(None, "llvm-mca names no total")
        totals.append(int(match[1]))
    return McaResult((totals[1] - totals[0]) / (MANY - FEW))


def _run(path: Path, text: str, triple: str, cpu: str, rounds: int, seconds: float) -> str:
    command = [
        str(path),
        f"-mtriple={triple}",
        f"-mcpu={cpu}",
        f"-iterations={rounds}",
        "-skip-unsupported-instructions=parse-failure",
        "-all-views=false",
        "-summary-view",
    ]
    return run_tool(command, text.encode(), seconds=seconds).decode(errors="replace")
