"""All that is compiled into one MLA kernel."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Final

import attrs

from kinfolk.fields import ExactBool, ExactInt, OneOf
from kinfolk.ir.types import F32, FLOAT_TYPES, I32, SCALARS, PointerType
from kinfolk.parameters import Parameter
from kinfolk.spec import LoopWork, Spec

INVERSE_BITS: Final = 21
"""Of the fraction by which a row's token is found."""


@attrs.frozen(kw_only=True)
class MlaSpec(Spec):
    """What every kernel over absorbed queries and a paged latent cache is compiled for.

    A workgroup serves `rows` = `row_waves` times `rows_per_wave` rows of one sequence's query, heads of tokens, and its
    waves stage key rows of `latent_width` + `rope_width` elements together, a tile at a time: `kv_dtype` in the cache,
    widened to `dtype` on their way. Where there are `key_groups` of waves, each takes every so many-th tile for the
    same rows. The `lanes` of a wave read and write `vector_bytes` each at once; a staged key row is followed by
    `row_padding_bytes` unused ones, so that the rows of a column start in different banks. A page is `page_size` keys
    as the kernel counts them; a page of the cache is a power of two of such pages, of `largest_page` keys at most. The
    loops count keys up to `keys_ahead` past a sequence's last. How many heads a token has, and tokens a sequence, is
    said at launch: a kernel serves up to `most_heads` and `most_queries`.
    """

    rows_per_wave: ClassVar[int]
    lanes: ClassVar[int] = 64
    key_groups: ClassVar[int] = 1
    waves: ClassVar[int] = 4
    vector_bytes: ClassVar[int] = 16
    row_padding_bytes: ClassVar[int] = 16
    keys_ahead: ClassVar[int] = 16
    most_segments: ClassVar[int] = 2**20
    largest_page: ClassVar[int] = 128
    most_heads: ClassVar[int] = 2**10
    most_queries: ClassVar[int] = 2**20

    latent_width: int = attrs.field(validator=ExactInt(minimum=16, step=16))
    rope_width: int = attrs.field(validator=ExactInt(minimum=16, step=16))
    page_size: int = attrs.field(validator=ExactInt())
    dtype: str = attrs.field(validator=OneOf(FLOAT_TYPES))
    kv_dtype: str = attrs.field(validator=OneOf(FLOAT_TYPES))

    @property
    def atom_heads(self) -> int:
        """How many heads a matrix atom of either product has side by side."""
        return 16

    @property
    def atom_rows(self) -> int:
        """How many latent columns a matrix atom of the second product has as rows."""
        return self.atom_heads

    @property
    def row_waves(self) -> int:
        """How many waves have rows of their own."""
        return self.waves // self.key_groups

    @property
    def rows(self) -> int:
        """How many rows of a query a workgroup serves."""
        return self.row_waves * self.rows_per_wave

    @property
    def most_blocks(self) -> int:
        """How many workgroups have rows of one sequence, at most."""
        return -(-self.most_queries * self.most_heads // self.rows)

    @property
    def most_keys(self) -> int:
        """How many keys a sequence may have, counted in 32 bits."""
        return 2**31 - self.keys_ahead

    @property
    @abstractmethod
    def tile_keys(self) -> int:
        """How many keys a tile has."""

    @property
    def tile_pages(self) -> int:
        """How many pages make a tile."""
        return self.tile_keys // self.page_size

    @property
    def most_shift(self) -> int:
        """The power of two that the largest page of the cache has pages as the kernel counts them."""
        return (self.largest_page // self.page_size).bit_length() - 1

    def work_per_round(self) -> LoopWork:
        """Return the keys of a tile for each group of waves, and a workgroup's rows, as the heads of one token."""
        return LoopWork(tokens=self.key_groups * self.tile_keys, heads=self.rows)

    def parameters(self) -> tuple[Parameter, ...]:
        """Return what the kernel takes.

        Data are aligned to 16 bytes. An element of the cache stands for itself times `k_scale`. `status` is an i32 to
        which one is added for every slot in use whose page id lies outside [0, num_pages), in sequences that have a
        query. A sequence whose queries are rows outside [0, total_q) has none. Of one with more than `max_seqlen_q`
        queries or `max_seqlen_k` keys only so many are seen. With `heads_inverse` = ceil(2^21 / num_heads) attention is
        causal: the last query sees all keys, each one before it a key less; with 0 all see all. With `num_segments`
        above 1, segment z of the grid has `segment_pages` pages of each sequence from page z * segment_pages on, which
        make whole tiles, and what it comes to goes to `part_out` [segments, tokens, heads, latent] and `part_ml`
        [segments, tokens, heads, 2], the maximum of raw scores and the sum of weights under it, elements of the cache
        taken as they are, instead of `out` and `lse`; a segment without keys writes the latter alone. A page of the
        cache is 2^`page_shift` pages as the kernel counts them; without that parameter, it is one.
        """
        data, cache = PointerType(SCALARS[self.dtype]), PointerType(SCALARS[self.kv_dtype])
        ids, floats = PointerType(I32), PointerType(F32)
        return (
            Parameter(name="qa", type=data, alignment=16),
            Parameter(name="c_kv", type=cache, alignment=16),
            Parameter(name="k_rope", type=cache, alignment=16),
            Parameter(name="cu_seqlens_q", type=ids, alignment=4),
            Parameter(name="cu_seqlens_k", type=ids, alignment=4),
            Parameter(name="block_table", type=ids, alignment=4),
            Parameter(name="status", type=ids, access="readwrite", alignment=4),
            Parameter(name="out", type=data, access="write", alignment=16),
            Parameter(name="lse", type=floats, access="write", alignment=4),
            Parameter(name="scale", type=F32),
            Parameter(name="k_scale", type=F32),
            Parameter(name="block_table_stride", type=I32, minimum=0),
            Parameter(name="num_pages", type=I32, minimum=0),
            Parameter(name="total_q", type=I32, minimum=0),
            Parameter(name="max_seqlen_q", type=I32, minimum=0, maximum=self.most_queries),
            Parameter(name="max_seqlen_k", type=I32, minimum=0, maximum=self.most_keys),
            Parameter(name="num_heads", type=I32, minimum=1, maximum=self.most_heads),
            Parameter(name="heads_inverse", type=I32, minimum=0, maximum=2**INVERSE_BITS),
            Parameter(name="part_out", type=floats, access="write", alignment=16),
            Parameter(name="part_ml", type=floats, access="write", alignment=8),
            Parameter(name="num_segments", type=I32, minimum=1, maximum=self.most_segments),
            Parameter(name="segment_pages", type=I32, minimum=0, maximum=(2**31 - 1) // self.page_size),
            *self._shift_parameters(),
        )

    def _shift_parameters(self) -> tuple[Parameter, ...]:
        most = self.most_shift
        return (Parameter(name="page_shift", type=I32, minimum=0, maximum=most),) if most else ()


@attrs.frozen(kw_only=True)
class MlaDecodeSpec(MlaSpec):
    """A decode kernel over absorbed queries: the keys of a segment in one walk over its pages.

    A tile of `tile_keys` is staged at a time: a page of `page_size` keys or a part of one, or where such pages are
    single keys, each row from where it lies. With `idle_waves`, waves without rows do nothing but stage; else they
    compute with zeros, and the loop has no branch for them. The schedule: how many units before their use keys, parked
    queries and values are read, after how many units of the first product the order is fenced, how many of a query's
    reads are parked in workgroup memory, and for how many workgroups per compute unit registers are budgeted.
    """

    rows_per_wave: ClassVar[int] = 16
    keys_ahead: ClassVar[int] = 48
    most_gathered: ClassVar[int] = 2**28 - keys_ahead

    idle_waves: bool = attrs.field(validator=ExactBool())
    key_read_ahead: int = attrs.field(validator=ExactInt(maximum=8))
    query_read_ahead: int = attrs.field(validator=ExactInt(maximum=8))
    value_read_ahead: int = attrs.field(validator=ExactInt(maximum=8))
    fence_every: int = attrs.field(validator=ExactInt(minimum=0))
    parked_query_reads: int = attrs.field(validator=ExactInt(minimum=0))
    workgroups_per_cu: int = attrs.field(validator=ExactInt(maximum=4))

    @property
    def tile_keys(self) -> int:
        """How many keys a tile has."""
        return 16

    @property
    def gathers(self) -> bool:
        """Whether the rows of a tile lie anywhere."""
        return self.page_size == 1

    @property
    def most_keys(self) -> int:
        """How many keys a sequence may have; gathered ones have slots that are counted in bytes."""
        return self.most_gathered if self.gathers else super().most_keys

    @property
    def most_shift(self) -> int:
        """The power of two that the largest page has pages as the kernel counts them; keys are gathered of pages
        smaller than a tile.
        """
        return (self.tile_keys // 2).bit_length() - 1 if self.gathers else super().most_shift

    def symbol(self) -> str:
        """Return a short readable name; it is no key."""
        idle = "_idle" if self.idle_waves else ""
        return f"mla_decode{idle}_{self.kv_dtype.lower()}_{self.digest()[:8]}"


@attrs.frozen(kw_only=True)
class MlaNarrowDecodeSpec(MlaDecodeSpec):
    """The same kernel for waves of 32 lanes and atoms with 8 rows side by side: a workgroup serves half as many."""

    rows_per_wave: ClassVar[int] = 8
    lanes: ClassVar[int] = 32

    @property
    def atom_heads(self) -> int:
        """How many heads a matrix atom of either product has side by side."""
        return 8

    @property
    def atom_rows(self) -> int:
        """How many latent columns a matrix atom of the second product has as rows."""
        return 16
