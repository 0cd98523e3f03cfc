"""Entries on disk: whatever has become of them, what is read is what was written, or nothing; nothing waits."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from kinfolk.hooks import hookimpl
from kinfolk.plugins.composition import BUILTIN, Composition
from kinfolk_runtime.cache import CacheError, sources, stores
from kinfolk_runtime.cache.store import OBJECTS, SCHEMA, SEAL_BYTES, SIMULATOR, _digest
from kinfolk_runtime.cli.cache import command

KEY, OTHER = "ab" * 32, "ac" * 32
CONTENT = bytes(range(256))
ABOUT = {"symbol": "fill", "arch": "some", "flavor": "llvm22", "toolchain": "t/1"}
WRITER = """
import sys
from kinfolk_runtime.cache.store import OBJECTS
while True:
    for key in sys.argv[1:]:
        OBJECTS.write(key, bytes(range(256)) * 64, {"symbol": "fill"})
"""


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("KINFOLK_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def entry(root) -> tuple[Path, Path]:
    """An entry's payload and manifest."""
    OBJECTS.write(KEY, CONTENT, ABOUT)
    folder = root / "objects" / KEY[:2]
    assert sorted(path.name for path in folder.iterdir()) == [f"{KEY}.json", f"{KEY}.o"]
    return folder / f"{KEY}.o", folder / f"{KEY}.json"


def resealed(path: Path, **changed: object) -> None:
    """Write a manifest anew with changed claims and the right digest."""
    claims = json.loads(path.read_text())
    del claims["manifest_sha256"]
    claims |= changed
    path.write_text(json.dumps({**claims, "manifest_sha256": _digest(claims)}))


def test_what_is_written_is_read_and_other_keys_are_misses(entry):
    assert OBJECTS.read(KEY) == (CONTENT, ABOUT)
    assert OBJECTS.read(OTHER) is None
    assert OBJECTS.read(KEY.upper()) is None
    OBJECTS.write(KEY, b"", {})
    assert OBJECTS.read(KEY) == (b"", {})


@pytest.mark.parametrize("which", [0, 1], ids=["payload", "manifest"])
def test_every_byte_garbled_and_every_length_cut(entry, which):
    path, whole = entry[which], entry[which].read_bytes()
    wrong = []
    for position in range(len(whole)):
        for bit in (1, 0x20):
            path.write_bytes(whole[:position] + bytes([whole[position] ^ bit]) + whole[position + 1 :])
            wrong += [(position, bit)] if OBJECTS.read(KEY) is not None else []
        path.write_bytes(whole[:position])
        assert OBJECTS.read(KEY) is None
    assert wrong == []
    path.write_bytes(whole + b"x")
    assert OBJECTS.read(KEY) is None
    path.write_bytes(whole)
    assert OBJECTS.read(KEY) == (CONTENT, ABOUT)


@pytest.mark.parametrize(
    "content", [b"", b"null", b"[]", b"{}", b"\xff\xfe", b"[" * 500_000, b" " * (1 << 21), b"1e999"]
)
def test_a_manifest_of_anything(entry, content):
    entry[1].write_bytes(content)
    assert OBJECTS.read(KEY) is None
    OBJECTS.write(KEY, CONTENT, ABOUT)
    assert OBJECTS.read(KEY) == (CONTENT, ABOUT)


@pytest.mark.parametrize(
    "changed",
    [{"schema": SCHEMA + 1}, {"schema": None}, {"key": OTHER}, {"files": {}}, {"files": []}]
    + [
        {"files": {f"{KEY}.o": claim}} for claim in ({}, {"bytes": -1}, {"bytes": 1 << 60}, {"bytes": 256, "sha256": 7})
    ],
    ids=str,
)
def test_a_whole_manifest_that_claims_something_else(entry, changed):
    resealed(entry[1])
    assert OBJECTS.read(KEY) == (CONTENT, ABOUT)
    resealed(entry[1], **changed)
    assert OBJECTS.read(KEY) is None


@pytest.mark.parametrize("names", [(0,), (1,), (0, 1)], ids=["payload", "manifest", "both"])
def test_files_swapped_between_keys(entry, names):
    OBJECTS.write(OTHER, CONTENT[::-1], ABOUT)
    for which in names:
        here, there = entry[which], entry[which].parents[1] / OTHER[:2] / entry[which].name.replace(KEY, OTHER)
        content = here.read_bytes()
        here.write_bytes(there.read_bytes())
        there.write_bytes(content)
    assert OBJECTS.read(KEY) is None and OBJECTS.read(OTHER) is None


@pytest.mark.parametrize("which", [0, 1], ids=["payload", "manifest"])
@pytest.mark.parametrize("thing", ["pipe", "device", "folder", "dangling", "loop", "gone"])
def test_something_else_in_place_of_a_file_holds_up_nobody(entry, which, thing):
    path = entry[which]
    path.unlink()
    made = {
        "pipe": lambda: os.mkfifo(path),
        "device": lambda: path.symlink_to("/dev/zero"),
        "folder": path.mkdir,
        "dangling": lambda: path.symlink_to("nowhere"),
        "loop": lambda: path.symlink_to(path.name),
        "gone": lambda: None,
    }
    made[thing]()
    assert OBJECTS.read(KEY) is None
    OBJECTS.write(KEY, CONTENT, ABOUT)
    assert OBJECTS.read(KEY) == ((CONTENT, ABOUT) if thing != "folder" else None)


def started(root: Path, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "KINFOLK_CACHE_DIR": str(root), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen([sys.executable, "-c", WRITER, *arguments], env=environment)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_reader_during_writes_sees_whole_entries_at_every_moment(root):
    writers = [started(root, KEY) for _ in range(2)]
    try:
        wait_for(root / "objects" / KEY[:2] / f"{KEY}.json")
        answers = [OBJECTS.read(KEY) for _ in range(5000)]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    assert answers.count((CONTENT * 64, {"symbol": "fill"})) == 5000


def test_writers_killed_at_any_moment_leave_nothing_wrong(root):
    keys = [f"{number:02x}" * 32 for number in range(40)]
    moment = random.Random(5)
    for _ in range(6):
        writer = started(root, *keys)
        wait_for(root / "objects" / keys[0][:2])
        time.sleep(0.15 * moment.random())
        writer.kill()
        writer.wait()
    found = [answer for key in keys if (answer := OBJECTS.read(key)) is not None]
    assert found and all(answer == (CONTENT * 64, {"symbol": "fill"}) for answer in found)
    assert {entry.state for entry in OBJECTS.entries()} <= {"ok", "damaged", "unfinished"}
    OBJECTS.clear()
    assert not (root / "objects").exists()


def test_the_folder_removed_again_and_again_while_it_is_used(root, caplog):
    ended = threading.Event()

    def remove() -> None:
        while not ended.is_set():
            shutil.rmtree(root, ignore_errors=True)

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        for _ in range(300):
            OBJECTS.write(KEY, CONTENT, ABOUT)
            assert OBJECTS.read(KEY) in (None, (CONTENT, ABOUT))
    finally:
        ended.set()
        remover.join()
    OBJECTS.write(KEY, CONTENT, ABOUT)
    assert OBJECTS.read(KEY) == (CONTENT, ABOUT)
    assert len(caplog.records) <= 3


def test_what_cannot_be_written_is_logged_once_and_never_raised(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("mine")
    monkeypatch.setenv("KINFOLK_CACHE_DIR", str(tmp_path / "file" / "below"))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            OBJECTS.write(KEY, CONTENT, ABOUT)
    [record] = caplog.records
    assert "cannot be written" in record.getMessage() and "Not a directory" in record.getMessage()
    assert OBJECTS.read(KEY) is None


@pytest.mark.parametrize("place", ["file", "file/below/this", "dangling"])
def test_a_place_that_cannot_be_a_folder_is_an_error(tmp_path, monkeypatch, place):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to("nowhere")
    monkeypatch.setenv("KINFOLK_CACHE_DIR", str(tmp_path / place))
    with pytest.raises(CacheError, match=r"KINFOLK_CACHE_DIR is .* is a (file|link to nothing): set it to a folder"):
        stores()
    for made in ("", "new", "new/below"):
        monkeypatch.setenv("KINFOLK_CACHE_DIR", str(tmp_path / made))
        assert OBJECTS in stores()


def run(*arguments: str) -> dict:
    result = CliRunner().invoke(command, [*arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


@pytest.fixture
def mixed(entry, root) -> Path:
    """A cache with a good entry, damaged ones, something unfinished and things that are not ours."""
    for key in (OTHER, "ad" * 32, "ae" * 32):
        OBJECTS.write(key, CONTENT, ABOUT)
    (root / "objects/ac" / f"{OTHER}.o").write_bytes(b"short")
    (root / "objects/ad" / f"{'ad' * 32}.json").write_bytes(b"{")
    (root / "objects/ae" / f"{'ae' * 32}.json").unlink()
    (root / "objects/ab" / f".{KEY}.o.123-0a1b2c3d.tmp").write_bytes(b"begun")
    return root


FOREIGN = (
    "mine.txt",
    "objects/readme.md",
    "objects/ab/mine.o",
    f"objects/ac/{KEY}.o",
    f"objects/ab/{KEY}.o.bak",
    f"objects/ab/.{KEY}.o.tmp",
    f"objects/xy/{KEY}.o",
    f"other/ab/{KEY}.o",
)


def test_list_and_size_of_a_damaged_cache(mixed):
    entries = run("list")["entries"]
    assert [(entry["key"][:2], entry["state"], entry["about"]) for entry in entries] == [
        ("ab", "ok", ABOUT),
        ("ac", "damaged", {}),
        ("ad", "damaged", {}),
        ("ae", "damaged", {}),
        ("", "unfinished", {}),
    ]
    files = [path for path in mixed.rglob("*") if path.is_file()]
    total = run("size")
    assert total["bytes"] == sum(path.stat().st_size for path in files) == sum(entry["bytes"] for entry in entries)
    counts = {"kind": "objects", "ok": 1, "damaged": 3, "unfinished": 1, "bytes": total["bytes"]}
    nothing = {"ok": 0, "damaged": 0, "unfinished": 0, "bytes": 0}
    others = [{"kind": kind, **nothing} for kind in ("lowered", "simulator", "mutation")]
    assert total["kinds"] == [counts, *others]
    for verb in ("list", "size"):
        result = CliRunner().invoke(command, [verb], catch_exceptions=False)
        assert result.exit_code == 0 and "damaged" in result.output


def test_clear_deletes_all_that_is_ours_and_nothing_else(mixed, tmp_path):
    outside = tmp_path / "outside" / "ab"
    outside.mkdir(parents=True)
    (outside / f"{KEY}.o").write_text("mine")
    (mixed / "lowered").symlink_to(outside.parent)
    (mixed / "objects/af").symlink_to(outside)
    for name in FOREIGN:
        (mixed / name).parent.mkdir(parents=True, exist_ok=True)
        (mixed / name).write_text("mine")
    answer = run("clear")
    assert (answer["entries"], answer["files"]) == (5, 8)
    assert sorted(str(path.relative_to(mixed)) for path in mixed.rglob("*") if path.is_file()) == sorted(FOREIGN)
    assert (outside / f"{KEY}.o").read_text() == "mine"
    assert run("list")["entries"] == [] and run("clear")["files"] == 0


@pytest.fixture
def sealed(root) -> Path:
    """The one file of an entry that is sealed, not described."""
    SIMULATOR.write(KEY, CONTENT)
    [path] = (path for path in root.rglob("*") if path.is_file())
    return path


def moved_from_another_key(path: Path) -> None:
    SIMULATOR.write(OTHER, CONTENT[::-1])
    shutil.copy(path.parent.parent / OTHER[:2] / f"{OTHER}.o", path)


def waiting(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


SPOILED = {
    "another key's": moved_from_another_key,
    "a pipe": waiting,
    "a short one": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "a long one": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "an empty one": lambda path: path.write_bytes(b""),
    "a seal alone": lambda path: path.write_bytes(path.read_bytes()[:SEAL_BYTES]),
    "another bit": lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\0"),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED.keys())
def test_a_sealed_entry_is_read_as_it_was_written_under_its_key_or_not_at_all(sealed, spoil):
    assert SIMULATOR.read(KEY) == (CONTENT, {}) and SIMULATOR.read(OTHER) is None
    spoil(sealed)
    assert SIMULATOR.read(KEY) is None
    SIMULATOR.write(KEY, CONTENT)
    assert SIMULATOR.read(KEY) == (CONTENT, {})


def test_commands_on_sealed_entries(sealed, root):
    [entry] = run("list")["entries"]
    assert (entry["kind"], entry["key"], entry["state"]) == ("simulator", KEY, "ok")
    sealed.write_bytes(b"short")
    assert {kind["kind"]: kind for kind in run("size")["kinds"]}["simulator"] == {
        "kind": "simulator",
        "ok": 0,
        "damaged": 1,
        "unfinished": 0,
        "bytes": 5,
    }
    assert run("clear")["files"] == 1 and not list(root.rglob("*.o"))


def test_commands_on_a_cache_that_is_not_there_make_nothing(root):
    assert (run("list")["entries"], run("size")["bytes"], run("clear")["files"]) == ([], 0, 0)
    assert not root.exists()


class Stateful:
    """A plugin that is an object: what it emits is not in its source alone."""

    @hookimpl
    def kinfolk_emit_ir(self) -> None:
        return None


def test_an_object_as_a_plugin_has_no_sources_that_could_be_told():
    composition = Composition.__new__(Composition)
    composition.members = (BUILTIN, type(BUILTIN)(BUILTIN.offer, Stateful()))
    assert sources.sources_of(composition) is None


def test_a_file_younger_than_this_process_makes_its_sources_useless(tmp_path, monkeypatch):
    (tmp_path / "package").mkdir()
    (tmp_path / "package/emitter.py").write_text("")
    found = sources.Sources(packages=("package",), digest="0", folders=(tmp_path / "package",))
    assert not found.imported
    monkeypatch.setattr(sources, "_process_start", lambda: time.time() + 2)
    assert found.imported
    assert found.hold(type("Spec", (), {"__module__": "package.spec"}))
    assert not found.hold(Stateful)


def test_a_process_knows_when_it_began_and_so_does_its_fork():
    script = """
import os, time
begun = time.time()
time.sleep(1.2)
if os.fork():
    os.wait()
else:
    from kinfolk_runtime.cache.sources import _process_start
    assert begun - 1 < _process_start() < begun + 0.2, (begun, _process_start())
    print("ok", flush=True)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "ok\n", done.stderr
