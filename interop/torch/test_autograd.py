"""Forward attention differentiated by torch, against the gradients of torch's own attention in fp64."""

import attrs
import pytest
import torch
from problems import ARCH, DENSE, dense, dense_expected, drawn

from kinfolk.errors import NoCandidate
from kinfolk_attention_fwd.request import AttentionFwdRequest
from kinfolk_runtime.torch import operator

SCALE = DENSE["scale"]
ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
WITHOUT_LSE = DENSE | {"return_lse": False}
SMALL = 2.0**-14
"""What f32 may add, as a share of what a sum's magnitudes come to: far less than a rounding to bf16."""


def leaves(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.clone().requires_grad_() for name, tensor in tensors.items()}


def gradients(attention, tensors: dict[str, torch.Tensor], dout: torch.Tensor, fields: dict = DENSE):
    """Return what torch's autograd finds through the operator."""
    given = leaves(tensors)
    out, *_ = attention(**given, **fields)
    return torch.autograd.grad(out, list(given.values()), dout)


def expected(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dout: torch.Tensor):
    given = [each.double().requires_grad_() for each in (q, k, v)]
    return torch.autograd.grad(dense_expected(*given, scale=SCALE), given, dout.double())


def tolerances(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dout: torch.Tensor) -> list[torch.Tensor]:
    """Return how far gradients may err at most, with u the rounding to their type.

    The forward pass rounds weights P and the output: a row's sum D = sum(out * dout) errs by 2 u sum(P |v|) |dout|,
    and dS = P (dout v - D) by P times that. The backward pass rounds P and dS once, by u, and each gradient, by u.
    """
    unit, group = ROUNDING[q.dtype], q.shape[2] // k.shape[2]
    q, k, v, dout = (each.double().transpose(1, 2) for each in (q, k, v, dout))
    k, v = (each.repeat_interleave(group, dim=1) for each in (k, v))
    scores = SCALE * q @ k.mT
    unseen = ~torch.ones(scores.shape[2:], dtype=torch.bool).tril(scores.shape[3] - scores.shape[2])
    weights = scores.masked_fill(unseen, float("-inf")).softmax(dim=-1)
    product = dout @ v.mT
    sums = (weights * product).sum(dim=-1, keepdim=True)
    most = ((weights @ v.abs()) * dout.abs()).sum(dim=-1, keepdim=True)
    of_sums = 2 * unit * most + SMALL * (product.abs() + most)
    of_scores = unit * (weights * (product - sums)).abs() + weights * of_sums

    def shared(each: torch.Tensor) -> torch.Tensor:
        return each.unflatten(1, (-1, group)).sum(dim=2)

    summed = [
        SCALE * of_scores @ k.abs(),
        shared(SCALE * of_scores.mT @ q.abs()),
        shared((unit + SMALL) * weights.mT @ dout.abs()),
    ]
    return [each.transpose(1, 2) for each in summed]


def margin(found, right, allowed) -> float:
    """Return the largest error as a share of what is allowed, a last rounding of the gradient included."""
    shares = [
        ((mine.double() - true).abs() / (bound + ROUNDING[mine.dtype] * true.abs() + 1e-12)).max()
        for mine, true, bound in zip(found, right, allowed, strict=True)
    ]
    return float(max(shares))


@pytest.mark.parametrize("keys", [70, 20])
def test_gradients_are_those_of_torch_s_attention(attention, keys):
    tensors, dout = dense(keys), drawn(2, 20, 8, 64, seed=9)
    right, allowed = expected(**tensors, dout=dout), tolerances(**tensors, dout=dout)
    found = gradients(attention, tensors, dout)
    assert [(each.dtype, each.shape) for each in found] == [(each.dtype, each.shape) for each in tensors.values()]
    assert margin(found, right, allowed) <= 1
    shifted = expected(**tensors | {"v": tensors["v"].roll(1, dims=1)}, dout=dout)
    assert margin(found, shifted, allowed) > 1  # the check sees values that are another key's


def test_lse_is_what_backward_takes_it_for(attention, monkeypatch):
    """The control: an LSE in powers of 2, and gradients of keys taken for those of values."""
    tensors, dout = dense(), drawn(2, 20, 8, 64, seed=9)
    right, allowed = expected(**tensors, dout=dout), tolerances(**tensors, dout=dout)
    given = leaves(tensors)
    out, lse = attention(**given, **DENSE)
    with torch.no_grad():
        lse /= 0.6931471805599453  # in place, of what was kept
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward(dout)  # torch itself keeps a loss from being formed of what has changed since
    wrong = operator("attention_bwd")(
        **tensors, o=out.detach(), lse=lse.detach(), dout=dout, arch=ARCH, layout="bshd", causal=True, scale=SCALE
    )
    assert margin(wrong, right, allowed) > 1
    swapped = attrs.evolve(AttentionFwdRequest.gradient, gives={"q": "dq", "k": "dv", "v": "dk"})
    monkeypatch.setattr(AttentionFwdRequest, "gradient", swapped)
    assert margin(gradients(attention, tensors, dout), right, allowed) > 1


def test_gradients_are_equal_bits_with_lse_and_without_and_twice(attention):
    tensors, dout = dense(), drawn(2, 20, 8, 64, seed=9)
    first = gradients(attention, tensors, dout)
    for fields in (DENSE, WITHOUT_LSE):
        assert all(map(torch.equal, gradients(attention, tensors, dout, fields), first))


def test_gradients_of_outputs_lie_as_they_like(attention):
    """Expanded, as a sum's is, and turned: what torch hands on is seldom contiguous."""
    tensors = dense()
    ones = torch.ones((), dtype=torch.bfloat16).expand(2, 20, 8, 64)
    turned = drawn(2, 8, 20, 64, seed=9).transpose(1, 2)
    for dout in (ones, turned):
        assert not dout.is_contiguous()
        found = gradients(attention, tensors, dout)
        assert all(map(torch.equal, found, gradients(attention, tensors, dout.contiguous())))
    given = leaves(tensors)
    attention(**given, **DENSE)[0].sum().backward()
    assert all(map(torch.equal, [each.grad for each in given.values()], gradients(attention, tensors, ones)))


@pytest.mark.parametrize("wanted", ["q", "v"])
def test_only_what_needs_a_gradient_gets_one(attention, wanted):
    tensors, dout = dense(), drawn(2, 20, 8, 64, seed=9)
    given = tensors | {wanted: tensors[wanted].clone().requires_grad_()}
    attention(**given, **DENSE)[0].backward(dout)
    assert [name for name, each in given.items() if each.grad is not None] == [wanted]
    whole = dict(zip(tensors, gradients(attention, tensors, dout), strict=True))
    assert torch.equal(given[wanted].grad, whole[wanted])


def test_gradients_are_slopes_of_the_operator_itself(attention):
    """Differences over steps that f16 holds exactly, each element along the sign of its gradient."""
    step, draw = 2.0**-6, torch.Generator().manual_seed(5)
    shapes = {"q": (1, 16, 2, 64), "k": (1, 40, 1, 64), "v": (1, 40, 1, 64)}
    tensors = {
        name: torch.randn(shape, generator=draw).clamp(-2, 2).div(step).round().mul(step).half()
        for name, shape in shapes.items()
    }
    dout = torch.randn(shapes["q"], generator=draw).half()
    found = dict(zip(tensors, gradients(attention, tensors, dout), strict=True))

    def loss(moved: dict[str, torch.Tensor]) -> float:
        return float((attention(**tensors | moved, **DENSE)[0].double() * dout.double()).sum())

    for name, gradient in found.items():
        along = step * gradient.sign()
        slope = (loss({name: tensors[name] + along}) - loss({name: tensors[name] - along})) / (2 * step)
        assert slope == pytest.approx(float(gradient.double().abs().sum()), rel=0.02)


def test_torch_finds_no_fault_in_it(attention):
    passed = {"test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"}
    given = tuple(leaves(dense()).values())
    assert torch.library.opcheck(attention.default, given, WITHOUT_LSE) == dict.fromkeys(passed, "SUCCESS")


def test_compiled_gradients_are_the_same_bits(attention):
    tensors, dout = dense(), drawn(2, 20, 8, 64, seed=9)

    def through(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out, _ = torch.ops.kinfolk.attention_fwd(q, k, v, **DENSE)
        return out * 2

    given = list(leaves(tensors).values())
    found = torch.autograd.grad(torch.compile(through, fullgraph=True, backend="aot_eager")(*given), given, dout)
    assert all(map(torch.equal, found, gradients(attention, tensors, 2 * dout)))


def test_a_gradient_by_way_of_lse_is_refused(attention):
    given = leaves(dense())
    out, lse = attention(**given, **DENSE)
    with pytest.raises(NotImplementedError, match="no gradient by way of lse"):
        (out.float().sum() + lse.sum()).backward()
    out, lse = attention(**given, **DENSE)
    (out.float().sum() + lse.detach().sum()).backward()
    assert given["q"].grad is not None


@pytest.mark.parametrize(
    ("fields", "kind", "said"),
    [
        ({"k_scale": 2.0}, NotImplementedError, "k_scale is 2.0, supported: 1.0"),
        ({"alibi_slopes": torch.ones(8)}, NotImplementedError, "alibi is True, supported: False"),
        ({"window_left": 16}, NoCandidate, "window_left is 16, supported: -1"),
    ],
)
def test_what_has_no_gradient_runs_forward_and_says_why_in_backward(attention, fields, kind, said):
    out, _ = attention(**leaves(dense()), **DENSE, **fields)
    with pytest.raises(kind, match=said):
        out.float().sum().backward()


def test_a_family_that_is_not_installed_is_named(attention, monkeypatch):
    elsewhere = attrs.evolve(AttentionFwdRequest.gradient, family="nowhere", distribution="kinfolk-nowhere")
    monkeypatch.setattr(AttentionFwdRequest, "gradient", elsewhere)
    out, _ = attention(**leaves(dense()), **DENSE)
    with pytest.raises(NotImplementedError, match="which is not installed: pip install kinfolk-nowhere"):
        out.float().sum().backward()


def test_a_gradient_of_a_gradient_is_refused(attention):
    given = leaves(dense())
    out, _ = attention(**given, **DENSE)
    [dq] = torch.autograd.grad(out.float().sum(), [given["q"]], create_graph=True)
    with pytest.raises(NotImplementedError, match="kinfolk::attention_bwd has no backward"):
        dq.float().sum().backward()
