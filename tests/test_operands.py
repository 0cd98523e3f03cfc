"""What each family declares of its tensors, against the plans that its requests get: one cannot change alone."""

import attrs
import pytest

from kinfolk import dispatch
from kinfolk.operand import Operand, disagreements, inputs_of, stated_fields
from kinfolk.plugins.composition import compose, request_type_of
from kinfolk.record import fields_of

FAMILIES = ("attention_bwd", "attention_fwd", "mla")
BY_TENSORS = {"attention_bwd": {"batch", "seqlen_q", "seqlen_k"}}
"""Fields that tensors state of a request, beside those of all families; of others the counts of a packed batch."""


@attrs.frozen
class Shaped:
    shape: tuple[int, ...]
    dtype: str


def plans(family: str, arch: str):
    return [dispatch(request, arch) for request in compose(family, arch).mutation_requests()]


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("family", FAMILIES)
def test_plans_bind_what_is_declared(family, arch):
    found = plans(family, arch)
    assert found
    assert {plan.candidate: disagreements(plan) for plan in found if disagreements(plan)} == {}


@pytest.mark.parametrize("arch", ["gfx942"])
@pytest.mark.parametrize("family", FAMILIES)
def test_tensors_of_a_plan_state_its_request(family, arch):
    """Every field that is read off the tensors of a plan is the field of its request."""
    for plan in plans(family, arch):
        scope, request = plan.scope(), plan.request
        tensors = {
            binding.name: Shaped(tuple(axis.extent.integer(scope) for axis in binding.shape), binding.dtype)
            for binding in plan.bindings
            if binding.role == "input"
        }
        assert set(tensors) <= set(inputs_of(type(request).operands))
        stated = stated_fields(type(request).operands, tensors, {})
        assert {"dtype", "num_heads", *BY_TENSORS.get(family, ("num_seqs", "total_q"))} <= stated.keys()
        assert {name: getattr(request, name) for name in stated} == stated
        assert {field.name for field in fields_of(type(request))} > stated.keys()


@pytest.mark.needs("attention_fwd", "attention_bwd")
def test_a_gradient_names_tensors_and_fields_of_the_request_that_forms_it():
    """Each tensor that it reads, each of its outputs, every field that tensors do not state and that has no default."""
    gradient = request_type_of("attention_fwd").gradient
    kind = request_type_of(gradient.family)
    outputs = {operand.name for operand in kind.operands if operand.output}
    assert {*gradient.reads, *gradient.given} == set(inputs_of(kind.operands))
    assert set(gradient.gives.values()) == outputs
    stated = {leaf for operand in kind.operands for leaf in operand.leaves()}
    asked = {field.name for field in fields_of(kind) if field.default is attrs.NOTHING}
    assert asked - stated <= gradient.states.keys() <= {field.name for field in fields_of(kind)}


@pytest.mark.needs("mla", "gfx942")
def test_the_check_sees_an_operand_that_is_wrong(monkeypatch):
    """Negative control: an extent, an element type, a tensor and an output that are not those of the plan."""
    plan = plans("mla", "gfx942")[0]
    kind = type(plan.request)
    right = kind.operands
    assert disagreements(plan) == ()

    def told(of: str, **changed: object) -> str:
        wrong = [attrs.evolve(each, **changed) if each.name == of else each for each in right]
        monkeypatch.setattr(kind, "operands", tuple(wrong))
        return " ".join(disagreements(plan))

    cache = next(each for each in right if each.name == "c_kv")
    assert "c_kv is bound as bf16 (num_pages, page_size, kv_lora_rank)" in told("c_kv", shape=cache.shape[::-1])
    assert "cu_seqlens_k is bound as i32" in told("cu_seqlens_k", dtype=Operand(name="", dtype="i64", shape=()).dtype)
    assert "k_rope with 3 axes is bound, and is no operand" in told("k_rope", name="rope")
    assert "its outputs are out, lse, its operands' out" in told("lse", when=cache.when.eq(False))
