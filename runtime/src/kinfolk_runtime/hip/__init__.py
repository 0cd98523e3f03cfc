"""Launching on AMD GPUs through HIP: `executor()` makes one of device 0.

outputs = kinfolk_runtime.call(artifact, tensors, executor="hip")
executor = HipExecutor(device=1, stream=torch.cuda.current_stream())     # or of another device, on a caller's stream
"""

from __future__ import annotations

from kinfolk_runtime.hip.driver import HipError, HipUnavailable
from kinfolk_runtime.hip.executor import HipExecutor

__all__ = ["HipError", "HipExecutor", "HipUnavailable", "executor"]

executor = HipExecutor
