"""What the decode kernel takes: of a request, and of a spec on an arch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kinfolk.budget import budget_limits
from kinfolk.expr import Expr, all_of, any_of, const, eq, fact, field, maximum, minimum, ne, select
from kinfolk.fields import listing
from kinfolk.ir.types import FLOAT_TYPES, SCALARS
from kinfolk.matrix import atom_fact
from kinfolk.refusal import Limit
from kinfolk.tile.attention.limits import lanes_limit
from kinfolk_mla.cache import widened_cache, widened_spec
from kinfolk_mla.spec import MlaDecodeSpec, MlaNarrowDecodeSpec

MOST_HEADS: Final = MlaDecodeSpec.most_heads
MOST_QUERIES: Final = MlaDecodeSpec.most_queries
LATENT_WIDTH, ROPE_WIDTH, PAGE_SIZE, DTYPE = 512, 64, 16, "bf16"
PAGE_SIZES: Final = (16, 32, 64, 128)
"""Pages of whole tiles, of which `PAGE_SIZE` is the smallest."""
SMALL_PAGES: Final = (1, 2, 4, 8)
"""Pages smaller than a tile, whose keys are gathered row by row."""
ATOM_TYPES: Final = ("bf16", "f16")
MAX_I32: Final = 2**31 - 1


def capability(
    code: str, cache: Limit, keys_ahead: int = MlaDecodeSpec.keys_ahead, small_pages: tuple[int, ...] = ()
) -> tuple[Limit, ...]:
    """Return what a request must meet for a candidate whose codes begin with `code`.

    `cache` is its limit of the cache's type; it counts keys up to `keys_ahead` past a sequence's last, which may lie in
    `small_pages` too.
    """
    return (
        Limit(
            f"{code}.absorbed_query",
            "not_implemented",
            "absorbed_query",
            field("absorbed_query"),
            because="scores are formed in the latent space",
            remedy="Multiply the query by the key up-projection and pass absorbed_query=True.",
        ),
        *_query_limits(code),
        *_row_limits(code, (*small_pages, *PAGE_SIZES)),
        cache,
        Limit(
            f"{code}.num_seqs",
            "cannot",
            "num_seqs",
            field("num_seqs") <= fact("max_grid_y"),
            because="sequences are the second axis of the grid",
            remedy="Split the batch.",
        ),
        Limit(
            f"{code}.num_seg",
            "cannot",
            "num_seg",
            field("num_seg") <= fact("max_grid_z"),
            because="segments are the third axis of the grid",
            remedy="Ask for fewer, or for 0: as many as fill the compute units.",
        ),
        *_length_limits(code, keys_ahead, small_pages),
        Limit(
            f"{code}.num_pages",
            "cannot",
            "num_pages",
            field("num_pages") <= MAX_I32,
            because="page ids are 32-bit",
            remedy="Divide the cache.",
        ),
    )


def _query_limits(code: str) -> tuple[Limit, ...]:
    """Return the limits of what are counted as rows: heads of a sequence's query tokens."""
    most = minimum(MOST_QUERIES, fact("max_grid_x") // maximum(field("num_heads"), 1))
    return (
        Limit(
            f"{code}.num_heads",
            "cannot",
            "num_heads",
            field("num_heads") <= MOST_HEADS,
            because="a row's token is found by a fraction that is exact for so many heads",
            remedy=f"Divide the heads over requests: the nearest number that runs is {MOST_HEADS}.",
        ),
        Limit(
            f"{code}.max_seqlen_q",
            "cannot",
            "max_seqlen_q",
            all_of(field("max_seqlen_q") <= MOST_QUERIES, field("max_seqlen_q") <= most),
            because="rows, heads of a sequence's query tokens, are counted in 32 bits and are an axis of the grid",
            remedy="Pass at most {most} tokens of a sequence at once.",
            suggestions={"most": most},
            takes=f"at most {MOST_QUERIES}, fewer where a grid has less than num_heads times that on its first axis",
        ),
        Limit(
            f"{code}.total_q",
            "cannot",
            "total_q",
            field("total_q") <= MAX_I32,
            because="query tokens are counted in 32 bits",
            remedy="Split the batch.",
        ),
    )


def _length_limits(code: str, keys_ahead: int, small_pages: tuple[int, ...]) -> tuple[Limit, ...]:
    """Return the limits of how long a sequence may be."""
    counted = Limit(
        f"{code}.max_seqlen_k",
        "cannot",
        "max_seqlen_k",
        field("max_seqlen_k") <= 2**31 - keys_ahead,
        because=f"keys are counted in 32 bits, up to {keys_ahead} past the last",
        remedy="Shorten the sequences.",
    )
    most = MlaDecodeSpec.most_gathered
    gathered = Limit(
        f"{code}.max_seqlen_k.gathered",
        "cannot",
        "max_seqlen_k",
        any_of(field("max_seqlen_k") <= most, field("page_size") >= PAGE_SIZE),
        because=f"of pages smaller than {PAGE_SIZE} keys, slots are counted in bytes in 32 bits, up to twice as many",
        remedy=f"Shorten the sequences, or re-page the cache to at least {PAGE_SIZE} keys a page.",
        takes=f"at most {most}, or any number in pages of at least {PAGE_SIZE} keys",
    )
    return (counted, gathered) if small_pages else (counted,)


def _row_limits(code: str, page_sizes: tuple[int, ...]) -> tuple[Limit, ...]:
    """Return the limits of what a key row and a page are."""
    return (
        Limit(
            f"{code}.kv_lora_rank",
            "not_implemented",
            "kv_lora_rank",
            eq(field("kv_lora_rank"), LATENT_WIDTH),
            because="the accumulators of a latent row fill a wave's registers",
            remedy=f"Use a cache with latent rows of {LATENT_WIDTH}.",
        ),
        Limit(
            f"{code}.rope_dim",
            "not_implemented",
            "rope_dim",
            eq(field("rope_dim"), ROPE_WIDTH),
            because="the rotated part of a key row is staged in vectors laid out for this width",
            remedy=f"Use a cache with rotated parts of {ROPE_WIDTH}.",
        ),
        Limit(
            f"{code}.page_size",
            "not_implemented",
            "page_size",
            field("page_size").one_of(page_sizes),
            because="a tile of keys is made of whole pages, or is a part of one",
            remedy=f"Re-page the cache to {listing(page_sizes)} keys a page.",
        ),
        Limit(
            f"{code}.dtype",
            "not_implemented",
            "dtype",
            eq(field("dtype"), DTYPE),
            because="query and output are staged and rounded as this type",
            remedy=f"Convert the query to {DTYPE}.",
        ),
    )


CAPABILITY: Final = capability("mla.decode", widened_cache("mla.decode", DTYPE), small_pages=SMALL_PAGES)
"""What a request must meet."""


def _element_bytes() -> Expr:
    sizes: dict[int, list[str]] = {}
    for name in FLOAT_TYPES:
        sizes.setdefault(SCALARS[name].bytes, []).append(name)
    (last, _), *others = sorted(sizes.items())
    found: Expr = const(last)
    for size, names in others:
        found = select(field("dtype").one_of(names), size, found)
    return found


ELEMENT_BYTES: Final = _element_bytes()
ROW_BYTES: Final = (field("latent_width") + field("rope_width")) * ELEMENT_BYTES


def row_reads(kind: type[MlaDecodeSpec] = MlaDecodeSpec) -> Expr:
    """Return in how many reads a lane has its part of a key row, which the lanes of one row share."""
    return ROW_BYTES * kind.rows_per_wave // (fact("wave_size") * kind.vector_bytes)


def workgroup_bytes() -> Expr:
    """Return the workgroup memory of a spec in bytes: a tile of padded key rows, and the parked query reads."""
    key_rows = PAGE_SIZE * (ROW_BYTES + MlaDecodeSpec.row_padding_bytes)
    read_bytes = MlaDecodeSpec.waves * fact("wave_size") * MlaDecodeSpec.vector_bytes
    return key_rows + field("parked_query_reads") * read_bytes


def shape_limits(code: str, atom_heads: int, atom_rows: int, lanes: int, cache: Limit) -> tuple[Limit, ...]:
    """Return what every spec must meet on an arch, for the candidate whose codes begin with `code`.

    `cache` is its limit of the cache's type. The atoms of both products have `atom_heads` heads side by side, and
    `atom_rows` rows, over waves of `lanes`.
    """
    return (
        single(code, "latent_width", LATENT_WIDTH),
        single(code, "rope_width", ROPE_WIDTH),
        paired(code),
        Limit(
            f"{code}.spec.atom",
            "cannot",
            "dtype",
            _has_atom(atom_rows, atom_heads),
            because=f"both products are made of {atom_rows}x{atom_heads}x{PAGE_SIZE} matrix atoms of the type",
            remedy="Choose an arch that has the atom, or a type for which this one has it.",
            takes=with_atoms(lambda name: (atom_fact(m=atom_rows, n=atom_heads, k=PAGE_SIZE, a=name),)),
        ),
        cache,
        lanes_limit(code, "rows_per_wave", lanes, "a wave's heads"),
    )


def paired(code: str) -> Limit:
    """Return the limit of the type in which products are."""
    return Limit(
        f"{code}.spec.dtype",
        "not_implemented",
        "dtype",
        field("dtype").one_of(ATOM_TYPES),
        because="values are transposed and weights are rounded as pairs of 16 bits",
        remedy=f"Evolve the spec to dtype={DTYPE}.",
    )


def single(code: str, name: str, value: int) -> Limit:
    """Return the limit of a field of specs that has one value."""
    return Limit(
        f"{code}.spec.{name}",
        "not_validated",
        name,
        eq(field(name), value),
        because="layouts and registers are proved for this width alone",
        remedy=f"Evolve the spec to {name}={value}.",
    )


def _at_most_the_reads(kind: type[MlaDecodeSpec], name: str, because: str) -> Limit:
    """Return the limit of a field that counts reads of a key row."""
    code = f"mla.decode.spec.{name}"
    takes = "at most the reads of a key row"
    return Limit(
        code, "cannot", name, field(name) <= row_reads(kind), because=because, remedy="Choose fewer.", takes=takes
    )


def with_atoms(facts_of: Callable[[str], Iterable[str]]) -> str:
    """Return in words that a type is taken where the arch has one of the atoms that are facts of it."""
    return " or ".join(f"{name} on an arch that has {' or '.join(facts_of(name))}" for name in ATOM_TYPES)


def _has_atom(rows: int, heads: int) -> Expr:
    """Return the condition that the arch has the atom of both products in the spec's type, where that is possible."""
    atoms = {name: fact(atom_fact(m=rows, n=heads, k=PAGE_SIZE, a=name)) for name in ATOM_TYPES}
    return all_of(*(any_of(ne(field("dtype"), name), atom) for name, atom in atoms.items()))


def _spec_limits(kind: type[MlaDecodeSpec], atom_rows: int) -> tuple[Limit, ...]:
    return (
        Limit(
            "mla.decode.spec.page_size",
            "not_validated",
            "page_size",
            field("page_size").one_of((1, PAGE_SIZE)),
            because="a tile is a page, or made of single keys",
            remedy=f"Evolve the spec to page_size=1 or {PAGE_SIZE}.",
        ),
        *shape_limits("mla.decode", kind.rows_per_wave, atom_rows, kind.lanes, widened_spec("mla.decode")),
        _at_most_the_reads(kind, "parked_query_reads", "the query has as many reads as a key row"),
        _at_most_the_reads(kind, "fence_every", "the first product has that many units, one a read of a key row"),
        Limit(
            "mla.decode.spec.workgroup_memory",
            "cannot",
            "workgroups_per_cu",
            workgroup_bytes() * field("workgroups_per_cu") <= fact("lds_bytes"),
            because="that many workgroups share the workgroup memory of a compute unit",
            remedy="Park fewer reads of the query, or budget for fewer workgroups.",
            takes="as many as have room for a tile and the parked reads each in the arch's lds_bytes",
        ),
    )


SPEC_LIMITS: Final[Mapping[type[MlaDecodeSpec], tuple[Limit, ...]]] = {
    MlaDecodeSpec: _spec_limits(MlaDecodeSpec, 16),
    MlaNarrowDecodeSpec: _spec_limits(MlaNarrowDecodeSpec, 16),
}
"""What a spec must meet on an arch, by its class."""


def resource_limits(spec: MlaDecodeSpec) -> tuple[Limit, ...]:
    """Return what a compiled kernel of a spec must meet, in the figures an arch may declare."""
    remedy = "Park more reads of the query, read less far ahead, or budget for fewer workgroups."
    return budget_limits("mla.decode", spec.workgroups_per_cu, spec.waves, remedy)
