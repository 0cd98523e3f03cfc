"""Requests of a family, made from what it declares: admitted ones, and those at both sides of every limit's edge."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from kinfolk.candidate import Candidate
from kinfolk.dispatch.select import Verdict, judge, verdict_on
from kinfolk.errors import KinfolkError
from kinfolk.expr import I64_MAX, I64_MIN, Expr
from kinfolk.expr.node import Field
from kinfolk.flavor import flavor_named
from kinfolk.plugins.composition import Composition
from kinfolk.record import fields_of
from kinfolk.refusal import Limit
from kinfolk.request import Request, launch_names
from kinfolk.spec import Spec
from kinfolk.testing.values import equalled, held, inner, numbers_in, pool, takes, unheld, unheld_with

Fields = dict[str, Any]
Admitted = tuple[Request, Verdict]
ATTEMPTS: Final = 60
STEPS: Final = 80
BASES: Final = 3
"""How many admitted requests of each candidate others are made from."""
FEW: Final = 8
MODEST: Final = 300
"""A launch field of more than this is no small problem."""


@attrs.frozen
class Edge:
    """A request beside an edge of one limit of a candidate: `holds` says whether the limit does."""

    candidate: Candidate
    limit: Limit
    field: str
    request: Request
    holds: bool


class Requests:
    """Makes requests of a composition's family; all that is drawn follows from the seed."""

    def __init__(self, composition: Composition, flavor: str, seed: int = 0) -> None:
        self.composition, self.flavor, self.seed = composition, flavor_named(flavor), seed
        self.kind: type[Request] = composition.request_type
        self.fields = {field.name: field for field in fields_of(self.kind)}
        self.candidates = tuple(each for each in composition.candidates() if each.min_llvm <= self.flavor.rank)
        self.relations = tuple(relation.condition for relation in self.kind.relations)
        limits = [limit.condition for candidate in self.candidates for limit in candidate.capability]
        compiled = self._compiled_values()
        pools = {
            name: pool(
                self.kind,
                field,
                [*numbers_in((*limits, *self.relations), name, composition.arch), *compiled.get(name, ())],
            )
            for name, field in self.fields.items()
            if name != "candidate"
        }
        # A field of which no value is found keeps its default, or what `cli_defaults` gives.
        self.pools: Mapping[str, list[Any]] = {name: values for name, values in pools.items() if values}
        self.launch = launch_names(self.kind)
        self._verdicts: dict[tuple[str, str], Verdict] = {}
        self._beside: dict[tuple[str, str, str], Request | None] = {}
        self._bases: dict[str, tuple[Request, ...]] = {}
        self._names: dict[int, tuple[Expr, list[str]]] = {}
        self._edges: dict[str, tuple[Edge, ...]] = {}
        self._drawn: dict[bool, tuple[list[Admitted | None], Iterator[Admitted | None]]] = {}

    def _compiled_values(self) -> dict[str, list[Any]]:
        """Return, by name, the values that fields of specs have: a request's field of that name may need them."""
        found: dict[str, set[Any]] = {}
        for candidate in self.candidates:
            for spec in candidate.spec_space(self.composition.arch, self.flavor.name):
                for field in fields_of(type(spec)):
                    value = getattr(spec, field.name)
                    if type(value) in (int, str, bool):
                        found.setdefault(field.name, set()).add(value)
        return {name: sorted(values, key=repr) for name, values in found.items()}

    def bases(self, candidate: Candidate) -> tuple[Request, ...]:
        """Return a few small requests that go to a candidate; none where none is found."""
        if candidate.name not in self._bases:
            chance = random.Random(f"{self.seed} {candidate.name}")
            found: dict[str, Request] = {}
            for _ in range(BASES * 4):
                request = self._searched(candidate, {}, chance, small=True)
                if request is not None and self.goes_to(request, candidate):
                    found[request.to_json()] = request
                if len(found) == BASES:
                    break
            self._bases[candidate.name] = tuple(found.values())
        return self._bases[candidate.name]

    def within_limits(self, candidate: Candidate) -> Request | None:
        """Return a small request that keeps every limit of a candidate, admitted or not; None where none is found."""
        return self._searched(candidate, {}, random.Random(f"{self.seed} {candidate.name}"), small=True)

    def every_base(self) -> tuple[Request, ...]:
        """Return the bases of all candidates."""
        return tuple(request for candidate in self.candidates for request in self.bases(candidate))

    def verdict(self, request: Request, candidate: Candidate) -> Verdict:
        """Return what becomes of a candidate for a request, judged once."""
        key = candidate.name, request.to_json()
        if key not in self._verdicts:
            self._verdicts[key] = verdict_on(self.composition, request, self.flavor, candidate)
        return self._verdicts[key]

    def goes_to(self, request: Request, candidate: Candidate) -> bool:
        """Return whether a candidate admits a request and is chosen for it: by its pin, where requests have a field
        `candidate`, else by dispatch."""
        if not self.verdict(request, candidate).admitted:
            return False
        if "candidate" in self.fields:
            return True
        selected = judge(self.composition, request, self.flavor).selected
        return selected is not None and selected.candidate.name == candidate.name

    def admitted(self, count: int, small: bool = False) -> Iterator[Admitted]:
        """Yield requests that go to a candidate, drawn around the bases, with the verdict; `small` ones can be run.

        Fewer are the first of more, and each is drawn once.
        """
        kept, attempts = self._drawn.setdefault(small, ([], self._attempts(small)))
        found = 0
        for attempt in range(count * 20):
            if found == count:
                return
            if attempt == len(kept):
                try:
                    kept.append(next(attempts, None))
                except BaseException:
                    self._drawn.pop(small, None)  # what a plugin raises, it raises for every check that asks
                    raise
            if (drawn := kept[attempt]) is not None:
                found += 1
                yield drawn

    def _attempts(self, small: bool) -> Iterator[Admitted | None]:
        """Yield, without end, a request that was not drawn before with its verdict, or None where none came of it."""
        chance = random.Random(f"{self.seed} admitted {small}")
        seen: set[str] = set()
        for candidate in itertools.cycle(self.candidates):
            request = self._drawn_near(candidate, chance, small)
            if request is None or request.to_json() in seen or not self.goes_to(request, candidate):
                yield None
                continue
            seen.add(request.to_json())
            yield request, self.verdict(request, candidate)

    def _drawn_near(self, candidate: Candidate, chance: random.Random, small: bool) -> Request | None:
        """Return a request near a base of a candidate; None where there is no base, or nothing that fits."""
        bases = self.bases(candidate)
        if not bases:
            return None
        base = _fields_of(chance.choice(bases))
        names = self.launch if small else tuple(self.pools)
        for name in chance.sample(names, min(len(names), chance.randint(1, 4))):
            values = [value for value in self.pools[name] if not small or _modest(value)]
            few = [value for value in values if type(value) is not int or value <= FEW]
            base[name] = chance.choice(few if small and few and chance.random() < 0.5 else values or [base[name]])
        request = self._repaired(candidate, base, chance, fixed=(), small=small)
        if request is None or (small and not all(_modest(getattr(request, name)) for name in self.launch)):
            return None
        return request

    def edges(self, candidate: Candidate) -> tuple[Edge, ...]:
        """Return requests on both sides of the edges of each limit of a candidate, all its other limits holding."""
        if candidate.name not in self._edges:
            self._edges[candidate.name] = tuple(self._edges_of(candidate))
        return self._edges[candidate.name]

    def _edges_of(self, candidate: Candidate) -> Iterator[Edge]:
        chance = random.Random(f"{self.seed} edges {candidate.name}")
        for limit in candidate.capability:
            names = list(dict.fromkeys(_read_by(limit.condition)))
            sides: set[bool] = set()
            for base in self._around(candidate, names):
                if len(sides) == 2:
                    break  # a single field makes the difference
                for name in names:
                    for value in self._edge_values(limit.condition, base, name):
                        fields = {**base, name: value}
                        request = self._repaired(candidate, fields, chance, fixed=(name,), apart=limit)
                        if request is not None:
                            holds = held(limit.condition, _fields_of(request), self.composition.arch)
                            sides.add(holds)
                            yield Edge(candidate, limit, name, request, holds)

    def _around(self, candidate: Candidate, names: list[str]) -> Iterator[Fields]:
        """Yield the fields of a candidate's first base, then with one other value of one of these, compiled in."""
        for base in map(_fields_of, self.bases(candidate)[:1]):
            yield base
            for name in (name for name in names if name not in self.launch and len(names) > 1):
                yield from ({**base, name: value} for value in self.pools[name] if value != base[name])

    def breaking(self, candidate: Candidate, limit: Limit) -> Request | None:
        """Return a request that breaks a limit of a candidate, whatever it does to others; None where none is found."""
        chance = random.Random(f"{self.seed} breaking {limit.code}")
        for name in dict.fromkeys(_read_by(limit.condition)):
            for base in map(_fields_of, self.bases(candidate)[:1]):
                for value in self._edge_values(limit.condition, base, name):
                    fields = {**base, name: value}
                    found = self._repaired(candidate, fields, chance, fixed=(name,), limits=())
                    if found is not None and not held(limit.condition, _fields_of(found), self.composition.arch):
                        return found
        return None

    def beside(self, request: Request, candidate: Candidate, name: str, value: Any) -> Request | None:
        """Return a request near another that goes to a candidate, with one field as given; None where none is found."""
        key = f"{candidate.name} {request.to_json()}", name, repr(value)
        if key not in self._beside:
            chance = random.Random(f"{self.seed} beside {name} {value}")
            fields = {**_fields_of(request), name: value}
            found = self._repaired(candidate, fields, chance, fixed=(name,), small=True)
            self._beside[key] = found if found is not None and self.goes_to(found, candidate) else None
        return self._beside[key]

    def naming(self, candidate: Candidate, spec: Spec) -> Iterator[Request]:
        """Yield requests that may plan a spec: with the spec's values in fields of its names, within the candidate's
        limits and, where none is, beyond them; then such as leave out what they may, but for a field or two, and such
        as have one other value of another field, too, or of two."""
        chance = random.Random(f"{self.seed} naming {spec.identity()}")
        given = {name: getattr(spec, name) for name in self.pools if hasattr(spec, name)}
        bases = [_fields_of(base) for base in self.bases(candidate)]
        for base in bases:
            for limits in (candidate.capability, ()):
                fields = {**base, **given}
                found = self._repaired(candidate, fields, chance, fixed=tuple(given), small=True, limits=limits)
                if found is not None:
                    yield found
                    break
        for change in self._changes(tuple(given)):
            for base in bases[:1]:
                fields = {**base, **given, **change}
                found = self._repaired(candidate, fields, chance, fixed=(*given, *change), small=True)
                if found is not None:
                    yield found
        for change, base in itertools.product(self._pairs(tuple(given)), bases):
            fields = {**base, **given, **change}
            found = self._repaired(candidate, fields, chance, fixed=(*given, *change), small=True)
            if found is not None:
                yield found

    def _pairs(self, fixed: tuple[str, ...]) -> Iterator[Fields]:
        """Yield values of two fields each that are not their defaults, of what is compiled in and not `fixed`."""
        others: Fields = {}
        for name, values in self.pools.items():
            default = self.fields[name].default
            if name not in fixed and name not in self.launch and default in values:
                others[name] = next((value for value in values if _modest(value) and value != default), None)
        found = {name: value for name, value in others.items() if value is not None}
        yield from (dict(pair) for pair in itertools.combinations(found.items(), 2))

    def _changes(self, fixed: tuple[str, ...]) -> Iterator[Fields]:
        """Yield the defaults of all fields that are compiled in and have one, of all but one and of all but two, which
        have another value, each other value of one of them included; then every value of each field. Fields in `fixed`
        are left out.
        """
        pools = {name: values for name, values in self.pools.items() if name not in fixed}
        plain = {name: self.fields[name].default for name in pools if name not in self.launch}
        plain = {name: value for name, value in plain.items() if value in pools[name]}
        others = {name: [value for value in pools[name] if _modest(value) and value != plain[name]] for name in plain}
        for count in range(3):
            for names in itertools.combinations((name for name, values in others.items() if values), count):
                yield {**plain, **{name: others[name][0] for name in names}}
        yield from ({**plain, name: value} for name, values in others.items() for value in values[1:])
        for name, beside in itertools.permutations((name for name, values in others.items() if values), 2):
            yield from ({**plain, beside: others[beside][0], name: value} for value in others[name][1:])
        yield from ({name: value} for name, values in pools.items() for value in filter(_modest, values))

    def _edge_values(self, condition: Expr, base: Fields, name: str) -> list[Any]:
        """Return the values of a field around which a condition changes, and for what is no int those it takes."""
        values = list(self.pools.get(name, ()))
        if type(base[name]) is not int:
            return values
        found = [value for value in values if _modest(value)][:4]
        marks = sorted({base[name], *(value for value in values if type(value) is int), I64_MIN, I64_MAX})
        truths = [held(condition, {**base, name: mark}, self.composition.arch) for mark in marks]
        for (low, left), (high, right) in zip(
            zip(marks, truths, strict=True), list(zip(marks, truths, strict=True))[1:], strict=False
        ):
            if left is right:
                continue
            good, bad = low, high
            while bad - good > 1:
                middle = (good + bad) // 2
                same = held(condition, {**base, name: middle}, self.composition.arch) is left
                good, bad = (middle, bad) if same else (good, middle)
            found += [good - 1, good, bad, bad + 1]
        return list(dict.fromkeys(value for value in found if I64_MIN <= value <= I64_MAX))

    def _searched(self, candidate: Candidate, given: Fields, chance: random.Random, small: bool) -> Request | None:
        for _ in range(ATTEMPTS):
            start = self._filled({name: self._draw(name, chance, small) for name in self.pools}) | given
            request = self._repaired(candidate, start, chance, fixed=tuple(given), small=small)
            if request is not None:
                return request
        return None

    def _filled(self, drawn: Fields) -> Fields:
        """Return what was drawn with the values that the command line would fill in for fields it does not ask for."""
        try:
            asked = {name: value for name, value in drawn.items() if name not in self.kind.cli_defaults({})}
            filled = self.kind.cli_defaults(asked)
        except KinfolkError:
            return drawn  # it fails on what does not fit; drawn values serve as well
        return drawn | {name: value for name, value in filled.items() if name in self.fields}

    def _draw(self, name: str, chance: random.Random, small: bool) -> Any:
        values = self.pools[name]
        modest = [value for value in values if _modest(value)]
        if inner(self.fields[name]) and self.fields[name].default is not None and chance.random() < 0.5:
            default = self.fields[name].default
            if default is not attrs.NOTHING:
                return default
        return chance.choice(modest if small and modest else values)

    def _repaired(
        self,
        candidate: Candidate,
        fields: Fields,
        chance: random.Random,
        fixed: tuple[str, ...],
        apart: Limit | None = None,
        small: bool = False,
        limits: Iterable[Limit] | None = None,
    ) -> Request | None:
        """Return a request near `fields` that fits itself and every limit of a candidate, or `limits`, but `apart`;
        None if none is found. Fields in `fixed` stay."""
        kept = candidate.capability if limits is None else limits
        conditions = [*self.relations, *(limit.condition for limit in kept if limit is not apart)]
        fields = dict(fields)
        for _ in range(STEPS):
            broken = unheld(conditions, fields, self.composition.arch)
            if not broken:
                break
            free = [name for name in self._names_in(chance.choice(broken)) if name not in fixed and name in self.pools]
            if not free:
                return None
            name = chance.choice(free)
            fields[name] = self._best(name, conditions, fields, chance, small)
        else:
            return None
        if "candidate" in self.fields:
            fields["candidate"] = candidate.name
        try:
            return self.kind(**fields)
        except (TypeError, ValueError):
            return None

    def _names_in(self, condition: Expr) -> list[str]:
        """Return the fields that a condition reads, looked up once: kept by the tree itself, which is not hashed."""
        if id(condition) not in self._names:
            self._names[id(condition)] = condition, _read_by(condition)
        return self._names[id(condition)][1]

    def _best(self, name: str, conditions: list[Expr], fields: Fields, chance: random.Random, small: bool) -> Any:
        """Return the value of a field with which the fewest conditions are broken; among equals one is drawn."""
        arch = self.composition.arch
        values = [value for value in self.pools[name] if not small or _modest(value)] or self.pools[name]
        concerned = [each for each in conditions if name in self._names_in(each)]
        wanted = equalled(concerned, name, fields, arch)
        values = [*values, *(value for value in wanted if takes(self.kind, self.fields[name], value))]
        scores = unheld_with(concerned, fields, name, values, arch)
        least = min(scores)
        return chance.choice([value for score, value in zip(scores, values, strict=True) if score == least])


def _modest(value: object) -> bool:
    """Return whether a number is one of every day: extremes are tried one at a time."""
    if type(value) is float:
        return 1.0 / MODEST <= abs(value) <= MODEST
    return type(value) is not int or -1 <= value <= MODEST


def _read_by(condition: Expr) -> list[str]:
    return [leaf.name for leaf in condition.leaves() if isinstance(leaf, Field)]


def _fields_of(request: Request) -> Fields:
    return {field.name: getattr(request, field.name) for field in fields_of(type(request))}


def told(request: Request) -> str:
    """Return a request as the command line takes it."""
    words = {name: str(value).lower() if type(value) is bool else value for name, value in request.to_dict().items()}
    return " ".join(f"{name}={word}" for name, word in words.items() if word is not None)
