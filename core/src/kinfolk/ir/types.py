"""The types of IR values: scalars by storage bits, vectors, typed pointers, bounded views, workgroup-memory buffers."""

from __future__ import annotations

from typing import Final, Literal

import attrs

from kinfolk.errors import IRError

AddressSpace = Literal["global", "workgroup"]


@attrs.frozen(cache_hash=True)  # a key of many tables
class ScalarType:
    """A scalar of `bits` storage bits. `kind` is `int` (no sign of its own: ops say how they read it) or `float`."""

    name: str
    bits: int
    kind: Literal["int", "float"]

    def __str__(self) -> str:
        return self.name

    @property
    def bytes(self) -> int:
        """Size in memory; an i1 takes a byte."""
        return max(8, self.bits) // 8


I1: Final = ScalarType("i1", 1, "int")
I8: Final = ScalarType("i8", 8, "int")
I16: Final = ScalarType("i16", 16, "int")
I32: Final = ScalarType("i32", 32, "int")
I64: Final = ScalarType("i64", 64, "int")
F16: Final = ScalarType("f16", 16, "float")
BF16: Final = ScalarType("bf16", 16, "float")
F32: Final = ScalarType("f32", 32, "float")
F64: Final = ScalarType("f64", 64, "float")
F8E4M3FN: Final = ScalarType("f8E4M3FN", 8, "float")
F8E5M2: Final = ScalarType("f8E5M2", 8, "float")
F8E4M3FNUZ: Final = ScalarType("f8E4M3FNUZ", 8, "float")
F8E5M2FNUZ: Final = ScalarType("f8E5M2FNUZ", 8, "float")

SCALARS: Final[dict[str, ScalarType]] = {
    t.name: t for t in (I1, I8, I16, I32, I64, F16, BF16, F32, F64, F8E4M3FN, F8E5M2, F8E4M3FNUZ, F8E5M2FNUZ)
}
FLOAT_TYPES: Final = tuple(name for name, scalar in SCALARS.items() if scalar.kind == "float")
"""The names of the float types, in the order of `SCALARS`."""


@attrs.frozen(cache_hash=True)
class VectorType:
    """`count` scalars held by one lane."""

    element: ScalarType
    count: int

    def __attrs_post_init__(self) -> None:
        if self.count < 1:
            raise IRError(f"a vector holds at least one element, got {self.count}")

    def __str__(self) -> str:
        return f"vector<{self.count}x{self.element}>"

    @property
    def bytes(self) -> int:
        """Size in memory."""
        return self.count * self.element.bytes


@attrs.frozen
class PointerType:
    """A 64-bit address of elements in global memory."""

    element: ScalarType
    space: AddressSpace = "global"

    def __str__(self) -> str:
        return f"!core.ptr<{self.element}, {self.space}>"


@attrs.frozen
class ViewType:
    """A base address and a size: reads past the size give zero, stores past it vanish."""

    element: ScalarType

    def __str__(self) -> str:
        return f"!core.view<{self.element}>"


@attrs.frozen
class BufferType:
    """Workgroup memory of `count` elements, shared by the waves of one workgroup; contents start undefined."""

    element: ScalarType
    count: int

    def __str__(self) -> str:
        return f"!core.buffer<{self.count}x{self.element}>"

    @property
    def bytes(self) -> int:
        """Size in workgroup memory."""
        return self.count * self.element.bytes


Type = ScalarType | VectorType | PointerType | ViewType | BufferType
DataType = ScalarType | VectorType


def element_type(type_: Type) -> ScalarType:
    """Return the scalar a value is made of: itself, or the element of a vector, pointer, view or buffer."""
    return type_ if isinstance(type_, ScalarType) else type_.element


def component_count(type_: DataType) -> int:
    """Return how many scalars a lane holds of `type_`."""
    return type_.count if isinstance(type_, VectorType) else 1


def with_element(type_: DataType, element: ScalarType) -> DataType:
    """Return `type_` with its scalar replaced, its width kept."""
    return VectorType(element, type_.count) if isinstance(type_, VectorType) else element


def vector(element: ScalarType, count: int) -> DataType:
    """Return a scalar for a count of 1, else a vector."""
    return element if count == 1 else VectorType(element, count)


def integer_of(bits: int) -> ScalarType:
    """Return the integer type of a width."""
    return {1: I1, 8: I8, 16: I16, 32: I32, 64: I64}[bits]
