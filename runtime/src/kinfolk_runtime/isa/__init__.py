"""The executor of machine code: what the compiler produced, run on this host by what its arch says of instructions."""

from __future__ import annotations

from kinfolk_runtime.isa.executor import MachineExecutor
from kinfolk_runtime.isa.memory import LaunchMemory

executor = MachineExecutor

__all__ = ["LaunchMemory", "MachineExecutor", "executor"]
