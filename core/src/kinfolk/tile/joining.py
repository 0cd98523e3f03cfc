"""Vectors of a lane put end to end."""

from __future__ import annotations

from collections.abc import Sequence

from kinfolk.ir.ops import vector
from kinfolk.ir.types import VectorType
from kinfolk.ir.value import Value


def joined(pieces: Sequence[Value]) -> Value:
    """Return vectors of one type end to end; one stays as it is."""
    a, *rest = pieces
    if not rest:
        return a
    assert isinstance(a.type, VectorType)
    if len(rest) == 1:
        return vector.shuffle(a, rest[0], indices=tuple(range(2 * a.type.count)))
    return vector.pack(*(vector.extract(each, index=index) for each in pieces for index in range(a.type.count)))
