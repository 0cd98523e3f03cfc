"""Workgroup memory of gfx950: 64 banks for reads; nobody has published which lanes are served together."""

from __future__ import annotations

from typing import Final

from kinfolk.banks import BankModel
from kinfolk_gfx950.facts import FACTS

BANKS: Final = BankModel(
    banks=int(FACTS["lds_banks"]),
    bank_bytes=int(FACTS["lds_bank_bytes"]),
    bytes_per_clock=int(FACTS["lds_bytes_per_clock"]),
    widest=int(FACTS["max_access_bytes"]),
    unmeasured="it is not published which lanes are served together, nor whether writes see 64 banks or 32",
)
