"""Schedules that were searched for: which fields of a candidate's specs say how and not what, and what was found best.

A family keeps them as package data, a file per target and LLVM generation, and a candidate's `ScheduleSpace` reads
them when the family is composed. Where there is no entry, a spec is as the candidate's plan names it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any, Final

import attrs

from kinfolk.errors import PluginError
from kinfolk.fields import shown
from kinfolk.record import class_name, encode, fields_of

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.spec import Spec

FOLDER: Final = "schedules"
SCHEMA: Final = "kinfolk.schedules/1"
Setting = int | str


@attrs.frozen(kw_only=True)
class StoredSchedule:
    """The best schedule of one instance: a class of spec with every field that is no schedule.

    `clocks` are what it scored per token and 64 heads, by cost model, compiled by `build`; `points` is how many
    schedules were compiled, in an order that `seed` decides.
    """

    spec: str
    instance: Mapping[str, Any]
    schedule: Mapping[str, Setting]
    clocks: Mapping[str, float]
    build: str
    points: int
    seed: int

    @property
    def key(self) -> str:
        """What no two entries of a file share: the class and the instance."""
        return f"{self.spec} {sorted(self.instance.items())}"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return attrs.asdict(self)


def file_name(target: str, flavor: str) -> str:
    """Return the name of the file of a target of the compiler and a flavor."""
    return f"{target}-{flavor}.json"


@attrs.frozen
class ScheduleTable:
    """All stored schedules of a family, by the file that holds them."""

    files: Mapping[str, tuple[StoredSchedule, ...]]

    @classmethod
    def of_package(cls, package: str) -> ScheduleTable:
        """Return what a package keeps in its folder `schedules`; nothing where it has none.

        Raises PluginError for a file that is damaged.
        """
        folder = resources.files(package).joinpath(FOLDER)
        if not folder.is_dir():
            return cls({})
        files = sorted((each for each in folder.iterdir() if each.name.endswith(".json")), key=lambda each: each.name)
        return cls({each.name: _read(each, package) for each in files})

    def entries(self, arch: Arch, flavor: str) -> tuple[StoredSchedule, ...]:
        """Return the entries for what an arch compiles for; a copy of the arch under another name has the same."""
        return self.files.get(file_name(arch.target_ids[0].partition(":")[0], flavor), ())


def _read(file: Traversable, package: str) -> tuple[StoredSchedule, ...]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise ValueError(f"its schema is {document['schema']!r}, this reads {SCHEMA}")
        return tuple(StoredSchedule(**entry) for entry in document["entries"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise PluginError(f"{FOLDER}/{file.name} of {package} is damaged: {error}") from error


def written(entries: Iterable[StoredSchedule]) -> str:
    """Return the text of a file that holds these entries, each a line, in the order of their instances."""
    ordered = sorted(json.dumps(each.to_dict(), sort_keys=True) for each in entries)
    lines = ",\n  ".join(ordered)
    return f'{{"schema": "{SCHEMA}", "entries": [\n  {lines}\n]}}\n'


@attrs.frozen(kw_only=True, eq=False)
class ScheduleSpace:
    """The schedule fields of one class of spec, the values that a search tries for each, and the stored results.

    Values of a field are in an order in which neighbours are alike. What the plan of a candidate gives a spec is the
    default. A schedule changes nothing that a launch depends on: not the parameters, not the block, not the grid.
    """

    spec: type[Spec]
    values: Mapping[str, tuple[Setting, ...]]
    table: ScheduleTable = attrs.field(factory=lambda: ScheduleTable({}), repr=False)
    _tuned: dict[tuple[Spec, str, str], Spec] = attrs.field(
        factory=dict["tuple[Spec, str, str]", "Spec"], init=False, repr=False
    )

    def __attrs_post_init__(self) -> None:
        known = {field.name for field in fields_of(self.spec)}
        if unknown := sorted(self.values.keys() - known):
            raise PluginError(f"{self.spec.__name__} has no field {', '.join(unknown)}, which its schedule space names")

    def covers(self, spec: Spec) -> bool:
        """Whether a spec is of the class that this is about."""
        return type(spec) is self.spec

    def instance(self, spec: Spec) -> dict[str, Any]:
        """Return the fields of a spec that are no schedule, as JSON data."""
        names = [field.name for field in fields_of(self.spec) if field.name not in self.values]
        return {name: encode(getattr(spec, name)) for name in names}

    def stored(self, spec: Spec, arch: Arch, flavor: str) -> StoredSchedule | None:
        """Return the entry for a spec's instance, None where none was searched for."""
        if not self.covers(spec):
            return None
        name, instance = class_name(self.spec), self.instance(spec)
        entries = self.table.entries(arch, flavor)
        return next((each for each in entries if each.spec == name and each.instance == instance), None)

    def tuned(self, spec: Spec, arch: Arch, flavor: str) -> Spec:
        """Return a spec with the stored schedule, or as it is where there is none.

        Raises PluginError for an entry that names other fields or takes what the spec's class does not.
        """
        key = (spec, arch.target_ids[0], flavor)
        found = self._tuned.get(key)
        if found is None:
            entry = self.stored(spec, arch, flavor)
            found = self._tuned[key] = spec if entry is None else self.with_schedule(spec, entry.schedule)
        return found

    def with_schedule(self, spec: Spec, schedule: Mapping[str, Setting]) -> Spec:
        """Return a spec with another schedule, all of its fields. Raises PluginError where it does not fit."""
        if schedule.keys() != self.values.keys():
            raise PluginError(
                f"a stored schedule of {self.spec.__name__} sets {', '.join(sorted(schedule))}; its schedule fields "
                f"are {', '.join(sorted(self.values))}. Search it again: kinfolk tune."
            )
        try:
            return attrs.evolve(spec, **schedule)
        except (TypeError, ValueError) as error:
            told = shown(dict(schedule))
            raise PluginError(f"{self.spec.__name__} does not take the stored schedule {told}: {error}") from error
