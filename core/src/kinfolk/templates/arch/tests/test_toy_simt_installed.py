"""The arch as kinfolk finds it where it is installed, and what it says of compiled code."""

import pytest

from kinfolk.errors import ToolError
from kinfolk.plugins.composition import arch_of
from kinfolk.plugins.loading import load
from kinfolk.testing import ArchConformance
from kinfolk.usage import Usage
from kinfolk_toy_simt.plugin import ARCH, kinfolk_gate_resources
from kinfolk_toy_simt.usage import read_usage

TEXT = """
.version 8.0
.target sm_90
.address_size 64
.shared .align 16 .b8 sample_workgroup0[96];
.visible .entry sample(
	.param .u64 .ptr .global .align 16 sample_param_0,
	.param .b32 sample_param_1,
	.param .b64 sample_param_2
)
{
	.local .align 8 .b8 	__local_depot0[24];
	.reg .b32 	%r<7>;
	.reg .b64 	%rd<5>;
	ld.local.b32 	%r1, [%rd1];
	ret;
}
"""


class TestConformance(ArchConformance):
    """What every arch must hold."""

    arch = "toy_simt"


def test_it_is_found_by_its_entry_point():
    assert arch_of(load("arch", "toy_simt")) is ARCH


def test_figures_are_read_from_the_code():
    usage = read_usage(TEXT.encode(), "sample", ARCH)
    assert (usage.target, usage.scratch_bytes, usage.scratch_ops) == ("sm_90", 24, 1)
    assert usage.figures == {"virtual_registers": 12, "workgroup_bytes": 96}
    laid_out = [(argument.offset, argument.size, argument.kind) for argument in usage.arguments]
    assert laid_out == [(0, 8, "pointer"), (8, 4, "value"), (16, 8, "value")]


@pytest.mark.parametrize("text", ["", TEXT.replace("sample(", "other("), TEXT.replace(".target sm_90", "")])
def test_code_of_another_kernel_is_an_error(text):
    with pytest.raises(ToolError, match="no kernel sample for toy_simt"):
        read_usage(text.encode(), "sample", ARCH)


@pytest.mark.parametrize(("size", "fits"), [(65536, True), (65537, False)])
def test_the_gate_holds_at_its_edge(size, fits):
    usage = Usage(symbol="sample", target="sm_90", scratch_bytes=0, scratch_ops=0, figures={"workgroup_bytes": size})
    found = list(kinfolk_gate_resources(usage, None, ARCH))
    assert [refusal.field for refusal in found] == ([] if fits else ["workgroup_bytes"])
