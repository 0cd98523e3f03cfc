"""Assembly text as LLVM writes and reads it: functions, labels, and the figures in a kernel's directives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kinfolk_amdgcn.machine.listing import JUMP, Label, Line, Listing

_TARGET: Final = re.compile(r'^\s*\.amdgcn_target\s+"[^"]*--([^":]+)', re.MULTILINE)
_FUNCTION: Final = re.compile(r"^\s*\.type\s+([\w.$]+),\s*@function|^\s*\.amdhsa_kernel\s+(\S+)", re.MULTILINE)
_LABEL: Final = re.compile(r"([\w.$@]+):")
_UNLABELLED: Final = re.compile(r";\s*(%bb\.\d+):")
_SOURCE: Final = re.compile(r";\s*%([\w.$-]+)\s*$")
_COMMENT: Final = re.compile(r"(;|//).*")
_KERNEL: Final = re.compile(r"^\s*\.amdhsa_kernel\s+(\S+)$(.*?)^\s*\.end_amdhsa_kernel", re.MULTILINE | re.DOTALL)
_METADATA: Final = re.compile(r"^\s*\.amdgpu_metadata$(.*?)^\s*\.end_amdgpu_metadata", re.MULTILINE | re.DOTALL)


def processor(text: str) -> str | None:
    """Return the processor that the text is for."""
    match = _TARGET.search(text)
    return match[1] if match else None


def listings(text: str) -> tuple[Listing, ...]:
    """Return the functions of a text, in order; a text that declares none is one function without a name."""
    names = {first or second for first, second in _FUNCTION.findall(text)}
    found: dict[str, list[Label | Line]] = {} if names else {"": []}
    current = None if names else found[""]
    for line in _METADATA.sub("", text).splitlines():
        words = _COMMENT.sub("", line).strip()
        source = match[1] if (match := _SOURCE.search(line)) else ""
        if match := _LABEL.match(words):
            if match[1] in names:
                current = found.setdefault(match[1], [])
            elif current is not None:
                current.append(Label(match[1], source))
            words = words[match.end() :].strip()
        elif current is not None and not words and (match := _UNLABELLED.match(line.strip())):
            current.append(Label(match[1], source))
        if words.startswith((".section", ".rodata")):
            current = current if ".text" in words else None
        if current is None or not words or words.startswith("."):
            continue
        opcode, _, operands = words.partition(" ")
        operands = operands.strip()
        current.append(Line(opcode, operands, operands if JUMP.match(opcode) else ""))
    return tuple(
        Listing(name, tuple(items)) for name, items in found.items() if any(isinstance(item, Line) for item in items)
    )


def figures(text: str) -> dict[str, dict[str, int]]:
    """Return the figures that directives and metadata give of each kernel, as `Usage` names them."""
    metadata = _metadata(text)
    return {name: {**_directives(body), **metadata.get(name, {})} for name, body in _KERNEL.findall(text)}


def _directives(body: str) -> dict[str, int]:
    def number(name: str) -> int | None:
        match = re.search(rf"^\s*\.amdhsa_{name}\s+(\d+)\s*$", body, re.MULTILINE)
        return int(match[1]) if match else None

    total, begin = number("next_free_vgpr"), number("accum_offset")
    found = {"lds_bytes": number("group_segment_fixed_size"), "scratch_bytes": number("private_segment_fixed_size")}
    found |= {"sgpr": number("next_free_sgpr")}
    if total is not None:
        found |= {"vgpr": min(total, begin or total), "agpr": max(0, total - (begin or total))}
    return {name: value for name, value in found.items() if value is not None}


_KEYS: Final[Mapping[str, str]] = {
    ".max_flat_workgroup_size": "max_flat_workgroup_size",
    ".agpr_count": "agpr",
    ".sgpr_count": "sgpr",
}


def _metadata(text: str) -> dict[str, dict[str, int]]:
    """Return the figures of `.amdgpu_metadata`: each kernel is an item of a list, two spaces in."""
    block = _METADATA.search(text)
    found: dict[str, dict[str, int]] = {}
    for entry in re.split(r"^  - ", block[1], flags=re.MULTILINE)[1:] if block else ():
        fields = dict(re.findall(r"^(?:    )?(\.\w+):[ \t]+(\S+)", entry, re.MULTILINE))
        numbers = {name: int(fields[key]) for key, name in _KEYS.items() if fields.get(key, "").isdigit()}
        spills = [fields.get(f".{kind}_spill_count", "") for kind in ("vgpr", "sgpr")]
        if all(count.isdigit() for count in spills):
            numbers["parked"] = sum(map(int, spills))
        found[fields.get(".name", "").strip("'\"")] = numbers
    return found
