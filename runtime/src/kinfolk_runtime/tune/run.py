"""The search for every instance of a family on an arch, in worker processes, and the file of its winners."""

from __future__ import annotations

import functools
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.errors import KinfolkError
from kinfolk.flavor import flavor_named
from kinfolk.record import class_name
from kinfolk.schedule import FOLDER, ScheduleSpace, StoredSchedule, file_name, written
from kinfolk.spec import Spec
from kinfolk_runtime.tune.journal import Journal
from kinfolk_runtime.tune.score import Scored, score
from kinfolk_runtime.tune.search import Choice, Grid, search

if TYPE_CHECKING:
    from kinfolk.candidate import Candidate
    from kinfolk.plugins.composition import Composition

POINTS: Final = 40
"""Schedules that are compiled per instance unless asked otherwise."""
Step = Callable[[str], None]


@attrs.frozen(eq=False)
class Instance:
    """A spec with its default schedule, and the space around it."""

    candidate: Candidate
    spec: Spec
    space: ScheduleSpace


@attrs.frozen(kw_only=True, eq=False)
class Tuned:
    """What a search came to for an instance."""

    instance: Instance
    choice: Choice
    entry: StoredSchedule | None


def instances(composition: Composition, flavor: str, candidate: str | None = None) -> tuple[Instance, ...]:
    """Return the instances of a composition that have a schedule space, of one candidate by name or of all."""
    rank = flavor_named(flavor).rank
    found: dict[str, Instance] = {}
    for each in composition.candidates():
        if each.min_llvm > rank or candidate not in (None, each.name):
            continue
        for spec in each.default_specs(composition.arch, flavor):
            space = each.schedules_of(spec)
            if space is not None and not composition.validate_spec(spec):
                found.setdefault(spec.identity(), Instance(each, spec, space))
    return tuple(found.values())


def tune(
    composition: Composition,
    flavor: str,
    *,
    candidate: str | None = None,
    points: int = POINTS,
    seed: int = 0,
    jobs: int | None = None,
    step: Step = lambda name: None,
) -> Iterator[Tuned]:
    """Search every instance, with `jobs` processes (by default one a core), and yield what each comes to.

    What was scored before stands in a journal and is not compiled again. Raises ToolError where no toolchain of this
    host takes the flavor, Refused where the arch's machine code cannot be read.
    """
    from kinfolk_runtime.toolchains.host import toolchain_for

    build = toolchain_for(flavor).build
    journal = Journal.of(composition, flavor, build)
    count = jobs or os.cpu_count() or 1
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as workers:
        job = functools.partial(_scored, composition.family, composition.arch.name, flavor)

        def score_all(specs: Sequence[Spec]) -> list[Scored]:
            missing = [spec for spec in specs if journal.get(spec) is None]
            found: dict[Spec, Scored] = {}
            for spec, scored in zip(missing, workers.map(job, missing), strict=True):
                journal.add(spec, scored)
                found[spec] = scored
                step(spec.symbol())
            return [found.get(spec) or _kept(journal, spec) for spec in specs]

        for instance in instances(composition, flavor, candidate):
            choice = search(Grid.of(instance.spec, instance.space), score_all, points=points, seed=seed)
            yield Tuned(instance=instance, choice=choice, entry=_entry(instance, choice, build, seed))


def _kept(journal: Journal, spec: Spec) -> Scored:
    found = journal.get(spec)
    assert found is not None
    return found


def _scored(family: str, arch: str, flavor: str, spec: Spec) -> Scored:
    """Score a spec in a worker process."""
    from kinfolk.plugins.composition import compose

    return score(compose(family, arch), spec, flavor)


def _entry(instance: Instance, choice: Choice, build: str, seed: int) -> StoredSchedule | None:
    if choice.schedule is None or choice.scored is None:
        return None
    return StoredSchedule(
        spec=class_name(type(instance.spec)),
        instance=instance.space.instance(instance.spec),
        schedule=choice.schedule,
        clocks={"llvm": choice.scored.llvm, "real": choice.scored.real},
        build=build,
        points=choice.points,
        seed=seed,
    )


def store(composition: Composition, flavor: str, entries: Iterable[StoredSchedule]) -> Path:
    """Write winners into the family's package beside those of other instances, and return the file.

    Raises KinfolkError where the package is in no folder that can be written.
    """
    from importlib import resources

    offer = next(member.offer for member in composition.members if member.offer.kind == "family")
    root = resources.files(offer.module.partition(".")[0])
    if not isinstance(root, Path):
        raise KinfolkError(f"the family {offer.name} is in no package with a folder, in which schedules are kept")
    target = composition.arch.target_ids[0].partition(":")[0]
    path = root / FOLDER / file_name(target, flavor)
    fresh = {entry.key: entry for entry in entries}
    kept = {entry.key: entry for entry in stored(composition, flavor)}
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text(written((kept | fresh).values()), encoding="utf-8")
    except OSError as error:
        raise KinfolkError(f"{path} cannot be written: {error.strerror}") from error
    return path


def stored(composition: Composition, flavor: str) -> tuple[StoredSchedule, ...]:
    """Return every entry that the candidates of a composition read for a flavor."""
    spaces = [space for each in composition.candidates() for space in each.schedules]
    entries = [entry for space in spaces for entry in space.table.entries(composition.arch, flavor)]
    return tuple({entry.key: entry for entry in entries}.values())
