"""Small problems of our families as tensors of torch, and what torch's own attention in fp64 says of them."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

ARCH = "gfx942"
DENSE = {"arch": ARCH, "causal": True, "return_lse": True, "scale": 0.125}
LENGTHS, PAGES = (40, 17), ((0, 1, 2), (3, 4, 999))  # 999 is past the end: never read
DECODE = {"arch": ARCH, "causal": True, "scale": 192**-0.5, "max_seqlen_q": 1, "max_seqlen_k": max(LENGTHS)}


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32).to(torch.bfloat16)


def dense(keys: int = 70) -> dict[str, torch.Tensor]:
    """Two sequences of 20 queries, of 8 heads, 4 to a head of keys."""
    return {
        "q": drawn(2, 20, 8, 64, seed=1),
        "k": drawn(2, keys, 2, 64, seed=2),
        "v": drawn(2, keys, 2, 64, seed=3),
    }


def dense_expected(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, window_left: int = 1000
) -> torch.Tensor:
    """Return the output in fp64; torch's own `is_causal` is aligned at the top left, so the mask is passed."""
    ahead = k.shape[1] - q.shape[1]
    seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(ahead).triu(ahead - window_left)
    turned = (each.double().transpose(1, 2) for each in (q, k, v))
    return scaled_dot_product_attention(*turned, attn_mask=seen, scale=scale, enable_gqa=True).transpose(1, 2)


def paged() -> dict[str, torch.Tensor]:
    """A decode step of two sequences, 16 heads."""
    return {
        "qa": drawn(2, 16, 576, seed=4),
        "c_kv": drawn(5, 16, 512, seed=5),
        "k_rope": drawn(5, 16, 64, seed=6),
        "cu_seqlens_q": torch.tensor([0, 1, 2], dtype=torch.int32),
        "cu_seqlens_k": torch.tensor([0, LENGTHS[0], sum(LENGTHS)], dtype=torch.int32),
        "block_table": torch.tensor(PAGES, dtype=torch.int32),
    }


def paged_expected(qa: torch.Tensor, c_kv: torch.Tensor, k_rope: torch.Tensor, **_: torch.Tensor) -> torch.Tensor:
    """Return the output of each sequence over its keys, one after the other, in fp64."""
    found: list[torch.Tensor] = []
    for query, length, pages in zip(qa.double(), LENGTHS, PAGES, strict=True):
        used = list(pages[: -(-length // 16)])
        latent, rotated = (cache[used].flatten(0, 1)[:length].double() for cache in (c_kv, k_rope))
        keys = torch.cat([latent, rotated], dim=1).expand(16, -1, -1)
        values = latent.expand(16, -1, -1)
        found.append(scaled_dot_product_attention(query[:, None], keys, values, scale=DECODE["scale"])[:, 0])
    return torch.stack(found)


def is_close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether bf16 outputs are the expected ones up to what their weights and they are rounded by."""
    return bool((found.double() - expected).abs().le(2e-3 + 2**-7 * expected.abs()).all())
