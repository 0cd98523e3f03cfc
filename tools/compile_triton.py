"""Compile the kernels of `tools/triton` with Triton, whose objects the tests run on the executor of machine code.

    python tools/compile_triton.py            write them to tests/triton
    python tools/compile_triton.py --check    compile, compare bytes, run what differs against what tests/triton has

Triton is kept in a Python of its own under the cache's root, made when it is first needed; it takes about 1 GB there.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from kinfolk.plugins.loading import load
from kinfolk_runtime.comparison import ObjectSide, compare_objects, read_problem
from kinfolk_runtime.storage import storage_root

VERSION = "3.9.0"
ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "tests" / "triton"
BUILD = ROOT / "tools" / "triton" / "build.py"


def interpreter() -> Path:
    """Return the Python that has Triton; its environment is made beside its place and moved there when it works."""
    folder = storage_root() / "toolchains" / f"triton-{VERSION}"
    python = folder / "bin" / "python"
    if not python.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True, symlinks=True)
        try:
            subprocess.run([python, "-m", "pip", "install", "--quiet", f"triton=={VERSION}"], check=True)
        except subprocess.CalledProcessError:
            shutil.rmtree(folder)
            raise
    return python


def built(folder: Path) -> None:
    """Compile all kernels into a folder, with an empty cache."""
    with tempfile.TemporaryDirectory(prefix="triton-cache-") as cache:
        subprocess.run([interpreter(), BUILD, folder], check=True, env={"TRITON_CACHE_DIR": cache, "HOME": cache})


def problem_file(name: str) -> Path:
    """Return the file of the problem that an object, `case-arch`, is launched on: its own or its kernel's."""
    case = name.rpartition("-")[0]
    kernel = json.loads((KEPT / "objects.json").read_text())["objects"][name]["kernel"]
    return next(file for each in (name, case, kernel) if (file := KEPT / f"{each}.toml").exists())


def differing(folder: Path) -> int:
    """Print what became of each object and return how many of them are wrong."""
    wrong = 0
    for kept in sorted(KEPT.glob("*.hsaco")):
        fresh = folder / kept.name
        if fresh.read_bytes() == kept.read_bytes():
            print(f"{kept.name}: the same bytes")
            continue
        arch = load("arch", kept.stem.rpartition("-")[2]).plugin.kinfolk_arch()
        sides = (ObjectSide(path=each, code=each.read_bytes()) for each in (fresh, kept))
        found = compare_objects(arch, read_problem(problem_file(kept.stem)), *sides, traced=False)
        findings = [*found.a.findings, *found.b.findings]
        findings += [finding for each in found.outputs for finding in each.comparison.findings]
        print(f"{kept.name}: other bytes, {'the outputs agree' if found.passed else '; '.join(map(str, findings))}")
        wrong += not found.passed
    return wrong


def main() -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 where an object is wrong")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="triton-objects-") as folder:
        built(Path(folder))
        if arguments.check:
            return 1 if differing(Path(folder)) else 0
        for file in Path(folder).iterdir():
            shutil.copy(file, KEPT / file.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
