"""What a compiled kernel takes, read from the code that the compiler wrote: for PTX, from its text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kinfolk.errors import ToolError
from kinfolk.expr import fact, field
from kinfolk.refusal import Limit
from kinfolk.usage import KernelArgument, Usage

if TYPE_CHECKING:
    from kinfolk.arch import Arch

_TARGET: Final = re.compile(r"^\.target (\w+)", re.MULTILINE)
_PARAMETER: Final = re.compile(r"\.param \.[a-z](\d+) (\.ptr )?")
_REGISTERS: Final = re.compile(r"\.reg \.\w+\s+%\w+<(\d+)>")
_SHARED: Final = re.compile(r"\.shared \.align \d+ \.b8 (\w+)\[(\d+)\]")
_LOCAL: Final = re.compile(r"\.local \.align \d+ \.b8\s+\w+\[(\d+)\]")

LIMITS: Final = (
    Limit(
        "toy_simt.resources.workgroup_bytes",
        "cannot",
        "workgroup_bytes",
        field("workgroup_bytes") <= fact("lds_bytes"),
        because="one workgroup has at most the workgroup memory of one compute unit",
        remedy="Choose smaller tiles, or fewer of them.",
    ),
)
"""What no compiled kernel may exceed."""


def read_usage(code: bytes, symbol: str, arch: Arch) -> Usage:
    """Return the figures of kernel `symbol`; ToolError for what is no code of it.

    PTX names as many registers as it likes, so there is no figure of real ones. Private memory is declared and counted.
    """
    text = code.decode(errors="replace")
    target, begin = _TARGET.search(text), text.find(f".entry {symbol}(")
    if target is None or begin < 0:
        raise ToolError(f"the code holds no kernel {symbol} for {arch.name}")
    head, _, body = text[begin:].partition("{")
    arguments: list[KernelArgument] = []
    end = 0
    for bits, pointer in _PARAMETER.findall(head):
        size = int(bits) // 8
        offset = -(-end // size) * size
        arguments.append(KernelArgument(offset=offset, size=size, kind="pointer" if pointer else "value"))
        end = offset + size
    return Usage(
        symbol=symbol,
        target=target[1],
        scratch_bytes=sum(map(int, _LOCAL.findall(body))),
        scratch_ops=len(re.findall(r"\b(?:ld|st)\.local\b", body)),
        figures={
            "virtual_registers": sum(map(int, _REGISTERS.findall(body))),
            "workgroup_bytes": sum(int(size) for _, size in _SHARED.findall(text)),
        },
        arguments=tuple(arguments),
    )
