"""All that is compiled into one row softmax kernel."""

from __future__ import annotations

from typing import ClassVar, Final

import attrs

from kinfolk.fields import ExactInt, OneOf
from kinfolk.ir.types import F32, I32, I64, SCALARS, PointerType
from kinfolk.parameters import Parameter
from kinfolk.spec import Spec

DTYPES: Final = ("f32", "bf16", "f16")


@attrs.frozen(kw_only=True)
class RowSoftmaxSpec(Spec):
    """A workgroup of `waves` waves takes one row, in steps of `columns_per_lane` columns for each of its lanes.

    The numbers of rows and columns, the scale and the distance of rows are launch values: they change no loop.
    """

    columns_per_lane: ClassVar[int] = 4
    most_columns: ClassVar[int] = (2**31 - 4) // 4 - 1
    """As many as a bounded view holds of f32, one less for the words at its ends."""

    dtype: str = attrs.field(validator=OneOf(DTYPES))
    waves: int = attrs.field(validator=ExactInt(maximum=8))

    def symbol(self) -> str:
        """Return a short readable name; it is no key."""
        return f"row_softmax_{self.dtype}_{self.digest()[:8]}"

    def parameters(self) -> tuple[Parameter, ...]:
        """Return what the kernel takes; `row_stride` counts elements of `x`."""
        data = PointerType(SCALARS[self.dtype])
        return (
            Parameter(name="x", type=data, alignment=4),
            Parameter(name="y", type=data, access="write", alignment=4),
            Parameter(name="lse", type=PointerType(F32), access="write", alignment=4),
            Parameter(name="scale", type=F32),
            Parameter(name="columns", type=I32, minimum=1, maximum=self.most_columns),
            Parameter(name="row_stride", type=I64),
        )
