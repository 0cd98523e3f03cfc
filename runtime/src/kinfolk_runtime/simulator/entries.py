"""How often the regions of kernels are entered: what a run did, told apart by loop and branch."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from kinfolk.ir.value import Kernel, Region

Counted = npt.NDArray[np.int64]
"""[regions + 1, 2]: how many waves entered each region, and how many of their lanes were active; then, of all regions
together, how many bytes were read and written inside of views.
"""


def regions_of(kernel: Kernel) -> Sequence[Region]:
    """Return a kernel's regions in the order of the text: its body first, a region before those within."""
    found: list[Region] = []
    pending = [kernel.body]
    while pending:
        region = pending.pop()
        found.append(region)
        pending += reversed([inner for op in region.operations for inner in op.regions])
    return found


class Entries:
    """Counts by kernel, of all launches of it that ran to their end since it was last taken."""

    def __init__(self) -> None:
        self._counted: WeakKeyDictionary[Kernel, Counted] = WeakKeyDictionary()

    def add(self, kernel: Kernel, counted: Counted) -> None:
        """Count another launch."""
        known = self._counted.get(kernel)
        self._counted[kernel] = counted.copy() if known is None else known + counted

    def clear(self) -> None:
        """Forget what was counted."""
        self._counted.clear()

    def take(self, kernel: Kernel) -> Counted | None:
        """Return what was counted of a kernel, and begin anew; None where it did not run on an engine that counts."""
        return self._counted.pop(kernel, None)
