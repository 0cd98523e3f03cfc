"""Compiler processes that stay alive between jobs: a job that kills its process, or hangs in it, fails alone."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from kinfolk_runtime.toolchains import worker
from kinfolk_runtime.toolchains.tool import both_ends

WORKER_FILE = Path(worker.__file__)
STDERR_BYTES = 1 << 20  # more than any LLVM has said of one job
END_SECONDS = 5.0  # a crash may write a core file


class WorkerError(Exception):
    """What a worker, or LLVM inside it, said of one job. `lost` is true when the process is of no more use."""

    def __init__(self, message: str, *, lost: bool) -> None:
        super().__init__(message)
        self.lost = lost


class Worker:
    """One compiler process and its pipes. Used by one thread at a time."""

    def __init__(self, command: Sequence[str], start_seconds: float) -> None:
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115, it lives as long as the process
        try:
            self._process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                start_new_session=True,
            )
        except OSError as error:
            self._stderr.close()
            raise WorkerError(f"the worker could not be started: {error}", lost=True) from error
        self.versions, _ = self._exchange(None, start_seconds, "start")

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def run(self, header: dict[str, Any], blobs: list[bytes], seconds: float) -> list[bytes]:
        """Do one job and return its blobs; WorkerError when it could not be done in `seconds`."""
        reply, results = self._exchange((header, blobs), seconds, "job")
        if "error" in reply:
            raise WorkerError(str(reply["error"]), lost=False)
        return results

    def kill(self) -> None:
        """Kill the process; the thread that waits for its answer gets a WorkerError."""
        self._process.kill()

    def close(self) -> None:
        """Kill the process, wait for it and close its pipes."""
        self._process.kill()
        self._process.wait()
        self._release()

    def forget(self) -> None:
        """In a forked child: let go of the parent's process without touching it."""
        self._process.returncode = 0
        self._release()

    def _release(self) -> None:
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            with contextlib.suppress(OSError, ValueError):
                if stream is not None:
                    stream.close()

    def _exchange(
        self, message: tuple[dict[str, Any], list[bytes]] | None, seconds: float, what: str
    ) -> tuple[dict[str, Any], list[bytes]]:
        jobs, replies = self._process.stdin, self._process.stdout
        assert jobs is not None and replies is not None
        said_before = os.fstat(self._stderr.fileno()).st_size
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            self._process.kill()  # the read below then ends

        watchdog = threading.Timer(seconds, expire)
        watchdog.daemon = True
        watchdog.start()
        try:
            if message is not None:
                worker.write_message(jobs, *message)
            return worker.read_message(replies)
        except (OSError, EOFError, ValueError, TypeError) as error:
            raise self._failure(error, expired.is_set(), seconds, what, said_before) from error
        finally:
            watchdog.cancel()

    def _failure(self, error: Exception, expired: bool, seconds: float, what: str, said_before: int) -> WorkerError:
        if not expired and isinstance(error, (EOFError, OSError)):  # it is ending by itself: let it, for its status
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=END_SECONDS)
        self._process.kill()
        status = self._process.wait()
        said = os.fstat(self._stderr.fileno()).st_size - said_before
        text = os.pread(self._stderr.fileno(), min(said, STDERR_BYTES), said_before).decode(errors="replace").strip()
        self._release()
        if expired:
            cause = f"the {what} took more than {seconds:g} s and was stopped"
        elif isinstance(error, (EOFError, OSError)):
            cause = f"the worker ended {'with signal ' + str(-status) if status < 0 else 'with status ' + str(status)}"
        else:
            cause = f"the worker's reply could not be read ({error})"
        return WorkerError("; ".join(filter(None, (cause, both_ends(text)))), lost=True)


class WorkerPool:
    """Up to `size` workers of one command line, started when needed. Threads share it, a forked child does not."""

    def __init__(self, command: Sequence[str], size: int, start_seconds: float = 60.0) -> None:
        self.command = tuple(command)
        self.size = size
        self._start_seconds = start_seconds
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._starting = 0
        self._free = threading.Condition()
        self._versions: dict[str, Any] | None = None
        _pools.add(self)

    @property
    def versions(self) -> dict[str, Any]:
        """What the first worker said of itself."""
        if self._versions is None:
            self._give_back(self._take())
        assert self._versions is not None
        return self._versions

    @property
    def pids(self) -> frozenset[int]:
        """Process ids of the workers alive now."""
        with self._free:
            return frozenset(each.pid for each in self._workers if each.alive)

    def run(self, header: dict[str, Any], blobs: list[bytes], seconds: float) -> list[bytes]:
        """Do one job on an idle worker, waiting for one when all are busy. Raises WorkerError."""
        taken = self._take()
        try:
            return taken.run(header, blobs, seconds)
        except WorkerError as error:
            if error.lost:
                self._drop(taken)
            raise
        except BaseException:  # an interrupt between question and answer: the worker is out of step
            self._drop(taken)
            raise
        finally:
            self._give_back(taken)

    def close(self) -> None:
        """Kill every worker; jobs in flight fail. A later job starts workers again."""
        with self._free:
            busy, idle = self._workers.difference(self._idle), self._idle
            self._workers, self._idle = set(), []
        for each in busy:
            each.kill()
        for each in idle:
            each.close()

    def reset_after_fork(self) -> None:
        """In a forked child: the workers and whoever held the lock belong to the parent."""
        self._free = threading.Condition()
        for each in self._workers:
            each.forget()
        self._workers, self._idle, self._starting = set(), [], 0

    def _take(self) -> Worker:
        with self._free:
            while True:
                while self._idle:
                    taken = self._idle.pop()
                    if taken.alive:
                        return taken
                    self._workers.discard(taken)
                    taken.close()
                if len(self._workers) + self._starting < self.size:
                    self._starting += 1
                    break
                self._free.wait()
        return self._start()

    def _start(self) -> Worker:
        started: Worker | None = None
        try:
            started = Worker(self.command, self._start_seconds)
            return started
        finally:
            with self._free:
                self._starting -= 1
                if started is not None:
                    self._workers.add(started)
                    self._versions = self._versions or started.versions
                else:
                    self._free.notify()

    def _drop(self, lost: Worker) -> None:
        lost.close()
        with self._free:
            self._workers.discard(lost)

    def _give_back(self, taken: Worker) -> None:
        with self._free:
            if taken in self._workers:
                self._idle.append(taken)
            self._free.notify()


_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


def _close_all() -> None:
    for pool in list(_pools):
        pool.close()


def _reset_all() -> None:
    for pool in list(_pools):
        pool.reset_after_fork()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)
