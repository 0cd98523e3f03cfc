"""Bits of scalar registers that nothing has written: carried by instructions on bits, refused where they matter.

Compilers merge masks of lanes bit by bit, in a register of which nothing is written before a loop's first round, and
then use the bits that were: each bit of such a mask is its lane's own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from kinfolk.ir.numpy_lanes import NumpyLane
from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.operands import ALGEBRA, EXEC_MASK, Source
from kinfolk_amdgcn.isa.waves import CONDITION, EXEC, SCALAR_BIT, SCALARS, Array, Waves


@attrs.frozen(eq=False)
class Unknown:
    """What an instruction leaves unknown: bits [waves] of scalar registers from `target` on, and whether SCC is."""

    target: int
    bits: Array
    condition: Array

    def leave(self, w: Waves) -> None:
        """Note it in waves that ran the instruction."""
        masks, target = w.undefined_now(), self.target
        for number in range(2):
            part = (self.bits >> np.uint64(32 * number)).astype(np.uint32)
            if part.any():
                register = (target & -target).bit_length() - 1 + number - SCALAR_BIT
                w.unknown[:, register] = part
                masks = [mask | int(x != 0) << SCALAR_BIT + register for mask, x in zip(masks, part, strict=True)]
        w.leave_undefined([m | CONDITION * bool(c) for m, c in zip(masks, self.condition, strict=True)])


def unknown_of(w: Waves, registers: int) -> Array:
    """Return the bits [waves] of a scalar register or pair, by its mask, that nothing has written."""
    found = np.zeros(w.count, np.uint64)
    if not w.undefined & registers:
        return found
    first = (registers & -registers).bit_length() - 1
    for number in range(registers.bit_count()):
        lacks = np.array([mask >> first + number & 1 for mask in w.undefined_now()], np.bool_)
        part = w.unknown[:, first + number - SCALAR_BIT].astype(np.uint64)
        found |= np.where(lacks, part << np.uint64(32 * number), np.uint64(0))
    return found


def of_bits(
    sources: Sequence[Source],
    meaning: Callable[..., Any],
    target: int,
    *,
    conditional: bool,
    many: int = 2,
    to_exec: bool = False,
) -> Callable[[Waves], Unknown]:
    """Return what says which bits are unknown after an instruction, of whose operands the first `many` are masks.

    Each bit of the result is a function of one bit of each of these.
    `target` is the mask of the registers it writes, `conditional` whether it sets SCC to whether its result is not 0,
    `to_exec` whether EXEC gets its result. Stops where that would be unknown.
    """

    def after(w: Waves) -> Unknown:
        choices = [_choices(w, source, number < many) for number, source in enumerate(sources)]
        results = [np.asarray(meaning(ALGEBRA, *each).data).astype(np.uint64) for each in itertools.product(*choices)]
        bits = np.zeros(w.count, np.uint64)
        for each in results[1:]:
            bits = bits | (each ^ results[0])
        if (to_exec or target & EXEC_MASK) and bits.any():
            wave = int(np.argmax(bits != 0))
            raise Stop("uninitialised", "decides which lanes live by bits that nothing has written", wave)
        condition = ((results[0] & ~bits) == 0) & (bits != 0) & conditional
        written = np.zeros_like(bits) if to_exec else bits
        return Unknown(target & ((1 << SCALARS) - 1 << SCALAR_BIT), written, np.broadcast_to(condition, (w.count,)))

    return after


def _choices(w: Waves, source: Source, by_bits: bool) -> list[NumpyLane]:
    """Return an operand with its unknown bits as 0, and as 1 where it has any."""
    if w.undefined & source.registers & CONDITION:
        raise Stop("uninitialised", "reads scc, which nothing has written")
    value, bits = source.read(w), unknown_of(w, source.registers)
    if not bits.any():
        return [value]
    if not by_bits:
        raise Stop(
            "uninitialised", "is told what to do by a register that nothing has written", int(np.argmax(bits != 0))
        )
    data = np.broadcast_to(value.data, (w.count,))
    unknown = bits.astype(data.dtype)
    return [NumpyLane(value.type, data & ~unknown), NumpyLane(value.type, data | unknown)]


def matters(w: Waves, registers: int) -> Array:
    """Return in which waves a mask of lanes in a pair of scalar registers has unknown bits of lanes that live."""
    return (unknown_of(w, registers) & w.s64[:, EXEC // 2]) != 0
