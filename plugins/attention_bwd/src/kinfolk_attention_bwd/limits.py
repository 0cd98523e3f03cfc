"""What kernels take: of a request, in the order in which it is looked at, and of their specs on an arch."""

from __future__ import annotations

from typing import Final

from kinfolk.budget import budget_limits
from kinfolk.expr import Expr, all_of, ceil_div, eq, fact, field, minimum, select
from kinfolk.fields import listing
from kinfolk.refusal import Limit
from kinfolk.roles import role_fact
from kinfolk.tile.attention.limits import atom_limit, lanes_limit
from kinfolk_attention_bwd.kinds import DTYPES, LEAST_ROWS, WIDTHS
from kinfolk_attention_bwd.spec import LANES, MOST_HEADS, MOST_ROWS, GradientSpec

CODE: Final = "attention_bwd.split"
_TYPES: Final = listing(DTYPES)


def _limit(kind: str, name: str, condition: Expr, because: str, remedy: str) -> Limit:
    return Limit(f"{CODE}.{name}", kind, name, condition, because=because, remedy=remedy)


def _rows(name: str) -> Limit:
    return _limit(
        "cannot",
        name,
        all_of(field(name) <= MOST_ROWS, ceil_div(field(name), LEAST_ROWS) <= fact("max_grid_y")),
        f"blocks of {LEAST_ROWS} rows are an axis of the grid, and rounds over them are counted in 32 bits",
        "Split the sequences.",
    )


CAPABILITY: Final = (
    _limit(
        "not_implemented",
        "layout",
        eq(field("layout"), "bshd"),
        "rows of all heads of a token lie side by side, all sequences alike",
        "Copy to bshd; of sequences of other lengths ask for each by itself.",
    ),
    _limit(
        "not_implemented",
        "dtype",
        field("dtype").one_of(DTYPES),
        "products are made of matrix atoms of 16-bit floats",
        f"Convert to {_TYPES}.",
    ),
    _limit(
        "not_implemented",
        "head_size_v",
        eq(field("head_size_v"), field("head_size")),
        "tiles of both tensors have one shape",
        "Pad the narrower ones with zeros.",
    ),
    _limit(
        "not_implemented",
        "head_size",
        field("head_size").one_of(WIDTHS),
        "products and registers are laid out for these widths",
        f"Pad heads to one of these with zeros; of more than {WIDTHS[-1]} columns none are served.",
    ),
    _limit(
        "not_implemented",
        "num_v_heads",
        eq(field("num_v_heads"), field("num_kv_heads")),
        "a workgroup has keys and values of one head",
        "Repeat the heads of the fewer, and add their gradients up.",
    ),
    *(
        _limit(
            "not_implemented",
            name,
            eq(field(name), -1),
            "tiles are walked to the diagonal, or whole",
            "Pass -1, with causal for a window that ends with a query's own key.",
        )
        for name in ("window_left", "window_right")
    ),
    _rows("seqlen_q"),
    _rows("seqlen_k"),
    _limit(
        "cannot",
        "num_heads",
        all_of(field("num_heads") <= MOST_HEADS, field("num_heads") <= fact("max_grid_x")),
        f"rows of a tile are numbered in 32 bits, for up to {MOST_HEADS} heads",
        "Divide the heads over requests.",
    ),
    _limit("cannot", "batch", field("batch") <= fact("max_grid_z"), "sequences are the grid's last axis", "Split it."),
)
"""What a request must meet."""

_WIDTH: Final = Limit(
    f"{CODE}.spec.head_size",
    "not_validated",
    "head_size",
    field("head_size").one_of(WIDTHS),
    because="layouts and registers are proved for some widths alone",
    remedy=f"Evolve the spec to one of {listing(WIDTHS)}.",
)
_TYPE: Final = Limit(
    f"{CODE}.spec.dtype",
    "not_implemented",
    "dtype",
    field("dtype").one_of(DTYPES),
    because="rows are read as pairs of 16 bits",
    remedy=f"Evolve the spec to {_TYPES}.",
)
_WAVE: Final = lanes_limit(CODE, "head_size", LANES, "rows")
_ATOM: Final = atom_limit(CODE, GradientSpec.atom, (16, 32), DTYPES)
ROW_TERMS_LIMITS: Final = (_WIDTH, _TYPE, _WAVE)
"""What a spec of rows' terms must meet."""


ELEMENT_BYTES: Final = 2
_PADDING: Final = GradientSpec.row_padding_bytes // ELEMENT_BYTES


def _workgroup_bytes(copies: int) -> Expr:
    """Return the workgroup memory of a spec in bytes: rings of two tensors, and `copies` of them by columns where the
    arch does not read transposed.
    """
    rows = (field("head_size") + _PADDING) * field("tile_rows") * 2
    columns = field("head_size") * (field("tile_rows") + _PADDING) * copies
    return select(fact(role_fact("transpose_read_16")), rows * 2, rows + columns) * ELEMENT_BYTES


def _gradient_limits(copies: int) -> tuple[Limit, ...]:
    return (
        _WIDTH,
        _TYPE,
        _WAVE,
        _ATOM,
        Limit(
            f"{CODE}.spec.workgroup_memory",
            "cannot",
            "tile_rows",
            _workgroup_bytes(copies) * GradientSpec.workgroups_per_cu <= fact("lds_bytes"),
            because="workgroups share the workgroup memory of a compute unit",
            remedy="Choose fewer.",
        ),
        Limit(
            f"{CODE}.spec.tile",
            "cannot",
            "tile_rows",
            field("tile_rows") * field("head_size") >= 32 * 128,
            because="each thread carries a part of a tile",
            remedy="Choose more.",
        ),
        *(
            Limit(
                f"{CODE}.spec.{name}",
                "cannot",
                name,
                field(name) <= field("head_size") // GradientSpec.atom,
                because="no product is longer in which reads could stand ahead",
                remedy="Choose fewer.",
            )
            for name in ("row_read_ahead", "column_read_ahead")
        ),
        Limit(
            f"{CODE}.spec.units_after_barrier",
            "cannot",
            "units_after_barrier",
            field("units_after_barrier")
            <= minimum(
                minimum(field("column_read_ahead"), field("row_read_ahead")),
                field("head_size") // GradientSpec.atom - 1,
            ),
            because="what is left when the waves meet has been read by then",
            remedy="Choose fewer, or read further ahead.",
        ),
    )


KEYS_LIMITS: Final = _gradient_limits(2)
"""What a spec of gradients of keys and values must meet."""
QUERIES_LIMITS: Final = (
    *_gradient_limits(1),
    Limit(
        f"{CODE}.spec.groups",
        "cannot",
        "tile_rows",
        field("tile_rows") >= 64,
        because="gradients of a group's scores are formed beside the products of another",
        remedy="Choose 64.",
    ),
)
"""What a spec of gradients of queries must meet."""


def resource_limits(waves: int, workgroups_per_cu: int) -> tuple[Limit, ...]:
    """Return what a compiled kernel must meet, in the figures an arch may declare."""
    return budget_limits(CODE, workgroups_per_cu, waves, "Read less far ahead.")
