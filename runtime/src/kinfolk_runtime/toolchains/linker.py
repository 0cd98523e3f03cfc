"""Linked code objects: what a host loads, and what shows a name that nobody defines."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from kinfolk.errors import ToolError
from kinfolk_runtime.toolchains.tool import Tool, find_tool, paths_on_host, run_tool

LINK_SECONDS: Final = 60.0
REMEDY: Final = "Install LLVM's linker (Debian: apt install lld-22; ROCm brings its own)."

_ELF: Final = b"\x7fELF"
_ET_DYN: Final = (3).to_bytes(2, "little")  # at offset 16


@cache
def find_linker() -> Tool:
    """Return this host's `ld.lld`; ToolError with the remedy where there is none. A failure is not remembered."""
    try:
        return find_tool("ld.lld", paths_on_host("ld.lld"))
    except ToolError as error:
        raise ToolError(f"{error}. {REMEDY}") from error


def link(code: bytes, *, kernel: str = "an object", linker: Tool | None = None) -> bytes:
    """Return a relocatable object as a shared one (ET_DYN), the form that is loaded.

    Raises ToolError where there is no linker, and where it refuses: LLVM takes any `llvm.*` name it does not know for
    a function, so that one misspelled or of another LLVM is first seen here, as an undefined symbol.
    """
    program = (linker or find_linker()).path
    with tempfile.TemporaryDirectory(prefix="kinfolk-link-") as folder:
        source, linked = Path(folder) / "kernel.o", Path(folder) / "kernel.so"
        source.write_bytes(code)
        try:
            run_tool([str(program), "-shared", "--no-undefined", "-o", str(linked), str(source)], seconds=LINK_SECONDS)
            data = linked.read_bytes()
        except (ToolError, OSError) as error:
            raise ToolError(f"linking {kernel} failed: {error}") from error
    if not data.startswith(_ELF) or data[16:18] != _ET_DYN:
        raise ToolError(f"linking {kernel} failed: {program} wrote no shared object but {data[:18]!r}")
    return data
