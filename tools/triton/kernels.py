"""Small kernels in Triton: what its compiler makes of them runs on the executor of machine code, unchanged.

They are written as Triton's users write theirs, and nothing in them is chosen for the executor.
"""

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    live = i < n
    tl.store(out + i, tl.load(x + i, mask=live) + tl.load(y + i, mask=live), mask=live)


@triton.jit
def softmax(x, out, stride, width, block: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, block)
    v = tl.load(x + row * stride + i, mask=i < width, other=-float("inf"))
    v = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * stride + i, v / tl.sum(v, axis=0), mask=i < width)


@triton.jit
def layer_norm(x, weight, bias, out, stride, width, epsilon, block: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, block)
    live = i < width
    v = tl.load(x + row * stride + i, mask=live, other=0.0).to(tl.float32)
    mean = tl.sum(v, axis=0) / width
    d = tl.where(live, v - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(d * d, axis=0) / width + epsilon)
    y = d * scale * tl.load(weight + i, mask=live, other=0.0) + tl.load(bias + i, mask=live, other=0.0)
    tl.store(out + row * stride + i, y.to(tl.bfloat16), mask=live)


@triton.jit
def matmul(a, b, c, m, n, k, tile_m: tl.constexpr, tile_n: tl.constexpr, tile_k: tl.constexpr):
    i = tl.program_id(0) * tile_m + tl.arange(0, tile_m)
    j = tl.program_id(1) * tile_n + tl.arange(0, tile_n)
    r = tl.arange(0, tile_k)
    total = tl.zeros((tile_m, tile_n), tl.float32)
    for at in range(0, k, tile_k):
        p = tl.load(a + i[:, None] * k + at + r[None, :], mask=(i[:, None] < m) & (at + r[None, :] < k), other=0.0)
        q = tl.load(b + (at + r[:, None]) * n + j[None, :], mask=(at + r[:, None] < k) & (j[None, :] < n), other=0.0)
        total = tl.dot(p, q, total)
    tl.store(c + i[:, None] * n + j[None, :], total, mask=(i[:, None] < m) & (j[None, :] < n))


@triton.jit
def split_k(a, b, c, m, n, k, tile_m: tl.constexpr, tile_n: tl.constexpr, tile_k: tl.constexpr, parts: tl.constexpr):
    i = tl.program_id(0) * tile_m + tl.arange(0, tile_m)
    j = tl.program_id(1) * tile_n + tl.arange(0, tile_n)
    r = tl.program_id(2) * tile_k + tl.arange(0, tile_k)
    total = tl.zeros((tile_m, tile_n), tl.float32)
    for at in range(0, k, tile_k * parts):
        p = tl.load(a + i[:, None] * k + at + r[None, :], mask=(i[:, None] < m) & (at + r[None, :] < k), other=0.0)
        q = tl.load(b + (at + r[:, None]) * n + j[None, :], mask=(at + r[:, None] < k) & (j[None, :] < n), other=0.0)
        total = tl.dot(p, q, total)
    tl.atomic_add(c + i[:, None] * n + j[None, :], total, mask=(i[:, None] < m) & (j[None, :] < n))


@triton.jit
def attention(
    q,
    k,
    v,
    out,
    scale,
    rows,
    keys,
    width: tl.constexpr,
    tile_m: tl.constexpr,
    tile_n: tl.constexpr,
    causal: tl.constexpr,
):
    head = tl.program_id(1)
    i = tl.program_id(0) * tile_m + tl.arange(0, tile_m)
    j = tl.arange(0, tile_n)
    d = tl.arange(0, width)
    query = tl.load(q + (head * rows + i[:, None]) * width + d[None, :], mask=i[:, None] < rows, other=0.0)
    best = tl.full((tile_m,), -float("inf"), tl.float32)
    weight = tl.zeros((tile_m,), tl.float32)
    total = tl.zeros((tile_m, width), tl.float32)
    end = keys
    if causal:
        end = min(keys, (tl.program_id(0) + 1) * tile_m + keys - rows)
    for at in range(0, end, tile_n):
        key = tl.load(k + (head * keys + at + j[None, :]) * width + d[:, None], mask=at + j[None, :] < keys, other=0.0)
        s = tl.dot(query, key) * (scale * 1.4426950408889634)  # log2 of e
        seen = at + j[None, :] < keys
        if causal:
            seen = seen & (at + j[None, :] <= i[:, None] + keys - rows)
        s = tl.where(seen, s, -float("inf"))
        higher = tl.maximum(best, tl.max(s, axis=1))
        p = tl.exp2(s - higher[:, None])
        faded = tl.exp2(best - higher)
        weight = weight * faded + tl.sum(p, axis=1)
        held = at + j[:, None]
        value = tl.load(v + (head * keys + held) * width + d[None, :], mask=held < keys, other=0.0)
        total = tl.dot(p.to(value.dtype), value, total * faded[:, None])
        best = higher
    result = (total / weight[:, None]).to(out.dtype.element_ty)
    tl.store(out + (head * rows + i[:, None]) * width + d[None, :], result, mask=i[:, None] < rows)
