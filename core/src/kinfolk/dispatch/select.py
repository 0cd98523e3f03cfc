"""From a request to a candidate: capability, plan, validate_spec, admit, rank. Every reason of every plugin is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import attrs

from kinfolk.candidate import Candidate
from kinfolk.dispatch.composed import Composed
from kinfolk.dispatch.interval import Observation, reads
from kinfolk.dispatch.watch import observer_of
from kinfolk.errors import NoCandidate, PinRefused, PluginError
from kinfolk.expr.node import Fact
from kinfolk.fields import shown
from kinfolk.flavor import Flavor
from kinfolk.plan import Plan
from kinfolk.refusal import Refusal
from kinfolk.request import Request, launch_names

if TYPE_CHECKING:
    from kinfolk.arch import Arch

CORE = "kinfolk-core"


@attrs.frozen(kw_only=True)
class Verdict:
    """What became of one candidate: its plan if its capability let it plan, every refusal, notes if it was admitted.

    It is `slower` where one of the notes says so.
    """

    candidate: Candidate
    plan: Plan | None
    refusals: tuple[Refusal, ...]
    notes: tuple[str, ...]
    slower: bool = False

    @property
    def admitted(self) -> bool:
        """Whether nobody refused."""
        return not self.refusals


@attrs.frozen(kw_only=True)
class Outcome:
    """The verdicts on all candidates in order of priority, the one selected, and why none was."""

    verdicts: tuple[Verdict, ...]
    selected: Verdict | None
    refusals: tuple[Refusal, ...]
    pin: str | None


def judge(composition: Composed, request: Request, flavor: Flavor) -> Outcome:
    """Return the verdict on every candidate, and the choice. Raises only where a plugin breaks its contract."""
    _expect_request(composition, request)
    order = sorted(composition.candidates(), key=lambda candidate: (candidate.priority, candidate.name))
    verdicts = tuple(verdict_on(composition, request, flavor, candidate) for candidate in order)
    pin = cast("str | None", getattr(request, "candidate", None))
    if pin is not None:
        return _pinned(verdicts, pin)
    survivors = sorted((verdict for verdict in verdicts if verdict.admitted), key=lambda verdict: verdict.slower)
    if not survivors:
        reasons = tuple(refusal for verdict in verdicts for refusal in verdict.refusals)
        return Outcome(
            verdicts=verdicts, selected=None, refusals=reasons or (_no_offer(composition, request),), pin=None
        )
    return Outcome(verdicts=verdicts, selected=_first(composition, request, survivors), refusals=(), pin=None)


def chosen(composition: Composed, request: Request, flavor: Flavor) -> Verdict:
    """Return the selected verdict; raise PinRefused or NoCandidate with every reason, once for all who give it."""
    outcome = judge(composition, request, flavor)
    if outcome.selected is not None:
        return outcome.selected
    plain = getattr(request, "__kinfolk_request__", request)
    if outcome.pin is not None:
        lines = [f"{plain} on {composition.arch.name} pins candidate {outcome.pin}, which cannot serve it:"]
        lines += [f"  {outcome.pin}: {_reason(refusal, outcome.verdicts, outcome.pin)}" for refusal in outcome.refusals]
        raise PinRefused("\n".join(lines), outcome.refusals)
    considered = outcome.verdicts
    lines = [f"no candidate for {plain} on {composition.arch.name}; {len(considered)} considered:"]
    alike: dict[str, list[str]] = {}
    for verdict in considered:
        name = verdict.candidate.name
        for refusal in verdict.refusals:
            alike.setdefault(_reason(refusal, considered, name), []).append(name)
    lines += [f"  {', '.join(dict.fromkeys(names))}: {reason}" for reason, names in alike.items()]
    if not considered:
        lines += [f"  {refusal}" for refusal in outcome.refusals]
    raise NoCandidate("\n".join(lines), outcome.refusals)


def _reason(refusal: Refusal, verdicts: Sequence[Verdict], name: str) -> str:
    """Return the sentence, with the plugin where it is not the candidate's own."""
    own = {verdict.candidate.plugin for verdict in verdicts if verdict.candidate.name == name}
    return refusal.sentence if refusal.plugin in own else f"{refusal.sentence} [{refusal.plugin}]"


def _expect_request(composition: Composed, request: Request) -> None:
    kind = composition.request_type
    if not isinstance(request, kind):
        raise TypeError(
            f"family {kind.family} takes a {kind.__name__}, got {request!r} of type {type(request).__name__}"
        )


def verdict_on(composition: Composed, request: Request, flavor: Flavor, candidate: Candidate) -> Verdict:
    """Return what becomes of one candidate for a request, whatever becomes of others. Raises as `judge`."""
    arch, observer = composition.arch, observer_of(request)
    before = len(observer.observations)
    old = too_old(candidate, flavor)
    refusals = [*old, *candidate.unmet(candidate.capability, request, arch)]
    if refusals:
        if old or _certain(candidate, request, observer.observations[before:]):
            observer.settled(before)
        return Verdict(candidate=candidate, plan=None, refusals=tuple(refusals), notes=())
    plan = completed(_planned(candidate, request, arch, flavor), composition, candidate, flavor)
    for spec in dict.fromkeys(launch.spec for launch in plan.launches):
        refusals += composition.validate_spec(spec)
    refusals += composition.admit(request, candidate, plan)
    if refusals:
        return Verdict(candidate=candidate, plan=plan, refusals=tuple(refusals), notes=())
    own = candidate.notes_for(request, arch)
    notes = (*(note.text for note in own), *candidate.untuned(plan, arch, flavor.name))
    noted = plan.telling(notes=plan.notes + notes) if notes else plan
    slower = any(note.slower for note in own)
    return Verdict(candidate=candidate, plan=noted, refusals=(), notes=notes, slower=slower)


def _certain(candidate: Candidate, request: Request, seen: Sequence[Observation]) -> bool:
    """Return whether a limit of the candidate is unmet whatever the launch fields are."""
    launch = launch_names(request.__class__)
    conditions = {limit.condition for limit in candidate.capability}
    return any(each.value is False and each.expr in conditions and not reads(each.expr, launch) for each in seen)


def _planned(candidate: Candidate, request: Request, arch: Arch, flavor: Flavor) -> Plan:
    """Return the candidate's plan; raise PluginError where it fails on a request that its capability takes."""
    try:
        return candidate.planned(request, arch, flavor.name)
    except PluginError as error:
        plain = getattr(request, "__kinfolk_request__", request)
        error.add_note(f"{candidate.name} declares that it takes {shown(plain, 1000)}, and failed to plan it")
        raise


def completed(plan: Plan, composition: Composed, candidate: Candidate, flavor: Flavor) -> Plan:
    """Return the plan with all that dispatch knows: where it runs, who made it, the facts its expressions read."""
    facts = cast("Mapping[str, Any]", composition.arch.facts)
    distinct = {id(expr): expr for expr in plan.declared()}.values()
    leaves = [leaf for expr in distinct for leaf in expr.leaves()]
    read = sorted({leaf.name for leaf in leaves if isinstance(leaf, Fact)})
    if unknown := [name for name in read if name not in facts]:
        raise PluginError(
            f"{candidate.plugin}: the plan of {candidate.name} reads facts {composition.arch.name} does not declare: "
            f"{', '.join(unknown)}; it declares: {', '.join(sorted(facts))}. Declare it in the arch, or let a Limit "
            f"of the candidate refuse archs without it"
        )
    return plan.telling(
        arch=composition.arch.name,
        flavor=flavor.name,
        candidate=candidate.name,
        versions=composition.versions,
        policy_digests=composition.policy_digests,
        facts={name: facts[name] for name in read},
    )


def too_old(candidate: Candidate, flavor: Flavor) -> tuple[Refusal, ...]:
    """Return the refusal of a flavor that is older than a candidate takes."""
    if flavor.rank >= candidate.min_llvm:
        return ()
    return (
        Refusal(
            code=f"{candidate.name}.flavor",
            kind="cannot",
            field="flavor",
            value=flavor.name,
            limit=f"llvm{candidate.min_llvm} or newer",
            because="older code generators cannot compile it",
            remedy=f"Dispatch for flavor llvm{candidate.min_llvm} or newer.",
            plugin=candidate.plugin,
        ),
    )


def _no_offer(composition: Composed, request: Request) -> Refusal:
    return Refusal(
        code=f"{request.family}.candidates",
        kind="not_implemented",
        field="arch",
        value=composition.arch.name,
        limit="an arch on which some plugin offers a candidate",
        because=f"no plugin offers a candidate for {request.family} there",
        remedy="Install a plugin that does, or choose another arch.",
        plugin=CORE,
    )


def _pinned(verdicts: tuple[Verdict, ...], pin: str) -> Outcome:
    for verdict in verdicts:
        if verdict.candidate.name == pin:
            selected = verdict if verdict.admitted else None
            return Outcome(verdicts=verdicts, selected=selected, refusals=verdict.refusals, pin=pin)
    names = [verdict.candidate.name for verdict in verdicts]
    unknown = Refusal(
        code="request.candidate.unknown",
        kind="invalid",
        field="candidate",
        value=pin,
        limit=", ".join(names) or "none here",
        because="a pin names a candidate that some plugin offers on this arch",
        remedy="Pin one of these, or none.",
        plugin=CORE,
    )
    return Outcome(verdicts=verdicts, selected=None, refusals=(unknown,), pin=pin)


def _first(composition: Composed, request: Request, survivors: Sequence[Verdict]) -> Verdict:
    """Return the best survivor after the policies ranked them; a policy may reorder, never drop or add."""
    by_name = {verdict.candidate.name: verdict for verdict in survivors}
    ranked = composition.rank(request, tuple(verdict.candidate for verdict in survivors))
    names = [candidate.name for candidate in ranked]
    if sorted(names) != sorted(by_name):
        raise PluginError(
            f"a policy ranked {names}, the candidates admitted are {list(by_name)}; a policy only reorders"
        )
    return by_name[names[0]]
