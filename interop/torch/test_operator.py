"""What operators return, against torch's own attention in fp64; what they are to torch (`opcheck`); whose family."""

import subprocess
import sys

import pytest
import torch
from problems import ARCH, DECODE, DENSE, dense, dense_expected, is_close, paged, paged_expected

from kinfolk_runtime.torch import operator, operators


def test_forward_attention_is_torch_s(attention):
    tensors = dense()
    out, lse = attention(**tensors, **DENSE)
    assert (out.dtype, out.shape, lse.dtype, lse.shape) == (torch.bfloat16, (2, 20, 8, 64), torch.float32, (2, 8, 20))
    assert is_close(out, dense_expected(**tensors, scale=DENSE["scale"]))
    assert not is_close(out, dense_expected(**tensors, scale=1.1 * DENSE["scale"]))  # the check sees a wrong scale
    shifted = tensors | {"v": tensors["v"].roll(1, dims=1)}
    assert not is_close(out, dense_expected(**shifted, scale=DENSE["scale"]))  # and values that are another key's


def test_a_window_is_torch_s(attention):
    tensors, scale = dense(), DENSE["scale"]
    out, _ = attention(**tensors, **DENSE, window_left=16)
    assert is_close(out, dense_expected(**tensors, scale=scale, window_left=16))
    assert not is_close(out, dense_expected(**tensors, scale=scale, window_left=17))


def test_decode_is_torch_s(mla):
    tensors = paged()
    out, lse = mla(**tensors, **DECODE)
    assert (out.shape, lse.shape) == ((2, 16, 512), (2, 16))
    assert is_close(out, paged_expected(**tensors))
    assert not is_close(out, paged_expected(**tensors | {"c_kv": tensors["c_kv"].roll(1, dims=0)}))


def test_a_tensor_that_torch_negates_when_it_is_read_is_negated(attention):
    """Its memory holds the other sign; torch makes a tensor of it before any operator sees it."""
    tensors = dense()
    negated = tensors | {"v": torch._neg_view(tensors["v"])}
    assert negated["v"].is_neg() and negated["v"].data_ptr() == tensors["v"].data_ptr()
    assert torch.equal(attention(**negated, **DENSE)[0], -attention(**tensors, **DENSE)[0])


def test_outputs_are_those_that_are_asked_for(attention):
    [out] = attention(**dense(), **DENSE | {"return_lse": False})
    assert torch.equal(out, attention(**dense(), **DENSE)[0])


def test_fields_stand_in_the_schema_and_tensors_before_them(attention):
    taken = [argument.name for argument in attention.default._schema.arguments]
    assert taken[:3] == ["q", "k", "v"]
    assert {"sink", "arch", "check", "num_heads", "causal", "window_left", "softcap", "scale"} <= set(taken)
    assert [str(each.type) for each in attention.default._schema.returns] == ["List[Tensor]"]


def test_outputs_that_are_passed_are_written(mla):
    tensors = paged()
    out, lse = torch.full((2, 16, 512), 7.0, dtype=torch.bfloat16), torch.full((2, 16), 7.0)
    before = out.data_ptr()
    assert torch.ops.kinfolk.mla_out([out, lse], **tensors, **DECODE) is None
    found = mla(**tensors, **DECODE)
    assert out.data_ptr() == before
    assert torch.equal(out, found[0]) and torch.equal(lse, found[1])


def test_torch_finds_no_fault_in_the_operators(attention, mla):
    """`opcheck`: schema, gradients, fake kernels and what they give with symbols for extents."""
    passed = {"test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"}
    decode = (None, None, *list(paged().values())[1:])
    out = [torch.empty(2, 16, 512, dtype=torch.bfloat16), torch.empty(2, 16)]
    for called, arguments, fields in (
        (attention, tuple(dense().values()), DENSE),
        (mla, (paged()["qa"], *decode), DECODE),
        (torch.ops.kinfolk.mla_out, (out, paged()["qa"], *decode), DECODE),
    ):
        assert torch.library.opcheck(called.default, arguments, fields) == dict.fromkeys(passed, "SUCCESS")


def test_torch_finds_an_operator_that_is_wrong(attention):
    """Negative control: a fake kernel whose extents are not those of the outputs."""

    @torch.library.custom_op("kinfolk_control::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x])

    twice.register_fake(torch.empty_like)
    with pytest.raises(Exception, match="test_faketensor"):
        torch.library.opcheck(twice, (torch.ones(3),))


def test_a_family_that_anyone_writes_is_an_operator_too():
    """The stage installs one that `kinfolk new` wrote."""
    scale = operator("row_scale")
    assert operators().keys() == {"attention_bwd", "attention_fwd", "mla", "row_scale"}
    x = torch.randn(3, 77, generator=torch.Generator().manual_seed(1))
    y, lse = scale(x, arch=ARCH, scale=2.0)
    torch.testing.assert_close(y, torch.softmax(2.0 * x, dim=1))
    torch.testing.assert_close(lse, torch.logsumexp(2.0 * x, dim=1))
    strided = torch.randn(3, 2 * 77)[:, :77]
    torch.testing.assert_close(scale(strided, arch=ARCH, scale=2.0)[0], torch.softmax(2.0 * strided, dim=1))


@pytest.mark.parametrize("statement, brings", [("kinfolk_runtime.runner", False), ("kinfolk_runtime.torch", True)])
def test_nothing_imports_torch_unasked(statement, brings):
    """Nor does listing plugins, which here are all there are; the second is the control."""
    code = (
        f"import sys, kinfolk, {statement}\n"
        "from kinfolk.plugins.composition import compose\n"
        "compose('mla', 'gfx942'), compose('attention_fwd', 'gfx950')\n"
        "print('torch' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == [str(brings)]
