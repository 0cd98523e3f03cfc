"""A toy family on a toy arch, of which the tests of dispatch ask."""

import subprocess
import sys
import textwrap
from types import SimpleNamespace
from typing import ClassVar

import attrs

from kinfolk.candidate import Candidate, Note
from kinfolk.dispatch import select
from kinfolk.expr import Scope, all_of, ceil_div, fact, field, multiple_of, one_of
from kinfolk.fields import ExactBool, ExactFloat, ExactInt, ExactStr, OneOf, Optional, launch_field
from kinfolk.ir.types import F32, I32, PointerType
from kinfolk.parameters import Parameter
from kinfolk.plan import Argument, Axis, Binding, Launch, Plan
from kinfolk.refusal import Limit, unmet
from kinfolk.request import Request
from kinfolk.spec import Spec


@attrs.frozen(kw_only=True)
class ToyRequest(Request):
    family: ClassVar[str] = "toy"
    num_heads: int = attrs.field(default=16, validator=ExactInt())
    dtype: str = attrs.field(default="bf16", validator=OneOf(("bf16", "f16")))
    candidate: str | None = attrs.field(default=None, validator=Optional(ExactStr()))
    total_q: int = launch_field(default=4, validator=ExactInt(minimum=0))
    max_seqlen_k: int = launch_field(default=100, validator=ExactInt(minimum=0))
    causal: bool = launch_field(default=True, validator=ExactBool())
    scale: float = launch_field(default=1.0, validator=ExactFloat())

    def whole(self):
        return (self.total_q, self.max_seqlen_k, self.causal, self.scale)


@attrs.frozen(kw_only=True)
class ToySpec(Spec):
    width: int = attrs.field(validator=ExactInt())
    split: bool = attrs.field(default=False, validator=ExactBool())

    def parameters(self):
        return (
            Parameter(name="out", type=PointerType(F32), access="write", alignment=4),
            Parameter(name="length", type=I32),
        )


def toy_plan(spec, request):
    return Plan(
        request=request,
        launches=(
            Launch(
                spec=spec,
                grid=(ceil_div(field("num_heads"), fact("wave_heads")), field("total_q"), 1),
                block=64,
                arguments=(Argument("out", "pointer", "out"), Argument("length", "i32", field("max_seqlen_k"))),
            ),
        ),
        bindings=(
            Binding(
                name="out", role="output", dtype="f32", shape=(Axis(field("total_q")),), alignment=4, access="write"
            ),
        ),
        outputs=("out",),
    )


def limit(code, name, condition, kind="cannot"):
    return Limit(code, kind, name, condition, because="it is a toy", remedy="Play otherwise.")


HEADS, LENGTH = field("num_heads"), field("max_seqlen_k")
NARROW = (
    limit("toy.narrow.heads", "num_heads", one_of(HEADS, (16, 32))),
    limit("toy.narrow.work", "total_q", field("total_q") * HEADS <= 4096),
    limit("toy.narrow.length", "max_seqlen_k", LENGTH <= 1024),
)
WIDE = (limit("toy.wide.heads", "num_heads", all_of(multiple_of(HEADS, 16), HEADS <= 128), "not_implemented"),)
NOTES = (Note("slower than toy.narrow below 512 keys", LENGTH < 512), Note("always said"))


def candidate(name, priority=0, capability=(), plan=None, **more):
    return Candidate(
        name=name,
        priority=priority,
        plugin=more.pop("plugin", "kinfolk-toy"),
        capability=capability,
        plan=plan or (lambda request, arch: toy_plan(ToySpec(width=request.num_heads), request)),
        specs=lambda arch, flavor: (),
        **more,
    )


def split_by_expr(request, arch):
    split = (LENGTH > 256).evaluate(Scope(request=request, arch=arch))
    return toy_plan(ToySpec(width=request.num_heads, split=split), request)


def split_by_python(request, arch):
    return toy_plan(ToySpec(width=request.num_heads, split=request.max_seqlen_k > 256), request)


def candidates():
    return (
        candidate("toy.wide", 1, WIDE, split_by_expr, notes=NOTES),
        candidate("toy.narrow", 0, NARROW),
    )


class Composition:
    """A composition of a toy family, a toy arch and whatever hooks a test gives."""

    def __init__(self, offers=None, admit=(), validate=(), rank=None):
        self.arch = SimpleNamespace(name="toyarch", facts={"wave_heads": 16, "max_q": 1000})
        self.request_type = ToyRequest
        self.versions = {"kinfolk-toy": "1", "kinfolk-toyarch": "2"}
        self.policy_digests = {"order": "d1"}
        self.offers = candidates() if offers is None else offers
        self.admission, self.validation, self.order = admit, validate, rank

    def candidates(self):
        return self.offers

    def validate_spec(self, spec):
        return unmet(self.validation, spec, self.arch, "kinfolk-toyarch")

    def admit(self, request, candidate, plan):
        return unmet(self.admission, request, self.arch, "kinfolk-policy")

    def rank(self, request, survivors):
        return self.order(request, survivors) if self.order else survivors


def selected(composition, request, flavor="llvm22"):
    return select(composition, request, flavor).plan


def ran(script):
    """Run a script in a Python of its own and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
