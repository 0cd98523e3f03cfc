"""What is refused, by name and with what to do: tensors, fields, arch, gradients, outputs that are passed."""

import pytest
import torch
from problems import DECODE, DENSE, dense, paged

from kinfolk.errors import BindError, NoCandidate
from kinfolk.fields import FieldValueError


def refused(call, *said: str, kind: type[Exception] = BindError) -> None:
    with pytest.raises(kind) as caught:
        call()
    for words in said:
        assert words in str(caught.value)


def without(given: dict, *names: str) -> dict:
    return {name: value for name, value in given.items() if name not in names}


def test_fields_that_nothing_states_are_missed_by_name(attention, mla):
    refused(
        lambda: attention(**dense(), **without(DENSE, "causal", "scale")),
        "lacks causal, scale, which q, k, v do not state (causal: a query sees no later key; scale: multiplies q.k",
        "Pass them by name.",
    )
    refused(lambda: attention(**without(dense(), "v"), **DENSE), "lacks head_size_v", "or what states it: v.")
    refused(lambda: mla(**without(paged(), "qa"), **DECODE), "absorbed_query", "or what states it: qa or q or w_ukv.")
    refused(lambda: mla(**without(paged(), "c_kv"), **DECODE), "input c_kv is missing")
    refused(lambda: attention(**DENSE), "was passed no tensor, it takes q, k, v")


def test_what_is_passed_by_name_stands_and_tensors_are_held_against_it(attention):
    refused(lambda: attention(**dense(), **DENSE, num_seqs=3, total_q=60), "q: the extent of axis 0 is 2, 3 (num_seqs)")


def test_tensors_that_do_not_fit(attention, mla):
    q, k, v = dense().values()
    tensors = paged()
    refused(lambda: attention(q, k, v[:, :60], **DENSE), "v: the extent of axis 1 is 60, 70 (max_seqlen_k) is needed")
    refused(
        lambda: attention(q.transpose(1, 2).contiguous().transpose(1, 2), k, v, **DENSE),
        "q: the stride of axis 1 is 64 elements, 512 is needed",
        "`.contiguous()`",
    )
    axes = "q has shape (1, 2, 20, 8, 64), (num_seqs, max_seqlen_q, num_heads, head_size) or (total_q,"
    refused(lambda: attention(q[None], k, v, **DENSE), axes, "Reshape it.", kind=ValueError)
    refused(lambda: attention(q[0], k, v, **DENSE), "lacks layout, num_seqs", "what states it: cu_seqlens_q or cu_")
    rows = torch.zeros(5, 16, 576, dtype=torch.bfloat16)
    parts = {"c_kv": rows[..., :512], "k_rope": rows[..., 512:]}
    refused(lambda: mla(**tensors | parts, **DECODE), "c_kv: the stride of axis 0 is 9216 elements, 8192 is needed")
    odd = torch.zeros(2 * 16 * 576 + 1, dtype=torch.bfloat16)[1:].view(2, 16, 576)
    refused(lambda: mla(**tensors | {"qa": odd}, **DECODE), "qa: its address", "is no multiple of 16 bytes")


def test_dtypes(attention, mla):
    q, k, v = dense().values()
    tensors = paged()
    long = {"cu_seqlens_k": tensors["cu_seqlens_k"].long()}
    refused(lambda: mla(**tensors | long, **DECODE), "dtype is torch.int64, torch.int32 (i32)", "`.to(torch.int32)`")
    refused(lambda: attention(q.to(torch.complex64), k, v, **DENSE), "q: dtype is torch.complex64")
    refused(lambda: attention(q.float(), k, v, **DENSE), "dtype is f32, supported: bf16 or f16", kind=NoCandidate)
    refused(lambda: attention(q, k.half(), v, **DENSE), "kv_dtype is f16", kind=NoCandidate)


def test_tensors_that_are_not_laid_out_in_strides(attention):
    q, k, v = dense().values()
    refused(lambda: attention(q.to_sparse(), k, v, **DENSE), "q is laid out as torch.sparse_coo", "`.to_dense()`")


def test_fields_out_of_range_and_requests_that_nobody_serves(attention):
    refused(lambda: attention(**dense(), **DENSE, softcap=-1.0), "softcap must be finite", kind=FieldValueError)
    refused(lambda: attention(**dense(), **DENSE, sinks=True), "input sink is missing", kind=BindError)


def test_the_arch(attention):
    refused(lambda: attention(**dense(), **without(DENSE, "arch")), "arch is needed", "one of gfx942, gfx950")
    with pytest.raises(Exception, match="no arch 'gfx000' is installed"):
        attention(**dense(), **DENSE | {"arch": "gfx000"})


def test_contents_are_looked_into_unless_that_is_declined(mla):
    tensors = paged()
    outside = {"block_table": tensors["block_table"] + 7}
    refused(lambda: mla(**tensors | outside, **DECODE), "block_table[0, 0] is page 7, ids in [0, 5) are needed")
    out, lse = mla(**tensors | outside, **DECODE, check=False)
    assert (out == 0).all() and torch.isneginf(lse).all()


def test_outputs_that_cannot_be_written(mla):
    tensors = paged()
    out, lse = torch.empty(2, 16, 512, dtype=torch.bfloat16), torch.empty(2, 16)

    def passing(*outputs):
        return lambda: torch.ops.kinfolk.mla_out(list(outputs), **tensors, **DECODE)

    refused(passing(out), "out has 1 tensors, the outputs are out, lse")
    refused(passing(out, lse.double()), "lse: dtype is torch.float64, torch.float32 (f32) is needed")
    refused(passing(out[:1], lse), "out: the extent of axis 0 is 1, 2 (total_q) is needed")
    with torch.no_grad():
        refused(passing(out.clone().requires_grad_(), lse), "out is written, and needs a gradient")
    refused(passing(tensors["c_kv"].flatten()[: out.numel()].view(out.shape), lse), "out is written and shares memory")
    refused(passing(out[:1, :1].expand(2, 16, 512), lse), "out: the stride of axis 0 is 0 elements")


def test_a_gradient_is_refused_where_it_is_asked_for(mla):
    """Of a family that names none; where one does, `test_autograd` has what it refuses."""
    tensors = paged()
    leaf = tensors["qa"].clone().requires_grad_()
    out, _ = mla(**tensors | {"qa": leaf}, **DECODE)
    assert out.requires_grad
    refused(lambda: out.float().sum().backward(), "kinfolk::mla has no backward", kind=NotImplementedError)
    with torch.no_grad():
        assert torch.equal(mla(**tensors | {"qa": leaf}, **DECODE)[0], out)


def test_what_is_written_would_carry_no_gradient_so_that_it_is_refused_at_once(attention):
    q, k, v = dense().values()
    leaf, out = q.clone().requires_grad_(), [torch.empty(2, 20, 8, 64, dtype=torch.bfloat16), torch.empty(2, 8, 20)]
    refused(
        lambda: torch.ops.kinfolk.attention_fwd_out(out, leaf, k, v, **DENSE),
        "kinfolk::attention_fwd_out has no backward",
        kind=NotImplementedError,
    )
    with torch.no_grad():
        torch.ops.kinfolk.attention_fwd_out(out, leaf, k, v, **DENSE)
    assert torch.equal(out[0], attention(q, k, v, **DENSE)[0]) and not out[0].requires_grad
