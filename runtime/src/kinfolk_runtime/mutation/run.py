"""Mutants of a family's kernels on an arch, drawn or all, each on the smallest request that has its site."""

from __future__ import annotations

import difflib
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.analysis.strided import number
from kinfolk.analysis.values import Values
from kinfolk.dispatch import selections
from kinfolk.errors import KinfolkError
from kinfolk.flavor import DEFAULT_FLAVOR, flavor_named
from kinfolk.ir.ops import lanes
from kinfolk.ir.text import kernel_digest
from kinfolk.testing.mutation import OPERATORS, Mutant, MutantClass, Operator, mutant_classes, sample
from kinfolk.testing.mutation.carried import still_as_started
from kinfolk.testing.mutation.cases import in_each_case
from kinfolk.testing.mutation.equality import same_at_equality
from kinfolk.testing.mutation.exchanges import same_lanes_meet
from kinfolk.testing.mutation.exhaustive import same_for_all
from kinfolk.testing.mutation.guarded import same_where_used
from kinfolk.testing.mutation.mirror import same_in_mirror
from kinfolk.testing.mutation.rims import none_between
from kinfolk.testing.mutation.rounds import as_many_rounds
from kinfolk.testing.mutation.same_sums import same_sum
from kinfolk.testing.mutation.spread import dies_out
from kinfolk_runtime.artifact import CompiledKernel
from kinfolk_runtime.mutation.bench import Bench, OriginalFails
from kinfolk_runtime.mutation.bench import Run as BenchRun
from kinfolk_runtime.mutation.collecting import collected_seldom
from kinfolk_runtime.mutation.difference import difference
from kinfolk_runtime.mutation.equivalence import proof
from kinfolk_runtime.mutation.journal import Journal
from kinfolk_runtime.mutation.outcome import Kill, Outcome
from kinfolk_runtime.mutation.report import CandidateReport, KernelScore, MutationReport, first_lines
from kinfolk_runtime.mutation.work import compared

if TYPE_CHECKING:
    from kinfolk.ir.value import Kernel, Value
    from kinfolk.plugins.composition import Composition
    from kinfolk.request import Request

SAMPLED: Final = 48
"""How many mutants of a candidate a sample has, if its operators are no more."""
Step = Callable[[str, int], None]


@attrs.frozen(kw_only=True, eq=False, slots=False)
class Subject:
    """One kernel of one request: where its mutants are run, the digest of its IR, and its classes of mutants.

    `fresh` are those whose site and operator no earlier request has.
    """

    bench: Bench
    compiled: CompiledKernel
    ir: str
    classes: Sequence[MutantClass]
    fresh: Sequence[MutantClass]

    @cached_property
    def values(self) -> Values:
        """What each value of the kernel may be."""
        return Values(self.compiled.kernel, self.bench.composition.arch)

    @cached_property
    def _cases(self) -> dict[tuple[Value, int], Values]:
        return {}

    def values_where(self, parameter: Value, is_: int) -> Values:
        """Return what each value may be where a parameter is a number."""
        case = parameter, is_
        if case not in self._cases:
            given = {parameter: number(is_)}
            self._cases[case] = Values(self.compiled.kernel, self.bench.composition.arch, given=given)
        return self._cases[case]

    @cached_property
    def below(self) -> Mapping[Value, Value]:
        """Places in the grid, each with a parameter that is the size of that axis wherever the kernel is launched."""
        kernel, identity = self.compiled.kernel, self.compiled.spec.identity()
        launches = [each for each in self.bench.artifact.plan.launches if each.spec.identity() == identity]
        parameters = dict(zip((each.name for each in kernel.parameters), kernel.body.arguments, strict=True))
        found: dict[Value, Value] = {}
        for op in kernel.walk():
            if op.definition is lanes.block_id:
                axis = op.attributes["axis"]
                assert isinstance(axis, int)
                for name, parameter in parameters.items():
                    sizes = [each for launch in launches for each in launch.arguments if each.name == name]
                    if all(each.value == launch.grid[axis] for each, launch in zip(sizes, launches, strict=True)):
                        found[op.results[0]] = parameter
        return found

    def shown(self, mutant: Mutant) -> str:
        """Return why a mutant of the kernel computes nothing else, by its IR; "" where that is not shown."""
        arch, values, below = self.bench.composition.arch, self.values, self.below
        return (
            still_as_started(mutant)
            or same_lanes_meet(mutant)
            or same_in_mirror(mutant)
            or as_many_rounds(mutant, values)
            or same_at_equality(mutant, values)
            or same_sum(mutant, values, below)
            or same_for_all(mutant, values)
            or dies_out(mutant, values, below)
            or same_where_used(mutant, arch, below)
            or none_between(mutant, values, below)
            or in_each_case(mutant, self.values_where, self._shown_of_numbers(mutant))
        )

    def _shown_of_numbers(self, mutant: Mutant) -> Callable[[Values], str]:
        return lambda values: same_for_all(mutant, values) or dies_out(mutant, values, self.below)


class NoRequests(KinfolkError):
    """A family names no request in which mutants of its kernels could be run."""


@collected_seldom()
def mutate(
    composition: Composition,
    flavor: str = DEFAULT_FLAVOR,
    *,
    candidate: str | None = None,
    requests: Sequence[Request] = (),
    every: bool = False,
    seed: int = 0,
    count: int = SAMPLED,
    together: bool = False,
    mutant: str | None = None,
    operators: Iterable[Operator] = OPERATORS,
    step: Step = lambda name, of: None,
) -> MutationReport:
    """Put mistakes into the kernels of a family on an arch and see what notices them.

    By default `count` mutants of each candidate are drawn by `seed`, at least one of every operator that applies, or,
    `together`, one that no candidate before has applied;
    `every` runs one copy of each site, operator and way of being wrong; `mutant` runs the ones of that name. `requests`
    stand in for those of the family, which are made up for one that names none. `step(name, of)` is told each mutant
    as it begins.
    Raises NoRequests where there is no request, ToolError and Refused as `compile`.
    """
    offered = tuple(requests) or own_requests(composition, flavor) or _made_up(composition, flavor)
    benches: dict[str, list[Request]] = {}
    owners: dict[str, str] = {}
    for request in offered:
        plan = selections.plan(composition, request, flavor)
        benches.setdefault(plan.candidate, []).append(request)
        for launch in plan.launches:
            if launch.condition.holds(plan.scope()):
                owners.setdefault(launch.spec.identity(), plan.candidate)
    wanted = [name for name in benches if candidate in (None, name)]
    if not wanted:
        raise NoRequests(_no_requests(composition, candidate, list(benches)))
    offered_operators = tuple(operators)
    analysed: dict[str, frozenset[str]] = {}
    reports: list[CandidateReport] = []
    for name in wanted:
        if name not in owners.values():
            reports.append(_of_others(composition, name, benches[name], owners, flavor))
            continue
        benched = [Bench.of(composition, request, flavor, analysed) for request in benches[name]]
        run = _Run(
            tuple(_subjects(name, benched, owners, offered_operators)),
            Journal.of(composition, benches[name]) if every else None,
        )
        applied = {each.operator for report in reports for each in report.outcomes} if together else set[str]()
        drawn = run.all(seed) if every else run.sample(count, seed, applied)
        chosen = drawn if mutant is None else run.named(mutant)
        kernels = run.scores() if mutant is None else ()
        outcomes: list[Outcome] = []
        error = ""
        try:
            for subject, each in chosen:
                step(f"{name} {each.operator.name}", len(chosen))
                outcomes.append(run.outcome(subject, each))
        except OriginalFails as fails:
            error = str(fails)
        found = CandidateReport(
            candidate=name, kernels=kernels, outcomes=tuple(outcomes), error=error, applied=frozenset(applied)
        )
        reports.append(found)
    if candidate is None and not requests:
        reports += [_unasked(name) for name in _serving(composition, flavor) if name not in benches]
    return MutationReport(
        family=composition.request_type.family,
        arch=composition.arch.name,
        flavor=flavor,
        seed=None if every else seed,
        candidates=tuple(reports),
    )


def own_requests(composition: Composition, flavor: str) -> tuple[Request, ...]:
    """Return the requests that the family names for its mutants, but those pinned to a candidate of newer flavors."""
    rank = flavor_named(flavor).rank
    newer = {each.name for each in composition.candidates() if each.min_llvm > rank}
    return tuple(each for each in composition.mutation_requests() if getattr(each, "candidate", None) not in newer)


def _serving(composition: Composition, flavor: str) -> Iterator[str]:
    """Yield the names of the candidates that have kernels on the arch."""
    from kinfolk.testing.subject import lacks_a_kind

    for each in composition.candidates():
        if each.min_llvm <= flavor_named(flavor).rank and not lacks_a_kind(composition, each, flavor):
            yield each.name


def _of_others(
    composition: Composition, name: str, requests: Sequence[Request], owners: Mapping[str, str], flavor: str
) -> CandidateReport:
    """Return the report of a candidate whose kernels are those of others, and are mutated there."""
    plans = [selections.plan(composition, request, flavor) for request in requests]
    launched = [launch.spec.identity() for plan in plans for launch in plan.launches]
    others = tuple(dict.fromkeys(owners[each] for each in launched if each in owners))
    return CandidateReport(candidate=name, kernels=(), outcomes=(), others=others)


def _unasked(name: str) -> CandidateReport:
    """Return the report of a candidate of which nothing was run."""
    error = f"no request reaches {name}, so none of its mutants was run: give kinfolk_mutation_requests one"
    return CandidateReport(candidate=name, kernels=(), outcomes=(), error=error)


def _made_up(composition: Composition, flavor: str) -> tuple[Request, ...]:
    """Return small requests that the candidates of a family admit, made from what it declares."""
    from kinfolk.testing import Subject as Tested
    from kinfolk_runtime.conformance.small import mutation_requests

    return mutation_requests(Tested.of_family(composition, flavor_name=flavor))


def _no_requests(composition: Composition, candidate: str | None, known: Sequence[str]) -> str:
    family = composition.request_type.family
    if candidate is not None and known:
        return f"no request of {family} is for candidate {candidate}; there are requests for {', '.join(known)}"
    return (
        f"{family} names no request in which mutants of its kernels could be run, and none was found: answer "
        f"kinfolk_mutation_requests in its plugin, or give one as key=value"
    )


def _no_mutant(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=3)
    near = f"Did you mean {', '.join(map(repr, close))}?" if close else f"One that there is: {known[0]!r}."
    return (
        f"no mutant is named {name!r} in the kernels of these requests: an operator, the number of an op and a change "
        f"make a name. {near} Give the key=value words too that it was found with."
    )


def _subjects(
    candidate: str, benches: Sequence[Bench], owners: Mapping[str, str], operators: Sequence[Operator]
) -> Iterator[Subject]:
    """Yield the kernels of a candidate in the order of requests; one that several launch is the first one's.

    Kernels of one spec are one kernel, whose mutants are made once.
    """
    seen: set[tuple[object, ...]] = set()
    known: dict[str, tuple[str, Sequence[MutantClass]]] = {}
    for bench in benches:
        for compiled in bench.kernels:
            identity = compiled.spec.identity()
            if owners[identity] != candidate:
                continue
            if identity not in known:
                known[identity] = kernel_digest(compiled.kernel), mutant_classes(compiled.kernel, operators)
            ir, classes = known[identity]
            kind = type(compiled.spec)
            fresh = [each for each in classes if (kind, each.operator.name, each.site) not in seen]
            seen.update((kind, each.operator.name, each.site) for each in classes)
            yield Subject(bench=bench, compiled=compiled, ir=ir, classes=classes, fresh=fresh)


Chosen = Sequence[tuple[Subject, Mutant]]


@attrs.frozen(eq=False)
class _Run:
    """The kernels of one candidate, and what is known of their mutants from earlier runs."""

    subjects: Sequence[Subject]
    journal: Journal | None

    def _of(self, mutants: Iterable[Mutant]) -> Chosen:
        owners: dict[int, Subject] = {}
        for subject in self.subjects:
            for each in subject.classes[:1]:
                owners.setdefault(id(each.mutants[0].original), subject)
        return [(owners[id(mutant.original)], mutant) for mutant in mutants]

    def all(self, seed: int) -> Chosen:
        """Return one copy of each site, operator and way of being wrong."""
        generator = random.Random(seed)
        classes = [each for subject in self.subjects for each in subject.fresh]
        return self._of(mutant for each in classes for mutant in each.chosen(generator))

    def sample(self, count: int, seed: int, applied: Collection[str]) -> Chosen:
        """Return mutants drawn by seed."""
        return self._of(sample([each for subject in self.subjects for each in subject.fresh], count, seed, applied))

    def named(self, name: str) -> Chosen:
        """Return the mutants of a name, one per kernel at most; NoRequests with those there are where there is none."""
        kernels = {subject.ir: subject for subject in reversed(self.subjects)}
        classes = [each for subject in self.subjects if kernels[subject.ir] is subject for each in subject.classes]
        known = {mutant.name: mutant for each in classes for mutant in each.mutants}
        found = [mutant for each in classes for mutant in each.mutants if mutant.name == name]
        if not found:
            raise NoRequests(_no_mutant(name, list(known)))
        return self._of(found)

    def scores(self) -> tuple[KernelScore, ...]:
        """Return each kernel's digest and how many classes it adds."""
        return tuple(
            KernelScore(
                spec=subject.compiled.spec.digest(),
                symbol=subject.compiled.symbol,
                ir=subject.ir,
                classes=dict(Counter(each.operator.name for each in subject.fresh)),
            )
            for subject in {id(one.compiled.kernel): one for one in self.subjects}.values()
            if subject.fresh
        )

    def outcome(self, subject: Subject, mutant: Mutant) -> Outcome:
        """Judge a mutant, or return what an earlier run of the same code found."""
        known = self.journal.read(subject.ir, mutant) if self.journal else None
        if known is not None:
            return known
        found = self._judged(subject, mutant)
        if self.journal:
            self.journal.write(subject.ir, mutant, found)
        return found

    def _judged(self, subject: Subject, mutant: Mutant) -> Outcome:
        kernel = mutant.kernel()
        outcome = Outcome(
            mutant=mutant.name,
            operator=mutant.operator.name,
            site=str(mutant.site),
            change=mutant.change.about,
            spec=subject.compiled.spec.digest(),
            status="killed",
            kill=subject.bench.glance(subject.compiled.spec, kernel),
        )
        if outcome.kill is not None:
            return outcome
        shown = subject.shown(mutant)
        if shown:
            return attrs.evolve(outcome, status="equivalent", proof=shown)
        kill = subject.bench.analysed(subject.compiled.spec, kernel)
        run = BenchRun(kill) if kill else subject.bench.run(subject.compiled.spec, kernel)
        if run.kill is not None:
            return attrs.evolve(outcome, kill=run.kill)
        kill = subject.bench.without_short_cuts(subject.compiled.spec, kernel)
        if kill is not None:
            return attrs.evolve(outcome, kill=kill)
        shown = proof(mutant, kernel, subject.compiled, subject.bench.composition)
        if shown:
            return attrs.evolve(outcome, status="equivalent", proof=shown)
        kill, less = self._looked_closer(subject, mutant, kernel, run)
        if kill is not None:
            return attrs.evolve(outcome, kill=kill)
        diff = difference(mutant.original, kernel)
        return attrs.evolve(outcome, status="survived", diff=first_lines(diff), note=less)

    def _looked_closer(
        self, subject: Subject, mutant: Mutant, kernel: Kernel, run: BenchRun
    ) -> tuple[Kill | None, str]:
        """Return what notices a mutant in other requests, by its work or in other orders; else what is less work."""
        elsewhere = [(other, twin.kernel()) for other, twin in self._elsewhere(subject, mutant)]
        works = [*run.works]
        for other, changed in elsewhere:
            kill = other.bench.analysed(other.compiled.spec, changed) if other.ir != subject.ir else None
            again = BenchRun(kill) if kill else other.bench.run(other.compiled.spec, changed)
            if again.kill is not None:
                return again.kill, ""
            works += again.works
        slower, less = compared(works)
        if slower is not None:
            return slower, ""
        kills = (
            where.bench.in_other_orders(where.compiled.spec, changed)
            for where, changed in ((subject, kernel), *elsewhere)
        )
        return next((kill for kill in kills if kill is not None), None), less

    def _elsewhere(self, subject: Subject, mutant: Mutant) -> Iterator[tuple[Subject, Mutant]]:
        """Yield the same change of the same site in the candidate's larger requests."""
        later = self.subjects[self.subjects.index(subject) + 1 :]
        for other in later:
            if type(other.compiled.spec) is not type(subject.compiled.spec):
                continue
            for each in other.classes:
                if (each.operator.name, each.site) == (mutant.operator.name, mutant.site):
                    twins = [twin for twin in each.mutants if twin.change.about == mutant.change.about]
                    same = [twin for twin in twins if other.ir == subject.ir and twin.name == mutant.name]
                    yield from ((other, twin) for twin in (same or twins)[:1])
