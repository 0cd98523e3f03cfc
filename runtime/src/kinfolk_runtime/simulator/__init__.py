"""The simulator: kernels run as their ops are declared, with every access, claim and barrier checked.

Two engines with the same results: the reference in numpy, one wave at a time, and a fast one of compiled functions of
the ops, which leaves what it has none for, and the naming of faults, to the reference. Both look for what
`sanitizers` lists.
"""

from __future__ import annotations

from kinfolk_runtime.simulator.buffers import Buffer, SparseBuffer
from kinfolk_runtime.simulator.engine import Simulator
from kinfolk_runtime.simulator.fault import KernelFault

__all__ = ["Buffer", "KernelFault", "Simulator", "SparseBuffer"]
