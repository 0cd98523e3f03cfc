"""Record what instructions compute by AMD's own pseudo-code, and what their words say by AMD's own tables.

Both are in the tinygrad wheel, made from AMD's documents (`tinygrad.runtime.autogen.amd.cdna`); ours are compared with
what is recorded here in tests, which need no tinygrad. To record anew:

    python -m pip install --target /some/folder --no-deps tinygrad==0.14.0
    PYTHONPATH=/some/folder python tools/record_isa_vectors.py OBJECT...

The objects are code objects, of whose instructions one of each form is recorded as decoded; without any, those that
are recorded stay.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from isa_pseudocode import Evaluator, Value

from kinfolk_amdgcn.codeobject import read_code_object
from kinfolk_amdgcn.isa.declare import Declared
from kinfolk_amdgcn.isa.encoding import decoded
from kinfolk_amdgcn.isa.program import SCALAR, VECTOR

TARGET = Path(__file__).resolve().parent.parent / "arch/amdgcn/tests/isa_vectors.json"
CASES = 28
EQUAL = 7
"""In every so manieth case all operands are equal."""
UNREAD = {"v_perm_b32", "v_sat_pk_u8_i16", "v_sad_u8", "v_sad_hi_u8", "v_sad_u16", "v_sad_u32"}
UNREAD |= {"v_ashr_pk_i8_i32", "v_ashr_pk_u8_i32", "v_minimum3_f32", "v_maximum3_f32"}
UNREAD |= {f"v_frexp_{part}_f{bits}" for part in ("mant", "exp_i16", "exp_i32") for bits in (16, 32, 64)}
UNREAD |= {"v_cvt_pkrtz_f16_f32", *(f"v_{angle}_f{bits}" for angle in ("sin", "cos") for bits in (16, 32))}
UNREAD |= {"v_div_fmas_f32", "v_div_fmas_f64"}
UNREAD |= {f"s_{name}_b{bits}" for name in ("wqm", "quadmask", "bitset0", "bitset1") for bits in (32, 64)}
UNREAD |= {f"v_mad_mix{part}" for part in ("_f32", "lo_f16", "hi_f16")}
"""Instructions whose text has what is not evaluated here: a function within a function, functions that it does not
explain, arrays, other roundings, other factors; angles, whose product with two pi it rounds first.
"""
DIVISION = {
    "1.0 / 64'F(S1.f32) == DENORM.f64": "isDENORM(1.0F / S1.f32)",
    "S2.f32 / S1.f32 == DENORM.f32": "isDENORM(S2.f32 / S1.f32)",
    "S1.f32 == DENORM.f32": "isDENORM(S1.f32)",
    "1.0 / S1.f64 == DENORM.f64": "isDENORM(1.0 / S1.f64)",
    "S2.f64 / S1.f64 == DENORM.f64": "isDENORM(S2.f64 / S1.f64)",
    "S1.f64 == DENORM.f64": "isDENORM(S1.f64)",
    "== 0.0": "== (0.0 + 0.0)",
    "exponent(S1.f32) == 255": "isNAN(S0.f32)",
    "exponent(S1.f64) == 2047": "isNAN(S0.f64)",
}
"""How texts of division are read: what they say of denormals, of zeros of either sign, and what they say wrong (the
module `division` tells why).
"""
BOTH_SMALL = re.compile(r"(S1\.f\d\d\)\) && .*?ldexp\(S0\.f\d\d, )(\d+)", re.DOTALL)
"""The denominator of which both the reciprocal and the quotient are denormals: it is scaled down."""
WHOLE_WAVE = 64
EDGES = {
    32: [0, 1, 2, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x00800000, 0xFF800000],
    64: [0, 1, 63, 64, 0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFF, 0x100000000],
    16: [0, 1, 15, 16, 0x7FFF, 0x8000, 0xFFFF],
}
FLOATS = [0.0, -0.0, 1.0, -1.5, float("nan"), 2.5, -0.5, 3.0e38, -1.0e-40, float("inf"), float("-inf"), 65519.0]
HALVES = [0, 0x8000, 0x3C00, 0xC200, 0x7BFF, 0x0001, 0x83FF, 0x7C00, 0xFC00, 0x7E00]


def operand(name: str, number: int, position: int, generator: np.random.Generator) -> int:
    """Return the bits of one operand in a case: an edge of its type, or anything."""
    if name in ("mask", "scc"):
        return int(generator.integers(0, 2))
    if name in ("f32", "f64"):
        if number < len(FLOATS):
            value = FLOATS[(number + (0, 5, 1)[position]) % len(FLOATS)]
        elif number % 2:
            value = generator.normal() * 2.0 ** int(generator.integers(-12, 12))
        elif name == "f32":
            return int(generator.integers(0, 1 << 32)) & 0xFF7FFFFF  # no NaN but those above
        else:
            value = generator.normal() * 2.0 ** int(generator.integers(-600, 600))
        size = int(name[1:]) // 8
        return int(np.array(value, f"f{size}").view(f"u{size}"))
    if name in ("f16", "bf16"):
        return int(generator.choice(HALVES) if number < len(HALVES) else generator.integers(0, 0x7C00))
    width = int(name[1:])
    return int(
        generator.choice(np.array(EDGES[width], np.uint64))
        if number % 3
        else generator.integers(0, 1 << min(width, 62))
    )


def operands_of(row: Declared) -> tuple[str, ...]:
    """Return the types of all operands, EXEC included where it is one."""
    return (*row.operands, "i64") if row.facts.get("saves_exec") else row.operands


def inputs(row: Declared, number: int, generator: np.random.Generator) -> list[int]:
    """Return operands as the declaration takes them."""
    values = [operand(name, number, place, generator) for place, name in enumerate(operands_of(row))]
    if number % EQUAL == EQUAL - 1 and len(set(operands_of(row))) == 1:
        values = [values[0]] * len(values)
    if "bfe" in row.name:
        width = 64 if "64" in row.name else 32
        field = int(generator.integers(0, width)), int(generator.integers(0, width))
        if row.format == "SOP2":
            values[1] = field[0] | field[1] << 16
        else:
            values[1:] = field
    if row.format == "SOPK":
        immediate = int(generator.integers(0, 1 << 16))
        extended = immediate if row.facts.get("unsigned") else (immediate ^ 0x8000) - 0x8000
        values[operands_of(row).index("i32", len(values) > 1)] = extended & 0xFFFFFFFF
    return values


def results(row: Declared, values: list[int], lane: int, texts: dict[str, str]) -> list[int]:
    """Return what AMD's text makes of operands: the results, then the condition bit where there is one."""
    variables: dict[str, Value] = {"laneId": Value(lane, 32, "i"), "SCC": Value(0, 1), "VCC": Value(0, 64)}
    variables |= {"EXEC": Value(0, 64), "OPSEL": Value(0, 4)}
    names = operands_of(row)
    plain = [value for value, name in zip(values, names, strict=True) if name not in ("mask", "scc")]
    for value, name in zip(values, names, strict=True):
        if name == "mask":
            variables["VCC"] = Value(value << lane, 64)
        elif name == "scc":
            variables["SCC"] = Value(value, 1)
    if row.format == "SOPK" and row.reads_destination and not row.name.startswith("s_cmpk"):
        variables["D0"], plain = Value(plain[0], 64), plain[1:]
    elif row.reads_destination and row.format != "SOPK":
        variables["D0"], plain = Value(plain[-1], 64), plain[:-1]
    elif row.facts.get("saves_exec"):
        variables["EXEC"], plain = Value(plain[1], 64), plain[:1]
    if "literal_at" in row.facts:
        variables["SIMM32"] = variables["SIMM16"] = Value(plain.pop(row.facts["literal_at"]), 64)
    variables |= {f"S{number}": Value(value, 64) for number, value in enumerate(plain)}
    if row.name.startswith("v_div_scale"):  # the text leaves unsaid what is not scaled
        variables["D0"] = Value(plain[0], 64)
    evaluator = Evaluator(variables, texts)
    evaluator.run(texts[row.name])
    after = evaluator.variables
    found: list[int] = []
    for name in row.results:
        if name == "scc":
            found.append(after["SCC"].bits)
        elif name != "mask":
            place = "EXEC" if row.facts.get("saves_exec") else "D0"
            found.append(after[place].bits & (1 << int(name[1:])) - 1)
        elif "D1" in after:
            found.append(after["D1"].bits)
        elif row.name.startswith("v_div_scale"):
            found.append(after["VCC"].bits & 1)
        else:
            found.append(
                after["D0" if row.format in ("VOPC", "VOP3") and len(row.results) == 1 else "VCC"].bits >> lane & 1
            )
    return [*found, *([after["SCC"].bits] if row.scc is not None else [])]


def recorded(texts: dict[str, str]) -> dict[str, Any]:
    """Return cases of every instruction that has a text: operands, then results, in hex."""
    found: dict[str, Any] = {}
    for row in (*VECTOR, *SCALAR):
        if row.name in found or row.name not in texts or row.packed or row.name in UNREAD or "_cmpx_" in row.name:
            continue
        generator = np.random.default_rng(sum(row.name.encode()))
        cases: list[str] = []
        for number in range(WHOLE_WAVE if "mbcnt" in row.name else CASES):
            sample = inputs(row, number, generator)
            out = results(row, sample, number, texts)
            cases.append(" ".join(f"{value:x}" for value in (*sample, *out)))
        found[row.name] = cases
    return dict(sorted(found.items()))


def words(objects: Iterable[Path]) -> dict[str, list[Any]]:
    """Return one instruction of each form in code objects by its words: its name, and fields of it, by tinygrad."""
    from tinygrad.renderer.amd import decode_inst  # type: ignore[import-not-found]

    found: dict[tuple[Any, ...], tuple[str, list[Any]]] = {}
    for path in objects:
        for code in read_code_object(path.read_bytes()).functions.values():
            for each in decoded(code):
                key = (each.format, each.opcode, each.modifier, each.literal is not None, each.fields.get("lds"))
                if key in found:
                    continue
                instruction = decode_inst(code[each.offset : each.offset + 4 * each.dwords] + bytes(16), "cdna")
                name = re.sub("_e(32|64)$", "", instruction.op.name.lower())
                found[key] = (each.words, [name, _fields(instruction)])
    return dict(sorted(found.values()))


def _fields(instruction: Any) -> dict[str, int]:
    """Return the fields of an instruction as numbers, by the places that AMD's tables give them."""
    raw = int.from_bytes(instruction.to_bytes(), "little")
    places = {name: (field.lo, field.hi) for name, field in type(instruction)._fields}
    return {name: raw >> low & (1 << high - low + 1) - 1 for name, (low, high) in places.items() if name != "encoding"}


def main() -> None:
    from tinygrad.runtime.autogen.amd.cdna.str_pcode import PCODE  # type: ignore[import-not-found]

    texts: dict[str, str] = {}
    for op, text in PCODE.items():
        texts.setdefault(re.sub("_e(32|64)$", "", op.name.lower()), text)
    divisions = {name: text for name, text in texts.items() if name.startswith("v_div_")}
    for written, read in DIVISION.items():
        divisions = {name: text.replace(written, read) for name, text in divisions.items()}
    texts |= {name: BOTH_SMALL.sub(r"\1-\2", text) for name, text in divisions.items()}
    document = {
        "source": f"AMD's pseudo-code and encodings of CDNA as in tinygrad {version('tinygrad')}",
        "words": words(map(Path, sys.argv[1:])) if sys.argv[1:] else json.loads(TARGET.read_text())["words"],
        "cases": recorded(texts),
    }
    TARGET.write_text(json.dumps(document, indent=0) + "\n", encoding="utf-8")
    print(f"{TARGET}: {len(document['words'])} forms, {len(document['cases'])} instructions")


if __name__ == "__main__":
    main()
