"""Whether projected queries are served over latent rows, or over keys and values of heads, as an expression.

Absorbing costs 2 * 512 * (128 + 128) operations for each query and head, expanding as many for each key and head. A
pair of them then costs 2 * (576 + 512) over latent rows and 2 * (192 + 128) over a head's keys and values. Over k keys,
with q queries of which few are masked, the operations are equal where q k * 1536 = (k - q) * 262144: at q = 171 behind
a long prefix. By the clocks of compiled loops (docs/generated/quality.md), queries rounded up to a workgroup's 256, it
is about 200 for the wide kernels' loop and less for the one that attends here (docs/mla.md). Latent rows are taken
where q k < 256 (k - q).
"""

from __future__ import annotations

from typing import Final

from kinfolk.expr import all_of, field, maximum

FEW_QUERIES: Final = 256
"""With so many queries a sequence, or more, keys and values are formed whatever the prefix."""

LEAST_KEYS: Final = field("max_seqlen_q") * FEW_QUERIES // maximum(FEW_QUERIES - field("max_seqlen_q"), 1) + 1
"""From how many keys a sequence on latent rows cost less, where queries are few."""

OVER_LATENT_ROWS: Final = all_of(field("max_seqlen_q") < FEW_QUERIES, field("max_seqlen_k") >= LEAST_KEYS)
