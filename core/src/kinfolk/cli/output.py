"""What every command prints: tables for people, documents for tools, refusals for both."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import textwrap
import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import click

from kinfolk.errors import InternalError, KinfolkError, Refused
from kinfolk.fields import listing, shown
from kinfolk.flavor import UnknownFlavor, flavors
from kinfolk.plugins.faults import HookFault, UnknownPlugin, UnusablePlugin, sentence_of
from kinfolk.refusal import LONGEST_INT, Refusal

EXIT_PASS: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
TRACEBACK: Final = "--traceback"


def print_document(document: Mapping[str, Any]) -> None:
    """Print a JSON document; what JSON lacks (infinities, NaN, half characters, endless ints) is printed as text."""
    click.echo(json.dumps(_finite(document), indent=2, allow_nan=False, default=str))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="backslashreplace").decode()
    if isinstance(value, int) and value.bit_length() > LONGEST_INT:
        return shown(value)
    if isinstance(value, Mapping):
        return {str(_finite(str(key))): _finite(item) for key, item in cast("Mapping[object, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in cast("Sequence[Any]", value)]
    return value


def terminal_width(*, err: bool = False) -> int | None:
    """Return the columns of the terminal that is printed to, None for a pipe or a file."""
    stream = sys.stderr if err else sys.stdout
    return max(40, shutil.get_terminal_size().columns) if stream.isatty() else None


def say(text: str, indent: str = "", *, err: bool = False) -> None:
    """Print a sentence: on a terminal wrapped between words, the rest further in; in a pipe as one line."""
    width = terminal_width(err=err)
    if width is not None:
        text = textwrap.fill(
            text, width, subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False
        )
    click.echo(text, err=err)


def refusal_rows(refusals: Iterable[Refusal]) -> list[dict[str, Any]]:
    """Return refusals as the rows that every document carries."""
    return [refusal.to_dict() for refusal in refusals]


def print_refusals(rows: Iterable[Mapping[str, Any]], indent: str = "", *, err: bool = False) -> None:
    """Print refusal rows as sentences: who refuses, the field, its value, what is supported, why, and what to do.

    Fields that are missing are told in one sentence, what several candidates say word for word once.
    """
    by_words: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        by_words.setdefault(without_code(row), row)
    every = list(by_words.values())
    missing = [row for row in every if row["code"] == f"request.{row['field']}.missing"]
    for row in every:
        if row in missing:
            if row is missing[0]:
                told = ", ".join(f"{each['field']} ({each['limit']})" for each in missing)
                remedies = dict.fromkeys(each["remedy"] for each in missing)
                say(f"{indent}{row['plugin']}: missing: {told}. {' '.join(remedies)}", indent, err=err)
            continue
        because = str(row["because"]).removesuffix(".")
        sentence = f"{row['field']} is {row['value']}, supported: {row['limit']} ({because}). {row['remedy']}"
        if not row["limit"]:  # an error that is about no value
            sentence = f"{because}. {row['remedy']}"
        say(f"{indent}{row['plugin']}: {sentence.strip()}", indent, err=err)


def without_code(row: Mapping[str, Any]) -> str:
    """Return what a row says but for its code, which may name a candidate; fields that are missing differ by name."""
    return str({name: value for name, value in row.items() if name != "code"})


def print_defaults(defaults: Mapping[str, Any], *, err: bool = False) -> None:
    """Print the fields that the command line filled in; with `err` beside what is written to standard output."""
    if defaults:
        words = " ".join(f"{name}={shell_word(value)}" for name, value in defaults.items())
        say(f"filled in: {words}", err=err)


def shell_word(value: object) -> str:
    """Return a value as `key=value` takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return shown(value) if isinstance(value, int) else str(value)


def refusals_of(error: Exception) -> list[dict[str, Any]]:
    """Return an error as refusal rows, so that a document says in one form why there is nothing more in it."""
    if isinstance(error, Refused) and error.refusals:
        return refusal_rows(error.refusals)
    show_traceback(error)
    row = _row(error)
    return [{"kind": "cannot", **row}]


def _row(error: Exception) -> dict[str, Any]:
    if isinstance(error, UnknownPlugin):
        return {
            "code": f"{error.kind}.unknown",
            "kind": "invalid",
            "field": error.kind,
            "value": error.name,
            "limit": listing(error.installed) if error.installed else "nothing is installed",
            "because": f"no installed distribution offers this {error.kind}",
            "remedy": error.remedy,
            "plugin": "kinfolk-core",
        }
    if isinstance(error, UnusablePlugin):
        return {
            "code": f"{error.kind}.{error.state.replace(' ', '_').replace('-', '_')}",
            "field": error.kind,
            "value": error.name,
            "limit": "a plugin that can be loaded",
            "because": error.cause,
            "remedy": "kinfolk list shows every plugin's state.",
            "plugin": error.distribution,
        }
    if isinstance(error, UnknownFlavor):
        known = tuple(flavor.name for flavor in flavors())
        return {
            "code": "flavor.unknown",
            "kind": "invalid",
            "field": "flavor",
            "value": error.name,
            "limit": listing(known),
            "because": "a flavor is a generation of LLVM that kinfolk emits for",
            "remedy": f"Pass --flavor {known[-1]}.",
            "plugin": "kinfolk-core",
        }
    return {
        "code": error_code(error),
        "field": error.hook if isinstance(error, HookFault) else "",
        "value": None,
        "limit": "",
        "because": f"{error.hook} {error.cause}" if isinstance(error, HookFault) else _sentence(error),
        "remedy": f"{TRACEBACK} prints where." if isinstance(error, HookFault) or _is_ours(error) else "",
        "plugin": error.plugin if isinstance(error, HookFault) else "kinfolk-core",
    }


def error_code(error: Exception) -> str:
    """Return `error.` and the name of an error's class."""
    return "error." + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__.lstrip("_")).lower()


def _is_ours(error: Exception) -> bool:
    """Return whether an error is none that anyone raised on purpose."""
    return not isinstance(error, KinfolkError) or isinstance(error, InternalError)


def _sentence(error: Exception) -> str:
    return str(error) if isinstance(error, KinfolkError) else sentence_of(error)


def show_traceback(error: BaseException) -> None:
    """Print an error's whole traceback on standard error, if the command line has --traceback."""
    context = click.get_current_context(silent=True)
    if context is not None and context.find_root().params.get("traceback"):
        click.echo("".join(traceback.format_exception(error)).rstrip(), err=True)
