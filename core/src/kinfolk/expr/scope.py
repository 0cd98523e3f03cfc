"""Where an expression finds its values: fields of a request or spec, facts of an arch, geometries of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, cast

import attrs

from kinfolk.errors import KinfolkError
from kinfolk.fields import shown

if TYPE_CHECKING:
    from kinfolk.expr.node import Expr

Value = int | bool | str
I64_MIN: Final = -(2**63)
I64_MAX: Final = 2**63 - 1


class ExprError(KinfolkError):
    """An expression has no value here: it overflows, divides by zero, or reads what is absent or of another type."""


class ExprOverflow(ExprError):
    """A number left signed 64 bits on the way to the value."""


class TensorView(Protocol):
    """What an expression may ask of a tensor; strides count elements."""

    @property
    def shape(self) -> Sequence[int]: ...
    @property
    def element_strides(self) -> Sequence[int]: ...


@attrs.frozen
class TensorGeometry:
    """The shape of a tensor and its strides in elements, without memory."""

    shape: tuple[int, ...]
    element_strides: tuple[int, ...]

    @classmethod
    def contiguous(cls, shape: Sequence[int]) -> TensorGeometry:
        """Return the row-major geometry of `shape`."""
        strides: list[int] = []
        step = 1
        for extent in reversed(shape):
            strides.insert(0, step)
            step *= extent
        return cls(tuple(shape), tuple(strides))


class Observer(Protocol):
    """Whoever must know which expressions were asked of a request (the selection cache), and may answer for it."""

    def value_of(self, expr: Expr, scope: Scope) -> Value:
        """Return the value of an expression over the request that carries this observer."""
        ...


@attrs.frozen(kw_only=True)
class Scope:
    """Where leaves find their values: fields of a request or spec, facts of an arch, geometries of tensors by name.

    `arch` is a mapping of facts or anything with one as `facts`. A request that is being observed carries its observer.
    """

    request: object = None
    arch: object = None
    tensors: Mapping[str, TensorView] = attrs.field(factory=dict[str, TensorView])

    def fact(self, name: str) -> object:
        """Return a fact of the arch; raise ExprError naming those there are."""
        facts = cast("Mapping[str, object]", getattr(self.arch, "facts", self.arch) or {})
        try:
            return facts[name]
        except KeyError:
            raise ExprError(f"no fact {name!r} here, there are: {', '.join(sorted(facts)) or 'none'}") from None

    def tensor(self, name: str) -> TensorView:
        """Return a tensor's geometry; raise ExprError naming those there are."""
        try:
            return self.tensors[name]
        except KeyError:
            known = ", ".join(sorted(self.tensors)) or "none"
            raise ExprError(f"no tensor {name!r} here, there are: {known}") from None


def checked(value: object, what: str, name: str = "") -> Value:
    """Return `value` if an expression can hold it; `what` and `name` tell its source in the ExprError otherwise."""
    kind = type(value)
    if kind is bool or kind is str or (kind is int and I64_MIN <= cast("int", value) <= I64_MAX):
        return cast("Value", value)
    what = f"{what} {name}" if name else what
    if kind is int:
        raise ExprOverflow(f"{what} is {shown(value)}, outside signed 64 bits")
    raise ExprError(f"{what} is {shown(value)} of type {kind.__name__}; expressions hold int, bool and str")
