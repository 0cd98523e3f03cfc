"""Programs of LLVM on this host: found by version, run with a time limit, each failure told with its command."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from kinfolk.errors import ToolError

OLDEST: Final = 20
NEWEST: Final = 30  # the highest number that is looked for in names such as `llc-22`
ROCM_FOLDER: Final = Path("/opt/rocm/llvm/bin")
VERSION_SECONDS: Final = 20.0
JOB_SECONDS: Final = 120.0
"""How long one compilation may take, unless a toolchain is made with another limit; ours take seconds at most."""
SAID_CHARACTERS: Final = 2000

_VERSION = re.compile(r"(?:(\w+) )?(?:LLVM version|LLD) (\d+(?:\.\d+)*\w*)")


@attrs.frozen
class Tool:
    """A program of LLVM: its path, version (`22.1.8`) and who built it (`debian`, `amd`, or `llvm`)."""

    path: Path
    version: str
    vendor: str

    @property
    def llvm(self) -> int:
        """The LLVM generation."""
        return int(self.version.partition(".")[0])

    @property
    def digest(self) -> str:
        """12 hex digits over the program and the LLVM library beside it: builds of one version differ in it."""
        digest = hashlib.sha256()
        program = self.path.resolve()
        libraries = {path.resolve() for path in program.parent.parent.glob("lib/libLLVM*.so*")}
        for path in (program, *sorted(libraries)):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()[:12]


def run_tool(command: Sequence[str], data: bytes = b"", *, seconds: float) -> bytes:
    """Run a program on `data` and return its standard output.

    Raises ToolError that says how it failed, what it said, and the command. Past the time limit it is stopped, with
    what it started.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise ToolError(f"it could not be started: {error} [{shlex.join(command)}]") from error
    try:
        output, said = process.communicate(data, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise ToolError(f"it took more than {seconds:g} s and was stopped [{shlex.join(command)}]") from None
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode:
        status = process.returncode
        how = f"ended with signal {-status}" if status < 0 else f"ended with status {status}"
        text = both_ends(said.decode(errors="replace").strip())
        raise ToolError("; ".join(filter(None, (f"it {how}", text))) + f" [{shlex.join(command)}]")
    return output


def both_ends(text: str, most: int = SAID_CHARACTERS) -> str:
    """Return a text of at most so many characters: LLVM says first what is wrong, then in many lines where it was."""
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-(most // 2) :]}"


def examined(path: Path) -> Tool:
    """Return a program with what it says of itself; ToolError when it does not run or names no LLVM version."""
    said = run_tool([str(path), "--version"], seconds=VERSION_SECONDS).decode(errors="replace")
    match = _VERSION.search(said)
    if match is None:
        raise ToolError(f"{path} --version names no LLVM version but says {said[:200].strip()!r}")
    return Tool(path, match[2], (match[1] or "llvm").lower())


def paths_on_host(name: str) -> Iterator[Path]:
    """Yield where a program may be: `name-30` to `name-20` and `name` of the search path, then ROCm's."""
    names = [f"{name}-{number}" for number in range(NEWEST, OLDEST - 1, -1)]
    for found in map(shutil.which, (*names, name)):
        if found:
            yield Path(found)
    if (ROCM_FOLDER / name).exists():
        yield ROCM_FOLDER / name


def find_tool(name: str, paths: Iterable[Path], *, oldest: int = OLDEST) -> Tool:
    """Return the first program of an LLVM that is not too old; ToolError says what was found instead.

    A caller that knows a remedy adds it.
    """
    seen: list[str] = []
    for path in paths:
        try:
            tool = examined(path)
        except ToolError as error:
            seen.append(str(error))
            continue
        if tool.llvm >= oldest:
            return tool
        seen.append(f"{path} is LLVM {tool.version}")
    raise ToolError(f"no {name} of LLVM {oldest} or newer is here: {'; '.join(seen) or 'none was found'}")
