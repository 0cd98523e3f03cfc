"""The simulator as an executor plugin: `executor()` makes one."""

from __future__ import annotations

from kinfolk_runtime.simulator.engine import Simulator

executor = Simulator
