"""What shows that a mutant is no mistake: the compiler makes the same code of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinfolk.errors import KinfolkError
from kinfolk.flavor import flavor_named
from kinfolk_runtime.artifact import CompiledKernel, compile_job
from kinfolk_runtime.toolchains.host import toolchain_for

if TYPE_CHECKING:
    from kinfolk.ir.value import Kernel
    from kinfolk.plugins.composition import Composition
    from kinfolk.testing.mutation import Mutant


def proof(mutant: Mutant, kernel: Kernel, compiled: CompiledKernel, composition: Composition) -> str:
    """Return why a mutant is equivalent to the kernel that was compiled; "" where that is not shown.

    A change that compiled code does not show, of what an op means, is none that a compiler can judge.
    """
    if not mutant.change.in_code:
        return ""
    module = composition.arch.lower(kernel, compiled.spec, flavor_named(compiled.flavor).rank)
    if module == compiled.module:
        return "identical LLVM IR"
    toolchain = toolchain_for(compiled.flavor)
    if toolchain.build != compiled.toolchain:
        return ""
    try:
        code = toolchain.compile(compile_job(module)).object
    except KinfolkError:
        return ""
    return f"identical code ({toolchain.build})" if code == compiled.object else ""
