"""From how many queries a sequence on, behind a long prefix, keys and values of heads cost less than latent rows."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any, Final

from kinfolk_mla.decode.limits import LATENT_WIDTH, ROPE_WIDTH
from kinfolk_mla.prefill.limits import HEAD_WIDTH
from kinfolk_mla.prefill.spec import MlaPrefillSpec

QUERIES: Final = MlaPrefillSpec.block
"""As many or fewer take `mla_prefill` the same."""
ROWS: Final = 64
"""Clocks are of a key and so many rows."""
FORMED: Final = 2 * LATENT_WIDTH * 2 * HEAD_WIDTH
"""Operations of forming a key and a value of a head."""
PAIR: Final = 2 * (2 * HEAD_WIDTH + ROPE_WIDTH)
"""Operations of a query and a key of a head."""


def equal_queries(arch: str) -> dict[str, tuple[int, int]]:
    """Return the number by candidate over latent rows: for a cache of bf16, and for one of 8-bit floats.

    A key and head then cost as many clocks of a compute unit in `mla_expand` and in `mla_prefill`, whose queries are
    rounded up to a workgroup's, as in the rows of one head of the candidate. The clocks are those of compiled loops
    without rare blocks that `python tools/measure_quality.py` keeps, what goes by queries alone is left out.
    """
    found: dict[str, tuple[int, int]] = {}
    for latent in ("pipelined", "grouped", "decode"):
        plain, narrow = (_equal(arch, latent, suffix) for suffix in ("bf16", "f8"))
        found[f"mla.{latent}"] = plain, narrow
    return found


def _equal(arch: str, latent: str, cache: str) -> int:
    attend, expand = _kernel(arch, f"mla_prefill_{cache}"), _kernel(arch, f"mla_expand_{cache}")
    clocks = attend["clocks_per_token_64h"]
    per_clock = PAIR * ROWS / (clocks * attend["matrix_share_hot"])
    of_key = FORMED / per_clock / expand["matrix_share_hot"] + clocks * QUERIES / ROWS
    of_row = _kernel(arch, f"mla_{latent}_{cache}")["clocks_per_token_64h"] / ROWS
    return int(of_key / of_row)


def _kernel(arch: str, symbol: str) -> dict[str, Any]:
    """Return the kept figures of the first kernel whose symbol begins so."""
    text = resources.files("kinfolk_mla").joinpath("quality", f"{arch}.json").read_text(encoding="utf-8")
    return next(row for row in json.loads(text)["kernels"] if row["symbol"].startswith(symbol))
