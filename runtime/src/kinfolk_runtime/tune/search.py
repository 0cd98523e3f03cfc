"""A seeded search of a grid of schedules: from the default to better neighbours, then elsewhere at random.

The points and their order follow from the seed, the grid and the scores, not from how many are scored at a time.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from kinfolk.schedule import ScheduleSpace, Setting
from kinfolk.spec import Spec
from kinfolk_runtime.tune.score import Scored

GENERATION: Final = 8
"""Points that are tried elsewhere at once when no neighbour is left."""
EDGE_REGISTERS: Final = 4
"""A point that leaves fewer registers than these is at the edge: another build of the compiler may not fit it."""
WORTHWHILE: Final = 0.005
"""The share by which a schedule must be better than the default to take its place."""
Point = tuple[int, ...]
Score = Callable[[Sequence[Spec]], Sequence[Scored]]


@attrs.frozen(eq=False)
class Grid:
    """The schedules of one spec as points: an index per field into its values. Its own schedule is among them."""

    spec: Spec
    space: ScheduleSpace
    values: Mapping[str, tuple[Setting, ...]]
    start: Point

    @classmethod
    def of(cls, spec: Spec, space: ScheduleSpace) -> Grid:
        """Return the grid around a spec; a value of its own that the space lacks takes its place among the others."""
        values: dict[str, tuple[Setting, ...]] = {}
        for name, known in space.values.items():
            own: Setting = getattr(spec, name)
            every = known if own in known else (*known, own)
            values[name] = every if any(type(each) is str for each in every) else tuple(sorted(every))
        return cls(spec, space, values, tuple(each.index(getattr(spec, name)) for name, each in values.items()))

    def schedule(self, point: Point) -> dict[str, Setting]:
        """Return the fields of a point."""
        return {name: each[index] for (name, each), index in zip(self.values.items(), point, strict=True)}

    def spec_at(self, point: Point) -> Spec:
        """Return the spec of a point."""
        return self.space.with_schedule(self.spec, self.schedule(point))

    def neighbours(self, point: Point) -> list[Point]:
        """Return the points one step away in one field."""
        sizes = [len(each) for each in self.values.values()]
        steps = ((field, step) for field in range(len(point)) for step in (-1, 1))
        moved = ((field, point[field] + step) for field, step in steps)
        return [(*point[:field], to, *point[field + 1 :]) for field, to in moved if 0 <= to < sizes[field]]

    def elsewhere(self, draw: random.Random, known: Mapping[Point, Scored]) -> Iterator[Point]:
        """Yield points that are not known, in an order that is drawn."""
        every = list(itertools.product(*(range(len(each)) for each in self.values.values())))
        draw.shuffle(every)
        return (point for point in every if point not in known)


@attrs.frozen(kw_only=True)
class Choice:
    """The schedule that was chosen with its score, the default's, and how many points were compiled for it.

    `passed_over` are better points that are too near the edge. Where no point that is safe is better, the default stays
    though it may not be `safe` itself; none is chosen where it is not even clean.
    """

    schedule: Mapping[str, Setting] | None
    scored: Scored | None
    default: Scored
    points: int
    passed_over: int
    safe: bool = True


def search(grid: Grid, score: Score, *, points: int, seed: int) -> Choice:
    """Return the best schedule of about so many points.

    Every neighbour of the best point so far is tried, and when none is left, points elsewhere. Of points that leave
    fewer than EDGE_REGISTERS only those are chosen whose every neighbour passes the gate, for which a few more points
    than `points` may be compiled.
    """
    draw, known = random.Random(seed), dict[Point, Scored]()

    def try_all(fresh: Sequence[Point]) -> None:
        known.update(zip(fresh, score([grid.spec_at(point) for point in fresh]), strict=True))

    try_all([grid.start])
    while len(known) < points:
        fresh = [point for point in grid.neighbours(_ranked(known, grid)[0]) if point not in known]
        draw.shuffle(fresh)
        if not fresh:
            fresh = list(itertools.islice(grid.elsewhere(draw, known), GENERATION))
        if not fresh:
            break
        try_all(fresh[: points - len(known)])
    passed_over = 0
    for point in _ranked(known, grid):
        if not known[point].clean:
            break
        if _worthwhile(known[point], known[grid.start], point == grid.start) and _safe(point, grid, known, try_all):
            return _choice(point, grid, known, passed_over)
        passed_over += known[point].clocks < known[grid.start].clocks
    return attrs.evolve(_choice(grid.start, grid, known, passed_over), safe=False)


def _choice(point: Point, grid: Grid, known: Mapping[Point, Scored], passed_over: int) -> Choice:
    clean = known[point].clean
    return Choice(
        schedule=grid.schedule(point) if clean else None,
        scored=known[point] if clean else None,
        default=known[grid.start],
        points=len(known),
        passed_over=passed_over,
    )


def _ranked(known: Mapping[Point, Scored], grid: Grid) -> list[Point]:
    """Return the points, best first: clean ones, by clocks; of equal ones those with more room, then the default."""

    def rank(point: Point) -> tuple[object, ...]:
        found = known[point]
        return (
            not found.clean,
            found.clocks,
            found.llvm + found.real,
            -found.spare_registers,
            point != grid.start,
            point,
        )

    return sorted(known, key=rank)


def _worthwhile(found: Scored, default: Scored, is_default: bool) -> bool:
    """Whether a point may take the default's place: by enough, or where the default is not clean."""
    return is_default or not default.clean or found.clocks <= default.clocks * (1 - WORTHWHILE)


def _safe(point: Point, grid: Grid, known: dict[Point, Scored], try_all: Callable[[Sequence[Point]], None]) -> bool:
    """Whether a point is not at the edge, or no step from it leads over the edge. What no plugin takes is no edge."""
    if known[point].spare_registers >= EDGE_REGISTERS:
        return True
    around = grid.neighbours(point)
    if any(each in known and known[each].state == "refused" for each in around):
        return False
    try_all([each for each in around if each not in known])
    return all(known[each].state != "refused" for each in around)
