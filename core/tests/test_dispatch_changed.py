"""Requests and specs that were changed after they were validated: nothing is selected, emitted or launched for them."""

import copy
import math
import pickle
from types import MappingProxyType

import attrs
import pytest

import kinfolk
from kinfolk.candidate import Candidate
from kinfolk.dispatch import SelectionCache, explain
from kinfolk.errors import NoCandidate
from kinfolk.expr import field
from kinfolk.fields import ExactBool, ExactFloat, ExactInt, FieldError, launch_field
from kinfolk.ir.types import I32
from kinfolk.parameters import Parameter
from kinfolk.plan import Argument, Launch, Plan
from kinfolk.refusal import Limit
from kinfolk.request import Request
from kinfolk.spec import Spec


@attrs.frozen(kw_only=True)
class RowsRequest(Request):
    family = "rows"
    width: int = attrs.field(default=1, validator=ExactInt())
    wide: bool = attrs.field(default=True, validator=ExactBool())
    rows: int = launch_field(default=7, validator=ExactInt())
    scale: float = launch_field(default=0.5, validator=ExactFloat(0.0, 1.0))

    def check(self):
        if self.rows > 1000 * self.width:
            raise ValueError("RowsRequest.rows is too many")


@attrs.frozen(kw_only=True)
class RowsSpec(Spec):
    width: int = attrs.field(validator=ExactInt())

    def parameters(self):
        return (Parameter(name="rows", type=I32),)


def plan(request, arch):
    arguments = (Argument("rows", "i32", field("rows")),)
    launch = Launch(spec=RowsSpec(width=request.width), grid=(field("rows"), 1, 1), block=32, arguments=arguments)
    return Plan(request=request, launches=(launch,), bindings=(), outputs=())


FEW = Limit("rows.few", "cannot", "rows", field("rows") <= 100, because="it is a toy", remedy="Ask for less.")


class Composition:
    arch = type("Arch", (), {"name": "anywhere", "facts": {}})()
    request_type = RowsRequest
    versions = MappingProxyType({"kinfolk-rows": "1"})
    policy_digests = MappingProxyType({})

    def candidates(self):
        return (
            Candidate(
                name="rows.plain",
                priority=1,
                plugin="kinfolk-rows",
                capability=(FEW,),
                plan=plan,
                specs=lambda arch, flavor: (),
            ),
        )

    def validate_spec(self, spec):
        return ()

    def admit(self, request, candidate, plan):
        return ()

    def rank(self, request, survivors):
        return survivors


HERE = Composition()


def changed(**values):
    request = RowsRequest()
    for name, value in values.items():
        object.__setattr__(request, name, value)
    return request


CHANGES = [
    {"width": True},
    {"width": 1.0},
    {"width": [1]},
    {"wide": 1},
    {"rows": True},
    {"rows": -1},
    {"rows": 5000},
    {"scale": math.nan},
    {"scale": math.inf},
    {"scale": -0.5},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_a_changed_request_is_not_dispatched(change, warm):
    cache = SelectionCache()
    if warm:  # of the same selection key, as 1 == True == 1.0
        cache.plan(HERE, RowsRequest(), "llvm22")
    with pytest.raises((FieldError, ValueError, TypeError)):
        cache.plan(HERE, changed(**change), "llvm22")
    with pytest.raises((FieldError, ValueError, TypeError)):
        explain(HERE, changed(**change), "llvm22")
    assert cache.plan(HERE, RowsRequest(), "llvm22").staleness() == ""  # negative control, and nothing is left behind


def test_a_plan_knows_whether_its_request_is_the_one_it_was_made_for():
    made = SelectionCache().plan(HERE, RowsRequest(), "llvm22")
    for name, value, told in (
        ("width", 2, "width is 2, the plan was made for 1"),
        ("rows", 101, f"rows is 101, the plan holds from {-(2**63)} to 100"),
        ("scale", math.nan, "scale"),
    ):
        before = getattr(made.request, name)
        object.__setattr__(made.request, name, value)
        assert told in made.staleness()
        object.__setattr__(made.request, name, before)
    object.__setattr__(made.request, "rows", 100)
    assert made.staleness() == ""


def test_a_plan_travels_with_what_it_holds_for():
    made = SelectionCache().plan(HERE, RowsRequest(), "llvm22")
    for found in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert found == made and found.domain == made.domain and found.to_json() == made.to_json()


@pytest.mark.parametrize("name", ["facts", "versions", "policy_digests"])
def test_what_plans_share_cannot_be_changed(name):
    made = SelectionCache().plan(HERE, RowsRequest(), "llvm22")
    with pytest.raises(TypeError):
        getattr(made, name)["lds_bytes"] = 1


@pytest.mark.parametrize("wrong", [None, 3, "rows", {"rows": 3}, RowsRequest])
def test_what_is_no_request_is_a_type_error_with_a_sentence(wrong):
    for call in (kinfolk.dispatch, kinfolk.why):
        with pytest.raises(TypeError, match="takes a Request of some family, got"):
            call(wrong, "anywhere")


@pytest.mark.parametrize("arch", [None, 3, b"anywhere"])
def test_an_arch_is_named(arch):
    with pytest.raises(TypeError, match="takes an arch by its name"):
        kinfolk.dispatch(RowsRequest(), arch)


def test_a_limit_still_refuses():
    """Negative control: a valid request outside the capability is refused, not an error of its class."""
    with pytest.raises(NoCandidate):
        SelectionCache().plan(HERE, RowsRequest(rows=101), "llvm22")
