"""Whether keys in pages are walked by blocks of queries or by segments, as an expression.

Both are counted in clocks that 64 keys take: a block of 256 queries of one head is bound by the matrix unit, a group of
16 rows of queries, heads of a token each, by the port through which keys and values come, 64 bytes a clock. What goes
by the width of heads goes by it alike. The last round of blocks takes as long as a full one, whereas segments fill the
compute units; and a segment is walked whole where blocks end with the last key that they see.
"""

from __future__ import annotations

from typing import Final

from kinfolk.expr import Expr, ceil_div, const, fact, field, floor_div, maximum, minimum, select
from kinfolk.remark import Remark
from kinfolk.roles import role_fact

BLOCK: Final = 256
GROUP: Final = 16
BLOCK_CLOCKS: Final = (5100, 3000)
"""Of 64 keys and a block, heads of 128: where tiles pass through registers, and where they are read transposed; what
compiled loops take by the share of the matrix unit that is asked of them.
"""
GROUP_CLOCKS: Final = 512
"""Of 64 keys and values of 128 columns of 16 bits, by 64 bytes a clock."""

_UNITS: Final = select(field("num_cus") > 0, field("num_cus"), fact("compute_units"))
_TOKENS, _SEQUENCES = field("total_q"), field("num_seqs")
_ROWS: Final = floor_div(field("num_heads"), field("num_kv_heads"))
_MOST: Final = field("max_seqlen_q")
BLOCKS: Final = field("num_heads") * minimum(_TOKENS // BLOCK + _SEQUENCES, ceil_div(_MOST, BLOCK) * _SEQUENCES)
GROUPS: Final = field("num_kv_heads") * minimum(
    _TOKENS * _ROWS // GROUP + _SEQUENCES, ceil_div(_MOST * _ROWS, GROUP) * _SEQUENCES
)
"""At most, whatever the lengths of sequences."""
_KEYS: Final = maximum(field("max_seqlen_k"), 1)
_SKIPPED: Final = select(field("causal"), minimum(field("max_seqlen_q"), _KEYS), 0)
_OF_BLOCK: Final = select(fact(role_fact("transpose_read_16")), BLOCK_CLOCKS[1], BLOCK_CLOCKS[0])
_PERCENT_SEEN: Final = const(100) - 50 * _SKIPPED // _KEYS
BY_BLOCKS: Final = ceil_div(BLOCKS, _UNITS) * _OF_BLOCK * _PERCENT_SEEN // 100
BY_SEGMENTS: Final = ceil_div(GROUPS * GROUP_CLOCKS, _UNITS)
"""Clocks that 64 keys of the longest sequence take."""


def by_segments() -> Expr:
    """Return whether segments take less."""
    return BY_SEGMENTS < BY_BLOCKS


def remark() -> Remark:
    """Return what both take, for people."""
    return Remark(
        f"64 keys of all rows take {{segments}} clocks by segments, {{blocks}} by blocks of {BLOCK} queries of a head",
        numbers={"segments": BY_SEGMENTS, "blocks": BY_BLOCKS},
    )
