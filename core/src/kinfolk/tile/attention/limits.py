"""Limits of specs: what products and lanes need of an arch, and what a `Schedule` may ask of a round over tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kinfolk.expr import Expr, all_of, any_of, ceil_div, eq, fact, field, minimum, ne, select
from kinfolk.matrix import atom_fact
from kinfolk.refusal import Limit

ATOM: Final = 32
LANES: Final = 64
READ: Final = 8
"""An atom has as many rows as columns, a wave so many lanes for them, and a read so many elements a lane."""
_DEPTH: Final = LANES * READ // ATOM
"""How many columns of keys, or rows of values, a read has of an atom's rows."""
_TILES: Final = field("tile_keys") // ATOM


def atom_limit(code: str, size: int, depths: Sequence[int], dtypes: Sequence[str], takes: str = "") -> Limit:
    """Return that the arch has a matrix atom of `size` rows and columns of the spec's `dtype`, one of `dtypes`, that
    contracts one of `depths` elements at once; for codes that begin with `code`.
    """
    known = (
        any_of(ne(field("dtype"), name), *(fact(atom_fact(m=size, n=size, k=depth, a=name)) for depth in depths))
        for name in dtypes
    )
    return Limit(
        f"{code}.spec.atom",
        "cannot",
        "dtype",
        all_of(*known),
        because=f"products are made of matrix atoms of {size} rows and columns of the type",
        remedy="Choose an arch that has one, or a type for which this one has it.",
        takes=takes,
    )


def lanes_limit(code: str, name: str, lanes: int, what: str) -> Limit:
    """Return that the arch's waves have `lanes` lanes, over which `what` are laid out; told of field `name`."""
    return Limit(
        f"{code}.spec.wave_size",
        "not_implemented",
        name,
        eq(fact("wave_size"), lanes),
        because=f"{what} are laid out over {lanes} lanes",
        remedy="Choose an arch with such waves.",
    )


def schedule_limits(code: str, key_columns: Expr, value_columns: Expr) -> tuple[Limit, ...]:
    """Return what the fields of a schedule may be beside each other, for codes that begin with `code`."""

    def limit(name: str, condition: Expr, because: str, remedy: str, takes: str, **suggested: Expr) -> Limit:
        named = f"{code}.spec.{name}"
        return Limit(
            named, "cannot", name, condition, because=because, remedy=remedy, suggestions=suggested, takes=takes
        )

    reads = ceil_div(key_columns, _DEPTH) * _TILES
    units, ahead, late = reads // field("reads_together"), field("value_read_ahead"), _most_late()
    value_units = ceil_div(value_columns, ATOM) * field("tile_keys") // _DEPTH
    # With one slot of keys waves meet once more, so that values are read on both sides of the other barrier.
    left = minimum(value_units - 1, select(eq(field("key_slots"), 1), value_units - 1, ahead))
    return (
        limit(
            "reads_together",
            eq(units * field("reads_together"), reads),
            "units of the first product share its reads evenly",
            "Choose a divisor of {reads}.",
            "divisors of a tile's reads of keys",
            reads=reads,
        ),
        limit(
            "key_read_ahead",
            field("key_read_ahead") <= units,
            "units of the first product read a tile of keys once",
            "Read at most {most} units ahead.",
            "as many units as the first product of a tile has",
            most=units,
        ),
        limit(
            "value_read_ahead",
            ahead <= value_units,
            "units of the second product read a tile of values once",
            "Read at most {most} units ahead.",
            "as many units as the second product of a tile has",
            most=value_units,
        ),
        limit(
            "units_after_barrier",
            field("units_after_barrier") <= left,
            "past the barrier a tile's slot is written again, and its last values are read so far ahead",
            "Leave at most {most} units when the waves meet, or read values further ahead.",
            "fewer than the second product has, and with several key_slots at most value_read_ahead",
            most=left,
        ),
        limit(
            "weights_after",
            field("weights_after") <= late,
            "a weight is formed before the first operation that multiplies it",
            "Form at most {most} pairs of weights during the second product, or choose larger tiles.",
            "as many as tile_keys leaves beside the weights of the first values",
            most=late,
        ),
    )


def _most_late() -> Expr:
    """Return how many pairs of a lane's weights may be formed during the second product, spread over all but the last
    of its steps.

    A lane forms `formed` weights a tile, one a job, and a step needs `READ` of them. Those of the first step are early.
    The late ones come at an even rate, so that the step before the last is the first to lack one: it has all where
    those that are early exceed the first step's by more than half of the steps behind it.
    """
    formed = field("tile_keys") * ATOM // LANES
    behind = formed // READ - 1
    return (formed - READ - (behind // 2 + 1)) // 2
