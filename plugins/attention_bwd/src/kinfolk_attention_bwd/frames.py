"""What both kernels of gradients are built around: the atom of their products, and how their threads carry tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kinfolk.ir import build_kernel
from kinfolk.ir.types import SCALARS
from kinfolk.ir.value import Kernel, Value
from kinfolk.tile.attention.frame import Frame
from kinfolk_attention_bwd.arguments import Arguments

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_attention_bwd.spec import GradientSpec


def frame_of(spec: GradientSpec, arch: Arch) -> Frame:
    """Return the frame of a spec: the atom that contracts the most at once."""
    element = SCALARS[spec.dtype]
    return Frame(
        element,
        arch.matrix.find(m=spec.atom, n=spec.atom, a=spec.dtype),
        spec.vector_bytes // element.bytes,
        arch.wave_size,
        spec.waves * arch.wave_size,
        spec.row_padding_bytes // element.bytes,
    )


def gradient_kernel(spec: GradientSpec, arch: Arch, work: Callable[[Frame, Arguments], None]) -> Kernel:
    """Build the kernel of `spec` in which a workgroup does `work`."""
    frame = frame_of(spec, arch)
    names = [parameter.name for parameter in spec.parameters()]

    def body(*parameters: Value) -> None:
        work(frame, Arguments(**dict(zip(names, parameters, strict=True))))

    return build_kernel(
        spec.symbol(), spec.parameters(), arch=arch, block=frame.threads, attributes=spec.attributes, body=body
    )
