"""All that is compiled into the kernels of projected queries."""

from __future__ import annotations

from typing import ClassVar

import attrs

from kinfolk.fields import ExactInt, OneOf
from kinfolk.ir.types import F32, FLOAT_TYPES, I32, SCALARS, PointerType
from kinfolk.parameters import Parameter
from kinfolk.spec import LoopWork, Spec


@attrs.frozen(kw_only=True)
class MlaProjectedSpec(Spec):
    """What each kernel is compiled for: the width of a head's values, and of its keys but for their rotated part.

    All that is in memory is of `dtype`, but LSE, and the cache: where a kernel reads that, it is of `kv_dtype` and
    widened, and what is formed of it is in the unit of its elements. A wave's matrix atoms have `atom` rows and
    columns. A page of the cache is `part` keys or a power of two times as many. `lanes` of a wave read and write
    `vector_bytes` each at once; a staged row is followed by `row_padding_bytes` unused ones. Heads are counted at
    launch: a kernel serves any number, in groups that have the workspace in turn.
    """

    lanes: ClassVar[int] = 64
    waves: ClassVar[int] = 4
    atom: ClassVar[int] = 32
    part: ClassVar[int] = 16
    vector_bytes: ClassVar[int] = 16
    row_padding_bytes: ClassVar[int] = 16
    most_shift: ClassVar[int] = 3
    most_heads: ClassVar[int] = 2**10
    most_keys: ClassVar[int] = 2**23 - 2**9
    """How many keys, or queries, a sequence may have: a head's keys are a view of less than 2^31 bytes, which tiles
    that are asked for ahead leave behind by less than 2^9 rows.
    """
    block: ClassVar[int] = 128
    """Keys, or queries, of a workgroup."""

    head_width: int = attrs.field(validator=ExactInt(minimum=128, step=128))
    dtype: str = attrs.field(validator=OneOf(FLOAT_TYPES))

    @property
    def most_blocks(self) -> int:
        """How many blocks of keys, or queries, a sequence may have: the grid counts them."""
        return self.most_keys // self.block

    def shared_parameters(self) -> tuple[Parameter, ...]:
        """Return what both kernels take last.

        The pages of a sequence are those of its row of the block table, rows `block_table_stride` apart; a page has
        2^`page_shift` parts. The workspace holds `group_heads` heads, the first of which is head `first_head`.
        """
        return (*self.paged_parameters(), *self.counted_parameters())

    def paged_parameters(self) -> tuple[Parameter, ...]:
        """Return what a kernel takes that reads pages."""
        return (
            Parameter(name="block_table_stride", type=I32, minimum=0),
            Parameter(name="num_pages", type=I32, minimum=0),
            Parameter(name="page_shift", type=I32, minimum=0, maximum=self.most_shift),
        )

    def counted_parameters(self) -> tuple[Parameter, ...]:
        """Return the counts of what there is, and which heads have the workspace."""
        return (
            Parameter(name="total_q", type=I32, minimum=0),
            Parameter(name="max_seqlen_k", type=I32, minimum=0, maximum=self.most_keys),
            Parameter(name="first_head", type=I32, minimum=0, maximum=self.most_heads),
            Parameter(name="group_heads", type=I32, minimum=1, maximum=self.most_heads),
        )


@attrs.frozen(kw_only=True)
class MlaWeightsSpec(MlaProjectedSpec):
    """A kernel that multiplies rows by a head's up-projection [latent, 2 * head], or by a half of it.

    A workgroup has `block` rows of one head, a wave `atom` of them, which stay in registers; the head's weights go by
    in tiles of `weight_rows` rows of `head_width` columns. Each is read `read_ahead` units before its use.
    """

    workgroups_per_cu: ClassVar[int] = 1

    latent_width: int = attrs.field(validator=ExactInt(minimum=64, step=64))
    weight_rows: int = attrs.field(validator=ExactInt(minimum=32, maximum=128, step=32))
    read_ahead: int = attrs.field(validator=ExactInt(minimum=1, maximum=16))


@attrs.frozen(kw_only=True)
class MlaExpandSpec(MlaWeightsSpec):
    """The kernel that forms keys and values of heads out of latent rows: a product with each head's up-projection.

    Rows are those of keys; the weights of keys go by first, and of values then.
    """

    kv_dtype: str = attrs.field(validator=OneOf(FLOAT_TYPES))

    def symbol(self) -> str:
        """Return a short readable name; it is no key."""
        return f"mla_expand_{self.kv_dtype.lower()}_{self.digest()[:8]}"

    def parameters(self) -> tuple[Parameter, ...]:
        """Return what the kernel takes.

        `w_ukv` [heads, latent, 2 * head] has the columns of a head's keys, then those of its values. `expanded`
        [sequences, heads of a group, 2, max_seqlen_k, head] gets both, rounded; 0 for keys of a page outside the cache,
        which `status` counts once, and nothing past a sequence's last key or where a sequence has no query.
        """
        data, ids = PointerType(SCALARS[self.dtype]), PointerType(I32)
        return (
            Parameter(name="c_kv", type=PointerType(SCALARS[self.kv_dtype]), alignment=16),
            Parameter(name="w_ukv", type=data, alignment=16),
            Parameter(name="cu_seqlens_q", type=ids, alignment=4),
            Parameter(name="cu_seqlens_k", type=ids, alignment=4),
            Parameter(name="block_table", type=ids, alignment=4),
            Parameter(name="status", type=ids, access="readwrite", alignment=4),
            Parameter(name="expanded", type=data, access="write", alignment=16),
            *self.gathered_parameters(),
            *self.shared_parameters(),
        )

    def gathered_parameters(self) -> tuple[Parameter, ...]:
        """Return what else is read and written, by rows of keys; nothing where attention reads pages itself."""
        return ()


@attrs.frozen(kw_only=True)
class MlaGatheredExpandSpec(MlaExpandSpec):
    """The same kernel for pages smaller than 16 keys, where each lane finds the row that it takes part of.

    It leaves rotated parts and which keys are there in a workspace too, so that attention reads no page.
    """

    part: ClassVar[int] = 1
    word_keys: ClassVar[int] = 32
    """Keys that an i32 says of whether they are there: those of a wave."""

    rope_width: int = attrs.field(validator=ExactInt(minimum=64, step=64))

    def symbol(self) -> str:
        """Return a short readable name; it is no key."""
        return f"mla_expand_rows_{self.kv_dtype.lower()}_{self.digest()[:8]}"

    def gathered_parameters(self) -> tuple[Parameter, ...]:
        """Return the rotated parts of keys in the cache; where they go, `rotated` [sequences, max_seqlen_k, rope], 0
        for those of a page outside the cache; and `present` [sequences, words], a bit a key from the lowest on.
        """
        return (
            Parameter(name="k_rope", type=PointerType(SCALARS[self.kv_dtype]), alignment=16),
            Parameter(name="rotated", type=PointerType(SCALARS[self.dtype]), access="write", alignment=16),
            Parameter(name="present", type=PointerType(I32), access="write", alignment=4),
        )


@attrs.frozen(kw_only=True)
class MlaPrefillSpec(MlaProjectedSpec):
    """The kernel that attends over expanded keys and values, and over the rotated keys that all heads share.

    A workgroup has `block` queries of one head and sequence, a wave `atom` of them, and walks its keys in tiles of
    `tile_keys`. The schedule: how many tiles of keys have a place in workgroup memory (of values two have), how many
    reads of keys make a unit, how many units before their use keys and values are read, after how many units of the
    first product the order is fenced, how many pairs of weights are formed during the second product, and how many of
    its units come after its barrier.
    """

    waves: ClassVar[int] = 8
    block: ClassVar[int] = 256
    value_slots: ClassVar[int] = 2
    workgroups_per_cu: ClassVar[int] = 1

    kv_dtype: str = attrs.field(validator=OneOf(FLOAT_TYPES))
    rope_width: int = attrs.field(validator=ExactInt(minimum=64, step=64))
    tile_keys: int = attrs.field(validator=ExactInt(minimum=64, maximum=64, step=64))
    key_slots: int = attrs.field(validator=ExactInt(minimum=1, maximum=2))
    reads_together: int = attrs.field(validator=ExactInt(minimum=1, maximum=2))
    key_read_ahead: int = attrs.field(validator=ExactInt(minimum=1, maximum=8))
    value_read_ahead: int = attrs.field(validator=ExactInt(minimum=1, maximum=8))
    fence_every: int = attrs.field(validator=ExactInt(minimum=0, maximum=8))
    weights_after: int = attrs.field(validator=ExactInt(minimum=1, maximum=12))
    units_after_barrier: int = attrs.field(validator=ExactInt(minimum=0, maximum=15))

    @property
    def tile_parts(self) -> int:
        """How many parts of pages a tile has."""
        return self.tile_keys // self.part

    @property
    def key_width(self) -> int:
        """Columns of a head's query and of its keys."""
        return self.head_width + self.rope_width

    def work_per_round(self) -> LoopWork:
        """Return the keys of two tiles, for one head of as many tokens as a workgroup has queries."""
        return LoopWork(tokens=2 * self.tile_keys, heads=self.block)

    def symbol(self) -> str:
        """Return a short readable name; it is no key."""
        return f"mla_prefill_{self.kv_dtype.lower()}_{self.digest()[:8]}"

    def parameters(self) -> tuple[Parameter, ...]:
        """Return what the kernel takes.

        `q` [tokens, heads, head + rope], `expanded` as `MlaExpandSpec` leaves it, `out` [tokens, heads, head] and `lse`
        [tokens, heads]. Elements of keys and values stand for themselves times `k_scale`. With `causal` 1 the last
        query of a sequence sees all keys, each one before it a key less; with 0 all see all. `query_blocks` is how many
        blocks of queries the grid has for a sequence.
        """
        data, ids = PointerType(SCALARS[self.dtype]), PointerType(I32)
        return (
            Parameter(name="q", type=data, alignment=16),
            Parameter(name="expanded", type=data, alignment=16),
            *self.rotated_parameters(),
            Parameter(name="cu_seqlens_q", type=ids, alignment=4),
            Parameter(name="cu_seqlens_k", type=ids, alignment=4),
            *self.table_parameters(),
            Parameter(name="status", type=ids, alignment=4),
            Parameter(name="out", type=data, access="write", alignment=16),
            Parameter(name="lse", type=PointerType(F32), access="write", alignment=4),
            Parameter(name="scale", type=F32),
            Parameter(name="k_scale", type=F32),
            *self.placed_parameters(),
            Parameter(name="num_heads", type=I32, minimum=1, maximum=self.most_heads),
            Parameter(name="causal", type=I32, minimum=0, maximum=1),
            Parameter(name="query_blocks", type=I32, minimum=0, maximum=self.most_blocks),
        )

    def rotated_parameters(self) -> tuple[Parameter, ...]:
        """Return where the rotated parts of keys are."""
        return (Parameter(name="k_rope", type=PointerType(SCALARS[self.kv_dtype]), alignment=16),)

    def table_parameters(self) -> tuple[Parameter, ...]:
        """Return what says which keys there are."""
        return (Parameter(name="block_table", type=PointerType(I32), alignment=4),)

    def placed_parameters(self) -> tuple[Parameter, ...]:
        """Return the counts, and those of pages."""
        return self.shared_parameters()


@attrs.frozen(kw_only=True)
class MlaGatheredPrefillSpec(MlaPrefillSpec):
    """The same kernel over what `MlaGatheredExpandSpec` leaves: of `dtype`, whatever the cache, and of no page."""

    word_keys: ClassVar[int] = MlaGatheredExpandSpec.word_keys

    def symbol(self) -> str:
        """Return a short readable name; it is no key."""
        return f"mla_prefill_rows_{self.dtype}_{self.digest()[:8]}"

    def rotated_parameters(self) -> tuple[Parameter, ...]:
        """Return where the rotated parts of keys are."""
        return (Parameter(name="rotated", type=PointerType(SCALARS[self.dtype]), alignment=16),)

    def table_parameters(self) -> tuple[Parameter, ...]:
        """Return what says which keys there are."""
        return (Parameter(name="present", type=PointerType(I32), alignment=4),)

    def placed_parameters(self) -> tuple[Parameter, ...]:
        """Return the counts."""
        return self.counted_parameters()
