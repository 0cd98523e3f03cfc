"""Workgroup memory of gfx942: 32 banks, and the lanes that are served together as far as they are published."""

from __future__ import annotations

from typing import Final

from kinfolk.banks import BankModel, Phases
from kinfolk_gfx942.facts import FACTS

_HALF: Final = ((0, 4, 20, 24), (4, 8, 16, 20), (8, 12, 28, 32), (12, 16, 24, 28))
"""Two ranges of lanes per phase of a read of 16 bytes, in the lower half of a wave."""

BANKS: Final = BankModel(
    banks=int(FACTS["lds_banks"]),
    bank_bytes=int(FACTS["lds_bank_bytes"]),
    bytes_per_clock=int(FACTS["lds_bytes_per_clock"]),
    widest=int(FACTS["max_access_bytes"]),
    phases=(
        Phases(
            action="read",
            bytes=16,
            lanes=tuple(
                (*range(half + a, half + b), *range(half + c, half + d)) for half in (0, 32) for a, b, c, d in _HALF
            ),
            source="ROCm, Composable Kernel, lane groups of ds_read_b128: 0-3 and 20-23, 4-7 and 16-19, and so on",
        ),
        Phases(
            action="write",
            bytes=16,
            lanes=tuple(tuple(range(lane, lane + 8)) for lane in range(0, 64, 8)),
            source="ROCm, Composable Kernel documentation, 'Understanding AMD GPU LDS and bank conflicts'",
        ),
    ),
    unmeasured="published are the lanes that reads and writes of 16 bytes serve together, of no other access",
)
