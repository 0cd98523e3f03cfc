"""Conversions of the 8-bit floats against ml_dtypes: every code, every tie, and the edges of both overflows."""

import ml_dtypes
import numpy as np
import pytest
from ir_evaluation import evaluate

from kinfolk.errors import IRError
from kinfolk.ir.float8 import FORMATS
from kinfolk.ir.ops import CORE_OPS
from kinfolk.ir.types import BF16, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F16, F32, F64, VectorType

THEIRS = {
    F8E4M3FN: ml_dtypes.float8_e4m3fn,
    F8E5M2: ml_dtypes.float8_e5m2,
    F8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    F8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    F32: np.float32,
    F16: np.float16,
    BF16: ml_dtypes.bfloat16,
}
WIDE = (F32, F16, BF16)
CODES = np.arange(256, dtype=np.uint8)
ALL_16 = np.arange(1 << 16, dtype=np.uint16)


def cast(bits, source, target):
    """Convert storage bits as ml_dtypes does."""
    with np.errstate(all="ignore"):
        made = bits.view(THEIRS[source]).astype(THEIRS[target])
    return made.view(f"u{target.bytes}")


def narrowed(bits, source, target, overflow):
    x = bits.view(np.float32) if source == F32 else bits
    found, broken = evaluate("core.narrow_float8", [source], [x], to=target, overflow=overflow)
    assert not broken
    return found


def singles():
    """f32 bits: random ones, each code's value of every format, each tie between two, and their neighbours."""
    points = [np.random.default_rng(3).integers(0, 1 << 32, 100_000, np.uint64).astype(np.uint32)]
    for narrow in FORMATS:
        values = CODES.view(THEIRS[narrow]).astype(np.float64)
        values = np.unique(values[np.isfinite(values)])
        past = values[-1] + (values[-1] - values[-2])
        values = np.concatenate([[-past], values, [past]])
        for exact in (values, (values[1:] + values[:-1]) / 2):
            bits = exact.astype(np.float32).view(np.uint32)
            points += [bits, bits + np.uint32(1), bits - np.uint32(1)]
    special = [0, 1 << 31, 1, 0x7FFFFF, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0xFF7FFFFF]
    nans = [0x7F800001, 0xFF800001, 0x7FC00000, 0xFFC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FA12345]
    return np.concatenate([*points, np.array(special + nans, np.uint32)])


@pytest.mark.parametrize("wide", WIDE, ids=str)
@pytest.mark.parametrize("narrow", FORMATS, ids=str)
def test_every_code_widens_as_in_ml_dtypes(narrow, wide):
    found, _ = evaluate("core.widen_float8", [narrow], [CODES], to=wide)
    assert (found.view(f"u{wide.bytes}") == cast(CODES, narrow, wide)).all()


@pytest.mark.parametrize("wide", WIDE, ids=str)
@pytest.mark.parametrize("narrow", FORMATS, ids=str)
def test_every_code_comes_back(narrow, wide):
    """Also past f16 and bf16: both hold every value of every format."""
    bits, _ = evaluate("core.widen_float8", [narrow], [CODES], to=wide)
    for overflow in ("nonfinite", "saturate"):
        back = narrowed(bits.view(f"u{wide.bytes}"), wide, narrow, overflow)
        value = CODES.view(THEIRS[narrow]).astype(np.float32)
        same = np.isfinite(value) | (np.isinf(value) if overflow == "nonfinite" else False)
        assert (back[same] == CODES[same]).all() and same.sum() > 240
        assert np.isnan(back[np.isnan(value)].view(THEIRS[narrow]).astype(np.float32)).all()


@pytest.mark.parametrize("narrow", FORMATS, ids=str)
def test_nonfinite_narrowing_is_that_of_ml_dtypes(narrow):
    x = singles()
    assert (narrowed(x, F32, narrow, "nonfinite") == cast(x, F32, narrow)).all()


@pytest.mark.parametrize("source", (F16, BF16), ids=str)
@pytest.mark.parametrize("narrow", FORMATS, ids=str)
def test_every_16_bit_pattern_narrows_as_in_ml_dtypes(narrow, source):
    assert (narrowed(ALL_16, source, narrow, "nonfinite") == cast(ALL_16, source, narrow)).all()


@pytest.mark.parametrize("source", WIDE, ids=str)
@pytest.mark.parametrize("narrow", FORMATS, ids=str)
def test_saturating_narrowing_is_ml_dtypes_of_the_clipped_value(narrow, source):
    x = singles() if source == F32 else ALL_16
    limit = float(ml_dtypes.finfo(THEIRS[narrow]).max)
    with np.errstate(all="ignore"):
        value = x.view(THEIRS[source]).astype(np.float32)
        clipped = np.clip(value, -limit, limit).view(np.uint32)
    assert (narrowed(x, source, narrow, "saturate") == cast(clipped, F32, narrow)).all()


# The largest value; the last that rounds to it, and the first that does not: by hand from the formats' tables.
EDGES = {
    F8E4M3FN: (448.0, 464.0, np.nextafter(np.float32(464), np.float32(500)), 0x7E, 0x7F),
    F8E5M2: (57344.0, np.nextafter(np.float32(61440), np.float32(0)), 61440.0, 0x7B, 0x7C),
    F8E4M3FNUZ: (240.0, np.nextafter(np.float32(248), np.float32(0)), 248.0, 0x7F, 0x80),
    F8E5M2FNUZ: (57344.0, np.nextafter(np.float32(61440), np.float32(0)), 61440.0, 0x7F, 0x80),
}


@pytest.mark.parametrize("narrow", EDGES, ids=str)
def test_the_edge_of_overflow(narrow):
    largest, last, first, code, past = EDGES[narrow]
    x = np.array([largest, last, first, np.inf, -last, -first, -np.inf], np.float32).view(np.uint32)
    beyond = past if past == 0x80 else past | 0x80
    found = narrowed(x, F32, narrow, "nonfinite").tolist()
    assert found == [code, code, past, past, code | 0x80, beyond, beyond]
    assert narrowed(x, F32, narrow, "saturate").tolist() == [code] * 4 + [code | 0x80] * 3


def test_the_check_sees_truncation_ties_away_and_another_format():
    """Negative controls: each known wrong rounding, and the same code in the other encoding, differs on these cases."""
    x = singles()
    x = x[np.isfinite(x.view(np.float32))]
    for narrow, form in FORMATS.items():
        expected = cast(x, F32, narrow)
        down = x & np.uint32(0xFFFFFFFF << (23 - form.mantissa) & 0xFFFFFFFF)
        away = x + np.uint32(1)
        assert (cast(down, F32, narrow) != expected).any() and (cast(away, F32, narrow) != expected).any()
    assert (cast(CODES, F8E4M3FN, F32) != cast(CODES, F8E4M3FNUZ, F32)).sum() > 200
    assert (narrowed(x, F32, F8E5M2, "saturate") != narrowed(x, F32, F8E5M2, "nonfinite")).any()


REFUSED = [
    ("core.widen_float8", F8E4M3FN, {"to": F64}, "got f8E4M3FN to f64"),
    ("core.widen_float8", F8E4M3FN, {"to": F8E5M2}, "got f8E4M3FN to f8E5M2"),
    ("core.widen_float8", F16, {"to": F32}, "got f16 to f32"),
    ("core.narrow_float8", F64, {"to": F8E5M2, "overflow": "saturate"}, "got f64 to f8E5M2"),
    ("core.narrow_float8", F32, {"to": BF16, "overflow": "saturate"}, "got f32 to bf16"),
]


@pytest.mark.parametrize("name, source, attributes, message", REFUSED, ids=str)
def test_a_conversion_without_a_meaning_is_not_built(name, source, attributes, message):
    with pytest.raises(IRError, match=message):
        CORE_OPS[name].result((source,), attributes)


def test_what_becomes_of_overflow_is_said_by_name():
    (overflow,) = (each for each in CORE_OPS["core.narrow_float8"].attributes if each.name == "overflow")
    assert overflow.default is None and overflow.choices == ("saturate", "nonfinite")
    assert CORE_OPS["core.widen_float8"].result((VectorType(F8E5M2, 8),), {"to": F16}) == (VectorType(F16, 8),)
