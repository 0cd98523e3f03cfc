"""Every lane function as compiled text agrees bit for bit with its declaration in numpy, and fails where that does."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from kinfolk.ir.float8 import FORMATS
from kinfolk.ir.llvm_lanes import LlvmAlgebra, constant_text
from kinfolk.ir.meaning import LaneFunction
from kinfolk.ir.numpy_lanes import NumpyAlgebra, NumpyLane, storage_dtype
from kinfolk.ir.op import OpDef
from kinfolk.ir.ops import CORE_OPS
from kinfolk.ir.ops.float8 import OVERFLOWS
from kinfolk.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I32,
    SCALARS,
    VectorType,
    component_count,
    element_type,
)
from kinfolk.ir.value import Operation, Region
from kinfolk_runtime.simulator.fast import layout as at
from kinfolk_runtime.simulator.fast.control_ops import end
from kinfolk_runtime.simulator.fast.lane_ops import lane_function
from kinfolk_runtime.simulator.fast.library import LIBRARY
from kinfolk_runtime.simulator.fast.machine import aligned
from kinfolk_runtime.simulator.fast.support import SUPPORT

INTEGERS = ("i8", "i16", "i32", "i64")
CASES = [
    *((f"core.{name}", f"{t} {t}", {"nsw": nsw}) for name in ("add", "sub", "mul") for t in INTEGERS for nsw in (0, 1)),
    *((f"core.{name}", f"{t} {t}", {}) for name in ("udiv", "urem", "sdiv", "srem", "smin", "umax") for t in INTEGERS),
    *((f"core.{name}", f"{t} {t}", {}) for name in ("shl", "lshr", "ashr") for t in INTEGERS),
    *((f"core.{name}", f"{t} {t}", {}) for name in ("and", "or", "xor") for t in ("i1", "i16", "i32")),
    *((f"core.{name}", "i32 i32", {}) for name in ("smax", "umin")),
    *(
        ("core.icmp", f"{t} {t}", {"predicate": predicate})
        for predicate in ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
        for t in ("i16", "i32")
    ),
    ("core.icmp", "i1 i1", {"predicate": "eq"}),
    *(
        ("core.fcmp", f"{t} {t}", {"predicate": predicate})
        for predicate in ("oeq", "une", "olt", "ole", "ogt", "oge", "uno", "ord")
        for t in ("f32", "f64")
    ),
    ("core.select", "i1 f32 f32", {}),
    ("core.select", "i1*1 bf16 bf16", {}),
    ("core.select", "i1 i1 i1", {}),
    *((f"core.{name}", f"{t} {t}", {}) for name in ("fadd", "fsub", "fmul", "fdiv") for t in ("f32", "f64")),
    *((f"core.{name}", t, {}) for name in ("fneg", "fabs", "rint") for t in ("f32", "f64")),
    ("core.fma", "f32 f32 f32", {}),
    *((f"core.{name}", f"{t} {t}", {}) for name in ("fmax", "fmin") for t in ("f32", "f64")),
    *((f"core.{name}", "f32", {}) for name in ("sqrt", "exp2", "log2", "rcp")),
    *(("core.sext", t, {"to": SCALARS[to]}) for t, to in (("i1", "i32"), ("i8", "i16"), ("i16", "i64"))),
    *(("core.zext", t, {"to": SCALARS[to]}) for t, to in (("i1", "i32"), ("i8", "i32"), ("i32", "i64"))),
    *(("core.trunc", t, {"to": SCALARS[to]}) for t, to in (("i32", "i1"), ("i32", "i16"), ("i64", "i8"))),
    *(("core.sitofp", t, {"to": SCALARS[to]}) for t in ("i16", "i32", "i64") for to in ("f32", "f64")),
    *(("core.fptosi", t, {"to": SCALARS[to]}) for t in ("f32", "f64") for to in INTEGERS),
    *(("core.fpext", t, {"to": SCALARS[to]}) for t in ("bf16", "f16") for to in ("f32", "f64")),
    ("core.fpext", "f32", {"to": F64}),
    *(("core.fptrunc", "f32", {"to": to}) for to in (BF16, F16)),
    ("core.fptrunc", "f64", {"to": F32}),
    *(("core.widen_float8", t.name, {"to": to}) for t in FORMATS for to in (F32, F16, BF16)),
    *(
        ("core.narrow_float8", t, {"to": to, "overflow": overflow})
        for t in ("f32", "f16", "bf16")
        for to in FORMATS
        for overflow in OVERFLOWS
    ),
    ("core.bitcast", "f32", {"to": VectorType(I32, 4)}),
    ("core.bitcast", "bf16*8", {"to": VectorType(I32, 4)}),
    ("core.bitcast", "i64*2", {"to": VectorType(BF16, 8)}),
    ("core.bitcast", "i8*4", {"to": F32}),
    ("core.bitcast", "f64*1", {"to": VectorType(F32, 2)}),
    ("core.splat", "f32*1", {"count": 4}),
    ("core.splat", "i1*1", {"count": 3}),
    ("core.extract", "f32*4", {"index": 2}),
    ("core.shuffle", "f32*4 f32*4", {"indices": (6, 0, 0, 5, 3)}),
    ("core.shuffle", "i8*4 i8*4", {"indices": (1, 2)}),
    ("core.pack", "f32*1 f32*1 f32*1", {}),
    ("core.byte_permute", "i32*1 i32*1", {"selector": (5, 0, 7, 2)}),
    ("core.constant", "", {"to": F32, "bits": 0x7FA12345}),
    *((f"core.{name}", "", {}) for name in ("lane_id", "wave_id", "thread_id")),
    ("core.block_id", "", {"axis": 1}),
    ("core.block_id", "", {"axis": 1, "below": 9}),
]
ARITHMETIC = {"fadd", "fsub", "fmul", "fdiv", "fma", "sqrt", "exp2", "log2", "rcp", "rint", "fptrunc", "fpext"}
"""Ops that compute on floats: which of two NaNs they pass on, the algebra does not say."""
EDGES = {
    F32: """0 80000000 1 7fffff 800000 3f800000 3f800001 4b000000 4b800001 7f7fffff 7f800000 ff800000 7fc00000 7fa12345
         ffc54321 43000000 c2fc0000 42ffffff 4f000000 cf000000 38800000 477ff000 477fefff 33000000 33000001 3f808000
         3f818000 5f000000 3fb504f3 43e80000 43e80001 43e7ffff 47700000 476fffff c3780000 c377ffff 3a800000 3b000000""",
    F64: """0 8000000000000000 1 7ff0000000000000 fff0000000000000 7ff8000000000000 7ff0000000000123 3ff0000000000000
         47efffffe0000000 47effffff0000000 36a0000000000000 3690000000000000 380fffffffffffff 43e0000000000000
         c3e0000000000000 41dfffffffc00000 3fe0000000000000""",
    F16: "0 8000 1 3ff 400 7bff 7c00 fc00 7e00 7d01 fe55 3c00",
    BF16: "0 8000 1 7f 80 7f7f 7f80 ff80 7fc0 7fa1 3f80",
    **dict.fromkeys(FORMATS, "0 80 1 7 8 4 3 7f 7e 7d 7c 7b ff fe fd fc fb 81"),
}
"""Storage bits in hexadecimal: zeros, denormals, halves, limits of conversions, infinities, NaNs of both kinds."""


def type_of(text: str):
    name, _, count = text.partition("*")
    width = int(count or 4)
    return SCALARS[name] if width == 1 else VectorType(SCALARS[name], width)


def operands_of(random, type_, size: int):
    """Draw storage bits [components, lanes]: any bits, edges, and small numbers."""
    element = element_type(type_)
    shape = (component_count(type_), size)
    if element == I1:
        return random.integers(0, 2, shape).astype(np.bool_)
    unsigned = np.dtype(f"u{element.bytes}")
    data = random.integers(0, 256, (*shape, element.bytes)).astype(np.uint8).view(unsigned)[..., 0]
    top = 1 << element.bits
    integer_edges = (0, 1, 2, 7, element.bits - 1, element.bits, top - 1, top - 2, top // 2, top // 2 - 1, top // 2 + 1)
    named = [int(bits, 16) for bits in EDGES.get(element, "").split()]
    edges = np.array(named or integer_edges, np.uint64).astype(unsigned)
    chosen = random.integers(0, len(edges), shape)
    data = np.where(random.random(shape) < 0.4, edges[chosen], data)
    if element in (F32, F64):
        ordinary = (random.normal(size=shape) * 8).astype(storage_dtype(element)).view(unsigned)
        data = np.where(random.random(shape) < 0.3, ordinary, data)
    return np.ascontiguousarray(data).view(storage_dtype(element))


class OneOp:
    """A compiled lane function beside its declaration."""

    def __init__(self, definition: OpDef, types, attributes, wave_size: int) -> None:
        self.definition, self.types, self.attributes, self.size = definition, types, attributes, wave_size
        self.results = definition.result(tuple(types), attributes)
        op = Operation(definition, Region(tuple(types)).arguments, attributes, self.results)
        text = lane_function(op, definition.meaning, wave_size).text
        ending = end(wave_size)
        addresses = LIBRARY.addresses([text, ending], SUPPORT)
        self.frame = aligned(sum(at.slot_bytes(t, wave_size) for t in (*self.results, *types)))
        offsets = np.cumsum([0, *(at.slot_bytes(t, wave_size) for t in (*self.results, *types))])[:-1]
        self.offsets = [int(offset) for offset in offsets]
        self.code = np.array([addresses[text.name], *self.offsets, addresses[ending.name]], np.int64)
        self.context = np.zeros(at.CONTEXT_WORDS, np.int64)
        self.run_code = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(addresses[text.name])

    def compiled(self, values, active, wave: int, block) -> tuple[np.ndarray, bool]:
        """Return the result [components, lanes] and whether the op failed."""
        for offset, value in zip(self.offsets[1:], values, strict=True):
            image = to_frame(value)
            self.frame[offset : offset + len(image)] = image
        self.context[at.EXEC] = mask_word(active)
        self.context[at.WAVE] = wave
        self.context[at.BLOCK : at.BLOCK + 3] = block
        self.run_code(self.context.ctypes.data, self.frame.ctypes.data, self.code.ctypes.data)
        return from_frame(self.frame, self.results[0], self.size), self.context[at.STATUS] == at.FAULTED

    def declared(self, values, active, wave: int, block) -> tuple[np.ndarray, bool]:
        """Return the same by numpy, component by component."""
        lane = np.arange(self.size, dtype=np.uint32)
        thread = lane + np.uint32(wave * self.size)
        algebra = NumpyAlgebra(lane, np.full_like(lane, wave), thread, block, active)
        parts = [
            [NumpyLane(element_type(t), row) for row in value] for t, value in zip(self.types, values, strict=True)
        ]
        meaning = self.definition.meaning
        with np.errstate(all="ignore"):
            if meaning.form == "components":
                lanes = meaning.body(algebra, *parts, result=self.results, **self.attributes)
            else:
                count = component_count(self.results[0])
                lanes = [
                    meaning.body(algebra, *(p[n if len(p) > 1 else 0] for p in parts), **self.attributes)
                    for n in range(count)
                ]
        return np.stack([np.broadcast_to(one.data, (self.size,)) for one in lanes]), bool(algebra.violations)


def mask_word(lanes) -> int:
    bits = np.zeros(8, np.uint8)
    packed = np.packbits(lanes, bitorder="little")
    bits[: len(packed)] = packed
    return int(bits.view(np.int64)[0])


def to_frame(value):
    if value.dtype == np.bool_:
        return np.array([mask_word(row) for row in value], np.int64).view(np.uint8)
    return np.ascontiguousarray(value).view(np.uint8).reshape(-1)


def from_frame(frame, type_, size: int):
    element, count = element_type(type_), component_count(type_)
    if element == I1:
        words = frame[: 8 * count].view(np.uint8).reshape(count, 8)
        return np.unpackbits(words, axis=1, bitorder="little")[:, :size].astype(np.bool_)
    return frame[: count * size * element.bytes].view(storage_dtype(element)).reshape(count, size).copy()


def same(name: str, got, expected):
    """Say where bits agree; of arithmetic on floats any NaN will do for a NaN."""
    plain = f"u{got.dtype.itemsize}"
    equal = got.view(plain) == expected.view(plain)
    if name.partition(".")[2] in ARITHMETIC and got.dtype.kind == "f":
        equal |= np.isnan(got) & np.isnan(expected)
    return equal


@pytest.mark.parametrize("wave_size", [32, 64])
@pytest.mark.parametrize("name, operands, attributes", CASES, ids=lambda value: str(value)[:30])
def test_text_agrees_with_the_declaration(name, operands, attributes, wave_size):
    attributes = {key: bool(value) if key == "nsw" else value for key, value in attributes.items()}
    one = OneOp(CORE_OPS[name], [type_of(text) for text in operands.split()], attributes, wave_size)
    random = np.random.default_rng(len(name) + wave_size)
    failed = 0
    for trial in range(40):
        values = [operands_of(random, t, wave_size) for t in one.types]
        active = random.random(wave_size) < (0.5, 1.0, 0.1)[trial % 3]
        got, got_fails = one.compiled(values, active, trial % 5, (trial, 2 * trial, 7))
        expected, fails = one.declared(values, active, trial % 5, (trial, 2 * trial, 7))
        assert same(name, got, expected.astype(got.dtype, copy=False)).all()
        assert got_fails == fails
        failed += fails
    asks = name.partition(".")[2] in {"udiv", "sdiv", "urem", "srem", "shl", "lshr", "ashr", "fmax", "fmin"}
    assert (failed > 0) == (asks or attributes.get("nsw", False) or "below" in attributes)


def test_every_portable_lane_function_is_among_the_cases():
    declared = {op.name for op in CORE_OPS if isinstance(op.meaning, LaneFunction)}
    assert declared == {name for name, _, _ in CASES}


def test_a_fused_step_rounds_once():
    """Products whose sum is halfway between two f32, where rounding twice goes the other way."""
    one = OneOp(CORE_OPS["core.fma"], [F32, F32, F32], {}, 64)
    random = np.random.default_rng(5)
    everyone = np.ones(64, np.bool_)
    for _ in range(200):
        a = (1 + random.integers(0, 1 << 12, (1, 64)) * 2.0**-12).astype(np.float32)
        b = (1 + random.integers(0, 1 << 12, (1, 64)) * 2.0**-12).astype(np.float32)
        c = (random.choice([-1, 1], (1, 64)) * 2.0 ** random.integers(-80, 25, (1, 64))).astype(np.float32)
        got, _ = one.compiled([a, b, c], everyone, 0, (0, 0, 0))
        expected, _ = one.declared([a, b, c], everyone, 0, (0, 0, 0))
        assert (got.view(np.uint32) == expected.view(np.uint32)).all()


def test_the_comparison_sees_another_op():
    """Negative control: the same draws, against the declaration of a neighbour."""
    one = OneOp(CORE_OPS["core.fadd"], [F32, F32], {}, 64)
    other = OneOp(CORE_OPS["core.fsub"], [F32, F32], {}, 64)
    random = np.random.default_rng(0)
    values = [operands_of(random, F32, 64) for _ in range(2)]
    everyone = np.ones(64, np.bool_)
    got, _ = one.compiled(values, everyone, 0, (0, 0, 0))
    expected, _ = other.declared(values, everyone, 0, (0, 0, 0))
    assert not same("core.fadd", got, expected).all()


@pytest.mark.parametrize("value", [0.1, 1e39, -1e39, float("inf"), 1e-45, -0.0, 16777217.0])
def test_constants_are_rounded_as_numpy_does(value):
    bits = np.array(value, np.float64)
    with np.errstate(all="ignore"):
        wide = bits.astype(np.float32).astype(np.float64)
    assert constant_text(value, F32) == f"0x{int(wide.view(np.uint64)):016X}"


def test_a_shift_of_the_algebra_is_total():
    """A lane function that forgets to limit its count: past the width nothing is left, or copies of the sign."""

    def shifted(m, a, count):
        return m.lshr(a, count) ^ (a << count) ^ m.ashr(a, count)

    from attrs import evolve

    definition = evolve(CORE_OPS["core.shl"], meaning=LaneFunction(shifted))
    one = OneOp(definition, [I32, I32], {}, 32)
    a = np.full((1, 32), 0x80000005, np.uint32)
    counts = np.arange(24, 56, dtype=np.uint32)[None, :]
    everyone = np.ones(32, np.bool_)
    got, _ = one.compiled([a, counts], everyone, 0, (0, 0, 0))
    assert (got[0, counts[0] >= 32] == 0xFFFFFFFF).all()
    expected, _ = one.declared([a, counts], everyone, 0, (0, 0, 0))
    assert (got == expected).all()


def test_the_algebra_reports_where_a_lane_comes_from():
    algebra = LlvmAlgebra(64, lambda text: "%x", lambda text: None, lambda name: "%p")
    lane = algebra.lane(F32, "%a", (0, 1))
    assert algebra.bits(lane, I32).origin == (0, 1)
    assert (lane + 1.0).origin is None
