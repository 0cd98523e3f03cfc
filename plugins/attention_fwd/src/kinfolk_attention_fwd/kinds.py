"""What kernels there are, wherever keys lie: of which widths and type, and what becomes of products.

A kernel for each thing that costs time in the loop. A window costs none where scores are more than products, so such
kernels always have one, as long as any sequence where none is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.expr import Expr, Scope, field, is_zero, minimum, not_, select

if TYPE_CHECKING:
    from kinfolk_attention_fwd.request import AttentionFwdRequest

DTYPES: Final = ("bf16", "f16")
WIDTHS: Final = ((64, 64), (80, 80), (96, 96), (128, 128), (192, 128), (192, 192), (256, 256))
"""Widths of keys and of values that kernels are laid out for."""
CAPPED: Final = not_(is_zero("softcap"))
WINDOWED: Final = field("window_left") >= 0
"""What is asked of a request's numbers: expressions, so that a plan is also made of a request without values, as it is
for a bundle.
"""


def holds(condition: Expr, request: AttentionFwdRequest) -> bool:
    """Return whether a condition on its fields alone holds for a request."""
    return condition.holds(Scope(request=request))


@attrs.frozen(kw_only=True)
class Kind:
    """The fields of `AttentionSpec` that say what is computed."""

    head_size: int
    head_size_v: int
    dtype: str
    capped: bool = False
    sloped: bool = False
    windowed: bool = False

    @classmethod
    def of(cls, request: AttentionFwdRequest) -> Kind:
        """Return that of a request."""
        capped, sloped = holds(CAPPED, request), request.alibi
        return cls(
            head_size=request.head_size,
            head_size_v=request.head_size_v,
            dtype=request.dtype,
            capped=capped,
            sloped=sloped,
            windowed=capped or sloped or holds(WINDOWED, request),
        )

    @property
    def bent(self) -> bool:
        """Whether scores are more than products."""
        return self.capped or self.sloped


def kinds() -> Iterator[Kind]:
    """Yield every kind that a request can have."""
    for head_size, head_size_v in WIDTHS:
        for dtype in DTYPES:
            plain = Kind(head_size=head_size, head_size_v=head_size_v, dtype=dtype)
            yield plain
            yield attrs.evolve(plain, windowed=True)
            yield attrs.evolve(plain, windowed=True, capped=True)
            yield attrs.evolve(plain, windowed=True, sloped=True)
            yield attrs.evolve(plain, windowed=True, capped=True, sloped=True)


def window_argument(most: int) -> Expr:
    """Return the window that a kernel is passed: no sequence has more than `most` keys."""
    window = field("window_left")
    return select(window < 0, most, minimum(window, most))
