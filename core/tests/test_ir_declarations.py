"""What a declaration needs to register, what its rules refuse, and the lanes that a permutation reads."""

from pathlib import Path

import numpy as np
import pytest

from kinfolk.errors import IllegalOp, InternalError, IRError
from kinfolk.ir import AttributeDef, OpDef
from kinfolk.ir.meaning import LaneFunction, LanePermutation, MemoryAccess
from kinfolk.ir.op import BySelectedTarget, OpTable, effects
from kinfolk.ir.ops import CORE_OPS, control, lanes, memory, vector
from kinfolk.ir.rules import same_integer
from kinfolk.ir.types import BF16, F32, I1, I8, I32, I64, BufferType, PointerType, VectorType, ViewType
from kinfolk.parameters import Parameter

HERE = f"{Path(__file__).parent.name}/{Path(__file__).name}"


def double(name):
    return OpDef(
        name=name,
        operands=("a",),
        result=same_integer,
        meaning=LaneFunction(lambda m, a: a + a),
        lowering=lambda w, op: None,
    )


WHOLE = {
    "name": "toy.op",
    "operands": ("a",),
    "result": same_integer,
    "meaning": LaneFunction(lambda m, a: a),
    "lowering": BySelectedTarget(),
}
HOLES = [
    ({"meaning": None}, "it has no meaning"),
    ({"meaning": lambda m, a: a}, "it has no meaning"),
    ({"lowering": None}, "it has no lowering"),
    ({"lowering": "add"}, "it has no lowering"),
    ({"result": None}, "it has no result rule"),
    ({"name": "toy"}, "an op is named dialect.op"),
    ({"name": "toy.2"}, "an op is named dialect.op"),
    ({"meaning": MemoryAccess("global", "load")}, "it accesses memory, its effects lack"),
    ({"meaning": MemoryAccess("view", "store"), "effects": effects("reads")}, r"its effects lack \['writes'\]"),
    ({"meaning": MemoryAccess("global", "atomic_add"), "effects": effects("writes")}, r"its effects lack \['reads'\]"),
]


@pytest.mark.parametrize("hole, message", HOLES, ids=[row[1] for row in HOLES])
def test_an_op_with_a_part_missing_does_not_register(hole, message):
    OpTable((OpDef(**WHOLE),))
    with pytest.raises(InternalError, match=message):
        OpTable((OpDef(**WHOLE | hole),))


@pytest.mark.parametrize("part", ("result", "meaning", "lowering"))
def test_an_op_without_a_part_cannot_be_written(part):
    with pytest.raises(TypeError, match=part):
        OpDef(**{name: value for name, value in WHOLE.items() if name != part})


def test_a_name_is_declared_once_in_a_table_and_above_it():
    table = OpTable((double("toy.op"),))
    with pytest.raises(InternalError, match=r"toy\.op is declared twice"):
        table.register(double("toy.op"))
    with pytest.raises(InternalError, match=r"core\.add is declared twice"):
        OpTable((double("core.add"),), parent=CORE_OPS)
    with pytest.raises(IllegalOp, match=r"no op is named 'toy\.none'; known: toy\.op"):
        table["toy.none"]


FOUR = VectorType(F32, 4)
POINTER, VIEW, BUFFER = PointerType(F32), ViewType(F32), BufferType(F32, 64)
REFUSED = [
    ("core.add", (I32, I64), {}, "operands must have one type, got i32, i64"),
    ("core.add", (F32, F32), {}, "takes integers, got f32"),
    ("core.add", (I1, I1), {}, "takes integers of 8 to 64 bits, got i1"),
    ("core.add", (POINTER, POINTER), {}, "must be a scalar or a vector"),
    ("core.icmp", (I1, I1), {"predicate": "slt"}, "i1 is compared by eq and ne, got slt"),
    ("core.fadd", (I32, I32), {}, "takes f32 or f64"),
    ("core.fadd", (BF16, BF16), {}, "convert narrow floats first"),
    ("core.exp2", (VectorType(I32, 2),), {}, "takes f32"),
    ("core.fma", (FOUR, FOUR, F32), {}, "operands must have one type"),
    ("core.select", (I1, F32, I32), {}, "chooses between values of one type"),
    ("core.select", (VectorType(I1, 2), FOUR, FOUR), {}, "condition of vector<4xf32> is i1 or one i1 per component"),
    ("core.select", (I1, POINTER, POINTER), {}, "a choice must be a scalar or a vector"),
    ("core.constant", (), {"to": I8, "bits": 256}, "0x100 has more bits than i8"),
    ("core.constant", (), {"to": FOUR, "bits": 0}, "a constant is a scalar"),
    ("core.splat", (FOUR,), {"count": 2}, "splats a scalar"),
    ("core.splat", (F32,), {"count": 0}, "at least one element"),
    ("core.extract", (FOUR,), {"index": 4}, "index 4 is outside vector<4xf32>"),
    ("core.extract", (FOUR,), {"index": -1}, "index -1 is outside"),
    ("core.extract", (F32,), {"index": 0}, "must be a vector"),
    ("core.pack", (), {}, "packs at least one scalar"),
    ("core.pack", (F32, I32), {}, "operands must have one type"),
    ("core.pack", (FOUR,), {}, "packs scalars"),
    ("core.shuffle", (FOUR, FOUR), {"indices": (8,)}, r"must lie in \[0, 8\)"),
    ("core.shuffle", (FOUR, FOUR), {"indices": ()}, r"must lie in \[0, 8\)"),
    ("core.shuffle", (FOUR, VectorType(F32, 2)), {"indices": (0,)}, "two vectors of one type"),
    ("core.offset", (I32, I32), {}, "takes a pointer, got i32"),
    ("core.offset", (POINTER, F32), {}, "an element index is i32 or i64, got f32"),
    ("core.load", (POINTER,), {"count": 4, "alignment": 12}, "alignment 12 is no power of two"),
    ("core.load", (POINTER,), {"count": 0}, "at least one element"),
    ("core.store", (POINTER, I32), {}, "stores f32, got i32"),
    ("core.atomic_add", (PointerType(BF16), BF16), {}, "adds i32 or f32"),
    ("core.atomic_add", (POINTER, I32), {}, "adds i32 or f32 to memory of the same type"),
    ("core.bound", (POINTER, I64), {}, "the size of a view is i32 elements"),
    ("core.view_load", (POINTER, I32), {}, "takes a view"),
    ("core.view_load", (VIEW, I64), {}, "an element index is i32, got i64"),
    ("core.view_load", (VIEW, I32), {"count": 3}, "loads 2, 4, 8 or 16 bytes, got vector<3xf32> of 12"),
    ("core.view_store", (VIEW, I32, VectorType(F32, 8)), {}, "stores 2, 4, 8 or 16 bytes"),
    ("core.allocate", (), {"element": FOUR, "count": 4}, "allocates elements of a scalar type"),
    ("core.allocate", (), {"element": F32, "count": 0}, "allocates at least one element"),
    ("core.workgroup_load", (POINTER, I32), {}, "takes a workgroup-memory buffer"),
    ("core.workgroup_load", (BUFFER, I64), {}, "an element index is i32, got i64"),
    ("core.workgroup_store", (BUFFER, I32, BF16), {}, "stores f32, got bf16"),
    ("core.shuffle_xor", (F32,), {"mask": 3}, "lanes a power of two apart, got mask 3"),
    ("core.shuffle_xor", (F32,), {"mask": 0}, "lanes a power of two apart"),
    ("core.shuffle_xor", (BF16,), {"mask": 1}, "moves one 32-bit scalar"),
    ("core.first_lane", (FOUR,), {}, "moves 16, 32 or 64 bits"),
    ("core.uniform", (I8,), {}, "moves 16, 32 or 64 bits"),
    ("core.any_lane", (I32,), {}, "asks an i1"),
    ("core.byte_permute", (I32, I64), {"selector": (0, 1, 2, 3)}, "permutes the bytes of two i32"),
    ("core.byte_permute", (I32, I32), {"selector": (0, 1, 2, 8)}, "selector has four bytes"),
    ("core.byte_permute", (I32, I32), {"selector": (0, 1, 2)}, "selector has four bytes"),
    ("core.block_id", (), {"axis": 3}, "axis is 0, 1 or 2, got 3"),
    ("core.opaque", (F32,), {}, "hides one i32"),
    ("core.for", (I32, I64, I32), {}, "bounds and step are i32"),
    ("core.if", (I32,), {}, "branches on an i1"),
    ("core.barrier", (I32,), {}, "takes no operands"),
]


@pytest.mark.parametrize("name, types, attributes, message", REFUSED, ids=[f"{r[0]}-{r[3][:24]}" for r in REFUSED])
def test_a_result_rule_refuses_what_does_not_fit(name, types, attributes, message):
    definition = CORE_OPS[name]
    defaults = {a.name: a.default for a in definition.attributes if a.default is not None}
    with pytest.raises(IRError, match=message):
        definition.result(types, {**defaults, **attributes})


NUMBERS = [
    (1 << 31, I32, None),
    ((1 << 32) - 1, I32, None),
    (1 << 32, I32, "does not fit i32"),
    (-(1 << 31), I32, None),
    (-(1 << 31) - 1, I32, "does not fit i32"),
    (2, I1, "does not fit i1"),
    (True, I32, "is a Python int, got True"),
    (1.0, I32, "is a Python int, got 1.0"),
    (1.5, BF16, None),
    (0.1, BF16, "is not exact in bf16"),
    (1e39, F32, "is past the largest f32"),
    (3.4e38, F32, None),
    (1, VectorType(I8, 4), None),
]


@pytest.mark.parametrize("value, type_, message", NUMBERS, ids=str)
def test_a_constant_fits_its_type(samples, value, type_, message):
    def body():
        assert samples.current_builder().constant(value, type_).type == type_

    if message is None:
        samples.kernel(body)
    else:
        with pytest.raises(IRError, match=message):
            samples.kernel(body)


def test_attributes_are_checked_when_given(samples):
    def build(**attributes):
        samples.kernel(lambda x: memory.load(x, **attributes), samples.pointer("x", F32))

    for attributes, message in [
        ({"coherent": True}, r"core\.load has no attribute coherent; it has: count, alignment, invariant, scope"),
        ({"count": 2.0}, "attribute count is of kind int, got 2.0"),
        ({"count": 1 << 63}, "attribute count is of kind int"),
        ({"invariant": 1}, "attribute invariant is of kind bool, got 1"),
    ]:
        with pytest.raises(IRError, match=message):
            build(**attributes)
    with pytest.raises(IRError, match=r"core\.extract needs attribute index"):
        samples.kernel(lambda x: vector.extract(memory.load(x, count=2)), samples.pointer("x", F32))
    AttributeDef("kind", "str", choices=("a", "b")).check("toy.op", "a")


@pytest.mark.parametrize("step", (0, -1, 1.0, True))
def test_the_step_of_a_loop_is_a_positive_number(samples, step):
    with pytest.raises(IRError, match="the step of a loop is a positive Python int"):
        samples.kernel(lambda n: control.for_range(0, n, step, (), lambda i, c: ()), samples.number("n"))


def test_a_loop_body_returns_what_it_carries(samples):
    with pytest.raises(IRError, match="the body returns i32, i32, it carries i32"):
        samples.kernel(lambda n: control.for_range(0, n, 1, [n], lambda i, c: (i, c[0])), samples.number("n"))


# Lane permutations


@pytest.mark.parametrize("wave_size", (32, 64))
def test_exclusive_or_exchanges_lanes(wave_size):
    for shift in range(wave_size.bit_length() - 1):
        mask = 1 << shift
        meaning = CORE_OPS["core.shuffle_xor"].meaning
        assert isinstance(meaning, LanePermutation)
        ((operand, source),) = meaning.sources(wave_size, np.ones(wave_size, bool), mask=mask)
        assert operand == 0
        partner = []
        for start in range(0, wave_size, 2 * mask):
            low, high = list(range(start, start + mask)), list(range(start + mask, start + 2 * mask))
            partner += high + low
        assert source.tolist() == partner


@pytest.mark.parametrize("wave_size", (32, 64))
def test_the_first_active_lane_is_read_by_all(wave_size):
    meaning = CORE_OPS["core.first_lane"].meaning
    for lowest in (0, 1, wave_size // 2, wave_size - 1):
        active = np.zeros(wave_size, bool)
        active[[lowest, wave_size - 1]] = True
        ((operand, source),) = meaning.sources(wave_size, active)
        assert operand == 0 and source.tolist() == [lowest] * wave_size


@pytest.mark.parametrize("wave_size", (32, 64))
def test_a_lane_past_the_wave_is_refused_at_the_edge(samples, wave_size):
    def build(mask):
        arch = samples.portable_arch(wave_size)
        samples.kernel(lambda n: lanes.shuffle_xor(n, mask=mask), samples.number("n"), arch=arch)

    build(wave_size // 2)
    message = rf"core\.shuffle_xor: reads lane {2 * wave_size - 1}, a wave has {wave_size} lanes \(at .*{HERE}"
    with pytest.raises(IRError, match=message):
        build(wave_size)


@pytest.mark.parametrize("wave_size", (32, 64))
def test_a_workgroup_is_whole_waves(samples, wave_size):
    arch = samples.portable_arch(wave_size)
    for block in (wave_size, 4 * wave_size):
        kernel = samples.build_kernel("k", (), arch=arch, block=block, body=lambda: None)
        assert (kernel.block, kernel.wave_size) == (block, wave_size)
    for block in (0, -wave_size, wave_size - 1, wave_size + 1):
        with pytest.raises(IRError, match=f"a whole number of waves of {wave_size} is needed"):
            samples.build_kernel("k", (), arch=arch, block=block, body=lambda: None)


def test_a_parameter_is_a_pointer_or_a_number():
    with pytest.raises(InternalError, match="by value a kernel takes i32, i64 or f32"):
        Parameter(name="x", type=BF16)
    with pytest.raises(InternalError, match="power of two of at least 4"):
        Parameter(name="x", type=PointerType(F32), alignment=2)
