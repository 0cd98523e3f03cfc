"""Tables for people: whole lines in a pipe; on a terminal, columns that are broken between words or not at all."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from typing import Final

import click

from kinfolk.cli.output import say, terminal_width

PIPE_WIDTH: Final = 4096
BETWEEN: Final = 3
"""Columns that a rule and its spaces take."""
LEAST: Final = 24
"""Fewer columns than this are no room for sentences."""
Rows = list[list[str]]


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; nothing in a cell is markup.

    A table that is too wide for the terminal breaks the sentences of its last column between words; where they have no
    room, they follow below, each behind as many cells of its row as tell the rows apart; other columns are broken
    between words, and at last told in several tables, each with the first column.
    """
    if title:
        say(title)
    _print(list(columns), [[str(cell) for cell in row] for row in rows], terminal_width() or PIPE_WIDTH)


def _print(columns: list[str], rows: Rows, width: int) -> None:
    natural = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    if _total(natural) <= width:
        return _show(columns, rows, width, natural)
    least = [max(map(_longest_word, column)) for column in zip(columns, *rows, strict=True)]
    room = width - _total([*natural[:-1], 0])
    if room >= max(LEAST, least[-1]):
        return _show(columns, rows, width, [*natural[:-1], room])
    if any(len(row[-1]) > LEAST and " " in row[-1] for row in rows) and len(columns) > 1:
        _print(columns[:-1], [row[:-1] for row in rows], width)
        say(f"{columns[-1]}:")
        for label, row in zip(_labels([row[:-1] for row in rows]), rows, strict=True):
            if row[-1]:
                say(f"  {label}: {row[-1]}", "  ")
        return None
    if _total(least) <= width:
        return _show(columns, rows, width, _shared(least, natural, width))
    return _print_parts(columns, rows, width, natural)


def _labels(rows: Rows) -> list[str]:
    """Return what rows are called: as few of their first cells as differ for all, the first alone where none do."""
    for length in range(1, len(rows[0]) + 1):
        labels = [" ".join(row[:length]) for row in rows]
        if len(set(labels)) == len(rows):
            return labels
    return [row[0] for row in rows]


def _print_parts(columns: list[str], rows: Rows, width: int, natural: Sequence[int]) -> None:
    """Print as many columns beside the first as fit, then the next ones; a cell that is wider alone is broken."""
    start = 1
    while start < len(columns):
        end = start + 1
        while end < len(columns) and _total([natural[0], *natural[start : end + 1]]) <= width:
            end += 1
        taken = [0, *range(start, end)]
        widths = [natural[index] for index in taken]
        widths[-1] = min(widths[-1], max(LEAST, width - _total([*widths[:-1], 0])))
        _show([columns[i] for i in taken], [[row[i] for i in taken] for row in rows], width, widths)
        start = end


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + BETWEEN * (len(widths) - 1)


def _longest_word(text: str) -> int:
    return max(map(len, re.split(r"\s+", text)))


def _shared(least: Sequence[int], natural: Sequence[int], width: int) -> list[int]:
    """Return widths between the longest word and the whole cell, what is left given to the columns in their order."""
    left = width - _total(least)
    widths: list[int] = []
    for low, high in zip(least, natural, strict=True):
        widths.append(low + min(left, high - low))
        left -= widths[-1] - low
    return widths


def _show(columns: Sequence[str], rows: Rows, width: int, widths: Sequence[int]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, width=width)
    if terminal_width() is None:
        console = Console(highlight=False, file=io.StringIO(), width=width)
    table = Table(show_edge=False, pad_edge=False)
    for column, taken in zip(columns, widths, strict=True):
        table.add_column(column, overflow="fold", width=taken)
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
    if isinstance(console.file, io.StringIO):
        for line in console.file.getvalue().splitlines():
            click.echo(line.rstrip())
