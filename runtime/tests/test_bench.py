"""`kinfolk bench`: files of shapes and their errors, refusals that are expected or not, each mode on a toy family."""

from __future__ import annotations

import json
from typing import Any

import attrs
import jsonschema
import pytest
from click.testing import CliRunner
from double_family import Family, compile_without_llvm, composition_of
from hip_toy import OnDevice
from paged_sum import everything

from kinfolk.refusal import Refusal
from kinfolk_runtime.bench import Shapes, ShapesError, schema
from kinfolk_runtime.bench.expectation import disagreements
from kinfolk_runtime.bench.run import Choices, bench
from kinfolk_runtime.bench.shapes import ExpectedRefusal
from kinfolk_runtime.bench.timing import WARM_UP, NoClockError, Timed, has_clock, timed
from kinfolk_runtime.cli.bench import command
from kinfolk_runtime.simulator import Simulator

FACTOR = {"codes": ["double.fac*"], "shapes": ["five*"], "because": "five is too many"}
GOOD: dict[str, Any] = {
    "schema": "kinfolk.shapes/1",
    "family": "double",
    "about": "Vectors.",
    "source": "a test",
    "request": {"count": 100},
    "refused": [FACTOR],
    "shapes": [
        {"name": "twice", "request": {"factor": 2}},
        {"name": "three of ten", "request": {"factor": 3, "count": 10}, "source": "another test"},
        {"name": "four times", "request": {"factor": 4}, "long": True},
        {"name": "five times", "request": {"factor": 5}},
    ],
}


def changed(**changes: Any) -> dict[str, Any]:
    return {**GOOD, **changes}


def shape(**changes: Any) -> dict[str, Any]:
    return changed(refused=[], shapes=[{"name": "twice", "request": {}, **changes}])


def read(document: Any) -> Shapes:
    return Shapes.read(json.dumps(document), "some.json", "double")


def test_a_file_is_read_and_its_fields_go_under_a_shapes_own():
    shapes = read(GOOD)
    assert [each.name for each in shapes.shapes] == ["twice", "three of ten", "four times", "five times"]
    assert [each.request["count"] for each in shapes.shapes] == [100, 10, 100, 100]
    assert [each.source for each in shapes.shapes] == ["a test", "another test", "a test", "a test"]
    assert [each.long for each in shapes.shapes] == [False, False, True, False]
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(GOOD, schema())


WRONG = {
    "no object": (7, "the file is 7, it is an object"),
    "another schema": (changed(schema="kinfolk.shapes/2"), "schema is 'kinfolk.shapes/2'"),
    "unknown key": (changed(rows=[]), "the file has rows, known: schema, family"),
    "no shapes": (changed(shapes=[]), "shapes is empty"),
    "missing key": ({key: GOOD[key] for key in GOOD if key != "about"}, "the file lacks about"),
    "a number for a list": (changed(shapes=3), "shapes of the file is 3, it is a list"),
    "shape without a request": (changed(shapes=[{"name": "x"}]), "shape 1 lacks request"),
    "no name": (shape(name=""), "shape 1 is named ''"),
    "a word for a flag": (shape(long="yes"), "long of shape 1 is 'yes', it is true or false"),
    "a list for a field": (shape(request={"count": [1]}), "count of twice is [1]; fields of a request"),
    "no word for a field": (shape(request={"a b": 1}), "a b of twice is 1"),
    "no codes": (changed(refused=[{**FACTOR, "codes": []}]), "codes of refused 1 is [], it is a list of one or more"),
    "a number for a code": (changed(refused=[{**FACTOR, "codes": [1]}]), "codes of refused 1 is [1]"),
    "no reason": (changed(refused=[{"codes": ["a"], "shapes": ["*"]}]), "refused 1 lacks because"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_is_none_is_told_by_file_place_and_value_and_the_schema_agrees(name):
    document, told = WRONG[name]
    with pytest.raises(ShapesError) as caught:
        read(document)
    assert told in str(caught.value)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema())


@pytest.mark.parametrize(
    "document, told",
    [
        (changed(family="other"), "shapes of the family 'other', asked for is 'double'"),
        (changed(shapes=[*GOOD["shapes"], GOOD["shapes"][0]]), "shape 5 is named 'twice', names are unique"),
        (changed(refused=[{**FACTOR, "shapes": ["six*"]}]), "refused names 'six*', there is no such shape"),
        ({key: GOOD[key] for key in GOOD if key != "source"}, "twice has no source, nor has the file"),
    ],
)
def test_what_no_schema_sees_is_told_too(document, told):
    jsonschema.validate(document, schema())
    with pytest.raises(ShapesError) as caught:
        read(document)
    assert told in str(caught.value)


def test_a_file_is_found_by_path_and_others_say_what_there_is(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(GOOD))
    assert Shapes.of("double", str(path)).name == str(path)
    with pytest.raises(ShapesError, match="cannot be read: No such file"):
        Shapes.of("double", str(tmp_path / "other.json"))
    path.write_text("{")
    with pytest.raises(ShapesError, match="is no JSON: "):
        Shapes.of("double", str(path))
    with pytest.raises(ShapesError, match="no installed distribution offers a family 'dubble'"):
        Shapes.of("dubble", "mine")


def refusal(code: str) -> Refusal:
    return Refusal(code=code, kind="cannot", field="f", value=1, limit="l", because="b", remedy="r", plugin="p")


def expecting(*codes: str, archs: tuple[str, ...] = ("*",)) -> ExpectedRefusal:
    return ExpectedRefusal(codes=codes, shapes=("*",), archs=archs, because="b")


def test_refusals_and_expectation_agree_by_group():
    a, b, c = refusal("f.a.heads"), refusal("f.b.heads"), refusal("f.b.pages")
    assert not [*disagreements([], ())]
    assert not [*disagreements([[a], [b, c]], [expecting("f.*.heads")])]
    assert not [*disagreements([[a], [c]], [expecting("f.*.heads"), expecting("f.b.pages")])]
    [unexpected] = disagreements([[a], [c]], [expecting("f.*.heads")])
    assert unexpected.startswith("unexpected: f.b.pages: f is 1, supported: l (b). r")
    [missing] = disagreements([], [expecting("f.*.heads")])
    assert missing.startswith("f.*.heads is expected and does not happen, the shape is served")
    [other] = disagreements([[a]], [expecting("f.*.heads", "f.*.pages")])
    assert other.startswith("f.*.pages is expected and does not happen, the shape is refused by f.a.heads")
    assert [*disagreements([[refusal("error.tool_error")]], [expecting("*")])]


def test_a_refusal_may_be_expected_of_some_archs_alone():
    one = expecting("x", archs=("north*", "south"))
    assert [one.covers("s", arch) for arch in ("north1", "south", "south1", "east")] == [True, True, False, False]


@pytest.fixture
def looked_at(monkeypatch):
    """How to bench the toy family on the shapes of a document, without an LLVM."""
    monkeypatch.setattr("kinfolk_runtime.verify.compile_plan", compile_without_llvm)
    monkeypatch.setattr("kinfolk_runtime.bench.run.compile_plan", compile_without_llvm)

    def looks(document: Any = GOOD, family: Family | None = None, **choices: Any) -> Any:
        return bench([composition_of(family or Family())], [read(document)], Choices(**choices))

    return looks


def told(found: Any) -> dict[str, Any]:
    return {row.shape.name: row.status for row in found.rows}


def test_resolving_names_candidates_and_expects_refusals(looked_at):
    found = looked_at()
    assert (found.status, found.executor) == ("pass", None)
    assert list(told(found).values()) == ["pass", "pass", "pass", "refused"]
    first, *_, last = found.rows
    assert (first.candidate, first.figures) == ("double.plain", {"workgroups": 2})
    assert (last.candidate, last.because) == (None, ("five is too many",))
    assert [refusal.code for refusal in last.refusals] == ["double.factor"]


@pytest.mark.parametrize(
    "document, name, said",
    [
        (changed(refused=[]), "five times", "unexpected: double.factor"),
        (changed(refused=[{**FACTOR, "shapes": ["t*", "five*"]}]), "twice", "is expected and does not happen"),
        (shape(request={"count": -1}), "twice", "unexpected: request.count.range"),
        (shape(request={"factor": 2.0}), "twice", "unexpected: request.factor.type"),
        (shape(request={"farctor": 2}), "twice", "farctor"),
    ],
)
def test_what_no_file_expects_fails(looked_at, document, name, said):
    found = looked_at(document)
    [row] = [row for row in found.rows if row.shape.name == name]
    assert (found.status, row.status) == ("fail", "fail")
    assert said in row.findings[0]


def test_building_shows_kernels_and_the_gate_refuses(looked_at):
    found = looked_at(mode="build")
    assert [len(row.kernels) for row in found.rows] == [1, 1, 1, 0]
    gated = looked_at(family=Family(gate=[refusal("double.resources.registers")]), mode="build")
    assert told(gated)["twice"] == "fail"
    expected = [FACTOR, {"codes": ["double.resources.*"], "shapes": ["t*", "four*"], "because": "it is a toy"}]
    gated = looked_at(changed(refused=expected), Family(gate=[refusal("double.resources.registers")]), mode="build")
    assert set(told(gated).values()) == {"refused"} and gated.status == "pass"


def test_verifying_leaves_long_shapes_out_and_finds_a_fault(looked_at):
    assert told(looked_at(mode="verify")) == {
        "twice": "pass",
        "three of ten": "pass",
        "four times": "left out",
        "five times": "refused",
    }
    found = looked_at(mode="verify", long=True)
    assert told(found)["four times"] == "pass" and found.executor == "simulator"
    assert found.rows[0].figures == {"workgroups": 2, "scenarios": 2, "margin": 0.0}
    wrong = looked_at(family=Family(error=1e-3), mode="verify")
    assert (wrong.status, told(wrong)["twice"]) == ("fail", "fail")
    assert "lie outside the tolerance" in wrong.rows[0].findings[0]


def test_nothing_looked_at_is_no_pass(looked_at):
    document = changed(refused=[], shapes=[GOOD["shapes"][2]])
    assert looked_at(document, mode="verify").status == "fail"
    assert looked_at(document, mode="verify", long=True).status == "pass"


@attrs.define(eq=False)
class Ticking:
    """The simulator with a clock that counts launches: each takes as many milliseconds as ran before it."""

    inner: Simulator = attrs.field(factory=Simulator)
    launches: int = 0
    held: list[int] = attrs.field(factory=list)
    name, target = "ticking", None

    def run(self, work: Any) -> None:
        self.inner.run(work)
        self.launches += 1

    def mark(self) -> int:
        self.held.append(self.launches)
        return self.launches

    def elapsed_ms(self, start: int, end: int) -> float:
        return float(sum(range(start, end)))

    def forget(self, mark: int) -> None:
        self.held.remove(mark)


def test_times_are_those_of_the_executors_clock(looked_at):
    clock = Ticking()
    found = looked_at(changed(refused=[], shapes=GOOD["shapes"][:1]), mode="time", executor=clock, repeats=5)
    figures = found.rows[0].figures
    begun = (1 + WARM_UP) * 1000.0  # the run that is compared comes first
    assert (figures["least_us"], figures["median_us"], figures["most_us"]) == (begun, begun + 2000.0, begun + 4000.0)
    assert figures["repeats"] == 5 and clock.launches == 1 + WARM_UP + 5 and clock.held == []
    assert has_clock(clock) and not has_clock(Simulator())


def test_what_is_wrong_is_not_timed_by_a_clock_either(looked_at):
    clock = Ticking()
    family = Family(error=1e-3)
    found = looked_at(changed(refused=[], shapes=GOOD["shapes"][:1]), family, mode="time", executor=clock)
    assert (found.status, clock.held, clock.launches) == ("fail", [], 1)
    assert "is wrong on ticking, so nothing is timed" in found.rows[0].findings[0]
    assert "median_us" not in found.rows[0].figures


def test_times_of_a_device_are_those_of_its_marks(reference64):
    """On a fake device: tensors are copied there by the binder, before the first mark and after the last."""
    device = OnDevice(reference64)
    executor = Timed(device.executor)
    bound = device.bind(everything(), executor=executor)
    times = timed(bound, executor, 4)
    assert times.repeats == 4 and 0.0 <= times.least_us <= times.median_us <= times.most_us
    assert device.fake.leaks().get("events", 0) == 0


def test_times_need_a_clock(looked_at):
    with pytest.raises(NoClockError, match="executor simulator has no clock"):
        looked_at(mode="time")


@pytest.fixture
def typed(monkeypatch, tmp_path):
    """How to type `kinfolk bench` on a file of shapes of the toy family."""
    monkeypatch.setattr("kinfolk_runtime.verify.compile_plan", compile_without_llvm)
    monkeypatch.setattr("kinfolk_runtime.bench.run.compile_plan", compile_without_llvm)
    monkeypatch.setattr("kinfolk.plugins.composition.compose", lambda *_: composition_of(Family()))

    def types(document: Any, *words: str) -> Any:
        path = tmp_path / "shapes.json"
        path.write_text(json.dumps(document))
        return CliRunner().invoke(command, ["double", "--shapes", str(path), "--arch", "toy", *words])

    return types


def test_people_get_a_table_what_is_wrong_and_a_verdict(typed):
    done = typed(GOOD)
    assert done.exit_code == 0
    assert "five times on toy: refused as expected: five is too many" in done.stdout
    assert done.stdout.splitlines()[-1] == "pass: 3 pass, 1 refused as expected"
    done = typed(changed(refused=[]), "--mode", "build")
    assert done.exit_code == 1
    assert "five times on toy: unexpected: double.factor: factor is 5" in done.stdout
    assert "its kernels" in done.stdout and done.stdout.splitlines()[-1] == "fail: 3 pass, 1 fail"


def test_tools_get_a_document(typed):
    document = json.loads(typed(GOOD, "--json", "--mode", "verify").stdout)
    assert (document["schema"], document["status"], document["mode"]) == ("kinfolk.bench/1", "pass", "verify")
    row = document["rows"][1]
    assert (row["shape"], row["source"], row["request"]["factor"]) == ("three of ten", "another test", 3)
    assert 0.0 < row["figures"]["margin"] < 1.0 and document["rows"][2]["status"] == "left out"


@pytest.mark.parametrize(
    "words, said",
    [
        (("--mode", "time"), "executor simulator has no clock"),
        (("--mode", "guess"), "'guess' is not one of"),
        (("--executor", "abacus"), "no executor 'abacus'"),
    ],
)
def test_a_wrong_flag_is_a_usage_error(typed, words, said):
    done = typed(GOOD, *words)
    assert done.exit_code == 2
    assert said in done.stderr


def test_without_shapes_all_files_of_the_family_are_looked_at(typed, monkeypatch, tmp_path):
    files = {name: tmp_path / f"{name}.json" for name in ("first", "second")}
    for path in files.values():
        path.write_text(json.dumps(GOOD))
    monkeypatch.setattr("kinfolk_runtime.bench.shapes.files_of", lambda family: files)
    done = CliRunner().invoke(command, ["double", "--arch", "toy", "--json"])
    assert json.loads(done.stdout)["files"] == ["first", "second"]
    monkeypatch.setattr("kinfolk_runtime.bench.shapes.files_of", lambda family: {})
    done = CliRunner().invoke(command, ["double", "--arch", "toy"])
    assert done.exit_code == 2 and "double keeps no shapes in its package" in done.stderr


def test_a_wrong_file_is_a_usage_error(typed):
    done = typed({**GOOD, "shapes": []})
    assert done.exit_code == 2 and "shapes is empty" in done.stderr
