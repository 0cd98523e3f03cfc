"""Kernels as LLVM IR for amdgcn: words of the portable ops, attributes, and the module around them."""

from kinfolk_amdgcn.lowering.module import lower_kernel, target_for

__all__ = ["lower_kernel", "target_for"]
