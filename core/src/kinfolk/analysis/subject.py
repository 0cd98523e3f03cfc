"""What an analysis is given: a kernel, what it was built for, and facts of it that several analyses share."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import attrs

from kinfolk.analysis.liveness import live_values
from kinfolk.analysis.uniformity import Uniformity, uniformity
from kinfolk.analysis.values import Values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kinfolk.arch import Arch
    from kinfolk.check.defect import Defect
    from kinfolk.ir.value import Kernel, Operation, Value
    from kinfolk.spec import Spec

    Analysis = Callable[["Subject"], tuple[Defect, ...]]


T = TypeVar("T")


@attrs.frozen(kw_only=True, eq=False, slots=False)
class Subject:
    """A kernel, the arch it was built for, and the spec it was built from where that is known.

    What several analyses ask of it is worked out when first asked for, once.
    """

    kernel: Kernel
    arch: Arch
    spec: Spec | None = None

    @cached_property
    def live(self) -> frozenset[Value]:
        """The values that something the kernel does depends on."""
        return live_values(self.kernel)

    @cached_property
    def uniformity(self) -> Uniformity:
        """How far each value is known to be the same on all lanes."""
        return uniformity(self.kernel)

    @cached_property
    def values(self) -> Values:
        """The numbers that each value may be, whichever wave runs."""
        return Values(self.kernel, self.arch)

    @cached_property
    def values_by_wave(self) -> tuple[Values, ...]:
        """The numbers that each value may be in each wave of the workgroup: sharper, where waves have parts."""
        waves = self.kernel.block // self.kernel.wave_size
        return tuple(Values(self.kernel, self.arch, wave=wave) for wave in range(waves))

    def unproved(self, judge: Callable[[Values], Mapping[Operation, T]]) -> dict[Operation, T]:
        """Return what a judge holds against ops, in order of the text: against all waves, and against some wave."""
        if not judge(self.values):
            return {}
        found: dict[Operation, T] = {}
        for values in self.values_by_wave:
            found = {**judge(values), **found}
        return {op: found[op] for op in self.kernel.walk() if op in found}

    @property
    def name(self) -> str:
        """How messages name the emitter: by its spec's class, else by the kernel."""
        return type(self.spec).__name__ if self.spec is not None else self.kernel.name
