"""What kernels of `AttentionSpec` take, wherever keys lie: of a request, and of their specs on an arch."""

from __future__ import annotations

from typing import Final

import attrs

from kinfolk.budget import budget_limits
from kinfolk.expr import Expr, all_of, any_of, ceil_div, const, eq, fact, field, maximum, not_, select
from kinfolk.fields import listing
from kinfolk.matrix import atom_fact
from kinfolk.narrow import OWN, TWO_ENCODINGS
from kinfolk.refusal import Limit
from kinfolk.roles import role_fact
from kinfolk.tile.attention.limits import atom_limit, lanes_limit, schedule_limits
from kinfolk.tile.attention.rows import PART
from kinfolk_attention_fwd.kinds import DTYPES, WIDTHS
from kinfolk_attention_fwd.narrow import NARROW_WIDTHS, PLAIN, widened
from kinfolk_attention_fwd.spec import AttentionSpec

_PAIRS: Final = listing(tuple(f"{key} with {value}" for key, value in WIDTHS))
ELEMENT_BYTES: Final = 2
LEAST_NARROW_PAGE: Final = 16
_LEAST_BLOCK: Final = AttentionSpec.least_waves * AttentionSpec.atom
DEPTHS: Final = (8, 16)
"""How much the atoms of `AttentionSpec.atom` rows and columns contract at once, where an arch has them."""


@attrs.frozen
class Limits:
    """The limits of a candidate: their codes begin with `code`."""

    code: str

    def limit(
        self, kind: str, name: str, condition: Expr, because: str, remedy: str, code: str = "", takes: str = ""
    ) -> Limit:
        """Return a limit of a field of the request; `takes` says in words what it takes, where that reads better."""
        return Limit(f"{self.code}.{code or name}", kind, name, condition, because=because, remedy=remedy, takes=takes)

    def what_is_computed(self, *of_cache: Limit) -> tuple[Limit, ...]:
        """Return what a request must meet in widths, types and features; `of_cache` in the type of keys and values."""
        return (
            *self._widths(),
            self.type_of_queries(),
            *of_cache,
            self.limit(
                "not_implemented",
                "num_seg",
                field("num_seg") <= 1,
                "a workgroup walks all keys that its queries see",
                "Ask for 0 or 1.",
            ),
        )

    def type_of_queries(self) -> Limit:
        """Return which types queries may have."""
        return self.limit(
            "not_implemented",
            "dtype",
            field("dtype").one_of(DTYPES),
            "products are made of matrix atoms of 16-bit floats",
            f"Convert queries, keys and values to {listing(DTYPES)}.",
        )

    def plain_cache(self) -> Limit:
        """Return which types keys and values may have where they are not widened."""
        return self.limit(
            "not_implemented",
            "kv_dtype",
            PLAIN,
            "keys and values are multiplied as they are",
            "Convert keys and values to the type of the queries, multiplied by k_scale and v_scale.",
        )

    def widened_cache(self) -> tuple[Limit, ...]:
        """Return which types keys and values in pages may have where 8-bit floats are widened."""
        return (
            Limit(
                f"{self.code}.kv_dtype",
                "not_implemented",
                "kv_dtype",
                widened(),
                because=f"keys and values are of the type of queries in the matrix cores, and {TWO_ENCODINGS}",
                remedy="Store keys and values in the type of queries, or as {own}.",
                suggestions={"own": OWN},
            ),
            self.limit(
                "not_implemented",
                "head_size",
                any_of(PLAIN, field("head_size").one_of(NARROW_WIDTHS)),
                "elements of 8 bits are widened with heads of some widths alone",
                f"Pad heads to {listing(NARROW_WIDTHS)}, or convert keys and values to the type of queries.",
                "narrow.head_size",
                takes=f"{listing(NARROW_WIDTHS)} beside keys and values of 8 bits",
            ),
            self.limit(
                "not_implemented",
                "page_size",
                any_of(PLAIN, field("page_size") >= LEAST_NARROW_PAGE),
                "rows that are looked up one by one are not widened",
                f"Re-page the cache to at least {LEAST_NARROW_PAGE} keys a page, or convert it to the type of queries.",
                "narrow.page_size",
                takes=f"at least {LEAST_NARROW_PAGE} beside keys and values of 8 bits",
            ),
        )

    def of_spec_cache(self) -> Limit:
        """Return which types of keys and values a spec may have on an arch where 8-bit floats are widened."""
        return Limit(
            f"{self.code}.spec.kv_dtype",
            "cannot",
            "kv_dtype",
            widened(),
            because=TWO_ENCODINGS,
            remedy="Evolve the spec to the type of its queries, or to {own}.",
            suggestions={"own": OWN},
            takes="the type of its queries, or the 8-bit floats that the arch knows",
        )

    def _widths(self) -> tuple[Limit, Limit]:
        of_keys = tuple(sorted({key for key, _ in WIDTHS}))
        because = "products and registers are laid out for these widths"
        return (
            self.limit(
                "not_implemented",
                "head_size",
                field("head_size").one_of(of_keys),
                because,
                f"Pad heads to one of these; of more than {of_keys[-1]} columns none are served.",
            ),
            self.limit(
                "not_implemented",
                "head_size_v",
                _fits(),
                because,
                f"Pass widths of keys and values of {_PAIRS}.",
                takes=f"in pairs with head_size: {_PAIRS}",
            ),
        )

    def one_for_each(self) -> Limit:
        """Return that no workgroup walks over blocks of queries."""
        return self.limit(
            "not_implemented",
            "persistent",
            not_(field("persistent")),
            "a workgroup is launched for each part of the work",
            "Pass persistent=False.",
        )

    def how_much(self) -> tuple[Limit, ...]:
        """Return how many heads, sequences, queries and keys a request may have."""
        return (
            self.limit(
                "cannot",
                "num_heads",
                all_of(field("num_heads") <= AttentionSpec.most_heads, field("num_heads") <= fact("max_grid_x")),
                f"rows of a wave's queries are numbered in 32 bits, for up to {AttentionSpec.most_heads} heads",
                "Divide the heads over requests.",
            ),
            self.limit(
                "cannot",
                "num_seqs",
                field("num_seqs") <= fact("max_grid_z"),
                "sequences are the grid's last axis",
                "Split it.",
            ),
            self.limit(
                "cannot",
                "max_seqlen_q",
                all_of(
                    field("max_seqlen_q") <= AttentionSpec.most_rows,
                    ceil_div(field("max_seqlen_q"), _LEAST_BLOCK) <= fact("max_grid_y"),
                ),
                f"blocks of {_LEAST_BLOCK} queries are an axis of the grid",
                "Split the queries.",
            ),
            self.limit(
                "cannot",
                "max_seqlen_k",
                field("max_seqlen_k") <= AttentionSpec.most_rows,
                "keys are counted in 32 bits, a few tiles past the last",
                "Shorten the sequences.",
            ),
        )

    def of_specs(self, *, wave_bytes: int = 0) -> tuple[Limit, ...]:
        """Return what a spec must meet on an arch, if a wave has `wave_bytes` of workgroup memory beside the tiles."""
        taken = _workgroup_bytes() + field("waves") * wave_bytes
        return (
            Limit(
                f"{self.code}.spec.head_size",
                "not_validated",
                "head_size",
                _fits(),
                because="layouts and registers are proved for some widths alone",
                remedy=f"Evolve the spec to {_PAIRS}.",
                takes=f"in pairs with head_size_v: {_PAIRS}",
            ),
            self.of_spec_types("values are transposed and weights are rounded as pairs of 16 bits"),
            self.of_atoms(AttentionSpec.atom, DEPTHS),
            self.of_lanes(AttentionSpec.lanes, "a wave's queries and keys"),
            Limit(
                f"{self.code}.spec.workgroup_memory",
                "cannot",
                "key_slots",
                taken * AttentionSpec.workgroups_per_cu <= fact("lds_bytes"),
                because="workgroups share the workgroup memory of a compute unit",
                remedy="Choose fewer, or tiles of fewer keys.",
                takes="as many as the tiles of all workgroups of a compute unit have room for in its lds_bytes",
            ),
            *schedule_limits(self.code, field("head_size"), field("head_size_v")),
        )

    def of_spec_types(self, because: str) -> Limit:
        """Return which types a spec may have."""
        return Limit(
            f"{self.code}.spec.dtype",
            "not_implemented",
            "dtype",
            field("dtype").one_of(DTYPES),
            because=because,
            remedy=f"Evolve the spec to {listing(DTYPES)}.",
        )

    def of_atoms(self, size: int, depths: tuple[int, ...]) -> Limit:
        """Return that an arch has an atom of `size` rows and columns of the type that contracts one of `depths`."""
        return atom_limit(self.code, size, depths, DTYPES)

    def of_lanes(self, lanes: int, what: str) -> Limit:
        """Return that `what` is laid out over the lanes that an arch's waves have."""
        return lanes_limit(self.code, "head_size", lanes, what)

    def of_resources(self, spec: AttentionSpec) -> tuple[Limit, ...]:
        """Return what a compiled kernel of a spec must meet, in the figures an arch may declare."""
        return budget_limits(self.code, spec.workgroups_per_cu, spec.waves, "Read less far ahead.")


def _fits() -> Expr:
    """Return the condition that widths of keys and values are a pair there is."""
    return any_of(*(all_of(eq(field("head_size"), key), eq(field("head_size_v"), value)) for key, value in WIDTHS))


_PADDING: Final = AttentionSpec.row_padding_bytes // ELEMENT_BYTES


def _kept(name: str) -> Expr:
    """Return the columns that rows of a width take in workgroup memory."""
    return ceil_div(field(name), PART) * PART


def _workgroup_bytes() -> Expr:
    """Return the workgroup memory of a spec in bytes: the rings of keys and of values, as rows or as columns."""
    keys = (_kept("head_size") + _PADDING) * field("tile_keys") * field("key_slots")
    rows = (_kept("head_size_v") + _PADDING) * field("tile_keys")
    columns = maximum(_power_of_two(_kept("head_size_v")), _threads_share()) * (field("tile_keys") + _PADDING)
    values = select(fact(role_fact("transpose_read_16")), rows, columns)
    return (keys + values * AttentionSpec.value_slots) * ELEMENT_BYTES


def _power_of_two(columns: Expr) -> Expr:
    """Return the least power of two of `PART` columns or more that some of a width there is fit in."""
    size = max(value for _, value in WIDTHS)
    found: Expr = const(size)
    while size > PART:
        size //= 2
        found = select(columns <= size, size, found)
    return found


def _threads_share() -> Expr:
    """Return the columns of which every thread has a part, squares of as many elements as an operand has, of a tile."""
    size, lanes = AttentionSpec.atom, AttentionSpec.lanes
    shallow, deep = (size * depth // lanes for depth in DEPTHS)
    deepest = fact(atom_fact(m=size, n=size, k=DEPTHS[-1], a=DTYPES[0]))
    return field("waves") * lanes * select(deepest, deep**2, shallow**2) // field("tile_keys")
