"""Small batches of packed sequences over a paged cache, for tests of references: odd widths, everything unowned NaN."""

import numpy as np

from kinfolk_mla.request import MlaRequest

WIDTHS = {"kv_lora_rank": 10, "rope_dim": 6, "nope_dim": 7, "v_dim": 5}


def batch(tokens, lengths, *, num_heads=3, page_size=4, absorbed=True, causal=True, seed=0):
    """Return a request and its fp64 inputs: `tokens[s]` queries and `lengths[s]` keys of each sequence."""
    generator = np.random.default_rng(seed)
    slots = [-(-length // page_size) for length in lengths]
    request = MlaRequest(
        **WIDTHS,
        num_heads=num_heads,
        num_seqs=len(lengths),
        total_q=sum(tokens),
        max_seqlen_q=max(tokens),
        max_seqlen_k=max(lengths),
        absorbed_query=absorbed,
        page_size=page_size,
        num_pages=sum(slots) + 2,
        dtype="f64",
        kv_dtype="f64",
        causal=causal,
        scale=0.25,  # its root is exact: ONNX multiplies queries and keys by that, as f32
    )
    order = iter(generator.permutation(request.num_pages))
    table = np.full((len(lengths), max([1, *slots])), -1, np.int32)
    cache = {
        "c_kv": np.full((request.num_pages, page_size, request.kv_lora_rank), np.nan),
        "k_rope": np.full((request.num_pages, page_size, request.rope_dim), np.nan),
    }
    for sequence, length in enumerate(lengths):
        for position in range(length):
            slot, row = divmod(position, page_size)
            if row == 0:
                table[sequence, slot] = next(order)
            for array in cache.values():
                array[table[sequence, slot], row] = generator.standard_normal(array.shape[-1])
    up = generator.standard_normal((num_heads, request.kv_lora_rank, request.nope_dim + request.v_dim))
    wide = request.kv_lora_rank + request.rope_dim if absorbed else request.nope_dim + request.rope_dim
    return request, {
        "qa" if absorbed else "q": generator.standard_normal((request.total_q, num_heads, wide)),
        "w_ukv": up,
        **cache,
        "cu_seqlens_q": np.cumsum([0, *tokens]).astype(np.int32),
        "cu_seqlens_k": np.cumsum([0, *lengths]).astype(np.int32),
        "block_table": table,
    }


def rows(request, inputs, sequence):
    """Return the keys [keys, latent + rope] of a sequence, read from its pages one by one."""
    length = int(np.diff(inputs["cu_seqlens_k"])[sequence])
    places = [(inputs["block_table"][sequence, i // request.page_size], i % request.page_size) for i in range(length)]
    found = [np.concatenate([inputs["c_kv"][place], inputs["k_rope"][place]]) for place in places]
    return np.array(found).reshape(length, request.kv_lora_rank + request.rope_dim)
