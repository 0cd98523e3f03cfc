"""What is compiled into every kernel that gives a workgroup a block of one head's queries, wherever keys lie."""

from __future__ import annotations

from typing import ClassVar

import attrs

from kinfolk.fields import ExactBool, ExactInt, OneOf
from kinfolk.ir.types import F32, FLOAT_TYPES, I32, SCALARS, PointerType
from kinfolk.parameters import Parameter
from kinfolk.spec import LoopWork, Spec


@attrs.frozen(kw_only=True)
class AttentionSpec(Spec):
    """A workgroup has `block` queries of one head and sequence, a wave `atom` of them, and walks its keys in tiles of
    `tile_keys`: of `head_size` columns, their values of `head_size_v`, all of `dtype`. `capped`: scores are. `sloped`:
    something is added to them, the more the later a key. `windowed`: of the keys before its own a query sees the last
    ones alone. `waves` share a tile; the other fields are `kinfolk.tile.attention.schedule.Schedule`.

    The `lanes` of a wave read and write `vector_bytes` each at once; a staged row is followed by `row_padding_bytes`
    unused ones. Heads, sequences, queries and keys are counted at launch.
    """

    lanes: ClassVar[int] = 64
    least_waves: ClassVar[int] = 4
    most_waves: ClassVar[int] = 8
    atom: ClassVar[int] = 32
    vector_bytes: ClassVar[int] = 16
    row_padding_bytes: ClassVar[int] = 16
    value_slots: ClassVar[int] = 2
    workgroups_per_cu: ClassVar[int] = 1
    most_heads: ClassVar[int] = 2**10
    most_rows: ClassVar[int] = 2**30
    """How many queries, or keys, a sequence may have: they are counted in 32 bits, a few tiles past the last."""

    head_size: int = attrs.field(validator=ExactInt(minimum=32, step=16))
    head_size_v: int = attrs.field(validator=ExactInt(minimum=32, step=16))
    dtype: str = attrs.field(validator=OneOf(FLOAT_TYPES))
    capped: bool = attrs.field(validator=ExactBool())
    sloped: bool = attrs.field(validator=ExactBool())
    windowed: bool = attrs.field(validator=ExactBool())
    waves: int = attrs.field(validator=ExactInt(minimum=least_waves, maximum=most_waves, step=4))
    tile_keys: int = attrs.field(validator=ExactInt(minimum=32, maximum=128, step=32))
    key_slots: int = attrs.field(validator=ExactInt(minimum=1, maximum=2))
    reads_together: int = attrs.field(validator=ExactInt(minimum=1, maximum=2))
    key_read_ahead: int = attrs.field(validator=ExactInt(minimum=1, maximum=8))
    value_read_ahead: int = attrs.field(validator=ExactInt(minimum=1, maximum=8))
    fence_every: int = attrs.field(validator=ExactInt(minimum=0, maximum=8))
    weights_after: int = attrs.field(validator=ExactInt(minimum=1, maximum=12))
    units_after_barrier: int = attrs.field(validator=ExactInt(minimum=0, maximum=15))

    @property
    def block(self) -> int:
        """How many queries a workgroup has."""
        return self.waves * self.atom

    @property
    def attributes(self) -> dict[str, int | str]:
        """What a kernel asks of the compiler: of eight waves each has plain registers alone, of four also others."""
        accumulators = "vgpr" if self.waves == self.most_waves else "either"
        return {"workgroups_per_cu": self.workgroups_per_cu, "accumulators": accumulators}

    def work_per_round(self) -> LoopWork:
        """Return the keys of two tiles, for one head of as many tokens as a workgroup has queries."""
        return LoopWork(tokens=2 * self.tile_keys, heads=self.block)

    def named(self, kind: str) -> str:
        """Return a symbol that says widths, type and features of a kernel of a kind."""
        cache = getattr(self, "kv_dtype", self.dtype)
        dtype = self.dtype if cache == self.dtype else f"{self.dtype}_{cache}"
        width = str(self.head_size) if self.head_size == self.head_size_v else f"{self.head_size}x{self.head_size_v}"
        features = "".join(f"_{name}" for name in ("capped", "sloped", "windowed") if getattr(self, name))
        return f"attention_{kind}_{width}_{dtype}{features}_{self.digest()[:8]}"

    def data_parameter(self, name: str, alignment: int = 16) -> Parameter:
        """Return the parameter of a tensor that is read, of the type of queries."""
        return Parameter(name=name, type=PointerType(SCALARS[self.dtype]), alignment=alignment)

    def result_parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters of what is written, of what each head has, and of the numbers that scores are scaled by
        and bent by: a logit in `sink`, read where `sinks` is 1, and a slope, read of `num_slopes` heads, all or none.
        """
        return (
            Parameter(name="out", type=PointerType(SCALARS[self.dtype]), access="write", alignment=16),
            Parameter(name="lse", type=PointerType(F32), access="write", alignment=4),
            self.data_parameter("sink", alignment=2),
            *([Parameter(name="alibi_slopes", type=PointerType(F32), alignment=4)] if self.sloped else []),
            Parameter(name="scale", type=F32),
            Parameter(name="k_scale", type=F32),
            Parameter(name="v_scale", type=F32),
            *([Parameter(name="softcap", type=F32)] if self.capped else []),
        )

    def head_parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters of heads, `heads_per_kv` query heads having the keys of one, and of what is seen.

        With `causal` 1 the last query sees all keys, each one before it a key less; with 0 all see all. Of the keys
        before its own a query sees the last `window_left`. The blocks of the longest sequence are `query_blocks`.
        """
        return (
            Parameter(name="num_heads", type=I32, minimum=1, maximum=self.most_heads),
            Parameter(name="num_kv_heads", type=I32, minimum=1, maximum=self.most_heads),
            Parameter(name="heads_per_kv", type=I32, minimum=1, maximum=self.most_heads),
            Parameter(name="causal", type=I32, minimum=0, maximum=1),
            *([Parameter(name="window_left", type=I32, minimum=0, maximum=self.most_rows)] if self.windowed else []),
            Parameter(name="sinks", type=I32, minimum=0, maximum=1),
            *([Parameter(name="num_slopes", type=I32, minimum=0, maximum=self.most_heads)] if self.sloped else []),
            Parameter(name="query_blocks", type=I32, minimum=0, maximum=self.most_rows // self.block),
        )
