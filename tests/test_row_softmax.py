"""The example family as a stranger ships it: built into a wheel, installed beside ours, found, run, checked."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs("gfx942")

REQUEST = ("row_softmax", "--arch", "gfx942", "rows=3", "columns=777")


@pytest.fixture(scope="session")
def wheel(root, tmp_path_factory):
    """Return the family's wheel, built from a copy of its folder."""
    work = tmp_path_factory.mktemp("row_softmax")
    source = work / "source"
    shutil.copytree(root / "core/src/kinfolk/templates/family", source, ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(work), str(source)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [found] = work.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def site(wheel, tmp_path_factory):
    """Return a folder into which pip installed the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("site")
    options = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", "--target", str(folder)]
    install = [sys.executable, "-m", "pip", "install", *options, str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def kinfolk(site, tmp_path):
    """Return the command line in a process where the family is installed, in a folder of its own."""

    def run(*arguments, installed=True):
        return started(["-m", "kinfolk.cli", *arguments], site if installed else None, tmp_path)

    return run


def started(arguments, site, folder):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KINFOLK_")}
    paths = [str(site)] if site else []
    kept["PYTHONPATH"] = os.pathsep.join(paths + [path for path in [os.environ.get("PYTHONPATH")] if path])
    kept |= {"KINFOLK_CACHE_DIR": os.environ["KINFOLK_CACHE_DIR"], "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *arguments], env=kept, cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )


def answered(done, status=0):
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_the_wheel_holds_the_package_and_says_so(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    package = {Path(name).name for name in names if name.startswith("kinfolk_row_softmax/")}
    assert {"__init__.py", "plugin.py", "kernel.py", "py.typed"} <= package
    assert not [name for name in names if "tests" in name]
    [points] = [zipfile.ZipFile(wheel).read(name).decode() for name in names if name.endswith("entry_points.txt")]
    assert "[kinfolk.families]\nrow_softmax = kinfolk_row_softmax.plugin" in points


def test_it_is_listed_where_it_is_installed_and_nowhere_else(kinfolk):
    rows = answered(kinfolk("list", "--json"))["plugins"]
    [row] = [row for row in rows if row["name"] == "row_softmax"]
    assert (row["kind"], row["distribution"], row["state"]) == ("family", "kinfolk-row-softmax", "ok")
    others = answered(kinfolk("list", "--json", installed=False))["plugins"]
    assert [row for row in rows if row["name"] != "row_softmax"] == others


def test_why_names_the_candidate_and_what_was_filled_in(kinfolk):
    answer = answered(kinfolk("why", *REQUEST, "--json"))
    assert (answer["status"], answer["selected"]) == ("pass", "row_softmax.one_row_each")
    assert answer["request"] == {
        "rows": 3,
        "columns": 777,
        "dtype": "f32",
        "scale": 1.0,
        "candidate": None,
    }


@pytest.mark.parametrize(
    ("word", "field", "kind"),
    [
        ("dtype=f64", "dtype", "not_implemented"),
        ("columns=600000000", "columns", "cannot"),
        ("rows=2147483648", "rows", "cannot"),
        ("columns=True", "columns", "invalid"),
        ("columns=0", "columns", "invalid"),
        ("candidate=row_softmax.other", "candidate", "invalid"),
    ],
)
def test_a_refusal_has_field_limit_and_remedy(kinfolk, word, field, kind):
    words = [*(each for each in REQUEST if each.partition("=")[0] != word.partition("=")[0]), word]
    answer = answered(kinfolk("why", *words, "--json"), status=1)
    rows = answer["refusals"] + [refusal for each in answer["candidates"] for refusal in each["refusals"]]
    [refusal] = {refusal["code"]: refusal for refusal in rows}.values()
    assert (refusal["field"], refusal["kind"]) == (field, kind)
    assert refusal["limit"]
    assert refusal["remedy"]


COPY = """
import attrs, json
from kinfolk.ir.text import print_kernel
from kinfolk.plugins.composition import compose
composition = compose("row_softmax", "gfx942")
[candidate] = composition.candidates()
copy = attrs.evolve(composition.arch, name="elsewhere", target_ids=("elsewhere",))
from kinfolk_row_softmax.kernel import emit_row_softmax
specs = list(candidate.specs(composition.arch, "llvm22"))
same = [print_kernel(emit_row_softmax(spec, copy)) == print_kernel(composition.emit(spec)) for spec in specs]
print(json.dumps(same))
"""


def test_an_arch_of_another_name_gives_the_same_kernels(site, tmp_path):
    assert answered(started(["-c", COPY], site, tmp_path)) == [True, True, True]


PLAN = """
import json
import kinfolk
from kinfolk_row_softmax.request import RowSoftmaxRequest
plan = kinfolk.dispatch(RowSoftmaxRequest(rows=3, columns=777, dtype="bf16", scale=1.0), "gfx942")
print(json.dumps([plan.candidate, plan.versions["kinfolk-row-softmax"], plan.grid(plan.launches[0])]))
"""


def test_dispatch_gives_a_plan(site, tmp_path):
    assert answered(started(["-c", PLAN], site, tmp_path)) == ["row_softmax.one_row_each", "0.1.0", [3, 1, 1]]


@pytest.mark.compile
def test_every_kernel_compiles_without_scratch(kinfolk):
    kernels = answered(kinfolk("resources", "row_softmax", "--arch", "gfx942", "--json"))["kernels"]
    assert len(kernels) == 3
    for kernel in kernels:
        assert (kernel["scratch_bytes"], kernel["scratch_ops"], kernel["parked"]) == (0, 0, 0)
        assert kernel["lds_bytes"] == 32
        assert kernel["vgpr"] <= 64


@pytest.mark.simulate
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_every_scenario_passes_on_compiled_and_simulated_kernels(kinfolk, dtype):
    report = answered(kinfolk("verify", *REQUEST, f"dtype={dtype}", "scale=0.7", "--json"))
    assert (report["status"], report["candidate"]) == ("pass", "row_softmax.one_row_each")
    assert len(report["scenarios"]) >= 10
    for scenario in report["scenarios"]:
        assert scenario["status"] == "pass", scenario
        assert [output["name"] for output in scenario["outputs"]] == ["y", "lse"]
    [kernel] = report["kernels"]
    assert (kernel["arch"], kernel["scratch_bytes"], kernel["scratch_ops"]) == ("gfx942", 0, 0)
