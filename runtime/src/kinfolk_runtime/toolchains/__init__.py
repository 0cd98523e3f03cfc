"""What turns LLVM IR text into machine code on this host."""

from __future__ import annotations

from kinfolk_runtime.toolchains.base import Compiled, CompileJob, Toolchain
from kinfolk_runtime.toolchains.linker import find_linker, link
from kinfolk_runtime.toolchains.llvm20 import find_llvm20, install_llvm20

__all__ = ["CompileJob", "Compiled", "Toolchain", "find_linker", "find_llvm20", "install_llvm20", "link"]
