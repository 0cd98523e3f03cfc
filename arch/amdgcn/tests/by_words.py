"""Waves with registers to fill, and steps of instructions given by their words."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kinfolk.machine import MachineMemory
from kinfolk_amdgcn.isa.encoding import decoded
from kinfolk_amdgcn.isa.flow_steps import flow_step
from kinfolk_amdgcn.isa.local_memory import LocalMemory
from kinfolk_amdgcn.isa.local_steps import local_step
from kinfolk_amdgcn.isa.matrix_steps import matrix_step
from kinfolk_amdgcn.isa.operands import RegisterFile
from kinfolk_amdgcn.isa.program import declared
from kinfolk_amdgcn.isa.scalar_steps import scalar_step
from kinfolk_amdgcn.isa.special_steps import special_step
from kinfolk_amdgcn.isa.step import Given, Step
from kinfolk_amdgcn.isa.vector_steps import vector_step
from kinfolk_amdgcn.isa.waves import EXEC, Batch, Waves

Array = npt.NDArray[Any]
LANE = np.arange(64)
FILE = RegisterFile(64, 64)
STEPS = {"matrix": matrix_step, "local": local_step, "special": special_step}
STEPS |= {"lane": vector_step, "scalar": scalar_step}


class NoMemory:
    def read(self, addresses: Array, unit: int) -> Array:
        raise AssertionError

    def write(self, addresses: Array, values: Array) -> None:
        raise AssertionError


def waves(count: int = 1, local_bytes: int = 4096) -> Waves:
    """Return waves of one workgroup, all lanes live, registers 0."""
    memory: MachineMemory = NoMemory()
    batch = Batch(LocalMemory(1, count, local_bytes, 4, 0), memory, 0)
    w = Waves.fresh(batch, FILE.rows, np.zeros(count, np.int64), np.arange(count), 0)
    w.s[:, EXEC : EXEC + 2] = 0xFFFFFFFF
    w.exec_written()
    return w


def step_of(*words: int, float8: str = "fnuz") -> Step:
    """Return the step of an instruction by its words."""
    [encoded] = decoded(b"".join(word.to_bytes(4, "little") for word in words))
    row = declared(encoded)
    assert row is not None
    given = Given(declared=row, encoded=encoded, registers=FILE, float8=float8)
    return flow_step(given, lambda offset: 0) if row.kind == "flow" else STEPS[row.kind](given)


def vop1(opcode: int, target: int, source: int) -> int:
    return 0b0111111 << 25 | target << 17 | opcode << 9 | source


def ds(opcode: int, offset: int = 0, address: int = 0, data: int = 0, target: int = 0) -> tuple[int, int]:
    return 0b110110 << 26 | opcode << 17 | offset, address | data << 8 | target << 24


def mfma(opcode: int, target: int, a: int, b: int, c: int) -> tuple[int, int]:
    return 0b110100111 << 23 | opcode << 16 | target, a | b << 9 | c << 18
