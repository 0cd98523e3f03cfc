"""The in-order model on short bodies of which the schedule is written down by hand, and beside a second model's."""

from __future__ import annotations

import pytest

from kinfolk.plugins.composition import arch_of
from kinfolk.plugins.loading import load
from kinfolk_runtime.inspection.in_order import clocks_per_round

pytestmark = pytest.mark.needs("gfx942")


def body(text, arch="gfx942"):
    """Return the instructions of an assembly text without jumps."""
    [function] = arch_of(load("arch", arch)).machine_code(f"kernel:\n{text}\n".encode())
    return [instruction for block in function.blocks for instruction in block.instructions]


READ_WAIT_MULTIPLY = """
    ds_read_b128 v[0:3], v10
    s_waitcnt lgkmcnt(0)
    v_mfma_f32_32x32x8_bf16 a[0:15], v[0:1], v[4:5], a[0:15]
    v_exp_f32_e32 v6, v7
"""


@pytest.mark.parametrize(
    "model, sharing, clocks",
    [
        ("llvm", 1, 32),  # read 0, data 20, wait 20, multiply 24, exp 28; the next multiply 52: the unit is held to 56
        ("real", 1, 157),  # read 0, 1,024 bytes 8, data 136, wait 136, multiply 137, exp 141, 16 clocks
        ("real", 4, 181),  # as above, behind three others: 32 clocks of workgroup memory
    ],
)
def test_a_read_a_wait_a_product_an_exponential(model, sharing, clocks):
    assert clocks_per_round(body(READ_WAIT_MULTIPLY), model, sharing) == clocks


def test_the_control_without_the_wait_the_product_waits_for_its_operand_just_as_long():
    """And with a wait for nothing that is in flight it does too: registers are tracked, not only waits."""
    without = READ_WAIT_MULTIPLY.replace("s_waitcnt lgkmcnt(0)", "")
    assert clocks_per_round(body(without), "real") == 156, "a clock less: that of the wait"
    elsewhere = READ_WAIT_MULTIPLY.replace("v[0:3], v10", "v[20:23], v10").replace("lgkmcnt(0)", "vmcnt(0)")
    assert clocks_per_round(body(elsewhere), "real") < 156


PRODUCT = "v_mfma_f32_16x16x16_bf16 a[0:3], v[0:1], v[2:3], a[0:3]"


@pytest.mark.parametrize(
    "text, clocks",
    [
        (PRODUCT, 16),  # 4 passes; its own result is forwarded: ready at 32, of use to it at 16
        (f"{PRODUCT}\nv_accvgpr_read_b32 v9, a0", 36),  # the read issues at 32
        (f"{PRODUCT}\nv_accvgpr_read_b32 v9, a9", 16),  # the control: another register
        (f"v_accvgpr_write_b32 a3, v9\n{PRODUCT}", 36),  # written when the product is done at 32, read 4 later
        (PRODUCT.replace("v[0:1]", "a[0:1]"), 32),  # as an operand it is not forwarded
    ],
)
def test_what_a_product_makes_is_forwarded_to_the_next_sum_alone(text, clocks):
    assert clocks_per_round(body(text), "llvm") == clocks


def test_waits_let_so_many_accesses_stay_in_flight():
    """One may stay: rounds take turns, 8 clocks and then what is left of 320; with none, each round takes it all."""
    load_straight = "buffer_load_dword v0, s[0:3], 0 offen lds\n"
    assert clocks_per_round(body(f"{load_straight}s_waitcnt vmcnt(1)"), "llvm") == 324 / 2
    assert clocks_per_round(body(f"{load_straight}s_waitcnt vmcnt(0)"), "llvm") == 324
    assert clocks_per_round(body(f"{load_straight}s_waitcnt vmcnt(2)"), "llvm") == 324 / 3
    assert clocks_per_round(body(f"{load_straight}s_waitcnt lgkmcnt(0)"), "llvm") == 8
    assert clocks_per_round(body(f"{load_straight}s_waitcnt 0"), "llvm") == 324, "a bare number waits for all"


def test_barriers_jumps_and_hints_take_no_part():
    plain = body("v_add_f32_e32 v0, v1, v2\ns_add_u32 s0, s1, s2")
    more = body("s_barrier\nv_add_f32_e32 v0, v1, v2\ns_nop 7\ns_setprio 1\ns_add_u32 s0, s1, s2")
    assert clocks_per_round(plain, "llvm") == clocks_per_round(more, "llvm") == 8
    assert clocks_per_round(plain, "real") == 5, "a scalar instruction issues beside vector ones"


MIXED = """
    buffer_load_dwordx4 v[40:43], v50, s[4:7], 0 offen
    ds_read_b128 v[0:3], v51
    ds_read_b128 v[4:7], v51 offset:16
    s_waitcnt lgkmcnt(1)
    v_mfma_f32_16x16x16_bf16 v[16:19], v[0:1], v[60:61], v[16:19]
    v_mfma_f32_16x16x16_bf16 v[16:19], v[2:3], v[62:63], v[16:19]
    s_waitcnt lgkmcnt(0)
    v_mfma_f32_16x16x16_bf16 v[16:19], v[4:5], v[64:65], v[16:19]
    v_max_f32_e32 v20, v16, v17
    ds_bpermute_b32 v21, v52, v20
    s_mov_b32 s9, 0x3fb8aa3b
    s_waitcnt lgkmcnt(0)
    v_fma_f32 v22, v21, s9, v23
    v_exp_f32_e32 v22, v22
    s_waitcnt vmcnt(0)
    ds_write_b128 v53, v[40:43]
"""


@pytest.mark.parametrize("model, clocks", [("llvm", 328), ("real", 705)])
def test_a_body_of_all_kinds_is_as_an_independent_simulator_of_the_same_machine_has_it(model, clocks):
    """The numbers were recorded from a program of others with the same latencies, four waves sharing."""
    assert clocks_per_round(body(MIXED), model, 4) == pytest.approx(clocks, rel=0.01)
