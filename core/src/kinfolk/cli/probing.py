"""Importing every installed plugin where it can do no harm: in processes of their own, under a time limit.

Only this contains a plugin that hangs, exits or crashes on import. One process serves one distribution and reports
plugin after plugin; when it falls silent or dies, the plugin it was at is to blame, and another process goes on behind
it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, Final

import attrs

from kinfolk.plugins.discovery import Offer, catalog
from kinfolk.plugins.faults import KINDS, State

_PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from kinfolk.plugins.probe import main; main()"
)


@attrs.frozen(kw_only=True)
class Row:
    """One line of the listing."""

    name: str
    kind: str
    distribution: str
    version: str
    value: str
    state: State
    cause: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON data."""
        return {**attrs.asdict(self), "state": str(self.state)}


def probed_rows(time_limit: float) -> list[Row]:
    """Return a row for every offer, in order of kinds and names; `time_limit` is in seconds for each plugin."""
    offers = [offer for each in catalog().offers.values() for offer in each]
    verdicts = probed(offers, time_limit)
    ordered = sorted(offers, key=lambda offer: (KINDS.index(offer.kind), offer.name, offer.distribution))
    return [_row(offer, *verdicts[offer]) for offer in ordered]


def probed(offers: Iterable[Offer], time_limit: float) -> dict[Offer, tuple[State, str]]:
    """Return the verdict on each offer; those that metadata keeps out, or that were registered, are not imported."""
    known = catalog()
    to_probe: dict[str, list[Offer]] = {}
    verdicts: dict[Offer, tuple[State, str]] = {}
    for offer in offers:
        standing = known.standing(offer)
        verdicts[offer] = standing.state, standing.cause
        if standing.state is State.OK and not offer.registered:
            to_probe.setdefault(offer.distribution, []).append(offer)
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for found in pool.map(functools.partial(_probe, time_limit), to_probe.values()):
            verdicts.update(found)
    return verdicts


def _row(offer: Offer, state: State, cause: str) -> Row:
    hidden = f"hides {' and '.join(offer.hides)}" if offer.hides else ""
    return Row(
        name=offer.name,
        kind=offer.kind,
        distribution=offer.distribution,
        version=offer.version,
        value=offer.value,
        state=state,
        cause="; ".join(filter(None, (cause, hidden))),
    )


def _probe(time_limit: float, offers: list[Offer]) -> dict[Offer, tuple[State, str]]:
    """Return the verdict on each offer of one distribution."""
    found: dict[Offer, tuple[State, str]] = {}
    left = list(offers)
    while left:
        with _process(left) as (process, lines):
            while left:
                try:
                    line = lines.get(timeout=time_limit)
                except queue.Empty:
                    offer = left.pop(0)
                    found[offer] = State.TIME_OUT, f"{_asked(offer)} did not end within {time_limit:g} s"
                    break
                if line is None:
                    offer = left.pop(0)
                    found[offer] = State.IMPORT, _death(process, _asked(offer))
                    break
                state, cause = json.loads(line)
                found[left.pop(0)] = State(state), cause
    return found


@contextlib.contextmanager
def _process(offers: Iterable[Offer]) -> Generator[tuple[subprocess.Popen[bytes], queue.Queue[bytes | None]]]:
    """Run the probe over offers; yields the process and its lines, with None at their end.

    Ends the process and its children.
    """
    wanted = json.dumps([[offer.kind, offer.name] for offer in offers])
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, json.dumps(sys.path), wanted],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    lines: queue.Queue[bytes | None] = queue.Queue()
    reader = threading.Thread(target=_read, args=(process.stdout, lines), daemon=True)
    reader.start()
    try:
        yield process, lines
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _read(stream: IO[bytes], lines: queue.Queue[bytes | None]) -> None:
    with stream:
        for line in stream:
            lines.put(line)
    lines.put(None)


def _asked(offer: Offer) -> str:
    """Return what the probe does with an offer; an arch is also asked for its Arch."""
    return "its import or its kinfolk_arch" if offer.kind == "arch" else "its import"


def _death(process: subprocess.Popen[bytes], asked: str) -> str:
    """Return how a process that stopped reporting ended."""
    try:
        status = process.wait(timeout=1)
    except subprocess.TimeoutExpired:
        return f"{asked} closed the standard output of its process"
    if status < 0:
        return f"{asked} killed the process ({signal.Signals(-status).name})"
    return f"{asked} ended the process with exit status {status}"
