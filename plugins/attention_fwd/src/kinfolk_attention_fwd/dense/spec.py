"""All that is compiled into the kernel of whole rows."""

from __future__ import annotations

import attrs

from kinfolk.ir.types import I32
from kinfolk.parameters import Parameter
from kinfolk_attention_fwd.spec import AttentionSpec


@attrs.frozen(kw_only=True)
class AttentionDenseSpec(AttentionSpec):
    """Sequences follow each other, all of as many queries and keys."""

    def symbol(self) -> str:
        """Return a short readable name; it is no key."""
        return self.named("dense")

    def parameters(self) -> tuple[Parameter, ...]:
        """Return what the kernel takes.

        `q` [sequences, seqlen_q, heads, head], `k` and `v` [sequences, seqlen_k, heads of keys, head], `out` as `q` in
        the width of values, `lse` [sequences, heads, seqlen_q]; the rest as `AttentionSpec` says.
        """
        return (
            *map(self.data_parameter, ("q", "k", "v")),
            *self.result_parameters(),
            Parameter(name="seqlen_q", type=I32, minimum=0, maximum=self.most_rows),
            Parameter(name="seqlen_k", type=I32, minimum=0, maximum=self.most_rows),
            *self.head_parameters(),
        )
