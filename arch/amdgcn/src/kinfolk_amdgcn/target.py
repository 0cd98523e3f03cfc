"""Target ids such as `gfx942:sramecc+:xnack-`: the one place where they are taken apart.

Source: LLVM, "User Guide for AMDGPU Backend", section "Target ID".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from kinfolk.errors import KinfolkError

TRIPLE: Final = "amdgcn-amd-amdhsa"
FEATURES: Final = ("sramecc", "xnack")  # those a target id may name, in its canonical order

PROCESSORS: Final[Mapping[int, str]] = {0x40: "gfx940", 0x4B: "gfx941", 0x4C: "gfx942", 0x4F: "gfx950"}
"""Processors by their number in the flags of an ELF object; LLVM, "User Guide for AMDGPU Backend", "ELF Header"."""

_PROCESSOR = re.compile(r"gfx[0-9a-f]{3,4}")


class TargetIdError(KinfolkError, ValueError):
    """A target id that says nothing LLVM or HIP would, or one of another processor; the message says what is wrong."""


@attrs.frozen
class TargetId:
    """A processor and the features it is pinned to: True for `+`, False for `-`; one not named may be either."""

    processor: str
    sramecc: bool | None = None
    xnack: bool | None = None

    def __str__(self) -> str:
        return self.processor + "".join(f":{name}{sign}" for name, sign in self._signs())

    @property
    def llvm_features(self) -> str:
        """The feature string of a target machine, such as `+sramecc,-xnack`; empty when nothing is pinned."""
        return ",".join(f"{sign}{name}" for name, sign in self._signs())

    def runs(self, code: TargetId) -> bool:
        """Whether this device runs code for `code`: the same processor, each feature pinned there at its value."""
        pinned = ((code.sramecc, self.sramecc), (code.xnack, self.xnack))
        return self.processor == code.processor and all(wanted in (None, found) for wanted, found in pinned)

    def _signs(self) -> list[tuple[str, str]]:
        settings = zip(FEATURES, (self.sramecc, self.xnack), strict=True)
        return [(name, "+" if on else "-") for name, on in settings if on is not None]


def parse_target_id(text: str) -> TargetId:
    """Return the parts of a target id, with or without the triple that code objects put before it.

    Raises TargetIdError for another triple, a malformed processor, and an unknown, repeated or unsigned feature.
    """
    triple, separator, rest = text.rpartition("--")
    if separator and triple != TRIPLE:
        raise TargetIdError(f"target id {text!r} is for {triple}, not for {TRIPLE}")
    processor, *settings = rest.split(":")
    if not _PROCESSOR.fullmatch(processor):
        raise TargetIdError(f"target id {text!r} does not begin with a processor such as gfx942 but with {processor!r}")
    found: dict[str, bool] = {}
    for setting in settings:
        name, sign = setting[:-1], setting[-1:]
        if name not in FEATURES or sign not in ("+", "-"):
            known = " or ".join(FEATURES)
            raise TargetIdError(f"target id {text!r} has {setting!r}, a feature is {known} followed by + or -")
        if name in found:
            raise TargetIdError(f"target id {text!r} names {name} twice")
        found[name] = sign == "+"
    return TargetId(processor, found.get("sramecc"), found.get("xnack"))


def resolve_target_id(text: str, processors: Iterable[str]) -> TargetId:
    """Return the parts of a target id that is for one of `processors`; TargetIdError names those otherwise."""
    target, known = parse_target_id(text), tuple(processors)
    if target.processor not in known:
        raise TargetIdError(f"target id {text!r} is of {target.processor}, this is for {' or '.join(known)}")
    return target
