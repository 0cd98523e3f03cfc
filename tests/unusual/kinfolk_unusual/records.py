"""What is asked, and the specs: nothing is compiled in, so that each class of spec has a single kernel."""

from __future__ import annotations

from typing import ClassVar, Final

import attrs

from kinfolk.fields import ExactInt, launch_field
from kinfolk.ir.types import F32, I32, I64, PointerType
from kinfolk.parameters import Parameter
from kinfolk.request import Request
from kinfolk.spec import Spec

MOST: Final = 2**20
"""Rows, and columns, at most."""


@attrs.frozen(kw_only=True)
class TallyRequest(Request):
    """above[r] = how many of x[r, :] are positive, and largest[r] = max x[r, :], for x of `rows` by `columns` f32."""

    family: ClassVar[str] = "tally"

    rows: int = launch_field(validator=ExactInt(minimum=0))
    columns: int = launch_field(validator=ExactInt())


def pointer(name: str, kind: object, access: str = "read") -> Parameter:
    """Return a parameter of whole elements."""
    return Parameter(name=name, type=PointerType(kind), access=access, alignment=kind.bytes)


@attrs.frozen(kw_only=True)
class RowSpec(Spec):
    """A wave takes a row."""

    def parameters(self) -> tuple[Parameter, ...]:
        """Return what the kernel takes."""
        return (
            pointer("x", F32),
            pointer("above", I64, "write"),
            pointer("largest", F32, "write"),
            Parameter(name="columns", type=I32, minimum=1, maximum=MOST),
        )


@attrs.frozen(kw_only=True)
class HalfSpec(Spec):
    """A wave takes half of a row, of `width` columns the first."""

    def parameters(self) -> tuple[Parameter, ...]:
        """Return what the kernel takes."""
        return (
            pointer("x", F32),
            pointer("counts", I32, "write"),
            pointer("maxima", F32, "write"),
            Parameter(name="columns", type=I32, minimum=1, maximum=MOST),
            Parameter(name="width", type=I32, minimum=1, maximum=MOST),
        )


@attrs.frozen(kw_only=True)
class JoinSpec(Spec):
    """A lane joins the halves of a row."""

    def parameters(self) -> tuple[Parameter, ...]:
        """Return what the kernel takes."""
        return (
            pointer("counts", I32),
            pointer("maxima", F32),
            pointer("above", I64, "write"),
            pointer("largest", F32, "write"),
            Parameter(name="rows", type=I32, minimum=0, maximum=MOST),
        )
