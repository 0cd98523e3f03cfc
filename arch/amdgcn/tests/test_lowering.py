"""Portable ops in LLVM's words for amdgcn, seen in the machine code that LLVM makes of them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from lowered import WAVE32, WAVE64, instructions, kernel, of_each_lane

from kinfolk.ir.numpy_lanes import NumpyAlgebra, NumpyLane
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory, vector
from kinfolk.ir.types import I16, I32, I64

SHUFFLES = {1: r"quad_perm:\[1,0,3,2\]", 2: r"quad_perm:\[2,3,0,1\]", 4: r"swizzle\(SWAP,4\)"}
SHUFFLES |= {8: "row_ror:8", 16: r"swizzle\(SWAP,16\)", 32: "ds_bpermute_b32"}


def integer(x):
    return convert.bitcast(x, to=I32)


def branch(x, n):
    chosen = control.if_else(lanes.any_lane(x > 2.0), lambda: [x * 3.0], lambda: [x])
    return chosen[0]


def first_of_16(x, n):
    return convert.zext(lanes.first_lane(convert.trunc(integer(x), to=I16)), to=I32)


def first_of_64(x, n):
    wide = lanes.first_lane(convert.bitcast(vector.pack(x, x * 2.0), to=I64))
    return convert.trunc(wide, to=I32)


def byte_permute(x, n):
    return lanes.byte_permute(integer(x), n, selector=(2, 3, 6, 7))


ONE_INSTRUCTION = {
    "exp2": (of_each_lane(lambda x, n: arithmetic.exp2(x)), r"v_exp_f32", "v_ldexp|v_cndmask"),
    "log2": (of_each_lane(lambda x, n: arithmetic.log2(x)), r"v_log_f32", "v_ldexp|v_cndmask"),
    "rcp": (of_each_lane(lambda x, n: arithmetic.rcp(x)), r"v_rcp_f32", "v_div|v_fma"),
    "lane_id": (of_each_lane(lambda x, n: lanes.lane_id()), r"v_and_b32\w* v\d+, 63", "mbcnt"),
    "wave_id": (of_each_lane(lambda x, n: lanes.wave_id()), r"v_readfirstlane_b32", "exec"),
    "block_id": (of_each_lane(lambda x, n: lanes.block_id(axis=0)), r"v_mov_b32\w* v\d+, s\d+", "exec"),
    "first_lane": (of_each_lane(lambda x, n: lanes.first_lane(x)), r"v_readfirstlane_b32", "exec"),
    "first_lane of 16 bits": (of_each_lane(first_of_16), r"v_readfirstlane_b32", "exec"),
    "first_lane of 64 bits": (of_each_lane(first_of_64), r"v_readfirstlane_b32", "exec"),
    "uniform": (of_each_lane(lambda x, n: lanes.uniform(integer(x))), r"v_readfirstlane_b32", "exec"),
    "any_lane": (of_each_lane(branch), r"s_cbranch_vcc", "exec|v_cndmask"),
    "byte_permute": (of_each_lane(byte_permute), r"v_perm_b32", "v_bfi|v_or"),
    "opaque": (of_each_lane(lambda x, n: control.opaque(n)), "v_mov_b32", "exec"),
    **{
        f"shuffle_xor {mask}": (
            of_each_lane(lambda x, n, mask=mask: arithmetic.fmax(x, lanes.shuffle_xor(x, mask=mask))),
            text,
            "exec|v_cndmask",
        )
        for mask, text in SHUFFLES.items()
    },
}


@pytest.mark.compile
@pytest.mark.parametrize("generation", [20, 22])
@pytest.mark.parametrize("name", ONE_INSTRUCTION)
def test_an_op_becomes_the_instruction_meant_for_it(llvm, name, generation):
    body, expected, never = ONE_INSTRUCTION[name]
    module = WAVE64.lower(kernel(body), None, generation)
    code = "\n".join(instructions(llvm.assembly(module)))
    assert re.search(expected, code), code
    assert not re.search(never, code), code


@pytest.mark.compile
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_transcendental_of_a_vector_is_one_instruction_a_component(llvm, count):
    body = of_each_lane(lambda x, n: arithmetic.exp2(x), count)
    code = instructions(llvm.assembly(WAVE64.lower(kernel(body), None, 22)))
    assert sum(line.startswith("v_exp_f32") for line in code) == count


@pytest.mark.compile
def test_every_op_is_written_for_waves_of_32_too(llvm):
    for name, (body, _, _) in ONE_INSTRUCTION.items():
        if name != "shuffle_xor 32":
            llvm.assembly(WAVE32.lower(kernel(body, arch=WAVE32), None, 22))
    code = instructions(llvm.assembly(WAVE32.lower(kernel(ONE_INSTRUCTION["lane_id"][0], arch=WAVE32), None, 22)))
    assert any(re.match(r"v_and_b32\w* v\d+, 31", line) for line in code)


def published_source(text, lane):
    """Return the lane a cross-lane control reads, as the ISA document defines it for waves of 64."""
    if match := re.search(r"quad_perm:\[(\d),(\d),(\d),(\d)\]", text):
        return lane // 4 * 4 + int(match.group(lane % 4 + 1))
    if match := re.search(r"row_ror:(\d+)", text):
        return lane // 16 * 16 + (lane - int(match.group(1))) % 16
    [swap] = re.findall(r"swizzle\(SWAP,(\d+)\)", text)
    return lane ^ int(swap)


@pytest.mark.compile
@pytest.mark.parametrize("mask", [1, 2, 4, 8, 16])
def test_a_shuffle_reads_the_lanes_that_its_meaning_names(llvm, mask):
    code = instructions(llvm.assembly(WAVE64.lower(kernel(ONE_INSTRUCTION[f"shuffle_xor {mask}"][0]), None, 22)))
    [moving] = [line for line in code if re.search("quad_perm|row_ror|swizzle", line)]
    [(operand, meant)] = lanes.shuffle_xor.meaning.sources(64, np.ones(64, bool), mask=mask)
    assert operand == 0
    assert [published_source(moving, lane) for lane in range(64)] == meant.tolist()
    other = "row_ror:4" if mask == 8 else "quad_perm:[3,2,1,0]"  # the control: neighbours of the right controls
    assert [published_source(other, lane) for lane in range(64)] != meant.tolist()


@pytest.mark.compile
@pytest.mark.parametrize("selector", [(0, 1, 2, 3), (4, 5, 6, 7), (2, 3, 6, 7), (7, 0, 5, 2), (1, 1, 4, 4)])
def test_a_byte_permutation_selects_what_llvm_folds_it_to(llvm, selector):
    """LLVM's constant folder knows v_perm_b32 independently of us."""
    low, high = 0x33221100, 0x77665544

    def body(x, y, counter, n):
        memory.store(counter, lanes.byte_permute(arithmetic.add(n, 0, nsw=False), n, selector=selector))

    text = WAVE64.lower(kernel(body), None, 22).text
    text = re.sub(r"@llvm.amdgcn.perm\(i32 %[\w.]+, i32 %[\w.]+,", f"@llvm.amdgcn.perm(i32 {high}, i32 {low},", text)
    [stored] = re.findall(r"store i32 (-?\d+)", llvm.ask("folded", text, cpu="gfx942"))
    algebra = NumpyAlgebra.of_lanes(1)
    operands = [NumpyLane(I32, np.array([value], np.uint32)) for value in (low, high)]
    meant = lanes.byte_permute.meaning.body(algebra, *operands, selector=selector)
    assert int(stored) % 2**32 == int(meant.data[0])
    swapped = lanes.byte_permute.meaning.body(algebra, *operands[::-1], selector=selector)
    assert int(stored) % 2**32 != int(swapped.data[0])


@pytest.mark.compile
def test_multiplying_by_a_power_of_two_shifts_and_by_another_number_does_not(llvm):
    def code(factor):
        return "\n".join(instructions(llvm.assembly(WAVE64.lower(kernel(body(factor)), None, 22))))

    def body(factor):
        return of_each_lane(lambda x, n: lanes.thread_id() * factor)

    assert "v_mul" not in code(64)
    assert "v_mul" in code(65)
    assert "shl nsw i32" in WAVE64.lower(kernel(body(64)), None, 22).text
    lowest = WAVE64.lower(kernel(body(-(2**31))), None, 22).text
    assert re.search(r"mul nsw i32 %[\w.]+, -2147483648", lowest), "as a signed number it is no power of two"
