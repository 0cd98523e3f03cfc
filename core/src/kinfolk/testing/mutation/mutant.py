"""Mutants of a kernel, by the emitter's source site and the operator that makes them."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence

import attrs

from kinfolk.ir.meaning import ScheduleMarker
from kinfolk.ir.value import Kernel, Location, Operation
from kinfolk.testing.mutation.operators import OPERATORS, Change, Operator, Surroundings
from kinfolk.testing.mutation.rewrite import rewritten


@attrs.frozen
class Site:
    """Where in an emitter an op is built."""

    op: str
    location: Location

    def __str__(self) -> str:
        return f"{self.op} at {self.location}"


@attrs.frozen(eq=False)
class Mutant:
    """One change of one operation of a kernel; `number` is the operation's in the order of the text."""

    operator: Operator
    site: Site
    number: int
    change: Change
    original: Kernel
    operation: Operation

    @property
    def name(self) -> str:
        """What tells it from the kernel's other mutants, the same in every process."""
        return f"{self.operator.name}:{self.number}:{self.change.about}"

    def kernel(self) -> Kernel:
        """Return the changed kernel, not verified; IRError where the change does not fit."""
        return rewritten(self.original, self.operation, self.change.edit)

    def __str__(self) -> str:
        return f"{self.operator.name}: {self.change.about}, {self.site}"


@attrs.frozen(eq=False)
class MutantClass:
    """The mutants of one site and operator, which differ in the unrolled copy of the site and in how it is wrong."""

    operator: Operator
    site: Site
    mutants: Sequence[Mutant]

    def chosen(self, generator: random.Random, per_change: int = 1) -> tuple[Mutant, ...]:
        """Return so many drawn copies of each way of being wrong."""
        ways: dict[str, list[Mutant]] = {}
        for mutant in self.mutants:
            ways.setdefault(mutant.change.about, []).append(mutant)
        return tuple(mutant for way in ways.values() for mutant in generator.sample(way, min(per_change, len(way))))


def mutant_classes(kernel: Kernel, operators: Iterable[Operator] = OPERATORS) -> tuple[MutantClass, ...]:
    """Return the mutants of a kernel by site and operator, in the order of the text.

    Schedule markers have identity meaning and are left alone; constants are changed where they are used.
    """
    around = Surroundings.of(kernel)
    found: dict[tuple[str, Site], list[Mutant]] = {}
    offered = tuple(operators)
    for number, operation in enumerate(kernel.walk()):
        if isinstance(operation.definition.meaning, ScheduleMarker):
            continue
        site = Site(operation.name, operation.location)
        for operator in offered:
            if operator.marginal and operation in around.rare:
                continue
            for change in operator.changes(operation, around):
                mutant = Mutant(operator, site, number, change, kernel, operation)
                found.setdefault((operator.name, site), []).append(mutant)
    return tuple(MutantClass(mutants[0].operator, mutants[0].site, tuple(mutants)) for mutants in found.values())


def sample(classes: Sequence[MutantClass], count: int, seed: int, applied: Collection[str] = ()) -> tuple[Mutant, ...]:
    """Return mutants drawn by `seed`: one of every operator that applies, then others, `count` in all if there are.

    At most one is taken of a site and operator. Operators whose names are in `applied` need not be among them.
    """
    generator = random.Random(seed)
    by_operator: dict[str, list[MutantClass]] = {}
    for each in classes:
        by_operator.setdefault(each.operator.name, []).append(each)
    first = [generator.choice(each) for name, each in by_operator.items() if name not in applied]
    taken = set(map(id, first))
    others = [each for each in classes if id(each) not in taken]
    more = generator.sample(others, min(len(others), max(0, count - len(first))))
    return tuple(generator.choice(each.chosen(generator)) for each in (*first, *more))
