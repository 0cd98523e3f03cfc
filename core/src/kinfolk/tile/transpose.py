"""Transposing small blocks of 16-bit elements between registers of one lane."""

from __future__ import annotations

from collections.abc import Sequence

from kinfolk.errors import IRError
from kinfolk.ir.ops import convert, lanes, vector
from kinfolk.ir.types import I32, VectorType
from kinfolk.ir.value import Value

_LOW, _HIGH = (0, 1, 4, 5), (2, 3, 6, 7)


def transpose_16_bit(rows: Sequence[Value]) -> list[Value]:
    """Return columns of a block whose rows are vectors of 16-bit elements: `result[j][i] = rows[i][j]`.

    The number of rows is even, each row holds an even number of elements; a column costs one byte permute per two rows.
    """
    type_ = rows[0].type
    if not isinstance(type_, VectorType) or type_.element.bits != 16 or type_.count % 2 or len(rows) % 2:
        raise IRError(
            f"transposes an even number of rows of an even number of 16-bit elements, got {len(rows)} of {type_}"
        )
    words = [_words(row, type_.count // 2) for row in rows]
    columns: list[Value] = []
    for column in range(type_.count):
        selector = _LOW if column % 2 == 0 else _HIGH
        pairs = [
            lanes.byte_permute(words[row][column // 2], words[row + 1][column // 2], selector=selector)
            for row in range(0, len(rows), 2)
        ]
        columns.append(
            convert.bitcast(
                pairs[0] if len(pairs) == 1 else vector.pack(*pairs), to=VectorType(type_.element, len(rows))
            )
        )
    return columns


def _words(row: Value, count: int) -> list[Value]:
    if count == 1:
        return [convert.bitcast(row, to=I32)]
    words = convert.bitcast(row, to=VectorType(I32, count))
    return [vector.extract(words, index=index) for index in range(count)]
