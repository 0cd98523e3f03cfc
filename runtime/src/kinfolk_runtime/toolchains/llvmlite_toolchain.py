"""LLVM through llvmlite, in processes of its own: an LLVM that aborts takes one job with it, not the program."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from kinfolk.errors import ToolError
from kinfolk_runtime.toolchains.base import Compiled, CompileJob
from kinfolk_runtime.toolchains.generation import served_flavors
from kinfolk_runtime.toolchains.pool import WORKER_FILE, WorkerError, WorkerPool
from kinfolk_runtime.toolchains.tool import JOB_SECONDS


def core_count() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LlvmliteToolchain:
    """The LLVM inside the llvmlite of `interpreter`, by default the running one.

    `workers` is the most compiler processes per set of LLVM options, by default the number of cores. A job that takes
    more than `timeout_seconds` is stopped and fails.
    """

    def __init__(
        self,
        interpreter: str = sys.executable,
        *,
        name: str = "llvmlite",
        workers: int | None = None,
        timeout_seconds: float = JOB_SECONDS,
        worker_command: Sequence[str] | None = None,
    ) -> None:
        self.name = name
        self._command = tuple(worker_command or (interpreter, str(WORKER_FILE)))
        self._size = workers or core_count()
        self._timeout_seconds = timeout_seconds
        self._pools: dict[tuple[str, ...], WorkerPool] = {}

    @property
    def build(self) -> str:
        """`llvmlite-X/llvm-Y`. Starts a worker to ask, once; raises ToolError when none starts."""
        versions = self._versions()
        return f"llvmlite-{versions['llvmlite']}/llvm-{versions['llvm']}"

    @property
    def flavors(self) -> tuple[str, ...]:
        """The flavors that this generation of LLVM reads."""
        return served_flavors(int(self._versions()["llvm"].partition(".")[0]))

    def compile(self, job: CompileJob) -> Compiled:
        """Verify the IR and generate code once, twice when assembly is wanted too. Raises ToolError."""
        header = {
            "triple": job.triple,
            "cpu": job.cpu,
            "features": job.features,
            "opt_level": job.opt_level,
            "assembly": job.assembly,
            "code": job.code,
        }
        pool = self.pool(job.options)
        try:
            blobs = pool.run(header, [job.llvm_ir.encode()], self._timeout_seconds)
            if len(blobs) != 1 + job.assembly or not blobs[0].startswith(b"\x7fELF" if job.code == "object" else b""):
                raise WorkerError("the worker's reply holds no object", lost=False)
        except WorkerError as error:
            raise ToolError(f"compiling {job.kernel} failed: {error} [{self._said(pool)} for {job.target}]") from error
        return Compiled(object=blobs[0], assembly=blobs[1].decode() if job.assembly else None)

    def pool(self, options: tuple[str, ...] = ()) -> WorkerPool:
        """Return the workers that run with these process-wide LLVM options."""
        found = self._pools.get(options)
        if found is None:  # setdefault is atomic, and no lock means none to be held across a fork
            found = self._pools.setdefault(options, WorkerPool((*self._command, *options), self._size))
        return found

    def close(self) -> None:
        """End all worker processes."""
        for pool in list(self._pools.values()):
            pool.close()

    def _versions(self) -> dict[str, str]:
        pool = self.pool()
        try:
            versions = pool.versions
        except WorkerError as error:
            raise ToolError(f"the llvmlite toolchain does not start: {error} [{self._said(pool)}]") from error
        if not {"llvmlite", "llvm"} <= set(versions) or not str(versions["llvm"]).partition(".")[0].isdecimal():
            raise ToolError(f"the llvmlite toolchain says no version, only {versions!r} [{self._said(pool)}]")
        return versions

    def _said(self, pool: WorkerPool) -> str:
        return " ".join(pool.command)
