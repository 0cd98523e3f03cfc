"""`tune` on a real kernel: points are compiled in other processes, and what is stored is measured again by the gate."""

from __future__ import annotations

import json

import attrs
import pytest
from click.testing import CliRunner

from kinfolk.plugins.composition import compose
from kinfolk.record import class_name
from kinfolk.schedule import ScheduleSpace, ScheduleTable, StoredSchedule, file_name
from kinfolk_mla.decode.candidate import DECODE
from kinfolk_mla.spec import MlaDecodeSpec
from kinfolk_runtime.goldens.schedules import OTHER_BUILD, SAME_BUILD, faults_of
from kinfolk_runtime.toolchains.host import toolchain_for
from kinfolk_runtime.tune import instances, score, tune
from kinfolk_runtime.tune.run import store

FLAVOR = "llvm22"
pytestmark = [pytest.mark.compile, pytest.mark.needs("mla", "gfx942")]


class OneCandidate:
    """A composition that offers one of the candidates, with a schedule space of a few points."""

    def __init__(self, *entries: StoredSchedule) -> None:
        self.inner = compose("mla", "gfx942")
        table = ScheduleTable({file_name("gfx942", FLAVOR): entries})
        values = {
            "key_read_ahead": (4, 5),
            "query_read_ahead": (2,),
            "value_read_ahead": (2, 4),
            "fence_every": (2,),
            "parked_query_reads": (0, 3),
        }
        space = ScheduleSpace(spec=MlaDecodeSpec, values=values, table=table)
        self.candidate = attrs.evolve(DECODE, schedules=(space,))

    def candidates(self):
        return (self.candidate,)

    def __getattr__(self, name):
        return getattr(self.inner, name)


@pytest.fixture(scope="module")
def scored():
    """The default of the kernel for waves with rows, and what it scores."""
    composition = OneCandidate()
    instance = next(each for each in instances(composition, FLAVOR) if not each.spec.idle_waves)
    return instance, score(composition, instance.spec, FLAVOR)


def entry(scored, times=1.0, build=None, **schedule) -> StoredSchedule:
    instance, found = scored
    own = {name: getattr(instance.spec, name) for name in instance.space.values}
    return StoredSchedule(
        spec=class_name(MlaDecodeSpec),
        instance=instance.space.instance(instance.spec),
        schedule=own | schedule,
        clocks={"llvm": found.llvm * times, "real": found.real * times},
        build=build or toolchain_for(FLAVOR).build,
        points=1,
        seed=0,
    )


def codes(*entries: StoredSchedule) -> list[str]:
    composition = OneCandidate(*entries)
    return [each.code for each in faults_of(composition, FLAVOR, entries, toolchain_for(FLAVOR))]


def test_the_default_passes_the_gate_and_scores_by_both_models(scored):
    _, found = scored
    assert found.clean and found.clocks == found.real > found.llvm > 68 and found.spare_registers == 0


def test_a_point_that_spills_is_refused_and_one_that_no_plugin_takes_is_invalid(scored):
    instance, _ = scored
    spilling = attrs.evolve(instance.spec, parked_query_reads=0, key_read_ahead=8, value_read_ahead=4)
    found = score(OneCandidate(), spilling, FLAVOR)
    assert found.state == "refused" and "scratch" in found.why
    found = score(OneCandidate(), attrs.evolve(instance.spec, fence_every=1000), FLAVOR)
    assert found.state == "invalid"


def test_a_stored_schedule_that_scores_what_it_scored_is_no_fault(scored):
    assert codes(entry(scored)) == []


@pytest.mark.parametrize("build, share", [(None, SAME_BUILD), ("another/build", OTHER_BUILD)])
def test_a_score_that_fell_is_a_fault_from_a_share_on_that_goes_by_the_build(scored, build, share):
    assert codes(entry(scored, 1 / (1 + 2 * share), build)) == ["schedules.fell"]
    assert codes(entry(scored, 1 / (1 + share / 2), build)) == []


def test_scratch_and_an_instance_that_nobody_has_are_faults(scored):
    assert codes(entry(scored, parked_query_reads=0, value_read_ahead=4)) == ["schedules.refused"]
    assert codes(attrs.evolve(entry(scored), instance={"idle_waves": 17})) == ["schedules.stale"]
    assert codes(attrs.evolve(entry(scored), schedule={"key_read_ahead": 4})) == ["schedules.refused"]


def test_a_plan_names_the_stored_schedule_and_says_where_there_is_none(scored):
    composition = OneCandidate(entry(scored, key_read_ahead=4))
    [space] = composition.candidate.schedules
    offered = composition.candidate.spec_space(composition.arch, FLAVOR)
    specs = [spec for spec in offered if isinstance(spec, space.spec)]
    own = space.instance(scored[0].spec)
    assert [spec.key_read_ahead for spec in specs if space.instance(spec) == own] == [4]
    assert {spec.key_read_ahead for spec in specs if space.instance(spec) != own} == {5}
    assert [space.stored(spec, composition.arch, FLAVOR) is None for spec in specs].count(False) == 1


def test_winners_are_written_beside_those_of_other_instances(monkeypatch, tmp_path, scored):
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path)
    other = attrs.evolve(entry(scored), instance={"idle_waves": True})
    path = store(OneCandidate(other, entry(scored)), FLAVOR, [entry(scored, key_read_ahead=4)])
    assert path == tmp_path / "schedules" / "gfx942-llvm22.json"
    kept = json.loads(path.read_text())["entries"]
    found = {(each["instance"]["idle_waves"], each["schedule"]["key_read_ahead"]) for each in kept}
    assert found == {(True, 5), (False, 4)}


def test_an_unknown_family_is_a_refusal(tmp_path):
    from kinfolk_runtime.cli.tune import command

    result = CliRunner().invoke(command, ["nothing", "--arch", "gfx942", "--json"])
    document = json.loads(result.stdout)
    assert (result.exit_code, document["schema"], document["status"]) == (1, "kinfolk.tune/1", "fail")
    assert document["refusals"]


def test_a_search_compiles_in_processes_and_goes_on_from_its_journal(monkeypatch, tmp_path, scored):
    monkeypatch.setenv("KINFOLK_CACHE_DIR", str(tmp_path))
    instance, found = scored
    composition = OneCandidate()
    composition.candidate = attrs.evolve(composition.candidate, specs=lambda arch, flavor: (instance.spec,))

    def run(points):
        compiled: list[str] = []
        [tuned] = tune(composition, FLAVOR, points=points, jobs=2, step=compiled.append)
        return tuned, compiled

    first, compiled = run(1)
    assert first.choice.default == found and len(compiled) == first.choice.points > 1, "at the edge: its neighbours too"
    again, compiled = run(1)
    assert attrs.evolve(again.choice) == first.choice and compiled == []
    assert first.entry is not None and first.entry.clocks == {"llvm": found.llvm, "real": found.real}
