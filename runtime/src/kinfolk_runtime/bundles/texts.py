"""Texts with numbers in them, as a list of strings and expressions: no host has to read Python's format strings."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from typing import Any

from kinfolk.expr import Expr, from_data
from kinfolk_runtime.bundles.document import BundleError


def pieces(text: str, numbers: Iterable[tuple[str, Expr]] | Mapping[str, Expr]) -> list[Any]:
    """Return a format string as literal strings and trees; BundleError for a form that is more than a name."""
    named = dict(numbers)
    if not named:
        return [text]  # such a text is not formatted: its braces are its own
    found: list[Any] = []
    for literal, name, form, conversion in string.Formatter().parse(text):
        if literal:
            found.append(literal)
        if name is None:
            continue
        if form or conversion or name not in named:
            raise BundleError(f"{text!r} names {{{name}}}; a text names {', '.join(named) or 'nothing'}, and no format")
        found.append(named[name].data())
    return found


def has_numbers(data: Iterable[Any]) -> bool:
    """Return whether a text has numbers in it."""
    return any(not isinstance(piece, str) for piece in data)


def template(data: Iterable[Any], prefix: str, *, formatted: bool) -> tuple[str, dict[str, Expr]]:
    """Return the text that gave these pieces, a format string where it is `formatted`, and its numbers by name."""
    words: list[str] = []
    numbers: dict[str, Expr] = {}
    for piece in data:
        if isinstance(piece, str):
            words.append(piece.replace("{", "{{").replace("}", "}}") if formatted else piece)
        else:
            name = f"{prefix}{len(numbers)}"
            numbers[name] = from_data(piece)
            words.append(f"{{{name}}}")
    return "".join(words), numbers
