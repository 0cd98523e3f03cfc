"""Which keys and values of 8 bits kernels of forward attention take."""

from __future__ import annotations

from typing import Final

from kinfolk.expr import Expr, any_of, eq, field
from kinfolk.narrow import OWN

NARROW_WIDTHS: Final = (64, 128)
"""Widths of heads that have kernels for elements of 8 bits."""
PLAIN: Final = eq(field("kv_dtype"), field("dtype"))


def widened() -> Expr:
    """Return the condition that keys and values are of the type of queries, or of 8-bit floats that the arch knows."""
    return any_of(PLAIN, eq(field("kv_dtype"), OWN))
