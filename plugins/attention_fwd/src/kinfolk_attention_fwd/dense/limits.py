"""What attention over whole rows takes: of a request, of its specs on an arch, and of what the compiler made."""

from __future__ import annotations

from typing import Final

from kinfolk.expr import all_of, any_of, field, not_
from kinfolk.fields import listing
from kinfolk.refusal import Limit
from kinfolk_attention_fwd.limits import Limits

CODE: Final = "attention_fwd.dense"
TILES: Final = (32, 64, 128)
LIMITS: Final = Limits(CODE)
MAX_I32: Final = 2**31 - 1
WIDEST_PERSISTENT: Final = 128
"""The widest heads of which a workgroup can walk over blocks."""
CAPABILITY: Final = (
    LIMITS.limit(
        "cannot",
        "layout",
        field("layout").one_of(("dense", "varlen")),
        "keys and values are whole rows, one sequence after the other",
        "Put the rows of pages together, and ask for the layout dense, or varlen.",
    ),
    *LIMITS.what_is_computed(LIMITS.plain_cache()),
    *LIMITS.how_much(),
    LIMITS.limit(
        "cannot", "total_q", field("total_q") <= MAX_I32, "query tokens are counted in 32 bits", "Split the batch."
    ),
    LIMITS.limit("cannot", "total_k", field("total_k") <= MAX_I32, "offsets are 32-bit", "Split the batch."),
)
"""What a request must meet."""
SPEC_LIMITS: Final = (
    *LIMITS.of_specs(),
    Limit(
        f"{CODE}.spec.persistent",
        "not_implemented",
        "persistent",
        any_of(not_(field("persistent")), all_of(not_(field("windowed")), field("head_size") <= WIDEST_PERSISTENT)),
        because=f"a walk over blocks leaves none of the scalars that windows, caps, slopes and heads of "
        f"more than {WIDEST_PERSISTENT} columns take",
        remedy="Pass persistent=False.",
    ),
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
