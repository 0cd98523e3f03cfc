"""The tokens of a wave, and their rows of one head."""

from __future__ import annotations

import attrs

from kinfolk.ir.ops import lanes, memory
from kinfolk.ir.value import Value
from kinfolk.tile.paging import bounded
from kinfolk_mla.absorbed.spec import MlaTokensSpec
from kinfolk_mla.decode.sequence import wide


@attrs.frozen(eq=False)
class Tokens:
    """Up to `atom` tokens from token `first` on, of `total`, and head `head` of `heads`: the grid's first axis.

    Blocks of tokens are its second axis; a wave past the last token has none.
    """

    spec: MlaTokensSpec
    first: Value
    total: Value
    head: Value
    heads: Value

    @classmethod
    def of(cls, spec: MlaTokensSpec, total: Value, heads: Value) -> Tokens:
        """Find the wave's tokens."""
        block = lanes.block_id(axis=1, below=spec.most_blocks) * spec.block
        first = block + lanes.wave_id() * spec.atom
        return cls(spec, first, total, lanes.block_id(axis=0, below=spec.most_heads), heads)

    @property
    def exist(self) -> Value:
        """Whether the wave has a token."""
        return self.first < self.total

    def rows(self, tensor: Value, width: int) -> tuple[Value, Value]:
        """Return the wave's rows [tokens, heads, width] of a tensor, and how many elements a token has."""
        row = self.heads * width
        count = bounded(self.total - self.first, self.spec.atom)
        return memory.bound(memory.offset(tensor, wide(self.first) * wide(row)), count * row), row
