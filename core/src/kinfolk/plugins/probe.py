"""The process in which `kinfolk list` imports plugins.

One JSON line per plugin, state and cause, in the order asked for.
"""

from __future__ import annotations

import json
import os
import sys

from kinfolk.errors import KinfolkError, PluginError
from kinfolk.plugins.faults import HookFault, State, UnusablePlugin, sentence_of
from kinfolk.plugins.loading import Loaded, load


def main() -> None:
    """Import each `[kind, name]` of the last argument's JSON list; what plugins print goes nowhere."""
    report = os.fdopen(os.dup(1), "w")
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    for kind, name in json.loads(sys.argv[-1]):
        print(json.dumps(verdict(kind, name)), file=report, flush=True)
    os._exit(0)  # a plugin's threads or exit handlers are not waited for


def verdict(kind: str, name: str) -> tuple[str, str]:
    """Return state and cause of one plugin after importing it, and of an arch after it answered with its Arch."""
    try:
        loaded = load(kind, name)
    except UnusablePlugin as error:
        return str(error.state), error.cause
    except (PluginError, KeyboardInterrupt) as error:  # nobody interrupts this process: the plugin raised it
        return str(State.IMPORT), sentence_of(error)
    return _answered(loaded) if kind == "arch" else (str(State.OK), "")


def _answered(arch: Loaded) -> tuple[str, str]:
    """Return state and cause of an arch, whose facts, tables and ops are joined only when it is asked for."""
    from kinfolk.plugins.composition import arch_of

    try:
        arch_of(arch)
    except HookFault as error:
        return str(State.REJECTED), f"{error.hook} {error.cause}"
    except (KinfolkError, KeyboardInterrupt) as error:
        return str(State.REJECTED), f"kinfolk_arch raised {sentence_of(error, arch.offer.module.partition('.')[0])}"
    return str(State.OK), ""
