"""What can be wrong with a plugin: one state per cause, one error per moment it shows."""

from __future__ import annotations

import difflib
import enum
import importlib
import operator
import re
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kinfolk.errors import PluginError

KINDS: Final[tuple[str, ...]] = ("family", "arch", "policy", "executor", "toolchain", "command", "check")
"""The kinds of plugin, each an entry-point group of its own."""

PLURALS: Final[dict[str, str]] = dict(
    zip(KINDS, ("families", "archs", "policies", "executors", "toolchains", "commands", "checks"), strict=True)
)


DISCOVERY_OFF: Final = "discovery is off"
PAGES: Final[dict[str, str]] = {"family": "docs/writing-a-family.md", "arch": "docs/bringing-up-an-arch.md"}
"""The pages on writing a plugin, by its kind."""
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

    def __init__(self, kind: str, name: str, installed: Iterable[str], notes: Iterable[str] = ()) -> None:
        self.kind, self.name, self.installed, self.notes = kind, name, tuple(installed), tuple(notes)
        self.remedy = _remedy(kind, name, self.installed, self.notes)
        present = ", ".join(self.installed) or "none"
        super().__init__(f"no {kind} {name!r} is installed; installed {PLURALS[kind]}: {present}. {self.remedy}")


def _remedy(kind: str, name: str, installed: tuple[str, ...], notes: tuple[str, ...]) -> str:
    """Return what to do about an unknown name: the near miss; what keeps plugins out; what to install, or to write."""
    plain = re.fullmatch(r"[a-z][a-z0-9_]*", name)
    own = f" To write it: kinfolk new {kind} {name if plain else 'NAME'}; {PAGES[kind]}." if kind in PAGES else ""
    if near := near_miss(name, installed):
        return f"Did you mean {near}?{own if kind == 'arch' else ''}"  # names of processors are often alike
    if any(note.startswith(DISCOVERY_OFF) for note in notes):
        return f"{'; '.join(notes)}."
    told = f"{'; '.join((*notes, 'A distribution that offers it must be installed'))}"
    if own and plain:
        return f"{told}; ours are named kinfolk-NAME: pip install kinfolk-{name.replace('_', '-')}.{own}"
    return f"{told}; kinfolk list shows what is."


def near_miss(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was most likely meant: case, a suffix after a colon or a letter or two apart."""
    plain, by_plain = name.casefold().partition(":")[0], {each.casefold(): each for each in known}
    close = difflib.get_close_matches(plain, by_plain, n=1, cutoff=0.75)
    other = [each for each in by_plain if len(each) == len(plain) > 2 and sum(map(operator.ne, each, plain)) == 1]
    return by_plain[(close + other)[0]] if close or other else None


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


def sentence_of(error: BaseException, package: str = "") -> str:
    """Return an error as one line of bounded length, with the file and line that raised it.

    With `package`, the innermost place in that package's folder, where there is one.
    """
    try:
        text = shortened(" ".join(str(error).split()))
    except Exception:  # noqa: BLE001 - a stranger's __str__ may itself fail
        text = "its message cannot be printed"
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not _is_import_system(each.filename)]
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    if own := [each for each in frames if package and package in Path(each.filename).parts[:-1]]:
        parts = Path(own[-1].filename).parts
        begin = len(parts) - 1 - parts[::-1].index(package)
        place = f" ({'/'.join(parts[begin:])}:{own[-1].lineno})"
    return f"{type(error).__name__}{': ' if text else ''}{text}{place}"
