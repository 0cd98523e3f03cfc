"""The frame of every decode kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kinfolk.ir import build_kernel
from kinfolk.ir.ops import control
from kinfolk.ir.value import Kernel, Value
from kinfolk_mla.decode.epilogue import or_nothing
from kinfolk_mla.decode.geometry import Geometry
from kinfolk_mla.decode.sequence import Arguments, Work

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_mla.spec import MlaDecodeSpec
    from kinfolk_mla.wide.spec import MlaWideSpec


def build(
    spec: MlaDecodeSpec | MlaWideSpec, arch: Arch, accumulators: str, loop: Callable[[Work], Callable[[], None]]
) -> Kernel:
    """Build the kernel whose `loop` is set up for all workgroups and run where there are rows.

    `accumulators`: which registers they may be in, by the attribute of that name.
    """
    geometry = Geometry.of(spec, arch)

    def body(*parameters: Value) -> None:
        work = Work.of(Arguments(*parameters), geometry)
        run = loop(work)

        def attend() -> tuple[()]:
            or_nothing(work, run)
            return ()

        control.if_else(work.has_rows, attend)

    return build_kernel(
        spec.symbol(),
        spec.parameters(),
        arch=arch,
        block=geometry.threads,
        attributes={"workgroups_per_cu": spec.workgroups_per_cu, "accumulators": accumulators},
        body=body,
    )
