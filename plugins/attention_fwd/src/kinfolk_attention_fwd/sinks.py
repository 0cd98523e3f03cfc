"""Sinks: a logit a head, learned, which takes weight and adds no value."""

from __future__ import annotations

from typing import Protocol

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, convert, memory
from kinfolk.ir.types import F32
from kinfolk.ir.value import Value
from kinfolk.tile.softmax import LN_2, LOG2_E, LOWEST


class SinkArguments(Protocol):
    """What kernels are passed of sinks: those of heads, and 1 where they are to be read."""

    @property
    def sink(self) -> Value: ...
    @property
    def sinks(self) -> Value: ...


def with_sink(arguments: SinkArguments, head: Value, inverse: Value, lse: Value) -> tuple[Value, Value]:
    """Return 1 / total weight and LSE of a lane's row with its head's sink as one logit more, where it has one.

    Of a row without keys the first is 0 then, and the other the sink: no factor is a NaN, whatever the sink is.
    """

    def joined() -> tuple[Value, Value]:
        sink = convert.fpext(memory.load(memory.offset(arguments.sink, head)), to=F32)
        above = (sink - arithmetic.fmax(lse, constant(LOWEST, F32))) * LOG2_E
        smaller = arithmetic.exp2(arithmetic.fneg(arithmetic.fabs(above)))
        whole = arithmetic.fma(arithmetic.log2(smaller + 1.0), LN_2, arithmetic.fmax(lse, sink))
        return inverse * arithmetic.rcp(arithmetic.exp2(above) + 1.0), whole

    found = control.if_else(arguments.sinks.eq(1), joined, lambda: (inverse, lse))
    return found[0], found[1]
