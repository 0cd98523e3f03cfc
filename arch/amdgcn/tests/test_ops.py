"""The ops of the AMD arches: what they mean, what LLVM makes of them, and what they refuse."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest

from kinfolk.arch import Arch
from kinfolk.errors import IRError
from kinfolk.ir import build_kernel
from kinfolk.ir.meaning import ScheduleMarker
from kinfolk.ir.numpy_lanes import NumpyAlgebra
from kinfolk.ir.ops import arithmetic, convert, lanes, memory, vector
from kinfolk.ir.types import F32, I16, I32, PointerType
from kinfolk.matrix import MatrixCatalog
from kinfolk.parameters import Parameter
from kinfolk_amdgcn import ops
from kinfolk_amdgcn.lowering import lower_kernel

FACTS = {"lds_bytes": 65536, "simds_per_cu": 4, "max_waves_per_simd": 8, "max_workgroup_size": 1024}
FACTS |= {"buffer_word3": 0x00027000}
PARAMETERS = (
    Parameter(name="x", type=PointerType(F32), alignment=16),
    Parameter(name="y", type=PointerType(F32), access="write", alignment=16),
    Parameter(name="words", type=PointerType(I32), access="write", alignment=4),
)


def an_arch(cpu, wave_size):
    return Arch(
        name=cpu,
        target_ids=(cpu,),
        wave_size=wave_size,
        facts=FACTS,
        matrix=MatrixCatalog(()),
        ops=ops.OPS,
        lower_kernel=partial(lower_kernel, legality=None),
        read_usage=lambda code, symbol, arch: None,
    )


ARCHES = {64: an_arch("gfx942", 64), 32: an_arch("gfx1100", 32)}


def lowered(body, wave_size=64):
    arch = ARCHES[wave_size]
    return arch.lower(build_kernel("k", PARAMETERS, arch=arch, block=256, body=body), None, 22)


def own(x, count=1):
    return memory.load(memory.offset(x, lanes.thread_id() * count), count=count)


def put(y, value):
    memory.store(memory.offset(y, lanes.thread_id()), value)


def test_an_arch_has_them_only_where_it_lists_them():
    assert all(ARCHES[64].has(op.name) for op in ops.OPS)
    assert {op.name.partition(".")[0] for op in ops.OPS} == {"amdgcn"}
    bare = Arch(
        name="bare",
        target_ids=("gfx942",),
        wave_size=64,
        facts=FACTS,
        matrix=MatrixCatalog(()),
        lower_kernel=partial(lower_kernel, legality=None),
        read_usage=lambda code, symbol, arch: None,
    )
    assert not bare.has("amdgcn.pin")
    with pytest.raises(IRError, match=r"amdgcn.pin is not an op of bare"):
        build_kernel("k", PARAMETERS, arch=bare, block=64, body=lambda x, y, words: put(y, ops.pin(own(x))))


@pytest.mark.compile
@pytest.mark.parametrize("lane", [0, 7, 63])
def test_read_lane_gives_every_lane_the_value_of_one(llvm, lane):
    [(operand, sources)] = ops.READ_LANE.meaning.sources(64, np.ones(64, bool), lane=lane)
    assert operand == 0 and sources.tolist() == [lane] * 64
    code = llvm.assembly(lowered(lambda x, y, words: put(y, ops.READ_LANE(own(x), lane=lane))))
    assert re.search(rf"v_readlane_b32 s\d+, v\d+, {lane}\b", code)


@pytest.mark.compile
@pytest.mark.parametrize("kind", ["half word", "two words"])
def test_read_lane_moves_16_and_64_bits(llvm, kind):
    def half(x, y, words):
        word = convert.trunc(lanes.thread_id(), to=I16)
        put(words, convert.zext(ops.READ_LANE(word, lane=5), to=I32))

    def pair(x, y, words):
        read = ops.READ_LANE(own(x, 2), lane=5)
        put(y, vector.extract(read, index=0) + vector.extract(read, index=1))

    code = llvm.assembly(lowered({"half word": half, "two words": pair}[kind]))
    assert len(re.findall("v_readlane_b32", code)) == {"half word": 1, "two words": 2}[kind]


@pytest.mark.parametrize(
    "body, said",
    [
        (lambda x, y, words: put(y, ops.READ_LANE(own(x), lane=64)), r"lane 64 is outside \[0, 64\)"),
        (lambda x, y, words: ops.READ_LANE(own(x, 4), lane=0), "moves 16, 32 or 64 bits, got vector<4xf32>"),
        (lambda x, y, words: ops.set_priority(4), "a priority is 0 to 3, got 4"),
        (lambda x, y, words: ops.pin(own(x), "scalar"), "vector, accumulator is allowed"),
        (lambda x, y, words: ops.pin(convert.trunc(lanes.thread_id(), to=I16)), "pins whole 32-bit registers"),
    ],
)
def test_what_an_op_does_not_take_is_refused_when_it_is_built(body, said):
    with pytest.raises(IRError, match=said):
        lowered(body)


def test_a_lane_beyond_the_wave_is_refused():
    def reads(lane):
        return lowered(lambda x, y, words: put(y, ops.READ_LANE(own(x), lane=lane)), wave_size=32)

    assert reads(31)
    with pytest.raises(IRError, match="reads lane 32, a wave has 32 lanes"):
        reads(32)


@pytest.mark.compile
def test_set_priority_is_one_scalar_instruction(llvm):
    def body(x, y, words):
        ops.set_priority(2)
        put(y, own(x))

    assert isinstance(ops.SET_PRIORITY.meaning, ScheduleMarker)
    assert re.search(r"^\s*s_setprio 2$", llvm.assembly(lowered(body)), re.MULTILINE)


@pytest.mark.compile
@pytest.mark.parametrize("register, kind", [("vector", "v"), ("accumulator", "a")])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_pinned_value_is_held_in_registers_of_its_kind(llvm, register, kind, count):
    def body(x, y, words):
        pinned = ops.pin(own(x, count), register)
        memory.store(memory.offset(y, lanes.thread_id() * count), pinned)

    code = llvm.assembly(lowered(body))
    width = {1: "dword", 2: "dwordx2", 4: "dwordx4"}[count]
    assert re.search(rf"global_store_{width} v\S+ {kind}", code)
    assert llvm.object(lowered(body)), "an empty template needs no assembler"


@pytest.mark.compile
@pytest.mark.parametrize("hide, computed", [(ops.pin, 2), (lambda value: value, 1)], ids=["pinned", "plain"])
def test_a_pinned_value_is_not_shared_with_an_equal_one(llvm, hide, computed):
    def body(x, y, words):
        value = own(x)
        put(y, arithmetic.exp2(hide(value)) + arithmetic.exp2(hide(value)))

    assert len(re.findall("v_exp_f32", llvm.assembly(lowered(body)))) == computed


@pytest.mark.compile
@pytest.mark.parametrize("wave_size, counted", [(64, ["lo", "hi"]), (32, ["lo"])])
def test_lane_again_counts_the_lanes_below(llvm, wave_size, counted):
    algebra = NumpyAlgebra.of_lanes(wave_size)
    assert ops.LANE_AGAIN.meaning.body(algebra).data.tolist() == list(range(wave_size))
    code = llvm.assembly(lowered(lambda x, y, words: put(words, ops.LANE_AGAIN()), wave_size))
    assert re.findall(r"v_mbcnt_(lo|hi)_u32_b32", code) == counted
