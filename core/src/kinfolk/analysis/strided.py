"""Sets of integers as the analyses know them: between two ends, and all the same modulo some step."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import Final, NamedTuple


class Strided(NamedTuple):
    """The integers from `low` to `high`, ends included, that leave `rest` when divided by `step`.

    Both ends are members. A single number has step 0 and is its own rest.
    """

    low: int
    high: int
    step: int
    rest: int

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int) or not self.low <= number <= self.high:
            return False
        return number == self.rest if self.step == 0 else (number - self.rest) % self.step == 0

    @property
    def single(self) -> int | None:
        """The number, where there is only one."""
        return self.low if self.low == self.high else None

    def __str__(self) -> str:
        if self.step == 0:
            return f"{self.low:,}"
        known = "" if self.step == 1 else f", {_multiple(self.step, self.rest)}"
        return f"{self.low:,} to {self.high:,}{known}"


def _multiple(step: int, rest: int) -> str:
    return f"a multiple of {step:,}" if rest == 0 else f"{rest:,} past a multiple of {step:,}"


def number(value: int) -> Strided:
    """Return the set of one number."""
    return Strided(value, value, 0, value)


def strided(low: int, high: int, step: int = 1, rest: int = 0) -> Strided | None:
    """Return the numbers between two bounds with a rest modulo a step; None where there are none."""
    if step == 0:
        return number(rest) if low <= rest <= high else None
    low += (rest - low) % step
    high -= (high - rest) % step
    if low > high:
        return None
    return Strided(low, high, step, rest % step) if low < high else number(low)


def between(low: int, high: int) -> Strided:
    """Return all numbers from `low` to `high`, which is not below it."""
    return number(low) if low == high else Strided(low, high, 1, 0)


def signed(bits: int) -> Strided:
    """Return the numbers of a signed integer; those of one bit are 0 and 1."""
    return Strided(0, 1, 1, 0) if bits == 1 else Strided(-(1 << (bits - 1)), (1 << (bits - 1)) - 1, 1, 0)


def joined(a: Strided, b: Strided) -> Strided:
    """Return the least set that is known here and holds both."""
    if a == b:
        return a
    step = gcd(a.step, b.step, a.rest - b.rest)
    return Strided(min(a.low, b.low), max(a.high, b.high), step, a.rest % step)


def all_joined(sets: Iterable[Strided]) -> Strided:
    """Return `joined` over one set or more."""
    first, *others = sets
    for other in others:
        first = joined(first, other)
    return first


def met(a: Strided, low: int, high: int) -> Strided | None:
    """Return the members between two bounds; None where there are none."""
    if low <= a.low and a.high <= high:
        return a
    return strided(max(a.low, low), min(a.high, high), a.step, a.rest)


def without(a: Strided, value: int) -> Strided | None:
    """Return the members but one, where that is an end of them: sets with a hole are not known here."""
    if a.low == a.high:
        return None if a.low == value else a
    step = a.step
    if value == a.low:
        return strided(a.low + step, a.high, step, a.rest)
    return strided(a.low, a.high - step, step, a.rest) if value == a.high else a


def common(a: Strided, b: Strided) -> Strided | None:
    """Return a set that holds what is in both: within the bounds of both, with the step of one; None where none is."""
    finer, other = (a, b) if a.step == 0 or (b.step and a.step >= b.step) else (b, a)
    if other.step and finer.step and (finer.rest - other.rest) % gcd(finer.step, other.step):
        return None
    if finer.step == 0:
        return finer if finer.low in other else None
    return met(finer, other.low, other.high)


def added(a: Strided, b: Strided) -> Strided:
    """Return the sums."""
    step = gcd(a.step, b.step)
    rest = a.rest + b.rest
    return Strided(a.low + b.low, a.high + b.high, step, rest % step if step else rest)


def negated(a: Strided) -> Strided:
    """Return the negatives."""
    return Strided(-a.high, -a.low, a.step, -a.rest % a.step if a.step else -a.rest)


def multiplied(a: Strided, b: Strided) -> Strided:
    """Return the products."""
    corners = (a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high)
    step = gcd(a.step * b.step, a.step * b.rest, b.step * a.rest)
    rest = a.rest * b.rest
    low, high = min(corners), max(corners)
    if step == 0 or low == high:
        return number(low)
    return Strided(low, high, step, rest % step)


def divided(a: Strided, by: int) -> Strided:
    """Return the quotients, rounded down, by a positive number."""
    if by == 1:
        return a
    low, high = a.low // by, a.high // by
    if low == high:
        return number(low)
    if a.step % by == 0:
        return Strided(low, high, a.step // by, a.rest // by % (a.step // by))
    return Strided(low, high, 1, 0)


def remaining(a: Strided, by: int) -> Strided:
    """Return the remainders, 0 or more, by a positive number."""
    if a.low >= 0 and a.high < by:
        return a
    step = gcd(a.step, by)
    found = strided(0, by - 1, step, a.rest % step)
    assert found is not None
    return found


def low_bits(a: Strided) -> tuple[int, int]:
    """Return how many of the lowest bits are known, at most 64, and what they are."""
    if a.step == 0:
        return 64, a.rest % (1 << 64)
    power = a.step & -a.step
    return min(64, power.bit_length() - 1), a.rest % power


def with_low_bits(low: int, high: int, known: int, bits: int) -> Strided:
    """Return the numbers between two bounds whose lowest `known` bits are `bits`."""
    found = strided(low, high, 1 << known, bits % (1 << known))
    return found if found is not None else between(low, high)


def wrapped(a: Strided, bits: int) -> Strided:
    """Return the numbers modulo 2^bits, as a signed integer holds them."""
    whole = signed(bits)
    if whole.low <= a.low and a.high <= whole.high:
        return a
    size = 1 << bits
    if a.low == a.high:
        return number((a.low - whole.low) % size + whole.low)
    step = gcd(a.step, size)
    found = strided(whole.low, whole.high, step, a.rest % step)
    assert found is not None
    return found


def unsigned(a: Strided, bits: int) -> Strided:
    """Return the numbers as an unsigned integer of that width reads them."""
    if a.low >= 0:
        return a
    size = 1 << bits
    if a.high < 0:
        return added(a, number(size))
    step = gcd(a.step, size)
    found = strided(0, size - 1, step, a.rest % step)
    assert found is not None
    return found


def _zeros(known: int, bits: int) -> int:
    """Return how many of the lowest bits are known to be 0."""
    return (bits & -bits).bit_length() - 1 if bits else known


def conjoined(a: Strided, b: Strided, bits: int) -> Strided:
    """Return a set that holds the bitwise `a & b`."""
    (known_a, bits_a), (known_b, bits_b) = low_bits(a), low_bits(b)
    known, value = min(known_a, known_b), bits_a & bits_b
    zeros = max(_zeros(known_a, bits_a), _zeros(known_b, bits_b))
    if zeros > known:
        known, value = zeros, 0
    whole = signed(bits)
    if a.low < 0 and b.low < 0:
        mask = b.single if b.single is not None else a.single
        other = a if b.single is not None else b
        cut = -mask if mask is not None and -mask & (-mask - 1) == 0 else 0
        low, high = (other.low // cut * cut, other.high) if cut else (whole.low, max(a.high, b.high))
    else:
        low, high = 0, min(each.high for each in (a, b) if each.low >= 0)
    return with_low_bits(low, high, min(known, bits), value)


def combined(a: Strided, b: Strided, bits: int, *, either: bool) -> Strided:
    """Return a set that holds the bitwise `a | b`, or `a ^ b` unless `either`."""
    (known_a, bits_a), (known_b, bits_b) = low_bits(a), low_bits(b)
    known = min(known_a, known_b, bits)
    value = bits_a | bits_b if either else bits_a ^ bits_b
    if a.low < 0 or b.low < 0:  # from the longer one's last bit on there are nothing but signs
        most = max((end if end >= 0 else ~end).bit_length() for end in (a.low, a.high, b.low, b.high))
        return with_low_bits(-(1 << most), (1 << most) - 1, known, value)
    high = min((1 << max(a.high.bit_length(), b.high.bit_length())) - 1, a.high + b.high)
    return with_low_bits(max(a.low, b.low) if either else 0, high, known, value)


FOREVER: Final = 1 << 70
"""Past what any register holds: an end of the numbers that an address may be."""
ANY_ADDRESS: Final = Strided(-FOREVER, FOREVER, 1, 0)
