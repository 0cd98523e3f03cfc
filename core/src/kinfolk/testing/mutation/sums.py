"""Integers as sums of products of what is not known: whether one is at least 0 whatever that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from kinfolk.analysis.strided import Strided
from kinfolk.ir.meaning import Control, ScheduleMarker
from kinfolk.ir.ops import arithmetic, convert
from kinfolk.ir.value import Value

MOST_TERMS: Final = 64
Product = tuple[object, ...]
"""The factors of a term, in the order of their ids; none for a number alone."""


@attrs.frozen(eq=False)
class Sum:
    """Terms by their factors, which are values of a kernel or slacks, each times a number."""

    terms: Mapping[Product, int]

    @classmethod
    def of(cls, factor: object) -> Sum:
        """Return a factor alone; a number for an int."""
        return cls({(): factor} if isinstance(factor, int) else {(factor,): 1})

    def __add__(self, other: Sum) -> Sum:
        found = Counter(self.terms)
        for product, times in other.terms.items():
            found[product] += times
        return Sum({product: times for product, times in found.items() if times})

    def __sub__(self, other: Sum) -> Sum:
        return self + Sum.of(-1) * other

    def __mul__(self, other: Sum) -> Sum:
        found: Counter[Product] = Counter()
        for one, times in self.terms.items():
            for another, more in other.terms.items():
                found[tuple(sorted((*one, *another), key=id))] += times * more
        return Sum({product: times for product, times in found.items() if times})

    def instead(self, factor: object, of: Sum) -> Sum:
        """Return the sum in which a factor is another sum."""
        found = Sum({})
        for product, times in self.terms.items():
            term = Sum({(): times})
            for each in product:
                term = term * (of if each is factor else Sum.of(each))
            found = found + term
        return found

    def only_subtracted(self, factor: object) -> bool:
        """Whether all terms with a factor have a negative number."""
        return all(times < 0 for product, times in self.terms.items() if any(each is factor for each in product))


def sum_of(value: Value, given: Mapping[Value, int], sets: Callable[[Value], Strided]) -> Sum:
    """Return what a value is made of by sums and products that claim not to wrap, which engines check, where some
    values are `given`.
    """
    if value in given:
        return Sum.of(given[value])
    single, made = sets(value).single, value.defining_op
    if single is not None:
        return Sum.of(single)
    if made is None:
        return Sum.of(value)
    meaning = made.definition.meaning
    passes = isinstance(meaning, ScheduleMarker) or (isinstance(meaning, Control) and meaning.kind == "uniform")
    if made.definition is convert.sext or (passes and len(made.operands) == 1):
        return sum_of(made.operands[0], given, sets)
    if made.definition in (arithmetic.add, arithmetic.sub, arithmetic.mul) and made.attributes.get("nsw") is True:
        one, other = (sum_of(each, given, sets) for each in made.operands)
        found = one + other if made.definition is arithmetic.add else one - other
        found = one * other if made.definition is arithmetic.mul else found
        if len(found.terms) <= MOST_TERMS:
            return found
    return Sum.of(value)


def never_negative(whole: Sum, below: Mapping[Value, Value], sets: Callable[[Value], Strided]) -> bool:
    """Whether a sum is at least 0 whatever its factors are: each in its set, and those `below` another less than it.

    What is only subtracted is put as far as it goes less a slack, what else there is as its least and a slack: then no
    term may be negative.
    """
    factors = {factor for product in whole.terms for factor in product if isinstance(factor, Value)}
    for factor in factors & set(below):
        if whole.only_subtracted(factor):
            whole = whole.instead(factor, Sum.of(below[factor]) - Sum.of(1) - Sum.of(object()))
    for factor in [each for each in factors if whole.only_subtracted(each)]:
        whole = whole.instead(factor, Sum.of(sets(factor).high) - Sum.of(object()))
    for factor in {factor for product in whole.terms for factor in product if isinstance(factor, Value)}:
        whole = whole.instead(factor, Sum.of(sets(factor).low) + Sum.of(object()))
    return all(times >= 0 for times in whole.terms.values())
