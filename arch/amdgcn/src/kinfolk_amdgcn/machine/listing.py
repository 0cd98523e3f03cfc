"""Instructions of one function, line by line with their labels, cut into blocks at jumps and labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import attrs

JUMP: Final = re.compile(r"s_c?branch")
END: Final = re.compile(r"s_(endpgm|setpc_b64|trap)")
ALWAYS: Final = "s_branch"


@attrs.frozen
class Label:
    """A place that is jumped to or falls through; `source` names the block of the LLVM IR where the text does."""

    name: str
    source: str = ""


@attrs.frozen
class Line:
    """An instruction as written; `jumps_to` is the label it may go to, "" for one that does not jump."""

    opcode: str
    operands: str = ""
    jumps_to: str = ""


@attrs.frozen
class Listing:
    """A function's labels and instructions, in order."""

    symbol: str
    items: tuple[Label | Line, ...]


@attrs.frozen
class Piece:
    """A block's lines, its name, and the indices of the blocks that may follow."""

    label: str
    source: str
    lines: tuple[Line, ...]
    successors: tuple[int, ...]


def cut(listing: Listing) -> tuple[Piece, ...]:
    """Return a listing's blocks. A jump out of the function leads nowhere."""
    runs = [(labels, lines) for labels, lines in _runs(listing)]
    places = {label.name: number for number, (labels, _) in enumerate(runs) for label in labels}
    pieces: list[Piece] = []
    for number, (labels, lines) in enumerate(runs):
        follows = number + 1 if number + 1 < len(runs) else None
        source = next((label.source for label in labels if label.source), "")
        name = next((label.name for label in labels), f"#{number}")
        pieces.append(Piece(name, source, tuple(lines), _successors(lines, places, follows)))
    return tuple(pieces)


def _runs(listing: Listing) -> Iterator[tuple[list[Label], list[Line]]]:
    labels: list[Label] = []
    lines: list[Line] = []
    for item in listing.items:
        if isinstance(item, Label):
            if lines:
                yield labels, lines
                labels, lines = [], []
            labels.append(item)
            continue
        lines.append(item)
        if item.jumps_to or END.match(item.opcode):
            yield labels, lines
            labels, lines = [], []
    if lines:
        yield labels, lines


def _successors(lines: list[Line], places: dict[str, int], follows: int | None) -> tuple[int, ...]:
    last = lines[-1]
    if END.match(last.opcode):
        return ()
    targets = [places[last.jumps_to]] if last.jumps_to in places else []
    if last.opcode != ALWAYS and follows is not None:
        targets.append(follows)
    return tuple(dict.fromkeys(targets))
