"""What dispatch needs of a composition: one family, one arch and the policies, asked together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.candidate import Candidate
    from kinfolk.plan import Plan
    from kinfolk.refusal import Refusal
    from kinfolk.request import Request
    from kinfolk.spec import Spec


class Composed(Protocol):
    """A composition, as `kinfolk.plugins.composition.compose` returns it. One object stands for one set of plugins."""

    @property
    def arch(self) -> Arch: ...
    @property
    def request_type(self) -> type[Request]: ...
    @property
    def versions(self) -> Mapping[str, str]: ...
    @property
    def policy_digests(self) -> Mapping[str, str]: ...
    def candidates(self) -> Sequence[Candidate]: ...
    def validate_spec(self, spec: Spec) -> Sequence[Refusal]: ...
    def admit(self, request: Request, candidate: Candidate, plan: Plan) -> Sequence[Refusal]: ...
    def rank(self, request: Request, survivors: Sequence[Candidate]) -> Sequence[Candidate]: ...
