"""What an op means and what it is lowered to agree: kernels compiled for this host and run, bit for bit with numpy.

The target here is the host's processor through LLVM, with one address space and one thread. It stands in for no GPU: it
shows that the portable LLVM wording of each op, of loops and of branches computes what the engines compute.
"""

import itertools
import re

import numpy as np
import pytest
from ir_evaluation import evaluate
from ir_samples import KERNELS, kernel, number, pointer, portable_arch

from kinfolk.errors import IllegalOp
from kinfolk.ir.builder import complete_attributes, current_builder
from kinfolk.ir.numpy_lanes import storage_dtype
from kinfolk.ir.op import BySelectedTarget
from kinfolk.ir.ops import CORE_OPS, arithmetic, control, convert, memory
from kinfolk.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    PointerType,
    VectorType,
    component_count,
    element_type,
    with_element,
)
from kinfolk.lowering import Target, lower_function

pytestmark = pytest.mark.compile


def stored(type_):
    """The type a value has in memory here: one bit takes a byte."""
    return with_element(type_, I8) if element_type(type_) == I1 else type_


def elementwise(name, types, attributes):
    """A kernel that applies an op to every element of its input arrays."""
    definition = CORE_OPS[name]
    (result,) = definition.result(tuple(types), complete_attributes(definition, attributes))

    def body(*parameters):
        *inputs, out, n = parameters

        def step(i, _):
            operands = []
            for base, type_ in zip(inputs, types, strict=True):
                count = component_count(type_)
                value = memory.load(memory.offset(base, i * count), count=count)
                operands.append(value.ne(0) if element_type(type_) == I1 else value)
            value = definition(*operands, **attributes)
            if element_type(result) == I1:
                value = convert.zext(value, to=I8)
            memory.store(memory.offset(out, i * component_count(result)), value)
            return []

        control.for_range(0, n, 1, [], step)

    def array(label, type_, access):
        element = element_type(stored(type_))
        return pointer(label, element, access, element.bytes)

    inputs = [array(f"x{i}", type_, "read") for i, type_ in enumerate(types)]
    return kernel(body, *inputs, array("out", result, "write"), number("n")), result


def in_memory(data, type_):
    """Components [count, lanes] as a contiguous array [lanes, count]."""
    rows = np.reshape(data, (component_count(type_), -1)).T
    return np.ascontiguousarray(rows.astype(storage_dtype(element_type(stored(type_)))))


def compare(host, name, types, operands, attributes):
    """Run an op both ways on every lane on which it is defined, and return how many those are."""
    expected, broken = evaluate(name, types, operands, **attributes)
    built, result = elementwise(name, types, attributes)
    lanes_ = np.shape(operands[0])[-1] if operands else 1
    keep = np.setdiff1d(np.arange(lanes_), list(set().union(*broken.values())) if broken else [])
    inputs = [in_memory(np.asarray(x)[..., keep], type_) for x, type_ in zip(operands, types, strict=True)]
    expected = in_memory(expected[..., keep] if operands else np.broadcast_to(expected, (1,)), result)
    found = np.zeros_like(expected)
    host.run(built, *inputs, found, len(keep))
    same = found.view(np.uint8).reshape(*found.shape, -1) == expected.view(np.uint8).reshape(*found.shape, -1)
    same = same.all(axis=-1) | (nan(found, result) & nan(expected, result))
    assert same.all(), (name, types, inputs[0][~same.all(axis=1)][:4], found[~same][:4], expected[~same][:4])
    return len(keep)


def nan(x, type_):
    element = element_type(type_)
    if element in (F32, F64):
        return np.isnan(x)
    exponent = {BF16: 0x7F80, F16: 0x7C00}.get(element)
    return (x & 0x7FFF) > exponent if exponent else np.zeros(x.shape, bool)


def integers(type_, arity, count=400):
    top = 1 << type_.bits
    near = [0, 1, 2, 3, 7, type_.bits - 1, type_.bits // 2, top - 1, top - 2, top // 2, top // 2 - 1, top // 2 + 1]
    generator = np.random.default_rng(type_.bits)
    rows = np.array(list(itertools.product(near, repeat=arity)), np.uint64).T
    wild = generator.integers(0, top - 1, (arity, count), np.uint64, endpoint=True)
    small = generator.integers(0, type_.bits, (arity, count // 4), np.uint64)
    return np.concatenate([rows, wild, small], axis=1).astype(f"u{type_.bits // 8}")


def floats(type_, arity, count=800):
    special = [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-40, -1e-45, 3.4e38, 0.5, 2.5, -3.5]
    generator = np.random.default_rng(type_.bits)
    dtype = storage_dtype(type_)
    rows = np.array(list(itertools.product(special, repeat=min(arity, 2)))).T
    rows = np.resize(rows, (arity, rows.shape[1])).astype(dtype)
    wild = (
        generator.integers(0, 1 << type_.bits, (arity, count), np.uint64, endpoint=False) if type_.bits < 64 else None
    )
    wild = generator.integers(0, (1 << 64) - 1, (arity, count), np.uint64) if wild is None else wild
    wild = wild.astype(f"u{dtype.itemsize}").view(dtype)
    middling = (generator.normal(size=(arity, count)) * 2.0 ** generator.integers(-9, 9, (arity, count))).astype(dtype)
    return np.concatenate([rows, wild, middling], axis=1)


def four(data):
    """Columns of a scalar as the components of vectors of four."""
    lanes_ = data.shape[-1] // 4 * 4
    return np.ascontiguousarray(data[..., :lanes_].reshape(*data.shape[:-1], -1, 4).swapaxes(-1, -2))


INTEGER_OPS = ["add", "sub", "mul", "udiv", "urem", "sdiv", "srem", "and", "or", "xor", "shl", "lshr", "ashr"]
INTEGER_OPS += ["smin", "smax", "umin", "umax"]


@pytest.mark.parametrize("type_", (I8, I16, I32, I64), ids=str)
@pytest.mark.parametrize("name", INTEGER_OPS)
def test_integer_arithmetic(host, name, type_):
    x = integers(type_, 2)
    assert compare(host, f"core.{name}", (type_, type_), list(x), {}) > 100
    if name in ("add", "sub", "mul"):
        assert compare(host, f"core.{name}", (type_, type_), list(x), {"nsw": True}) > 50


@pytest.mark.parametrize("name", INTEGER_OPS)
def test_integer_arithmetic_on_vectors(host, name):
    pair = VectorType(I32, 4)
    assert compare(host, f"core.{name}", (pair, pair), list(four(integers(I32, 2))), {}) > 20


def predicates(name):
    return CORE_OPS[name].attributes[0].choices


@pytest.mark.parametrize("predicate", predicates("core.icmp"))
def test_integer_comparison(host, predicate):
    for type_ in (I8, I32, I64):
        compare(host, "core.icmp", (type_, type_), list(integers(type_, 2)), {"predicate": predicate})
    pair = VectorType(I32, 4)
    compare(host, "core.icmp", (pair, pair), list(four(integers(I32, 2))), {"predicate": predicate})


@pytest.mark.parametrize("predicate", predicates("core.fcmp"))
def test_float_comparison(host, predicate):
    for type_ in (F32, F64):
        compare(host, "core.fcmp", (type_, type_), list(floats(type_, 2)), {"predicate": predicate})


def test_one_bit(host):
    x = [np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)]
    for name in ("core.and", "core.or", "core.xor"):
        compare(host, name, (I1, I1), x, {})
    for predicate in ("eq", "ne"):
        compare(host, "core.icmp", (I1, I1), x, {"predicate": predicate})
    for to in (I8, I32, I64):
        compare(host, "core.sext", (I1,), x[:1], {"to": to})
        compare(host, "core.zext", (I1,), x[:1], {"to": to})


FLOAT_OPS = {"fadd": 2, "fsub": 2, "fmul": 2, "fdiv": 2, "fneg": 1, "fabs": 1, "rint": 1, "fmax": 2, "fmin": 2}


@pytest.mark.parametrize("name", FLOAT_OPS)
def test_float_arithmetic(host, name):
    for type_ in (F32, F64):
        x = floats(type_, FLOAT_OPS[name])
        if name in ("fmax", "fmin"):
            x = x[:, (x != 0).any(axis=0)]  # of two zeros either may be given
        compare(host, f"core.{name}", (type_,) * len(x), list(x), {})
    compare(host, f"core.{name}", (VectorType(F64, 4),) * len(x), list(four(x)), {})


def test_fma_and_square_root(host):
    for name, arity in (("core.fma", 3), ("core.sqrt", 1)):
        x = floats(F32, arity, 3000)
        compare(host, name, (F32,) * arity, list(x), {})
        compare(host, name, (VectorType(F32, 4),) * arity, list(four(x)), {})


WIDTHS = [I8, I16, I32, I64]


def test_integer_conversions(host):
    for source, target in itertools.permutations(WIDTHS, 2):
        for name in ("core.trunc",) if target.bits < source.bits else ("core.sext", "core.zext"):
            compare(host, name, (source,), list(integers(source, 1)), {"to": target})
    compare(host, "core.trunc", (I32,), list(integers(I32, 1)), {"to": I1})
    compare(host, "core.sext", (VectorType(I16, 4),), list(four(integers(I16, 1))), {"to": I32})


@pytest.mark.parametrize("floating", (F32, F64), ids=str)
@pytest.mark.parametrize("integer", WIDTHS, ids=str)
def test_conversions_between_integer_and_float(host, integer, floating):
    compare(host, "core.sitofp", (integer,), list(integers(integer, 1)), {"to": floating})
    x = floats(floating, 1)
    compare(host, "core.fptosi", (floating,), list(x), {"to": integer})
    edge = np.array([[s * 2.0**e for e in (7, 15, 31, 62, 63, 64) for s in (-1, 1, 0.75)]]).astype(x.dtype)
    compare(host, "core.fptosi", (floating,), list(edge), {"to": integer})
    if integer == I32:
        compare(host, "core.fptosi", (VectorType(floating, 4),), list(four(x)), {"to": integer})


def test_float_conversions(host):
    every = np.arange(1 << 16, dtype=np.uint16)
    for narrow in (BF16, F16):
        for wide in (F32, F64):
            compare(host, "core.fpext", (narrow,), [every], {"to": wide})
        compare(host, "core.fptrunc", (F32,), list(floats(F32, 1, 5000)), {"to": narrow})
    compare(host, "core.fpext", (F32,), list(floats(F32, 1)), {"to": F64})
    compare(host, "core.fptrunc", (F64,), list(floats(F64, 1)), {"to": F32})
    compare(host, "core.fptrunc", (VectorType(F32, 4),), list(four(floats(F32, 1))), {"to": F16})


def test_bits_and_components_are_moved(host):
    byte = np.random.default_rng(0).integers(0, 256, (64, 16), np.uint8)
    kinds = [I8, I16, I32, I64, F16, BF16, F32, F64]
    for source, target in itertools.product(kinds, repeat=2):
        x = np.ascontiguousarray(byte.view(storage_dtype(source)).T)
        given, to = (VectorType(t, 16 // t.bytes) for t in (source, target))
        compare(host, "core.bitcast", (given,), [x], {"to": to})
    compare(host, "core.bitcast", (F32,), list(floats(F32, 1)), {"to": I32})
    for element in kinds:
        x = np.ascontiguousarray(byte.view(storage_dtype(element)).T)[:2]
        pair = VectorType(element, 2)
        compare(host, "core.splat", (element,), [x[0]], {"count": 3})
        compare(host, "core.extract", (pair,), [x], {"index": 1})
        compare(host, "core.pack", (element, element), list(x), {})
        for indices in ((1, 2), (3,), (0,), (3, 0, 2, 1, 1)):
            compare(host, "core.shuffle", (pair, pair), [x, x[::-1]], {"indices": indices})
        one = np.arange(64) % 3 == 0
        compare(host, "core.select", (I1, element, element), [one, *x], {})
        compare(host, "core.select", (I1, pair, pair), [one, x, x[::-1]], {})
        compare(host, "core.select", (VectorType(I1, 2), pair, pair), [np.stack([one, ~one]), x, x[::-1]], {})


def test_constants_of_every_type(host, samples):
    """Each constant is stored by the compiled code; NaN payloads, signs and denormals arrive as written."""
    for type_, patterns in samples.CONSTANTS.items():
        held = stored(type_)

        def body(out, patterns=patterns, type_=type_):
            for position, bits in enumerate(patterns):
                value = current_builder().constant_bits(bits, type_)
                value = convert.zext(value, to=I8) if type_ == I1 else value
                memory.store(memory.offset(out, current_builder().constant(position, I32)), value)

        out = np.zeros(len(patterns), f"u{held.bytes}")
        host.run(kernel(body, pointer("out", held, "write", held.bytes)), out)
        assert out.tolist() == list(patterns), type_


def test_literals_splatted_into_calls(host):
    """A vector of constants is a literal with spaces and commas in it: the call of an intrinsic still has its type."""

    def body(x, out):
        value = memory.load(x, count=4)
        two = current_builder().constant(2.0, VectorType(F32, 4))
        memory.store(out, arithmetic.fma(value, two, current_builder().constant(-1.0, VectorType(F32, 4))))
        memory.store(memory.offset(out, current_builder().constant(4, I32)), arithmetic.fmax(two, value))

    x, out = np.array([1, 2, 3, 0.5], np.float32), np.zeros(8, np.float32)
    host.run(kernel(body, pointer("x", F32), pointer("out", F32, "write")), x, out)
    assert out.tolist() == [1, 3, 5, 0, 2, 2, 3, 2]


def test_the_check_sees_a_wrong_lowering(host):
    """Negative control: the same comparison with one op lowered to its neighbour."""
    x = list(integers(I32, 2))
    wrong = {**host.target.lowerings, "core.lshr": CORE_OPS["core.ashr"].lowering}
    honest, host.target = host.target, Target(**{**{f: getattr(host.target, f) for f in FIELDS}, "lowerings": wrong})
    try:
        with pytest.raises(AssertionError):
            compare(host, "core.lshr", (I32, I32), x, {})
    finally:
        host.target = honest


FIELDS = ("triple", "data_layout", "convention", "spaces")
BARE = Target(
    triple="bare", data_layout="", convention="", spaces={"global": 0, "workgroup": 0, "view": 0}, lowerings={}
)
OPEN = sorted(op.name for op in CORE_OPS if isinstance(op.lowering, BySelectedTarget))


@pytest.mark.parametrize("name", OPEN)
def test_what_a_target_has_no_word_for_is_an_error_that_names_op_and_line(name, samples):
    built = samples.every_op()
    words = dict.fromkeys(OPEN, CORE_OPS["core.barrier"].lowering)
    for other in OPEN:
        if other != name:
            words[other] = lambda w, op: op.results and w.alias(op.results[0], "undef")
    target = Target(triple="bare", data_layout="", convention="", spaces=BARE.spaces, lowerings=words)
    message = rf"{re.escape(name)}: target bare has no lowering for it \(at .*ir_samples\.py:\d+"
    with pytest.raises(IllegalOp, match=message):
        lower_function(built, target, llvm=22)


def test_an_op_of_the_table_of_another_arch_has_no_lowering_by_accident():
    """Every portable op is lowered by itself or refused by a bare target; there is no third way."""
    for op in CORE_OPS:
        assert callable(op.lowering) or isinstance(op.lowering, BySelectedTarget)
    with pytest.raises(IllegalOp):
        lower_function(kernel(control.barrier, arch=portable_arch()), BARE, llvm=22)


def test_lowered_text_is_the_same_every_time(host):
    for build in (KERNELS["nested"], KERNELS["constants"]):
        assert host.text(build()) == host.text(build())


def test_the_types_of_pointers_come_from_the_target(host):
    writer = lower_function(kernel(lambda: None), BARE, llvm=22)
    assert writer.type(PointerType(F32)) == "ptr addrspace(0)"


STRUCTURE = {"core.offset", "core.load", "core.store", "core.workgroup_load", "core.workgroup_store"}
STRUCTURE |= {"core.for", "core.if", "core.yield", "core.return", "core.constant"}
RUN = STRUCTURE | {f"core.{name}" for name in (*INTEGER_OPS, *FLOAT_OPS)}
RUN |= {f"core.{name}" for name in ("icmp", "fcmp", "fma", "sqrt", "trunc", "sext", "zext", "sitofp", "fptosi")}
RUN |= {f"core.{name}" for name in ("fpext", "fptrunc", "bitcast", "splat", "extract", "pack", "shuffle", "select")}


def test_every_op_with_a_lowering_of_its_own_is_run():
    """A new op with a lowering fails here until a test above runs it."""
    assert {op.name for op in CORE_OPS if not isinstance(op.lowering, BySelectedTarget)} == RUN
