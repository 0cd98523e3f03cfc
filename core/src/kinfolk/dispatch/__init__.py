"""Which candidate serves a request on an arch, why, and with what plan. Pure: no device, files, clock.

plan = kinfolk.dispatch(request, arch, flavor="llvm22")    # a Plan; raises NoCandidate with every reason
answer = kinfolk.why(request, arch, flavor="llvm22")       # every candidate, the one selected, every reason

`request` is an instance of a family's request class (`kinfolk list FAMILY` names its fields), `arch` an installed
arch's name, `flavor` the LLVM generation to emit for. `kinfolk.dispatch` is this module and calls its `dispatch`.
"""

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
