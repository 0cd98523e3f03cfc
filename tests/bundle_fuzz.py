"""A differential fuzz of dispatch: requests at the edge of every declared limit, and random ones, asked of Python and
of a C++ reader of the bundle. Both must admit or refuse alike, in the same words, and launch the same bytes.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs

from kinfolk.dispatch import SelectionCache
from kinfolk.dispatch.select import judge
from kinfolk.errors import BindError, InternalError, KinfolkError, Refused
from kinfolk.expr import I64_MAX, I64_MIN, Expr, ExprError, ExprOverflow, Scope, TensorGeometry, lift
from kinfolk.expr.condition import OneOf
from kinfolk.expr.node import Field
from kinfolk.fields import ExactBool, ExactFloat, ExactInt, FieldError, Optional
from kinfolk.fields import OneOf as OneOfValues
from kinfolk.flavor import flavor_named
from kinfolk.record import fields_of
from kinfolk.refusal import Refusal, field_refusal
from kinfolk_runtime.artifact import argument_layout
from kinfolk_runtime.bundles.choices import Pending, cases
from kinfolk_runtime.packing import packed

FLAVOR = "llvm22"
FEW_EDGES = (I64_MIN, -1, 0, 1, 2**31 - 1, 2**31, 2**32, 2**62, I64_MAX)
MOST_BASES = 24
BASES = {"attention_fwd": 6}
"""So many admitted requests are what others are made of; fewer of a family whose limits take long to judge."""
STRANGE = (None, True, 2, 2.0, 2.5, "16", "")
Fields = dict[str, Any]


def spelled(value: Any) -> Any:
    return {"float": repr(value)} if type(value) is float else value


def row(refusal: Refusal) -> dict[str, Any]:
    names = ("code", "kind", "field", "limit", "because", "remedy", "plugin", "sentence")
    return {name: getattr(refusal, name) for name in names} | {"value": spelled(refusal.value)}


class Python:
    """What Python answers for a family on an arch, in the words of the C++ reader's answers."""

    def __init__(self, composition: Any) -> None:
        self.composition = composition
        self._kept = SelectionCache()
        self._sizes: dict[int, tuple[Any, list[tuple[str, Expr]], Any]] = {}

    def plan(self, fields: Fields) -> Any:
        """Return the plan of a request, or the refusal of its fields, or the error of dispatch."""
        kind = self.composition.request_type
        try:
            request = kind(**fields)
        except FieldError as error:
            return field_refusal(error, kind.family)
        try:
            return self._kept.plan(self.composition, request, FLAVOR)
        except Refused as error:
            return error

    def answer(self, asked: dict[str, Any], plan: Any) -> dict[str, Any]:
        """Return what C++ must answer, without the errors of binding."""
        if isinstance(plan, Refusal):
            return {"invalid": row(plan)}
        if isinstance(plan, Refused):
            told = {"message": str(plan)} if asked.get("told") else {}
            return {"refusals": [row(each) for each in plan.refusals], **told}
        try:
            return self._launched(asked["tensors"], plan)
        except ExprError as error:
            return {"error": str(error)}
        except BindError as error:
            return {"bind": str(error)}

    def _launched(self, tensors: dict[str, Any], plan: Any) -> dict[str, Any]:
        geometries = {name: TensorGeometry(tuple(each[2]), tuple(each[3])) for name, each in tensors.items()}
        addresses = {name: each[0] for name, each in tensors.items()}
        launches = [
            {
                "kernel": launch.spec.digest(),
                "symbol": launch.spec.symbol(),
                "grid": list(plan.grid(launch, geometries)),
                "block": launch.block,
                "arguments": self._block(plan, launch, geometries, addresses).hex(),
            }
            for launch in plan.launches
        ]
        _, sizes, workspace = self._sized(plan)
        scope = plan.scope(geometries)
        return {
            "selected": plan.candidate,
            "notes": list(plan.notes),
            "launches": launches,
            "bytes": {name: size.integer(scope) for name, size in sizes},
            "workspace": workspace.integer(scope),
        }

    def _block(self, plan: Any, launch: Any, geometries: Any, addresses: Any) -> bytes:
        try:
            values = plan.arguments(launch, geometries)
        except InternalError as error:  # as the binder tells it
            raise BindError(f"{launch.spec.symbol()}: {error}. Pass smaller tensors or strides.") from error
        return packed(values, argument_layout(launch.spec.parameters()), addresses)

    def _sized(self, plan: Any) -> Any:
        """Return the expressions of sizes, which are built once for a tuple of bindings."""
        key = id(plan.bindings)
        if key not in self._sizes:
            sizes = [(binding.name, binding.minimum_bytes()) for binding in plan.bindings]
            self._sizes[key] = (plan, sizes, plan.workspace())
        return self._sizes[key]


class Requests:
    """Requests of a family: admitted ones, and those at and past the edges of everything that it declares."""

    def __init__(self, composition: Any, seed: int) -> None:
        self.composition = composition
        self.chance = random.Random(seed)
        self.fields = {each.name: each for each in fields_of(composition.request_type)}
        self.limits = [limit.condition for each in composition.candidates() for limit in each.capability]
        for candidate in composition.candidates():
            if candidate.min_llvm <= flavor_named(FLAVOR).rank:
                found = cases(composition, candidate, FLAVOR)
                self.limits += [
                    each.of.condition for case in found for each in case.judged if isinstance(each, Pending)
                ]
        self.relations = [relation.condition for relation in composition.request_type.relations]
        self.good = {name: self._good(each) for name, each in self.fields.items()}
        self.edges = {name: self._edges(each) for name, each in self.fields.items()}
        self.bases = self._bases(BASES.get(composition.family, MOST_BASES))
        self._mends: dict[tuple[Any, ...], Fields | None] = {}

    def _good(self, field: Any) -> list[Any]:
        """Return values that the field takes, those that some limit lists or ends at among them."""
        return [value for value in self._edges(field) if self._taken(field, value)]

    def _taken(self, field: Any, value: Any) -> bool:
        try:
            field.validator(object.__new__(self.composition.request_type), field, value)
        except (TypeError, ValueError):
            return False
        return True

    def _edges(self, field: Any) -> list[Any]:
        validator = field.validator.inner if isinstance(field.validator, Optional) else field.validator
        found: list[Any] = [*STRANGE]
        if field.name == "candidate":
            names = [candidate.name for candidate in self.composition.candidates()]
            return [*found, *names, "no.such", "it's", 'a "name"', "line\nbreak", "ü" * 130]
        match validator:
            case OneOfValues(values):
                found += [*values, "i8"]
            case ExactBool():
                found += [True, False]
            case ExactFloat(minimum, maximum):
                ends = [each for each in (minimum, maximum) if math.isfinite(each)]
                found += [
                    step
                    for each in ends
                    for step in (each, math.nextafter(each, math.inf), math.nextafter(each, -math.inf))
                ]
                found += [0.0, -0.0, 0.1, 1.0, 1e16, 123456.75, 1e-5, 1e22, math.inf, -math.inf, math.nan, 3e38, 5e-324]
            case ExactInt(minimum, maximum, step):
                found += [*FEW_EDGES, minimum, minimum - 1, minimum + step]
                found += [maximum, maximum + 1] if maximum is not None else []
                found += [value + way for value in self._numbers(field.name) for way in (-1, 0, 1)]
            case _:
                found += ["name"]
        # True is no 1 here, as in Python's sets.
        ints = [value for value in found if type(value) is not int or I64_MIN <= value <= I64_MAX]
        return list({(type(value), repr(value)): value for value in ints}.values())

    def _numbers(self, name: str) -> Iterator[int]:
        """Yield the numbers that a limit compares this field with, facts by their values."""
        for condition in (*self.limits, *self.relations):
            if not any(isinstance(leaf, Field) and leaf.name == name for leaf in condition.leaves()):
                continue
            for part in walked(condition):
                if isinstance(part, OneOf):
                    yield from (value for value in part.values if type(value) is int)
                elif not any(isinstance(leaf, Field) for leaf in part.leaves()):
                    value = part.value_in(Scope(arch=self.composition.arch))
                    if type(value) is int:
                        yield value

    def _bases(self, count: int) -> list[Fields]:
        """Return requests that are admitted, each candidate's among them, with launch fields small and large."""
        found: list[Fields] = []
        offered = [each for each in self.composition.candidates() if each.min_llvm <= flavor_named(FLAVOR).rank]
        values = {each.name: self._values_for(each) for each in offered}
        had: Counter[str] = Counter()
        for attempt in range(20_000):
            candidate = offered[attempt % len(offered)].name
            if attempt < 10_000 and had[candidate] * len(offered) >= count:
                continue  # others are harder to meet
            fields = {name: self._small(each, wide=attempt % 3 == 0) for name, each in values[candidate].items()}
            if "candidate" in fields:
                fields["candidate"] = candidate
            self._advised(fields)
            if self._admitted(fields):
                had[candidate] += 1
                found.append(
                    {**fields, "candidate": self.chance.choice((None, candidate))} if "candidate" in fields else fields
                )
                if len(found) == count:
                    break
        assert found, "no admitted request was found"
        return found

    def _advised(self, fields: Fields) -> None:
        """Set the field of each relation that is broken to what the relation names instead, or to 0."""
        for relation in self.composition.request_type.relations:
            if held(relation.condition, fields, None) is False:
                scope = Scope(request=SimpleNamespace(**fields))
                for number in (*dict(relation.numbers).values(), lift(0)):
                    try:
                        advised = {**fields, relation.field: number.value_in(scope)}
                    except ExprError:
                        continue
                    if held(relation.condition, advised, None) is True:
                        fields |= advised
                        break

    def _values_for(self, candidate: Any) -> dict[str, list[Any]]:
        """Return values of each field that no limit of a candidate on that field alone refuses."""
        found = dict(self.good)
        for limit in candidate.capability:
            names = read_by(limit.condition)
            if len(names) == 1:
                [name] = names
                arch = self.composition.arch
                found[name] = [value for value in found[name] if held(limit.condition, {name: value}, arch)]
        return found

    def _small(self, values: list[Any], wide: bool) -> Any:
        few = [value for value in values if type(value) is not int or value < 10_000]
        return self.chance.choice(values if wide or not few else few)

    def _admitted(self, fields: Fields) -> bool:
        for condition in self.relations:
            if not held(condition, fields, None):
                return False
        try:
            request = self.composition.request_type(**fields)
        except (TypeError, ValueError):
            return False
        return judge(self.composition, request, flavor_named(FLAVOR)).selected is not None

    def at_edges(self) -> Iterator[Fields]:
        """Yield, for each base, limit and integer field that it reads, the last value that holds and the next.

        Of a limit on several fields they are asked twice: beside the base's other fields, and beside drawn ones.
        """
        for base in self.bases:
            for condition in dict.fromkeys((*self.limits, *self.relations)):
                names = read_by(condition)
                for name in names:
                    if type(base[name]) is int:
                        yield from self._around(condition, base, name, {name})
                        for start in self._drawn(condition, base, name):
                            yield from self._around(condition, start, name, names)

    def _around(self, condition: Expr, start: Fields, name: str, moved: Collection[str]) -> Iterator[Fields]:
        for value in self._turning(condition, start, name):
            yield {**start, name: value}
            yield from self._mended({**start, name: value}, moved)

    def _drawn(self, condition: Expr, base: Fields, name: str) -> Iterator[Fields]:
        """Yield the base with a condition's other fields at known values beside which this one decides, if any do."""
        others = [other for other in read_by(condition) if other != name]
        for _ in range(50 if others else 0):
            start = {**base, **{other: self.chance.choice(self.good[other]) for other in others}}
            if any(True for _ in self._turning(condition, start, name)):
                yield start
                return

    def _mended(self, fields: Fields, moved: Collection[str]) -> Iterator[Fields]:
        """Yield fields whose other numbers meet each relation that moved ones break, where some known ones do."""
        for relation in self.relations:
            if held(relation, fields, None):
                continue
            others = [name for name in read_by(relation) if name not in moved]
            key = (id(relation), *((name, fields[name]) for name in read_by(relation) if name in moved))
            if key not in self._mends:
                tried = (dict(zip(others, each, strict=True)) for each in product(*map(self.good.__getitem__, others)))
                self._mends[key] = next((each for each in tried if held(relation, {**fields, **each}, None)), None)
            if self._mends[key] is not None:
                yield {**fields, **self._mends[key]}

    def _turning(self, condition: Expr, base: Fields, name: str) -> Iterator[int]:
        """Yield the values around which a condition changes, found by bisection from the base's value outwards."""
        start, truth = base[name], held(condition, base, self.composition.arch)
        for end in (I64_MIN, I64_MAX):
            good, bad = start, end
            if held(condition, {**base, name: end}, self.composition.arch) is truth:
                continue
            while abs(bad - good) > 1:
                middle = (good + bad) // 2
                if held(condition, {**base, name: middle}, self.composition.arch) is truth:
                    good = middle
                else:
                    bad = middle
            yield from (value for value in (good, bad, 2 * bad - good) if I64_MIN <= value <= I64_MAX)

    def each_edge(self) -> Iterator[Fields]:
        """Yield each base with each edge of each field."""
        for base in self.bases:
            for name, values in self.edges.items():
                for value in values:
                    yield {**base, name: value}

    def random(self) -> Fields:
        """Return a base of which some fields are moved: mostly launch fields, at times to any value."""
        fields = dict(self.chance.choice(self.bases))
        launch = [name for name, each in self.fields.items() if each.metadata.get("kinfolk.launch")]
        how = self.chance.random()
        for name in self.chance.sample(launch, self.chance.randint(1, len(launch))):
            if type(fields[name]) is int:
                fields[name] = self.chance.randint(0, 2 ** self.chance.randint(1, 20))
            elif type(fields[name]) is float:
                fields[name] = self.chance.uniform(0.01, 2.0)
        if how < 0.4:
            for name in self.chance.sample(list(self.fields), self.chance.randint(1, 3)):
                fields[name] = self.chance.choice(self.edges[name])
        return self._fitted(fields)

    def _fitted(self, fields: Fields) -> Fields:
        """Return fields that meet the relations more often: the base's values where they are broken."""
        if all(type(value) is not int or I64_MIN <= value <= I64_MAX for value in fields.values()):
            for condition in self.relations:
                if not held(condition, fields, None) and self.chance.random() < 0.7:
                    base = self.chance.choice(self.bases)
                    for leaf in condition.leaves():
                        fields[leaf.name] = base[leaf.name]
        return fields

    def tensors(self, plan: Any) -> dict[str, Any]:
        """Return tensors for a plan as [address, dtype, shape, strides]: sizes as needed or more, strides as may be."""
        found: dict[str, Any] = {}
        scope = plan.scope()
        for i, binding in enumerate(plan.bindings):
            shape = [
                max(0, axis.extent.integer(scope)) + (axis.at_least and self.chance.randint(0, 3))
                for axis in binding.shape
            ]
            shape = [min(extent, 2**40) for extent in shape]
            strides = [1] * len(shape)
            for at in reversed(range(len(shape))):
                declared = binding.shape[at].stride
                inner = strides[at + 1] * shape[at + 1] if at + 1 < len(shape) else 1
                strides[at] = inner if declared is not None else inner + self.chance.choice((0, 1, 5, 2**31))
                strides[at] = min(strides[at], I64_MAX // 8)
            address = (0x7F00_0000_0000 + i * 0x10_0000_0000 + 16 * self.chance.randint(0, 999)) // binding.alignment
            found[binding.name] = [address * binding.alignment, binding.dtype, shape, strides]
        return found


def walked(expr: Expr) -> Iterator[Expr]:
    yield expr
    for child in expr.children:
        yield from walked(child)


def read_by(condition: Expr) -> list[str]:
    """Return the names of the fields that a condition reads."""
    return sorted({leaf.name for leaf in condition.leaves() if isinstance(leaf, Field)})


def held(condition: Expr, fields: Fields, arch: Any) -> bool | None:
    """Return whether a condition holds; None where it has no value."""
    try:
        return condition.value_in(Scope(request=SimpleNamespace(**fields), arch=arch)) is True
    except ExprOverflow:
        return False
    except (ExprError, KinfolkError):
        return None


@attrs.frozen
class Difference:
    """A request of which the two say different things."""

    asked: dict[str, Any]
    python: dict[str, Any]
    cpp: dict[str, Any]

    def __str__(self) -> str:
        names = sorted(self.python.keys() | self.cpp.keys())
        told = [
            f"  {name}: Python {self.python.get(name)}\n  {name}: C++    {self.cpp.get(name)}"
            for name in names
            if self.python.get(name) != self.cpp.get(name)
        ]
        return "\n".join([json.dumps(self.asked), *told])


def edge_count(composition: Any, seed: int = 1) -> int:
    """Return how many requests are asked before the random ones: at the edges of limits, and of fields."""
    requests = Requests(composition, seed)
    return sum(1 for _ in requests.at_edges()) + sum(1 for _ in requests.each_edge())


def asked_of(composition: Any, count: int, seed: int = 1) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield requests as lines for C++, with what Python answers."""
    requests, python = Requests(composition, seed), Python(composition)

    def every() -> Iterator[Fields]:
        yield from requests.at_edges()
        yield from requests.each_edge()
        while True:
            yield requests.random()

    for number, fields in zip(range(count), every(), strict=False):
        plan = python.plan(fields)
        asked = {"fields": {name: spelled(value) for name, value in fields.items()}}
        if number % 10 == 0:
            asked["told"] = True
        if not isinstance(plan, Refusal | Refused):
            asked["tensors"] = requests.tensors(plan)
        yield asked, python.answer(asked, plan)


def answers(program: Path, bundle: Path, lines: list[str]) -> list[str]:
    """Return a C++ reader's answers, a line each."""
    command = [str(program), str(bundle)]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@attrs.define
class Tally:
    """What was compared, by what Python answered, and where the two differ."""

    counts: Counter[str] = attrs.field(factory=Counter)
    codes: Counter[str] = attrs.field(factory=Counter)
    differences: list[Difference] = attrs.field(factory=list)

    def add(self, asked: dict[str, Any], expected: dict[str, Any], found: str) -> None:
        self.counts["compared"] += 1
        kind = next(name for name in ("invalid", "refusals", "selected", "bind", "error") if name in expected)
        self.counts[{"selected": "admitted", "refusals": "refused"}.get(kind, kind)] += 1
        refused = [expected["invalid"]] if kind == "invalid" else expected.get("refusals", [])
        self.codes.update(each["code"] for each in refused)
        if kind == "selected":
            self.codes[f"selected {expected['selected']}"] += 1
        if json.loads(found) != json.loads(json.dumps(expected)):
            self.differences.append(Difference(asked, expected, json.loads(found)))

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))
        rows = [f"  {count:>8} {code}" for code, count in sorted(self.codes.items())]
        return "\n".join([f"{counts}; {len(self.differences)} differ", *rows])


def compared(composition: Any, program: Path, bundle: Path, count: int, seed: int = 1) -> Tally:
    """Return the tally of so many requests of a family on an arch."""
    return tallied(list(asked_of(composition, count, seed)), program, bundle)


def tallied(
    pairs: list[tuple[dict[str, Any], dict[str, Any]]],
    program: Path,
    bundle: Path,
    read: Callable[..., list[str]] = answers,
) -> Tally:
    """Return the tally of requests that Python has answered."""
    tally = Tally()
    found = read(program, bundle, [json.dumps(asked) for asked, _ in pairs])
    assert len(found) == len(pairs)
    for (asked, expected), line in zip(pairs, found, strict=True):
        tally.add(asked, expected, line)
    return tally
