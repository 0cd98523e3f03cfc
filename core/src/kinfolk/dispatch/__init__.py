"""Dispatch: which candidate serves a request on an arch, why, and with what plan. Pure: no device, files, clock."""

from __future__ import annotations

from kinfolk.dispatch.cache import Selection, SelectionCache, select
from kinfolk.dispatch.composed import Composed
from kinfolk.dispatch.why import Considered, Why, explain
from kinfolk.flavor import DEFAULT_FLAVOR
from kinfolk.plan import Plan
from kinfolk.plugins.composition import compose
from kinfolk.request import Request

__all__ = [
    "DEFAULT_FLAVOR",
    "Composed",
    "Considered",
    "Selection",
    "SelectionCache",
    "Why",
    "dispatch",
    "explain",
    "select",
    "selections",
    "why",
]

selections = SelectionCache()
"""The selections of this process."""


def dispatch(request: Request, arch: str, flavor: str = DEFAULT_FLAVOR) -> Plan:
    """Return the plan of a request on an arch, for an LLVM generation.

    Raises NoCandidate if no installed candidate takes the request, PinRefused if the one it pins does not, both with
    every reason in `.refusals`; UnknownFlavor if the flavor is not registered. Needs no device and no toolchain.
    """
    return selections.plan(compose(request.family, arch), request, flavor)


def why(request: Request, arch: str, flavor: str = DEFAULT_FLAVOR) -> Why:
    """Return what became of every candidate, and which one is selected; a refusal is an answer, not an error."""
    return explain(compose(request.family, arch), request, flavor)
