"""What waves did when, as a picture: a line per wave, time to the right, a colour per cause, pale where it stands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

import attrs

from kinfolk.timing import CAUSES, Cause, Timing, WaveTiming
from kinfolk_runtime.profile.picture import CannotDraw, module_of_pillow

COLUMNS, TEXT_COLUMNS = 1200, 64
"""In how many pieces time is cut, in a picture and in text; each has the cause that most of it goes to."""
LEFT, RIGHT, TOP, ROW, GAP, BOTTOM = 110, 80, 44, 10, 2, 44
"""Pixels: the margins, the height of a wave's line and what separates lines."""
COLOURS: Final[dict[Cause, tuple[int, int, int]]] = {
    "matrix": (44, 123, 182),
    "vector": (26, 150, 65),
    "scalar": (140, 140, 140),
    "workgroup_memory": (230, 171, 2),
    "memory_latency": (215, 25, 28),
    "memory_bandwidth": (122, 1, 119),
    "barrier": (64, 64, 64),
    "branch": (166, 97, 26),
}
LETTERS: Final[dict[Cause, str]] = {
    "matrix": "X",
    "vector": "V",
    "scalar": "S",
    "workgroup_memory": "W",
    "memory_latency": "L",
    "memory_bandwidth": "B",
    "barrier": "|",
    "branch": "J",
}
Piece = tuple[Cause, bool] | None
"""The cause that a piece of time goes to, and whether the wave stood still; None where it did not run."""


@attrs.frozen(eq=False)
class Timeline:
    """A launch's waves over time."""

    timing: Timing

    def text(self) -> str:
        """Return the picture as text: small letters where waves stand still."""
        lines = [self._title]
        for wave in self.timing.waves:
            pieces = _pieces(wave, self.timing.clocks, TEXT_COLUMNS)
            lines.append(f"{_name(wave):>14} {''.join(map(_letter, pieces))}".rstrip())
        letters = [f"{letter} {cause.replace('_', ' ')}" for cause, letter in LETTERS.items()]
        legend = [", ".join(letters[:4]), ", ".join(letters[4:]), "small letters and · : standing still"]
        return "\n".join([*lines, *legend])

    def draw(self, path: Path) -> None:
        """Write the picture to a file: SVG by its suffix, else what Pillow writes of that suffix."""
        if path.suffix.lower() == ".svg":
            path.write_text(self.svg(), encoding="utf-8")
        else:
            self._paint(path)

    def svg(self) -> str:
        """Return the picture as SVG."""
        width, height = self._size
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif"'
            f' font-size="10"><rect width="{width}" height="{height}" fill="white"/>'
        ]
        parts += [
            f'<rect x="{x}" y="{y}" width="{w}" height="{h}" fill="rgb{colour}"/>'.replace(", ", ",")
            for x, y, w, h, colour in self._boxes()
        ]
        parts += [f'<text x="{x}" y="{y + 9}">{escape(words)}</text>' for x, y, words in self._words()]
        return "\n".join([*parts, "</svg>\n"])

    def _paint(self, path: Path) -> None:
        image, drawing = module_of_pillow("Image"), module_of_pillow("ImageDraw")
        canvas = image.new("RGB", self._size, "white")
        pen = drawing.Draw(canvas)
        for x, y, w, h, colour in self._boxes():
            pen.rectangle((x, y, x + w - 1, y + h - 1), colour)
        for x, y, words in self._words():
            pen.text((x, y), words, "black")
        canvas.save(path)

    @property
    def _title(self) -> str:
        timing = self.timing
        return f"{timing.symbol}: {timing.clocks:,.0f} clocks, {timing.timed} of {timing.share} workgroups"

    @property
    def _size(self) -> tuple[int, int]:
        return LEFT + COLUMNS + RIGHT, TOP + len(self.timing.waves) * (ROW + GAP) + BOTTOM

    def _boxes(self) -> Iterator[tuple[int, int, int, int, tuple[int, int, int]]]:
        """Yield x, y, width, height and colour of what is filled."""
        for line, wave in enumerate(self.timing.waves):
            pieces = _pieces(wave, self.timing.clocks, COLUMNS)
            begin = 0
            for end in range(1, COLUMNS + 1):
                if end < COLUMNS and pieces[end] == pieces[begin]:
                    continue
                piece = pieces[begin]
                if piece is not None:
                    yield LEFT + begin, TOP + line * (ROW + GAP), end - begin, ROW, _colour(*piece)
                begin = end
        for number, cause in enumerate(CAUSES):
            x, y = LEFT + 150 * number, self._size[1] - 20
            yield x, y, 10, 10, _colour(cause, False)
            yield x + 10, y, 10, 10, _colour(cause, True)

    def _words(self) -> Iterator[tuple[int, int, str]]:
        yield 8, 4, self._title
        for line, wave in enumerate(self.timing.waves):
            yield 8, TOP + line * (ROW + GAP), _name(wave)
        for tenth in range(0, 11, 2):
            yield LEFT + COLUMNS * tenth // 10, TOP - 14, f"{self.timing.clocks * tenth / 10:,.0f}"
        for number, cause in enumerate(CAUSES):
            yield LEFT + 150 * number + 24, self._size[1] - 20, cause.replace("_", " ")
        yield 8, self._size[1] - 36, "pale: the wave stands still"


def check_timeline(path: Path) -> None:
    """Raise CannotDraw where a picture could not be written there."""
    from kinfolk_runtime.profile.picture import check_drawable

    if path.suffix.lower() != ".svg":
        check_drawable(path)
    elif not path.parent.is_dir():
        raise CannotDraw(f"{path.parent} is no folder; make it first")


def _name(wave: WaveTiming) -> str:
    return f"{wave.workgroup}.{wave.number} SIMD {wave.simd}"


def _pieces(wave: WaveTiming, clocks: float, columns: int) -> list[Piece]:
    """Return what most of each piece of time goes to."""
    spent: list[dict[tuple[Cause, bool], float]] = [{} for _ in range(columns)]
    for span in wave.spans:
        first, last = (min(columns - 1, int(at * columns / clocks)) for at in (span.begin, span.end))
        for column in range(first, last + 1):
            begin, end = max(span.begin, column * clocks / columns), min(span.end, (column + 1) * clocks / columns)
            if end > begin:
                key = (span.cause, span.stalled)
                spent[column][key] = spent[column].get(key, 0.0) + end - begin
    return [max(each, key=lambda key: each[key]) if each else None for each in spent]


def _letter(piece: Piece) -> str:
    if piece is None:
        return " "
    cause, stalled = piece
    return ("·" if cause == "barrier" else LETTERS[cause].lower()) if stalled else LETTERS[cause]


def _colour(cause: Cause, stalled: bool) -> tuple[int, int, int]:
    red, green, blue = COLOURS[cause]
    return ((red + 510) // 3, (green + 510) // 3, (blue + 510) // 3) if stalled else (red, green, blue)
