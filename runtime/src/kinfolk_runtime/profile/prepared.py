"""What a profile runs: the plan of one of the family's scenarios for a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from kinfolk.dispatch import selections
from kinfolk.errors import Refused
from kinfolk_runtime.memory import memory_refusals
from kinfolk_runtime.verify import chosen_scenarios

if TYPE_CHECKING:
    from kinfolk.check import Scenario
    from kinfolk.plan import Plan
    from kinfolk.plugins.composition import Composition
    from kinfolk.refusal import Refusal
    from kinfolk.request import Request


@attrs.frozen(kw_only=True)
class Prepared:
    """A scenario with its plan as far as it came; `request` is the scenario's once one is chosen."""

    request: Mapping[str, Any]
    candidate: str | None = None
    scenario: Scenario | None = None
    plan: Plan | None = None
    refusals: tuple[Refusal, ...] = ()


def check_workgroups(workgroups: int | None) -> None:
    """Raise ValueError for a number of workgroups that is none."""
    if workgroups is not None and (type(workgroups) is not int or workgroups < 1):
        raise ValueError(f"workgroups takes a Python int of at least 1, or None for all, got {workgroups!r}")


def prepared(composition: Composition, request: Request, flavor: str, scenario: str | None) -> Prepared:
    """Return what is run for a request, on its first scenario if none is named, or why nothing is.

    Raises ValueError for an unknown scenario.
    """
    found = Prepared(request=request.to_dict())
    try:
        asked = selections.plan(composition, request, flavor)
    except Refused as refused:
        return attrs.evolve(found, refusals=refused.refusals)
    found = attrs.evolve(found, candidate=asked.candidate)
    offered = composition.scenarios_of(asked)
    if not offered and scenario is None:
        return found
    chosen = chosen_scenarios(offered, (scenario or offered[0].name,))[0]
    plan = selections.plan(composition, chosen.request, flavor)
    found = attrs.evolve(found, scenario=chosen, request=chosen.request.to_dict())
    if excess := memory_refusals({chosen.name: plan}, {chosen.name: chosen.sparse}):
        return attrs.evolve(found, refusals=excess)
    return attrs.evolve(found, plan=plan)
