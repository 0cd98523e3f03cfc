"""Python and C++ say the same of requests at every edge, and of random ones; a drift planted on either side is found.

The lane asks every edge and a few random ones; `make sweep` asks a hundred thousand requests.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from kinfolk.expr import field
from kinfolk.expr.arithmetic import CeilDiv
from kinfolk.plugins.composition import Composition, compose
from kinfolk.plugins.discovery import Offer
from kinfolk.plugins.loading import Loaded, load
from kinfolk_runtime.bundles import BundleError, include_folder, write_bundle

ROOT = Path(__file__).resolve().parent.parent
ANSWERS = ROOT / "tests" / "cpp" / "answers.cpp"
COUNTS = {
    "mla-gfx942": 30_000,
    "mla-gfx950": 30_000,
    "attention_fwd-gfx950": 30_000,
    "row_softmax-gfx942": 20_000,
    "toy": 20_000,
}
UNCOMPILED = ("attention_fwd",)
"""Families of hundreds of kernels, of which the documents are written alone."""
assert sum(COUNTS.values()) >= 100_000
FEW = 1_600
"""So many random requests the lane asks of each, after those at edges."""
pytestmark = [pytest.mark.compile, pytest.mark.needs("mla", "attention_fwd", "gfx942", "gfx950")]


def row_softmax():
    """Return the composition of the family that `kinfolk new family` writes, which nobody installs."""
    source = str(ROOT / "core" / "src" / "kinfolk" / "templates" / "family" / "src")
    if source not in sys.path:
        sys.path.insert(0, source)
    import kinfolk_row_softmax.plugin as plugin

    offer = Offer(
        kind="family",
        name="row_softmax",
        value=plugin.__name__,
        distribution="kinfolk-row-softmax",
        version="1",
    )
    return Composition(Loaded(offer, plugin), load("arch", "gfx942"), ())


@pytest.fixture(scope="module")
def written(tmp_path_factory, sibling):
    """Return a family on an arch by name, with its bundle."""

    def write(name):
        folder = tmp_path_factory.mktemp(name) / "bundle"
        if name == "toy":
            return sibling("bundle_toy").write_toy(folder), folder
        family, _, arch = name.partition("-")
        composition = row_softmax() if family == "row_softmax" else compose(family, arch)
        if family in UNCOMPILED:
            sibling("bundle_toy").write_uncompiled(composition, folder)
        else:
            write_bundle(folder, composition, "llvm22")
        return composition, folder

    return write


@pytest.fixture(scope="module")
def fuzz(sibling):
    return sibling("bundle_fuzz")


@pytest.mark.parametrize("name", COUNTS)
def test_python_and_cpp_say_the_same(name, written, fuzz, built_cpp, pytestconfig):
    composition, folder = written(name)
    edges = fuzz.edge_count(composition)
    count = COUNTS[name] if pytestconfig.getoption("--every-request") else edges + FEW
    assert count > edges > 1_000
    tally = fuzz.compared(composition, built_cpp(ANSWERS), folder, count)
    print(f"\n{name}: {tally}")
    assert not tally.differences, "\n".join(map(str, tally.differences[:5]))
    assert tally.counts["compared"] == count
    assert min(tally.counts[kind] for kind in ("admitted", "refused", "invalid")) > 500
    assert declared_codes(composition) <= set(tally.codes)


def declared_codes(composition):
    """Return the codes of all limits that a request can meet here, and each candidate that can be selected."""
    offered = [each for each in composition.candidates() if each.min_llvm <= 22]
    limits = {limit.code for candidate in offered for limit in candidate.capability}
    return limits | {f"selected {candidate.name}" for candidate in offered}


def test_a_limit_that_only_python_has_moved_is_found(fuzz, written, built_cpp, monkeypatch):
    """The bundle is of yesterday's family: one bound of one limit is another today."""
    composition, folder = written("mla-gfx942")
    [first, *_] = [each for each in composition.candidates() if each.name == "mla.decode"]
    [old] = [limit for limit in first.capability if limit.code == "mla.decode.max_seqlen_k"]
    newer = attrs.evolve(old, condition=field("max_seqlen_k") <= 2**31 - 17)
    capability = tuple(newer if limit is old else limit for limit in first.capability)
    candidates = tuple(
        attrs.evolve(each, capability=capability) if each is first else each for each in composition.candidates()
    )
    monkeypatch.setattr(composition, "candidates", lambda: candidates)
    tally = fuzz.compared(composition, built_cpp(ANSWERS), folder, 3_000)  # of those at edges of limits
    assert tally.differences
    assert any("max_seqlen_k" in str(each) for each in tally.differences)


def test_arithmetic_that_only_python_does_otherwise_is_found(fuzz, written, built_cpp, monkeypatch):
    composition, folder = written("toy")
    monkeypatch.setattr(CeilDiv, "exact", staticmethod(lambda left, right: left // right))
    tally = fuzz.compared(composition, built_cpp(ANSWERS), folder, 9_000)
    assert any(each.python.get("launches") != each.cpp.get("launches") for each in tally.differences)


PLANTED = {
    "rounding": (
        "expr.hpp",
        "return quotient * right != left && (left < 0) != (right < 0) ? quotient - 1 : quotient;",
        "return quotient;",
    ),
    "packing": (
        "plan.hpp",
        "static_cast<unsigned char>(bits >> (8 * i))",
        "static_cast<unsigned char>(bits >> (8 * (i % 3)))",
    ),
    "order": ("bundle.hpp", "std::tie(a.priority, a.name) < std::tie(b.priority, b.name)", "a.name > b.name"),
    "words": ("request.hpp", "is checked exactly, got ", "is checked, got "),
}


def test_a_drift_that_only_cpp_has_is_found(fuzz, written, built_cpp, tmp_path):
    """Each fault is planted in a copy of the headers, and all are built into one program that has one switched on."""
    shutil.copytree(include_folder(), tmp_path / "include")
    for number, (header, right, wrong) in enumerate(PLANTED.values()):
        path = tmp_path / "include" / "kinfolk" / header
        text = path.read_text()
        assert text.count(right) == 1
        path.write_text(text.replace(right, chosen(number, right, wrong)))
    switch = tmp_path / "include" / "kinfolk" / "value.hpp"
    named = 'namespace kinfolk {\ninline int planted() { return std::atoi(std::getenv("PLANTED")); }\n'
    text = switch.read_text().replace("namespace kinfolk {\n", named, 1)
    switch.write_text(text.replace("#include <cmath>", "#include <cmath>\n#include <cstdlib>"))
    program = built_cpp(ANSWERS, "-O0", include=tmp_path / "include")
    composition, folder = written("toy")
    pairs = list(fuzz.asked_of(composition, 9_000))
    for number in (-1, *range(len(PLANTED))):

        def read(program, bundle, lines, number=number):
            command = ["env", f"PLANTED={number}", str(program), str(bundle)]
            done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout.splitlines()

        tally = fuzz.tallied(pairs, program, folder, read)
        assert bool(tally.differences) is (number >= 0), list(PLANTED)[number]


def chosen(number, right, wrong):
    """Return source that is right unless the fault of this number is switched on."""
    if right.startswith("return"):
        return f"if (planted() == {number}) {{ {wrong} }}\n  {right}"
    if right.endswith(" "):
        return f'" + std::string(planted() == {number} ? "{wrong}" : "{right}") + "'
    return f"(planted() == {number} ? ({wrong}) : ({right}))"


def test_a_fact_that_limits_read_and_the_arch_does_not_declare_stops_the_writing(tmp_path, monkeypatch):
    composition = row_softmax()
    facts = {name: value for name, value in composition.arch.facts.declared.items() if name != "max_view_bytes"}
    monkeypatch.setattr(composition, "arch", attrs.evolve(composition.arch, facts=facts))
    with pytest.raises(BundleError, match="row_softmax on gfx942: limits and plans read max_view_bytes, which gfx942"):
        write_bundle(tmp_path / "bundle", composition, "llvm22")
    assert not (tmp_path / "bundle").exists()
