"""The kernel of what each row brings to every probability and score gradient of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.ir import build_kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory, vector
from kinfolk.ir.types import F32, SCALARS
from kinfolk.ir.value import Kernel, Value
from kinfolk.tile.paging import bounded
from kinfolk.tile.reduction import across_lanes
from kinfolk.tile.softmax import LOG2_E
from kinfolk_attention_bwd.rows import Terms, Tokens, wide
from kinfolk_attention_bwd.spec import LANES, MOST_HEADS, MOST_ROWS

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_attention_bwd.spec import RowTermsSpec

INFINITY: Final = float("inf")


@attrs.frozen(eq=False)
class Arguments:
    """The kernel's parameters as values, in declared order."""

    o: Value
    dout: Value
    lse: Value
    minus_lse2: Value
    minus_sum: Value
    seqlen_q: Value
    num_heads: Value
    rows_kept: Value


def emit_row_terms(spec: RowTermsSpec, arch: Arch) -> Kernel:
    """Build the kernel of `spec`: a workgroup for some rows, a head and a sequence."""

    def body(*parameters: Value) -> None:
        arguments = Arguments(*parameters)
        head = lanes.block_id(axis=1, below=MOST_HEADS)
        first = lanes.block_id(axis=0, below=MOST_ROWS // spec.rows) * spec.rows
        sequence = lanes.block_id(axis=2)
        row = lanes.thread_id() // spec.lanes_per_row
        total = _product(spec, arguments, sequence, head, first, row)
        lse = _lse(spec, arguments, sequence, head, first, row)
        live = _finite(lse) & (first + row < arguments.seqlen_q)
        minus_lse2 = arithmetic.select(live, lse * -LOG2_E, constant(-INFINITY, F32))
        minus_sum = arithmetic.select(live, arithmetic.fneg(total), constant(0.0, F32))

        def write() -> tuple[()]:
            for tensor, value in ((arguments.minus_lse2, minus_lse2), (arguments.minus_sum, minus_sum)):
                kept = Terms(tensor, sequence, arguments.num_heads, arguments.rows_kept)
                memory.view_store(kept.view(first, spec.rows, head), row, value)
            return ()

        control.if_else((lanes.thread_id() % spec.lanes_per_row).eq(0), write)

    return build_kernel(spec.symbol(), spec.parameters(), arch=arch, block=spec.waves * LANES, body=body)


def _finite(lse: Value) -> Value:
    """Return whether a row has weights: a comparison with NaN is false."""
    return arithmetic.fabs(lse) < INFINITY


def _product(spec: RowTermsSpec, arguments: Arguments, sequence: Value, head: Value, first: Value, row: Value) -> Value:
    """Return the sum of o * dout over this lane's row; 0 past the last row."""
    width = spec.vector_bytes // SCALARS[spec.dtype].bytes
    column = lanes.thread_id() % spec.lanes_per_row * width
    found: list[Value] = []
    for tensor in (arguments.o, arguments.dout):
        tokens = Tokens(tensor, sequence, arguments.seqlen_q, arguments.num_heads, spec.head_size)
        view = tokens.view(first, spec.rows, head)
        found.append(convert.fpext(memory.view_load(view, row * tokens.pitch + column, count=width), to=F32))
    total = constant(0.0, F32)
    for index in range(width):
        left, right = (vector.extract(each, index=index) for each in found)
        total = arithmetic.fma(left, right, total)
    masks = tuple(1 << bit for bit in range(spec.lanes_per_row.bit_length() - 1))
    return across_lanes(total, masks, arithmetic.fadd)


def _lse(spec: RowTermsSpec, arguments: Arguments, sequence: Value, head: Value, first: Value, row: Value) -> Value:
    """Return the LSE of this lane's row; 0 past the last one."""
    begin = arithmetic.smin(first, arguments.seqlen_q)
    place = (wide(sequence) * wide(arguments.num_heads) + wide(head)) * wide(arguments.seqlen_q) + wide(begin)
    view = memory.bound(memory.offset(arguments.lse, place), bounded(arguments.seqlen_q - begin, spec.rows))
    return memory.view_load(view, row)
