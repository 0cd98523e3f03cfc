"""A loop unrolled by two with swapped names: what one round makes is what the next one takes, in registers of its own.

Where a round reads ahead for the next, what it reads and what it uses are in registers at the same time; at the end of
a plain loop the one is copied to where the other was. Of two rounds in a row, each has its own registers, and the
second leaves its results where the first began: nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.state import State, branch, flattened, rebuilt


def unrolled_loop(lower: Value | int, upper: Value | int, start: State, body: Callable[[Value, State], State]) -> State:
    """As `loop`, two rounds at a time, and one more behind them where their number is odd: `body` is built three times.

    `upper` less `lower` is below 2^31.
    """
    begin, end = (constant(bound, I32) if isinstance(bound, int) else bound for bound in (lower, upper))
    count = arithmetic.smax(end, begin) - begin
    even = begin + (count & -2)

    def pair(index: Value, state: State) -> State:
        return body(index + 1, body(index, state))

    values = control.for_range(
        begin, even, 2, flattened(start), lambda index, now: flattened(pair(index, rebuilt(start, now)))
    )
    state = rebuilt(start, values)
    return branch(even < end, lambda: body(even, state), lambda: state)
