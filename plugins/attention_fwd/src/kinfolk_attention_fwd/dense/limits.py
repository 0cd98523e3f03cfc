"""What attention over whole rows takes: of a request, of its specs on an arch, and of what the compiler made."""

from __future__ import annotations

from typing import Final

from kinfolk.budget import budget_limits
from kinfolk.expr import Expr, all_of, any_of, ceil_div, eq, fact, field, maximum, ne, not_
from kinfolk.fields import listing
from kinfolk.matrix import atom_fact
from kinfolk.refusal import Limit
from kinfolk.tile.attention.rows import PART
from kinfolk_attention_fwd.dense.spec import AttentionDenseSpec

CODE: Final = "attention_fwd.dense"
DTYPES: Final = ("bf16", "f16")
WIDTHS: Final = ((64, 64), (80, 80), (96, 96), (128, 128), (192, 128))
"""Widths of keys and of values that the kernel is laid out for."""
WINDOWED: Final = (64, 128)
"""Widths of keys that have kernels with a window."""
ELEMENT_BYTES: Final = 2
DEPTHS: Final = (8, 16)
"""How much the atoms of `AttentionDenseSpec.atom` rows and columns contract at once, where an arch has them."""


def _limit(kind: str, name: str, condition: Expr, because: str, remedy: str, code: str = "") -> Limit:
    return Limit(f"{CODE}.{code or name}", kind, name, condition, because=because, remedy=remedy)


def _width_limits() -> tuple[Limit, Limit]:
    of_keys = tuple(sorted({key for key, _ in WIDTHS}))
    fits = any_of(*(all_of(eq(field("head_size"), key), eq(field("head_size_v"), value)) for key, value in WIDTHS))
    pairs = listing(tuple(f"{key} with {value}" for key, value in WIDTHS))
    because = "products and registers are laid out for these widths"
    return (
        _limit("not_implemented", "head_size", field("head_size").one_of(of_keys), because, "Pad heads."),
        _limit("not_implemented", "head_size_v", fits, because, f"Pass widths of keys and values of {pairs}."),
    )


CAPABILITY: Final = (
    _limit(
        "cannot",
        "layout",
        eq(field("layout"), "dense"),
        "keys and values are whole rows, one sequence after the other",
        "Put the rows of pages together, and ask for the dense layout.",
    ),
    *_width_limits(),
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
    _limit(
        "not_implemented",
        "window_left",
        any_of(eq(field("window_left"), -1), field("head_size").one_of(WINDOWED)),
        f"kernels with a window are laid out for heads of {listing(WINDOWED)}",
        "Pass -1: every key before its own is seen.",
    ),
    _limit("not_implemented", "sinks", not_(field("sinks")), "no logit is added at the end", "Pass sinks=False."),
    _limit("not_implemented", "alibi", not_(field("alibi")), "nothing is added to scores", "Pass alibi=False."),
    _limit(
        "not_implemented",
        "num_seg",
        field("num_seg") <= 1,
        "a workgroup walks all keys that its queries see",
        "Ask for 0 or 1.",
    ),
    _limit(
        "cannot",
        "num_heads",
        all_of(field("num_heads") <= AttentionDenseSpec.most_heads, field("num_heads") <= fact("max_grid_x")),
        f"rows of a wave's queries are numbered in 32 bits, for up to {AttentionDenseSpec.most_heads} heads",
        "Divide the heads over requests.",
    ),
    _limit(
        "cannot", "num_seqs", field("num_seqs") <= fact("max_grid_z"), "sequences are the grid's last axis", "Split it."
    ),
    _limit(
        "cannot",
        "max_seqlen_q",
        all_of(
            field("max_seqlen_q") <= AttentionDenseSpec.most_rows,
            ceil_div(field("max_seqlen_q"), AttentionDenseSpec.block) <= fact("max_grid_y"),
        ),
        f"blocks of {AttentionDenseSpec.block} queries are an axis of the grid",
        "Split the queries.",
    ),
    _limit(
        "cannot",
        "max_seqlen_k",
        field("max_seqlen_k") <= AttentionDenseSpec.most_rows,
        "keys are counted in 32 bits, a few tiles past the last",
        "Shorten the sequences.",
    ),
)
"""What a request must meet."""


def _has_atom() -> Expr:
    size = AttentionDenseSpec.atom
    return all_of(
        *(
            any_of(ne(field("dtype"), name), *(fact(atom_fact(m=size, n=size, k=depth, a=name)) for depth in DEPTHS))
            for name in DTYPES
        )
    )


_PADDING: Final = AttentionDenseSpec.row_padding_bytes // ELEMENT_BYTES


def _kept(name: str) -> Expr:
    """Return the columns that rows of a width take in workgroup memory."""
    return ceil_div(field(name), PART) * PART


SPEC_LIMITS: Final = (
    Limit(
        f"{CODE}.spec.head_size",
        "not_validated",
        "head_size",
        any_of(*(all_of(eq(field("head_size"), key), eq(field("head_size_v"), value)) for key, value in WIDTHS)),
        because="layouts and registers are proved for some widths alone",
        remedy=f"Evolve the spec to {listing(tuple(f'{key} with {value}' for key, value in WIDTHS))}.",
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
        _has_atom(),
        because=f"products are made of matrix atoms of {AttentionDenseSpec.atom} rows and columns of the type",
        remedy="Choose an arch that has one, or a type for which this one has it.",
    ),
    Limit(
        f"{CODE}.spec.wave_size",
        "not_implemented",
        "head_size",
        eq(fact("wave_size"), AttentionDenseSpec.lanes),
        because=f"a wave's queries and keys are laid out over {AttentionDenseSpec.lanes} lanes",
        remedy="Choose an arch with such waves.",
    ),
    Limit(
        f"{CODE}.spec.workgroup_memory",
        "cannot",
        "key_slots",
        (
            (_kept("head_size") + _PADDING) * field("tile_keys") * field("key_slots")
            + maximum(
                _kept("head_size_v") * (field("tile_keys") + _PADDING),
                (_kept("head_size_v") + _PADDING) * field("tile_keys"),
            )
            * AttentionDenseSpec.value_slots
        )
        * ELEMENT_BYTES
        * AttentionDenseSpec.workgroups_per_cu
        <= fact("lds_bytes"),
        because="workgroups share the workgroup memory of a compute unit",
        remedy="Choose fewer.",
    ),
)
"""What a spec must meet on an arch."""


def resource_limits(spec: AttentionDenseSpec) -> tuple[Limit, ...]:
    """Return what a compiled kernel of a spec must meet, in the figures an arch may declare."""
    return budget_limits(CODE, spec.workgroups_per_cu, spec.waves, "Read less far ahead.")
