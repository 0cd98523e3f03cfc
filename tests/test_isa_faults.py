"""Faults in the machine code of every kernel of MLA, on both archs and under both LLVMs: each is found.

A wait is taken out, a cross-lane pattern is changed, a register is another one. Faults are planted in instructions that
waves run; what they do is judged by the rules of the machine and by the family's fp64 reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import attrs
import pytest
from built_once import artifact_of, judged
from isa_edits import NOP, WAIT, edited, instructions, instructions_that_ran, kind_found, other_store

from kinfolk.plugins.composition import Composition, compose
from kinfolk_amdgcn.isa.encoding import Encoded
from kinfolk_mla.request import MlaRequest
from kinfolk_runtime.artifact import Artifact
from kinfolk_runtime.isa import MachineExecutor
from kinfolk_runtime.verify import Runner

pytestmark = [pytest.mark.compile, pytest.mark.simulate, pytest.mark.needs("mla", "gfx942", "gfx950")]

REQUEST = MlaRequest(
    num_heads=16,
    num_seqs=2,
    total_q=2,
    max_seqlen_q=1,
    max_seqlen_k=70,
    absorbed_query=True,
    page_size=16,
    num_pages=12,
    dtype="bf16",
    kv_dtype="bf16",
    causal=True,
    scale=192**-0.5,
    num_seg=2,
)
ONE: dict[str, Any] = {"num_seqs": 1, "total_q": 1, "num_seg": 1, "max_seqlen_k": 40}
PREFILL: dict[str, Any] = {**ONE, "num_heads": 1, "absorbed_query": False, "candidate": "mla.prefill", "num_seg": 0}
PREFILL |= {"max_seqlen_q": 4, "total_q": 4, "max_seqlen_k": 20}
REQUESTS: dict[str, dict[str, Any]] = {
    "split": {},
    "pipelined": {**ONE, "num_heads": 128, "candidate": "mla.pipelined"},
    "grouped": {**ONE, "num_heads": 64, "candidate": "mla.grouped"},
    "prefill": PREFILL,
}
KERNELS = {
    "decode in segments": ("split", "mla_decode", ("early wait", "wait", "store", "product", "crossing")),
    "combine": ("split", "mla_combine", ("wait", "store", "crossing")),
    "pipelined": ("pipelined", "mla_pipelined", ("wait", "store", "product", "crossing")),
    "grouped": ("grouped", "mla_grouped", ("wait", "store", "product", "crossing")),
    "prefill": ("prefill", "mla_prefill", ("wait", "store", "crossing")),
    "expansion for prefill": ("prefill", "mla_expand", ("wait", "product")),
}
"""By kernel: its request, how its symbol begins, and the faults that are planted in it."""
TARGETS = [(arch, flavor) for arch in ("gfx942", "gfx950") for flavor in ("llvm20", "llvm22")]
NEW_ONLY = ("pipelined", "grouped")
"""Older code generators cannot compile these; dispatch refuses them."""
CASES = [
    (*target, kernel) for target in TARGETS for kernel in KERNELS if not (kernel in NEW_ONLY and "llvm20" in target)
]
SWIZZLE, PERMUTES = 61, (62, 63)
PRODUCTS = {53, 55, *range(64, 88), *range(96, 128)}
NEXT_LANES, OTHER_ROW = 8, 0x0400


def served(arch: str, flavor: str, name: str) -> tuple[Composition, Artifact]:
    return compose("mla", arch), artifact_of(attrs.evolve(REQUEST, **REQUESTS[name]), arch, flavor)


@lru_cache(maxsize=1)
def run_of(arch: str, flavor: str, name: str) -> MachineExecutor:
    """Return the executor of a run without a fault."""
    executor = MachineExecutor(traced=True)
    report = judged(*served(arch, flavor, name), "ragged", (Runner(executor),))
    assert report.status == "pass", report.findings
    return executor


@lru_cache(maxsize=1)
def executor_of(arch: str, flavor: str, name: str) -> MachineExecutor:
    """Return the executor of runs with faults, which translates the kernels beside the faulty one once."""
    return MachineExecutor()


def of(ran: Sequence[Encoded], *formats: str, opcodes: Any) -> list[Encoded]:
    return [each for each in ran if each.format in formats and each.opcode in opcodes]


def planted(fault: str, ran: Sequence[Encoded]) -> dict[int, int]:
    """Return the words of a fault, by their offsets in a kernel of which these instructions ran."""
    if fault.endswith("wait"):
        waits = of(ran, "SOPP", opcodes=(WAIT,))
        return {waits[len(waits) // (4 if fault.startswith("early") else 2)].offset: NOP}
    if fault == "store":
        return other_store(ran)
    if fault == "product":
        first = of(ran, "VOP3P", opcodes=PRODUCTS)[0]
        high = first.bits >> 32
        return {first.offset + 4: high & ~0x3FE00 | (high & 0x1FF) << 9}  # B is A
    crossing = of(ran, "DS", opcodes=(SWIZZLE, *PERMUTES))[-1]
    low = crossing.bits & 0xFFFFFFFF
    return {crossing.offset: low ^ OTHER_ROW if crossing.opcode == SWIZZLE else low + NEXT_LANES}


@pytest.mark.parametrize(("arch", "flavor", "kernel"), CASES)
def test_every_fault_in_a_kernel_is_found(arch: str, flavor: str, kernel: str) -> None:
    name, symbol, faults = KERNELS[kernel]
    composition, artifact = served(arch, flavor, name)
    number = next(at for at, each in enumerate(artifact.kernels) if each.symbol.startswith(symbol))
    ran = instructions_that_ran(run_of(arch, flavor, name), artifact, number)
    executor = executor_of(arch, flavor, name)
    for fault in faults:
        wrong = edited(artifact, planted(fault, ran), number)
        found = kind_found(composition, wrong, "ragged", executor)
        assert found in (("outstanding", "race") if fault.endswith("wait") else ("wrong",)), (fault, found)


def test_words_that_are_put_back_show_no_fault() -> None:
    """The control: a kernel that was taken apart and put together as it was, and one whose order of rows is another.

    The first exchange of the combination is of a maximum, which only keeps numbers in range: with another row the sums
    that follow are the same.
    """
    composition, artifact = served("gfx942", "llvm22", "split")
    executor = MachineExecutor()
    assert kind_found(composition, edited(artifact, {}, 1), "ragged", executor) == ""
    exchange = of(instructions(artifact, 1), "DS", opcodes=(SWIZZLE,))[0]
    other = {exchange.offset: (exchange.bits & 0xFFFFFFFF) ^ OTHER_ROW}
    assert kind_found(composition, edited(artifact, other, 1), "ragged", executor) == ""
