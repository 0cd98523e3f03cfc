"""Mutants of whole families: killed, shown to be equivalent, or told as survivors, which fails the command."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner

import kinfolk
from kinfolk.flavor import flavor_named
from kinfolk.hooks import hookimpl
from kinfolk.ir.ops import arithmetic
from kinfolk.ir.types import I64
from kinfolk.plugins.composition import Composition, compose
from kinfolk.plugins.discovery import Offer
from kinfolk.plugins.loading import Loaded, load
from kinfolk.testing import Subject
from kinfolk.testing.mutation.operators.declare import Change, Operator, operand_replaced, plus
from kinfolk_runtime.cli.mutate import command
from kinfolk_runtime.conformance.small import mutation_requests
from kinfolk_runtime.mutation import MutationReport, Score, mutate, own_requests, score, store, stored
from kinfolk_runtime.mutation.journal import Journal
from kinfolk_runtime.mutation.report import CandidateReport

pytestmark = [pytest.mark.simulate, pytest.mark.compile, pytest.mark.needs("mla", "gfx942", "gfx950")]

FEW = 10
"""Mutants of a candidate whose operators others have applied."""
NOTICED = 0.95
"""The least part of a sample that must be killed or shown equivalent where no score says who survives."""


@pytest.fixture(scope="module")
def example():
    """The plugin of the family that `kinfolk new family` writes, which nobody installs."""
    source = str(Path(kinfolk.__file__).parent / "templates" / "family" / "src")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(source)
        import kinfolk_row_softmax.plugin as plugin
    return plugin


def composed(plugin):
    offer = Offer(
        kind="family",
        name="row_softmax",
        value="kinfolk_row_softmax.plugin",
        distribution="kinfolk-row-softmax",
        version="1",
    )
    return Composition(Loaded(offer, plugin), load("arch", "gfx942"), ())


@pytest.fixture(scope="module")
def family(example):
    return composed(example)


@pytest.fixture(scope="module")
def request_of_rows(family):
    """A request of a few rows, more columns than one step has; a scale that no score may do without."""
    return family.request_type(rows=3, columns=777, dtype="f32", scale=40.0)


class Weak:
    """The example with scenarios of nothing to do alone."""

    def __init__(self, example):
        self.example = example

    def __getattr__(self, name):
        return getattr(self.example, name)

    @hookimpl
    def kinfolk_scenarios(self, request):
        return [each for each in self.example.kinfolk_scenarios(request) if each.name == "no_rows"]


@pytest.fixture(scope="module")
def weak(example):
    class Whole(Weak):
        pass

    for name in ("request_type", "candidates", "emit_ir", "reference", "check_outputs"):
        setattr(Whole, f"kinfolk_{name}", staticmethod(getattr(example, f"kinfolk_{name}")))
    return composed(Whole(example))


def added(amount):
    """Return the operator that adds to the first factor of products of 64 bits, which are where rows begin."""

    def changes(op, around):
        if op.definition is arithmetic.mul and op.results[0].type == I64:
            yield Change(f"a {amount:+d}", operand_replaced(0, plus(amount)))

    return Operator(f"plus_{amount}", "a factor is off", changes)


def test_a_mutant_of_identical_code_is_equivalent_and_one_that_computes_something_else_is_killed(
    family, request_of_rows
):
    report = mutate(family, requests=[request_of_rows], operators=(added(0), added(1)), every=True)
    [candidate] = report.candidates
    found = {
        operator: {o.status for o in candidate.outcomes if o.operator == operator} for operator in ("plus_0", "plus_1")
    }
    assert found == {"plus_0": {"equivalent"}, "plus_1": {"killed"}}
    proofs = [outcome.proof for outcome in candidate.outcomes if outcome.operator == "plus_0"]
    assert all(proofs) and any(each.startswith("identical") for each in proofs)
    assert all(outcome.kill is not None for outcome in candidate.outcomes if outcome.operator == "plus_1")
    assert report.status == "pass"


def test_scenarios_of_nothing_let_every_mutant_live_and_the_command_fails(weak, monkeypatch):
    """Control: survivors are told with their line, what is different and how to run them again."""
    monkeypatch.setattr("kinfolk.plugins.composition.compose", lambda name, arch: weak)
    request = ["rows=3", "columns=777", "dtype=f32", "scale=0.5"]
    words = ["row_softmax", "--arch", "gfx942", "--count", "1", *request]
    told = CliRunner().invoke(command, words)
    assert told.exit_code == 1, told.output
    assert "nothing notices dropped_exchange: lanes keep their own" in told.output
    assert "kernel.py:" in told.output and "kinfolk mutate row_softmax --arch gfx942 --candidate" in told.output
    line = next(line for line in told.output.splitlines() if line.strip().startswith("kinfolk mutate row_softmax"))
    repeated = CliRunner().invoke(command, shlex.split(line)[2:])
    assert repeated.exit_code == 1 and repeated.output.count("nothing notices") == 1, repeated.output
    document = json.loads(CliRunner().invoke(command, [*words, "--json"]).output)
    [candidate] = document["archs"][0]["candidates"]
    assert document["status"] == candidate["status"] == "fail" and candidate["survived"] > candidate["killed"]
    outcome = next(each for each in candidate["outcomes"] if each["operator"] == "dropped_exchange")
    again = CliRunner().invoke(
        command, ["row_softmax", "--arch", "gfx942", "--mutant", outcome["mutant"], "--json", *request]
    )
    [one] = json.loads(again.output)["archs"][0]["candidates"][0]["outcomes"]
    assert one == outcome and any(line.startswith("-") for line in outcome["diff"])


def test_a_request_without_scenarios_is_no_place_for_mutants(family, request_of_rows, monkeypatch):
    monkeypatch.setattr(family, "scenarios", lambda request: ())
    [candidate] = mutate(family, requests=[request_of_rows], count=1).candidates
    assert (candidate.status, candidate.outcomes) == ("fail", ())
    assert "is run on nothing: no scenario of this request can be run" in candidate.error


def test_a_candidate_that_no_request_reaches_fails(family, request_of_rows, monkeypatch):
    [own] = family.candidates()
    other = attrs.evolve(own, name="row_softmax.unasked", priority=9)
    monkeypatch.setattr(family, "mutation_requests", lambda: (request_of_rows,))
    assert [each.error for each in mutate(family, operators=[added(1)], count=1).candidates] == [""]
    monkeypatch.setattr(family, "candidates", lambda: (own, other))
    report = mutate(family, operators=[added(1)], count=1)
    assert report.status == "fail"
    assert "no request reaches row_softmax.unasked" in report.candidates[1].error


def test_a_candidate_of_others_kernels_needs_no_mutants_of_its_own(family, request_of_rows, monkeypatch):
    [own] = family.candidates()
    again = attrs.evolve(own, name="row_softmax.again", priority=9)
    pinned = attrs.evolve(request_of_rows, candidate="row_softmax.again")
    monkeypatch.setattr(family, "candidates", lambda: (own, again))
    monkeypatch.setattr(family, "mutation_requests", lambda: (request_of_rows, pinned))
    first, second = mutate(family, operators=[added(1)], count=1).candidates
    assert first.outcomes and not first.others
    assert (second.status, second.outcomes, second.others) == ("pass", (), (own.name,))


def test_outcomes_are_kept_for_the_requests_that_they_are_of(family, request_of_rows):
    wider = attrs.evolve(request_of_rows, columns=778)
    one, again, other = (
        Journal.of(compose("mla", "gfx942"), [each]) for each in (request_of_rows, request_of_rows, wider)
    )
    assert one == again != other and one is not None


@pytest.mark.needs("mla", "gfx942")
def test_requests_of_candidates_of_newer_flavors_are_left_out():
    composition = compose("mla", "gfx942")
    newer = {each.name for each in composition.candidates() if each.min_llvm > flavor_named("llvm20").rank}
    old, new = (own_requests(composition, flavor) for flavor in ("llvm20", "llvm22"))
    assert newer and newer <= {each.candidate for each in new}
    assert old == tuple(each for each in new if each.candidate not in newer) != ()
    commands = [Subject.of_family("mla", "gfx942", flavor_name=each).command("x") for each in ("llvm20", "llvm22")]
    assert [" --flavor llvm20" in each for each in commands] == [True, False]


def test_an_unknown_mutant_or_candidate_is_a_sentence(family, monkeypatch):
    monkeypatch.setattr("kinfolk.plugins.composition.compose", lambda name, arch: family)
    for words, sentence in (
        (("--mutant", "none:1:x"), "no mutant is named 'none:1:x' in the kernels of these requests"),
        (("--mutant", "wrong_axis:14:axis 0"), "Did you mean 'wrong_axis:"),
        (("--candidate", "x.y"), "for candidate x.y"),
    ):
        told = CliRunner().invoke(command, ["row_softmax", "--arch", "gfx942", *words])
        assert told.exit_code == 1 and sentence in told.output


def test_requests_that_are_made_up_reach_every_kernel_of_a_family_with_few(family):
    """It names none: lines that only 16 bits have are mutated too."""
    requests = mutation_requests(Subject.of_family(family))
    assert {request.dtype for request in requests} == {"f32", "bf16", "f16"}
    assert all(request.rows > 1 and request.columns > 1 for request in requests)


def test_the_example_family_notices_every_mutant(family, request_of_rows):
    report = mutate(family, requests=[request_of_rows], every=True)
    [candidate] = report.candidates
    assert not candidate.error and not candidate.unapplied
    assert candidate.survivors == ()


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_mla_notices_a_sample_of_mutants(arch):
    """One of every operator at least, and some of every candidate; a survivor that a kept score does not have fails."""
    composition = compose("mla", arch)
    report = mutate(composition, count=FEW, together=True)
    kept = stored(composition)
    survivors: list[str] = []
    for candidate in report.candidates:
        assert not candidate.error and not candidate.unapplied
        assert len(candidate.outcomes) >= FEW or candidate.others
        survivors += [f"{each.operator}: {each.change}, {each.site}" for each in candidate.survivors]
        score = kept.get(candidate.candidate)
        assert score is None or not score.new(candidate), survivors
    assert len(survivors) <= (1 - NOTICED) * len(list(report.outcomes())), survivors


def test_a_score_is_kept_by_ir_and_knows_who_is_new(family, request_of_rows, monkeypatch, tmp_path):
    monkeypatch.setattr(score, "_folder", lambda composition: tmp_path)
    whole = mutate(family, requests=[request_of_rows], operators=(added(0), added(1)), every=True)
    assert stored(family) == {}
    path = store(family, whole)
    assert path == tmp_path / "gfx942.json"
    [candidate] = whole.candidates
    kept = stored(family)[candidate.candidate]
    assert kept == Score.of(candidate)
    assert not kept.drifted(candidate) and kept.new(candidate) == ()
    survivor = with_a_survivor(candidate)
    assert kept.new(survivor) == survivor.outcomes and not Score.of(survivor).new(survivor)
    moved = CandidateReport(candidate="x", outcomes=(), kernels=tuple(_moved(each) for each in candidate.kernels))
    assert kept.drifted(moved)
    with pytest.raises(score.ScoreError, match="this run was of a sample"):
        store(family, MutationReport(family="f", arch="gfx942", flavor="llvm22", seed=0, candidates=()))
    path.write_text(path.read_text().replace(f'"killed": {kept.killed}', f'"killed": {kept.killed + 1}'))
    with pytest.raises(score.ScoreError, match="they are not what a run stored"):
        stored(family)
    path.write_text("{}")
    with pytest.raises(score.ScoreError, match="holds no scores"):
        stored(family)


def with_a_survivor(candidate):
    """Return a report in which one killed mutant lives."""
    [first, *_] = [each for each in candidate.outcomes if each.status == "killed"]
    return attrs.evolve(candidate, outcomes=(attrs.evolve(first, status="survived", kill=None),))


def _moved(kernel):
    return attrs.evolve(kernel, ir="0" * 64)
