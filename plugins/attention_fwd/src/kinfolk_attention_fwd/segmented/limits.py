"""What attention over segments takes: of a request, of its specs on an arch, and of what the compiler made."""

from __future__ import annotations

from typing import Final

from kinfolk.budget import budget_limits
from kinfolk.expr import all_of, any_of, ceil_div, eq, fact, field, maximum, ne, select
from kinfolk.fields import listing
from kinfolk.refusal import Limit
from kinfolk_attention_fwd.limits import Limits
from kinfolk_attention_fwd.segmented.reduce.spec import AttentionReduceSpec
from kinfolk_attention_fwd.segmented.segments import GROUPS
from kinfolk_attention_fwd.segmented.spec import AttentionSegmentSpec

CODE: Final = "attention_fwd.segmented"
HEAD_SIZES: Final = (64, 80, 96, 128, 192, 256)
PAGE_SIZES: Final = tuple(
    AttentionSegmentSpec.tile_keys << shift for shift in range(AttentionSegmentSpec.most_shift + 1)
)
SMALL_PAGE_SIZES: Final = tuple(1 << shift for shift in range(AttentionSegmentSpec.most_shift + 1))
ELEMENT_BYTES: Final = 2
LIMITS: Final = Limits(CODE)
ROW: Final = field("num_kv_heads") * field("head_size")


CAPABILITY: Final = (
    LIMITS.limit(
        "cannot",
        "layout",
        eq(field("layout"), "paged"),
        "keys are found by a page table",
        "Ask for another candidate, or put keys in pages.",
    ),
    LIMITS.limit(
        "not_implemented",
        "head_size",
        field("head_size").one_of(HEAD_SIZES),
        "tiles on their way take registers, which are budgeted for these widths",
        f"Pad heads to one of {listing(HEAD_SIZES)}.",
    ),
    LIMITS.limit(
        "not_implemented",
        "head_size_v",
        eq(field("head_size_v"), field("head_size")),
        "keys and values lie alike",
        "Pad the narrower of the two.",
    ),
    LIMITS.limit(
        "not_implemented",
        "page_size",
        any_of(
            ne(field("layout"), "paged"),
            field("page_size").one_of(PAGE_SIZES),
            field("page_size").one_of(SMALL_PAGE_SIZES),
        ),
        "a tile is part of one page, or its rows are looked up one by one",
        f"Re-page the cache to {listing((*SMALL_PAGE_SIZES, *PAGE_SIZES))}.",
    ),
    LIMITS.limit(
        "cannot",
        "num_pages",
        any_of(
            ne(field("layout"), "paged"),
            field("page_size") >= PAGE_SIZES[0],
            field("num_pages") <= AttentionSegmentSpec.most_elements // (ROW * maximum(field("page_size"), 1)),
        ),
        f"rows of small pages are {AttentionSegmentSpec.most_elements} elements of a cache at most, "
        "counted in bytes by 32 bits",
        f"Re-page the cache to {listing(PAGE_SIZES)}.",
        code="small_pages",
        takes=f"as many as have {AttentionSegmentSpec.most_elements} elements",
    ),
    LIMITS.type_of_queries(),
    *LIMITS.widened_cache(),
    LIMITS.one_for_each(),
    LIMITS.limit(
        "cannot",
        "num_heads",
        field("num_heads") <= AttentionSegmentSpec.most_heads,
        f"rows of queries are numbered in 32 bits, for up to {AttentionSegmentSpec.most_heads} heads",
        "Divide the heads over requests.",
    ),
    LIMITS.limit(
        "cannot", "num_seqs", field("num_seqs") <= fact("max_grid_y"), "sequences are an axis of the grid", "Split it."
    ),
    LIMITS.limit(
        "cannot",
        "total_q",
        field("total_q") <= AttentionSegmentSpec.most_rows,
        "queries are numbered in 32 bits",
        "Split the batch.",
    ),
    LIMITS.limit(
        "cannot",
        "max_seqlen_q",
        all_of(
            field("max_seqlen_q") <= AttentionSegmentSpec.most_rows // AttentionSegmentSpec.most_heads,
            GROUPS * field("num_kv_heads") <= fact("max_grid_x"),
            field("max_seqlen_q") * field("num_heads") <= fact("max_grid_x"),
        ),
        "rows of queries, a head of a token each, are numbered in 32 bits and an axis of the grid",
        "Split the queries.",
    ),
    LIMITS.limit(
        "cannot",
        "max_seqlen_k",
        field("max_seqlen_k") <= AttentionSegmentSpec.most_rows,
        "keys are counted in 32 bits, a few tiles past the last",
        "Shorten the sequences.",
    ),
    LIMITS.limit(
        "cannot",
        "num_pages",
        field("num_pages") <= AttentionSegmentSpec.most_pages,
        "tiles of all pages are numbered in 32 bits",
        "Use larger pages, or several caches.",
    ),
    LIMITS.limit(
        "cannot",
        "num_seg",
        all_of(field("num_seg") <= AttentionSegmentSpec.most_segments, field("num_seg") <= fact("max_grid_z")),
        "segments are an axis of the grid",
        "Ask for fewer, or for 0: as many as fill the compute units.",
    ),
)
"""What a request must meet."""


_STAGED: Final = maximum(
    (ceil_div(field("head_size"), 64) * 64 + AttentionSegmentSpec.row_padding_bytes // ELEMENT_BYTES)
    * (AttentionSegmentSpec.waves * AttentionSegmentSpec.tile_keys * ELEMENT_BYTES),
    AttentionSegmentSpec.waves * AttentionSegmentSpec.lanes * 4 * 16,
) + AttentionSegmentSpec.waves * AttentionSegmentSpec.lanes * select(eq(field("unit"), 1), 18, 10)
"""Bytes of tiles of keys, rows by whole stretches, or what the waves put together; words of tiles and sums of rows."""

SPEC_LIMITS: Final = (
    Limit(
        f"{CODE}.spec.head_size",
        "not_validated",
        "head_size",
        field("head_size").one_of(HEAD_SIZES),
        because="layouts and registers are proved for some widths alone",
        remedy=f"Evolve the spec to one of {listing(HEAD_SIZES)}.",
    ),
    LIMITS.of_spec_types("values are transposed and weights are rounded as pairs of 16 bits"),
    LIMITS.of_spec_cache(),
    LIMITS.of_atoms(AttentionSegmentSpec.columns, (AttentionSegmentSpec.tile_keys,)),
    LIMITS.of_lanes(AttentionSegmentSpec.lanes, "a wave's queries and keys"),
    Limit(
        f"{CODE}.spec.workgroup_memory",
        "cannot",
        "workgroups_per_cu",
        _STAGED * field("workgroups_per_cu") <= fact("lds_bytes"),
        because="workgroups share the workgroup memory of a compute unit",
        remedy="Choose fewer.",
    ),
)
"""What a spec must meet on an arch."""

_REDUCE: Final = Limits(f"{CODE}.reduce")
REDUCE_SPEC_LIMITS: Final = (
    _REDUCE.of_spec_types("outputs are rounded as pairs of 16 bits"),
    _REDUCE.of_lanes(AttentionReduceSpec.lanes, "a row's columns and segments"),
)
"""What a spec of the second kernel must meet on an arch."""


def resource_limits(spec: AttentionSegmentSpec) -> tuple[Limit, ...]:
    """Return what a compiled kernel of a spec must meet, in the figures an arch may declare."""
    return budget_limits(CODE, spec.workgroups_per_cu, spec.waves, "Have fewer tiles on their way.")


def reduce_resource_limits(spec: AttentionReduceSpec) -> tuple[Limit, ...]:
    """Return what a compiled kernel of the second kind must meet."""
    return budget_limits(f"{CODE}.reduce", REDUCE_WORKGROUPS_PER_CU, spec.waves, "Ask for fewer segments at once.")


REDUCE_WORKGROUPS_PER_CU: Final = 4
"""Its waves wait for memory most of the time, and other waves hide that."""
