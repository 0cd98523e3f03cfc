"""The process of a command line: streams that may be closed or full, plugins that hang or print, an exit status."""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import io
import os
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import IO, Any, Final, NoReturn, cast

from kinfolk.plugins.containment import inside_plugin
from kinfolk.plugins.discovery import Offer
from kinfolk.plugins.faults import State

IMPORT_SECONDS: Final = 20.0
"""How long the import of a plugin that is asked for may take."""
PROBE_SECONDS: Final = 10.0
"""How long the import of a policy may take, which nobody asks for by name."""
EXIT_FAILED: Final = 1


def run(command: Callable[[], object]) -> None:
    """Run a command that ends by SystemExit, and exit with its status, 1 where its output could not be written."""
    _open_streams()
    sys.stdout = _answers(sys.stdout)
    status: Any = 0
    try:
        command()
    except SystemExit as end:
        status = end.code
    try:
        sys.stdout.flush()
    except OSError as error:
        if error.errno != errno.EPIPE:
            print(f"Error: the output cannot be written: {error.strerror}", file=sys.stderr)
        status = status or EXIT_FAILED
        _let_go(sys.stdout)
    sys.exit(status)


def _open_streams() -> None:
    """Put the null device where a standard stream is closed, so that no file takes its number and nothing fails."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w" if number else "r"))  # noqa: SIM115 - it lives as long as we


def _let_go(stream: IO[str]) -> None:
    """Let the interpreter's last flush of a stream that cannot be written succeed."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


class _Answers(io.TextIOWrapper):
    """Standard output for what a command answers; what a plugin prints goes to standard error."""

    def write(self, text: str, /) -> int:
        return sys.stderr.write(text) if inside_plugin() else super().write(text)


def _answers(stream: IO[str]) -> IO[str]:
    """Return a stream of answers over the standard output; another stream, as of a test, as it is."""
    if not isinstance(stream, io.TextIOWrapper) or stream is not sys.__stdout__:
        return cast("IO[str]", stream)
    stream.flush()
    buffering, encoding = stream.line_buffering, stream.encoding
    detached = cast("Any", stream).detach()
    return _Answers(detached, encoding, "backslashreplace", line_buffering=buffering)


class ImportGuard:
    """What keeps plugins from taking the command line with them (`kinfolk.plugins.loading.guard_imports`)."""

    @contextlib.contextmanager
    def importing(self, offer: Offer) -> Generator[None]:
        """Import a plugin that is asked for: what it prints goes to standard error.

        One that hangs or ends the process is named; where native code crashed, Python's fault handler says.
        """
        watchdog = threading.Timer(IMPORT_SECONDS, _give_up, (offer,))
        watchdog.daemon = True
        watchdog.start()
        try:
            with _to_stderr(), _named_exits(offer):
                yield
        finally:
            watchdog.cancel()

    def judged(self, offers: Sequence[Offer]) -> Mapping[Offer, tuple[State, str]]:
        """Return how plugins that nobody asked for stand, each imported in a process of its own; broken ones are told.

        They are left out, and the command goes on.
        """
        from kinfolk.cli.output import say
        from kinfolk.cli.probing import probed

        found = probed(offers, PROBE_SECONDS)
        for offer, (state, cause) in found.items():
            if state is not State.OK:
                say(f"note: {offer} is left out ({state}): {cause}", err=True)
        return found


def _give_up(offer: Offer) -> None:
    _write_error(f"{offer} cannot be used (time-out): its import did not end within {IMPORT_SECONDS:g} s")
    os._exit(EXIT_FAILED)


def _write_error(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"Error: {text}\n".encode(errors="backslashreplace"))


@contextlib.contextmanager
def _named_exits(offer: Offer) -> Generator[None]:
    """Let `os._exit` and `os.abort`, called by an import in this process, say whose it is, and fail."""
    leave, abort, owner, importing = os._exit, os.abort, os.getpid(), [True]

    def named(call: str, otherwise: Callable[[], NoReturn]) -> NoReturn:
        if os.getpid() != owner or not importing:  # a forked child's, or one that the plugin kept and calls later
            otherwise()
        _write_error(f"{offer} cannot be used ({State.IMPORT}): its import ended the process by {call}")
        leave(EXIT_FAILED)

    def exits(status: int) -> NoReturn:
        named(f"os._exit({status!r})", lambda: leave(status))

    def aborts() -> NoReturn:
        named("os.abort()", abort)

    os._exit, os.abort = exits, aborts
    try:
        yield
    finally:
        os._exit, os.abort = leave, abort
        importing.clear()


@contextlib.contextmanager
def _to_stderr() -> Generator[None]:
    """Send what is written to file descriptor 1 to standard error, beside what Python prints there."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:
        yield
        return
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def guarded(command: Callable[..., object], **given: Any) -> None:
    """Run a command with guarded imports. Never returns."""
    from kinfolk.plugins.loading import guard_imports

    guard_imports(ImportGuard())
    faulthandler.enable(file=2)
    run(lambda: command(**given))
