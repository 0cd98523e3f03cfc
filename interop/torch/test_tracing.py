"""Operators inside of what torch traces: whole graphs, extents and lengths that grow, and exported programs."""

import pytest
import torch
from problems import DECODE, DENSE, dense, paged
from torch._dynamo.testing import CompileCounterWithBackend


@pytest.fixture(autouse=True)
def _anew():
    torch._dynamo.reset()


def test_a_whole_graph_is_traced_with_extents_as_symbols(attention):
    counter, counts = CompileCounterWithBackend("aot_eager"), []

    @torch.compile(backend=counter, fullgraph=True, dynamic=True)
    def traced(q, k, v):
        out, lse = torch.ops.kinfolk.attention_fwd(q, k, v, **DENSE)
        return 2 * out, lse

    for keys in (70, 71, 72):
        tensors = dense(keys)
        out, lse = attention(**tensors, **DENSE)
        twice, same = traced(**tensors)
        assert torch.equal(twice, 2 * out) and torch.equal(same, lse)
        counts.append(counter.frame_count)
    assert counts[0] == counts[-1]


@pytest.mark.parametrize("dynamic", [None, False], ids=["as-torch-does", "each-number-anew"])
def test_a_step_that_grows_is_compiled_for_the_first_number_then_for_any(mla, dynamic):
    """The second way is the control: there every number is another program."""
    counter, counts = CompileCounterWithBackend("aot_eager"), []
    tensors = paged()

    @torch.compile(backend=counter, fullgraph=True, dynamic=dynamic)
    def step(most: int, tensors):
        return torch.ops.kinfolk.mla(**tensors, **DECODE | {"max_seqlen_k": most})[0] + 0

    out = mla(**tensors, **DECODE)[0]
    for most in range(40, 45):
        assert torch.equal(step(most, tensors), out)
        counts.append(counter.frame_count)
    assert counts[0] < counts[1]
    assert (counts[1] == counts[-1]) == (dynamic is None)


def test_outputs_that_are_written_are_seen_by_what_follows(mla):
    tensors = paged()

    @torch.compile(backend="aot_eager", fullgraph=True)
    def traced(out, lse, tensors):
        torch.ops.kinfolk.mla_out([out, lse], **tensors, **DECODE)
        return out * 2

    out, lse = torch.zeros(2, 16, 512, dtype=torch.bfloat16), torch.zeros(2, 16)
    twice = traced(out, lse, tensors)
    expected, sums = mla(**tensors, **DECODE)
    assert torch.equal(twice, 2 * expected) and torch.equal(out, expected) and torch.equal(lse, sums)


class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.ops.kinfolk.attention_fwd(q, k, v, **DENSE)[0]


def test_an_exported_program_names_the_operator_and_its_fields(attention):
    tensors = tuple(dense().values())
    program = torch.export.export(Attention(), tensors)
    [node] = [node for node in program.graph.nodes if node.target == attention.default]
    assert {name: node.kwargs[name] for name in DENSE} == DENSE
    assert torch.equal(program.module()(*tensors), attention(*tensors, **DENSE)[0])


def test_fake_tensors_never_run(attention):
    """On `meta`, where there is no memory: extents and dtypes alone."""
    tensors = {name: tensor.to("meta") for name, tensor in dense().items()}
    out, lse = attention(**tensors, **DENSE)
    assert (out.shape, out.dtype, out.device.type) == ((2, 20, 8, 64), torch.bfloat16, "meta")
    assert lse.shape == (2, 8, 20)
