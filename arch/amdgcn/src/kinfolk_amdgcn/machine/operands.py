"""One machine instruction from its text: its class, the registers it reads and writes, the accesses it waits for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

from kinfolk.machine import Instruction, MachineClass
from kinfolk_amdgcn.machine.costs import MATRIX_LATENCY_CLOCKS, costs, matrix_clocks

if TYPE_CHECKING:
    from kinfolk.arch import Arch

VECTOR_QUEUE, LOCAL_QUEUE = "vmcnt", "lgkmcnt"
"""Accesses to global memory end in the order of the first, those to workgroup memory and scalar loads of the second."""

_CLASSES: Final[Mapping[str, MachineClass]] = {
    r"v_s?mfmac?_": "matrix",
    r"v_accvgpr_": "accumulator_move",
    r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_": "transcendental",
    r"v_": "vector",
    r"ds_": "workgroup_memory",
    r"scratch_": "scratch_memory",
    r"(buffer|global|flat|tbuffer)_": "global_memory",
    r"s_(buffer_|scratch_)?(load|store)_|s_dcache|s_memtime": "scalar_memory",
    r"s_waitcnt": "wait",
    r"s_barrier": "barrier",
    r"s_(c?branch|setpc|swappc|call)|s_endpgm|s_trap": "branch",
    r"s_(nop|setprio|sleep|sethalt)": "none",
    r"s_": "scalar",
}
"""The class of an opcode, by the first of these that it begins with."""
_REGISTER: Final = re.compile(r"\b([vsa])(?:\[(\d+):(\d+)\]|(\d+))(?![\w\[])|\b(vcc|exec|m0)\b")
_SEPARATOR: Final = re.compile(r",\s*(?![^\[]*\])")
_WAITS: Final = re.compile(r"(vmcnt|lgkmcnt)\((\d+)\)")
_BYTES: Final = (
    (r"b128|x4\b", 16),
    (r"b96|x3\b", 12),
    (r"b64|x2\b|f64|i64|u64", 8),
    (r"16|short", 2),
    (r"8\b|byte", 1),
)
_LOCAL_STORE: Final = re.compile(r"ds_(write|store|add|sub|inc|dec|min|max|and|or|xor|pk_add)")
_BOTH: Final = re.compile(r"v_(swap|permlane\d+_swap|pk_fmac|fmac|dot\d\w*c|mac)|v_writelane|s_(cmpk?|bitcmp)")
"""Instructions that read their first operand as well."""


def instruction(opcode: str, operands: str, arch: Arch) -> Instruction:
    """Return what an instruction does; what is not known of it is that of its class.

    Condition bits of scalar compares, `exec` and the mode are not tracked.
    """
    issue = machine_class(opcode)
    parts = _SEPARATOR.split(operands)
    reads, writes = _operands(opcode, parts, operands, issue)
    adds_to: frozenset[str] = frozenset()
    clocks = 0.0
    if issue == "matrix":
        reads, adds_to = registers(*parts[1:3]), registers(*parts[3:4])
        adds_to, reads = (writes, reads | adds_to) if opcode.startswith("v_smfmac") else (adds_to, reads)
        reads |= registers(*parts[4:])
        clocks = matrix_clocks(opcode, operands, arch)
    lane_bytes, direction = _access(opcode, operands, issue)
    return Instruction(
        text=f"{opcode} {operands}".rstrip(),
        issue=issue,
        reads=reads,
        adds_to=adds_to,
        writes=writes,
        matrix_clocks=clocks,
        forward=MATRIX_LATENCY_CLOCKS if issue == "matrix" else 0.0,
        queue=_queue(issue),
        waits=_waits(operands) if issue == "wait" else {},
        bytes=lane_bytes,
        direction=direction,
        costs=costs(issue, lane_bytes, clocks, arch.wave_size),
    )


def registers(*texts: str) -> frozenset[str]:
    """Return the registers that operands name, one by one: `v[2:3]` is v2 and v3."""
    found: set[str] = set()
    for text in texts:
        for kind, low, high, single, named in _REGISTER.findall(text):
            if named:
                found.add(named)
            else:
                first, last = (low, high) if low else (single, single)
                found.update(f"{kind}{number}" for number in range(int(first), int(last) + 1))
    return frozenset(found - {"exec"})


def machine_class(opcode: str) -> MachineClass:
    """Return the class of an opcode, by how it begins."""
    for pattern, issue in _CLASSES.items():
        if re.match(pattern, opcode):
            return issue
    return "scalar"


def _operands(
    opcode: str, parts: list[str], operands: str, issue: MachineClass
) -> tuple[frozenset[str], frozenset[str]]:
    """Return what is read and what is written."""
    if issue in ("wait", "barrier", "branch", "none"):
        return frozenset(), frozenset()
    if issue in ("workgroup_memory", "global_memory", "scratch_memory") and _only_reads(opcode, operands):
        return registers(operands), frozenset()
    writes, reads = registers(parts[0]), registers(*parts[1:])
    if opcode.startswith(("s_cmp", "s_bitcmp")):
        return registers(operands), frozenset()
    if "co_" in opcode or opcode.startswith("v_div_scale"):
        writes |= registers(*parts[1:2])
    if "_swap" in opcode:
        writes |= reads
    if _BOTH.match(opcode):
        reads |= writes
    return reads, writes


def _only_reads(opcode: str, operands: str) -> bool:
    """Whether an access brings nothing to registers: stores, atomics without a result, loads to workgroup memory."""
    if opcode.startswith("ds_"):
        return bool(_LOCAL_STORE.match(opcode)) and "rtn" not in opcode
    returns = "atomic" in opcode and re.search(r"\b(sc0|glc)\b", operands)
    to_workgroup = bool(re.search(r"\blds\b", operands)) or "_lds_" in opcode
    return to_workgroup or "store" in opcode or ("atomic" in opcode and not returns)


def _queue(issue: MachineClass) -> str:
    if issue in ("global_memory", "scratch_memory"):
        return VECTOR_QUEUE
    return LOCAL_QUEUE if issue in ("workgroup_memory", "scalar_memory") else ""


def _waits(operands: str) -> dict[str, int]:
    """Return the most accesses that may stay in flight; a wait that is written as a number waits for all."""
    if named := {name: int(count) for name, count in _WAITS.findall(operands)}:
        return named
    return {} if "expcnt" in operands else {VECTOR_QUEUE: 0, LOCAL_QUEUE: 0}


def _access(opcode: str, operands: str, issue: MachineClass) -> tuple[int, Literal["", "read", "write"]]:
    """Return the bytes that each lane moves, and which way."""
    if issue not in ("workgroup_memory", "global_memory", "scratch_memory"):
        return 0, ""
    size = next((size for pattern, size in _BYTES if re.search(pattern, opcode)), 4)
    if re.search(r"(read|write|load|store)(_?2|2st64)", opcode):
        size *= 2
    writes = "store" in opcode or "write" in opcode or "atomic" in opcode or "ds_add" in opcode
    return size, "write" if writes else "read"
