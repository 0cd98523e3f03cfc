"""Declared instructions against AMD's own pseudo-code and encodings, recorded by `tools/record_isa_vectors.py`.

The recorder evaluates the texts by itself; nothing of ours is in what it computes.
"""

from __future__ import annotations

import json
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
"""Transcendentals are what the op table declares of them: so near to what the text says, where their operand is no
denormal."""
SIGN_OF_ZERO_OPEN = {"v_rndne_f32": 0x80000000, "v_rndne_f64": 1 << 63}
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
        right &= agree(got, column, name, DECLARED_OF_OWN.get(row.name, 0.0))
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
    single = {name for name, row in BY_NAME.items() if not row.packed}
    assert single - set(RECORDED["cases"]) == {"v_perm_b32"}
    assert len(RECORDED["cases"]) > 280


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


def test_bytes_are_permuted_as_the_text_says() -> None:
    generator = np.random.default_rng(5)
    high, low = (generator.integers(0, 1 << 32, 64, dtype=np.uint64).astype(np.uint32) for _ in range(2))
    selector = generator.integers(0, 15, (64, 4), dtype=np.uint8).view(np.uint32)[:, 0]
    row = BY_NAME["v_perm_b32"]
    assert row.meaning is not None
    found = row.meaning(NumpyAlgebra.of_lanes(64), *(NumpyLane(TYPES["i32"], each) for each in (high, low, selector)))
    expected = [permuted(int(a), int(b), int(s)) for a, b, s in zip(high, low, selector, strict=True)]
    assert found.data.tolist() == expected
