"""Conversions against numpy, ml_dtypes and fractions: all bit patterns where there are few, edges where not."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from kinfolk.errors import IRError
from kinfolk.ir.meaning import LaneFunction
from kinfolk.ir.numpy_lanes import NumpyAlgebra, NumpyLane
from kinfolk.ir.ops import CORE_OPS
from kinfolk.ir.types import (
    BF16,
    F8E4M3FN,
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

THEIRS = {"bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16)}
ALL_16 = np.arange(1 << 16, dtype=np.uint16)


def convert(name, x, source, target):
    meaning = CORE_OPS[name].meaning
    assert isinstance(meaning, LaneFunction)
    CORE_OPS[name].result((source,), {"to": target})
    with np.errstate(all="ignore"):
        return meaning.body(NumpyAlgebra.of_lanes(len(x)), NumpyLane(source, x), to=target).data


@pytest.mark.parametrize("narrow", (BF16, F16), ids=str)
@pytest.mark.parametrize("wide", (F32, F64), ids=str)
def test_widening_of_every_pattern(narrow, wide):
    found = convert("core.fpext", ALL_16, narrow, wide)
    with np.errstate(all="ignore"):
        expected = ALL_16.view(THEIRS[narrow.name]).astype(found.dtype)
    nan = np.isnan(expected)
    bits = f"u{found.dtype.itemsize}"
    assert (np.isnan(found) == nan).all() and nan.sum() in (2 * 127, 2 * 1023)
    assert (found.view(bits)[~nan] == expected.view(bits)[~nan]).all()


def test_widening_keeps_sign_and_payload_of_a_nan():
    for narrow, exponent, shift in ((BF16, 0x7F80, 16), (F16, 0x7C00, 13)):
        nan = ALL_16[exponent < (ALL_16 & 0x7FFF)]
        found = convert("core.fpext", nan, narrow, F32).view(np.uint32)
        payload = (nan & ~np.uint16(exponent | 0x8000)).astype(np.uint32) << shift
        assert (found >> 31 == nan >> 15).all()
        assert (found & 0x003FFFFF == payload & 0x003FFFFF).all()
        if narrow == F16:
            assert (found & 0x00400000).all(), "a NaN of f16 is made quiet"


def f32_cases():
    """Random patterns, and for every value of a 16-bit float its neighbours, the tie to the next one and its own."""
    generator = np.random.default_rng(0)
    cases = [generator.integers(0, 1 << 32, 200_000, np.uint64).astype(np.uint32)]
    for theirs in THEIRS.values():
        with np.errstate(all="ignore"):
            low = ALL_16.view(theirs).astype(np.float32)
            high = (ALL_16 + np.uint16(1)).view(theirs).astype(np.float32)
            for point in (low, ((low.astype(np.float64) + high) / 2).astype(np.float32)):
                bits = point.view(np.uint32)
                cases += [bits, bits + np.uint32(1), bits - np.uint32(1)]
    return np.concatenate(
        [*cases, np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0x7F7FFFFF, 0x477FF000, 0x477FEFFF], np.uint32)]
    )


@pytest.mark.parametrize("narrow", (BF16, F16), ids=str)
def test_narrowing_rounds_to_nearest_even(narrow):
    x = f32_cases().view(np.float32)
    found = convert("core.fptrunc", x, F32, narrow)
    with np.errstate(all="ignore"):
        expected = x.astype(THEIRS[narrow.name]).view(np.uint16)
    nan = np.isnan(x)
    assert (found[~nan] == expected[~nan]).all()
    quiet, exponent = (0x0040, 0x7F80) if narrow == BF16 else (0x0200, 0x7C00)
    assert (found[nan] & (exponent | quiet) == exponent | quiet).all(), "a NaN stays one and is quiet"
    assert (found[nan] >> 15 == x[nan].view(np.uint32) >> 31).all()


def test_the_check_of_narrowing_sees_truncation_and_ties_away():
    """Negative control: dropping bits, and rounding ties up, differ on these cases."""
    bits = f32_cases()
    x = bits.view(np.float32)
    expected = x[~np.isnan(x)].astype(ml_dtypes.bfloat16).view(np.uint16)
    kept = bits[~np.isnan(x)]
    assert (kept >> 16 != expected).any() and ((kept + np.uint32(0x8000)) >> 16 != expected).sum() > 1000


def test_narrowing_f64_to_f32_rounds_once():
    """Through f64 bit patterns next to the ties of f32; the oracle rounds an exact fraction."""
    base = np.random.default_rng(1).normal(size=2000).astype(np.float32).astype(np.float64)
    tie = base + (np.nextafter(base.astype(np.float32), np.float32(9)).astype(np.float64) - base) / 2
    x = np.concatenate([base, tie, np.nextafter(tie, 9), np.nextafter(tie, -9), [1e39, -1e39, 1e-46, np.nan]])
    found = convert("core.fptrunc", x, F64, F32)
    with np.errstate(all="ignore"):
        low = x.astype(np.float32)
    assert np.isnan(found[-1]) and math.isinf(found[-4]) and math.isinf(found[-3]) and found[-2] == 0
    for value, got in zip(x[:-4].tolist(), found[:-4], strict=True):
        near = [np.nextafter(got, np.float32(-np.inf)), got, np.nextafter(got, np.float32(np.inf))]
        distance = [abs(Fraction(float(n)) - Fraction(value)) for n in near]
        assert distance[1] == min(distance)
        if distance.count(min(distance)) == 2:
            assert int(got.view(np.uint32)) % 2 == 0
    assert (low[:-1] == found[:-1]).all()


def test_f64_does_not_narrow_to_16_bits_in_one_op():
    for target in (BF16, F16):
        with pytest.raises(IRError, match=r"converts f32 to bf16, f32 to f16, f64 to f32; got f64 to"):
            CORE_OPS["core.fptrunc"].result((F64,), {"to": target})


WIDTHS = [I8, I16, I32, I64]


def patterns(type_):
    near = np.array([0, 1, 2, -1, -2, 1 << (type_.bits - 1), (1 << (type_.bits - 1)) - 1], object) % (1 << type_.bits)
    other = np.random.default_rng(type_.bits).integers(0, 1 << 63, 200, np.uint64) % (1 << (type_.bits - 1))
    return np.concatenate([np.array(list(near), np.uint64), other]).astype(f"u{type_.bits // 8}")


@pytest.mark.parametrize("source, target", [(a, b) for a in WIDTHS for b in WIDTHS if a.bits != b.bits], ids=str)
def test_integer_widths(source, target):
    x = patterns(source)
    values = [int(v) for v in x]
    signed = [v - (1 << source.bits) if v >> (source.bits - 1) else v for v in values]
    top = 1 << target.bits
    if target.bits < source.bits:
        assert convert("core.trunc", x, source, target).tolist() == [v % top for v in values]
    else:
        assert convert("core.zext", x, source, target).tolist() == values
        assert convert("core.sext", x, source, target).tolist() == [v % top for v in signed]


def test_one_bit_is_zero_and_one_or_minus_one():
    bits = np.array([False, True])
    assert convert("core.zext", bits, I1, I32).tolist() == [0, 1]
    assert convert("core.sext", bits, I1, I32).tolist() == [0, 0xFFFFFFFF]
    assert convert("core.trunc", np.array([2, 3, 0xFFFFFFFE, 1], np.uint32), I32, I1).tolist() == [
        False,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("source", WIDTHS, ids=str)
def test_an_integer_as_a_float_is_rounded_once(source):
    x = np.concatenate(
        [patterns(source), np.array([(1 << 24) + 1, (1 << 24) + 3], np.uint64).astype(f"u{source.bits // 8}")]
    )
    if source == I64:
        x = np.concatenate([x, np.array([(1 << 53) + 1, (1 << 62) + (1 << 38) + 1, (1 << 62) + (1 << 38)], np.uint64)])
    signed = [int(v) - (1 << source.bits) if int(v) >> (source.bits - 1) else int(v) for v in x]
    assert convert("core.sitofp", x, source, F64).tolist() == [float(v) for v in signed]
    for value, got in zip(signed, convert("core.sitofp", x, source, F32), strict=True):
        near = [np.nextafter(got, np.float32(-np.inf)), got, np.nextafter(got, np.float32(np.inf))]
        distance = [abs(Fraction(float(n)) - value) for n in near]
        assert distance[1] == min(distance)
        assert distance.count(min(distance)) == 1 or int(got.view(np.uint32)) % 2 == 0


@pytest.mark.parametrize("source", (F32, F64), ids=str)
@pytest.mark.parametrize("target", WIDTHS, ids=str)
def test_a_float_as_an_integer_saturates(source, target):
    low, high = -(1 << (target.bits - 1)), (1 << (target.bits - 1)) - 1
    dtype = np.float32 if source == F32 else np.float64
    edge = np.array([low, high, float(high) + 1, 2.0**62, 3 * 2.0**61, -3 * 2.0**61, 2.0**63], dtype)
    x = np.concatenate([edge, np.nextafter(edge, dtype(np.inf)), np.nextafter(edge, dtype(-np.inf))])
    x = np.concatenate([x, [0.5, -0.5, 0.99, -0.99, 1.99, -1.99, np.inf, -np.inf, 1e30, -1e30, 1e-40, -0.0]]).astype(
        dtype
    )
    x = np.concatenate([x, (np.random.default_rng(2).normal(size=500) * 2.0**target.bits / 3).astype(dtype)])
    found = convert("core.fptosi", x, source, target).view(f"i{target.bits // 8}").tolist()
    for value, got in zip(x.tolist(), found, strict=True):
        exact = math.trunc(value) if math.isfinite(value) else math.copysign(1 << 80, value)
        assert got == min(max(int(exact), low), high), value
    assert convert("core.fptosi", np.array([np.nan], dtype), source, target).tolist() == [0]


REFUSED = [
    ("core.sext", I32, I32, "i32 to i32 is not wider"),
    ("core.sext", I32, I16, "i32 to i16 is not wider"),
    ("core.sext", F32, I64, "converts from int types, got f32"),
    ("core.zext", I32, F64, "converts to int types, got f64"),
    ("core.zext", I32, VectorType(I64, 1), "converts to a scalar type, component by component"),
    ("core.trunc", I32, I64, "i32 to i64 is not narrower"),
    ("core.fpext", F16, BF16, "got f16 to bf16"),
    ("core.fpext", F8E4M3FN, F32, "got f8E4M3FN to f32"),
    ("core.fptrunc", F32, F8E4M3FN, "got f32 to f8E4M3FN"),
    ("core.fptrunc", F32, F32, "got f32 to f32"),
    ("core.sitofp", F32, F64, "converts int to float, got f32 to f64"),
    ("core.sitofp", I32, BF16, "converts between f32 or f64 and integers of 8 to 64 bits"),
    ("core.sitofp", I1, F32, "converts between f32 or f64 and integers of 8 to 64 bits"),
    ("core.fptosi", F32, I1, "converts between f32 or f64 and integers of 8 to 64 bits"),
    ("core.fptosi", BF16, I32, "converts between f32 or f64 and integers of 8 to 64 bits"),
    ("core.fptosi", F32, VectorType(I32, 4), "converts to a scalar type"),
    ("core.bitcast", I32, VectorType(I16, 3), r"a bitcast keeps the bits, got i32 \(32\) to vector<3xi16> \(48\)"),
]


@pytest.mark.parametrize("name, source, target, message", REFUSED, ids=str)
def test_a_conversion_without_a_meaning_is_not_built(name, source, target, message):
    with pytest.raises(IRError, match=message):
        CORE_OPS[name].result((source,), {"to": target})


def test_conversions_of_vectors_keep_their_width():
    assert CORE_OPS["core.fptrunc"].result((VectorType(F32, 4),), {"to": BF16}) == (VectorType(BF16, 4),)
    assert CORE_OPS["core.sitofp"].result((VectorType(I32, 2),), {"to": F64}) == (VectorType(F64, 2),)
    assert CORE_OPS["core.sext"].result((VectorType(I8, 8),), {"to": I16}) == (VectorType(I16, 8),)
