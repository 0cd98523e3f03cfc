"""Machine code of compiled kernels with other words in it: what tests of planted faults share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
from built_once import judged

from kinfolk.check import ScenarioReport
from kinfolk.plugins.composition import Composition
from kinfolk_amdgcn.isa.encoding import Encoded, decoded
from kinfolk_amdgcn.isa.kernel_object import read_kernel
from kinfolk_runtime.artifact import Artifact, sha256
from kinfolk_runtime.isa import MachineExecutor
from kinfolk_runtime.verify import Runner

NOP = 0xBF800000
WAIT = 12
"""The opcode of s_waitcnt in SOPP."""
STORES = range(24, 32)
"""Opcodes of stores in MUBUF and FLAT."""
OTHER_REGISTER = 2


def instructions(artifact: Artifact, number: int = 0) -> list[Encoded]:
    """Return the instructions of a kernel, from where a launch begins."""
    compiled = artifact.kernels[number]
    return list(decoded(read_kernel(compiled.object, compiled.symbol).code))


def instructions_that_ran(executor: MachineExecutor, artifact: Artifact, number: int) -> list[Encoded]:
    """Return those instructions of a kernel that waves ran in the launches of a traced executor, in order."""
    symbol = artifact.kernels[number].symbol
    ran = {
        each.offset
        for launch in executor.executed
        if launch.symbol == symbol and launch.trace is not None
        for each in launch.trace.timing(workgroups=1).instructions
        if each.count
    }
    return [each for each in instructions(artifact, number) if each.offset in ran]


def other_store(ran: Sequence[Encoded], place: int = -1) -> dict[int, int]:
    """Return the word of a fault: the last store of these instructions, or that at a place, stores another register."""
    chosen = [each for each in ran if each.format in ("MUBUF", "FLAT") and each.opcode in STORES][place]
    return {chosen.offset + 4: (chosen.bits >> 32) ^ OTHER_REGISTER << 8}


def edited(artifact: Artifact, places: Mapping[int, int], number: int = 0) -> Artifact:
    """Return an artifact of which a kernel, each time it is launched, has other words at offsets in its code.

    It is recorded as if it had been compiled so.
    """
    chosen = artifact.kernels[number]
    code = read_kernel(chosen.object, chosen.symbol).code
    words = bytearray(code)
    for offset, word in places.items():
        words[offset : offset + 4] = word.to_bytes(4, "little")
    assert chosen.object.count(code) == 1
    changed = chosen.object.replace(code, bytes(words))
    compiled = attrs.evolve(chosen, object=changed, object_sha256=sha256(changed))
    return attrs.evolve(
        artifact, kernels=tuple(compiled if each.object == chosen.object else each for each in artifact.kernels)
    )


def told(report: ScenarioReport) -> str:
    """Return the messages of a report's findings."""
    return "\n".join(finding.message for finding in report.findings)


def kind_found(composition: Composition, artifact: Artifact, name: str, executor: MachineExecutor) -> str:
    """Return what is found of an artifact: the kind of its fault, `wrong` for its outputs, or nothing."""
    report = judged(composition, artifact, name, (Runner(executor),))
    if report.outputs:
        return "" if report.status == "pass" else "wrong"
    [fault] = report.findings
    return fault.message.rpartition("[")[2].rstrip("]") if fault.code == "simulation" else fault.code
