"""What a kernel declares of its parameters: one list that the emitter, the Plan and the binder read."""

from __future__ import annotations

from typing import Literal

import attrs

from kinfolk.errors import InternalError
from kinfolk.ir.types import PointerType, ScalarType

Access = Literal["read", "write", "readwrite"]


@attrs.frozen(kw_only=True)
class Parameter:
    """One kernel parameter.

    `type` is a pointer, or a scalar i32, i64 or f32 passed by value. For a pointer, `access` says what the kernel does
    with the memory, `alignment` is the least alignment of the address in bytes, and memory it writes is never reachable
    through another parameter. For an integer, `minimum` and `maximum` bound what is passed, where they are given: plans
    are held to them, and ranges in the kernel are proved from them.
    """

    name: str
    type: PointerType | ScalarType
    access: Access = "read"
    alignment: int = 0
    minimum: int | None = None
    maximum: int | None = None

    def __attrs_post_init__(self) -> None:
        if isinstance(self.type, PointerType):
            if self.alignment < self.type.element.bytes or self.alignment & (self.alignment - 1):
                raise InternalError(
                    f"parameter {self.name} declares alignment {self.alignment}; "
                    f"a pointer to {self.type.element} needs a "
                    f"power of two of at least {self.type.element.bytes}"
                )
        elif self.type.name not in ("i32", "i64", "f32"):
            raise InternalError(f"parameter {self.name} has type {self.type}; by value a kernel takes i32, i64 or f32")
        self._check_bounds()

    def _check_bounds(self) -> None:
        given = [bound for bound in (self.minimum, self.maximum) if bound is not None]
        if not given:
            return
        if not self.is_integer or any(type(bound) is not int for bound in given):
            raise InternalError(
                f"parameter {self.name} of type {self.type} declares bounds {self.minimum!r} and {self.maximum!r}; "
                f"an i32 or i64 has bounds, each a Python int"
            )
        low, high = self.bounds
        whole = 1 << (self.type.bits - 1) if isinstance(self.type, ScalarType) else 0
        if not -whole <= low <= high < whole:
            raise InternalError(f"parameter {self.name} declares {low} to {high}, which is no range of {self.type}")

    @property
    def is_integer(self) -> bool:
        """Whether the parameter is an integer passed by value."""
        return isinstance(self.type, ScalarType) and self.type.kind == "int"

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the most that an integer may be: those declared, else those of its type."""
        if not isinstance(self.type, ScalarType) or not self.is_integer:
            raise InternalError(f"parameter {self.name} of type {self.type} has no bounds")
        whole = 1 << (self.type.bits - 1)
        low = -whole if self.minimum is None else self.minimum
        return low, whole - 1 if self.maximum is None else self.maximum

    @property
    def is_pointer(self) -> bool:
        """Whether the parameter is an address."""
        return isinstance(self.type, PointerType)

    @property
    def kind(self) -> str:
        """`pointer`, `i32`, `i64` or `f32`."""
        return "pointer" if isinstance(self.type, PointerType) else self.type.name

    @property
    def bytes(self) -> int:
        """Size in the argument block; also its alignment there."""
        return 8 if isinstance(self.type, PointerType) else self.type.bytes
