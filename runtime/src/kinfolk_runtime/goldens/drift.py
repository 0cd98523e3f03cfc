"""Figures of kernels that were just compiled, beside those that are blessed for the same build."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kinfolk_runtime.artifact import CompiledKernel
from kinfolk_runtime.goldens.check import section_name
from kinfolk_runtime.goldens.compare import Finding, Where, values_moved
from kinfolk_runtime.goldens.document import GoldenError
from kinfolk_runtime.goldens.place import Place
from kinfolk_runtime.goldens.present import figures_row

if TYPE_CHECKING:
    from kinfolk.plugins.composition import Composition


def drift(composition: Composition, kernels: Iterable[CompiledKernel]) -> tuple[Finding, ...]:
    """Return every figure that is blessed with another value; kernels and builds that nobody has blessed have none."""
    place, arch = Place.of(composition), composition.arch.name
    try:
        document = place.document("figures", arch)
    except GoldenError as error:
        where = Where(kind="figures", family=place.family, arch=arch)
        return (Finding(code="figures.garbled", where=where, what=str(error)),)
    found: list[Finding] = []
    for kernel in kernels:
        name = section_name(kernel.flavor, kernel.toolchain)
        section = document.sections.get(name) if document else None
        now = figures_row(kernel)
        for row in section.rows if section else ():
            if row.spec == now.spec:
                where = Where(kind="figures", family=place.family, arch=arch, section=name)
                found += values_moved(row, now, where)
    return tuple(found)
