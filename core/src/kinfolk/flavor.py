"""Flavors: the LLVM generations whose IR is emitted. A flavor is known by name and served by rank."""

from __future__ import annotations

import re
from typing import Final

import attrs

from kinfolk.errors import KinfolkError

DEFAULT_FLAVOR: Final = "llvm22"


class UnknownFlavor(KinfolkError, ValueError):
    """No flavor of the name `name` is registered."""

    def __init__(self, message: str, name: object = None) -> None:
        self.name = name
        super().__init__(message)


@attrs.frozen(order=True)
class Flavor:
    """One LLVM generation; flavors are ordered by `rank`, the generation's number."""

    rank: int
    name: str


_NAME: Final = re.compile(r"llvm([1-9][0-9]*)")
_registered: Final[dict[str, Flavor]] = {}


def register_flavor(name: str) -> Flavor:
    """Make a generation known; its rank is the number in its name. Registering it again changes nothing."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise UnknownFlavor(f"a flavor is named like llvm22, got {name!r}", name)
    return _registered.setdefault(name, Flavor(int(match.group(1)), name))


def flavor_named(name: str) -> Flavor:
    """Return the registered flavor; raise UnknownFlavor naming those that are."""
    try:
        return _registered[name]
    except (KeyError, TypeError):
        known = ", ".join(flavor.name for flavor in flavors())
        raise UnknownFlavor(
            f"flavor {name!r} is not known, known: {known}; a registered one is served by rank", name
        ) from None


def flavors() -> tuple[Flavor, ...]:
    """Return every registered flavor, oldest generation first."""
    return tuple(sorted(_registered.values()))


for _name in ("llvm20", "llvm22"):
    register_flavor(_name)
