"""What each portable op computes on a lane, against Python's integers, exact fractions and numpy's bytes."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from ir_evaluation import evaluate

from kinfolk.ir.meaning import LaneFunction, LanePermutation
from kinfolk.ir.numpy_lanes import NumpyAlgebra, NumpyLane, storage_dtype
from kinfolk.ir.ops import CORE_OPS
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
    VectorType,
)

INTEGERS = (I8, I16, I32, I64)
RANDOM = 300


def edges(type_):
    top = 1 << type_.bits
    near = {
        0,
        1,
        2,
        3,
        5,
        7,
        type_.bits - 1,
        type_.bits,
        type_.bits + 1,
        top // 2 - 2,
        top // 2 - 1,
        top // 2,
        top // 2 + 1,
    }
    return sorted(value % top for value in near | {-1, -2, -7, top // 3, 1 << (type_.bits // 2)})


def pairs(type_):
    """Every pair of edge values, then random pairs, as unsigned Python integers."""
    generator = np.random.default_rng(type_.bits)
    rows = list(itertools.product(edges(type_), repeat=2))
    rows += (
        [tuple(int(x) for x in generator.integers(0, 1 << type_.bits, 2, np.uint64, False)) for _ in range(RANDOM)]
        if (type_.bits < 64)
        else [tuple(int(x) for x in generator.integers(0, 1 << 64, 2, np.uint64)) for _ in range(RANDOM)]
    )
    return rows


def signed(value, bits):
    return value - (1 << bits) if value >> (bits - 1) else value


def truncated(a, b):
    """The quotient rounded toward zero."""
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient


# Per op: the exact result of two unsigned numbers and a width, or the reason why there is none.
ZERO, DIVISION = "division by zero", "signed overflow in division"


def quotient(a, b, w):
    x, y = signed(a, w), signed(b, w)
    if y == 0:
        return ZERO
    return DIVISION if (x, y) == (-(1 << (w - 1)), -1) else truncated(x, y)


def remainder(a, b, w):
    found = quotient(a, b, w)
    return found if isinstance(found, str) else signed(a, w) - found * signed(b, w)


def shifted(shift):
    return lambda a, b, w: shift(a, b, w) if b < w else f"shift count of {w} or more"


BINARY = {
    "core.add": lambda a, b, w: a + b,
    "core.sub": lambda a, b, w: a - b,
    "core.mul": lambda a, b, w: a * b,
    "core.udiv": lambda a, b, w: a // b if b else ZERO,
    "core.urem": lambda a, b, w: a % b if b else ZERO,
    "core.sdiv": quotient,
    "core.srem": remainder,
    "core.and": lambda a, b, w: a & b,
    "core.or": lambda a, b, w: a | b,
    "core.xor": lambda a, b, w: a ^ b,
    "core.shl": shifted(lambda a, b, w: a << b),
    "core.lshr": shifted(lambda a, b, w: a >> b),
    "core.ashr": shifted(lambda a, b, w: signed(a, w) >> b),
    "core.smin": lambda a, b, w: min(signed(a, w), signed(b, w)),
    "core.smax": lambda a, b, w: max(signed(a, w), signed(b, w)),
    "core.umin": lambda a, b, w: min(a, b),
    "core.umax": lambda a, b, w: max(a, b),
}


def arrays(rows, type_):
    return [np.array(column, storage_dtype(type_)) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("type_", INTEGERS, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_integer_arithmetic(name, type_):
    """Right on every defined lane; each undefined lane is reported, no other is, and nothing raises."""
    rows = pairs(type_)
    result, broken = evaluate(name, (type_, type_), arrays(rows, type_))
    expected_broken = {}
    for lane, (row, found) in enumerate(zip(rows, result.tolist(), strict=True)):
        expected = BINARY[name](*row, type_.bits)
        if isinstance(expected, str):
            expected_broken.setdefault(expected, set()).add(lane)
        else:
            assert found == expected % (1 << type_.bits), (name, row)
    assert broken == expected_broken
    partial = name in ("core.udiv", "core.urem", "core.sdiv", "core.srem", "core.shl", "core.lshr", "core.ashr")
    assert bool(expected_broken) == partial


@pytest.mark.parametrize("type_", INTEGERS, ids=str)
@pytest.mark.parametrize("name, exact", [("add", int.__add__), ("sub", int.__sub__), ("mul", int.__mul__)])
def test_a_claim_of_no_signed_wrap_is_reported_exactly_where_it_fails(name, exact, type_):
    rows, bits = pairs(type_), type_.bits
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    result, broken = evaluate(f"core.{name}", (type_, type_), arrays(rows, type_), nsw=True)
    values = [exact(signed(a, bits), signed(b, bits)) for a, b in rows]
    assert result.tolist() == [value % (1 << bits) for value in values]
    outside = {lane for lane, value in enumerate(values) if not low <= value <= high}
    assert broken == {f"signed overflow in {name} nsw": outside} and 0 < len(outside) < len(rows)


@pytest.mark.parametrize("type_", INTEGERS, ids=str)
def test_no_signed_wrap_at_the_edge_pairs(type_):
    """The largest value and the one below it; the pair on this side passes, its neighbour fails."""
    high = (1 << (type_.bits - 1)) - 1
    cases = [("add", high - 1, 1, high, 1), ("sub", -high, 1, -high - 1, 1), ("mul", high, -1, -high - 1, -1)]
    for name, a, b, c, d in cases:
        rows = [(x % (1 << type_.bits), y % (1 << type_.bits)) for x, y in ((a, b), (c, d))]
        _, broken = evaluate(f"core.{name}", (type_, type_), arrays(rows, type_), nsw=True)
        assert broken == {f"signed overflow in {name} nsw": {1}}, name


ORDER = {
    "eq": lambda a, b, w: a == b,
    "ne": lambda a, b, w: a != b,
    "slt": lambda a, b, w: signed(a, w) < signed(b, w),
    "sle": lambda a, b, w: signed(a, w) <= signed(b, w),
    "sgt": lambda a, b, w: signed(a, w) > signed(b, w),
    "sge": lambda a, b, w: signed(a, w) >= signed(b, w),
    "ult": lambda a, b, w: a < b,
    "ule": lambda a, b, w: a <= b,
    "ugt": lambda a, b, w: a > b,
    "uge": lambda a, b, w: a >= b,
}


def choices(name, attribute):
    (found,) = (a.choices for a in CORE_OPS[name].attributes if a.name == attribute)
    return found


@pytest.mark.parametrize("type_", INTEGERS, ids=str)
def test_every_integer_predicate(type_):
    assert set(ORDER) == set(choices("core.icmp", "predicate"))
    rows = pairs(type_) + [(x, x) for x in edges(type_)]
    for predicate, oracle in ORDER.items():
        result, _ = evaluate("core.icmp", (type_, type_), arrays(rows, type_), predicate=predicate)
        assert result.tolist() == [oracle(a, b, type_.bits) for a, b in rows], predicate


def test_one_bit_is_combined_and_compared_for_equality():
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    for name, expected in {"and": [0, 0, 0, 1], "or": [0, 1, 1, 1], "xor": [0, 1, 1, 0]}.items():
        assert evaluate(f"core.{name}", (I1, I1), (a, b))[0].tolist() == [bool(x) for x in expected]
    assert evaluate("core.icmp", (I1, I1), (a, b), predicate="eq")[0].tolist() == [True, False, False, True]
    assert evaluate("core.icmp", (I1, I1), (a, b), predicate="ne")[0].tolist() == [False, True, True, False]


FLOAT_EDGES = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1.5, 3.4e38, -3.4e38, 1e-40, -1e-40, 1e-45)
FLOAT_ORDER = {
    "oeq": lambda a, b: a == b,
    "une": lambda a, b: a != b,
    "olt": lambda a, b: a < b,
    "ole": lambda a, b: a <= b,
    "ogt": lambda a, b: a > b,
    "oge": lambda a, b: a >= b,
    "uno": lambda a, b: a != a or b != b,
    "ord": lambda a, b: a == a and b == b,
}


@pytest.mark.parametrize("type_", (F32, F64), ids=str)
def test_every_float_predicate(type_):
    assert set(FLOAT_ORDER) == set(choices("core.fcmp", "predicate"))
    dtype = storage_dtype(type_)
    columns = np.array(list(itertools.product(FLOAT_EDGES, repeat=2))).T.astype(dtype)
    for predicate, oracle in FLOAT_ORDER.items():
        result, _ = evaluate("core.fcmp", (type_, type_), tuple(columns), predicate=predicate)
        expected = [oracle(a, b) for a, b in zip(*(c.tolist() for c in columns), strict=True)]
        assert result.tolist() == expected, predicate


def rounded(x, type_):
    """An exact fraction rounded once to nearest even, as the float of `type_` in a Python float."""
    digits, lowest = (24, -149) if type_ == F32 else (53, -1074)
    if x == 0:
        return 0.0
    exponent = math.floor(math.log2(abs(x.numerator)) - math.log2(x.denominator))
    while abs(x) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while abs(x) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - digits + 1, lowest)
    result = round(x / unit) * unit  # Python rounds a tie to even
    largest = (2 - Fraction(2) ** (1 - digits)) * Fraction(2) ** (127 if type_ == F32 else 1023)
    if abs(result) > largest:
        return math.inf if result > 0 else -math.inf
    return float(result)


def finite(type_, count, seed):
    """Finite numbers: random patterns, edges, and many of middling size whose sums cancel and products stay finite."""
    generator = np.random.default_rng(seed)
    dtype = storage_dtype(type_)
    middling = generator.normal(size=count) * 2.0 ** generator.integers(-12, 12, count)
    wild = generator.integers(0, 1 << (type_.bits - 1), count, np.uint64).astype(f"u{dtype.itemsize}").view(dtype)
    wild = np.where(np.isfinite(wild), wild, 1.0) * generator.choice([1, -1], count)
    edge = np.resize(np.array([x for x in FLOAT_EDGES if math.isfinite(x)]), count)
    return np.concatenate([middling, wild, generator.permutation(edge)]).astype(dtype)


EXACT = {
    "core.fadd": (2, lambda a, b: a + b),
    "core.fsub": (2, lambda a, b: a - b),
    "core.fmul": (2, lambda a, b: a * b),
    "core.fdiv": (2, lambda a, b: a / b if b else None),
    "core.fneg": (1, lambda a: -a),
    "core.fabs": (1, abs),
    "core.fmax": (2, max),
    "core.fmin": (2, min),
    "core.rint": (1, round),
    "core.fma": (3, lambda a, b, c: a * b + c),
    "core.rcp": (1, lambda a: 1 / a if Fraction(2) ** -126 <= abs(a) <= Fraction(2) ** 126 else None),
}
ONLY_F32 = ("core.fma", "core.rcp", "core.sqrt", "core.exp2", "core.log2")


@pytest.mark.parametrize(
    "name, type_", [(n, t) for n in EXACT for t in (F32, F64) if t == F32 or n not in ONLY_F32], ids=str
)
def test_float_arithmetic_rounds_the_exact_result_once(name, type_):
    arity, oracle = EXACT[name]
    columns = [finite(type_, 400, seed) for seed in range(arity)]
    result, broken = evaluate(name, (type_,) * arity, columns)
    assert broken == {}
    checked = 0
    for row, found in zip(zip(*(c.tolist() for c in columns), strict=True), result.tolist(), strict=True):
        exact = oracle(*map(Fraction, row))
        if exact is not None:
            assert found == rounded(Fraction(exact), type_), (name, row)
            checked += 1
    assert checked > 700


def test_the_check_of_fma_sees_a_second_rounding():
    """Negative control: f32 products rounded before the sum do differ on these numbers."""
    a, b, c = (finite(F32, 400, seed) for seed in range(3))
    with np.errstate(all="ignore"):
        twice = a * b + c
    assert np.sum(twice != evaluate("core.fma", (F32,) * 3, (a, b, c))[0]) > 50


def test_fma_where_rounding_through_f64_alone_goes_wrong():
    """The exact sum lies just off a tie of f32 by less than f64 holds: without round-to-odd the tie goes to even."""
    one_and_ulp = np.float32(1 + 2.0**-23)
    rows = [(one_and_ulp, np.float32(2.0**-24), np.float32(1.0)), (np.float32(2.0**-60), np.float32(1.0), one_and_ulp)]
    rows += [(np.float32(s * 2.0**-100), np.float32(1.0), np.float32(1.0)) for s in (1, -1)]
    rows += [(np.float32(2.0**-70), np.float32(s * 2.0**-70), np.float32(2.0**-149 * 3)) for s in (1, -1)]
    a, b, c = (np.array(column, np.float32) for column in zip(*rows, strict=True))
    found = evaluate("core.fma", (F32,) * 3, (a, b, c))[0].tolist()
    assert found == [rounded(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)), F32) for x, y, z in rows]


def test_signed_zeros_infinities_and_nan():
    """IEEE 754 sections 6.1 to 6.3, by hand."""
    inf, nan = math.inf, math.nan

    def result(name, *row, type_=F32):
        found = evaluate(name, (type_,) * len(row), [np.array([x], storage_dtype(type_)) for x in row])[0][0]
        return "nan" if np.isnan(found) else repr(float(found))

    for type_ in (F32, F64):
        assert result("core.fadd", 0.0, -0.0, type_=type_) == "0.0"
        assert result("core.fsub", 1.0, 1.0, type_=type_) == "0.0"
        assert result("core.fadd", inf, -inf, type_=type_) == "nan"
        assert result("core.fmul", inf, 0.0, type_=type_) == "nan"
        assert result("core.fmul", -1.0, 0.0, type_=type_) == "-0.0"
        assert result("core.fdiv", -1.0, 0.0, type_=type_) == "-inf"
        assert result("core.fdiv", 0.0, 0.0, type_=type_) == "nan"
        assert result("core.fneg", 0.0, type_=type_) == "-0.0"
        assert result("core.fabs", -inf, type_=type_) == "inf"
        assert result("core.rint", -0.3, type_=type_) == "-0.0"
        assert [result("core.rint", x, type_=type_) for x in (0.5, 1.5, 2.5)] == ["0.0", "2.0", "2.0"]
    assert result("core.fma", inf, 1.0, -inf) == result("core.fma", inf, 0.0, 1.0) == "nan"
    assert result("core.fma", 3e38, 3e38, -inf) == "-inf"
    assert result("core.sqrt", -1.0) == "nan" and result("core.sqrt", -0.0) == "-0.0"
    assert result("core.rcp", -0.0) == "-inf" and result("core.rcp", inf) == "0.0"
    assert result("core.rcp", 2.0**-126) == str(2.0**126) and result("core.rcp", -(2.0**-127)) == "-inf"
    assert result("core.rcp", -(2.0**126)) == str(-(2.0**-126)) and result("core.rcp", -(2.0**127)) == "-0.0"
    assert result("core.fadd", nan, 1.0) == "nan"


def test_fneg_and_fabs_change_the_sign_bit_alone():
    bits = np.array([0x7FC00001, 0xFFC12345, 0x80000000, 0x00000000, 0x7F800001], np.uint32)
    assert (evaluate("core.fneg", (F32,), [bits.view("f4")])[0].view("u4") == bits ^ np.uint32(1 << 31)).all()
    assert (evaluate("core.fabs", (F32,), [bits.view("f4")])[0].view("u4") == bits & np.uint32((1 << 31) - 1)).all()
    wide = bits.astype(np.uint64) << np.uint64(32)
    assert (evaluate("core.fneg", (F64,), [wide.view("f8")])[0].view("u8") == wide ^ np.uint64(1 << 63)).all()


@pytest.mark.parametrize("name", ("core.fmax", "core.fmin"))
def test_a_nan_in_a_maximum_is_reported(name):
    a = np.array([1.0, math.nan, 1.0, math.nan], np.float32)
    b = np.array([2.0, 1.0, math.nan, math.nan], np.float32)
    assert evaluate(name, (F32, F32), (a, b))[1] == {
        f"NaN in {name[5:]}; an input may hold a NaN or an infinity, or a sum left f32": {1, 2, 3}
    }


def test_the_square_root_is_correctly_rounded():
    values = np.abs(finite(F32, 600, 3))
    for x, found in zip(values.tolist(), evaluate("core.sqrt", (F32,), [values])[0].tolist(), strict=True):
        scaled = Fraction(x) * 2**320
        root = math.isqrt(int(scaled))  # x is a multiple of 2^-149: this is exact to far more than f32 holds
        sticky = Fraction(root) + (Fraction(1, 2) if root * root != scaled else 0)
        assert found == rounded(sticky / 2**160, F32), x


def test_select_by_one_condition_and_by_one_per_component():
    condition = np.array([True, False])
    a, b = np.array([1, 2], "u4"), np.array([3, 4], "u4")
    assert evaluate("core.select", (I1, I32, I32), (condition, a, b))[0].tolist() == [1, 4]
    pair = VectorType(F32, 2)
    a, b = np.array([[1, 2], [3, 4]], "f4"), np.array([[5, 6], [7, 8]], "f4")
    assert evaluate("core.select", (I1, pair, pair), (condition, a, b))[0].tolist() == [[1, 6], [3, 8]]
    each = np.array([[True, False], [False, True]])
    assert evaluate("core.select", (VectorType(I1, 2), pair, pair), (each, a, b))[0].tolist() == [[1, 6], [7, 4]]


def test_constants_of_every_type_are_their_bits(samples):
    for type_, patterns in samples.CONSTANTS.items():
        for bits in patterns:
            (found,), _ = evaluate("core.constant", (), (), to=type_, bits=bits)
            assert int.from_bytes(np.asarray(found).tobytes(), "little") == bits, (type_, bits)


def components(type_, count, seed=0):
    """Random components [count, 8 lanes] in storage."""
    data = np.random.default_rng(seed).integers(0, 256, (count, 8 * type_.bytes), np.uint8)
    return data.view(storage_dtype(type_))


def test_components_are_moved():
    x, y = components(BF16, 4, 1), components(BF16, 4, 2)
    four = VectorType(BF16, 4)
    assert (evaluate("core.splat", (BF16,), [x[0]], count=3)[0] == np.stack([x[0]] * 3)).all()
    for index in range(4):
        assert (evaluate("core.extract", (four,), [x], index=index)[0] == x[index]).all()
    assert (evaluate("core.pack", (BF16,) * 3, list(x[:3]))[0] == x[:3]).all()
    both = np.concatenate([x, y])
    for indices in ((0, 1, 2, 3), (7, 0), (3, 3, 4, 4, 5)):
        found = evaluate("core.shuffle", (four, four), (x, y), indices=indices)[0]
        assert (found == both[list(indices)]).all()
    assert (evaluate("core.shuffle", (four, four), (x, y), indices=(5,))[0] == both[5]).all()


WIDTHS = [I8, I16, I32, I64, F16, BF16, F32, F64]


@pytest.mark.parametrize("source", WIDTHS, ids=str)
@pytest.mark.parametrize("target", WIDTHS, ids=str)
def test_a_bitcast_reads_the_same_bytes(source, target):
    """numpy's view of the bytes of a lane's components, in order, little endian."""
    count = 16 // source.bytes
    x = components(source, count)
    found, _ = evaluate("core.bitcast", (VectorType(source, count),), [x], to=VectorType(target, 16 // target.bytes))
    assert (np.ascontiguousarray(found.T).view(np.uint8) == np.ascontiguousarray(x.T).view(np.uint8)).all()


def test_a_bitcast_of_one_bits_and_of_scalars():
    bits = np.random.default_rng(0).integers(0, 2, (8, 5)).astype(bool)
    found, _ = evaluate("core.bitcast", (VectorType(I1, 8),), [bits], to=I8)
    assert (found == np.packbits(bits, axis=0, bitorder="little")[0]).all()
    back, _ = evaluate("core.bitcast", (I8,), [found], to=VectorType(I1, 8))
    assert (back == bits).all()
    x = np.array([1.0, -0.0], np.float32)
    assert (evaluate("core.bitcast", (F32,), [x], to=I32)[0] == x.view(np.uint32)).all()


def test_bytes_are_permuted():
    low, high = components(I32, 1, 1)[0], components(I32, 1, 2)[0]
    source = np.concatenate([low.view(np.uint8).reshape(-1, 4), high.view(np.uint8).reshape(-1, 4)], axis=1)
    for selector in ((0, 1, 2, 3), (4, 5, 6, 7), (7, 6, 5, 4), (0, 4, 1, 5), (3, 3, 3, 3), (2, 3, 6, 7)):
        found, _ = evaluate("core.byte_permute", (I32, I32), (low, high), selector=selector)
        assert (found.view(np.uint8).reshape(-1, 4) == source[:, list(selector)]).all(), selector


def test_lanes_know_where_they_are():
    """Wave 2 of a workgroup at (7, 8, 9) of the grid, 32 lanes."""
    lane = np.arange(32, dtype=np.uint32)
    algebra = NumpyAlgebra(lane, np.full(32, 2, np.uint32), lane + 64, (7, 8, 9), np.ones(32, bool))

    def run(name, **attributes):
        return CORE_OPS[name].meaning.body(algebra, **attributes).data.tolist()

    assert run("core.lane_id") == list(range(32))
    assert run("core.wave_id") == [2] * 32
    assert run("core.thread_id") == list(range(64, 96))
    assert [run("core.block_id", axis=axis)[0] for axis in range(3)] == [7, 8, 9]


def test_an_inactive_lane_breaks_no_requirement():
    lane = np.arange(4, dtype=np.uint32)
    algebra = NumpyAlgebra(lane, lane * 0, lane, (0, 0, 0), np.array([True, False, True, False]))
    zero = NumpyLane(I32, np.zeros(4, np.uint32))
    CORE_OPS["core.udiv"].meaning.body(algebra, zero, zero)
    assert [(why, where.tolist()) for why, where in algebra.violations] == [("division by zero", [0, 2])]


# Checked by a test here or, for the files of conversions and transcendentals, there.
HERE = {*BINARY, *EXACT, "core.icmp", "core.fcmp", "core.sqrt", "core.select", "core.constant", "core.splat"}
HERE |= {"core.extract", "core.pack", "core.shuffle", "core.bitcast", "core.byte_permute"}
HERE |= {"core.lane_id", "core.wave_id", "core.thread_id", "core.block_id"}
CONVERSIONS = {"core.sext", "core.zext", "core.trunc", "core.sitofp", "core.fptosi", "core.fpext", "core.fptrunc"}
CONVERSIONS |= {"core.widen_float8", "core.narrow_float8"}
TRANSCENDENTALS = {"core.exp2", "core.log2"}


def test_every_lane_function_of_core_has_a_case():
    """A new op fails here until its meaning is compared with something that is not us."""
    lane_functions = {op.name for op in CORE_OPS if isinstance(op.meaning, LaneFunction)}
    assert lane_functions == HERE | CONVERSIONS | TRANSCENDENTALS
    permutations = {op.name for op in CORE_OPS if isinstance(op.meaning, LanePermutation)}
    assert permutations == {"core.shuffle_xor", "core.first_lane"}
