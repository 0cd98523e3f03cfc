"""What prefill of projected queries takes: of a request, of its specs on an arch, and of what the compiler made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kinfolk.budget import budget_limits
from kinfolk.expr import Expr, all_of, ceil_div, eq, fact, field, not_
from kinfolk.fields import listing
from kinfolk.matrix import atom_fact
from kinfolk.refusal import Limit
from kinfolk.tile.attention.limits import atom_limit, lanes_limit, schedule_limits
from kinfolk_mla.cache import plain_spec, widened_cache, widened_spec
from kinfolk_mla.decode.limits import (
    ATOM_TYPES,
    DTYPE,
    ELEMENT_BYTES,
    LATENT_WIDTH,
    MAX_I32,
    PAGE_SIZES,
    ROPE_WIDTH,
    SMALL_PAGES,
    paired,
    single,
    with_atoms,
)
from kinfolk_mla.prefill.spec import (
    MlaExpandSpec,
    MlaGatheredExpandSpec,
    MlaGatheredPrefillSpec,
    MlaPrefillSpec,
    MlaProjectedSpec,
    MlaWeightsSpec,
)

HEAD_WIDTH: Final = 128
DEPTHS: Final = (8, 16)
"""How much the atoms of `MlaProjectedSpec.atom` rows and columns contract at once, where an arch has them."""


def _width(name: str, value: int, because: str) -> Limit:
    return Limit(
        f"mla.prefill.{name}",
        "not_implemented",
        name,
        eq(field(name), value),
        because=because,
        remedy=f"Pass a model in which it is {value}.",
    )


def _counted(name: str, condition: Expr, because: str, remedy: str) -> Limit:
    return Limit(f"mla.prefill.{name}", "cannot", name, condition, because=because, remedy=remedy)


def _blocks(name: str, kind: type[MlaProjectedSpec], what: str, remedy: str) -> Limit:
    fits = all_of(field(name) <= MlaProjectedSpec.most_keys, ceil_div(field(name), kind.block) <= fact("max_grid_y"))
    return _counted(name, fits, f"blocks of {kind.block} {what} are an axis of the grid", remedy)


CAPABILITY: Final = (
    Limit(
        "mla.prefill.absorbed_query",
        "not_implemented",
        "absorbed_query",
        not_(field("absorbed_query")),
        because="keys and values of each head are formed, which an absorbed query does not meet",
        remedy="Pass the query as it was projected, with absorbed_query=False and the up-projection as w_ukv.",
    ),
    Limit(
        "mla.prefill.num_heads",
        "cannot",
        "num_heads",
        all_of(field("num_heads") <= MlaProjectedSpec.most_heads, field("num_heads") <= fact("max_grid_x")),
        because=f"rows of a workgroup's queries are numbered in 32 bits, for up to {MlaProjectedSpec.most_heads} heads",
        remedy="Divide the heads over requests.",
    ),
    _width("kv_lora_rank", LATENT_WIDTH, "latent rows of this width fill the registers of a wave"),
    _width("rope_dim", ROPE_WIDTH, "the rotated part of a key row is staged in vectors laid out for this width"),
    _width("nope_dim", HEAD_WIDTH, "keys are formed in tiles as wide as a head"),
    _width("v_dim", HEAD_WIDTH, "values are formed in tiles as wide as a head"),
    Limit(
        "mla.prefill.page_size",
        "not_implemented",
        "page_size",
        field("page_size").one_of((*SMALL_PAGES, *PAGE_SIZES)),
        because="keys are read one by one, or in parts of pages",
        remedy=f"Re-page the cache to {listing((*SMALL_PAGES, *PAGE_SIZES))} keys a page.",
    ),
    Limit(
        "mla.prefill.dtype",
        "not_implemented",
        "dtype",
        eq(field("dtype"), DTYPE),
        because="query and output are read and rounded as this type",
        remedy=f"Convert the query to {DTYPE}.",
    ),
    widened_cache("mla.prefill", DTYPE),
    Limit(
        "mla.prefill.num_seg",
        "not_implemented",
        "num_seg",
        field("num_seg") <= 1,
        because="a workgroup walks all keys that its queries see",
        remedy="Ask for 0 or 1.",
    ),
    _counted("num_seqs", field("num_seqs") <= fact("max_grid_z"), "sequences are the grid's last axis", "Split it."),
    _blocks("max_seqlen_q", MlaPrefillSpec, "queries", "Split them."),
    _blocks("max_seqlen_k", MlaExpandSpec, "keys", "Shorten them."),
    _counted("total_q", field("total_q") <= MAX_I32, "rows of the query are counted in 32 bits", "Split the batch."),
    _counted("num_pages", field("num_pages") <= MAX_I32, "page ids are 32-bit", "Divide the cache."),
)
"""What a request must meet."""


def _atoms_of(dtype: str) -> tuple[str, ...]:
    size = MlaProjectedSpec.atom
    return tuple(atom_fact(m=size, n=size, k=depth, a=dtype) for depth in DEPTHS)


def _workgroup_memory(code: str, limit_field: str, elements: Expr, workgroups: Expr | int) -> Limit:
    return Limit(
        f"{code}.spec.workgroup_memory",
        "cannot",
        limit_field,
        elements * ELEMENT_BYTES * workgroups <= fact("lds_bytes"),
        because="workgroups share the workgroup memory of a compute unit",
        remedy="Choose fewer.",
        takes="as many as the tiles of all workgroups of a compute unit have room for in its lds_bytes",
    )


def _shared(code: str) -> tuple[Limit, ...]:
    return (
        single(code, "head_width", HEAD_WIDTH),
        paired(code),
        atom_limit(code, MlaProjectedSpec.atom, DEPTHS, ATOM_TYPES, takes=with_atoms(_atoms_of)),
        lanes_limit(code, "head_width", MlaProjectedSpec.lanes, "a wave's queries and keys"),
    )


_PADDING: Final = MlaProjectedSpec.row_padding_bytes // ELEMENT_BYTES
_PAIRS: Final = field("latent_width") // (field("weight_rows") * 2)


def weights_limits(code: str) -> tuple[Limit, ...]:
    """Return what the spec of a kernel with tiles of weights must meet, for codes that begin with `code`."""
    return (
        *_shared(code),
        single(code, "latent_width", LATENT_WIDTH),
        Limit(
            f"{code}.spec.weight_rows",
            "not_implemented",
            "weight_rows",
            eq(_PAIRS * field("weight_rows") * 2, field("latent_width")),
            because="tiles of weights take turns at two places, in pairs",
            remedy="Choose a divisor of half the latent width.",
            takes="divisors of half the latent width",
        ),
        _workgroup_memory(
            code,
            "weight_rows",
            field("weight_rows") * 2 * (field("head_width") + _PADDING),
            MlaWeightsSpec.workgroups_per_cu,
        ),
    )


_EXPAND: Final = (*weights_limits("mla.prefill"), widened_spec("mla.prefill"))
_ROPE_WIDTH: Final = single("mla.prefill", "rope_width", ROPE_WIDTH)
_ATTEND: Final = (
    *_shared("mla.prefill"),
    _ROPE_WIDTH,
    _workgroup_memory(
        "mla.prefill",
        "key_slots",
        (field("head_width") + field("rope_width") + _PADDING) * field("tile_keys") * field("key_slots")
        + field("head_width") * (field("tile_keys") + _PADDING) * MlaPrefillSpec.value_slots,
        MlaPrefillSpec.workgroups_per_cu,
    ),
    *schedule_limits("mla.prefill", field("head_width") + field("rope_width"), field("head_width")),
)

SPEC_LIMITS: Final[Mapping[type[MlaProjectedSpec], tuple[Limit, ...]]] = {
    MlaExpandSpec: _EXPAND,
    MlaGatheredExpandSpec: (*_EXPAND, _ROPE_WIDTH),
    MlaPrefillSpec: (*_ATTEND, widened_spec("mla.prefill")),
    MlaGatheredPrefillSpec: (*_ATTEND, plain_spec("mla.prefill")),
}
"""What a spec must meet on an arch, by its class."""


def resource_limits(spec: MlaExpandSpec | MlaPrefillSpec) -> tuple[Limit, ...]:
    """Return what a compiled kernel of a spec must meet, in the figures an arch may declare."""
    remedy = "Read less far ahead, or budget for fewer workgroups."
    return budget_limits("mla.prefill", spec.workgroups_per_cu, spec.waves, remedy)
