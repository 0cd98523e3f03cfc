"""The checks that are installed: core's, the runtime's and any stranger's, by the entry-point group kinfolk.checks."""

from __future__ import annotations

from typing import Any, cast

from kinfolk.errors import PluginError
from kinfolk.fields import shown
from kinfolk.plugins.loading import Loaded, load, usable
from kinfolk.testing.check import NEEDS, Check, Kind, Level


def checks(of: Kind = "family", level: Level = "full") -> tuple[Check, ...]:
    """Return the checks of a kind and level, those that need least first.

    An entry point of `kinfolk.checks` is a tuple of Check. Raises PluginError where one cannot be used, is none, or
    where two checks carry one name.
    """
    owners: dict[str, Loaded] = {}
    found: list[Check] = []
    for name in usable("check"):
        loaded = load("check", name)
        for check in _checks_of(loaded):
            if check.name in owners:
                raise PluginError(f"check {check.name} is given by {owners[check.name]} and by {loaded}; rename one")
            owners[check.name] = loaded
            found.append(check)
    wanted = [check for check in found if check.of == of and check.runs_at(level)]
    return tuple(sorted(wanted, key=lambda check: NEEDS.index(check.needs)))


def _checks_of(loaded: Loaded) -> tuple[Check, ...]:
    given = loaded.plugin
    if type(given) is not tuple or not all(isinstance(each, Check) for each in cast("tuple[Any, ...]", given)):
        told = shown(cast("object", given))
        raise PluginError(f"{loaded} names {told}, an entry point of kinfolk.checks is a tuple of Check")
    return cast("tuple[Check, ...]", given)
