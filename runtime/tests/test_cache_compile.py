"""Compiling through the cache, each case in processes of its own, as it happens to users: nothing wrong is served."""

from __future__ import annotations

import compileall
import contextlib
import functools
import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.compile
DRIVER = Path(__file__).with_name("cached_compile.py")
PACKAGES = {
    "kinfolk": "kinfolk-core",
    "kinfolk_runtime": "kinfolk-runtime",
    "kinfolk_amdgcn": "kinfolk-amdgcn",
    "kinfolk_gfx942": "kinfolk-gfx942",
    "kinfolk_mla": "kinfolk-mla",
}
ENTRY_POINTS = {
    "kinfolk-amdgcn": "[kinfolk.api]\n1 = kinfolk_amdgcn\n",
    "kinfolk-gfx942": "[kinfolk.archs]\ngfx942 = kinfolk_gfx942.plugin\n[kinfolk.api]\n1 = kinfolk_gfx942\n"
    "[kinfolk.facts_schema]\n1 = kinfolk_gfx942\n",
    "kinfolk-mla": "[kinfolk.families]\nmla = kinfolk_mla.plugin\n[kinfolk.api]\n1 = kinfolk_mla\n",
}
REQUIRES = {
    "kinfolk-core": (
        "attrs",
        "numpy",
        "pluggy",
        'click>=8; extra == "cli"',
        "nowhere-to-be-found; python_version < '3'",
    ),
    "kinfolk-gfx942": ("kinfolk-core==0.1.0", "kinfolk-amdgcn==0.1.0"),
    "kinfolk-mla": ("kinfolk-core==0.1.0",),
}
EMITTER = "kinfolk_mla/decode/frame.py"
OLD, NEW = "control.if_else(work.has_rows, attend)", "control.if_else(work.has_rows & (work.length >= 0), attend)"
SETTLE_SECONDS = 1.3  # a process trusts no source that is younger than a second before its start


NAMESPACE = ("unshare", "--mount", "--map-root-user")


class Places:
    """Commands to put before a command, so that it runs with a full disk or a read-only folder."""

    @functools.cached_property
    def can_mount(self) -> bool:
        """Whether a process may have mounts of its own here: root's own or a user namespace's."""
        try:
            probe = subprocess.run(
                [*NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
            )
        except OSError:
            return False
        return probe.returncode == 0

    def full(self, folder: Path, kilobytes: int) -> tuple[tuple[str, ...], str]:
        """Return what to run before a command so that `folder` is a disk of so many KiB, and how the system says full.

        Where nothing can be mounted, no file can grow past that size instead.
        """
        if self.can_mount:
            mount = f'mount -t tmpfs -o size={kilobytes}k none "{folder}" && exec "$@"'
            return (*NAMESPACE, "sh", "-c", mount, "sh"), "No space left on device"
        limit = f"import os, resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); \
resource.setrlimit(resource.RLIMIT_FSIZE, ({min(kilobytes, 64) << 10},) * 2); os.execvp(sys.argv[1], sys.argv[1:])"
        return (sys.executable, "-c", limit), "File too large"

    @contextlib.contextmanager
    def read_only(self, folder: Path) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield what to run before a command so that it cannot write into `folder`, and how the system says so."""
        if self.can_mount:
            mount = f'mount --bind "{folder}" "{folder}" && mount -o remount,bind,ro "{folder}" && exec "$@"'
            yield (*NAMESPACE, "sh", "-c", mount, "sh"), "Read-only file system"
            return
        folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
        for each in folders:
            each.chmod(0o555)
        root_writes_everywhere = ("setpriv", "--bounding-set=-dac_override", "--inh-caps=-all")
        yield (() if os.getuid() else root_writes_everywhere), "Permission denied"
        for each in folders:
            each.chmod(0o755)


@pytest.fixture(scope="session")
def places() -> Places:
    return Places()


class Site:
    """A folder with copies of our packages and their metadata, and processes that see these."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def copy(self, folder: Path) -> Site:
        shutil.copytree(self.folder, folder)
        return Site(folder)

    def edit(self, path: str, old: str, new: str) -> None:
        text = (self.folder / path).read_text()
        assert old in text
        (self.folder / path).write_text(text.replace(old, new))

    def command(self, *arguments: object) -> list[str]:
        return [sys.executable, str(DRIVER), *map(str, arguments)]

    def environment(self, cache: Path) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KINFOLK_")}
        return {**kept, "PYTHONPATH": str(self.folder), "KINFOLK_CACHE_DIR": str(cache)}

    def start(self, cache: Path, *arguments: object, place: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([*place, *self.command(*arguments)], env=self.environment(cache), **pipes)

    def run(self, cache: Path, *arguments: object, place: tuple[str, ...] = ()) -> dict:
        return answered(self.start(cache, *arguments, place=place))


def answered(process: subprocess.Popen[str]) -> dict:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return json.loads(out)


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Site:
    folder = tmp_path_factory.mktemp("site")
    for package, name in PACKAGES.items():
        [source] = importlib.util.find_spec(package).submodule_search_locations
        shutil.copytree(source, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
        metadata = folder / f"{name.replace('-', '_')}-0.1.0.dist-info"
        metadata.mkdir()
        required = "".join(f"Requires-Dist: {each}\n" for each in REQUIRES.get(name, ()))
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n{required}")
        (metadata / "entry_points.txt").write_text(ENTRY_POINTS.get(name, ""))
    compileall.compile_dir(folder, quiet=1)  # else the first process adds folders to the packages
    time.sleep(SETTLE_SECONDS)
    return Site(folder)


@pytest.fixture(scope="session")
def filled(site, tmp_path_factory) -> tuple[Path, dict]:
    """A cache with two kernels, and what the process said that filled it: the truth for all tests here."""
    cache = tmp_path_factory.mktemp("filled")
    truth = site.run(cache, 2, "--kernels")
    assert (truth["compiled"], truth["emitted"], truth["logged"]) == (2, 2, [])
    assert len(set(truth["objects"])) == 2
    return cache, truth


def same(answer: dict, truth: dict, count: int = 2) -> bool:
    return answer["objects"] == truth["objects"][:count] and answer["llvm"] == truth["llvm"][:count]


def test_a_second_process_neither_emits_nor_compiles(site, filled):
    cache, truth = filled
    answer = site.run(cache, 2, "--list")
    assert (answer["compiled"], answer["emitted"]) == (0, 0) and same(answer, truth)
    assert sorted(map(tuple, answer["entries"])) == [("lowered", "ok")] * 2 + [("objects", "ok")] * 2


def test_a_kernel_is_emitted_when_it_is_asked_for_and_is_the_same(site, filled):
    cache, truth = filled
    answer = site.run(cache, 2, "--kernels")
    assert (answer["compiled"], answer["emitted"]) == (0, 2) and answer["ir"] == truth["ir"]


def test_processes_that_compile_the_same_kernels_at_the_same_time(site, filled, tmp_path):
    answers = [answered(each) for each in [site.start(tmp_path, 2) for _ in range(3)]]
    assert all(same(answer, filled[1]) and answer["logged"] == [] for answer in answers)
    last = site.run(tmp_path, 2, "--list")
    assert (last["compiled"], last["emitted"]) == (0, 0) and same(last, filled[1])
    assert [state for _, state in last["entries"]] == ["ok"] * 4


def test_damaged_entries_are_replaced(site, filled, tmp_path):
    cache = tmp_path / "cache"
    shutil.copytree(filled[0], cache)
    one, two = sorted(cache.glob("objects/*/*.o"))
    content, other = one.read_bytes(), two.read_bytes()
    one.write_bytes(other)
    two.write_bytes(content)
    for text in cache.glob("lowered/*/*.ll"):
        text.write_bytes(text.read_bytes().replace(b"fadd", b"fsub", 1)[:-10])
    answer = site.run(cache, 2, "--list")
    assert (answer["compiled"], answer["emitted"]) == (2, 2) and same(answer, filled[1])
    assert {state for _, state in answer["entries"]} == {"ok"}
    assert (one.read_bytes(), two.read_bytes()) == (content, other)


@pytest.mark.parametrize("kind", ["objects", "lowered"])
def test_whole_entries_swapped_between_keys_with_their_manifests(site, filled, tmp_path, kind):
    cache = tmp_path / "cache"
    shutil.copytree(filled[0], cache)
    [first, second] = [path.with_suffix("") for path in sorted(cache.glob(f"{kind}/*/*.json"))]
    for suffix in (".json", {"objects": ".o", "lowered": ".ll"}[kind]):
        one, two = first.with_suffix(suffix), second.with_suffix(suffix)
        content = one.read_bytes()
        one.write_bytes(two.read_bytes())
        two.write_bytes(content)
    answer = site.run(cache, 2)
    assert same(answer, filled[1]) and answer["compiled" if kind == "objects" else "emitted"] == 2


def test_a_manifest_that_claims_other_figures_is_a_miss(site, filled, tmp_path):
    """Even one that is whole: figures are read from the object again."""
    from kinfolk_runtime.cache.store import _digest

    cache = tmp_path / "cache"
    shutil.copytree(filled[0], cache)
    for path in cache.glob("objects/*/*.json"):
        claims = json.loads(path.read_text())
        del claims["manifest_sha256"]
        assert claims["about"]["usage"]["figures"]["vgpr"] > 0
        claims["about"]["usage"]["figures"]["vgpr"] -= 1
        path.write_text(json.dumps({**claims, "manifest_sha256": _digest(claims)}))
    answer = site.run(cache, 2)
    assert answer["compiled"] == 2 and same(answer, filled[1])


def kibibytes(entries: list[Path]) -> int:
    """Return what the largest of some entries takes of a disk, which gives files whole pages, its claims with it."""
    return max(
        sum(-(-file.stat().st_size // 4096) * 4 for file in (each, each.with_suffix(".json"))) for each in entries
    )


@pytest.mark.parametrize("fits", ["nothing", "an object", "an object and half a text", "a text and its object"])
def test_a_full_disk_costs_the_entry_and_not_the_kernel(site, filled, places, tmp_path, fits):
    found = kibibytes([*filled[0].glob("objects/*/*.o")])
    text = kibibytes([*filled[0].glob("lowered/*/*.ll")])
    room = {"nothing": 4, "an object": found, "an object and half a text": found + text // 2}
    place, expected = places.full(tmp_path, room.get(fits, found + text))
    answer = site.run(tmp_path / "cache", 2, "--list", place=place)
    assert same(answer, filled[1])
    [warning] = answer["logged"]
    assert "cannot be written" in warning and expected in warning
    states = [state for _, state in answer["entries"]]
    assert set(states) <= {"ok", "damaged"} and ("ok" in states) == (fits != "nothing")


def test_a_read_only_cache_is_read_and_costs_nothing_else(site, filled, places, tmp_path):
    cache = tmp_path / "cache"
    shutil.copytree(filled[0], cache)
    with places.read_only(cache) as (place, expected):
        served = site.run(cache, 2, place=place)
        missed = site.run(cache, 3, place=place)
    assert (served["compiled"], served["logged"]) == (0, []) and same(served, filled[1])
    assert missed["compiled"] == 1 and missed["objects"][:2] == filled[1]["objects"]
    [warning] = missed["logged"]
    assert "cannot be written" in warning and expected in warning


def test_a_compiler_killed_at_its_work_leaves_nothing_behind(site, filled, tmp_path):
    answer = site.run(tmp_path, 1, "--kill-compiler", "--list")
    assert "signal 9" in answer["error"] and answer["kept"] == []
    assert answer["compiled"] == 2 and same(answer, filled[1], 1)
    assert {state for _, state in answer["entries"]} == {"ok"}


def test_processes_killed_at_any_moment(site, filled, tmp_path):
    moment = random.Random(7)
    for _ in range(4):
        process = site.start(tmp_path, 2)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.7 + moment.random())
        process.send_signal(signal.SIGKILL)
        process.communicate()
    answer = site.run(tmp_path, 2, "--list")
    assert same(answer, filled[1])
    assert {state for _, state in answer["entries"]} <= {"ok", "unfinished"}


def test_an_edited_emitter_is_used_and_so_is_the_one_before(site, filled, tmp_path):
    cache, truth = filled
    edited = site.copy(tmp_path / "edited")
    edited.edit(EMITTER, OLD, NEW)
    at_once = edited.run(cache, 2)
    time.sleep(SETTLE_SECONDS)
    settled, again = edited.run(cache, 2), edited.run(cache, 2)
    assert at_once["emitted"] == settled["emitted"] == 2
    assert at_once["llvm"] == settled["llvm"] == again["llvm"] and not set(settled["llvm"]) & set(truth["llvm"])
    assert at_once["objects"] == again["objects"] and not set(again["objects"]) & set(truth["objects"])
    assert (again["compiled"], again["emitted"]) == (0, 0)
    before = site.run(cache, 2)
    assert (before["compiled"], before["emitted"]) == (0, 0) and same(before, truth)


def test_a_change_of_core_and_of_what_the_arch_requires_counts_too(site, filled, tmp_path):
    copies = [site.copy(tmp_path / name) for name in ("core", "arch")]
    for copy, path in zip(copies, ("kinfolk/lowering/function.py", "kinfolk_amdgcn/lowering/module.py"), strict=True):
        copy.edit(path, "from __future__", "# a comment\nfrom __future__")
    time.sleep(SETTLE_SECONDS)
    for answer in [answered(each) for each in [copy.start(filled[0], 2) for copy in copies]]:
        assert (answer["compiled"], answer["emitted"]) == (0, 2) and same(answer, filled[1])


def test_an_emitter_edited_under_a_running_process_is_never_served_stale(site, filled, tmp_path):
    """What that process imported before must not be found under the sources as they are now."""
    edited, cache = site.copy(tmp_path / "edited"), tmp_path / "cache"
    time.sleep(SETTLE_SECONDS)
    plugin = str(edited.folder / "kinfolk_mla/decode/geometry.py")
    old_in_memory = edited.run(cache, 2, "--edit", plugin, "from __future__", "# younger\nfrom __future__")
    assert same(old_in_memory, filled[1]) and list(cache.glob("lowered/*/*")) == []
    time.sleep(SETTLE_SECONDS)
    after = edited.run(cache, 2)
    assert (after["compiled"], after["emitted"]) == (0, 2)


def test_a_cache_folder_that_is_a_file_is_an_error_that_says_so(site, tmp_path):
    place = tmp_path / "file"
    place.write_text("mine")
    for cache in (place, place / "below"):
        error = site.run(cache, 1)["error"]
        assert (
            error.startswith("CacheError: KINFOLK_CACHE_DIR is") and f"{place} is a file: set it to a folder" in error
        )
    assert place.read_text() == "mine"
