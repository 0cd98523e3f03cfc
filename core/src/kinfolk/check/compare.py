"""Outputs against the reference: the margin of each, and a finding for all that is wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check.element import Array, Floats
from kinfolk.check.poison import is_poison
from kinfolk.check.tolerance import Expected, Tolerance

Mask = npt.NDArray[np.bool_]


@attrs.frozen
class Finding:
    """One thing that is wrong: a stable code, the output it is about, and a sentence."""

    code: str
    output: str
    message: str

    def __str__(self) -> str:
        return f"{self.output}: {self.message}" if self.output else self.message

    def to_dict(self) -> dict[str, Any]:
        """Return the row that reports print."""
        return attrs.asdict(self)


@attrs.frozen(kw_only=True)
class Comparison:
    """One output: its largest error, and the element with the largest margin.

    `margin` is `error_there` / `tolerance`, all three of that element; `max_abs_err` may be another's, whose tolerance
    is wider. A figure is infinite where an element that must be finite is not. `elements` were compared.
    """

    name: str
    elements: int
    max_abs_err: float
    error_there: float
    tolerance: float
    margin: float
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


def compare(name: str, dtype: str, output: Array, expected: Expected) -> Comparison:
    """Compare an output, poisoned before the run, with what the reference gives.

    Wrong are: another shape, elements nobody wrote, NaN where the reference has none, an infinity that is missing, of
    the wrong sign or unexpected, an error where the value must be exact, an error above the tolerance.
    """
    if output.shape != expected.value.shape:
        message = f"has shape {output.shape}, the reference {expected.value.shape}"
        lost = Finding("shape", name, message)
        return Comparison(
            name=name,
            elements=0,
            max_abs_err=math.inf,
            error_there=math.inf,
            tolerance=0.0,
            margin=math.inf,
            findings=(lost,),
        )
    found = output.astype(np.float64)
    value = _representable(expected.value, output.dtype)
    untouched = is_poison(dtype, output)
    nan = np.isnan(found) & ~untouched & ~np.isnan(value)
    infinite = (np.isinf(found) | np.isinf(value)) & (found != value) & ~nan & ~untouched
    bad = untouched | nan | infinite
    error = _error(found, value, bad)
    margins = expected.tolerance.margins(error)
    findings = [
        *_masked("untouched", name, untouched, "were never written"),
        *_masked("nan", name, nan, "are NaN"),
        *_described("infinite", name, infinite, found, value, "differ from the reference at an infinity"),
        *_excesses(name, expected.tolerance, error, margins, bad, found, value),
    ]
    return _comparison(name, expected.tolerance, error, margins, findings)


def _representable(value: Floats, storage: np.dtype[Any]) -> Floats:
    """Return the reference with values that `storage` cannot hold as infinities, as rounding gives them."""
    with np.errstate(over="ignore"):
        rounded = value.astype(storage).astype(np.float64)
    return np.where(np.isinf(rounded), rounded, value)


def _error(found: Floats, value: Floats, bad: Mask) -> Floats:
    """Return |found - value|: 0 where both are the same infinity or both NaN, infinite where `bad`."""
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(found - value)
    same = (found == value) | (np.isnan(found) & np.isnan(value))
    return np.where(bad, np.inf, np.where(same, 0.0, error))


def _excesses(
    name: str, tolerance: Tolerance, error: Floats, margins: Floats, bad: Mask, found: Floats, value: Floats
) -> Iterator[Finding]:
    exact = tolerance.bound == 0.0
    yield from _described("inexact", name, exact & (error > 0.0) & ~bad, found, value, "must be exact")
    over = ~exact & ~bad & ~(margins <= 1.0)
    yield from _described("tolerance", name, over, found, value, "lie outside the tolerance")


def _masked(code: str, name: str, mask: Mask, what: str) -> Iterator[Finding]:
    count = int(np.count_nonzero(mask))
    if count:
        yield Finding(code, name, f"{count} of {mask.size} elements {what}, the first at {_first(mask)}")


def _described(code: str, name: str, mask: Mask, found: Floats, value: Floats, what: str) -> Iterator[Finding]:
    for finding in _masked(code, name, mask, what):
        at = _first(mask)
        yield attrs.evolve(finding, message=f"{finding.message}: {found[at]:.9g} instead of {value[at]:.9g}")


def _first(mask: Mask) -> tuple[int, ...]:
    return tuple(int(index) for index in np.unravel_index(int(np.argmax(mask)), mask.shape))


def _comparison(name: str, tolerance: Tolerance, error: Floats, margins: Floats, findings: list[Finding]) -> Comparison:
    if not error.size:
        return Comparison(
            name=name, elements=0, max_abs_err=0.0, error_there=0.0, tolerance=0.0, margin=0.0, findings=tuple(findings)
        )
    worst = int(np.argmax(margins))
    return Comparison(
        name=name,
        elements=error.size,
        max_abs_err=float(error.max()),
        error_there=float(error.reshape(-1)[worst]),
        tolerance=float(tolerance.bound.reshape(-1)[worst]),
        margin=float(margins.reshape(-1)[worst]),
        findings=tuple(findings),
    )
