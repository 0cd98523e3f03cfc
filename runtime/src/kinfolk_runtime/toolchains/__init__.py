"""What turns LLVM IR text into machine code on this host."""

from __future__ import annotations

from kinfolk_runtime.toolchains.base import Compiled, CompileJob, Toolchain

__all__ = ["CompileJob", "Compiled", "Toolchain"]
