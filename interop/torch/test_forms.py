"""The forms that tensors of a family come in, which the tensors alone tell: absorbed or projected queries, caches of
8-bit floats, nothing to do.
"""

import torch
from problems import ARCH, DECODE, DENSE, LENGTHS, PAGES, dense, drawn, is_close, paged, paged_expected
from torch.nn.functional import scaled_dot_product_attention

QUERIES = (14, 10)


def projected_expected(q, w_ukv, tensors):
    """Return the output of a prompt in fp64: keys and values of each head from latent rows, aligned at the right."""
    found, begin = [], 0
    for count, length, pages in zip(QUERIES, LENGTHS, PAGES, strict=True):
        used = list(pages[: -(-length // 16)])
        latent, rotated = (tensors[name][used].flatten(0, 1)[:length].double() for name in ("c_kv", "k_rope"))
        both = torch.einsum("nl,hlc->hnc", latent, w_ukv.detach().double())
        keys = torch.cat([both[..., :128], rotated.expand(len(both), -1, -1)], dim=-1)
        seen = torch.ones(count, length, dtype=torch.bool).tril(length - count)
        query = q[begin : begin + count].double().transpose(0, 1)
        out = scaled_dot_product_attention(query, keys, both[..., 128:], attn_mask=seen, scale=DECODE["scale"])
        found.append(out.transpose(0, 1))
        begin += count
    return torch.cat(found)


def test_projected_queries_have_outputs_of_another_width(mla):
    """With an up-projection that is a parameter of a model: no gradient is asked for here."""
    q = drawn(sum(QUERIES), 16, 128 + 64, seed=7)
    w_ukv = torch.nn.Parameter((0.05 * drawn(16, 512, 128 + 128, seed=8).float()).to(torch.bfloat16))
    tensors = paged() | {"cu_seqlens_q": torch.tensor([0, 14, 24], dtype=torch.int32)}
    del tensors["qa"]
    with torch.no_grad():
        out, lse = mla(q=q, w_ukv=w_ukv, **tensors, **DECODE | {"max_seqlen_q": max(QUERIES)})
    assert (out.shape, lse.shape) == ((24, 16, 128), (24, 16))
    expected = projected_expected(q, w_ukv, tensors)
    most = 2**-6 * expected.abs().max()  # keys, values and weights are rounded to bf16 on the way
    assert (out.double() - expected).abs().max() < most
    other = projected_expected(q, w_ukv, tensors | {"c_kv": tensors["c_kv"].roll(1, dims=1)})
    assert (out.double() - other).abs().max() > 10 * most  # the check sees rows in another order


def test_a_cache_of_eight_bit_floats_says_so_by_its_dtype(mla):
    tensors, k_scale = paged(), 0.03125
    narrow = {
        name: (tensors[name].float() / k_scale).clamp(-240, 240).to(torch.float8_e4m3fnuz)
        for name in ("c_kv", "k_rope")
    }
    out, _ = mla(**tensors | narrow, **DECODE, k_scale=k_scale)
    wide = {name: tensor.float() * k_scale for name, tensor in narrow.items()}
    assert is_close(out, paged_expected(**tensors | wide))
    assert not is_close(out, paged_expected(**tensors))  # what rounding to eight bits lost is seen


def paged_step():
    """A decode step over the pages of `problems`, 8 heads, 4 to a head of keys."""
    return {
        "q": drawn(2, 8, 128, seed=9),
        "k": drawn(5, 16, 2, 128, seed=10),
        "v": drawn(5, 16, 2, 128, seed=11),
        "cu_seqlens_q": torch.tensor([0, 1, 2], dtype=torch.int32),
        "seqused_k": torch.tensor(LENGTHS, dtype=torch.int32),
        "block_table": torch.tensor(PAGES, dtype=torch.int32),
    }


def paged_step_expected(q, k, v, **_):
    """Return the output of each sequence over its keys in fp64."""
    found = []
    for query, length, pages in zip(q.double(), LENGTHS, PAGES, strict=True):
        used = list(pages[: -(-length // 16)])
        keys, values = (each[used].flatten(0, 1)[:length].double().transpose(0, 1) for each in (k, v))
        found.append(scaled_dot_product_attention(query[:, None], keys, values, scale=128**-0.5, enable_gqa=True)[:, 0])
    return torch.stack(found)


def test_keys_in_pages_are_told_by_the_axes_of_the_query(attention):
    tensors = paged_step()
    fields = {"arch": ARCH, "causal": True, "return_lse": True, "scale": 128**-0.5}
    out, lse = attention(**tensors, **fields, max_seqlen_q=1, max_seqlen_k=max(LENGTHS))
    assert (out.shape, lse.shape) == ((2, 8, 128), (8, 2))
    assert is_close(out, paged_step_expected(**tensors))
    assert not is_close(out, paged_step_expected(**tensors | {"v": tensors["v"].roll(1, dims=0)}))


def sloped_expected(q, k, v, sink, alibi_slopes):
    """Return the output in fp64: slopes are a bias of scores, a sink the score of a key more, whose value is 0."""
    ahead = k.shape[1] - q.shape[1]
    keys, values = (torch.nn.functional.pad(each.double().transpose(1, 2), (0, 0, 0, 1)) for each in (k, v))
    bias = alibi_slopes.double()[:, None, None] * (torch.arange(k.shape[1]) - ahead)
    seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(ahead)
    bias = bias.expand(8, *seen.shape).masked_fill(~seen, -torch.inf)
    bias = torch.cat([bias, sink.double()[:, None, None].expand(8, q.shape[1], 1)], dim=-1)
    query = q.double().transpose(1, 2)
    out = scaled_dot_product_attention(query, keys, values, attn_mask=bias, scale=DENSE["scale"], enable_gqa=True)
    return out.transpose(1, 2)


def test_slopes_and_sinks_are_asked_for_by_passing_them(attention):
    sink, slopes = torch.linspace(-1, 2, 8).to(torch.bfloat16), 2.0 ** -torch.arange(4.0, 12.0)
    tensors = dense()
    out, _ = attention(**tensors, sink=sink, alibi_slopes=slopes, **DENSE)
    assert is_close(out, sloped_expected(**tensors, sink=sink, alibi_slopes=slopes))
    assert not is_close(out, sloped_expected(**tensors, sink=sink - 0.5, alibi_slopes=slopes))
    assert not is_close(out, sloped_expected(**tensors, sink=sink, alibi_slopes=1.5 * slopes))


def test_nothing_to_do_gives_outputs_without_rows(mla):
    empty = {"qa": drawn(0, 16, 576), "cu_seqlens_q": torch.zeros(3, dtype=torch.int32)}
    out, lse = mla(**paged() | empty, **DECODE | {"max_seqlen_q": 0})
    assert (out.shape, lse.shape) == ((0, 16, 512), (0, 16))


def test_tensors_of_inference_mode(mla):
    expected = mla(**paged(), **DECODE)[0]
    with torch.inference_mode():
        assert torch.equal(mla(**paged(), **DECODE)[0], expected)
