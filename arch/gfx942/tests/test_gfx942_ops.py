"""The ops of gfx942 beyond those of every AMD arch: loads to workgroup memory, of 4 bytes a lane and no other width."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from kinfolk.errors import IllegalOp, IRError
from kinfolk.ir import build_kernel
from kinfolk.ir.builder import op_for_role, op_in_role
from kinfolk.ir.ops import control, lanes, memory
from kinfolk.ir.types import BF16, PointerType
from kinfolk.parameters import Parameter
from kinfolk.roles import ROLES, check_roles
from kinfolk_gfx942 import ops
from kinfolk_gfx942.plugin import PLUGIN
from kinfolk_runtime.simulator.engine import Simulator
from kinfolk_runtime.simulator.fault import KernelFault


def kernel(body):
    parameters = [
        Parameter(name=name, type=PointerType(BF16), alignment=16, access="readwrite") for name in ("given", "taken")
    ]
    return build_kernel("k", parameters, arch=PLUGIN.arch, block=64, body=body)


def staging(count: int = 2, *, through_view: bool = True, waits: bool = True):
    """Lane l stages what lies at block 63 - l of the source, then reads block l of workgroup memory."""

    def body(given, taken):
        lane = lanes.lane_id()
        tile, index, start = memory.allocate(BF16, 64 * count), (63 - lane) * count, lanes.wave_id()
        if through_view:
            view = memory.bound(given, lane * 0 + 64 * count)
            op_for_role("stage_view_4").add(view, index, tile, start, count=count)
        else:
            op_for_role("stage_4").add(memory.offset(given, index), tile, start, count=count)
        if waits:
            op_for_role("wait_staged").add()
        control.barrier()
        memory.store(memory.offset(taken, lane * count), memory.workgroup_load(tile, lane * count, count=count))

    return kernel(body)


@pytest.mark.parametrize("through_view", [True, False])
def test_staged_elements_lie_in_order_of_lanes(through_view):
    data = np.arange(128).astype(ml_dtypes.bfloat16).view(np.uint16).reshape(64, 2)
    found = np.zeros_like(data)
    Simulator().launch(staging(through_view=through_view), (1, 1, 1), (data, found))
    assert np.array_equal(found, data[::-1])


def test_reading_before_the_wait_is_a_fault():
    with pytest.raises(KernelFault, match="a staging of this wave is on its way there"):
        Simulator().launch(staging(waits=False), (1, 1, 1), (np.ones(128, np.uint16), np.zeros(128, np.uint16)))


@pytest.mark.parametrize("count, moved", [(1, 2), (4, 8), (8, 16)])
def test_other_widths_are_refused(count, moved):
    with pytest.raises(IRError, match=rf"a lane stages 4 bytes, got {count} of bf16: {moved}"):
        staging(count)


@pytest.mark.compile
@pytest.mark.parametrize("through_view, name", [(True, r"buffer_load_dword .* lds"), (False, "global_load_lds_dword ")])
def test_a_staging_is_one_instruction(llvm, through_view, name):
    assembly = llvm.assembly(PLUGIN.arch.lower(staging(through_view=through_view), None, 22))
    assert len(re.findall(name, assembly)) == 1 and "scratch_" not in assembly


def test_the_roles_are_stagings_of_four_bytes_and_the_lane():
    check_roles("gfx942", ops.ROLES, ops.OPS)
    assert set(ops.ROLES) == {"stage_4", "stage_view_4", "wait_staged", "lane_again", "pin"}
    assert PLUGIN.arch.async_lds_bytes == 4


MISSING = {
    "stage_16": r"16 bytes .*; of its kind it has stage_4 \(each lane moves 4 bytes from a pointer",
    "stage_view_16": r"16 bytes .*; of its kind it has stage_view_4 \(each lane moves 4 bytes from a view",
    "swap_16": r"two values of 32 bits trade places.*; of its kind it has nothing$",
    "swap_32": r"every second group of 32 lanes.*; of its kind it has nothing$",
    "narrow_bf16": r"two bf16, rounded to nearest even\); of its kind it has nothing$",
    "transpose_read_16": r"16-bit elements.*; of its kind it has nothing$",
    "transpose_read_8": r"8-bit elements.*; of its kind it has nothing$",
}


@pytest.mark.parametrize("role", ROLES)
def test_what_it_lacks_is_named_with_what_it_has(role):
    asked = []

    def body(given, taken):
        asked.append(op_in_role(role))
        op_for_role(role)

    if role in MISSING:
        with pytest.raises(IllegalOp, match=rf"gfx942 has no op in the role {role} \(.*{MISSING[role]}"):
            kernel(body)
        assert asked == [None]
    else:
        kernel(body)
        assert asked == [ops.ROLES[role]] == [PLUGIN.arch.op_for(role)]
