"""Instructions that read or write parts: halves of registers, some lanes, single bits, masks, fields of the mode.

Oracle: AMD's texts, by hand.
"""

from __future__ import annotations

import numpy as np
import pytest
from by_words import LANE, ds, step_of, vop1, waves

from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.waves import EXEC, VCC


def sop1(opcode: int, target: int, source: int) -> int:
    return 0b101111101 << 23 | target << 16 | opcode << 8 | source


def sopk(opcode: int, target: int, immediate: int) -> int:
    return 0b1011 << 28 | opcode << 23 | target << 16 | immediate


def test_moves_on_a_condition_and_single_bits_leave_the_rest_as_it_is() -> None:
    """s_cmov_b32 s4, s5; s_cmovk_i32 s4, -3; s_bitset1_b32 s4, 3 in two waves, the condition set in the first."""
    w = waves(2)
    w.scc = np.array([True, False])
    w.s[:, 4], w.s[:, 5] = 64, 7
    step_of(sop1(2, 4, 5)).run(w)
    assert w.s[:, 4].tolist() == [7, 64]
    step_of(sop1(26, 4, 128 + 3)).run(w)
    assert w.s[:, 4].tolist() == [7 | 8, 64 | 8]
    step_of(sopk(1, 4, 0xFFFD)).run(w)
    assert w.s[:, 4].tolist() == [0xFFFFFFFD, 64 | 8]


def test_masks_are_saved_before_or_given_after() -> None:
    """s_andn1_saveexec_b64 gives what EXEC was, s_andn2_wrexec_b64 what it becomes."""
    w = waves()
    w.s[:, EXEC], w.s[:, EXEC + 1], w.s[:, 6], w.s[:, 7] = 0b1111, 0, 0b0101, 0
    w.exec_written()
    step_of(sop1(51, 10, 6)).run(w)
    assert (w.s[0, 10], w.s[0, EXEC]) == (0b1111, 0b1010)
    step_of(sop1(54, 10, 6)).run(w)
    assert (w.s[0, 10], w.s[0, EXEC]) == (0b0101, 0b0101) and w.scc.all()


def test_the_mode_is_read_and_may_be_set_to_what_it_is() -> None:
    """Register 1 holds how f32 is rounded in bits 0 and 1, and its denormals in 4 and 5."""
    w = waves()
    step_of(sopk(17, 4, 1 | 4 << 6 | 1 << 11)).run(w)
    assert w.s[0, 4] == 0b11
    step_of(sopk(20, 0, 1 | 4 << 6 | 1 << 11), 3).run(w)
    with pytest.raises(Stop, match="what becomes of denormals"):
        step_of(sopk(20, 0, 1 | 4 << 6 | 1 << 11), 0).run(w)
    with pytest.raises(Stop, match="of register 4 of the hardware"):
        step_of(sopk(17, 4, 4))


def test_lanes_of_some_rows_and_banks_are_written_by_dpp() -> None:
    """v_mov_b32_dpp v2, v1 row_shr:1: rows 1 and 3, banks 0 and 2; lanes that read none stay, or get 0 if bounded."""
    lane = LANE
    chosen = (lane // 16 % 2 == 1) & (lane % 16 // 4 % 2 == 0)
    for bounded in (0, 1):
        w = waves()
        w.v[1, 0], w.v[2, 0] = lane + 100, 7
        extra = 1 | 0x111 << 8 | bounded << 19 | 0b0101 << 24 | 0b1010 << 28
        step_of(vop1(1, 2, 250), extra).run(w)
        edge = 0 if bounded else 7
        expected = np.where(chosen, np.where(lane % 16 > 0, lane + 99, edge), 7)
        assert w.v[2, 0].tolist() == expected.tolist()


def test_a_half_that_is_selected_is_read_and_written_and_the_other_stays() -> None:
    """v_fma_f16 v4.h, v1.h, v2.l, v3.h: 2 * 3 + 0.5 as f16, the lower half of v4 kept; v_pk_add_u16 saturates."""
    w = waves()
    w.v[1], w.v[2], w.v[3], w.v[4] = 0x4000_1234, 0x1234_4200, 0x3800_1234, 0x5678
    words = 0b110100 << 26 | 518 << 16 | 0b1101 << 11 | 4, 257 | 258 << 9 | 259 << 18
    step_of(*words).run(w)
    assert (w.v[4] == 0x4680_5678).all()
    w.v[1], w.v[2] = 0xFFF0_0001, 0x0020_0002
    packed = 0b110100111 << 23 | 10 << 16 | 1 << 15 | 1 << 14 | 5, 257 | 258 << 9 | 3 << 59 - 32
    step_of(*packed).run(w)
    assert (w.v[5] == 0xFFFF_0003).all()


def test_a_comparison_can_decide_which_lanes_live() -> None:
    """v_cmpx_lt_u32 vcc, v1, v2."""
    w = waves()
    w.v[1, 0], w.v[2] = LANE, 5
    step_of(0b0111110 << 25 | 0xD9 << 17 | 2 << 9 | 256 + 1).run(w)
    assert w.s[0, VCC] == w.s[0, EXEC] == 0b11111 and w.s[0, EXEC + 1] == 0


@pytest.mark.parametrize("target", [8, 32, 60, 94])
def test_a_comparison_of_parts_names_any_mask(target: int) -> None:
    """v_cmp_gt_i32_sdwa s[N:N+1], v1, v0 src1_sel:BYTE_0: bits of N stand where other instructions have modifiers."""
    w = waves()
    w.v[1, 0], w.v[0] = LANE, 0x105
    step_of(0x7D8800F9, 1 | target << 8 | 1 << 15 | 6 << 16).run(w)
    assert (int(w.s[0, target]), int(w.s[0, target + 1])) == (0xFFFFFFC0, 0xFFFFFFFF)


def test_a_product_of_a_half_and_a_whole_is_added_in_f32() -> None:
    """v_fma_mix_f32 v4, v1, v2.h, -v3: the first is f32, the second the upper half, the third negated f32."""
    w = waves()
    w.f[1], w.v[2], w.f[3] = 3.0, 0x4100_0000, 0.25
    words = 0b110100111 << 23 | 32 << 16 | 0b010 << 11 | 4, 257 | 258 << 9 | 259 << 18 | 0b10 << 27 | 0b100 << 29
    step_of(*words).run(w)
    assert (w.f[4] == 3.0 * 2.5 - 0.25).all()


@pytest.mark.parametrize(("opcode", "bits", "size"), [(224, 4, 8), (225, 6, 12)])
def test_a_transposing_read_of_small_elements_gives_a_lane_one_column(opcode: int, bits: int, size: int) -> None:
    """16 lanes hold a row each of 16 elements: lane l gets element l of each, the first lowest."""
    w = waves()
    generator = np.random.default_rng(1)
    tile = generator.integers(0, 1 << bits, (64, 16))
    for row in range(64):
        held = sum(int(each) << bits * place for place, each in enumerate(tile[row]))
        w.batch.local.bytes[size * row : size * (row + 1)] = list(held.to_bytes(size, "little"))
    w.batch.local.written[:] = True
    w.v[1, 0] = LANE * size
    step_of(*ds(opcode, address=1, target=2)).run(w)
    for lane in range(64):
        held = sum(int(w.v[2 + part, 0, lane]) << 32 * part for part in range(size // 4))
        found = [held >> bits * place & (1 << bits) - 1 for place in range(16)]
        assert found == tile[lane // 16 * 16 : lane // 16 * 16 + 16, lane % 16].tolist()


def vop3(opcode: int, target: int, *sources: int, halves: int = 0) -> tuple[int, int]:
    words = sum((256 + source) << 9 * number for number, source in enumerate(sources))
    return 0b110100 << 26 | opcode << 16 | halves << 11 | target, words


@pytest.mark.parametrize(
    ("opcode", "halves", "held", "expected"),
    [
        (569, 1, 0x40_38_00_00, [1.0 * 4, 2.0 * 4]),
        (570, 0, 0x00_00_40_3C, [1.0 * 4, 2.0 * 4]),
        (571, 3, 0x40_00_00_00, [2.0 * 4]),
        (575, 2, 0x00_72_00_00, [1.0 * 4, 6.0 * 4]),
    ],
)
def test_small_floats_are_widened_and_scaled(opcode: int, halves: int, held: int, expected: list[float]) -> None:
    """0x38 is 1 with 3 bits of fraction, 0x3C with 2; of 4 bits 2 is 1 and 7 is 6. A scale of 7.0 is one of 4."""
    w = waves()
    w.v[1], w.f[2] = held, 7.0
    step_of(*vop3(opcode, 4, 1, 2, halves=halves), float8="ocp").run(w)
    assert [float(w.f[4 + number, 0, 5]) for number in range(len(expected))] == expected


def test_a_widened_half_leaves_the_other_and_two_fill_a_register() -> None:
    """v_cvt_scalef32_f16_fp8 to the upper half, v_cvt_scalef32_pk_bf16_fp4 of the first byte."""
    w = waves()
    w.v[1], w.f[2], w.v[4] = 0x38, 0.5, 0x1234
    step_of(*vop3(586, 4, 1, 2, halves=8), float8="ocp").run(w)
    assert (w.v[4] == 0x3800_1234).all()
    w.v[1] = 0x72
    step_of(*vop3(593, 5, 1, 2), float8="ocp").run(w)
    assert (w.v[5] == 0x4040_3F00).all()
