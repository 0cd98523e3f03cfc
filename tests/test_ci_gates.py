"""CI's gates fail on what they exist for: each is shown a run that must not pass, of pytest where it can be."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PLANTED = {
    "test_plain.py": "def test_passes(): pass\n",
    "test_skips.py": "import pytest\n@pytest.mark.skip(reason='no tool')\ndef test_it(): pass\n",
    "test_skips_in_body.py": "import pytest\ndef test_it(): pytest.skip('tired')\n",
    "test_module_skips.py": "import pytest\npytest.importorskip('no_such_module_at_all')\ndef test_it(): pass\n",
    "test_expected_failure.py": "import pytest\n@pytest.mark.xfail(reason='broken')\ndef test_it(): assert False\n",
    "test_unexpected_pass.py": "import pytest\n@pytest.mark.xfail(reason='mended', strict=0)\ndef test_it(): pass\n",
}


@pytest.fixture(scope="module")
def lanes(ci_module):
    return ci_module("lanes")


@pytest.fixture(scope="module", params=[[], ["-n", "2"]], ids=["one-process", "xdist"])
def record(request, lanes, root: Path, tmp_path_factory):
    """Return the record of a real pytest run over the planted files."""
    folder = tmp_path_factory.mktemp("planted")
    for name, text in PLANTED.items():
        (folder / name).write_text(text)
    path = folder / "record.json"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:benchmark",
        "-p",
        "lane_record",
        "--lane-record",
        str(path),
    ]
    environment = {**os.environ, "PYTHONPATH": str(root / ".ci")}
    environment.pop("PYTEST_XDIST_WORKER", None)
    subprocess.run([*command, *request.param], cwd=folder, env=environment, check=True, capture_output=True)
    return lanes.Record.read(path)


def test_every_kind_of_skip_is_named_with_its_reason(lanes, record):
    found = "\n".join(lanes.unlisted_skips({"unit": record}, {}))
    for name, reason in {
        "test_skips.py::test_it": "no tool",
        "test_skips_in_body.py::test_it": "tired",
        "test_module_skips.py": "no_such_module_at_all",
        "test_expected_failure.py::test_it": "expected failure: broken",
        "test_unexpected_pass.py::test_it": "passed although: mended",
    }.items():
        [line] = [line for line in found.splitlines() if line.startswith(name)]
        assert reason in line
    assert "test_plain" not in found


def test_a_listed_skip_passes_and_a_listed_name_that_skips_nothing_does_not(lanes, record):
    listed = lanes.read_skips("# a remark\ntest_skips.py::test_it  the tool is not packaged\ntest_plain.py  gone\n")
    assert not any("test_skips.py" in line for line in lanes.unlisted_skips({"unit": record}, listed))
    assert lanes.stale_skips({"unit": record}, listed) == [
        "test_plain.py is listed in .ci/skips.txt but was not skipped"
    ]


def test_a_skip_without_a_tool_is_taken_only_where_the_tool_is_missing(lanes):
    record = lanes.Record({"test_a.py::test_it[x]": "skipped"}, {})
    there = Path(sys.executable)
    for tool, findings in (("no-such-tool-at-all", 0), (there, 1)):
        listed = lanes.read_skips(f"test_a.py::test_it  without {tool}: compares with it\n")
        assert len(lanes.unlisted_skips({"unit": record}, listed)) == findings
        assert lanes.stale_skips({"unit": record}, listed) == []


def test_a_listed_skip_needs_a_reason(lanes):
    with pytest.raises(SystemExit, match=r"needs a reason: test_a\.py"):
        lanes.read_skips("test_a.py\n")


def test_a_lane_without_tests_fails(lanes, record):
    only_skips = lanes.Record({"test_a.py::test_it": "skipped"}, {})
    assert lanes.empty_lanes({"unit": record, "compile": lanes.Record(), "simulate": only_skips}) == [
        "lane compile ran no test",
        "lane simulate ran no test",
    ]


@pytest.mark.needs("mla", "gfx942", "gfx950")
def test_a_distribution_that_is_not_installed_is_found(lanes, root: Path, tmp_path: Path):
    assert lanes.not_installed(root) == []
    for folder, name in (("core", "kinfolk-core"), ("arch/gfx999", "kinfolk-gfx999")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "pyproject.toml").write_text(f'[project]\nname = "{name}"\n')
    assert [line.split()[0] for line in lanes.not_installed(tmp_path)] == ["kinfolk-gfx999"]


def test_what_needs_something_that_is_not_installed_is_left_out_and_a_misspelled_need_is_an_error(
    root: Path, tmp_path: Path
):
    """The rule of conftest.py, on a copy of it beside an arch that is offered and not installed."""
    (tmp_path / "arch" / "gfx999").mkdir(parents=True)
    offer = '[project]\nname = "kinfolk-gfx999"\n[project.entry-points."kinfolk.archs"]\ngfx999 = "nowhere"\n'
    (tmp_path / "arch" / "gfx999" / "pyproject.toml").write_text(offer)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = needs\n")
    tests = tmp_path / "tests"
    tests.mkdir()
    shutil.copy(root / "conftest.py", tmp_path)
    needing = "import pytest\npytestmark = [pytest.mark.needs('gfx999')]\nimport kinfolk_gfx999\ndef test_it(): pass\n"
    (tests / "test_needing.py").write_text(needing)
    mixed = """
        import pytest
        @pytest.mark.needs("gfx999")
        def test_needs(): pass
        @pytest.mark.parametrize("arch", ["gfx999", "other"])
        def test_param(arch): pass
        def test_free(): pass
    """
    (tests / "test_mixed.py").write_text(textwrap.dedent(mixed))

    def collected() -> tuple[int, str]:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", str(tests)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    status, said = collected()
    names = [line.partition("::")[2] for line in said.splitlines() if "::" in line]
    assert (status, names) == (0, ["test_param[other]", "test_free"])
    assert "not installed, and tests that need it left out: gfx999" in said
    (tests / "test_misspelled.py").write_text("import pytest\n@pytest.mark.needs('gfx99')\ndef test_it(): pass\n")
    status, said = collected()
    assert status != 0 and "needs gfx99; there are ['gfx999']" in said


@pytest.mark.parametrize("kept", [False, True], ids=["gone", "kept"])
def test_the_processes_of_a_run_share_a_cache_that_begins_empty(root: Path, tmp_path: Path, kept: bool):
    """Also the rule of conftest.py: what is in the cache of whoever runs the tests counts for nothing."""
    (tmp_path / "tests").mkdir()
    shutil.copy(root / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = needs\n")
    planted = """
        import os, pathlib, pytest, time
        @pytest.mark.parametrize("number", range(2))
        def test_it(number, worker_id):
            cache, seen = pathlib.Path(os.environ["KINFOLK_CACHE_DIR"]), pathlib.Path(__file__).parent / "seen"
            assert not (cache / "lowered").exists()
            (cache / worker_id).touch()
            while len([*cache.glob("gw*")]) < 2:  # each worker has one of the two
                time.sleep(0.01)
            seen.write_text(str(cache))
    """
    (tmp_path / "tests" / "test_planted.py").write_text(textwrap.dedent(planted))
    (tmp_path / "mine" / "lowered").mkdir(parents=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "-p", "no:benchmark"]
    options = ["--cache-of-run", str(tmp_path / "theirs")] if kept else []
    environment = {**os.environ, "KINFOLK_CACHE_DIR": str(tmp_path / "mine")}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(
        [*command, *options], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    cache = Path((tmp_path / "tests" / "seen").read_text())
    assert cache.exists() == kept and (not kept or cache == tmp_path / "theirs")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["lowered"]


@pytest.mark.parametrize("module, named", [("lanes", "environment"), ("stages", "clean_environment")])
def test_processes_of_ci_keep_the_bytecode_that_they_make(ci_module, monkeypatch, tmp_path: Path, module, named):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("KINFOLK_PLUGINS", "mla")
    made = getattr(ci_module(module), named)(*([tmp_path] if module == "stages" else []))
    assert "PYTHONDONTWRITEBYTECODE" not in made and "PATH" in made
    assert ("KINFOLK_PLUGINS" in made) == (module == "lanes")


def test_of_each_test_the_first_parameters_are_run_alone(root: Path, tmp_path: Path):
    planted = """
        import pytest
        @pytest.mark.parametrize("number", range(3))
        def test_many(number): assert number == 0
        class TestIt:
            @pytest.mark.parametrize("name", ["a[b]", "c"])
            def test_many(self, name): assert name != "c"
        def test_one(): pass
    """
    (tmp_path / "test_planted.py").write_text(textwrap.dedent(planted))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "first_of_each", "-p", "no:cacheprovider", "-p", "no:xdist", "-q"]
    environment = {**os.environ, "PYTHONPATH": str(root / ".ci")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "3 passed, 3 deselected" in done.stdout, done.stdout + done.stderr


def test_a_file_that_no_lane_collects_is_found(lanes, tmp_path: Path):
    names = {
        "tests/test_seen.py": "def test_it(): pass\n",
        "tests/test_unseen.py": "def test_it(): pass\n",
        "core/tests/hidden.py": "class TestAll:\n    def test_it(self): pass\n",
        "core/tests/oracle.py": "def expected(): pass\n",
        "core/src/kinfolk/testing.py": "def test_name(): pass\n",
        "tests/bench/bench_x.py": "def test_x(benchmark): pass\n",
        "interop/torch/test_elsewhere.py": "def test_it(): pass\n",
        "interop/other/test_nowhere.py": "def test_it(): pass\n",
    }
    for name, text in names.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    files = lanes.test_files(tmp_path, names)
    record = lanes.Record({"tests/test_seen.py::test_it": "passed"}, {})
    assert [line.split()[0] for line in lanes.uncollected_files({"unit": record}, files)] == [
        "tests/test_unseen.py",
        "core/tests/hidden.py",
        "tests/bench/bench_x.py",
        "interop/other/test_nowhere.py",
    ]


def test_this_very_file_is_a_test_file(lanes, root: Path):
    assert "tests/test_ci_gates.py" in lanes.test_files(root, lanes.project_files(root))


def test_the_lanes_split_the_suite(lanes):
    """Each combination of the two markers is selected by one lane."""
    from _pytest.mark.expression import Expression

    expressions = [Expression.compile(lane.arguments[-1]) for lane in lanes.LANES if "-m" in lane.arguments]
    for markers in ((), ("compile",), ("simulate",), ("compile", "simulate")):
        assert sum(expression.evaluate(lambda name, **_: name in markers) for expression in expressions) == 1  # noqa: B023


def result(stages, name, status=0, seconds=1.0):
    return stages.Result(stages.Stage(name, 1, "true"), status, seconds)


@pytest.mark.parametrize(
    "statuses, counts, seconds, verdict",
    [
        ((0, 0), {"failed": 0, "passed": 3, "skipped": 0}, 10.0, True),
        ((0, 1), {"failed": 0, "passed": 3, "skipped": 0}, 10.0, False),
        ((0, 0), {"failed": 0, "passed": 0, "skipped": 0}, 10.0, False),
        ((0, 0), {"failed": 0, "passed": 3, "skipped": 0}, 25 * 60 + 1.0, False),
    ],
    ids=["all-well", "a-stage-failed", "no-test-ran", "over-the-total"],
)
def test_the_verdict(ci_module, statuses, counts, seconds, verdict):
    stages = ci_module("stages")
    text, passed = stages.closing_lines(
        [result(stages, f"s{i}", status) for i, status in enumerate(statuses)], counts, seconds, full=True
    )
    assert passed is verdict
    assert text.splitlines()[-1].strip("= ").endswith(f"in {seconds:.2f}s")


def test_the_budgets_add_up_to_the_total(ci_module, root: Path):
    stages = ci_module("stages")
    every = stages.stages((root / "README.md").read_text())
    assert sum(stage.minutes for stage in every) <= stages.TOTAL_MINUTES
    lanes = ci_module("lanes").LANES
    assert sum(lane.minutes for lane in lanes) == next(stage.minutes for stage in every if stage.name == "test")


def test_a_readme_without_its_commands_is_refused(ci_module):
    stages = ci_module("stages")
    whole = f"{stages.README_MARK}\n```sh\nmake demo\nmake test\n.venv/bin/kinfolk verify mla\n```\n"
    assert [stage.name for stage in map(stages.readme_stage, stages.readme_commands(whole))] == [
        "demo",
        "test",
        "kinfolk verify",
    ]
    for lost in ("make demo\n", "make test\n", stages.README_MARK):
        with pytest.raises(SystemExit, match="README"):
            stages.readme_commands(whole.replace(lost, ""))


def test_a_stage_that_hangs_is_ended_with_all_it_started(ci_module, tmp_path: Path, monkeypatch):
    stages = ci_module("stages")
    monkeypatch.setattr(stages, "PATIENCE", 0.01)
    ended = stages.run_stage(stages.Stage("hang", 1, "sleep 60 & sleep 60"), tmp_path, dict(os.environ))
    assert ended.status < 0
    assert ended.seconds < 20


def test_records_of_lanes_are_counted(ci_module, tmp_path: Path):
    (tmp_path / "unit.json").write_text(json.dumps({"outcomes": {"a": "passed", "b": "failed"}}))
    (tmp_path / "compile.json").write_text(json.dumps({"outcomes": {"c": "passed", "d": "skipped"}}))
    assert ci_module("stages").test_counts(tmp_path) == {"failed": 1, "passed": 2, "skipped": 1}
