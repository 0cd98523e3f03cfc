"""Kernels as text in MLIR's generic syntax, and back. Kernels are compared by it; nothing compiles from it."""

from __future__ import annotations

import hashlib

from kinfolk.ir.text.parser import parse_kernel
from kinfolk.ir.text.printer import print_kernel
from kinfolk.ir.value import Kernel

__all__ = ["kernel_digest", "parse_kernel", "print_kernel"]


def kernel_digest(kernel: Kernel) -> str:
    """Return the sha256 of the kernel's text, in 64 hex digits."""
    return hashlib.sha256(print_kernel(kernel).encode()).hexdigest()
