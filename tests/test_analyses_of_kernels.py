"""Every kernel that the families of the checkout hand out passes every static analysis, on every arch of it."""

import sys
from pathlib import Path

import attrs
import pytest

import kinfolk
from kinfolk.analysis import ANALYSES, analyse, loop_divisions
from kinfolk.analysis.arguments import argument_bounds
from kinfolk.ir.ops import arithmetic
from kinfolk.plugins.composition import compose
from kinfolk.plugins.loading import load
from kinfolk.tile.paging import PageTable

pytestmark = pytest.mark.needs("mla", "gfx942", "gfx950")

EXAMPLE = str(Path(kinfolk.__file__).parent / "templates/family/src")
if EXAMPLE not in sys.path:
    sys.path.append(EXAMPLE)
ARCHS = ("gfx942", "gfx950")
FLAVOR = "llvm22"


def of_mla(arch):
    composition = compose("mla", arch)
    for candidate in composition.candidates():
        for spec in candidate.spec_space(composition.arch, FLAVOR):
            if not composition.validate_spec(spec):
                yield composition.arch, spec, composition.emit(spec)


def of_mla_combine(arch):
    from kinfolk_mla.combine.kernel import emit_combine
    from kinfolk_mla.combine.plan import combine_spec

    known = compose("mla", arch).arch
    yield known, combine_spec(), emit_combine(combine_spec(), known)


def of_the_example(arch):
    from kinfolk.plugins.composition import arch_of
    from kinfolk_row_softmax.candidate import row_softmax_specs
    from kinfolk_row_softmax.kernel import emit_row_softmax

    known = arch_of(load("arch", arch))
    for spec in row_softmax_specs(known, FLAVOR):
        yield known, spec, emit_row_softmax(spec, known)


@pytest.mark.parametrize("family", [of_mla, of_mla_combine, of_the_example])
@pytest.mark.parametrize("arch", ARCHS)
def test_every_kernel_passes(family, arch):
    kernels = list(family(arch))
    assert kernels and len(ANALYSES) == 8
    for known, spec, kernel in kernels:
        assert analyse(kernel, arch=known, spec=spec) == (), spec
        assert loop_divisions(kernel) == ()


@pytest.mark.parametrize("arch", ARCHS)
def test_what_plans_pass_lies_within_what_kernels_declare(arch):
    composition = compose("mla", arch)
    fields = {"num_seqs": 2, "total_q": 2, "max_seqlen_q": 1, "max_seqlen_k": 64, "absorbed_query": True}
    for heads, tokens in ((16, 1), (64, 1), (128, 1), (12, 5)):
        given = {"num_heads": heads, **fields, "max_seqlen_q": tokens, "total_q": 2 * tokens}
        request = composition.request_type(**given, **composition.request_type.cli_defaults(given))
        judged = 0
        for candidate in composition.candidates():
            if candidate.unmet(candidate.capability, request, composition.arch):
                continue
            plan = candidate.planned(request, composition.arch, FLAVOR)
            assert argument_bounds(plan, candidate, composition.arch) == ()
            judged += 1
        assert judged


def test_a_table_that_counts_keys_in_32_bits_without_their_bound_is_told(monkeypatch):
    """Negative control: the same kernels, with the check of a page id against the cache dropped."""
    resolve = PageTable.resolve

    def unchecked(self, identifier, tile):
        monkeypatch.setattr(arithmetic, "icmp", lambda a, b, predicate: a.eq(a))
        try:
            return resolve(self, identifier, tile)
        finally:
            monkeypatch.undo()
            monkeypatch.setattr(PageTable, "resolve", unchecked)

    monkeypatch.setattr(PageTable, "resolve", unchecked)
    known, spec, kernel = next(of_mla("gfx942"))
    found = analyse(kernel, arch=known, spec=spec)
    assert {defect.check for defect in found} >= {"unchecked_indirection"}
    assert all("paging.py" in defect.where for defect in found if defect.check == "unchecked_indirection")


def test_a_limit_that_is_missing_is_told_by_the_parameter_that_it_kept_in_bounds():
    """Negative control: the same plan, with the limit of keys or of query tokens dropped."""
    composition = compose("mla", "gfx942")
    given = {"num_heads": 16, "num_seqs": 2, "total_q": 2**16, "max_seqlen_q": 2**16, "max_seqlen_k": 64}
    given |= {"absorbed_query": True}
    request = composition.request_type(**given, **composition.request_type.cli_defaults(given))
    [candidate] = [each for each in composition.candidates() if each.name == "mla.decode"]
    plan = candidate.planned(request, composition.arch, FLAVOR)
    told = {
        "max_seqlen_k": {"MlaDecodeSpec, parameter max_seqlen_k", "MlaDecodeSpec, parameter segment_pages"},
        "total_q": {"MlaDecodeSpec, parameter total_q", "MlaCombineSpec, parameter total_q"},
        "num_pages": {"MlaDecodeSpec, parameter num_pages"},
    }
    for name, places in told.items():
        kept = tuple(limit for limit in candidate.capability if limit.field != name)
        found = argument_bounds(plan, attrs.evolve(candidate, capability=kept), composition.arch)
        assert {defect.where for defect in found} == places


def test_a_grid_that_is_larger_than_its_kernel_claims_is_told():
    composition = compose("mla", "gfx942")
    given = {"num_heads": 128, "num_seqs": 2, "total_q": 2, "max_seqlen_q": 1, "max_seqlen_k": 64}
    given |= {"absorbed_query": True}
    request = composition.request_type(**given, **composition.request_type.cli_defaults(given))
    [candidate] = [each for each in composition.candidates() if each.name == "mla.decode"]
    plan = candidate.planned(request, composition.arch, FLAVOR)
    assert argument_bounds(plan, candidate, composition.arch, composition.emit) == ()
    launch, *others = plan.launches
    wider = attrs.evolve(launch, grid=(launch.grid[0] * 2**24, *launch.grid[1:]))
    found = argument_bounds(
        attrs.evolve(plan, launches=(wider, *others)), candidate, composition.arch, composition.emit
    )
    assert {"along x" in defect.problem for defect in found} == {True}
