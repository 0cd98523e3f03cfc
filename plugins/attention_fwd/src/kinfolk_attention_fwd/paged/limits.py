"""What attention over pages takes: of a request, of its specs on an arch, and of what the compiler made."""

from __future__ import annotations

from typing import Final

from kinfolk.expr import any_of, eq, field
from kinfolk.fields import listing
from kinfolk.refusal import Limit
from kinfolk_attention_fwd.limits import Limits
from kinfolk_attention_fwd.narrow import PLAIN
from kinfolk_attention_fwd.paged.spec import AttentionGatheredSpec, AttentionPagedSpec

CODE: Final = "attention_fwd.paged"
LIMITS: Final = Limits(CODE)
SMALL_PAGES: Final = (1, 2, 4, 8)
"""Pages smaller than what a wave stages at once, whose rows are found one by one."""
PAGE_SIZES: Final = (*SMALL_PAGES, 16, 32, 64, 128)
MAX_I32: Final = 2**31 - 1
WAVE_BYTES: Final = 4
"""A word in which a wave says how many pages it missed."""
CAPABILITY: Final = (
    LIMITS.limit(
        "cannot",
        "layout",
        eq(field("layout"), "paged"),
        "keys and values are looked up by page",
        "Ask for the paged layout: whole rows are pages in order.",
    ),
    LIMITS.limit(
        "not_implemented",
        "page_size",
        field("page_size").one_of(PAGE_SIZES),
        "what a wave stages of a tile is part of one page, or made of whole ones",
        f"Re-page the cache to {listing(PAGE_SIZES)} keys a page.",
    ),
    *LIMITS.what_is_computed(*LIMITS.widened_cache()),
    LIMITS.one_for_each(),
    *LIMITS.how_much(),
    LIMITS.limit(
        "cannot", "total_q", field("total_q") <= MAX_I32, "query tokens are counted in 32 bits", "Split the batch."
    ),
    LIMITS.limit("cannot", "num_pages", field("num_pages") <= MAX_I32, "page ids are 32-bit", "Divide the cache."),
    LIMITS.limit(
        "cannot",
        "num_pages",
        any_of(field("num_pages") <= AttentionGatheredSpec.most_pages, field("page_size") > SMALL_PAGES[-1]),
        "rows of small pages are counted in 32 bits",
        "Divide the cache.",
        "num_pages.gathered",
    ),
    LIMITS.limit(
        "cannot",
        "max_seqlen_k",
        any_of(field("max_seqlen_k") <= AttentionGatheredSpec.most_gathered, field("page_size") > SMALL_PAGES[-1]),
        "slots of a table of small pages are counted in bytes in 32 bits",
        "Shorten the sequences, or re-page the cache to at least 16 keys a page.",
        "max_seqlen_k.gathered",
    ),
)
"""What a request must meet."""
_ROWS: Final = field("waves") * AttentionPagedSpec.part
SPEC_LIMITS: Final = (
    LIMITS.of_spec_cache(),
    *LIMITS.of_specs(wave_bytes=WAVE_BYTES),
    Limit(
        f"{CODE}.spec.tile_keys",
        "cannot",
        "tile_keys",
        eq(_ROWS // field("tile_keys") * field("tile_keys"), _ROWS),
        because=f"waves share parts of {AttentionPagedSpec.part} rows evenly, so that each stages rows of one page",
        remedy="Choose a tile that {rows} rows are a multiple of.",
        suggestions={"rows": _ROWS},
        takes=f"a divisor of {AttentionPagedSpec.part} times waves",
    ),
)
"""What a spec must meet on an arch."""
GATHERED_LIMITS: Final = (
    Limit(
        f"{CODE}.spec.kv_dtype",
        "not_implemented",
        "kv_dtype",
        PLAIN,
        because="rows of small pages are staged as they are",
        remedy="Evolve the spec to the type of its queries.",
    ),
    *LIMITS.of_specs(wave_bytes=WAVE_BYTES),
    Limit(
        f"{CODE}.spec.tile_keys",
        "cannot",
        "tile_keys",
        field("tile_keys").one_of((32, 64)),
        because="each lane says of one key of a tile whether it is there",
        remedy="Choose a tile of 32 or 64 keys.",
    ),
)
"""What a spec of small pages must meet on an arch."""
