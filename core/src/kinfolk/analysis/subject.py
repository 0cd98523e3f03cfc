"""What an analysis is given: a kernel, what it was built for, and facts of it that several analyses share."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import attrs

from kinfolk.analysis.liveness import live_values
from kinfolk.analysis.uniformity import Uniformity, uniformity

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinfolk.arch import Arch
    from kinfolk.check.defect import Defect
    from kinfolk.ir.value import Kernel, Value
    from kinfolk.spec import Spec

    Analysis = Callable[["Subject"], tuple[Defect, ...]]


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

    @property
    def name(self) -> str:
        """How messages name the emitter: by its spec's class, else by the kernel."""
        return type(self.spec).__name__ if self.spec is not None else self.kernel.name
