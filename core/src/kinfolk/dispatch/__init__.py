"""Which candidate serves a request on an arch, why, and with what plan. Pure: no device, files, clock.

plan = kinfolk.dispatch(request, arch, flavor="llvm22")    # a Plan; raises NoCandidate with every reason
answer = kinfolk.why(request, arch, flavor="llvm22")       # every candidate, the one selected, every reason

`request` is an instance of a family's request class (`kinfolk list FAMILY` names its fields), `arch` an installed
arch's name, `flavor` the LLVM generation to emit for. `kinfolk.dispatch` is this module and calls its `dispatch`.
"""

from __future__ import annotations

from typing import cast

from kinfolk.dispatch.cache import Selection, SelectionCache, select
from kinfolk.dispatch.composed import Composed
from kinfolk.dispatch.why import Considered, Why, explain
from kinfolk.fields import shown
from kinfolk.flavor import DEFAULT_FLAVOR
from kinfolk.plan import Plan
from kinfolk.plugins.composition import Composition, compose
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
    every reason in `.refusals`; UnknownFlavor if the flavor is not registered; TypeError and ValueError for what is no
    request, and for one that was changed into values its class does not take. Needs no device and no toolchain.
    """
    return selections.plan(_composed(request, arch), request, flavor)


def why(request: Request, arch: str, flavor: str = DEFAULT_FLAVOR) -> Why:
    """Return what became of every candidate, and which one is selected; a refusal is an answer, not an error."""
    return explain(_composed(request, arch), request, flavor)


def _composed(request: Request, arch: str) -> Composition:
    kind = type(cast("object", request))
    if not isinstance(cast("object", request), Request):
        raise TypeError(f"dispatch takes a Request of some family, got {shown(request)} of type {kind.__name__}")
    if type(cast("object", request.family)) is not str:
        raise TypeError(f"{kind.__name__} names no family")
    return compose(request.family, arch)
