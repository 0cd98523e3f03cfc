"""Function and parameter attributes: what the compiler may assume, derived from arch facts and declarations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kinfolk.errors import IRError
from kinfolk.ir.types import PointerType
from kinfolk.ir.value import Kernel
from kinfolk.parameters import Parameter

if TYPE_CHECKING:
    from kinfolk.arch import Arch

# Arguments the runtime can pass behind a kernel's own. Our ops read none of them, and code generation alone does not
# find that out: without these words every kernel takes 256 bytes more of arguments and six more scalar registers.
_NEVER_READ: Final = (
    "dispatch-ptr",
    "queue-ptr",
    "dispatch-id",
    "implicitarg-ptr",
    "hostcall-ptr",
    "heap-ptr",
    "default-queue",
    "completion-action",
    "multigrid-sync-arg",
    "lds-kernel-id",
    "flat-scratch-init",
    "workitem-id-y",
    "workitem-id-z",
)
_CAPTURES_WORD_SINCE: Final = 21  # `nocapture` became `captures(none)`


def parameter_words(parameter: Parameter, llvm: int) -> str:
    """Return a parameter in LLVM's words.

    Memory that a kernel writes is never reachable through another parameter, so every pointer is `noalias`.
    """
    if not isinstance(parameter.type, PointerType):
        return f"{'float' if parameter.type.name == 'f32' else parameter.type.name} %{parameter.name}"
    capture = "captures(none)" if llvm >= _CAPTURES_WORD_SINCE else "nocapture"
    access = {"read": " readonly", "write": " writeonly", "readwrite": ""}[parameter.access]
    return f"ptr addrspace(1) noalias {capture}{access} align {parameter.alignment} %{parameter.name}"


def function_attributes(kernel: Kernel, arch: Arch) -> str:
    """Return the attribute group of a kernel's function; IRError for a kernel attribute that is not known here.

    f32 denormals are kept, which is what LLVM assumes when nothing is said.
    """
    smallest = min(arch.wave_size, kernel.block)
    words = [
        "norecurse",
        "nounwind",
        _pair("amdgpu-flat-work-group-size", f"{smallest},{kernel.block}"),
        _pair("uniform-work-group-size", "true"),
        *(f'"amdgpu-no-{name}"' for name in (*_NEVER_READ, *_unread_block_ids(kernel))),
    ]
    for name, value in kernel.attributes.items():
        if name not in KERNEL_ATTRIBUTES:
            known = ", ".join(KERNEL_ATTRIBUTES)
            raise IRError(f"{kernel.name}: kernel attribute {name!r} is not known on {arch.name}, known: {known}")
        words += KERNEL_ATTRIBUTES[name](kernel, arch, value)
    return " ".join(words)


def _unread_block_ids(kernel: Kernel) -> list[str]:
    read = {op.attributes["axis"] for op in kernel.walk() if op.name == "core.block_id"}
    return [f"workgroup-id-{name}" for axis, name in enumerate("xyz") if axis and axis not in read]


def _waves_per_simd(kernel: Kernel, arch: Arch, value: object) -> list[str]:
    if type(value) is not int or value < 1:
        raise IRError(f"{kernel.name}: kernel attribute 'workgroups_per_cu' is a positive int, got {value!r}")
    waves = value * (kernel.block // arch.wave_size)
    per_simd = -(-waves // arch.simds_per_cu)
    if per_simd > arch.max_waves_per_simd:
        raise IRError(
            f"{kernel.name}: {value} workgroups of {kernel.block} threads are {per_simd} waves per SIMD, "
            f"{arch.name} holds {arch.max_waves_per_simd}"
        )
    return [_pair("amdgpu-waves-per-eu", str(per_simd))]


def _accumulators(kernel: Kernel, arch: Arch, value: object) -> list[str]:
    if value == "vgpr":
        return [_pair("amdgpu-agpr-alloc", "0"), '"amdgpu-no-agpr"']  # LLVM 22 reads the first, LLVM 20 the second
    if value == "either":
        return [_pair("amdgpu-agpr-alloc", "0,256")]
    raise IRError(f"{kernel.name}: kernel attribute 'accumulators' is 'vgpr', 'either' or left out, got {value!r}")


KERNEL_ATTRIBUTES: Final[Mapping[str, Callable[[Kernel, Arch, object], list[str]]]] = {
    "workgroups_per_cu": _waves_per_simd,
    "accumulators": _accumulators,
}
"""What a kernel may ask of the compiler, by name.

`workgroups_per_cu`: registers are budgeted so that this many share a compute unit. `accumulators="vgpr"`: matrix
results live in plain vector registers; "either": matrix operations are chosen in their plain form and the register
allocator moves what it likes to accumulation registers, which LLVM 22 on can; left out, the compiler chooses.
"""


def _pair(name: str, value: str) -> str:
    return f'"{name}"="{value}"'
