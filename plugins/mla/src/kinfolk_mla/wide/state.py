"""What a round of the pipelined loop hands to the next."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from kinfolk.ir.value import Value
from kinfolk_mla.wide.attend import Attended


@attrs.frozen(kw_only=True, eq=False)
class State:
    """At the start of round i: the scores of tile i are there, masked; tile i+1 is staged, tile i+2 on its way.

    `slot` is tile i's place in the ring, `next_rows` and `staged_rows` the valid rows of each page of tiles i+1 and
    i+2, `following` the page ids of tile i+3, `loaded` what this thread carries of tile i+2, `reads` the first key
    reads of tile i+1.
    """

    slot: Value
    next_rows: Sequence[Value]
    staged_rows: Sequence[Value]
    following: Sequence[Value]
    loaded: Sequence[Value]
    reads: Sequence[Value]
    attended: Attended
