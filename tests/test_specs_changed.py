"""A spec that was changed after it was validated is refused before anything is made of it."""

import copy

import pytest

import kinfolk
from kinfolk.errors import Refused
from kinfolk.plugins.composition import compose
from kinfolk_mla.request import MlaRequest
from kinfolk_runtime import compile as compile_plan
from kinfolk_runtime.compilation import compile_specs

pytestmark = pytest.mark.needs("mla", "gfx942")


class NoToolchain:
    """Whoever compiles here has not looked at the spec."""

    name, build, flavors = "none", "none-1", ("llvm22",)

    def compile(self, job):
        raise AssertionError(f"{job.kernel} was compiled")


@pytest.fixture
def plan():
    request = MlaRequest(
        num_heads=16,
        num_seqs=1,
        total_q=1,
        max_seqlen_q=1,
        max_seqlen_k=20,
        absorbed_query=True,
        page_size=16,
        num_pages=2,
        dtype="bf16",
        kv_dtype="bf16",
        causal=True,
        scale=0.07,
    )
    return kinfolk.dispatch(request, "gfx942")


@pytest.mark.parametrize(
    "name, value", [("rope_width", 24), ("key_read_ahead", True), ("idle_waves", 1), ("page_size", 0)]
)
def test_a_changed_spec_is_refused(plan, name, value):
    composition = compose("mla", "gfx942")
    spec = copy.copy(plan.launches[0].spec)
    composition.emit(spec)  # negative control
    object.__setattr__(spec, name, value)
    with pytest.raises(Refused, match=name):
        composition.emit(spec)
    with pytest.raises(Refused, match=name):
        compile_specs((spec,), "llvm22", composition=composition, toolchain=NoToolchain())


def test_what_is_no_spec_is_a_type_error(plan):
    with pytest.raises(TypeError, match="a kernel is emitted for a Spec, got a MlaRequest"):
        compose("mla", "gfx942").emit(plan.request)


def test_a_plan_whose_request_was_changed_is_not_compiled(plan):
    object.__setattr__(plan.request, "scale", float("nan"))
    with pytest.raises(ValueError, match=r"was changed since it was dispatched: .*scale"):
        compile_plan(plan)
