"""How long it takes to find installed plugins, to join two, and to choose a kernel with and without a lookup."""

import itertools
import subprocess
import sys

import pytest

from kinfolk import dispatch
from kinfolk.dispatch import select
from kinfolk.flavor import DEFAULT_FLAVOR
from kinfolk.plugins.composition import Composition
from kinfolk.plugins.loading import load

LISTING = "from kinfolk.plugins.loading import installed; assert installed('family')"


@pytest.mark.benchmark(group="listing")
@pytest.mark.parametrize(
    "statement", ["import kinfolk.plugins.loading", LISTING], ids=["import-alone", "installed-names"]
)
def test_listing(benchmark, statement):
    """Names of installed plugins in a fresh interpreter; the first row is what is there before any name is read."""
    benchmark(subprocess.run, [sys.executable, "-c", statement], check=True)


@pytest.mark.benchmark(group="composition")
def test_composition(benchmark, composition):
    """One family and one arch joined anew, both imported already."""
    family, arch = load("family", composition.family), load("arch", composition.arch.name)
    benchmark(Composition, family, arch)


@pytest.mark.benchmark(group="dispatch")
def test_dispatch_lookup(benchmark, decode, aim):
    """A decode step that differs from the one before only in its longest sequence."""
    aim(5e-6)
    steps = itertools.cycle([decode(max_seqlen_k=length, num_pages=4096) for length in range(900, 1000)])
    arch = "gfx942"
    dispatch(decode(num_pages=4096), arch)
    benchmark(lambda: dispatch(next(steps), arch))


@pytest.mark.benchmark(group="dispatch")
def test_dispatch_anew(benchmark, composition, decode, aim):
    """The same choice with nothing kept: every candidate judged, every reason collected, intervals found."""
    aim(50e-6)
    request = decode()
    benchmark(select, composition, request, DEFAULT_FLAVOR)
