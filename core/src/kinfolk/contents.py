"""What index tensors must hold for a launch to be sound: offsets, lengths, page ids."""

from __future__ import annotations

import attrs

from kinfolk.errors import InternalError
from kinfolk.expr import Expr, lift


def _expr(value: Expr | int) -> Expr:
    return lift(value)


@attrs.frozen(kw_only=True)
class Offsets:
    """Contents of a 1-d integer tensor: `count` + 1 offsets from 0, each step in [0, `max_step`].

    The last offset is `last`, where given.
    """

    tensor: str
    count: Expr = attrs.field(converter=_expr)
    max_step: Expr = attrs.field(converter=_expr)
    last: Expr | None = attrs.field(default=None, converter=attrs.converters.optional(_expr))

    @property
    def tensors(self) -> tuple[str, ...]:
        """The bindings that are looked into."""
        return (self.tensor,)


@attrs.frozen(kw_only=True)
class Lengths:
    """Contents of a 1-d integer tensor: `count` lengths, each in [0, `most`]."""

    tensor: str
    count: Expr = attrs.field(converter=_expr)
    most: Expr = attrs.field(converter=_expr)

    @property
    def tensors(self) -> tuple[str, ...]:
        """The bindings that are looked into."""
        return (self.tensor,)


@attrs.frozen(kw_only=True)
class PageIds:
    """Contents of a 2-d page table: the ids used, ⌈length / page_size⌉ per row, lie in [0, bound). Lengths are the
    steps of the tensor `offsets`, or the elements of the tensor `lengths`; one of them is named.
    """

    table: str
    offsets: str = ""
    lengths: str = ""
    page_size: Expr = attrs.field(converter=_expr)
    bound: Expr = attrs.field(converter=_expr)

    def __attrs_post_init__(self) -> None:
        if bool(self.offsets) == bool(self.lengths):
            raise InternalError(f"PageIds takes one of offsets and lengths, got {self.offsets!r} and {self.lengths!r}")

    @property
    def tensors(self) -> tuple[str, ...]:
        """The bindings that are looked into."""
        return (self.table, self.offsets or self.lengths)


ContentCheck = Offsets | Lengths | PageIds
