"""What a caller asks of row softmax, with nothing about how it is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import attrs

from kinfolk.expr import field
from kinfolk.fields import ExactFloat, ExactInt, ExactStr, OneOf, Optional, launch_field
from kinfolk.ir.types import FLOAT_TYPES
from kinfolk.operand import Operand
from kinfolk.request import Request

SCALE: Final = ExactFloat(minimum=2.0**-100, maximum=2.0**100)
"""Scales for which a difference of scores past f32 weighs nothing, and which stay finite times log2 e."""

OPERANDS: Final = (
    Operand(name="x", dtype=field("dtype"), shape=(field("rows"), field("columns"))),
    Operand(name="y", dtype=field("dtype"), shape=(field("rows"), field("columns")), output=True),
    Operand(name="lse", dtype="f32", shape=(field("rows"),), output=True),
)
"""What a host that passes tensors alone states of a request by them."""


@attrs.frozen(kw_only=True)
class RowSoftmaxRequest(Request):
    """y[r, :] = softmax(scale * x[r, :]) and lse[r] = ln sum exp(scale * x[r, :]), for x of `rows` by `columns`.

    `x` and `y` are of `dtype`, `lse` is f32. Rows of `x` lie any number of elements apart, those of `y` follow each
    other. Elements are finite or -inf; a row of -inf alone gives y = 0 and lse = -inf.
    """

    family: ClassVar[str] = "row_softmax"
    operands: ClassVar[tuple[Operand, ...]] = OPERANDS

    rows: int = launch_field(validator=ExactInt(minimum=0))
    columns: int = launch_field(validator=ExactInt())
    dtype: str = attrs.field(validator=OneOf(FLOAT_TYPES))
    scale: float = launch_field(validator=SCALE)
    candidate: str | None = attrs.field(default=None, validator=Optional(ExactStr()))

    @classmethod
    def cli_defaults(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return f32 and a scale of 1 where they are not given."""
        return {name: value for name, value in {"dtype": "f32", "scale": 1.0}.items() if name not in given}
