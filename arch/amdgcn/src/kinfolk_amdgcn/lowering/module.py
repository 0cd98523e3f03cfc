"""The module around a kernel: data layout, the table of lowerings, and what is checked before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kinfolk.arch import LoweredModule
from kinfolk.errors import IRError
from kinfolk.ir.op import LowerToLlvm
from kinfolk.ir.ops.memory import ALLOCATE
from kinfolk.ir.types import BufferType
from kinfolk.ir.value import Kernel
from kinfolk.lowering import Target
from kinfolk_amdgcn.legality import Legality
from kinfolk_amdgcn.lowering import arithmetic, control, float8, lanes, memory
from kinfolk_amdgcn.lowering.attributes import function_attributes, parameter_words
from kinfolk_amdgcn.lowering.watch import WatchedWriter, legal_only
from kinfolk_amdgcn.target import TRIPLE, parse_target_id

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.spec import Spec

# What each generation's amdgcn target machine says of itself. A generation not listed is written in the words of the
# newest one below it; LLVM upgrades a layout that it has outgrown.
DATA_LAYOUTS: Final[Mapping[int, str]] = {
    20: (
        "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256:256:32-p8:128:128-p9:192:256:256:32-"
        "i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1-"
        "ni:7:8:9"
    ),
    22: (
        "e-m:e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256:256:32-p8:128:128:128:48-"
        "p9:192:256:256:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-"
        "n32:64-S32-A5-G1-ni:7:8:9"
    ),
}
SPACES: Final = {"global": 1, "workgroup": 3, "view": 8}
LOWERINGS: Final[Mapping[str, LowerToLlvm]] = {
    **arithmetic.LOWERINGS,
    **lanes.LOWERINGS,
    **memory.LOWERINGS,
    **control.LOWERINGS,
}


def target_for(arch: Arch, llvm: int) -> Target:
    """Return how `arch` words kernels for an LLVM generation; IRError for one that is older than any known."""
    known = [generation for generation in DATA_LAYOUTS if generation <= llvm]
    if not known:
        raise IRError(f"LLVM {llvm} is not written for; the oldest generation is {min(DATA_LAYOUTS)}")
    return Target(
        triple=TRIPLE,
        data_layout=DATA_LAYOUTS[max(known)],
        convention="amdgpu_kernel",
        spaces=SPACES,
        lowerings={**LOWERINGS, **float8.lowerings(arch), "core.bound": memory.lower_bound(arch.buffer_word3)},
    )


def lower_kernel(
    kernel: Kernel, arch: Arch, spec: Spec | None, llvm: int, *, legality: Legality | None
) -> LoweredModule:
    """Return `kernel` as an LLVM IR module for `arch` and the LLVM generation `llvm`.

    `legality` is the arch's table, which calls are held against; None holds them against nothing.
    Raises IRError for a kernel attribute that is not known here, a block the arch cannot launch, workgroup memory
    beyond what it has, and registers budgeted for more workgroups than fit; IllegalOp for an op that is written as a
    call which, as measured, the arch's processor does not have in this generation.
    """
    check_limits(kernel, arch)
    attributes = function_attributes(kernel, arch)
    writer = WatchedWriter(kernel, arch, target_for(arch, llvm), llvm, legal_only(arch, llvm, legality))
    writer.name_parameters()
    writer.region(kernel.body)
    text = writer.module([parameter_words(parameter, llvm) for parameter in kernel.parameters], attributes)
    code = parse_target_id(arch.target_ids[0])
    return LoweredModule(symbol=kernel.name, text=text, triple=TRIPLE, cpu=code.processor, features=code.llvm_features)


def check_limits(kernel: Kernel, arch: Arch) -> None:
    """Raise IRError where the arch cannot launch the kernel, whatever the compiler makes of it."""
    if kernel.wave_size != arch.wave_size:
        raise IRError(f"{kernel.name} is built for waves of {kernel.wave_size}, {arch.name} has {arch.wave_size} lanes")
    if kernel.block > arch.max_workgroup_size:
        raise IRError(f"{kernel.name}: block is {kernel.block} threads, {arch.name} takes {arch.max_workgroup_size}")
    buffers = [op.results[0].type for op in kernel.walk() if op.definition is ALLOCATE]
    taken = sum(-(-buffer.bytes // 16) * 16 for buffer in buffers if isinstance(buffer, BufferType))
    if taken > arch.lds_bytes:
        raise IRError(
            f"{kernel.name} allocates {taken} bytes of workgroup memory in {len(buffers)} buffers, "
            f"{arch.name} has {arch.lds_bytes}"
        )
