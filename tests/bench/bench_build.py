"""How long a kernel takes from spec to object: emission, lowering, code generation, reading the figures."""

import pytest

from kinfolk.analysis import analyse
from kinfolk.flavor import DEFAULT_FLAVOR, flavor_named
from kinfolk_runtime.artifact import compile_job, lower_spec
from kinfolk_runtime.toolchains.host import toolchain_for


@pytest.fixture
def spec(plan):
    return plan.launches[0].spec


@pytest.fixture
def spec_named(composition):
    """Return a function that gives a candidate's first spec."""

    def named(name):
        [candidate] = [each for each in composition.candidates() if each.name == name]
        return candidate.spec_space(composition.arch, DEFAULT_FLAVOR)[0]

    return named


@pytest.mark.benchmark(group="build")
def test_emit(benchmark, composition, spec):
    """Spec to verified IR."""
    benchmark(composition.emit, spec)


@pytest.mark.benchmark(group="build")
def test_analyse(benchmark, composition, aim, spec_named):
    """All static analyses of the kernel with the most ops."""
    spec = spec_named("mla.grouped")
    kernel = composition.emit(spec)
    aim(1.0)
    benchmark(lambda: analyse(kernel, arch=composition.arch, spec=spec))


@pytest.mark.benchmark(group="build")
def test_lower(benchmark, composition, spec):
    """IR to LLVM IR."""
    kernel = composition.emit(spec)
    benchmark(composition.arch.lower, kernel, spec, flavor_named(DEFAULT_FLAVOR).rank)


@pytest.mark.benchmark(group="build")
def test_emit_and_lower(benchmark, composition, spec, aim):
    """Spec to LLVM IR."""
    aim(150e-3)
    benchmark(lower_spec, composition, spec, DEFAULT_FLAVOR)


@pytest.mark.benchmark(group="build")
def test_compile(benchmark, composition, spec):
    """LLVM IR to object, in a worker that is warm."""
    _, module = lower_spec(composition, spec, DEFAULT_FLAVOR)
    toolchain, job = toolchain_for(DEFAULT_FLAVOR), compile_job(module)
    toolchain.compile(job)
    benchmark(toolchain.compile, job)


@pytest.mark.benchmark(group="build")
def test_figures(benchmark, composition, spec):
    """Object to figures, and the gate on them."""
    _, module = lower_spec(composition, spec, DEFAULT_FLAVOR)
    code = toolchain_for(DEFAULT_FLAVOR).compile(compile_job(module)).object

    def gate():
        return composition.gate(composition.arch.usage(code, module.symbol), spec)

    benchmark(gate)
