"""The conformance kit: what shows that a family or an arch works, the same for ours and for anyone's.

class TestMine(FamilyConformance):      # one pytest test per installed arch and check
    family = "mine"

`kinfolk conformance mine` runs the same from the command line. docs/conformance.md says what each check proves.
Every name below is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinfolk.testing.bases import ArchConformance, FamilyConformance
    from kinfolk.testing.check import Check, Findings, Outcome, Result, run_check
    from kinfolk.testing.registry import checks
    from kinfolk.testing.requests import Requests
    from kinfolk.testing.subject import Subject

__all__ = [
    "ArchConformance",
    "Check",
    "FamilyConformance",
    "Findings",
    "Outcome",
    "Requests",
    "Result",
    "Subject",
    "checks",
    "run_check",
]

_MODULES = {
    "ArchConformance": "bases",
    "FamilyConformance": "bases",
    "Check": "check",
    "Findings": "check",
    "Outcome": "check",
    "Result": "check",
    "run_check": "check",
    "checks": "registry",
    "Requests": "requests",
    "Subject": "subject",
}


def __getattr__(name: str) -> Any:
    """Import what `name` stands for; an unknown name is an AttributeError as in any module."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
