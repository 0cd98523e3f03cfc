"""The search on landscapes of which the best point is known: seeded, resumable, and away from the edge."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import attrs
import pytest

from kinfolk.errors import PluginError
from kinfolk.fields import ExactInt, OneOf
from kinfolk.schedule import ScheduleSpace, ScheduleTable, StoredSchedule, file_name, written
from kinfolk.spec import Spec
from kinfolk_runtime.tune import Scored
from kinfolk_runtime.tune.journal import Journal
from kinfolk_runtime.tune.search import EDGE_REGISTERS, Grid, search


@attrs.frozen(kw_only=True)
class HillSpec(Spec):
    """A made-up kernel: `heads` is the instance, the rest a schedule."""

    heads: int = attrs.field(validator=ExactInt(1, 64))
    ahead: int = attrs.field(validator=ExactInt(0, 9))
    depth: int = attrs.field(validator=ExactInt(0, 9))
    way: str = attrs.field(validator=OneOf(("left", "right")))

    def parameters(self):
        return ()


SPACE = ScheduleSpace(
    spec=HillSpec, values={"ahead": tuple(range(10)), "depth": tuple(range(10)), "way": ("left", "right")}
)
DEFAULT = HillSpec(heads=16, ahead=2, depth=2, way="left")
Landscape = Callable[[HillSpec], Scored]


def clean(clocks: float, room: int = 100) -> Scored:
    return Scored(state="clean", llvm=clocks, real=clocks - 1, spare_registers=room)


def bowl(spec: HillSpec) -> Scored:
    """The best point is ahead 6, depth 3, right, at 50."""
    return clean(50 + (spec.ahead - 6) ** 2 + (spec.depth - 3) ** 2 + (spec.way == "left"))


class Asked:
    """A landscape that counts what it is asked, in order."""

    def __init__(self, landscape: Landscape) -> None:
        self.landscape = landscape
        self.specs: list[HillSpec] = []

    def __call__(self, specs: Sequence[Spec]) -> list[Scored]:
        self.specs += specs
        return [self.landscape(spec) for spec in specs]


def searched(landscape: Landscape, points: int = 40, seed: int = 0, spec: HillSpec = DEFAULT):
    asked = Asked(landscape)
    return search(Grid.of(spec, SPACE), asked, points=points, seed=seed), asked.specs


def test_it_walks_to_the_best_point_and_asks_no_point_twice():
    choice, specs = searched(bowl)
    assert choice.schedule == {"ahead": 6, "depth": 3, "way": "right"} and choice.scored == clean(50)
    assert len(specs) == len(set(specs)) == choice.points == 40 and choice.default == bowl(DEFAULT)
    assert specs[0] == DEFAULT and choice.safe and choice.passed_over == 0


def test_the_order_follows_from_the_seed_alone():
    assert searched(bowl)[1] == searched(bowl)[1] != searched(bowl, seed=1)[1]
    assert searched(bowl, points=12)[1] == searched(bowl)[1][:12], "more points go on where fewer stop"


def test_it_leaves_a_hollow_in_which_every_neighbour_is_worse():
    def two(spec: HillSpec) -> Scored:
        near = (spec.ahead, spec.depth) == (2, 2)
        return clean(60 if near else 20 + spec.ahead if spec.depth == 9 else 90)

    choice, _ = searched(two, points=120)
    assert choice.schedule is not None and choice.schedule["depth"] == 9 and choice.schedule["ahead"] == 0


def test_a_whole_space_is_searched_once():
    assert searched(bowl, points=1000)[0].points == 200


def cliff(room: int) -> Landscape:
    """Deeper is better up to 6; at 7 the gate refuses. Registers run out on the way."""

    def landscape(spec: HillSpec) -> Scored:
        if spec.depth >= 7:
            return Scored(state="refused", why="scratch")
        return clean(50 - 3 * spec.depth, room if spec.depth == 6 else 40)

    return landscape


def test_a_point_beside_the_edge_with_no_room_left_is_passed_over():
    choice, _ = searched(cliff(EDGE_REGISTERS - 1))
    assert choice.schedule is not None and choice.schedule["depth"] == 5 and choice.passed_over > 0


def test_the_control_with_room_left_it_is_taken():
    choice, _ = searched(cliff(EDGE_REGISTERS))
    assert choice.schedule is not None and choice.schedule["depth"] == 6 and choice.passed_over == 0


def test_with_no_room_left_it_is_taken_if_nothing_around_is_refused():
    """What no plugin takes is no edge: a read-ahead of more than there are reads says nothing about registers."""

    def walled(spec: HillSpec) -> Scored:
        found = cliff(0)(spec)
        return found if found.clean else Scored(state="invalid", why="as many as there are")

    choice, _ = searched(walled)
    assert choice.schedule is not None and choice.schedule["depth"] == 6 and choice.safe


def test_the_neighbours_of_a_winner_are_compiled_though_the_points_are_used_up():
    choice, specs = searched(lambda spec: clean(50 - spec.depth, 0), points=2)
    assert choice.points == len(specs) > 2 and choice.safe and choice.schedule is not None
    grid = Grid.of(attrs.evolve(DEFAULT, **choice.schedule), SPACE)
    assert {grid.spec_at(point) for point in grid.neighbours(grid.start)} <= set(specs)


@pytest.mark.parametrize("gain, moved", [(0.0049, False), (0.0051, True)])
def test_the_default_stays_unless_another_is_better_by_enough(gain, moved):
    choice, _ = searched(lambda spec: clean(100.0 if spec == DEFAULT else 100 * (1 - gain)), points=9)
    assert choice.schedule is not None and (choice.schedule != {"ahead": 2, "depth": 2, "way": "left"}) == moved


def test_a_default_at_the_edge_stays_where_nothing_safe_is_better_and_is_told_so():
    def lonely(spec: HillSpec) -> Scored:
        return clean(50, 0) if spec == DEFAULT else Scored(state="refused", why="scratch")

    choice, _ = searched(lonely)
    assert choice.schedule == {"ahead": 2, "depth": 2, "way": "left"} and not choice.safe


def test_where_nothing_is_clean_nothing_is_chosen():
    choice, _ = searched(lambda spec: Scored(state="refused", why="scratch"))
    assert (choice.schedule, choice.scored, choice.safe) == (None, None, False)


def test_the_slower_of_both_models_is_what_counts():
    def models(spec: HillSpec) -> Scored:
        return Scored(state="clean", llvm=50 - spec.depth, real=50 + spec.depth, spare_registers=40)

    choice, _ = searched(models)
    assert choice.schedule is not None and choice.schedule["depth"] == 0


# What was scored is kept.


def test_a_search_goes_on_where_it_was_interrupted(tmp_path):
    about = {"flavor": "llvm22", "build": "b", "sources": "s"}
    journal = Journal(tmp_path / "tune" / "j.jsonl", about)
    for spec in searched(bowl)[1][:15]:
        journal.add(spec, bowl(spec))
    with journal.path.open("a") as file:
        file.write('{"flavor": "llvm22", "build": "b", "sou')  # killed while writing
    again = Journal(journal.path, about)
    asked = [spec for spec in searched(bowl)[1] if again.get(spec) is None]
    assert len(again) == 15 and len(asked) == 25
    assert again.get(DEFAULT) == bowl(DEFAULT)


@pytest.mark.parametrize("changed", ["flavor", "build", "sources"])
def test_scores_of_another_compiler_or_other_sources_are_not_taken(tmp_path, changed):
    about = {"flavor": "llvm22", "build": "b", "sources": "s"}
    Journal(tmp_path / "j.jsonl", about).add(DEFAULT, bowl(DEFAULT))
    assert Journal(tmp_path / "j.jsonl", about).get(DEFAULT) is not None
    assert Journal(tmp_path / "j.jsonl", about | {changed: "other"}).get(DEFAULT) is None
    assert Journal(tmp_path / "j.jsonl", about | {"sources": ""}).get(DEFAULT) is None, "nobody can tell the sources"


@pytest.mark.parametrize("line", ["", "[]", "{}", '{"scored": 3}', "\x00"])
def test_a_damaged_line_is_left_out(tmp_path, line):
    (tmp_path / "j.jsonl").write_text(f"{line}\n")
    assert len(Journal(tmp_path / "j.jsonl", {})) == 0


# What is stored is read back, and put in place of the default.


def entry(**changes) -> StoredSchedule:
    given = {
        "spec": f"{HillSpec.__module__}.HillSpec",
        "instance": {"heads": 16},
        "schedule": {"ahead": 6, "depth": 3, "way": "right"},
        "clocks": {"llvm": 50.0, "real": 49.0},
        "build": "b",
        "points": 40,
        "seed": 0,
    }
    return StoredSchedule(**{**given, **changes})


class TargetArch:
    target_ids = ("some1:feature+",)


def space_with(*entries: StoredSchedule, name: str = file_name("some1", "llvm22")) -> ScheduleSpace:
    return attrs.evolve(SPACE, table=ScheduleTable({name: entries}))


def test_a_stored_schedule_is_put_in_place_of_the_default_of_its_instance_target_and_flavor():
    tuned = attrs.evolve(DEFAULT, ahead=6, depth=3, way="right")
    space, other = space_with(entry()), attrs.evolve(DEFAULT, heads=32)
    assert space.tuned(DEFAULT, TargetArch(), "llvm22") == tuned
    assert space.tuned(attrs.evolve(DEFAULT, ahead=9), TargetArch(), "llvm22") == tuned, "whatever the default is"
    assert space.tuned(other, TargetArch(), "llvm22") == other, "another instance"
    assert space.tuned(DEFAULT, TargetArch(), "llvm20") == DEFAULT, "another flavor"
    assert space_with(entry(), name="some2-llvm22.json").tuned(DEFAULT, TargetArch(), "llvm22") == DEFAULT


@pytest.mark.parametrize(
    "schedule, told",
    [
        ({"ahead": 6}, "its schedule fields are ahead, depth, way"),
        ({"ahead": 6, "depth": 30, "way": "left"}, "does not take the stored schedule"),
    ],
)
def test_an_entry_that_does_not_fit_its_class_is_an_error_with_a_name(schedule, told):
    with pytest.raises(PluginError, match=told):
        space_with(entry(schedule=schedule)).tuned(DEFAULT, TargetArch(), "llvm22")


def test_a_space_names_fields_that_there_are():
    with pytest.raises(PluginError, match="has no field width"):
        ScheduleSpace(spec=HillSpec, values={"width": (1, 2)})


def test_what_is_written_reads_back_in_an_order_of_its_own(monkeypatch, tmp_path):
    entries = [entry(), entry(instance={"heads": 32}), entry(instance={"heads": 8})]
    package = tmp_path / "stored_schedules_package"
    (package / "schedules").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "schedules" / "some1-llvm22.json").write_text(written(entries))
    monkeypatch.syspath_prepend(tmp_path)
    table = ScheduleTable.of_package("stored_schedules_package")
    assert {each.key for each in table.entries(TargetArch(), "llvm22")} == {each.key for each in entries}
    assert written(entries) == written(entries[::-1]) and json.loads(written(entries))["schema"]
    (package / "schedules" / "some1-llvm22.json").write_text('{"schema": "kinfolk.schedules/9", "entries": []}')
    with pytest.raises(PluginError, match="is damaged: its schema is"):
        ScheduleTable.of_package("stored_schedules_package")
