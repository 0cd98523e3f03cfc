"""All that is compiled into the kernel of whole rows."""

from __future__ import annotations

import attrs

from kinfolk.fields import ExactBool
from kinfolk.ir.types import F32, I32, PointerType
from kinfolk.parameters import Parameter
from kinfolk_attention_fwd.spec import AttentionSpec


@attrs.frozen(kw_only=True)
class AttentionDenseSpec(AttentionSpec):
    """Sequences follow each other, all of as many queries and keys. `sloped`: something is added to scores, the more
    the later a key.
    """

    sloped: bool = attrs.field(validator=ExactBool())

    def symbol(self) -> str:
        """Return a short readable name; it is no key."""
        return self.named("dense")

    def feature_parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters of what each head has: a logit in `sink`, read where `sinks` is 1, and a slope."""
        return (
            self.data_parameter("sink", alignment=2),
            *([Parameter(name="alibi_slopes", type=PointerType(F32), alignment=4)] if self.sloped else []),
        )

    def feature_numbers(self) -> tuple[Parameter, ...]:
        """Return whether heads have sinks."""
        return (Parameter(name="sinks", type=I32, minimum=0, maximum=1),)

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
