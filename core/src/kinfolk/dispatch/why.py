"""Why this candidate: what became of every one, for people as text and for tools as `kinfolk.why/1`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from kinfolk.dispatch.composed import Composed
from kinfolk.dispatch.select import judge
from kinfolk.flavor import flavor_named
from kinfolk.refusal import Refusal
from kinfolk.request import Request

SCHEMA: Final = "kinfolk.why/1"


@attrs.frozen(kw_only=True)
class Considered:
    """One candidate: whether it was admitted, if so its notes and the remarks of its plan, if not every refusal."""

    name: str
    admitted: bool
    notes: tuple[str, ...]
    refusals: tuple[Refusal, ...]


@attrs.frozen(kw_only=True)
class Why:
    """All candidates in order of priority, the one selected, and where there is none, every reason."""

    request: Mapping[str, Any]
    arch: str
    flavor: str
    candidates: tuple[Considered, ...]
    selected: str | None
    refusals: tuple[Refusal, ...]

    @property
    def status(self) -> str:
        """`pass` if a candidate was selected, else `refused`."""
        return "refused" if self.selected is None else "pass"

    @classmethod
    def invalid(cls, request: Mapping[str, Any], arch: str, flavor: str, refusals: Iterable[Refusal]) -> Why:
        """Return the answer for fields that make no request, such as `num_heads=2.0`."""
        return cls(request=request, arch=arch, flavor=flavor, candidates=(), selected=None, refusals=tuple(refusals))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON data of schema `kinfolk.why/1`."""
        return {
            "schema": SCHEMA,
            "status": self.status,
            "request": dict(self.request),
            "candidates": [
                {
                    "name": candidate.name,
                    "admitted": candidate.admitted,
                    "notes": list(candidate.notes),
                    "refusals": [refusal.to_dict() for refusal in candidate.refusals],
                }
                for candidate in self.candidates
            ],
            "selected": self.selected,
            "refusals": [refusal.to_dict() for refusal in self.refusals],
        }

    def __str__(self) -> str:
        lines = [f"{self.selected or 'no candidate'} on {self.arch} ({self.flavor}); {len(self.candidates)} considered"]
        for candidate in self.candidates:
            answer = "selected" if candidate.name == self.selected else "admitted" if candidate.admitted else "refused"
            lines.append(f"  {candidate.name}: {answer}")
            lines += [f"    note: {note}" for note in candidate.notes]
            lines += [f"    {refusal}" for refusal in candidate.refusals]
        told = {refusal for candidate in self.candidates for refusal in candidate.refusals}
        lines += [f"  {refusal}" for refusal in self.refusals if refusal not in told]
        return "\n".join(lines)


def explain(composition: Composed, request: Request, flavor: str) -> Why:
    """Return why a composition serves a request as it does; refusals are the answer, never an error."""
    request.revalidate()
    outcome = judge(composition, request, flavor_named(flavor))
    return Why(
        request=request.to_dict(),
        arch=composition.arch.name,
        flavor=flavor,
        candidates=tuple(
            Considered(
                name=verdict.candidate.name,
                admitted=verdict.admitted,
                notes=verdict.notes + (verdict.plan.told() if verdict.admitted and verdict.plan else ()),
                refusals=verdict.refusals,
            )
            for verdict in outcome.verdicts
        ),
        selected=outcome.selected.candidate.name if outcome.selected else None,
        refusals=outcome.refusals if outcome.selected is None else (),
    )
