"""Families as operators of PyTorch: `operator(family)` gives `torch.ops.kinfolk.<family>`.

    attention = operator("attention_fwd")
    out, lse = attention(q, k, v, arch="gfx942", causal=True, return_lse=True, scale=0.125)

Tensors of a device run there through HIP, on torch's current stream; those of this host on the simulator. Nothing else
imports torch, which is an extra; without it this package raises TorchUnavailable when it is imported.
"""

from __future__ import annotations

from kinfolk_runtime.torch.exchange import array_of, tensor_of
from kinfolk_runtime.torch.library import TorchUnavailable
from kinfolk_runtime.torch.operator import operator, operators

__all__ = ["TorchUnavailable", "array_of", "operator", "operators", "tensor_of"]
