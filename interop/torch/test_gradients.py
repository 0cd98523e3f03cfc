"""Gradients by torch's autograd, in fp64: those of its own attention, against the operator of our family."""

import pytest
import torch
from problems import ARCH, dense, dense_expected, drawn

from kinfolk_runtime.torch import operator

SCALE = 0.125


def by_autograd(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dout: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, tuple[torch.Tensor, ...]]:
    """Return output, LSE and the gradients of sum(out * dout)."""
    given = [each.double().requires_grad_() for each in (q, k, v)]
    out = dense_expected(*given, scale=SCALE)
    out.backward(dout.double())
    keys = k.double().repeat_interleave(q.shape[2] // k.shape[2], dim=2)
    scores = torch.einsum("bqhd,bkhd->bhqk", q.double(), keys) * SCALE
    unseen = ~torch.ones(scores.shape[2:], dtype=torch.bool).tril(scores.shape[3] - scores.shape[2])
    lse = torch.logsumexp(scores.masked_fill(unseen, float("-inf")), dim=-1)
    return out.detach(), lse, tuple(each.grad for each in given if each.grad is not None)


def far(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest error as a share of the largest element."""
    return float((found.double() - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("keys", [70, 20])
def test_gradients_are_torch_s(keys):
    tensors, dout = dense(keys), drawn(2, 20, 8, 64, seed=9)
    out, lse, expected = by_autograd(**tensors, dout=dout)
    backward = operator("attention_bwd")
    given = {**tensors, "o": out.bfloat16(), "dout": dout}
    fields = {"arch": ARCH, "layout": "bshd", "causal": True, "scale": SCALE}
    found = backward(**given, lse=lse.float(), **fields)
    assert max(map(far, found, expected)) < 0.01
    wrong = backward(**given, lse=lse.float() / 0.6931471805599453, **fields)  # the control: LSE in powers of 2
    assert min(map(far, wrong, expected)) > 0.1
