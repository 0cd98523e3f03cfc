"""Every family on every arch, compiled by every LLVM of this host, passes the gate: builds of one version differ."""

from __future__ import annotations

import attrs
import pytest

from kinfolk.errors import Refused, ToolError
from kinfolk.plugins.composition import compose
from kinfolk.plugins.loading import installed
from kinfolk_runtime.compilation import compile_spec
from kinfolk_runtime.spec_space import gated, sampled, spec_space
from kinfolk_runtime.toolchains import Toolchain, link
from kinfolk_runtime.toolchains.host import named_toolchain

pytestmark = pytest.mark.compile

LANES = {"llvmlite": "llvm22", "llc": "llvm22", "llvmlite20": "llvm20"}
PAIRS = [(family, arch) for family in installed("family") for arch in installed("arch")]


def toolchain_named(name: str) -> Toolchain:
    try:
        toolchain = named_toolchain(name)
        assert toolchain.build
    except ToolError as error:
        pytest.skip(str(error))
    return toolchain


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.needs("mla")
@pytest.mark.parametrize(("family", "arch"), PAIRS)
def test_the_whole_spec_space_passes_the_gate_with_every_llvm(family, arch, lane):
    flavor, toolchain = LANES[lane], toolchain_named(lane)
    assert toolchain.flavors[-1] == flavor
    composition = compose(family, arch)
    specs = sampled(spec_space(composition, flavor))
    assert specs, f"{family} has no spec on {arch} for {flavor}"
    judged = list(gated(specs, flavor, composition=composition, toolchain=toolchain))
    assert [str(each.error or each.refusals) for each in judged if not each.passed] == []
    for each in judged:
        assert each.kernel is not None and each.kernel.toolchain == toolchain.build
        assert (each.kernel.usage.scratch_bytes, each.kernel.usage.scratch_ops) == (0, 0)


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.needs("mla")
@pytest.mark.parametrize(("family", "arch"), PAIRS)
def test_a_kernel_of_every_llvm_links(family, arch, lane):
    composition, toolchain = compose(family, arch), toolchain_named(lane)
    spec = spec_space(composition, LANES[lane])[0]
    kernel = compile_spec(spec, LANES[lane], composition=composition, toolchain=toolchain)
    linked = link(kernel.object, kernel=kernel.module.symbol)
    assert composition.arch.usage(linked, kernel.module.symbol).figures == kernel.usage.figures


@pytest.mark.parametrize("lane", ["llvmlite", "llc", "llvmlite20"])
@pytest.mark.needs("mla", "gfx942")
def test_the_gate_sees_a_spill_whichever_llvm_makes_it(lane):
    """Negative control: all of the query in registers, and reads far ahead, are more than the registers hold."""
    composition, toolchain = compose("mla", "gfx942"), toolchain_named(lane)
    planned = next(each for each in spec_space(composition, LANES[lane]) if hasattr(each, "parked_query_reads"))
    spec = attrs.evolve(planned, parked_query_reads=0, key_read_ahead=8, value_read_ahead=4)
    with pytest.raises(Refused, match="scratch"):
        compile_spec(spec, LANES[lane], composition=composition, toolchain=toolchain)


@pytest.mark.needs("mla", "gfx942")
def test_ir_of_an_older_generation_is_not_read_by_a_newer_llvm():
    """What keeps LLVM 22 from serving llvm20: the resource of a view is written otherwise."""
    composition, toolchain = compose("mla", "gfx942"), toolchain_named("llvmlite")
    spec = spec_space(composition, "llvm20")[0]
    with pytest.raises(ToolError, match=r"argument type|does not match|layout"):
        compile_spec(spec, "llvm20", composition=composition, toolchain=toolchain)
