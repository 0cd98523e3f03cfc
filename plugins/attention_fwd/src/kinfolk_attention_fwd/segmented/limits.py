"""What attention over segments takes: of a request, of its specs on an arch, and of what the compiler made."""

from __future__ import annotations

from typing import Final

from kinfolk.budget import budget_limits
from kinfolk.expr import Expr, all_of, any_of, ceil_div, eq, fact, field, maximum, ne, not_, select
from kinfolk.fields import listing
from kinfolk.matrix import atom_fact
from kinfolk.refusal import Limit
from kinfolk_attention_fwd.segmented.reduce.spec import AttentionReduceSpec
from kinfolk_attention_fwd.segmented.segments import GROUPS
from kinfolk_attention_fwd.segmented.spec import AttentionSegmentSpec

CODE: Final = "attention_fwd.segmented"
DTYPES: Final = ("bf16", "f16")
HEAD_SIZES: Final = (64, 80, 96, 128, 192, 256)
PAGE_SIZES: Final = tuple(
    AttentionSegmentSpec.tile_keys << shift for shift in range(AttentionSegmentSpec.most_shift + 1)
)
SMALL_PAGE_SIZES: Final = tuple(1 << shift for shift in range(AttentionSegmentSpec.most_shift + 1))
SMALL_PAGE_WIDTHS: Final = (64, 128)
"""Widths of heads that have kernels for pages of fewer rows than a tile."""
ELEMENT_BYTES: Final = 2


ROW: Final = field("num_kv_heads") * field("head_size")


def _limit(kind: str, name: str, condition: Expr, because: str, remedy: str, code: str = "") -> Limit:
    return Limit(f"{CODE}.{code or name}", kind, name, condition, because=because, remedy=remedy)


CAPABILITY: Final = (
    _limit(
        "cannot",
        "layout",
        eq(field("layout"), "paged"),
        "keys are found by a page table",
        "Ask for another candidate, or put keys in pages.",
    ),
    _limit(
        "not_implemented",
        "head_size",
        field("head_size").one_of(HEAD_SIZES),
        "tiles on their way take registers, which are budgeted for these widths",
        f"Pad heads to one of {listing(HEAD_SIZES)}.",
    ),
    _limit(
        "not_implemented",
        "head_size_v",
        eq(field("head_size_v"), field("head_size")),
        "keys and values lie alike",
        "Pad the narrower of the two.",
    ),
    _limit(
        "not_implemented",
        "page_size",
        any_of(
            ne(field("layout"), "paged"),
            field("page_size").one_of(PAGE_SIZES),
            all_of(field("page_size").one_of(SMALL_PAGE_SIZES), field("head_size").one_of(SMALL_PAGE_WIDTHS)),
        ),
        f"a tile is part of one page, or its rows are looked up one by one, with heads of {listing(SMALL_PAGE_WIDTHS)}",
        f"Re-page the cache to {listing(PAGE_SIZES)}.",
    ),
    _limit(
        "cannot",
        "num_pages",
        any_of(
            ne(field("layout"), "paged"),
            field("page_size") >= PAGE_SIZES[0],
            ceil_div(field("num_pages"), AttentionSegmentSpec.most_elements // ROW // maximum(field("page_size"), 1))
            <= 1,
        ),
        f"rows of small pages are {AttentionSegmentSpec.most_elements} elements of a cache at most, "
        "counted in bytes by 32 bits",
        f"Re-page the cache to {listing(PAGE_SIZES)}.",
        code="small_pages",
    ),
    _limit(
        "not_implemented",
        "dtype",
        field("dtype").one_of(DTYPES),
        "products are made of matrix atoms of 16-bit floats",
        f"Convert queries, keys and values to {listing(DTYPES)}.",
    ),
    _limit(
        "not_implemented",
        "kv_dtype",
        eq(field("kv_dtype"), field("dtype")),
        "keys and values are multiplied as they are",
        "Convert keys and values to the type of the queries, multiplied by k_scale and v_scale.",
    ),
    _limit("not_implemented", "sinks", not_(field("sinks")), "no logit is added at the end", "Pass sinks=False."),
    _limit("not_implemented", "alibi", not_(field("alibi")), "nothing is added to scores", "Pass alibi=False."),
    _limit(
        "cannot",
        "num_heads",
        field("num_heads") <= AttentionSegmentSpec.most_heads,
        f"rows of queries are numbered in 32 bits, for up to {AttentionSegmentSpec.most_heads} heads",
        "Divide the heads over requests.",
    ),
    _limit(
        "cannot", "num_seqs", field("num_seqs") <= fact("max_grid_y"), "sequences are an axis of the grid", "Split it."
    ),
    _limit(
        "cannot",
        "total_q",
        field("total_q") <= AttentionSegmentSpec.most_rows,
        "queries are numbered in 32 bits",
        "Split the batch.",
    ),
    _limit(
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
    _limit(
        "cannot",
        "max_seqlen_k",
        field("max_seqlen_k") <= AttentionSegmentSpec.most_rows,
        "keys are counted in 32 bits, a few tiles past the last",
        "Shorten the sequences.",
    ),
    _limit(
        "cannot",
        "num_pages",
        field("num_pages") <= AttentionSegmentSpec.most_pages,
        "tiles of all pages are numbered in 32 bits",
        "Use larger pages, or several caches.",
    ),
    _limit(
        "cannot",
        "num_seg",
        all_of(field("num_seg") <= AttentionSegmentSpec.most_segments, field("num_seg") <= fact("max_grid_z")),
        "segments are an axis of the grid",
        "Ask for fewer, or for 0: as many as fill the compute units.",
    ),
)
"""What a request must meet."""


def _has_atoms() -> Expr:
    size = AttentionSegmentSpec.columns
    return all_of(
        *(
            any_of(ne(field("dtype"), name), fact(atom_fact(m=size, n=size, k=AttentionSegmentSpec.tile_keys, a=name)))
            for name in DTYPES
        )
    )


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
    Limit(
        f"{CODE}.spec.dtype",
        "not_implemented",
        "dtype",
        field("dtype").one_of(DTYPES),
        because="values are transposed and weights are rounded as pairs of 16 bits",
        remedy=f"Evolve the spec to {listing(DTYPES)}.",
    ),
    Limit(
        f"{CODE}.spec.atom",
        "cannot",
        "dtype",
        _has_atoms(),
        because=f"products are made of matrix atoms of {AttentionSegmentSpec.columns} rows and columns of the type",
        remedy="Choose an arch that has one, or a type for which this one has it.",
    ),
    Limit(
        f"{CODE}.spec.wave_size",
        "not_implemented",
        "head_size",
        eq(fact("wave_size"), AttentionSegmentSpec.lanes),
        because=f"a wave's queries and keys are laid out over {AttentionSegmentSpec.lanes} lanes",
        remedy="Choose an arch with such waves.",
    ),
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

REDUCE_SPEC_LIMITS: Final = (
    Limit(
        f"{CODE}.reduce.spec.dtype",
        "not_implemented",
        "dtype",
        field("dtype").one_of(DTYPES),
        because="outputs are rounded as pairs of 16 bits",
        remedy=f"Evolve the spec to {listing(DTYPES)}.",
    ),
    Limit(
        f"{CODE}.reduce.spec.wave_size",
        "not_implemented",
        "head_size",
        eq(fact("wave_size"), AttentionReduceSpec.lanes),
        because=f"a row's columns and segments are laid out over {AttentionReduceSpec.lanes} lanes",
        remedy="Choose an arch with such waves.",
    ),
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
