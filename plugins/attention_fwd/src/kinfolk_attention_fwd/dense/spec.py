"""All that is compiled into the kernel of whole rows."""

from __future__ import annotations

from typing import ClassVar

import attrs

from kinfolk.fields import ExactBool
from kinfolk.ir.types import I32, PointerType
from kinfolk.parameters import Parameter
from kinfolk_attention_fwd.spec import AttentionSpec


@attrs.frozen(kw_only=True)
class AttentionDenseSpec(AttentionSpec):
    """Sequences follow each other, all of as many queries and keys, or each of its own. `persistent`: a workgroup walks
    over blocks of queries, one after the other.
    """

    most_sequences: ClassVar[int] = 2**16
    most_workgroups: ClassVar[int] = 2**16

    persistent: bool = attrs.field(default=False, validator=ExactBool())

    def symbol(self) -> str:
        """Return a short readable name; it is no key."""
        return self.named("persistent" if self.persistent else "dense")

    def parameters(self) -> tuple[Parameter, ...]:
        """Return what the kernel takes.

        `q` [queries of all sequences, heads, head], `k` and `v` [keys of all, heads of keys, head], `out` as `q` in the
        width of values. With `varlen` 0 each sequence has `max_seqlen_q` queries and `max_seqlen_k` keys, with 1 those
        between two of `cu_seqlens_q` and of `cu_seqlens_k`, up to so many, of `total_q` and `total_k`. `lse` has a row
        of `lse_row` for each head, and as many elements before those of a sequence as queries times `lse_heads`. If
        persistent, `num_workgroups` walk over the work of `num_seqs` sequences in `rounds`. The rest is as
        `AttentionSpec` says.
        """
        offsets = PointerType(I32)
        return (
            *map(self.data_parameter, ("q", "k", "v")),
            Parameter(name="cu_seqlens_q", type=offsets, alignment=4),
            Parameter(name="cu_seqlens_k", type=offsets, alignment=4),
            *self.result_parameters(),
            Parameter(name="varlen", type=I32, minimum=0, maximum=1),
            Parameter(name="total_q", type=I32, minimum=0),
            Parameter(name="total_k", type=I32, minimum=0),
            Parameter(name="max_seqlen_q", type=I32, minimum=0, maximum=self.most_rows),
            Parameter(name="max_seqlen_k", type=I32, minimum=0, maximum=self.most_rows),
            Parameter(name="lse_heads", type=I32, minimum=1, maximum=self.most_heads),
            Parameter(name="lse_row", type=I32, minimum=0),
            *self.head_parameters(),
            *(self._walked_parameters() if self.persistent else ()),
        )

    def _walked_parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter(name="num_seqs", type=I32, minimum=1, maximum=self.most_sequences),
            Parameter(name="num_workgroups", type=I32, minimum=1, maximum=self.most_workgroups),
            Parameter(name="rounds", type=I32, minimum=1),
        )
