"""The process in which `kinfolk list` imports plugins.

One JSON line per plugin, state and cause, in the order asked for.
"""

from __future__ import annotations

import json
import os
import sys

from kinfolk.errors import PluginError
from kinfolk.plugins.faults import State, UnusablePlugin, sentence_of
from kinfolk.plugins.loading import load


def main() -> None:
    """Import each `[kind, name]` of the last argument's JSON list; what plugins print goes nowhere."""
    report = os.fdopen(os.dup(1), "w")
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    for kind, name in json.loads(sys.argv[-1]):
        print(json.dumps(verdict(kind, name)), file=report, flush=True)
    os._exit(0)  # a plugin's threads or exit handlers are not waited for


def verdict(kind: str, name: str) -> tuple[str, str]:
    """Return state and cause of one plugin after importing it."""
    try:
        load(kind, name)
    except UnusablePlugin as error:
        return str(error.state), error.cause
    except (PluginError, KeyboardInterrupt) as error:  # nobody interrupts this process: the plugin raised it
        return str(State.IMPORT), sentence_of(error)
    return str(State.OK), ""
