"""What kernels do, counted while the simulator runs them: operations, bytes, bank conflicts, coalescing, divergence."""

from kinfolk_runtime.profile.counts import Counts, Instruction, Segments, WorkgroupAccess
from kinfolk_runtime.profile.report import SCHEMA, KernelProfile, Profile
from kinfolk_runtime.profile.run import SAMPLE, profile

__all__ = [
    "SAMPLE",
    "SCHEMA",
    "Counts",
    "Instruction",
    "KernelProfile",
    "Profile",
    "Segments",
    "WorkgroupAccess",
    "profile",
]
