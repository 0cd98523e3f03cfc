"""Instructions that cross lanes, by their words: products, permutations, workgroup memory, masks, waits.

Oracles: what AMD's matrix instruction calculator prints and Triton publishes (`kinfolk_amdgcn.testing.atoms`), AMD's
pseudo-code by hand, and examples from AMD's and LLVM's texts.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from by_words import LANE, Array, ds, mfma, step_of, vop1, waves

from kinfolk_amdgcn.isa.dpp import dpp_lanes
from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.flow_steps import counts_of_wait
from kinfolk_amdgcn.isa.hazards import check_matrix_results, note_matrix_result, too_early
from kinfolk_amdgcn.isa.local_steps import swizzle_lanes
from kinfolk_amdgcn.isa.matrix_steps import MATRIX, Shape
from kinfolk_amdgcn.isa.waves import EXEC, VCC
from kinfolk_amdgcn.testing.atoms import BYTES_16, BYTES_32, DENSE, Cells, published_result

PUBLISHED: dict[str, Cells] = {
    **DENSE,
    **{f"mfma_f32_16x16x32_{type_}": BYTES_16 for type_ in ("f16", "bf16")},
    **{f"mfma_f32_32x32x16_{type_}": BYTES_32 for type_ in ("f16", "bf16")},
}
"""Of the instructions whose operands a field chooses, nobody has published which k an element has, only that A and B
have it alike: the same element of lanes in the same place meets, as `chosen_cells` has it."""
ONE = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000, "fp8": 0x40, "bf8": 0x40}
"""1.0 in the types of operands; 8-bit ones as FNUZ."""
BITS = {"f16": 16, "bf16": 16, "f32": 32, "fp8": 8, "bf8": 8}


def chosen_cells(shape: Shape) -> Cells:
    """Return the first and the last element of the first and the last lane, numbered along k by lane and element."""
    elements = shape.m * shape.k // 64
    ends = [(0, 0), (63, elements - 1)]
    k = [lane // shape.m * elements + element for lane, element in ends]
    return {
        "a": [(lane, element, lane % shape.m, at) for (lane, element), at in zip(ends, k, strict=True)],
        "b": [(lane, element, at, lane % shape.n) for (lane, element), at in zip(ends, k, strict=True)],
    }


def fragment(element: str, shape: Shape, cell: tuple[int, ...]) -> Array:
    """Return registers [registers, lanes] in which one element of one lane is 1."""
    held = np.zeros((64, shape.registers(element) * 32 // BITS[element]), f"u{BITS[element] // 8}")
    held[cell[0], cell[1]] = ONE[element]
    return held.view(np.uint32).T


@pytest.mark.parametrize("row", list(MATRIX), ids=lambda row: row.name)
def test_one_product_lands_where_it_is_published(row: Any) -> None:
    """A and B with one element each: D is 1 in one place if they meet in k, and 0 everywhere if they do not."""
    shape: Shape = row.facts["shape"]
    chosen = not shape.a
    shape = attrs.evolve(shape, a="fp8", b="fp8") if chosen else shape
    cells = chosen_cells(shape) if chosen else PUBLISHED[row.name.removeprefix("v_")]
    step = step_of(*mfma(row.opcode, 32, 256, 256 + 8, 256 + 16))
    for a_cell, b_cell in ((cells["a"][0], cells["b"][0]), (cells["a"][-1], cells["b"][-1])):
        w = waves()
        for at, element, cell in ((0, shape.a, a_cell), (8, shape.b, b_cell)):
            part = fragment(element, shape, cell)
            w.v[at : at + len(part), 0] = part
        step.run(w)
        slots = shape.m * shape.n // 64
        found = [(int(lane), int(slot)) for slot, lane in np.argwhere(w.f[32 : 32 + slots, 0] == 1.0)]
        assert np.count_nonzero(w.f[32 : 32 + slots]) == len(found)
        meet = a_cell[3] == b_cell[2]
        places = [(lane, slot) for lane in range(64) for slot in range(slots)]
        wanted = [p for p in places if published_result(shape.n, *p) == (a_cell[2], b_cell[3])]
        assert found == (wanted if meet else [])
        assert len(wanted) == 1


def test_products_are_added_in_ascending_k_to_what_was_there() -> None:
    """1e8 and -1e8 in neighbouring k with a 1 between: the order decides what is left, and C comes first."""
    step = step_of(*mfma(69, 32, 256, 256 + 8, 256 + 16))  # 16x16x4 of f32: one k per 16 lanes
    w = waves()
    w.f[0, 0] = np.array([1e8, 1.0, -1e8, 1.0], np.float32).repeat(16)
    w.f[8, 0] = 1.0
    w.f[16:20, 0] = 0.5
    step.run(w)
    assert (w.f[32:36, 0] == np.float32(np.float32(np.float32(0.5 + 1e8) + 1) - 1e8) + 1).all()


def test_fields_choose_the_8_bit_floats_that_are_multiplied() -> None:
    """0x3C is 1.5 with 3 bits of fraction and 1 with 2 in OCP's formats; there is no sixth format."""
    for b_format, value in ((0, 128 * 1.5 * 1.5), (1, 128 * 1.5)):
        words = mfma(45, 32, 256, 256 + 8, 128)
        w = waves()
        w.v[0:16] = 0x3C3C3C3C
        step_of(words[0], words[1] | b_format << 29, float8="ocp").run(w)
        assert (w.f[32:36] == value).all()
    with pytest.raises(Stop, match="of a type that is not known"):
        step_of(words[0], words[1] | 5 << 29, float8="ocp")


def test_a_constant_is_added_where_the_encoding_has_one() -> None:
    w = waves()
    step_of(*mfma(69, 32, 256, 256 + 8, 242)).run(w)  # 242 is 1.0
    assert (w.f[32:36] == 1.0).all()


@pytest.mark.parametrize(
    ("pattern", "lanes"),
    [
        (0x041F, LANE ^ 1),
        (0x401F, LANE ^ 16),
        (0x001F, LANE),
        (0x0000, LANE // 32 * 32),
        (0x801B, LANE // 4 * 4 + 3 - LANE % 4),
    ],
)
def test_a_swizzle_reads_the_lane_that_its_masks_name(pattern: int, lanes: Array) -> None:
    """Offset 0x041F is `swizzle(SWAP, 1)` and 0x801B `swizzle(QUAD_PERM, 3, 2, 1, 0)` in LLVM's syntax."""
    assert swizzle_lanes(pattern).tolist() == lanes.tolist()
    w = waves()
    w.v[1, 0] = LANE * 3
    step_of(*ds(61, pattern, address=1, target=2)).run(w)
    assert w.v[2, 0].tolist() == (lanes * 3).tolist()


def test_a_permutation_reads_lanes_by_bytes_and_zero_from_those_that_are_not_live() -> None:
    w = waves()
    w.v[1, 0], w.v[2, 0] = ((LANE * 7) % 64) * 4, LANE + 100
    w.s[:, EXEC], w.s[:, EXEC + 1] = 0xFFFFFFFE, 0xFFFFFFFF
    w.exec_written()
    step_of(*ds(63, address=1, data=2, target=3)).run(w)
    expected = [0 if lane * 7 % 64 == 0 else lane * 7 % 64 + 100 for lane in range(64)]
    assert w.v[3, 0, 1:].tolist() == expected[1:] and w.v[3, 0, 0] == 0


@pytest.mark.parametrize(
    ("control", "lanes"),
    [
        (0xB1, LANE ^ 1),
        (0x4E, LANE ^ 2),
        (0x101, np.where(LANE % 16 < 15, LANE + 1, -1)),
        (0x112, np.where(LANE % 16 > 1, LANE - 2, -1)),
        (0x128, LANE // 16 * 16 + (LANE % 16 + 8) % 16),
        (0x140, LANE // 16 * 16 + 15 - LANE % 16),
        (0x141, LANE // 8 * 8 + 7 - LANE % 8),
        (0x142, np.where(LANE > 15, LANE // 16 * 16 - 1, -1)),
        (0x143, np.where(LANE > 31, 31, -1)),
        (0x153, LANE // 16 * 16 + 3),
    ],
)
def test_lanes_are_read_on_the_way_as_the_control_says(control: int, lanes: Array) -> None:
    assert dpp_lanes(control).tolist() == lanes.tolist()


def test_a_control_that_is_not_modelled_stops() -> None:
    with pytest.raises(Stop, match="0x160"):
        dpp_lanes(0x160)


@pytest.mark.parametrize(("opcode", "apart"), [(89, 16), (90, 32)])
def test_halves_of_rows_and_waves_are_swapped(opcode: int, apart: int) -> None:
    """AMD's text: the source's lower lanes and the destination's upper ones change places."""
    w = waves()
    w.v[1, 0], w.v[2, 0] = LANE, LANE + 100
    step_of(vop1(opcode, 1, 256 + 2)).run(w)
    destination, source = LANE.copy(), LANE + 100
    for start in range(0, 64, 2 * apart):
        for lane in range(start, start + apart):
            source[lane], destination[lane + apart] = destination[lane + apart], source[lane]
    assert w.v[1, 0].tolist() == destination.tolist() and w.v[2, 0].tolist() == source.tolist()


def test_a_transposing_read_gives_a_lane_one_column() -> None:
    """16 lanes read 4 rows by 16 columns of 16 bits, 4 columns a lane: lane l gets column l, rows in order."""
    w = waves()
    tile = np.arange(4 * 4 * 16, dtype=np.uint16)  # a tile for each row of lanes
    w.batch.local.bytes[: tile.nbytes] = tile.view(np.uint8)
    w.batch.local.written[:] = True
    w.v[1, 0] = LANE // 16 * 128 + (LANE % 16 // 4) * 32 + LANE % 4 * 8
    step_of(*ds(227, address=1, target=2)).run(w)
    found = np.stack([w.v[2, 0] & 0xFFFF, w.v[2, 0] >> 16, w.v[3, 0] & 0xFFFF, w.v[3, 0] >> 16])
    expected = tile.reshape(4, 4, 16)[LANE // 16, :, LANE % 16].T
    assert found.tolist() == expected.tolist()


def test_two_reads_in_one_instruction_have_offsets_in_elements() -> None:
    """ds_read2_b64 and ds_read2st64_b32: 8 bytes, and 64 times 4, an offset."""
    w = waves()
    w.batch.local.bytes.view(np.uint32)[:] = np.arange(1024)
    w.batch.local.written[:] = True
    step_of(*ds(119, 3 | 5 << 8, address=1, target=2)).run(w)
    assert w.v[2:6, 0, 0].tolist() == [6, 7, 10, 11]
    step_of(*ds(56, 1 | 2 << 8, address=1, target=8)).run(w)
    assert w.v[8:10, 0, 0].tolist() == [64, 128]


def test_the_first_live_lane_is_read_and_lane_0_where_none_lives() -> None:
    w = waves()
    w.v[1, 0] = LANE + 5
    step = step_of(vop1(2, 7, 256 + 1))
    w.s[:, EXEC], w.s[:, EXEC + 1] = 0, 0x10
    w.exec_written()
    step.run(w)
    assert w.s[0, 7] == 36 + 5
    w.s[:, EXEC + 1] = 0
    w.exec_written()
    step.run(w)
    assert w.s[0, 7] == 5


def test_a_truth_table_is_looked_up_with_the_first_operand_counting_most() -> None:
    """AMD's text of V_BITOP3_B32: bit 7 of the table where all three are set, bit 4 where only the first is."""
    w = waves()
    w.v[1], w.v[2], w.v[3] = 0b11110000, 0b11001100, 0b10101010
    table = 0b10010100
    words = (0b110100 << 26 | 564 << 16 | (table >> 3 & 7) << 8 | 4, 257 | 258 << 9 | 259 << 18 | (table & 7) << 29)
    step_of(words[0], words[1] | (table >> 6) << 27).run(w)
    assert int(w.v[4, 0, 0]) & 0xFF == table


def test_lanes_that_are_not_live_keep_their_value_and_give_no_bit() -> None:
    w = waves()
    w.v[1, 0], w.v[2, 0] = LANE, 77
    w.s[:, EXEC], w.s[:, EXEC + 1] = 0xFF, 0
    w.exec_written()
    step_of(vop1(1, 2, 256 + 1)).run(w)
    assert w.v[2, 0].tolist() == [*range(8), *[77] * 56]
    step_of(0b0111110 << 25 | 0xC1 << 17 | 2 << 9 | 256 + 1).run(w)  # v_cmp_lt_i32 vcc, v1, v2: equal where live
    assert w.s[0, VCC : VCC + 2].tolist() == [0, 0]
    step_of(0b0111110 << 25 | 0xC3 << 17 | 2 << 9 | 256 + 1).run(w)  # v_cmp_le_i32
    assert w.s[0, VCC : VCC + 2].tolist() == [0xFF, 0]


def test_operands_are_constants_as_the_table_of_operands_has_them() -> None:
    """128 to 192 are 0 to 64, 193 to 208 are -1 to -16, 240 is 0.5, 247 is -4.0, 248 is 1 / 2 pi."""
    w = waves()
    expected = {128: 0, 192: 64, 193: 0xFFFFFFFF, 208: 0xFFFFFFF0, 240: 0x3F000000, 247: 0xC0800000, 248: 0x3E22F983}
    for code, value in expected.items():
        step_of(vop1(1, 2, code)).run(w)
        assert int(w.v[2, 0, 0]) == value
    step_of(vop1(56, 4, 193)).run(w)
    assert w.v[4:6, 0, 0].tolist() == [0xFFFFFFFF, 0xFFFFFFFF]


@pytest.mark.parametrize(
    ("word", "counts"), [(0x0F70, (0, 15)), (0xC07F, (63, 0)), (0x0070, (0, 0)), (0xCF7F, (63, 15)), (0x4F75, (21, 15))]
)
def test_counts_of_a_wait_are_read_as_llvm_writes_them(word: int, counts: tuple[int, int]) -> None:
    """`s_waitcnt vmcnt(0)`, `lgkmcnt(0)`, both, none; `vmcnt(21)` has its upper bits apart."""
    assert counts_of_wait(word) == counts


def test_waves_that_write_one_place_alike_are_no_race_for_who_wrote_it() -> None:
    """One after the other and at once; another value, and a wave that did not write, are."""
    w = waves(3)
    w.v[1] = LANE * 4
    w.v[2] = LANE
    parts = [w.part(np.arange(3) == number) for number in range(3)]
    write, read = step_of(*ds(13, address=1, data=2)), step_of(*ds(54, address=1, target=3))
    for part in parts[:2]:
        write.run(part)
    read.run(parts[0])
    assert (parts[0].v[3, 0] == LANE).all()
    with pytest.raises(Stop, match="that wave 0 wrote"):
        read.run(parts[2])
    parts[1].v[2, 0, 7] = 0
    with pytest.raises(Stop, match="that wave 0 wrote") as caught:
        write.run(parts[1])
    assert (caught.value.kind, caught.value.lanes) == ("race", [7])
    both = waves(2)
    both.v[1], both.v[2] = LANE * 4, LANE
    write.run(both)
    read.run(both)
    both = waves(2)
    both.v[1], both.v[2, 1] = LANE * 4, LANE
    with pytest.raises(Stop, match="different values"):
        write.run(both)


def test_a_bit_of_the_neighbour_is_a_race_and_none_with_a_barrier_between() -> None:
    """Two waves, one place: a write and a read by another wave, then the same with a barrier between them."""
    w = waves(2)
    w.v[1] = 0
    first, second = w.part(np.array([True, False])), w.part(np.array([False, True]))
    first.v[1, 0] = second.v[1, 0] = LANE * 4
    write, read = step_of(*ds(13, address=1, data=2)), step_of(*ds(54, address=1, target=3))
    write.run(first)
    with pytest.raises(Stop, match="that wave 0 wrote") as caught:
        read.run(second)
    assert caught.value.kind == "race"
    first.local_loads.clear()
    w.batch.local.barrier(np.array([0]), [first, second])
    read.run(second)
    with pytest.raises(Stop, match="that wave 1 read"):
        write.run(first)


def test_a_write_that_nothing_waited_for_is_no_safer_for_a_barrier() -> None:
    w = waves(2)
    first, second = w.part(np.array([True, False])), w.part(np.array([False, True]))
    first.v[1, 0] = second.v[1, 0] = LANE * 4
    step_of(*ds(13, address=1, data=2)).run(first)
    w.batch.local.barrier(np.array([0]), [first, second])
    with pytest.raises(Stop, match="that wave 0 wrote"):
        step_of(*ds(54, address=1, target=3)).run(second)


def test_memory_that_nothing_wrote_is_not_read() -> None:
    with pytest.raises(Stop, match="never written") as caught:
        step_of(*ds(54, address=1, target=3)).run(waves())
    assert caught.value.kind == "uninitialised"


@pytest.mark.parametrize(
    ("encoding", "opcode", "code", "value"),
    [
        ("ocp", 84, 0x38, 1.0),
        ("ocp", 84, 0x7E, 448.0),
        ("ocp", 85, 0x3C, 1.0),
        ("ocp", 85, 0xFB, -57344.0),
        ("fnuz", 84, 0x40, 1.0),
        ("fnuz", 84, 0x7F, 240.0),
        ("fnuz", 85, 0x40, 1.0),
        ("fnuz", 84, 0x01, 2.0**-10),
    ],
)
def test_floats_of_8_bits_are_those_of_the_arch(encoding: str, opcode: int, code: int, value: float) -> None:
    """Codes from the OCP specification and from Noune et al., of one, the largest and the smallest value."""
    w = waves()
    w.v[1] = code | 0x55 << 8
    step_of(vop1(opcode, 2, 256 + 1), float8=encoding).run(w)
    assert w.f[2, 0, 0] == value


def test_two_floats_of_8_bits_come_from_the_half_that_is_selected() -> None:
    """v_cvt_pk_f32_fp8_sdwa v[2:3], v1 src0_sel:WORD_1: bits 50 to 48 of the encoding are 5."""
    w = waves()
    w.v[1] = 0x40_48_00_00
    step_of(vop1(86, 2, 249), 0x00050601).run(w)
    assert (w.f[2, 0, 0], w.f[3, 0, 0]) == (2.0, 1.0)


EXP, LANE_1 = vop1(32, 1, 256), vop1(2, 4, 256 + 1)
ADD = 1 << 25 | 2 << 17 | 1 << 9 | 256 + 1
"""v_exp_f32 v1, v0; v_readfirstlane_b32 s4, v1; v_add_f32 v2, v1, v1."""
MOVE, COMPARE = vop1(1, 0, 256 + 5), 0b0111110 << 25 | 0xC1 << 17 | 2 << 9 | 256 + 1
SELECT = 0 << 25 | 3 << 17 | 2 << 9 | 256 + 1
"""v_mov_b32 v0, v5; v_cmp_lt_i32 vcc, v1, v2; v_cndmask_b32 v3, v1, v2, vcc."""


COMPARE_X = 0b0111110 << 25 | 0xD1 << 17 | 2 << 9 | 256 + 5
"""v_cmpx_lt_i32 vcc, v5, v2."""


def nop(count: int) -> int:
    return 0xBF800000 | count


@pytest.mark.parametrize(
    ("maker", "user", "needed"),
    [
        ((EXP,), (ADD,), 1),
        ((vop1(1, 1, 256),), (LANE_1,), 1),
        ((COMPARE,), (SELECT,), 2),
        ((MOVE,), mfma(97, 16, 256, 256 + 8, 128), 2),
        ((vop1(1, 1, 256),), (11 << 25 | 2 << 17 | 3 << 9 | 250, 0xFF08B101), 2),
        ((vop1(1, 1, 256),), (vop1(89, 3, 256 + 1),), 2),
        ((COMPARE,), (0b110100 << 26 | 649 << 16 | 8, 256 + 1 | 106 << 9), 4),
        ((COMPARE_X,), (LANE_1,), 4),
        ((COMPARE,), (0b110100 << 26 | 482 << 16 | 8, 257 | 258 << 9 | 259 << 18), 4),
        ((1 << 25 | 1 << 17 | 5 << 9 | 249, 0x00060400 | 256), (ADD,), 1),
        ((0b110100 << 26 | 518 << 16 | 0b1000 << 11 | 1, 261 | 262 << 9 | 263 << 18), (ADD,), 1),
    ],
    ids=[
        *("transcendental", "lane", "scalar", "matrix", "crossing", "swap", "lane_select", "lanes_by_comparison"),
        *("division", "part", "half"),
    ],
)
def test_makers_and_users_are_kept_apart(maker: tuple[int, ...], user: tuple[int, ...], needed: int) -> None:
    """AMD's table of manually inserted wait states, on both sides of each edge; what is not read needs none."""
    for between in range(needed + 1):
        waits = [step_of(nop(between - 1))] if between else []
        steps = [step_of(*maker), *waits, step_of(*user)]
        found = too_early(steps, len(steps) - 1)
        assert (found is None) == (between >= needed)
        assert found is None or (found[0] == 0 and f"{needed} are needed" in found[1])
    assert too_early([step_of(vop1(1, 60, 256)), step_of(*user)], 1) is None


def test_a_matrix_result_is_touched_after_its_wait_states_and_added_to_at_once() -> None:
    """4 passes and 3 states: the 7 that LLVM keeps; the next product adds to the whole result with none."""
    product, w = step_of(*mfma(97, 16, 256, 256 + 8, 256 + 16)), waves()
    for states in (6, 7):
        w.matrix_results = [(product.writes, 0, 7)]
        w.states = states
        if states < 7:
            with pytest.raises(Stop, match="after 6 wait states, 7 are needed"):
                check_matrix_results(w, step_of(vop1(1, 40, 256 + 17)), 3)
        else:
            check_matrix_results(w, step_of(vop1(1, 40, 256 + 17)), 3)
    for states in (18, 19):  # LLVM looks no further back, though it asks for 20 where it looks
        w.matrix_results, w.states = [(product.writes, 0, 20)], states
        if states < 19:
            with pytest.raises(Stop, match="after 18 wait states, 20 are needed"):
                check_matrix_results(w, step_of(vop1(1, 40, 256 + 17)), 4)
        else:
            check_matrix_results(w, step_of(vop1(1, 40, 256 + 17)), 4)
    w.matrix_results, w.states = [(product.writes, 0, 7)], 0
    check_matrix_results(w, product, 3)
    with pytest.raises(Stop, match="after 0 wait states"):
        check_matrix_results(w, step_of(*mfma(97, 24, 256, 256 + 8, 256 + 18)), 3)


def test_a_product_adds_to_the_last_result_wherever_earlier_ones_were_written() -> None:
    """Accumulators move down two registers a product, as LLVM lets them; the rest of the first one is not there yet."""
    first, second, third = (step_of(*mfma(97, 18 - move, 256, 256 + 8, 256 + 20 - move)) for move in (0, 2, 4))
    w = waves()
    w.states = 0
    note_matrix_result(w, first, 7)
    note_matrix_result(w, second, 7)
    check_matrix_results(w, third, 3)
    with pytest.raises(Stop, match="after 0 wait states"):
        check_matrix_results(w, step_of(*mfma(97, 30, 256, 256 + 8, 256 + 18)), 3)


def test_what_nothing_has_written_is_carried_by_moves_and_upper_halves() -> None:
    """v_mov_b64 v[8:9], v[2:3] with v3 unwritten: v9 is, v8 is not; v_mad_u64_u32 carries its addend's upper half."""
    w, move = waves(2), step_of(vop1(56, 8, 256 + 2))
    first = w.undefined_now()
    w.leave_undefined([1 << 3 | 1 << 9, 0])
    before = w.undefined_now()
    w.written |= move.writes
    w.carry_undefined(move.carried, before)
    assert w.undefined_now() == [1 << 3 | 1 << 9, 0] and w.undefined == 1 << 3 | 1 << 9
    assert first == [0, 0]
    mad = step_of(0b110100 << 26 | 488 << 16 | 106 << 8 | 8, 257 | 258 << 9 | 256 + 2 << 18)
    assert mad.carried == ((1 << 3, 1 << 9),) and mad.reads & 1 << 2
    assert step_of(ADD).carried == ()
