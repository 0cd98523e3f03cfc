"""Fields of specs that no kernel depends on, beside fields on which one does."""

from __future__ import annotations

import attrs
import pytest

from kinfolk.analysis import dead_spec_fields, spec_fields
from kinfolk.errors import IRError
from kinfolk.fields import ExactBool, ExactInt, OneOf
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import memory
from kinfolk.ir.types import I32, PointerType
from kinfolk.parameters import Parameter
from kinfolk.spec import Spec


@attrs.frozen(kw_only=True)
class PaperSpec(Spec):
    width: int = attrs.field(default=8, validator=ExactInt(maximum=64, step=4, minimum=4))
    deep: bool = attrs.field(default=False, validator=ExactBool())
    ink: str = attrs.field(default="black", validator=OneOf(("black", "red", "blue")))

    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter(name="y", type=PointerType(I32), access="write", alignment=4),)


@pytest.fixture
def emit(built):
    """Return a maker of emitters: of kernels that store what is computed of a spec."""

    def emitter(number):
        def emitted(spec):
            value = number(spec)
            return built(lambda y: memory.store(y, constant(value, I32)), parameters=spec.parameters())

        return emitted

    return emitter


def whole(spec):
    return spec.width * 8 + spec.deep * 4 + ("black", "red", "blue").index(spec.ink)


def test_fields_that_all_count(emit):
    fields = spec_fields([PaperSpec()], emit(whole))
    assert [(each.name, each.dead, each.pair is None) for each in fields] == [
        ("width", False, False),
        ("deep", False, False),
        ("ink", False, False),
    ]
    assert dead_spec_fields([PaperSpec()], emit(whole)) == ()


@pytest.mark.parametrize("name", ["width", "deep", "ink"])
def test_a_field_that_changes_nothing_is_dead(emit, name):
    def without(spec):
        return whole(attrs.evolve(spec, **{name: getattr(PaperSpec(), name)}))

    [defect] = dead_spec_fields([PaperSpec(), PaperSpec(width=16, deep=True)], emit(without))
    assert defect.check == "dead_spec_field" and defect.where == f"PaperSpec.{name}"


def test_a_field_may_count_for_some_specs_only(emit):
    """Red ink matters on deep paper alone: the space has such a spec, or has not."""

    def some(spec):
        return whole(spec) if spec.deep else whole(attrs.evolve(spec, ink="black"))

    assert dead_spec_fields([PaperSpec(), PaperSpec(deep=True)], emit(some)) == ()
    [defect] = dead_spec_fields([PaperSpec()], emit(some))
    assert defect.where == "PaperSpec.ink"


def test_legal_values_are_tried_first_and_others_where_none_is(emit):
    tried = []

    def emitted(spec):
        tried.append(spec.width)
        return emit(whole)(spec)

    def judged(legal):
        tried.clear()
        [width] = [each for each in spec_fields([PaperSpec()], emitted, legal=legal) if each.name == "width"]
        return width

    assert judged(lambda spec: spec.width in (8, 16)).pair[1].width == 16
    assert judged(lambda spec: spec.width == 8).pair[1].width == 12


def test_a_field_of_one_value_is_not_held_to_be_dead(emit):
    def emitted(spec):
        if spec.width != 8:
            raise IRError("no other width")
        return emit(whole)(spec)

    [width] = [each for each in spec_fields([PaperSpec()], emitted) if each.name == "width"]
    assert (width.dead, width.pair, width.tried) == (False, None, 0)


def test_what_a_plan_says_counts_too(emit):
    def narrow(spec):
        return whole(attrs.evolve(spec, width=8))

    assert dead_spec_fields([PaperSpec()], emit(narrow), plan_of=lambda spec: f"block {spec.width}") == ()
    assert len(dead_spec_fields([PaperSpec()], emit(narrow))) == 1


def test_one_identity_with_two_kernels(emit):
    calls = []

    def counted(spec):
        calls.append(spec)
        return whole(spec) + 1000 * len(calls)

    defects = dead_spec_fields([PaperSpec()], emit(counted))
    assert "the same identity gives two kernels" in [defect.problem for defect in defects]
