"""Memory that is shared with torch, both ways, bf16 and fp8 too."""

import gc

import ml_dtypes
import numpy as np
import pytest
import torch
from problems import ARCH, DENSE, dense

from kinfolk import dispatch
from kinfolk.errors import BindError
from kinfolk_attention_fwd.request import AttentionFwdRequest
from kinfolk_runtime import call
from kinfolk_runtime import compile as compile_plan
from kinfolk_runtime.torch import array_of, tensor_of

PAIRS = {
    torch.bfloat16: ml_dtypes.bfloat16,
    torch.float16: np.float16,
    torch.float32: np.float32,
    torch.int32: np.int32,
    torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn,
    torch.float8_e4m3fnuz: ml_dtypes.float8_e4m3fnuz,
    torch.float8_e5m2: ml_dtypes.float8_e5m2,
    torch.float8_e5m2fnuz: ml_dtypes.float8_e5m2fnuz,
}


@pytest.mark.parametrize("dtype", PAIRS, ids=str)
def test_a_tensor_is_an_array_over_the_same_memory(dtype):
    tensor = (torch.arange(24) % 7).view(4, 6).to(dtype)[::2]
    array = array_of(tensor)
    assert (array.dtype, array.shape, array.ctypes.data) == (np.dtype(PAIRS[dtype]), (2, 6), tensor.data_ptr())
    assert (array.astype(np.float64) == tensor.double().numpy()).all()
    array[0, 0] = 3
    assert tensor[0, 0].double() == 3
    del tensor
    gc.collect()
    assert array[0, 0] == 3


@pytest.mark.parametrize("dtype", PAIRS, ids=str)
def test_an_array_is_a_tensor_over_the_same_memory(dtype):
    array = (np.arange(24) % 7).reshape(4, 6).astype(PAIRS[dtype])[:, ::2]
    tensor = tensor_of(array)
    assert (tensor.dtype, tuple(tensor.shape), tensor.data_ptr()) == (dtype, (4, 3), array.ctypes.data)
    assert (tensor.double().numpy() == array.astype(np.float64)).all()
    address = array.ctypes.data
    del array
    gc.collect()
    assert tensor.data_ptr() == address and tensor[3, 2].double() == 22 % 7


def test_arrays_that_are_no_tensor():
    array = np.zeros(4, ml_dtypes.bfloat16)
    array.flags.writeable = False
    with pytest.raises(BindError, match=r"read-only.*`\.copy\(\)`"):
        tensor_of(array)
    with pytest.raises(BindError, match="no element type of a kernel"):
        tensor_of(np.zeros(4, np.complex64))
    assert not array_of(torch.ones(3, requires_grad=True)).flags.owndata


@pytest.mark.parametrize(
    "tensor, told",
    [
        (torch._neg_view(torch.ones(3)), r"negated when it is read, its memory is not. Pass `.resolve_neg\(\)`"),
        (torch.eye(3).to_sparse(), "layout other than torch.strided"),
        (torch.ones(3, device="meta"), "meta"),
    ],
    ids=["negated", "sparse", "meta"],
)
def test_tensors_that_are_no_array(tensor, told):
    with pytest.raises(BindError, match=told):
        array_of(tensor)


def test_a_plain_call_takes_tensors_of_torch_as_it_takes_arrays(attention):
    """No operator, no copy: whatever has `__dlpack__`."""
    request = AttentionFwdRequest(
        layout="dense",
        num_seqs=2,
        total_q=40,
        max_seqlen_q=20,
        max_seqlen_k=70,
        num_heads=8,
        num_kv_heads=2,
        head_size=64,
        head_size_v=64,
        dtype="bf16",
        kv_dtype="bf16",
        **{name: value for name, value in DENSE.items() if name != "arch"},
    )
    out = torch.empty(2, 20, 8, 64, dtype=torch.bfloat16)
    outputs = call(compile_plan(dispatch(request, ARCH)), {**dense(), "out": out})
    expected, lse = attention(**dense(), **DENSE)
    assert torch.equal(out, expected)
    assert torch.equal(tensor_of(outputs["lse"]), lse)
