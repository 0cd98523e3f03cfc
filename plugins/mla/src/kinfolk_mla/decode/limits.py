"""What the decode kernel takes: of a request, and of a spec on an arch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kinfolk.expr import Expr, const, eq, fact, field, maximum, minimum
from kinfolk.matrix import NoSuchAtom
from kinfolk.refusal import Limit
from kinfolk_mla.spec import MlaDecodeSpec

if TYPE_CHECKING:
    from kinfolk.arch import Arch

STEP: Final = MlaDecodeSpec.heads_per_wave
HEADS: Final = tuple(range(STEP, 129, STEP))
LATENT_WIDTH, ROPE_WIDTH, PAGE_SIZE, DTYPE = 512, 64, 16, "bf16"
MAX_I32: Final = 2**31 - 1
_BELOW: Final = maximum(minimum(field("num_heads") // STEP * STEP, HEADS[-2]), HEADS[0])

CAPABILITY: Final = (
    Limit(
        "mla.decode.absorbed_query",
        "not_implemented",
        "absorbed_query",
        field("absorbed_query"),
        because="scores are formed in the latent space",
        remedy="Multiply the query by the key up-projection and pass absorbed_query=True.",
    ),
    Limit(
        "mla.decode.max_seqlen_q",
        "not_implemented",
        "max_seqlen_q",
        field("max_seqlen_q") <= 1,
        because="a workgroup serves one query of a sequence, its last token",
        remedy="Decode one token per sequence and step.",
    ),
    Limit(
        "mla.decode.num_heads",
        "not_implemented",
        "num_heads",
        field("num_heads").one_of(HEADS),
        because=f"a wave computes {STEP} heads",
        remedy="The nearest that run are {below} and {above}: pad the query, or divide its heads over requests.",
        suggestions={"below": _BELOW, "above": _BELOW + STEP},
    ),
    Limit(
        "mla.decode.kv_lora_rank",
        "not_implemented",
        "kv_lora_rank",
        eq(field("kv_lora_rank"), LATENT_WIDTH),
        because="the accumulators of a latent row fill a wave's registers",
        remedy=f"Use a cache with latent rows of {LATENT_WIDTH}.",
    ),
    Limit(
        "mla.decode.rope_dim",
        "not_implemented",
        "rope_dim",
        eq(field("rope_dim"), ROPE_WIDTH),
        because="the rotated part of a key row is staged in vectors laid out for this width",
        remedy=f"Use a cache with rotated parts of {ROPE_WIDTH}.",
    ),
    Limit(
        "mla.decode.page_size",
        "not_implemented",
        "page_size",
        eq(field("page_size"), PAGE_SIZE),
        because="a tile of keys is one page",
        remedy=f"Re-page the cache to {PAGE_SIZE} keys a page.",
    ),
    Limit(
        "mla.decode.dtype",
        "not_implemented",
        "dtype",
        eq(field("dtype"), DTYPE),
        because="query and output are staged and rounded as this type",
        remedy=f"Convert the query to {DTYPE}.",
    ),
    Limit(
        "mla.decode.kv_dtype",
        "not_implemented",
        "kv_dtype",
        eq(field("kv_dtype"), DTYPE),
        because="keys enter the matrix cores as they are stored",
        remedy=f"Store the cache as {DTYPE}.",
    ),
    Limit(
        "mla.decode.num_seqs",
        "cannot",
        "num_seqs",
        field("num_seqs") <= fact("max_grid_y"),
        because="sequences are the second axis of the grid",
        remedy="Split the batch.",
    ),
    Limit(
        "mla.decode.max_seqlen_k",
        "cannot",
        "max_seqlen_k",
        field("max_seqlen_k") <= 2**31 - PAGE_SIZE,
        because="keys are counted in 32 bits, rounded up to a page",
        remedy="Shorten the sequences.",
    ),
    Limit(
        "mla.decode.num_pages",
        "cannot",
        "num_pages",
        field("num_pages") <= MAX_I32,
        because="page ids are 32-bit",
        remedy="Divide the cache.",
    ),
)
"""What a request must meet. `causal` may be either: a sequence's only query is its last token and sees every key."""


def workgroup_bytes() -> Expr:
    """Return the workgroup memory of a spec in bytes: a page of padded key rows, and the parked query reads."""
    key_rows = field("page_size") * (field("latent_width") + field("rope_width") + 8) * 2
    return key_rows + field("parked_query_reads") * (MlaDecodeSpec.waves * 64 * 16)


def spec_limits(arch: Arch) -> tuple[Limit, ...]:
    """Return what a spec must meet on an arch."""
    return (
        *_WIDTHS,
        Limit(
            "mla.decode.spec.dtype",
            "cannot",
            "dtype",
            eq(field("dtype"), DTYPE) if _has_atoms(arch) else const(False),
            because=f"both products need the {PAGE_SIZE}x{STEP}x{PAGE_SIZE} matrix atom of a {DTYPE} wave of 64",
            remedy="Choose an arch that has it.",
        ),
        Limit(
            "mla.decode.spec.workgroup_memory",
            "cannot",
            "workgroups_per_cu",
            workgroup_bytes() * field("workgroups_per_cu") <= fact("lds_bytes"),
            because="that many workgroups share the workgroup memory of a compute unit",
            remedy="Park fewer reads of the query, or budget for fewer workgroups.",
        ),
    )


def resource_limits(spec: MlaDecodeSpec) -> tuple[Limit, ...]:
    """Return what a compiled kernel of a spec must meet, in the figures an arch may declare."""
    return (
        Limit(
            "mla.decode.resources.workgroups_per_cu",
            "cannot",
            "workgroups_per_cu",
            field("workgroups_per_cu") >= spec.workgroups_per_cu,
            because="the schedule counts on that many workgroups to hide each other's waits",
            remedy="Park more reads of the query, read less far ahead, or budget for fewer workgroups.",
        ),
    )


def _single(name: str, value: int) -> Limit:
    return Limit(
        f"mla.decode.spec.{name}",
        "not_validated",
        name,
        eq(field(name), value),
        because="layouts and registers are proved for this width alone",
        remedy=f"Evolve the spec to {name}={value}.",
    )


_WIDTHS: Final = (
    _single("latent_width", LATENT_WIDTH),
    _single("rope_width", ROPE_WIDTH),
    _single("page_size", PAGE_SIZE),
)


def _has_atoms(arch: Arch) -> bool:
    """Whether the arch's data name the atom of both products, for the wave size that the layouts are written for."""
    try:
        arch.matrix.find(m=PAGE_SIZE, n=STEP, k=PAGE_SIZE, a=DTYPE)
    except NoSuchAtom:
        return False
    return arch.wave_size == 64
