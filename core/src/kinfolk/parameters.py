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
    through another parameter.
    """

    name: str
    type: PointerType | ScalarType
    access: Access = "read"
    alignment: int = 0

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
