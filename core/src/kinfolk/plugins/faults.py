"""What can be wrong with a plugin: one state per cause, one error per moment it shows."""

from __future__ import annotations

import difflib
import enum
import importlib
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kinfolk.errors import PluginError

KINDS: Final[tuple[str, ...]] = ("family", "arch", "policy", "executor", "toolchain", "command")
"""The kinds of plugin, each an entry-point group of its own."""

PLURALS: Final[dict[str, str]] = dict(
    zip(KINDS, ("families", "archs", "policies", "executors", "toolchains", "commands"), strict=True)
)


_LOADING: Final = str(Path(__file__).with_name("loading.py"))


class State(enum.StrEnum):
    """How an installed plugin stands. Anything but `ok` keeps this plugin out and no other."""

    OK = "ok"
    NOT_ALLOWED = "not allowed"
    CONFLICT = "conflict"
    API = "api mismatch"
    IMPORT = "import error"
    REJECTED = "rejected"
    TIME_OUT = "time-out"


class UnknownPlugin(PluginError):
    """Nothing installed offers the name."""

    def __init__(self, kind: str, name: str, installed: Iterable[str], note: str = "") -> None:
        self.kind, self.name, self.installed = kind, name, tuple(installed)
        self.remedy = f"Install it with: pip install kinfolk-{name}"
        if close := difflib.get_close_matches(name, self.installed, n=1):
            self.remedy = f"Did you mean {close[0]}? Otherwise install it with: pip install kinfolk-{name}"
        present = ", ".join(self.installed) or "none"
        super().__init__(f"no {kind} {name!r} is installed; installed {PLURALS[kind]}: {present}.{note} {self.remedy}")


class UnusablePlugin(PluginError):
    """A plugin is installed and cannot be used; `state` and `cause` are what `kinfolk list` shows."""

    def __init__(self, kind: str, name: str, distribution: str, state: State, cause: str) -> None:
        self.kind, self.name, self.distribution, self.state, self.cause = kind, name, distribution, state, cause
        super().__init__(f"{kind} {name} of {distribution} cannot be used ({state}): {cause}")


class HookFault(PluginError):
    """A hook of a plugin raised, or answered what it may not; every other plugin is as it was."""

    def __init__(self, plugin: str, hook: str, cause: str) -> None:
        self.plugin, self.hook, self.cause = plugin, hook, cause
        super().__init__(f"{plugin}: {hook} {cause}")


def shortened(text: str, length: int = 400) -> str:
    """Return a text cut to a length that a row can hold."""
    return text if len(text) <= length else f"{text[:length]}…"


def _is_import_system(filename: str) -> bool:
    """Return whether a frame is of the importing and not of what is imported."""
    return filename.startswith("<frozen") or filename in (importlib.__file__, _LOADING)


def sentence_of(error: BaseException) -> str:
    """Return an error as one line of bounded length, with the file and line that raised it."""
    try:
        text = shortened(" ".join(str(error).split()))
    except Exception:  # noqa: BLE001 - a stranger's __str__ may itself fail
        text = "its message cannot be printed"
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not _is_import_system(each.filename)]
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{': ' if text else ''}{text}{place}"
