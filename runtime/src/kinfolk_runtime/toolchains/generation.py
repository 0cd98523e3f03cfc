"""Which flavors an LLVM takes: known by name, served by rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kinfolk.flavor import flavors

OLDEST_READ: Final[Mapping[int, int]] = {20: 20, 22: 22}
"""From which generation on IR is read, by LLVM generation; one that is not listed reads what the last one below does.

LLVM 22 refuses what is written for 20: `make.buffer.rsrc` takes an i64 size there (`Intrinsic has incorrect argument
type`). IR of a later generation than the LLVM's own is never given to it.
"""


def served_flavors(llvm: int) -> tuple[str, ...]:
    """Return the registered flavors that an LLVM of this generation takes, oldest first; none for one too old.

    The last one is the flavor nearest to it: LLVM 23 takes llvm22 as long as no llvm23 is registered, then both.
    """
    known = [generation for generation in OLDEST_READ if generation <= llvm]
    if not known:
        return ()
    oldest = OLDEST_READ[max(known)]
    return tuple(flavor.name for flavor in flavors() if oldest <= flavor.rank <= llvm)
