"""What is compiled into each of the three kernels: terms of rows, gradients of keys and values, those of queries."""

from __future__ import annotations

from typing import ClassVar, Final

import attrs

from kinfolk.fields import ExactInt, OneOf
from kinfolk.ir.types import F32, FLOAT_TYPES, I32, SCALARS, PointerType
from kinfolk.parameters import Access, Parameter
from kinfolk.spec import LoopWork, Spec

LANES: Final = 64
MOST_HEADS: Final = 2**10
MOST_ROWS: Final = 2**24
"""How many queries, or keys, a sequence may have: rounds over their tiles, for all heads, are counted in 32 bits."""
ROW_GROUP: Final = 128
"""Terms are kept for a multiple of so many queries: those past the last have the terms of rows that see nothing."""


@attrs.frozen(kw_only=True)
class BackwardSpec(Spec):
    """`head_size` columns of queries, keys, values and outputs, all of `dtype`; `waves` waves of `LANES` lanes."""

    vector_bytes: ClassVar[int] = 16
    waves: ClassVar[int] = 4
    workgroups_per_cu: ClassVar[int] = 1

    head_size: int = attrs.field(validator=ExactInt(minimum=32, maximum=256, step=32))
    dtype: str = attrs.field(validator=OneOf(FLOAT_TYPES))

    def named(self, kind: str) -> str:
        """Return a symbol that says width and type of a kernel of a kind."""
        return f"attention_bwd_{kind}_{self.head_size}_{self.dtype}_{self.digest()[:8]}"

    def read(self, name: str) -> Parameter:
        """Return the parameter of a tensor of the type that is read."""
        return Parameter(name=name, type=PointerType(SCALARS[self.dtype]), alignment=16)

    def written(self, name: str) -> Parameter:
        """Return the parameter of a tensor of the type that is written."""
        return Parameter(name=name, type=PointerType(SCALARS[self.dtype]), access="write", alignment=16)


def count(name: str, most: int, least: int = 1) -> Parameter:
    """Return the parameter of a number."""
    return Parameter(name=name, type=I32, minimum=least, maximum=most)


def terms(access: Access) -> tuple[Parameter, ...]:
    """Return the parameters of what is kept of each row: -LSE in powers of 2, and -D, minus the sum of o * dout."""
    return tuple(
        Parameter(name=name, type=PointerType(F32), access=access, alignment=16) for name in ("minus_lse2", "minus_sum")
    )


@attrs.frozen(kw_only=True)
class RowTermsSpec(BackwardSpec):
    """A row is shared by as many lanes as it has vectors; a workgroup has as many rows as its lanes are for."""

    @property
    def lanes_per_row(self) -> int:
        """How many lanes share a row."""
        return self.head_size * SCALARS[self.dtype].bytes // self.vector_bytes

    @property
    def rows(self) -> int:
        """How many rows a workgroup has."""
        return self.waves * LANES // self.lanes_per_row

    def symbol(self) -> str:
        """Return a short readable name; it is no key."""
        return self.named("rows")

    def parameters(self) -> tuple[Parameter, ...]:
        """Return what the kernel takes.

        `o` and `dout` [batch, seqlen_q, heads, head], `lse` [batch, heads, seqlen_q]; the terms [batch, heads,
        rows_kept], where rows_kept is seqlen_q up to a multiple of `ROW_GROUP`.
        """
        return (
            self.read("o"),
            self.read("dout"),
            Parameter(name="lse", type=PointerType(F32), alignment=4),
            *terms("write"),
            count("seqlen_q", MOST_ROWS, 0),
            count("num_heads", MOST_HEADS),
            count("rows_kept", MOST_ROWS, 0),
        )


@attrs.frozen(kw_only=True)
class GradientSpec(BackwardSpec):
    """A wave has `blocks` of `atom` rows each, as columns of its products, and walks tiles of `tile_rows` rows of what
    its rows meet. Rows and columns of these are read so many units before their use, the order is fenced after
    `fence_every` units, and so many units of the products over columns, and over rows, come after the barrier in them.
    """

    atom: ClassVar[int] = 16
    row_padding_bytes: ClassVar[int] = 16

    blocks: int = attrs.field(validator=ExactInt(minimum=1, maximum=4))
    tile_rows: int = attrs.field(validator=ExactInt(minimum=32, maximum=64, step=32))
    row_read_ahead: int = attrs.field(validator=ExactInt(minimum=1, maximum=12))
    column_read_ahead: int = attrs.field(validator=ExactInt(minimum=1, maximum=12))
    fence_every: int = attrs.field(validator=ExactInt(minimum=0, maximum=16))
    units_after_barrier: int = attrs.field(validator=ExactInt(minimum=0, maximum=12))

    @property
    def rows(self) -> int:
        """How many rows a workgroup has."""
        return self.waves * self.wave_rows

    @property
    def wave_rows(self) -> int:
        """How many rows a wave has."""
        return self.blocks * self.atom

    @property
    def attributes(self) -> dict[str, int | str]:
        """What a kernel asks of the compiler: a wave has both kinds of registers for itself."""
        return {"workgroups_per_cu": self.workgroups_per_cu}

    def numbers(self) -> tuple[Parameter, ...]:
        """Return the parameters of numbers; of more keys than queries `ahead` come before the first query's own."""
        return (
            Parameter(name="scale", type=F32),
            count("seqlen_q", MOST_ROWS, 0),
            count("seqlen_k", MOST_ROWS, 0),
            count("ahead", MOST_ROWS, -MOST_ROWS),
            count("num_heads", MOST_HEADS),
            count("num_kv_heads", MOST_HEADS),
            count("heads_per_kv", MOST_HEADS),
            count("causal", 1, 0),
            count("rows_kept", MOST_ROWS, 0),
        )

    def tensors(self) -> tuple[Parameter, ...]:
        """Return the parameters of what is read."""
        return (*map(self.read, ("q", "k", "v", "dout")), *terms("read"))


@attrs.frozen(kw_only=True)
class KeysSpec(GradientSpec):
    """A workgroup has rows of keys and values of one head, and walks the queries of the heads that read them."""

    def symbol(self) -> str:
        """Return a short readable name; it is no key."""
        return self.named("keys")

    def work_per_round(self) -> LoopWork:
        """Return the queries of two tiles, each met by as many keys as a workgroup has."""
        return LoopWork(tokens=2 * self.tile_rows, heads=self.rows)

    def parameters(self) -> tuple[Parameter, ...]:
        """Return what the kernel takes: `q`, `dout` [batch, seqlen_q, heads, head], `k`, `v`, `dk`, `dv` [batch,
        seqlen_k, heads of keys, head], and the terms of `RowTermsSpec`.
        """
        return (*self.tensors(), self.written("dk"), self.written("dv"), *self.numbers())


@attrs.frozen(kw_only=True)
class QueriesSpec(GradientSpec):
    """A workgroup has rows of queries of one head, and walks the keys and values that they see."""

    def symbol(self) -> str:
        """Return a short readable name; it is no key."""
        return self.named("queries")

    def work_per_round(self) -> LoopWork:
        """Return the keys of two tiles, each met by as many queries as a workgroup has."""
        return LoopWork(tokens=2 * self.tile_rows, heads=self.rows)

    def parameters(self) -> tuple[Parameter, ...]:
        """Return what the kernel takes, as `KeysSpec`, with `dq` in place of `dk` and `dv`; the queries of a sequence
        make `row_blocks` blocks.
        """
        return (*self.tensors(), self.written("dq"), *self.numbers(), count("row_blocks", MOST_ROWS // self.rows, 0))
