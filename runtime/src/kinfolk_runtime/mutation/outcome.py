"""What became of a mutant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

Status = Literal["killed", "equivalent", "survived"]


@attrs.frozen(kw_only=True)
class Kill:
    """What noticed a mutant: `tool` in a word, its `kind` of finding, the scenario where it ran, what was said.

    Tools: `comparison` (with the reference), `sanitizer`, `claim` (that a kernel makes and an engine checks), `limit`
    (on rounds of loops), `verifier` (of IR), `analysis`, and `slower`: it comes to the same with more work.
    """

    tool: str
    kind: str
    message: str
    scenario: str | None = None

    @property
    def by(self) -> str:
        """`sanitizer race`, say."""
        return f"{self.tool} {self.kind}".strip()


@attrs.frozen(kw_only=True)
class Outcome:
    """One mutant: who it is, and what killed it, or why it is equivalent, or neither of the two.

    `note` says of a survivor that it does less work.
    """

    mutant: str
    operator: str
    site: str
    change: str
    spec: str
    status: Status
    kill: Kill | None = None
    proof: str = ""
    diff: tuple[str, ...] = ()
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON row."""
        return {**attrs.asdict(self), "diff": list(self.diff)}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Outcome:
        """Return the outcome of a row; TypeError where it is none."""
        given = dict(row)
        kill, diff = given.pop("kill"), given.pop("diff")
        return cls(**given, kill=Kill(**kill) if kill else None, diff=tuple(diff))
