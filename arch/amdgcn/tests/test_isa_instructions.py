"""Declared instructions against AMD's own pseudo-code and encodings, recorded by `tools/record_isa_vectors.py`.

The recorder evaluates the texts by itself; nothing of ours is in what it computes.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pytest

from kinfolk.ir.numpy_lanes import NumpyAlgebra, NumpyLane
from kinfolk.ir.types import ScalarType
from kinfolk_amdgcn.isa.declare import TYPES, Declared
from kinfolk_amdgcn.isa.encoding import decoded
from kinfolk_amdgcn.isa.program import SCALAR, TABLES, VECTOR, declared

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "isa_vectors.json").read_text())
BY_NAME = {row.name: row for row in (*SCALAR, *VECTOR)}
DECLARED_OF_OWN = {"v_exp_f32": 2e-6, "v_log_f32": 2e-6, "v_rcp_f32": 2e-7, "v_rcp_iflag_f32": 2e-7}
ROUNDED_TWICE = {"v_rsq_f16": 2e-3, "v_rsq_f32": 2e-7, "v_rsq_f64": 4e-16}
"""Roots that the text rounds before it divides by them."""
"""Transcendentals are what the op table declares of them: so near to what the text says, where their operand is no
denormal."""
SIGN_OF_ZERO_OPEN = {"v_rndne_f16": 0x8000, "v_rndne_f32": 0x80000000, "v_rndne_f64": 1 << 63}
"""The text rounds by a sum, which loses the sign of a zero; IEEE 754, which the instruction follows, keeps it."""
SMALLEST_NORMAL = 2.0**-126
RENAMED = {"addr": "vaddr", "clmp": "clamp", "dpp": "dpp_ctrl", "bc": "bound_ctrl", "vsrc0": "src0"}
"""Names of fields there, and here."""
Array = npt.NDArray[Any]


def lanes(values: list[int], type_: ScalarType) -> NumpyLane:
    if type_.bits == 1:
        return NumpyLane(type_, np.array(values, np.bool_))
    bits = np.array(values, f"u{type_.bits // 8}")
    return NumpyLane(type_, bits.view(f"f{type_.bits // 8}") if type_.name in ("f32", "f64") else bits)


def bits_of(value: Any, count: int) -> Array:
    data = np.broadcast_to(value.data, (count,))
    return data.astype(np.uint8) if data.dtype == np.bool_ else np.ascontiguousarray(data).view(f"u{data.itemsize}")


def agree(found: Array, expected: list[int], name: str, tolerance: float) -> Array:
    """Say of each case whether bits agree: of floats any NaN is as good as another."""
    wanted = np.array(expected, found.dtype)
    if name not in ("f32", "f64", "f16"):
        return found == wanted
    x, y = (each.view(f"f{found.itemsize}").astype(np.float64) for each in (found, wanted))
    same = (found == wanted) | (np.isnan(x) & np.isnan(y))
    if tolerance:
        with np.errstate(invalid="ignore"):
            same |= np.abs(x - y) <= tolerance * np.maximum(np.abs(y), 1.0 if tolerance > 1e-6 else SMALLEST_NORMAL)
        same |= np.maximum(np.abs(x), np.abs(y)) < SMALLEST_NORMAL
    return same


def disagreements(row: Declared, cases: list[str]) -> list[str]:
    """Return the recorded cases that a declaration does not meet."""
    columns = [
        list(column) for column in zip(*([int(word, 16) for word in case.split()] for case in cases), strict=True)
    ]
    names = (*row.operands, "i64") if row.facts.get("saves_exec") else row.operands
    operands = [lanes(column, TYPES[name]) for column, name in zip(columns, names, strict=False)]
    expected = columns[len(names) :]
    assert row.meaning is not None
    algebra = NumpyAlgebra.of_lanes(len(cases))
    with np.errstate(all="ignore"):
        found = row.meaning(algebra, *operands)
        results = list(found) if isinstance(found, tuple) else [found]
        if row.scc is not None:
            results.append(row.scc(algebra, results[0], *operands))
    assert len(results) == len(expected)
    right = np.ones(len(cases), np.bool_)
    for number, (result, column) in enumerate(zip(results, expected, strict=True)):
        name = row.results[number] if number < len(row.results) else "scc"
        got = bits_of(result, len(cases))
        if row.name in SIGN_OF_ZERO_OPEN:
            got = np.where(got == SIGN_OF_ZERO_OPEN[row.name], got.dtype.type(0), got)
        right &= agree(got, column, name, (DECLARED_OF_OWN | ROUNDED_TWICE).get(row.name, 0.0))
    if row.name in DECLARED_OF_OWN:
        magnitude = np.array(columns[0], np.uint32) & 0x7FFFFFFF
        right |= (magnitude > 0) & (magnitude < 0x00800000)
    return [case for case, good in zip(cases, right, strict=True) if not good]


@pytest.mark.parametrize("name", sorted(RECORDED["cases"]))
def test_an_instruction_does_what_amd_says(name: str) -> None:
    assert disagreements(BY_NAME[name], RECORDED["cases"][name]) == []


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("v_sub_f32", lambda m, a, b: b - a),
        ("v_lshl_add_u32", lambda m, a, n, b: (a << (n & 31)) | b),
        ("v_max_f32", lambda m, a, b: m.where(a > b, a, b)),
        ("s_ashr_i32", lambda m, a, n: m.lshr(a, n & 31)),
        ("v_mbcnt_hi_u32_b32", BY_NAME["v_mbcnt_lo_u32_b32"].meaning),
        ("v_cmp_nge_f32", lambda m, a, b: a < b),
    ],
)
def test_a_meaning_that_is_a_little_wrong_is_seen(name: str, wrong: Any) -> None:
    assert disagreements(attrs.evolve(BY_NAME[name], meaning=wrong), RECORDED["cases"][name])


def test_a_condition_bit_that_is_wrong_is_seen() -> None:
    row = attrs.evolve(BY_NAME["s_add_i32"], scc=BY_NAME["s_add_u32"].scc)
    assert disagreements(row, RECORDED["cases"]["s_add_i32"])


def test_every_instruction_that_computes_has_recorded_cases() -> None:
    """But one whose text the recorder does not read, and those of two halves, which are those of one done twice."""
    single = {name for name, row in BY_NAME.items() if not row.packed and "_cmpx_" not in name}
    assert single - set(RECORDED["cases"]) == set(BY_HAND)
    assert len(RECORDED["cases"]) > 390


def test_a_comparison_that_writes_exec_compares_as_the_other_does() -> None:
    names = [name for name in BY_NAME if "_cmpx_" in name]
    assert len(names) == 99
    assert all(BY_NAME[name].meaning is BY_NAME[name.replace("cmpx", "cmp")].meaning for name in names)


def code_of(words: str) -> bytes:
    return b"".join(int(word, 16).to_bytes(4, "little") for word in words.split())


@pytest.mark.parametrize("words", sorted(RECORDED["words"]))
def test_words_are_decoded_as_amd_encodes_them(words: str) -> None:
    """One of each form that compilers made of MLA's kernels: the name, and every field that has one on both sides."""
    name, fields = RECORDED["words"][words]
    [encoded] = decoded(code_of(words))
    found = declared(encoded)
    assert found is not None and found.name in (name, f"{name}_b32")
    mine = {**encoded.fields, "op": encoded.opcode, "literal": encoded.literal}
    if encoded.modifier:
        mine["src0"] -= 256
        fields.pop("src0")
    theirs = {RENAMED.get(field, field): value for field, value in fields.items()}
    common = {field for field in theirs if field in mine}
    assert {"op"} < common
    assert {field: mine[field] for field in common} == {field: theirs[field] for field in common}


def test_no_two_instructions_have_one_encoding() -> None:
    numbers = [(row.format, row.opcode) for table in TABLES for row in table]
    assert len(numbers) == len(set(numbers)) > 300


def number(bits: int, name: str) -> float:
    return float(np.array(bits, f"u{int(name[1:]) // 8}").view(f"f{int(name[1:]) // 8}"))


def bits(value: float, name: str) -> int:
    with np.errstate(all="ignore"):
        return int(np.array(value, f"f{int(name[1:]) // 8}").view(f"u{int(name[1:]) // 8}"))


def signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (value >> width - 1 << width)


def parts(value: int, width: int) -> list[int]:
    return [value >> low & (1 << width) - 1 for low in range(0, 32, width)]


def permuted(high: int, low: int, selector: int) -> int:
    """Return four bytes as AMD's text of V_PERM_B32 has them, written by hand."""
    data = [(high << 32 | low) >> 8 * number & 0xFF for number in range(8)]
    signs = {8: 1, 9: 3, 10: 5, 11: 7}
    result = 0
    for position in range(4):
        choice = selector >> 8 * position & 0xFF
        byte = data[choice] if choice < 8 else 0xFF * (data[signs[choice]] >> 7) if choice < 12 else 0
        result |= (0xFF if choice > 12 else byte) << 8 * position
    return result


def apart(width: int, shift: int = 0) -> Any:
    def expected(a: int, b: int, c: int) -> int:
        total = sum(abs(x - y) for x, y in zip(parts(a, width), parts(b, width), strict=True))
        return c + (total << shift) & 0xFFFFFFFF

    return expected


def kept(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def shifted(low: int, high: int) -> Any:
    def expected(a: int, b: int, n: int) -> int:
        x, y = (kept(signed(each, 32) >> (n & 31), low, high) & 0xFF for each in (a, b))
        return x | y << 8

    return expected


def toward_zero(bits_32: int) -> int:
    """Return f32 as f16 by trying its neighbours: the largest one that is not further from zero."""
    value = number(bits_32, "f32")
    if np.isnan(value):
        return 0x7E00
    if np.isinf(value):
        return 0x7C00 if value > 0 else 0xFC00
    near = bits(min(abs(value), 65504.0), "f16")
    size = near if number(near, "f16") <= abs(value) else near - 1
    return size | (0x8000 if np.signbit(value) else 0)


def extreme(function: Any) -> Any:
    def expected(*operands: int) -> int:
        values = [number(each, "f32") for each in operands]
        if any(np.isnan(value) for value in values):
            return 0x7FC00000
        wanted = function(values)
        zeros = [each for each, value in zip(operands, values, strict=True) if value == 0]
        if wanted == 0:
            return (
                function(zeros)
                if function is min and 0x80000000 not in zeros
                else (0x80000000 if function is min or 0 not in zeros else 0)
            )
        return bits(wanted, "f32")

    return expected


def mantissa(name: str) -> Any:
    return lambda x: bits(math.frexp(number(x, name))[0], name) if np.isfinite(number(x, name)) else x


def power(name: str, width: int) -> Any:
    def expected(x: int) -> int:
        value = number(x, name)
        return (math.frexp(value)[1] if np.isfinite(value) else 0) & (1 << width) - 1

    return expected


def of_turns(function: Any, name: str) -> Any:
    def expected(x: int) -> int:
        turns = number(x, name)
        return (
            bits(function(2 * math.pi * (turns - round(turns))), name) if np.isfinite(turns) else bits(math.nan, name)
        )

    return expected


def mixed(to: str) -> Any:
    def expected(a: int, b: int, c: int) -> int:
        x, y, z = (number(each, "f32") for each in (a, b, c))
        if not all(map(np.isfinite, (x, y, z))):
            return bits(float(np.float64(x) * np.float64(y) + np.float64(z)), to)
        with np.errstate(over="ignore"):
            exact = np.float32(x * y + z)  # exact in f64 for the small numbers that are drawn
        return bits(float(exact), to)

    return expected


def last_step(name: str, power: int) -> Any:
    """A quotient c and its correction a * b, scaled back: the nearest number to the exact one, among three."""
    one = number(bits(1.0, name), name)

    def expected(a: int, b: int, c: int, scale: int) -> int:
        values = [number(each, name) for each in (a, b, c)]
        if not all(map(math.isfinite, values)) or 0 in values:
            plain = float(np.float64(values[0]) * np.float64(values[1]) + np.float64(values[2]))
            if not plain or not math.isfinite(plain):
                return bits(plain, name)
        x, y, z = map(Fraction, values)
        up = abs(number(c, name)) >= 2 * one
        exact = (x * y + z) * (Fraction(2) ** (power if up else -power) if scale else 1)
        kind = np.float32 if name == "f32" else np.float64
        if abs(exact) > Fraction(float(np.finfo(kind).max)):
            return bits(math.inf if exact > 0 else -math.inf, name)
        near = kind(float(exact))
        around = [np.nextafter(near, kind(-np.inf)), near, np.nextafter(near, kind(np.inf))]
        finite = [each for each in around if np.isfinite(each)]
        even = sorted(finite, key=lambda each: (abs(Fraction(float(each)) - exact), bits(float(each), name) & 1))
        return bits(float(even[0]), name)

    return expected


BY_HAND: dict[str, Any] = {
    "v_perm_b32": permuted,
    **{f"s_wqm_b{n}": lambda x, n=n: sum(0xF << i for i in range(0, n, 4) if x >> i & 15) for n in (32, 64)},
    **{f"s_quadmask_b{n}": lambda x, n=n: sum(1 << i // 4 for i in range(0, n, 4) if x >> i & 15) for n in (32, 64)},
    **{f"s_bitset0_b{n}": lambda x, old, n=n: old & ~(1 << x % n) for n in (32, 64)},
    **{f"s_bitset1_b{n}": lambda x, old, n=n: old | 1 << x % n for n in (32, 64)},
    "v_div_fmas_f32": last_step("f32", 64),
    "v_div_fmas_f64": last_step("f64", 128),
    "v_sat_pk_u8_i16": lambda x: kept(signed(x, 16), 0, 255) | kept(signed(x >> 16, 16), 0, 255) << 8,
    "v_sad_u8": apart(8),
    "v_sad_hi_u8": apart(8, 16),
    "v_sad_u16": apart(16),
    "v_sad_u32": apart(32),
    "v_ashr_pk_i8_i32": shifted(-128, 127),
    "v_ashr_pk_u8_i32": shifted(0, 255),
    "v_minimum3_f32": extreme(min),
    "v_maximum3_f32": extreme(max),
    "v_cvt_pkrtz_f16_f32": lambda a, b: toward_zero(a) | toward_zero(b) << 16,
    **{f"v_frexp_mant_{name}": mantissa(name) for name in ("f16", "f32", "f64")},
    "v_frexp_exp_i16_f16": power("f16", 16),
    **{f"v_frexp_exp_i32_{name}": power(name, 32) for name in ("f32", "f64")},
    **{
        f"v_{word}_{name}": of_turns(f, name)
        for word, f in (("sin", math.sin), ("cos", math.cos))
        for name in ("f16", "f32")
    },
    "v_mad_mix_f32": mixed("f32"),
    "v_mad_mixlo_f16": mixed("f16"),
    "v_mad_mixhi_f16": mixed("f16"),
}
"""What the recorder does not read, written by hand from AMD's texts, of operands as numbers."""
NEAR = {"v_sin_f16": 2, "v_cos_f16": 2, "v_sin_f32": 2, "v_cos_f32": 2}
"""Angles may differ in the last places."""


def drawn(name: str, generator: np.random.Generator) -> int:
    if name in ("i16", "mask"):
        return int(generator.integers(0, 1 << 16 if name == "i16" else 2))
    if name == "i64":
        return (
            int(generator.integers(0, 1 << 62))
            & int(generator.integers(0, 1 << 62))
            & int(generator.integers(0, 1 << 62))
        )
    if name == "i32":
        return int(
            generator.choice([generator.integers(0, 1 << 32), generator.integers(0, 1 << 9), 0x80000000, 0xFFFFFF80])
        )
    special = [0.0, -0.0, 1.0, -1.0, math.nan, math.inf, -math.inf, 65519.0, 65520.0, 6.1e-5, -6.0e-8, 2.0**-149]
    value = (
        generator.choice(special) if generator.random() < 0.3 else generator.normal() * 2.0 ** generator.integers(-8, 8)
    )
    return bits(float(np.float32(value) if name == "f64" else value), name)


@pytest.mark.parametrize("name", sorted(BY_HAND))
def test_what_is_not_recorded_is_what_the_text_says(name: str) -> None:
    row, generator = BY_NAME[name], np.random.default_rng(5)
    cases = [[drawn(type_, generator) for type_ in row.operands] for _ in range(96)]
    if name == "v_perm_b32":
        cases = [[a, b, int(generator.integers(0, 15, 4, dtype=np.uint8).view(np.uint32)[0])] for a, b, _ in cases]
    operands = [
        lanes(list(column), TYPES[type_]) for column, type_ in zip(zip(*cases, strict=True), row.operands, strict=True)
    ]
    assert row.meaning is not None
    with np.errstate(all="ignore"):
        found = bits_of(row.meaning(NumpyAlgebra.of_lanes(96), *operands), 96)
        expected = [BY_HAND[name](*case) for case in cases]
    same = agree(found, expected, row.results[0], 0.0)
    if name in NEAR:
        same |= np.abs(found.astype(np.int64) - np.array(expected, np.int64)) <= NEAR[name]
        same |= np.abs(np.array([number(int(each), row.results[0]) for each in found])) < 1e-6
    if name == "v_cvt_pkrtz_f16_f32":  # a NaN's payload is not told
        same |= np.array([any(np.isnan(number(each, "f32")) for each in case) for case in cases])
    assert [case for case, good in zip(cases, same, strict=True) if not good] == []


@pytest.mark.parametrize("selector", [0x03020100, 0x07060504, 0x05040100, 0x07030602, 0x0C0C0400, 0x0D080B0A])
def test_bytes_are_permuted_alike_in_every_lane(selector: int) -> None:
    """With one selector for all, which takes a shorter way where it picks bytes alone."""
    generator = np.random.default_rng(5)
    high, low = (generator.integers(0, 1 << 32, 64, dtype=np.uint64).astype(np.uint32) for _ in range(2))
    held = NumpyLane(TYPES["i32"], np.array(selector, np.uint32))
    row = BY_NAME["v_perm_b32"]
    assert row.meaning is not None
    lane = [NumpyLane(TYPES["i32"], each) for each in (high, low)]
    found = row.meaning(NumpyAlgebra.of_lanes(64), *lane, held)
    assert found.data.tolist() == [permuted(int(a), int(b), selector) for a, b in zip(high, low, strict=True)]
