"""The goldens of the families that are installed here, by every LLVM that the project supports."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from kinfolk.plugins.composition import compose
from kinfolk.plugins.loading import usable
from kinfolk_runtime.goldens.place import Place

REQUIRED = "llvmlite,llvmlite20,llc"


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kinfolk.cli", "golden", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.compile
@pytest.mark.needs("mla")
def test_every_kernel_is_what_was_approved_of() -> None:
    done = ran("check", "--require", REQUIRED, "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["refusals"]) == (0, []), "\n".join(
        f"{row['because']}. {row['remedy']}" for row in document["refusals"]
    )
    assert document["compared"]["digests"] > 0 and document["compared"]["figures"] > 0
    compared = {(lane["family"], lane["arch"]) for lane in document["lanes"] if lane["state"] == "as blessed"}
    assert compared == {(family, arch) for family in usable("family") for arch in usable("arch")}


def test_there_are_goldens_of_every_arch_and_of_no_other(offered: Callable[[str], set[str]]) -> None:
    """An arch that is not installed is not compared, so none may get lost."""
    for family in usable("family"):
        assert set(Place.of(compose(family, usable("arch")[0])).archs()) == offered("kinfolk.archs")


NEWER = """
    import shutil, sys
    from pathlib import Path
    import kinfolk
    from kinfolk.flavor import register_flavor
    from kinfolk_runtime.goldens import bless, check, place, present
    from kinfolk_runtime.goldens.check import Host
    from kinfolk_runtime.toolchains.llvmlite_toolchain import LlvmliteToolchain
    def newer():
        made = LlvmliteToolchain(name="simulated23", workers=2)
        made._versions = lambda: {"llvmlite": "0.51.0", "llvm": "23.1.0"}
        return made
    composition = kinfolk.compose("mla", "gfx942")
    of = place.Place.of(composition)
    copy = Path(sys.argv[1]) / "goldens"
    shutil.copytree(of.folder, copy)
    place.Place.of = classmethod(lambda cls, composition: cls(family="mla", distribution="d", folder=copy))
    everyday = present.sampled
    present.sampled = lambda space: everyday(space)[:2]
    bless([composition], Host(toolchains={}), "Two kernels speak for all.")
    register_flavor("llvm23")
    host = Host(toolchains={"simulated23": newer()})
    codes = lambda: [(each.code, each.where.section) for each in check([composition], host).findings]
    before = codes()
    bless([composition], host, "A simulated lane.")
    print([before, codes(), sorted({lane.section for lane in check([composition], host).lanes})])
"""


@pytest.mark.compile
@pytest.mark.needs("mla", "gfx942")
def test_a_simulated_newer_lane_is_served_by_rank_and_fails_until_it_is_blessed(tmp_path: Path) -> None:
    """Of two kernels: that a lane is missed for all of a space is shown on toys (runtime/tests/test_goldens.py)."""
    command = [sys.executable, "-c", textwrap.dedent(NEWER), str(tmp_path)]
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    before, after, sections = eval(done.stdout)
    assert (before, after) == ([("digests.missing", "llvm23")], [])
    assert "llvm23 by llvmlite-0.51.0/llvm-23.1.0" in sections


@pytest.mark.compile
@pytest.mark.needs("mla", "gfx942")
def test_the_check_sees_a_figure_and_a_digest_that_are_others(tmp_path: Path) -> None:
    """The control: a copy of what is installed, changed by one figure and one letter."""
    place = Place.of(compose("mla", "gfx942"))
    copy = tmp_path / "goldens"
    shutil.copytree(str(place.folder), copy)
    figures, digests = copy / "gfx942.figures.json", copy / "gfx942.digests.json"
    figures.write_text(figures.read_text().replace('"vgpr": 2', '"vgpr": 1'))
    digests.write_text(digests.read_text().replace('"llvm": "', '"llvm": "0', 1))
    code = f"""
        from pathlib import Path
        import kinfolk
        from kinfolk_runtime.goldens import check, place
        from kinfolk_runtime.goldens.check import Host
        composition = kinfolk.compose("mla", "gfx942")
        folder = Path({str(copy)!r})
        place.Place.of = classmethod(lambda cls, composition: cls(family="mla", distribution="d", folder=folder))
        print(*sorted({{each.code for each in check([composition], Host.found()).findings}}))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["digests.moved", "figures.moved", "ledger.broken"], done.stderr
