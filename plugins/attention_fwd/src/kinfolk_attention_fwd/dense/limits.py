"""What attention over whole rows takes: of a request, of its specs on an arch, and of what the compiler made."""

from __future__ import annotations

from typing import Final

from kinfolk.expr import eq, field
from kinfolk.fields import listing
from kinfolk.refusal import Limit
from kinfolk_attention_fwd.limits import Limits

CODE: Final = "attention_fwd.dense"
TILES: Final = (32, 64, 128)
LIMITS: Final = Limits(CODE)
CAPABILITY: Final = (
    LIMITS.limit(
        "cannot",
        "layout",
        eq(field("layout"), "dense"),
        "keys and values are whole rows, one sequence after the other",
        "Put the rows of pages together, and ask for the dense layout.",
    ),
    *LIMITS.what_is_computed(),
    *LIMITS.how_much(),
)
"""What a request must meet."""
SPEC_LIMITS: Final = (
    *LIMITS.of_specs(),
    Limit(
        f"{CODE}.spec.tile_keys",
        "not_implemented",
        "tile_keys",
        field("tile_keys").one_of(TILES),
        because="threads share a tile in squares, as many each",
        remedy=f"Choose {listing(TILES)}.",
    ),
)
"""What a spec must meet on an arch."""
