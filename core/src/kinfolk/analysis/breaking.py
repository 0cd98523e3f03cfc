"""The smallest bounds at which something in a kernel breaks: found by trying smaller ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import attrs

from kinfolk.analysis.liveness import ops_behind
from kinfolk.analysis.strided import Strided, between, number
from kinfolk.analysis.values import Values

if TYPE_CHECKING:
    from kinfolk.analysis.subject import Subject
    from kinfolk.ir.value import Operation, Value

Broken = Callable[[Values], bool]


@attrs.frozen
class _Knob:
    """A number that is given to a kernel: a parameter, or how many workgroups there are along an axis."""

    name: str
    values: tuple[Value, ...]
    low: int
    high: int

    def set(self, numbers: Strided) -> dict[Value, Strided]:
        return dict.fromkeys(self.values, numbers)


def smallest_breaking(subject: Subject, op: Operation, broken: Broken) -> tuple[dict[str, int], Values]:
    """Return, by name, the numbers nearest 0 of what is given to the kernel at which an op is broken, and the values of
    the kernel where no others are given.

    One after the other, in order of parameters, each is made as small as it breaks while those to come may be anything
    they are declared to be; what makes no difference is left out. Empty where nothing that is given decides.
    """
    only = ops_behind(subject.kernel, op)
    waves = range(subject.kernel.block // subject.kernel.wave_size)
    wave = next((wave for wave in waves if broken(subject.values_by_wave[wave])), None)
    knobs = _knobs(subject, only)
    fixed: dict[Value, Strided] = {}
    found: dict[str, int] = {}

    def values(given: Mapping[Value, Strided]) -> Values:
        return Values(subject.kernel, subject.arch, given={**fixed, **given}, wave=wave, only=only)

    def breaks(knob: _Knob, numbers: Strided) -> bool:
        return broken(values(knob.set(numbers)))

    for knob in knobs:
        start = min(max(0, knob.low), knob.high)
        if breaks(knob, number(start)):
            fixed.update(knob.set(number(start)))
            continue
        for end in (knob.high, knob.low):
            if end != start and breaks(knob, _from(start, end)):
                end = _nearest(start, end, partial(_breaks_between, breaks, knob, start))
                found[knob.name] = end
                fixed.update(knob.set(_from(start, end)))
                break
    return found, values({})


def _from(start: int, end: int) -> Strided:
    return between(min(start, end), max(start, end))


def _breaks_between(breaks: Callable[[_Knob, Strided], bool], knob: _Knob, start: int, end: int) -> bool:
    return breaks(knob, _from(start, end))


def _nearest(start: int, end: int, breaks: Callable[[int], bool]) -> int:
    """Return the number nearest `start` up to which it breaks; it does not at `start`, and does at `end`."""
    while abs(end - start) > 1:
        middle = (start + end) // 2
        if breaks(middle):
            end = middle
        else:
            start = middle
    return end


def _knobs(subject: Subject, ops: frozenset[Operation]) -> list[_Knob]:
    used = {operand for op in ops for operand in op.operands}
    kernel = subject.kernel
    knobs = [
        _Knob(parameter.name, (value,), *parameter.bounds)
        for parameter, value in zip(kernel.parameters, kernel.body.arguments, strict=True)
        if parameter.is_integer and value in used
    ]
    for axis, letter in enumerate("xyz"):
        places = [op for op in ops if op.name == "core.block_id" and op.attributes["axis"] == axis]
        if places:
            low, high, *_ = subject.values[places[0].results[0]]
            knobs.append(_Knob(f"workgroup {letter}", tuple(op.results[0] for op in places), low, high))
    return [knob for knob in knobs if knob.low < knob.high]
