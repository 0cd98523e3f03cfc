"""Kernels in files of anybody: assembly text, or an ELF code object that llvm-objdump takes apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from kinfolk.arch import Arch
from kinfolk.errors import KinfolkError, ToolError
from kinfolk.flavor import DEFAULT_FLAVOR, flavor_named
from kinfolk.machine import MachineFunction
from kinfolk_runtime.toolchains.tool import find_tool, paths_on_host, run_tool

ELF: Final = b"\x7fELF"
OBJDUMP_SECONDS: Final = 60.0


class UnreadableFileError(KinfolkError):
    """A file in which no kernel of an installed arch can be read; the message says why."""


def arch_for(path: Path, data: bytes, name: str | None) -> Arch:
    """Return the arch of that name, or the installed one whose processor the file names.

    Raises UnreadableFileError where the file names none, or one of which no arch is installed, or another than that of
    the arch of that name.
    """
    from kinfolk.plugins.loading import usable

    if name is not None:
        asked = _arch(name)
        target = asked.machine.target(data) if asked.machine else None
        if target and not _is_for(asked, {target}):
            raise UnreadableFileError(f"{path} is for {target}, not for {name}: leave --arch out, or name its arch.")
        return asked
    readers = list(_readers(usable("arch")))
    targets = {target for arch in readers if arch.machine and (target := arch.machine.target(data))}
    for arch in readers:
        if _is_for(arch, targets):
            return arch
    told = f"is for {' or '.join(sorted(targets))}" if targets else "names no processor"
    known = ", ".join(arch.name for arch in readers) or "none"
    raise UnreadableFileError(f"{path} {told}; archs whose machine code can be read: {known}. Name one with --arch.")


def _is_for(arch: Arch, targets: set[str]) -> bool:
    return any(target.partition(":")[0] in targets for target in arch.target_ids)


def _arch(name: str) -> Arch:
    from kinfolk.plugins.composition import arch_of
    from kinfolk.plugins.loading import load

    return arch_of(load("arch", name))


def _readers(names: Iterable[str]) -> Iterator[Arch]:
    """Yield the archs that can be loaded and whose machine code can be read."""
    for name in names:
        try:
            arch = _arch(name)
        except KinfolkError:  # `kinfolk list` says of it what is wrong
            continue
        if arch.machine is not None:
            yield arch


def functions_in(path: Path, data: bytes, arch: Arch, given: Mapping[str, int]) -> tuple[MachineFunction, ...]:
    """Return the kernels in a file's bytes; `given` figures stand in place of those in the file.

    Raises UnreadableFileError where there is none, ToolError where an object needs llvm-objdump and it is missing.
    """
    disassembly = _disassembled(path, arch) if data.startswith(ELF) else None
    found = arch.machine_code(data, disassembly, given)
    if not found:
        raise UnreadableFileError(f"{path} holds no code")
    return found


def _disassembled(path: Path, arch: Arch) -> str:
    rank = flavor_named(DEFAULT_FLAVOR).rank
    try:
        tool = find_tool("llvm-objdump", paths_on_host("llvm-objdump"), oldest=rank)
    except ToolError as error:
        raise ToolError(f"{error}. A code object is read through it; assembly text is read without.") from error
    command = [str(tool.path), "-d", f"--mcpu={arch.target_ids[0].partition(':')[0]}", str(path)]
    return run_tool(command, seconds=OBJDUMP_SECONDS).decode(errors="replace")
