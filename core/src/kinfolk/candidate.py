"""A candidate: one way to serve a family's requests, with what it takes declared as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import attrs

from kinfolk.expr import Expr, Scope, const
from kinfolk.refusal import Limit, Refusal, unmet

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.plan import Plan
    from kinfolk.spec import Spec


@attrs.frozen
class Note:
    """What a caller should know of an admitted candidate, such as that it is slower here; never a refusal."""

    text: str
    when: Expr = attrs.field(factory=lambda: const(True), validator=attrs.validators.instance_of(Expr))

    def __str__(self) -> str:
        return self.text


@attrs.frozen(kw_only=True)
class Candidate:
    """One way to serve requests: limits that must hold, the plan of a request, every spec a plan can name.

    Lower `priority` is preferred, then the name decides. `plan(request, arch)` gives launches, bindings, contents and
    outputs; dispatch fills in the rest. A launch field that it reads in Python, rather than through an Expr, makes the
    selection hold for that one value only. `min_llvm` is the rank of the oldest flavor the candidate takes.
    """

    name: str
    priority: int
    plugin: str
    capability: tuple[Limit, ...]
    plan: Callable[[Any, Arch], Plan]
    specs: Callable[[Arch, str], Iterable[Spec]]
    min_llvm: int = 20
    notes: tuple[Note, ...] = ()

    def unmet(self, limits: Iterable[Limit], request: object, arch: object) -> tuple[Refusal, ...]:
        """Return this candidate's plugin's refusals for the limits that do not hold."""
        return unmet(limits, request, arch, self.plugin)

    def notes_for(self, request: object, arch: object) -> tuple[str, ...]:
        """Return the notes that apply to a request."""
        scope = Scope(request=request, arch=arch)
        return tuple(note.text for note in self.notes if note.when.holds(scope))
