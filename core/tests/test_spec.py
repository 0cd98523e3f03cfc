"""Specs: one identity per meaning, and no boundary that lets an invalid value through."""

import copy
import hashlib
import json
import pickle

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinfolk.errors import InternalError
from kinfolk.fields import ExactBool, ExactFloat, ExactInt, Exactly, ExactStr, OneOf, Optional, TupleOf
from kinfolk.record import Record
from kinfolk.spec import Spec


@attrs.frozen(kw_only=True)
class Schedule(Record):
    depth: int = attrs.field(default=2, validator=ExactInt(minimum=0, maximum=8))
    fences: tuple[int, ...] = attrs.field(default=(), validator=TupleOf(ExactInt()))


@attrs.frozen(kw_only=True)
class OtherSchedule(Record):
    depth: int = attrs.field(default=2, validator=ExactInt(minimum=0, maximum=8))
    fences: tuple[int, ...] = attrs.field(default=(), validator=TupleOf(ExactInt()))


@attrs.frozen(kw_only=True)
class ToySpec(Spec):
    width: int = attrs.field(default=64, validator=ExactInt(step=16))
    masked: bool = attrs.field(default=False, validator=ExactBool())
    dtype: str = attrs.field(default="bf16", validator=OneOf(("bf16", "f16")))
    threshold: float = attrs.field(default=8.0, validator=ExactFloat())
    pin: str | None = attrs.field(default=None, validator=Optional(ExactStr()))
    schedule: Schedule | OtherSchedule = attrs.field(factory=Schedule, validator=Exactly((Schedule, OtherSchedule)))
    tail: Schedule | None = attrs.field(default=None, validator=Optional(Exactly((Schedule,))))

    def check(self):
        if self.masked and self.width > 128:
            raise ValueError("ToySpec.width is at most 128 where masked")


@attrs.frozen(kw_only=True)
class TwinSpec(Spec):
    """The same fields under another class."""

    width: int = attrs.field(default=64, validator=ExactInt(step=16))


schedules = st.builds(Schedule, depth=st.integers(0, 8), fences=st.lists(st.integers(1, 9), max_size=3).map(tuple))
specs = st.builds(
    ToySpec,
    width=st.integers(1, 8).map(lambda n: 16 * n),
    masked=st.booleans(),
    dtype=st.sampled_from(("bf16", "f16")),
    threshold=st.floats(allow_nan=False, allow_infinity=False),
    pin=st.none() | st.text(min_size=1, max_size=3),
    schedule=schedules | st.just(OtherSchedule()),
    tail=st.none() | schedules,
)


@given(specs, specs)
def test_identity_is_equal_exactly_where_specs_are(first, second):
    same_sign = str(first.threshold) == str(second.threshold)  # -0.0 == 0.0, and yet other bits are compiled in
    assert (first.identity() == second.identity()) == (first == second and same_sign)
    assert (first.digest() == second.digest()) == (first.identity() == second.identity())


@given(specs)
def test_every_boundary_gives_back_an_equal_spec(spec):
    for twin in (
        pickle.loads(pickle.dumps(spec)),
        copy.copy(spec),
        copy.deepcopy(spec),
        ToySpec.from_json(spec.to_json()),
        attrs.evolve(spec),
        spec.revalidate(),
    ):
        assert type(twin) is ToySpec
        assert twin.identity() == spec.identity()


def test_identity_by_hand():
    expected = (
        '{"class":"%s.TwinSpec","fields":{"width":64}}' % TwinSpec.__module__  # noqa: UP031  # braces
    )
    assert TwinSpec().identity() == expected
    assert TwinSpec().digest() == hashlib.sha256(expected.encode()).hexdigest()[:16]
    assert TwinSpec().symbol() == f"twin_{TwinSpec().digest()[:8]}"


def test_every_field_is_in_the_identity():
    changed = {
        "width": 128,
        "masked": True,
        "dtype": "f16",
        "threshold": 4.0,
        "pin": "a",
        "schedule": OtherSchedule(),
        "tail": Schedule(),
    }
    assert changed.keys() == {field.name for field in attrs.fields(ToySpec)}
    identities = {attrs.evolve(ToySpec(), **{name: value}).identity() for name, value in changed.items()}
    assert len(identities | {ToySpec().identity()}) == len(changed) + 1


def test_a_spec_is_immutable():
    spec = ToySpec()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        spec.width = 32
    with pytest.raises(AttributeError):
        spec.extra = 1


INVALID = [
    ("width", True),
    ("width", 64.0),
    ("width", 65),
    ("masked", 1),
    ("dtype", "f32"),
    ("threshold", 8),
    ("pin", ""),
    ("schedule", None),
    ("tail", OtherSchedule()),
]


@pytest.mark.parametrize("name, wrong", INVALID)
def test_evolve_validates(name, wrong):
    with pytest.raises((TypeError, ValueError), match=f"ToySpec.{name}"):
        attrs.evolve(ToySpec(), **{name: wrong})


@pytest.mark.parametrize("name, wrong", INVALID)
def test_what_was_forced_into_a_spec_is_found_at_every_boundary(name, wrong):
    spec = ToySpec()
    object.__setattr__(spec, name, wrong)
    boundaries = {
        "revalidate": spec.revalidate,
        "pickle": lambda: pickle.loads(pickle.dumps(spec)),
        "copy": lambda: copy.copy(spec),
        "deepcopy": lambda: copy.deepcopy(spec),
        "evolve": lambda: attrs.evolve(spec),
        "json": lambda: ToySpec.from_json(spec.to_json()),
    }
    for cross in boundaries.values():
        with pytest.raises((TypeError, ValueError), match=rf"ToySpec\.{name}|field {name} "):
            cross()


def test_a_part_that_was_tampered_with_is_found():
    spec = ToySpec(schedule=Schedule(depth=1))
    object.__setattr__(spec.schedule, "depth", 9)
    for cross in (spec.revalidate, lambda: pickle.loads(pickle.dumps(spec)), lambda: ToySpec.from_json(spec.to_json())):
        with pytest.raises(ValueError, match=r"Schedule\.depth"):
            cross()


def test_fields_that_do_not_fit_each_other_are_found_at_every_boundary():
    spec = ToySpec(width=256)
    with pytest.raises(ValueError, match="where masked"):
        attrs.evolve(spec, masked=True)
    object.__setattr__(spec, "masked", True)
    for cross in (spec.revalidate, lambda: copy.copy(spec), lambda: ToySpec.from_json(spec.to_json())):
        with pytest.raises(ValueError, match="where masked"):
            cross()


def test_validators_that_are_switched_off_globally_still_run():
    with attrs.validators.disabled():
        with pytest.raises(TypeError, match=r"ToySpec\.width"):
            ToySpec(width=True)
        with pytest.raises(TypeError, match=r"ToySpec\.width"):
            attrs.evolve(ToySpec(), width=2.0)


def test_a_pickle_edited_by_hand_is_refused():
    payload = pickle.dumps(ToySpec(width=64), protocol=0)
    assert payload.count(b"I64\n") == 1
    assert pickle.loads(payload.replace(b"I64\n", b"I32\n")).width == 32  # the edit itself works
    with pytest.raises(ValueError, match=r"ToySpec\.width"):
        pickle.loads(payload.replace(b"I64\n", b"I65\n"))


def test_no_state_can_be_set_past_the_constructor():
    spec = ToySpec()
    with pytest.raises(TypeError, match="constructor"):
        spec.__setstate__({"width": 65})
    assert spec == ToySpec()


def tampered(**changes):
    data = json.loads(ToySpec().to_json())
    data["fields"].update(changes)
    return json.dumps(data)


@pytest.mark.parametrize(
    "text",
    [
        tampered(width=64.0),
        tampered(width=True),
        tampered(width=65),
        tampered(width="64"),
        tampered(width=None),
        tampered(threshold=8.0),
        tampered(threshold={"float": "nan"}),
        tampered(threshold={"float": "eight"}),
        tampered(schedule={"class": "Schedule", "fields": {"depth": 1}}),
        tampered(schedule=[2]),
        tampered(extra=1),
        ToySpec().to_json().replace('"masked":false,', ""),
        ToySpec().to_json().replace('"masked":false,', '"masked":false,"masked":false,'),
        ToySpec().to_json().replace("ToySpec", "TwinSpec"),
        TwinSpec().to_json(),
        "[]",
        "{}",
        "3",
    ],
)
def test_json_that_was_tampered_with_is_refused(text):
    with pytest.raises((TypeError, ValueError)):
        ToySpec.from_json(text)
    assert ToySpec.from_json(ToySpec().to_json()) == ToySpec()


def test_a_class_that_could_hold_a_wrong_value_is_refused_when_it_is_declared():
    with pytest.raises(TypeError, match="no validator"):

        @attrs.frozen(kw_only=True)
        class Loose(Spec):
            width: int = 1

    with pytest.raises(TypeError, match=r"never converted"):

        @attrs.frozen(kw_only=True)
        class Coerced(Spec):
            width: int = attrs.field(converter=int, validator=ExactInt())

    with pytest.raises(TypeError, match=r"compared"):

        @attrs.frozen(kw_only=True)
        class Hidden(Spec):
            width: int = attrs.field(eq=False, validator=ExactInt())

    class Undecorated(ToySpec):
        extra = 1

    with pytest.raises(InternalError, match=r"attrs\.frozen"):
        Undecorated().identity()


def test_a_spec_holds_only_values_with_one_spelling():
    @attrs.frozen(kw_only=True)
    class Loose(Spec):
        width: object = attrs.field(validator=lambda *_: None)

    with pytest.raises(TypeError, match="a record holds"):
        Loose(width=[1]).identity()
