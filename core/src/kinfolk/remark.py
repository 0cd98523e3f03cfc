"""What a person should know of how a plan serves a request, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kinfolk.expr import Expr, Scope, const


def _named(numbers: Mapping[str, Expr] | tuple[tuple[str, Expr], ...]) -> tuple[tuple[str, Expr], ...]:
    return tuple(dict(numbers).items())


@attrs.frozen
class Remark:
    """What a person should know of how a plan serves a request, where `when` holds; `text` names `{numbers}`.

    Both are expressions, evaluated for the request at hand: a kept plan serves many.
    """

    text: str
    when: Expr = attrs.field(factory=lambda: const(True))
    numbers: tuple[tuple[str, Expr], ...] = attrs.field(default=(), converter=_named)

    def told(self, scope: Scope) -> str:
        """Return the text with its numbers; nothing where it does not apply."""
        if not self.when.holds(scope):
            return ""
        return self.text.format_map({name: expr.evaluate(scope) for name, expr in self.numbers})

    def data(self) -> dict[str, Any]:
        """Return the remark as JSON data."""
        numbers = {name: expr.data() for name, expr in self.numbers}
        return {"text": self.text, "when": self.when.data(), "numbers": numbers}
