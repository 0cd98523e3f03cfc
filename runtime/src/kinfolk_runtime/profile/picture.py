"""The worst access to workgroup memory as a picture: lanes down, banks across, and the words a bank must give."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.banks import BankModel
from kinfolk.errors import KinfolkError
from kinfolk_runtime.profile.counts import Instruction, WorkgroupAccess

if TYPE_CHECKING:
    from kinfolk_runtime.profile.report import Profile

REMEDY: Final = "install it with: pip install 'kinfolk-runtime[plot]'. --plot - prints the picture as text without it"
CELL, LEFT, TOP, GAP, BOTTOM = 14, 64, 66, 6, 40
"""Pixels: the side of a cell, the margins for labels, what separates phases, the legend."""
COLOURS: Final = ((1, (158, 202, 225)), (2, (253, 208, 95)), (4, (246, 140, 61)), (1 << 30, (189, 29, 45)))
"""The colour of a cell whose bank has to give so many times its fair number of words, or fewer."""


class CannotDraw(KinfolkError):
    """There is nothing to draw, or nothing to draw it with."""


@attrs.frozen(eq=False)
class BankPicture:
    """One access of a wave, by phases: `groups` are the lanes served together, `cells` [lanes of all groups, banks].

    A cell counts the distinct words that the lane's group wants of a bank, 0 where the lane itself wants none; more
    than `fair` is a conflict. That is 1 where phases are known; else all lanes are one group, served in several cycles.
    """

    title: tuple[str, ...]
    fair: int
    groups: tuple[tuple[int, ...], ...]
    cells: npt.NDArray[np.int64]

    @classmethod
    def of(cls, instruction: Instruction, model: BankModel) -> BankPicture:
        """Return the picture of an instruction's worst access; of several accesses per lane, the worst of them."""
        access, cost = instruction.worst, instruction.worst_cost
        if access is None or cost is None:
            raise CannotDraw(f"{instruction.name} makes no access to workgroup memory that could be drawn")
        parts = model.parts(access.lane_bytes, access.alignment)
        moved, size = max(
            parts,
            key=lambda part: model.cost(access.action, part[1], access.addresses + part[0], access.lanes).conflicts,
        )
        phases = model.phases_of(access.action, size)
        groups = [tuple(access.lanes.tolist())] if phases is None else list(phases.lanes)
        active = set(access.lanes.tolist())
        kept = tuple(lanes for group in groups if (lanes := tuple(lane for lane in group if lane in active)))
        title = [
            f"{instruction.name} at {instruction.source.partition(',')[0]}: {access.action.replace('_', ' ')} of "
            f"{access.lane_bytes} bytes a lane",
            f"{'' if cost.exact else 'at least '}{cost.cycles} cycles, {cost.fewest} without conflicts",
        ]
        if phases is None:
            title.append("which lanes are served together is not known: all are drawn together")
        fair = 1 if phases else model.cost(access.action, size, access.addresses + moved, access.lanes).fewest
        cells = np.concatenate([_cells(model, access, lanes, moved, size) for lanes in kept])
        return cls(tuple(title), fair, kept, cells)

    def rows(self) -> Iterator[tuple[int, int, npt.NDArray[np.int64]]]:
        """Yield (group, lane, cells of the lane)."""
        lanes = [(number, lane) for number, group in enumerate(self.groups) for lane in group]
        for (number, lane), cells in zip(lanes, self.cells, strict=True):
            yield number, lane, cells

    def text(self) -> str:
        """Return the picture as text: a line per lane, a column per bank, a blank line between phases."""
        banks = self.cells.shape[1]
        lines = [*self.title, "lane  bank " + "".join(f"{bank:<8}" for bank in range(0, banks, 8)).rstrip()]
        before = 0
        for number, lane, cells in self.rows():
            if number != before:
                lines.append("")
            before = number
            lines.append(f"{lane:>4}       " + "".join("·" if n == 0 else str(n) if n < 10 else "+" for n in cells))
        return "\n".join(lines)

    def draw(self, path: Path) -> None:
        """Write the picture to a file, in the format of its suffix."""
        image, drawing = module_of_pillow("Image"), module_of_pillow("ImageDraw")
        banks = self.cells.shape[1]
        width = max(LEFT + banks * CELL + GAP, 560)
        height = TOP + len(self.cells) * CELL + (len(self.groups) - 1) * GAP + BOTTOM
        canvas = image.new("RGB", (width, height), "white")
        pen = drawing.Draw(canvas)
        for number, line in enumerate(self.title):
            pen.text((GAP, 4 + 14 * number), line, "black")
        for bank in range(0, banks, 4):
            pen.text((LEFT + bank * CELL + 1, TOP - 15), str(bank), "black")
        pen.text((GAP, TOP - 15), "lane / bank", "black")
        for line, (number, lane, cells) in enumerate(self.rows()):
            y = TOP + line * CELL + number * GAP
            pen.text((LEFT - 22, y + 1), f"{lane:>2}", "black")
            for bank, wanted in enumerate(cells.tolist()):
                x = LEFT + bank * CELL
                pen.rectangle((x, y, x + CELL, y + CELL), self._colour(wanted), (224, 224, 224))
                if wanted > 1:
                    pen.text((x + 2, y + 1), str(wanted), "black")
        self._legend(pen, height - BOTTOM + GAP)
        canvas.save(path)

    def _colour(self, wanted: int) -> tuple[int, int, int]:
        return (255, 255, 255) if not wanted else next(colour for n, colour in COLOURS if wanted <= n * self.fair)

    def _legend(self, pen: Any, y: int) -> None:
        for number, (times, colour) in enumerate(COLOURS):
            x = LEFT + 120 * number
            pen.rectangle((x, y, x + CELL, y + CELL), colour, (224, 224, 224))
            words = f"up to {times * self.fair} words" if number < len(COLOURS) - 1 else "more"
            pen.text((x + CELL + 4, y + 1), words, "black")


def worst_picture(profile: Profile) -> BankPicture:
    """Return the picture of the access with the most bank conflicts of all kernels, or raise CannotDraw."""
    known = [(kernel.counts.banks, kernel.worst_banks) for kernel in profile.kernels]
    found = [(banks, worst) for banks, worst in known if banks is not None and worst is not None]
    if not found:
        raise CannotDraw("nothing to draw: no kernel made an access to workgroup memory whose banks are declared")
    banks, worst = max(found, key=lambda each: each[1].worst_cost.conflicts if each[1].worst_cost else 0)
    return BankPicture.of(worst, banks)


def check_drawable(path: Path) -> None:
    """Raise CannotDraw where a picture could not be written there: no Pillow, no folder, no format of that suffix."""
    known = sorted(module_of_pillow("Image").registered_extensions())
    if path.suffix.lower() not in known:
        raise CannotDraw(f"{path} names no format of pictures by its suffix; one is .png")
    if not path.parent.is_dir():
        raise CannotDraw(f"{path.parent} is no folder; make it first")


def module_of_pillow(name: str) -> Any:
    """Return a module of Pillow; CannotDraw where it is not installed."""
    import importlib

    try:
        return importlib.import_module(f"PIL.{name}")
    except ImportError as error:
        raise CannotDraw(f"drawing needs Pillow, which is not here ({error}); {REMEDY}") from None


def _cells(
    model: BankModel, access: WorkgroupAccess, lanes: tuple[int, ...], moved: int, size: int
) -> npt.NDArray[np.int64]:
    mine = np.isin(access.lanes, lanes)
    order = np.argsort([lanes.index(lane) for lane in access.lanes[mine].tolist()])
    words = model.words(access.addresses[mine][order] + moved, size)
    cells = np.zeros((len(lanes), model.banks), np.int64)
    np.put_along_axis(cells, words % model.banks, model.demand(words)[words % model.banks], axis=1)
    return cells
