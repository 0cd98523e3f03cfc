"""The tensors of a plan, read from its bindings: what a caller passes, and how it follows from the request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from kinfolk.expr import Expr, ExprError

if TYPE_CHECKING:
    from kinfolk.plan import Binding, Plan


@attrs.frozen(kw_only=True)
class TensorRow:
    """One tensor: extents and strides in elements.

    An extent is `at_least` so long in the axes of which `shape_at_least` says so. A stride is None where the tensor
    decides.
    """

    name: str
    role: str
    dtype: str
    shape: tuple[int, ...]
    shape_at_least: tuple[bool, ...]
    shape_from: tuple[str, ...]
    strides: tuple[int | None, ...]
    alignment: int
    means: str

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON data."""
        return attrs.asdict(self)

    def cells(self) -> tuple[str, ...]:
        """Return the row for people."""
        bounds = ("≥" if least else "" for least in self.shape_at_least)
        shape = ", ".join(f"{bound}{extent}" for bound, extent in zip(bounds, self.shape, strict=True))
        strides = ", ".join("any" if step is None else str(step) for step in self.strides)
        return self.name, self.role, self.dtype, shape, strides, str(self.alignment), self.sentence

    @property
    def sentence(self) -> str:
        """How the shape follows from the request, and what the elements are."""
        given = f"({', '.join(self.shape_from)})"
        return f"{given}: {self.means}" if self.means else given


def tensor_rows(plan: Plan) -> list[TensorRow]:
    """Return a row for each binding, in the plan's order."""
    scope = plan.scope()

    def number(expr: Expr) -> int | None:
        try:
            return expr.integer(scope)
        except ExprError:  # it depends on the tensor itself
            return None

    def row(binding: Binding) -> TensorRow:
        return TensorRow(
            name=binding.name,
            role=binding.role,
            dtype=binding.dtype,
            shape=tuple(axis.extent.integer(scope) for axis in binding.shape),
            shape_at_least=tuple(axis.at_least for axis in binding.shape),
            shape_from=tuple(axis.called or str(axis.extent) for axis in binding.shape),
            strides=tuple(map(number, binding.strides())),
            alignment=binding.alignment,
            means=binding.means,
        )

    return [row(binding) for binding in plan.bindings]


COLUMNS = ("tensor", "role", "dtype", "shape", "strides", "aligned", "means")
