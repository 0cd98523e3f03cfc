"""Build every wheel, install the wheels alone into a fresh environment, smoke-test them and run their tests there.

A wheel holds the files of the sources and no others, byte for byte, which the lanes have tested. What only a wheel can
get wrong is where these files lie, so each test runs once there, with its first parameters.

The work folder lies outside the checkout, so nothing of the source tree can be imported: what passes here is in the
wheels. Runs in the development environment, whose build backend it uses; only third-party packages come from an index.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from lanes import CACHE, SKIPS, Record, read_skips, unlisted_skips

ROOT = Path(__file__).resolve().parent.parent
LLVMS = "llvmlite,llvmlite20,llc"
# What `kinfolk new` is asked for: names that nothing of ours has.
FAMILY, ARCH = "column_scale", "wide32"
DISTRIBUTIONS = ("column-scale", "wide32")
# Compiles a kernel by each LLVM whatever any cache holds.
COMPILES = """
from kinfolk.plugins.composition import compose
from kinfolk_runtime.artifact import compile_job, lower_spec
from kinfolk_runtime.spec_space import spec_space
from kinfolk_runtime.toolchains.host import named_toolchain
for arch in {archs}:
    for toolchain in map(named_toolchain, {names}):
        composition, flavor = compose("mla", arch), toolchain.flavors[-1]
        _, module = lower_spec(composition, spec_space(composition, flavor)[0], flavor)
        assert composition.arch.usage(toolchain.compile(compile_job(module)).object, module.symbol).figures
"""
REQUEST = "num_heads=16 num_seqs=2 total_q=2 max_seqlen_q=1 max_seqlen_k=40 absorbed_query=true"


def projects(root: Path) -> list[Path]:
    """Return the folder of every distribution, the root's last."""
    found = [
        path.parent
        for pattern in ("core", "runtime", "arch/*", "plugins/*")
        for path in root.glob(f"{pattern}/pyproject.toml")
    ]
    return [*sorted(found), root]


def offered(root: Path, kind: str) -> list[str]:
    """Return the names that the distributions offer in an entry-point group such as `kinfolk.archs`."""
    tables = [tomllib.loads((project / "pyproject.toml").read_text())["project"] for project in projects(root)]
    return sorted(name for table in tables for name in table.get("entry-points", {}).get(kind, {}))


def run(command: Sequence[str | Path], cwd: Path, **settings: str) -> None:
    """Run a command as a stranger's shell would, without our paths in the environment; a failure raises."""
    subprocess.run(list(map(str, command)), cwd=cwd, env=environment(**settings), check=True)


def answer(command: Sequence[str | Path], cwd: Path, **settings: str) -> tuple[int, str]:
    """Run a command likewise and return its exit status and what it printed."""
    ended = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment(**settings), stdout=subprocess.PIPE, check=False
    )
    return ended.returncode, ended.stdout.decode()


def at_once(*steps: Callable[[], Any]) -> list[Any]:
    """Take steps that do not meet, on two cores, and return what they do; the first that fails raises, after all."""
    with ThreadPoolExecutor(2) as threads:
        return [ended.result() for ended in [threads.submit(step) for step in steps]]


def environment(**settings: str) -> dict[str, str]:
    """Return this environment without what points into the checkout."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")} | settings


def build(wheelhouse: Path) -> list[Path]:
    """Build a wheel of every distribution: all of one version and, the root's excepted, each with typed packages.

    Together they hold the files of the sources and no others.
    """
    for project in projects(ROOT):
        run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", wheelhouse, project], ROOT)
    wheels = sorted(wheelhouse.glob("*.whl"))
    if len(wheels) != len(projects(ROOT)):
        raise SystemExit(f"{len(projects(ROOT))} distributions gave the wheels {[wheel.name for wheel in wheels]}")
    if len(versions := {wheel.name.split("-")[1] for wheel in wheels}) != 1:
        raise SystemExit(f"the wheels have more than one version: {versions}")
    for wheel in wheels:
        packages = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist() if "/__init__.py" in name}
        untyped = [name for name in packages if f"{name}/py.typed" not in zipfile.ZipFile(wheel).namelist()]
        if untyped or (not packages and wheel.name.split("-")[0] != "kinfolk"):
            raise SystemExit(f"{wheel.name} holds {sorted(packages) or 'no package'}; without py.typed: {untyped}")
    sources = {name: content for project in projects(ROOT) for name, content in files_below(project / "src").items()}
    packed = {name: content for wheel in wheels for name, content in files_in(wheel).items()}
    if wrong := sorted(name for name in sources | packed if sources.get(name) != packed.get(name)):
        raise SystemExit(f"the wheels hold other files than the sources: {', '.join(wrong)}")
    return wheels


def files_below(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder by name, but for compiled Python; none where there is no folder."""
    found = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def files_in(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel by name, but for what describes it."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.split("/")[0].endswith(".dist-info")]
        return {name: archive.read(name) for name in names}


def fresh_environment(folder: Path) -> None:
    """Make an environment with the test tools, and nothing of ours."""
    venv.create(folder, with_pip=True)
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["test"]
    run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", *tools], folder)


def install(python: Path, wheels: Sequence[Path], folder: Path) -> None:
    """Install the wheels by path: nothing of their name on an index can take their place."""
    run([python, "-m", "pip", "install", "--quiet", *wheels], folder)
    run([python, "-m", "pip", "check"], folder)


def smoke(python: Path, empty: Path) -> None:
    """Import, list and verify from an empty folder; what is imported must come from the fresh environment."""
    statement = "import kinfolk, kinfolk_runtime; print(kinfolk.__file__, kinfolk_runtime.__file__, sep='\\n')"
    status, places = answer([python, "-c", statement], empty)
    inside = [Path(place).resolve().is_relative_to(python.parent.parent.resolve()) for place in places.splitlines()]
    if status or inside != [True, True]:
        raise SystemExit(f"the smoke test imported (exit {status}) {places.split()}, not what the wheels hold")
    kinfolk = python.parent / "kinfolk"
    status, listed = answer([kinfolk, "list", "--json"], empty)
    archs = offered(ROOT, "kinfolk.archs")
    expected = [*offered(ROOT, "kinfolk.families"), *archs]
    if status or (missing := [name for name in expected if f'"{name}"' not in listed]):
        raise SystemExit(
            f"kinfolk list (exit {status}) does not name {missing if status == 0 else 'anything'}: {listed}"
        )
    for arch in archs:
        status, text = answer([kinfolk, "verify", "mla", "--arch", arch, *REQUEST.split(), "--json"], empty)
        report = json.loads(text or "{}")
        if status or report.get("status") != "pass" or not report.get("kernels") or not report.get("scenarios"):
            raise SystemExit(f"kinfolk verify on {arch} from the wheels did not pass (exit {status}): {text[:3000]}")
    run([python, "-c", COMPILES.format(archs=archs, names=LLVMS.split(","))], empty)


def goldens(python: Path, empty: Path) -> None:
    """Compare every kernel with the goldens that the wheels hold, on all archs and by every LLVM.

    All are emitted by what the wheels hold; code that the lanes compiled, of the same LLVM IR, is not compiled again.
    """
    command = [python.parent / "kinfolk", "golden", "check", "--require", LLVMS, "--json"]
    status, text = answer(command, empty, **({"KINFOLK_CACHE_DIR": str(CACHE)} if CACHE.is_dir() else {}))
    report = json.loads(text or "{}")
    compared = {(lane["family"], lane["arch"]) for lane in report.get("lanes", ()) if lane["state"] == "as blessed"}
    families, archs = offered(ROOT, "kinfolk.families"), offered(ROOT, "kinfolk.archs")
    if status or compared != {(family, arch) for family in families for arch in archs}:
        found = json.dumps(report.get("refusals"), indent=1) or text
        raise SystemExit(f"the goldens in the wheels (exit {status}, compared {sorted(compared)}): {found[:3000]}")


def without(python: Path, empty: Path, wheels: Sequence[Path]) -> None:
    """Take out one arch after the other, and then all families: the rest works, and what is missed is said by name."""
    families, archs = offered(ROOT, "kinfolk.families"), offered(ROOT, "kinfolk.archs")
    for gone in (*archs, *families):
        wheel = next(path for path in wheels if path.name.startswith(f"kinfolk_{gone}-"))
        run([python, "-m", "pip", "uninstall", "--quiet", "--yes", f"kinfolk-{gone}", "kinfolk"], empty)
        collect = [python, "-m", "pytest", "-qq", "--collect-only", "-p", "no:cacheprovider", ROOT / "tests"]
        at_once(
            partial(asked_without, gone, python, empty),
            partial(run, [python, ROOT / "tools" / "generate_docs.py", "--check"], empty),
            partial(run, collect, ROOT),
        )
        run([python, "-m", "pip", "install", "--quiet", "--no-deps", wheel], empty)


def asked_without(gone: str, python: Path, empty: Path) -> None:
    """Ask what misses an arch or a family that was taken out, and what does not."""
    archs = offered(ROOT, "kinfolk.archs")
    for arch in archs:
        missed = gone in (arch, "mla")
        status, said = answer([python.parent / "kinfolk", "why", "mla", "--arch", arch, *REQUEST.split()], empty)
        if bool(status) != missed or (missed and f"pip install kinfolk-{gone}" not in said):
            raise SystemExit(f"without {gone}, kinfolk why on {arch} (exit {status}) says {said}")
    status, said = answer([python, ROOT / "demos" / "spine.py"], empty)
    missed = gone in (*archs, "mla")
    if bool(status) != (gone == "mla") or (f"pip install kinfolk-{gone}" in said) != missed:
        raise SystemExit(f"without {gone}, the demo (exit {status}) says {said}")


def own_tests(python: Path, work: Path) -> None:
    """Run each distribution's tests, copied out of the tree, each with its first parameters; what compiles and
    simulates ran in the tree already."""
    shutil.copy(ROOT / "pyproject.toml", work)
    folders = [project.relative_to(ROOT) / "tests" for project in projects(ROOT)[:-1]]
    for folder in folders:
        shutil.copytree(ROOT / folder, work / folder, ignore=shutil.ignore_patterns("__pycache__"))
        for shared in (parent / "conftest.py" for parent in folder.parents):
            if (ROOT / shared).exists():
                shutil.copy(ROOT / shared, work / shared)
    record = work / "record.json"
    plugin = ("-p", "lane_record", "--lane-record", record, "-p", "first_of_each")
    lane = ("-n", "auto", "-p", "no:benchmark", "-p", "no:cacheprovider", "-m", "not compile and not simulate")
    run([python, "-m", "pytest", "-q", *plugin, *lane, *folders], work, PYTHONPATH=str(ROOT / ".ci"))
    records = {"wheels": Record.read(record)}
    found = unlisted_skips(records, read_skips(SKIPS.read_text()))
    ran = {Path(nodeid).parts[: len(folder.parts)] for folder in folders for nodeid in records["wheels"].outcomes}
    found += [f"{folder} holds no test that runs against the wheel" for folder in folders if folder.parts not in ran]
    if found:
        raise SystemExit("\n".join(found))


def strangers(python: Path, wheels: Path, work: Path) -> None:
    """Write a family and an arch as anyone would, install them, run their own tests, and run kernels of one on the
    other and of MLA on the new arch; then take them out again."""
    kinfolk, kinds = python.parent / "kinfolk", {"family": FAMILY, "arch": ARCH}
    for kind, name in kinds.items():
        run([kinfolk, "new", kind, name], work)
        run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", wheels, work / name], work)
    run([python, "-m", "pip", "install", "--quiet", *sorted(wheels.glob("*.whl"))], work)
    run([python, "-m", "pip", "check"], work)
    found: list[str] = []
    for name in kinds.values():
        record = work / f"{name}.json"
        plugin = ("-p", "lane_record", "--lane-record", record, "-n", "auto", "-p", "no:benchmark")
        run([python, "-m", "pytest", "-q", *plugin], work / name, PYTHONPATH=str(ROOT / ".ci"))
        record = Record.read(record)
        ran = {nodeid.split("::")[0] for nodeid, outcome in record.outcomes.items() if outcome == "passed"}
        found += unlisted_skips({name: record}, {})
        tests = {path.relative_to(work / name).as_posix() for path in (work / name).glob("tests/test_*.py")}
        found += [f"no test of {name}'s {path} passed" for path in sorted(tests - ran) or ([] if tests else ["tests"])]
    for family, request in ((FAMILY, "rows=3 columns=777"), ("mla", REQUEST)):
        status, text = answer([kinfolk, "verify", family, "--arch", ARCH, *request.split(), "--json"], work)
        report = json.loads(text or "{}")
        if status or report.get("status") != "pass" or not report.get("kernels") or not report.get("scenarios"):
            found.append(f"kinfolk verify {family} on {ARCH} did not pass (exit {status}): {text[:3000]}")
    if found:
        raise SystemExit("\n".join(found))
    run([python, "-m", "pip", "uninstall", "--quiet", "--yes", *(f"kinfolk-{each}" for each in DISTRIBUTIONS)], work)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="kinfolk-wheels-") as folder:
        work = Path(folder)
        for name in ("wheelhouse", "environment", "empty", "tests", "theirs", "strangers"):
            (work / name).mkdir()
        python = work / "environment" / "bin" / "python"
        try:
            apart = partial(build, work / "wheelhouse"), partial(fresh_environment, work / "environment")
            wheels, _ = at_once(*apart)
            install(python, wheels, work)
            smoke(python, work / "empty")
            goldens(python, work / "empty")
            own_tests(python, work / "tests")
            strangers(python, work / "theirs", work / "strangers")
            without(python, work / "empty", wheels)
        except subprocess.CalledProcessError as error:
            print(f"FAILED ({error.returncode}): {' '.join(map(str, error.cmd))}")
            return 1
    print(f"wheels: {len(wheels)} built, installed and tested")
    return 0


if __name__ == "__main__":
    sys.exit(main())
