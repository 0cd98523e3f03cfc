"""Lane functions on whole waves agree bit for bit with their declaration, evaluated component by component."""

from __future__ import annotations

import numpy as np
import pytest

from kinfolk.errors import SimulationError
from kinfolk.ir.float8 import FORMATS
from kinfolk.ir.meaning import LaneFunction
from kinfolk.ir.numpy_lanes import NumpyAlgebra, NumpyLane, storage_dtype
from kinfolk.ir.op import AttributeDef, OpDef
from kinfolk.ir.ops import CORE_OPS, arithmetic, control, convert, lanes, memory, vector
from kinfolk.ir.types import BF16, F16, F32, F64, I1, I16, I32, I64, VectorType, component_count, element_type
from kinfolk_runtime.simulator.wave import WaveAlgebra

EXAMPLES = [
    ("core.add", "i32 i32", {"nsw": False}),
    ("core.sub", "i64 i64", {"nsw": False}),
    ("core.mul", "i16 i16", {"nsw": False}),
    ("core.and", "i32 i32", {}),
    ("core.or", "i32 i32", {}),
    ("core.xor", "i16 i16", {}),
    ("core.smin", "i32 i32", {}),
    ("core.smax", "i32 i32", {}),
    ("core.umin", "i32 i32", {}),
    ("core.umax", "i32 i32", {}),
    ("core.icmp", "i32 i32", {"predicate": "slt"}),
    ("core.icmp", "i32 i32", {"predicate": "uge"}),
    ("core.fcmp", "f32 f32", {"predicate": "une"}),
    ("core.select", "i1 f32 f32", {}),
    ("core.fadd", "f32 f32", {}),
    ("core.fsub", "f64 f64", {}),
    ("core.fmul", "f32 f32", {}),
    ("core.fdiv", "f32 f32", {}),
    ("core.fneg", "f32", {}),
    ("core.fabs", "f32", {}),
    ("core.fma", "f32 f32 f32", {}),
    ("core.rint", "f32", {}),
    ("core.sqrt", "f32", {}),
    ("core.exp2", "f32", {}),
    ("core.log2", "f32", {}),
    ("core.rcp", "f32", {}),
    ("core.sext", "i16", {"to": I32}),
    ("core.zext", "i16", {"to": I64}),
    ("core.trunc", "i32", {"to": I16}),
    ("core.sitofp", "i32", {"to": F32}),
    ("core.fptosi", "f32", {"to": I32}),
    ("core.fptosi", "f32", {"to": I64}),
    ("core.fpext", "bf16", {"to": F32}),
    ("core.fpext", "f16", {"to": F64}),
    ("core.fptrunc", "f32", {"to": BF16}),
    ("core.fptrunc", "f32", {"to": F16}),
    ("core.bitcast", "f32*4", {"to": VectorType(I32, 4)}),
    ("core.bitcast", "bf16*8", {"to": VectorType(I32, 4)}),
    ("core.bitcast", "i64*2", {"to": VectorType(BF16, 8)}),
    ("core.splat", "f32*1", {"count": 4}),
    ("core.extract", "f32*4", {"index": 2}),
    ("core.shuffle", "f32*4 f32*4", {"indices": (1, 2, 3)}),
    ("core.shuffle", "f32*4 f32*4", {"indices": (6, 0, 0, 5, 3)}),
    ("core.pack", "f32*1 f32*1 f32*1", {}),
    ("core.byte_permute", "i32*1 i32*1", {"selector": (5, 0, 7, 2)}),
    *(("core.widen_float8", str(narrow), {"to": to}) for narrow in FORMATS for to in (F32, F16, BF16)),
    *(
        ("core.narrow_float8", wide, {"to": to, "overflow": overflow})
        for wide in ("f32", "f16", "bf16")
        for to in FORMATS
        for overflow in ("saturate", "nonfinite")
    ),
]
SCALARS = {type_.name: type_ for type_ in (I1, I16, I32, I64, BF16, F16, F32, F64, *FORMATS)}


def _type(text):
    name, _, count = text.partition("*")
    width = int(count or 4)
    return SCALARS[name] if width == 1 else VectorType(SCALARS[name], width)


def _bits(random, type_, lanes_):
    element = element_type(type_)
    shape = (component_count(type_), lanes_)
    if element == I1:
        return random.integers(0, 2, shape).astype(np.bool_)
    data = random.integers(0, 256, (*shape, element.bytes)).astype(np.uint8).view(f"u{element.bytes}")[..., 0]
    if element.kind == "float" and random.integers(2):  # half of the draws are ordinary numbers
        ordinary = random.normal(size=shape).astype(np.float64) * 8
        data = ordinary.astype(np.float32).view(np.uint32) if element == F32 else data
    return data.view(storage_dtype(element))


def directly(definition, types, values, attributes, result):
    """Evaluate the declaration as its docstring says: per component, or on lists of components."""
    algebra = NumpyAlgebra.of_lanes(values[0].shape[1])
    parts = [
        [NumpyLane(element_type(type_), value[index]) for index in range(len(value))]
        for type_, value in zip(types, values, strict=True)
    ]
    if definition.meaning.form == "components":
        return definition.meaning.body(algebra, *parts, result=(result,), **attributes)
    return [
        definition.meaning.body(algebra, *(part[index if len(part) > 1 else 0] for part in parts), **attributes)
        for index in range(component_count(result))
    ]


@pytest.mark.parametrize("name, operands, attributes", EXAMPLES, ids=lambda value: str(value)[:24])
def test_the_engine_computes_the_declaration(toy, declare, name, operands, attributes):
    definition, types = CORE_OPS[name], [_type(text) for text in operands.split()]
    results = []

    def body(y, *pointers):
        t = lanes.thread_id()
        values = []
        for type_, source in zip(types, pointers, strict=True):
            count = component_count(type_)
            values.append(memory.load(memory.offset(source, t * count), count=count))
        result = definition(*values, **attributes)
        results.append(result.type)
        memory.store(memory.offset(y, t * component_count(result.type)), result)

    sources = [declare(f"x{index}", element_type(type_)) for index, type_ in enumerate(types)]
    (result,) = definition.result(tuple(types), attributes)
    kernel = toy.kernel(body, declare("y", element_type(result), "write"), *sources)
    random = np.random.default_rng(7)
    for _ in range(4):
        values = [_bits(random, type_, toy.wave) for type_ in types]
        y = np.zeros((toy.wave, component_count(result)), storage_dtype(element_type(result)))
        toy.run(kernel, y, *(np.ascontiguousarray(value.T) for value in values))
        with np.errstate(all="ignore"):
            expected = directly(definition, types, values, attributes, result)
        for component, lane in enumerate(expected):
            got = np.ascontiguousarray(y[:, component])
            assert got.tobytes() == np.broadcast_to(lane.data, got.shape).tobytes()


def test_every_portable_lane_function_is_among_the_examples():
    """Or is tested where its rule is: what reads the place of a lane, and what may fail."""
    elsewhere = {"core.constant", "core.lane_id", "core.wave_id", "core.thread_id", "core.block_id"}
    elsewhere |= {f"core.{name}" for name in ("udiv", "urem", "sdiv", "srem", "shl", "lshr", "ashr", "fmax", "fmin")}
    declared = {op.name for op in CORE_OPS if isinstance(op.meaning, LaneFunction)}
    assert declared - {name for name, _, _ in EXAMPLES} == elsewhere


def test_the_faster_fma_and_conversion_are_the_algebra_s():
    """On random bits, on sums half way between two f32, on denormal sums and on overflow."""
    random = np.random.default_rng(3)
    slow = NumpyAlgebra.of_lanes(64)
    fast = WaveAlgebra(*(np.zeros(64, np.uint32),) * 3, (0, 0, 0), np.ones(64, np.bool_))
    bits = [random.integers(0, 1 << 32, 1 << 16, dtype=np.uint64).astype(np.uint32).view(np.float32) for _ in range(3)]
    half = [np.float32([1.0, 1 + 2**-23, 3.0]), np.float32([1.0, 1.0, 1.0]), np.float32([2**-24, -(2**-24), 2**-23])]
    tiny = [np.float32([2**-70, 2**-75, 0.0]), np.float32([2**-70, 2**-74, 1.0]), np.float32([2**-140, 2**-149, -0.0])]
    huge = [np.float32([3e38, 3.4028235e38]), np.float32([1.0, 1.0]), np.float32([3e38, 2e31])]
    tie = [np.float32([1 + 2**-12]), np.float32([1 + 2**-12]), np.float32([2**-60])]
    with np.errstate(all="ignore"):
        for abc in (bits, half, tiny, huge, tie):
            a, b, c = (NumpyLane(F32, part[None, :]) for part in abc)
            got, expected = fast.fma(a, b, c).data, slow.fma(a, b, c).data
            same = (got.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(got) & np.isnan(expected))
            assert same.all()
        edges = np.float32([0.5, -0.5, 2147483520.0, 2147483648.0, -2147483648.0, -3e9, np.nan, np.inf, -np.inf])
        for data in (bits[0], edges):
            for type_ in (I16, I32, I64):
                x = NumpyLane(F32, data[None, :])
                assert (fast.to_int(x, type_).data == slow.to_int(x, type_).data).all()


@pytest.mark.parametrize("value, good", [((1 << 31) - 2, True), ((1 << 31) - 1, False)])
def test_signed_overflow_is_an_error_with_lanes(toy, declare, value, good):
    def body(x, y):
        t = lanes.thread_id()
        memory.store(memory.offset(y, t), memory.load(memory.offset(x, t)) + 1)

    kernel = toy.kernel(body, declare("x", I32), declare("y", I32, "write"))
    x, y = np.zeros(toy.wave, np.int32), np.zeros(toy.wave, np.int32)
    x[9] = value
    if good:
        toy.run(kernel, x, y)
        assert y[9] == value + 1
        return
    with pytest.raises(SimulationError, match="signed overflow in add nsw") as caught:
        toy.run(kernel, x, y)
    assert (caught.value.kind, caught.value.lanes) == ("integer", (9,))


def test_ops_alike_but_for_an_attribute_are_not_one(toy, declare):
    """Sums of the same types, one of which must not overflow and one of which may: each in turn, in both orders."""

    def kernel_of(nsw):
        def body(x, y):
            memory.store(y, arithmetic.add(memory.load(x), memory.load(x), nsw=nsw))

        return toy.kernel(body, declare("x", I32), declare("y", I32, "write"))

    strict, loose, y = kernel_of(True), kernel_of(False), np.zeros(1, np.int32)
    largest = np.array([(1 << 31) - 1], np.int32)
    for _ in range(2):
        toy.run(loose, largest, y)
        assert y[0] == -2
        with pytest.raises(SimulationError, match="signed overflow in add nsw"):
            toy.run(strict, largest, y)


def test_groups_that_another_thread_forgets_meanwhile_are_used_all_the_same(toy, declare, monkeypatch):
    class Forgotten(dict):
        def __setitem__(self, key, value):
            """Keep nothing, as where the other thread is the next to run."""

    monkeypatch.setattr("kinfolk_runtime.simulator.lanes._known", Forgotten())

    def body(x, y):
        memory.store(y, arithmetic.add(memory.load(x), memory.load(x)))

    y = np.zeros(1, np.int32)
    toy.run(toy.kernel(body, declare("x", I32), declare("y", I32, "write")), np.array([21], np.int32), y)
    assert y[0] == 42


@pytest.mark.parametrize(
    "name, a, b", [("shl", 1, 32), ("lshr", 1, 32), ("ashr", 1, -1), ("udiv", 1, 0), ("urem", 1, 0)]
)
def test_integer_ops_outside_their_domain(toy, declare, name, a, b):
    def body(x, y):
        memory.store(y, getattr(arithmetic, name)(memory.load(x), memory.load(memory.offset(x, 1 + lanes.wave_id()))))

    kernel, y = toy.kernel(body, declare("x", I32), declare("y", I32, "write")), np.zeros(1, np.int32)
    toy.run(kernel, np.array([8, 1], np.int32), y)
    assert y[0] == {"shl": 16, "lshr": 4, "ashr": 4, "udiv": 8, "urem": 0}[name]
    with pytest.raises(SimulationError) as caught:
        toy.run(kernel, np.array([a, b], np.int32), y)
    assert caught.value.kind == "integer" and caught.value.op == f"core.{name}"


def test_nan_in_a_maximum_is_an_error(toy, declare):
    def body(x, y):
        t = lanes.thread_id()
        memory.store(memory.offset(y, t), arithmetic.fmax(memory.load(memory.offset(x, t)), memory.load(x)))

    kernel = toy.kernel(body, declare("x", F32), declare("y", F32, "write"))
    x, y = np.zeros(toy.wave, np.float32), np.zeros(toy.wave, np.float32)
    x[1] = np.inf
    toy.run(kernel, x, y)
    assert y[1] == np.inf
    x[2] = np.nan
    with pytest.raises(SimulationError, match="NaN in fmax") as caught:
        toy.run(kernel, x, y)
    assert (caught.value.kind, caught.value.lanes) == ("float", (2,))


def test_a_loop_asks_again_when_its_operands_change(toy, declare):
    """A step that keeps its result while operands stand must not keep it longer: nested loops, parted lanes."""

    def body(y):
        t = lanes.thread_id()

        def outer(i, carried):
            (total,) = carried

            def inner(j, inside):
                (v,) = control.if_else(t < 2 + j, lambda: [i * 10 + t], lambda: [i * 100 + t])
                return [inside[0] + v]

            return control.for_range(0, 3, 1, [total], inner)

        (total,) = control.for_range(0, 3, 1, [t], outer)
        memory.store(memory.offset(y, t), total)

    y, t = np.zeros(toy.wave, np.int32), np.arange(toy.wave)
    toy.run(toy.kernel(body, declare("y", I32, "write")), y)
    expected = t.copy()
    for i in range(3):
        for j in range(3):
            expected = expected + np.where(t < 2 + j, i * 10 + t, i * 100 + t)
    assert (y == expected).all()


def test_an_op_of_an_arch_is_run_by_its_declaration(toy, declare):
    """The engine reads meanings: an op it has never heard of, in components that are computed in two ways."""
    from attrs import evolve

    def swap_and_scale(m, x, *, result, scale):
        return [x[1] * float(scale), x[0], x[1] + x[0], x[2] * float(scale)]

    mine = OpDef(
        name="toy.swap",
        operands=("x",),
        attributes=(AttributeDef("scale", "int"),),
        result=lambda types, _: (VectorType(F32, 4),),
        meaning=LaneFunction(swap_and_scale, "components"),
        lowering=lambda w, op: None,
    )
    toy.arch = evolve(toy.arch, ops=(*toy.arch.ops, mine))

    def body(x, y):
        t = lanes.thread_id()
        memory.store(memory.offset(y, t * 4), mine(memory.load(memory.offset(x, t * 3), count=3), scale=3))

    x, y = np.random.default_rng(0).normal(size=(toy.wave, 3)).astype(np.float32), np.zeros((toy.wave, 4), np.float32)
    toy.run(toy.kernel(body, declare("x", F32), declare("y", F32, "write")), x, y)
    assert (y == np.stack([x[:, 1] * 3, x[:, 0], x[:, 1] + x[:, 0], x[:, 2] * 3], 1)).all()


def test_conversions_meet_numpy(toy, declare):
    """An oracle that is not ours: bf16 as ml_dtypes rounds it."""
    import ml_dtypes

    def body(x, y):
        t = lanes.thread_id()
        value = memory.load(memory.offset(x, t * 4), count=4)
        memory.store(
            memory.offset(y, t * 4), convert.fptrunc(vector.shuffle(value, value, indices=(0, 1, 2, 3)), to=BF16)
        )

    x = np.random.default_rng(1).normal(size=4 * toy.wave).astype(np.float32)
    y = np.zeros(4 * toy.wave, ml_dtypes.bfloat16)
    toy.run(toy.kernel(body, declare("x", F32), declare("y", BF16, "write")), x, y)
    assert (y.view(np.uint16) == x.astype(ml_dtypes.bfloat16).view(np.uint16)).all()
