"""LLVM through its own compiler `llc`: a distribution's LLVM, or ROCm's. One process per code generation."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kinfolk.errors import ToolError
from kinfolk_runtime.toolchains.base import Compiled, CompileJob
from kinfolk_runtime.toolchains.generation import served_flavors
from kinfolk_runtime.toolchains.tool import JOB_SECONDS, ROCM_FOLDER, Tool, find_tool, paths_on_host, run_tool

REMEDY: Final = "Install LLVM's tools (Debian: apt install llvm-22)."
ROCM_REMEDY: Final = "Install ROCm."

_LAYOUT = re.compile(r'^\s*target datalayout = "([^"]*)"', re.MULTILINE)
_TRIPLE = re.compile(r'^\s*target triple = "([^"]*)"', re.MULTILINE)


class LlcToolchain:
    """The first usable `llc` of `paths`, by default of this host's search path and then ROCm's.

    Nothing is looked for before the build, the flavors or a compilation is asked for; each raises ToolError with the
    remedy where there is none. A job that takes more than `timeout_seconds` is stopped and fails.
    """

    def __init__(
        self,
        paths: Iterable[Path] | None = None,
        *,
        name: str = "llc",
        remedy: str = REMEDY,
        timeout_seconds: float = JOB_SECONDS,
    ) -> None:
        self.name = name
        self._paths = None if paths is None else tuple(paths)
        self._remedy = remedy
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()
        self._found: tuple[Tool, str] | None = None
        self._layouts: dict[tuple[str, str], str] = {}
        self._whole: set[str] = set()

    @property
    def build(self) -> str:
        """`llc-22.1.8/debian-` and a digest of the program with its library."""
        tool, digest = self._tool()
        return f"llc-{tool.version}/{tool.vendor}-{digest}"

    @property
    def flavors(self) -> tuple[str, ...]:
        """The flavors that this generation of LLVM reads."""
        return served_flavors(self._tool()[0].llvm)

    def compile(self, job: CompileJob) -> Compiled:
        """Verify the IR and generate code once, twice when assembly is wanted too. Raises ToolError."""
        tool, _ = self._tool()
        try:
            self._check_options(tool, job)
            self._check_module(tool, job)
            text_alone = job.code == "assembly"
            code = self._run(tool, job, f"-filetype={'asm' if text_alone else 'obj'}")
            if not (text_alone or code.startswith(b"\x7fELF")):
                raise ToolError(f"it wrote no object but {code[:20]!r} [{tool.path}]")
            assembly = self._run(tool, job, "-filetype=asm").decode() if job.assembly else None
        except ToolError as error:
            raise ToolError(f"compiling {job.kernel} failed: {error} for {job.target}") from error
        return Compiled(object=code, assembly=assembly)

    def _tool(self) -> tuple[Tool, str]:
        with self._lock:
            if self._found is None:
                try:
                    tool = find_tool("llc", paths_on_host("llc") if self._paths is None else self._paths)
                except ToolError as error:
                    raise ToolError(f"the {self.name} toolchain does not start: {error}. {self._remedy}") from error
                self._found = (tool, tool.digest)
            return self._found

    def _run(self, tool: Tool, job: CompileJob, *more: str, text: str | None = None) -> bytes:
        features = [f"-mattr={job.features}"] if job.features else []
        command = [str(tool.path), f"-mtriple={job.triple}", f"-mcpu={job.cpu}", f"-O{job.opt_level}", *features]
        data = (job.llvm_ir if text is None else text).encode()
        return run_tool([*command, *job.options, *more, "-o", "-", "-"], data, seconds=self._timeout_seconds)

    def _check_options(self, tool: Tool, job: CompileJob) -> None:
        """Refuse an option without the value it needs: it would take the argument behind it for one. Asked once."""
        for option in job.options:
            if "=" not in option and option not in self._whole:
                command = [str(tool.path), f"-mtriple={job.triple}", "-filetype=null", "-o", "-", "-", option]
                run_tool(command, seconds=self._timeout_seconds)
                self._whole.add(option)

    def _check_module(self, tool: Tool, job: CompileJob) -> None:
        """Refuse IR for another target: `llc` would put its own layout and triple in place of it in silence."""
        key = (job.triple, job.cpu)
        if key not in self._layouts:
            printed = self._run(tool, job, "-stop-after=finalize-isel", text="").decode(errors="replace")
            match = _LAYOUT.search(printed)
            if match is None:
                raise ToolError(f"{tool.path} names no data layout of {job.triple} {job.cpu}")
            self._layouts[key] = match[1]
        for what, pattern, wanted in (("data layout", _LAYOUT, self._layouts[key]), ("triple", _TRIPLE, job.triple)):
            match = pattern.search(job.llvm_ir)
            if match is not None and match[1] not in ("", wanted):
                raise ToolError(f"the {what} of the IR is {match[1]}, the target's is {wanted} [{tool.path}]")


def rocm_toolchain() -> LlcToolchain:
    """Return the toolchain of ROCm's own LLVM."""
    paths = (ROCM_FOLDER / "llc",)
    return LlcToolchain([path for path in paths if path.exists()], name="rocm", remedy=ROCM_REMEDY)
