"""A candidate: one way to serve a family's requests, with what it takes declared as data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from kinfolk.expr import Expr, Scope, const
from kinfolk.fields import ExactBool, ExactInt, ExactStr, FieldTypeError, FieldValueError, TupleOf, shown
from kinfolk.plugins.containment import WrongAnswerError, bounded, contained
from kinfolk.refusal import Limit, Refusal, unmet
from kinfolk.schedule import ScheduleSpace

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.plan import Plan
    from kinfolk.request import Request
    from kinfolk.spec import Spec


@attrs.frozen
class Note:
    """What a caller should know of an admitted candidate, where `when` holds; never a refusal.

    A note that it is `slower` there also leaves the request to the first candidate of which none says so, if any.
    """

    text: str
    when: Expr = attrs.field(factory=lambda: const(True), validator=attrs.validators.instance_of(Expr))
    slower: bool = attrs.field(default=False, kw_only=True, validator=ExactBool())

    def __str__(self) -> str:
        return self.text


def _checked_name(instance: object, field: attrs.Attribute[Any], value: object) -> None:
    if type(value) is not str:
        raise FieldTypeError("Candidate", field.name, value, "a Python str", "Pass a str.")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*", value) or len(value) > 100:
        rule = "words of letters, digits and _ joined by dots, at most 100 characters"
        raise FieldValueError("Candidate", field.name, value, rule, "Name it like family.kernel.")


_NAME: Final = _checked_name


def _plan(answer: Any) -> Plan:
    from kinfolk.plan import Plan

    if not isinstance(answer, Plan):
        raise WrongAnswerError(f"planned {shown(answer)}, which is no Plan")
    return answer


def _specs(answer: Any) -> tuple[Spec, ...]:
    from kinfolk.spec import Spec

    if isinstance(answer, str) or not isinstance(answer, Iterable):
        raise WrongAnswerError(f"returned {shown(answer)}, it returns specs")
    found = tuple(bounded(cast("Iterable[Any]", answer)))
    for each in found:
        if not isinstance(each, Spec):
            raise WrongAnswerError(f"gave {shown(each)} among its specs, each is a Spec")
    return found


@attrs.frozen(kw_only=True)
class Candidate:
    """One way to serve requests: limits that must hold, the plan of a request, every spec a plan can name.

    Of those that no note calls slower, lower `priority` is preferred, then the name decides. `plan(request, arch)`
    gives launches, bindings, contents and outputs; dispatch fills in the rest. A launch field that it reads in Python,
    rather than through an Expr, makes the selection hold for that one value only. `min_llvm` is the rank of the oldest
    flavor the candidate takes. `schedules` says which fields of which specs a search may set: where one was stored for
    an instance, target and flavor, core puts it in place of what `plan` and `specs` name.
    """

    name: str = attrs.field(validator=_NAME)
    priority: int = attrs.field(validator=ExactInt(-(2**31), 2**31 - 1))
    plugin: str = attrs.field(validator=ExactStr())
    capability: tuple[Limit, ...] = attrs.field(validator=TupleOf(attrs.validators.instance_of(Limit)))
    plan: Callable[[Any, Arch], Plan] = attrs.field(validator=attrs.validators.is_callable())
    specs: Callable[[Arch, str], Iterable[Spec]] = attrs.field(validator=attrs.validators.is_callable())
    min_llvm: int = attrs.field(default=20, validator=ExactInt(1, 1000))
    notes: tuple[Note, ...] = attrs.field(default=(), validator=TupleOf(attrs.validators.instance_of(Note)))
    schedules: tuple[ScheduleSpace, ...] = attrs.field(
        default=(), validator=TupleOf(attrs.validators.instance_of(ScheduleSpace))
    )

    def planned(self, request: Request, arch: Arch, flavor: str) -> Plan:
        """Return the plan of a request, its specs with stored schedules; HookFault where it fails, or gives none."""
        plan = contained(self.plugin, f"Candidate.plan of {self.name}", self.plan, request, arch, take=_plan)
        return self.with_schedules(plan, arch, flavor)

    def with_schedules(self, plan: Plan, arch: Arch, flavor: str) -> Plan:
        """Return a plan with the schedules that are stored for its specs."""
        if not self.schedules:
            return plan
        specs = [self.tuned(each.spec, arch, flavor) for each in plan.launches]
        pairs = list(zip(plan.launches, specs, strict=True))
        if all(each.spec == spec for each, spec in pairs):
            return plan
        return attrs.evolve(plan, launches=tuple(attrs.evolve(each, spec=spec) for each, spec in pairs))

    def spec_space(self, arch: Arch, flavor: str) -> tuple[Spec, ...]:
        """Return every spec that a plan can name on an arch; HookFault where `specs` fails or gives something else."""
        specs = self.default_specs(arch, flavor)
        return tuple(self.tuned(spec, arch, flavor) for spec in specs)

    def default_specs(self, arch: Arch, flavor: str) -> tuple[Spec, ...]:
        """Return the same as `spec_space`, with no stored schedule."""
        return contained(self.plugin, f"Candidate.specs of {self.name}", self.specs, arch, flavor, take=_specs)

    def schedules_of(self, spec: Spec) -> ScheduleSpace | None:
        """Return the schedule space of a spec's class; None where its candidate declares none."""
        return next((each for each in self.schedules if each.covers(spec)), None)

    def tuned(self, spec: Spec, arch: Arch, flavor: str) -> Spec:
        """Return a spec with the schedule that is stored for it, or as it is."""
        space = self.schedules_of(spec)
        return spec if space is None else space.tuned(spec, arch, flavor)

    def untuned(self, plan: Plan, arch: Arch, flavor: str) -> tuple[str, ...]:
        """Return a note for each class of spec in a plan that has a schedule space and no stored schedule."""
        specs = [(each.spec, space) for each in plan.launches if (space := self.schedules_of(each.spec))]
        names = [type(spec).__name__ for spec, space in specs if space.stored(spec, arch, flavor) is None]
        return tuple(
            f"no schedule is stored of this {name} for {arch.name} and {flavor}, its default is used"
            for name in dict.fromkeys(names)
        )

    def unmet(self, limits: Iterable[Limit], request: object, arch: object) -> tuple[Refusal, ...]:
        """Return this candidate's plugin's refusals for the limits that do not hold."""
        return unmet(limits, request, arch, self.plugin)

    def notes_for(self, request: object, arch: object) -> tuple[Note, ...]:
        """Return the notes that apply to a request."""
        scope = Scope(request=request, arch=arch)
        return tuple(note for note in self.notes if note.when.holds(scope))
