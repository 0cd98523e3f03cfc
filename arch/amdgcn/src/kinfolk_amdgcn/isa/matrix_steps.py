"""Matrix instructions as steps: D = A B + C per wave, products summed in ascending k in f32, as the op table says.

A lane holds `run` elements of A along k: row = lane % M, k = run * (lane // M) + element, with run = K M / 64; B the
same with columns. A lane's register r of C and D is row 8 (r // 4) + 4 (lane // 32) + r % 4 of 32 rows, or row
4 (lane // 16) + r of 16, and column lane % N.
Products of other kinds, those whose fields say what their operands are among them, are in `matrix_blocks`.
Source: AMD matrix instruction calculator, --architecture cdna3 --register-layout.
"""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from kinfolk.check.element import numpy_dtype
from kinfolk.ir.types import F32
from kinfolk_amdgcn.isa.declare import Declared, Table
from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.float8 import float8_type
from kinfolk_amdgcn.isa.matrix_blocks import chosen_step
from kinfolk_amdgcn.isa.operands import FIRST_VECTOR, constant, rows_mask
from kinfolk_amdgcn.isa.step import Given, Step
from kinfolk_amdgcn.isa.waves import LANES, Array, Waves

MATRIX: Final = Table()
F32_STATES: Final = 2
"""Wait states past the passes of a product of f32, on every arch; those of narrower types are a fact of the arch."""


@attrs.frozen
class Shape:
    """What a matrix instruction multiplies, and how many passes of 4 clocks it takes."""

    m: int
    n: int
    k: int
    a: str
    b: str
    passes: int

    def registers(self, element: str) -> int:
        """Registers that a lane's share of A or B takes."""
        return self.m * self.k * _BYTES[element] // (4 * LANES)


_BYTES: Final = {"bf16": 2, "f16": 2, "f32": 4, "fp8": 1, "bf8": 1}


def _rows() -> None:
    rows: list[tuple[str, int, Shape]] = [
        ("16x16x32_bf16", 53, Shape(16, 16, 32, "bf16", "bf16", 4)),
        ("32x32x16_bf16", 55, Shape(32, 32, 16, "bf16", "bf16", 8)),
        ("32x32x2_f32", 68, Shape(32, 32, 2, "f32", "f32", 16)),
        ("16x16x4_f32", 69, Shape(16, 16, 4, "f32", "f32", 8)),
        ("32x32x8_f16", 76, Shape(32, 32, 8, "f16", "f16", 8)),
        ("16x16x16_f16", 77, Shape(16, 16, 16, "f16", "f16", 4)),
        ("16x16x32_f16", 84, Shape(16, 16, 32, "f16", "f16", 4)),
        ("32x32x16_f16", 85, Shape(32, 32, 16, "f16", "f16", 8)),
        ("32x32x8_bf16", 96, Shape(32, 32, 8, "bf16", "bf16", 8)),
        ("16x16x16_bf16", 97, Shape(16, 16, 16, "bf16", "bf16", 4)),
    ]
    rows.append(("16x16x128_f8f6f4", 45, Shape(16, 16, 128, "", "", 8)))
    rows.append(("32x32x64_f8f6f4", 46, Shape(32, 32, 64, "", "", 16)))
    for number, (a, b) in enumerate((("bf8", "bf8"), ("bf8", "fp8"), ("fp8", "bf8"), ("fp8", "fp8"))):
        rows.append((f"16x16x32_{a}_{b}", 112 + number, Shape(16, 16, 32, a, b, 4)))
        rows.append((f"32x32x16_{a}_{b}", 116 + number, Shape(32, 32, 16, a, b, 8)))
    for name, opcode, shape in rows:
        MATRIX.add(
            Declared(name=f"v_mfma_f32_{name}", format="VOP3P", opcode=opcode, kind="matrix", facts={"shape": shape})
        )


_rows()


def matrix_step(given: Given) -> Step:
    """Return the step of a matrix instruction."""
    encoded, registers = given.encoded, given.registers
    chosen = given.declared.facts["shape"]
    if not chosen.a:
        return chosen_step(given, chosen.m, chosen.k, chosen.passes)
    shape = _shape(given)
    widths = shape.registers(shape.a), shape.registers(shape.b), shape.m * shape.n // LANES
    banks = encoded.fields["acc"] & 1, encoded.fields["acc"] >> 1, encoded.fields["acc_cd"]
    codes = [encoded.fields[f"src{number}"] for number in range(3)]
    if min(codes[:2]) < FIRST_VECTOR:
        raise Stop("unsupported", "multiplies what is no vector register, which is not modelled")
    a, b = (registers.row(codes[number] - FIRST_VECTOR, bool(banks[number]), widths[number]) for number in (0, 1))
    addend = constant(codes[2], F32, None)
    c = registers.row(codes[2] - FIRST_VECTOR, bool(banks[2]), widths[2]) if addend is None else -1
    d = registers.row(encoded.fields["vdst"], bool(banks[2]), widths[2])
    start = None if addend is None else np.array(addend, np.uint32).view(np.float32)

    def run(w: Waves) -> None:
        if not w.all_live:
            raise Stop("unsupported", "multiplies with lanes that are not live, which is not modelled")
        left = _along_k(w.v[a : a + widths[0]], shape.m, given.float8, shape.a)
        right = _along_k(w.v[b : b + widths[1]], shape.n, given.float8, shape.b)
        total = _unpacked(w.f[c : c + widths[2]], shape) if start is None else _filled(start, w.count, shape)
        for k in range(shape.k):
            total += left[:, k, :, None] * right[:, k, None, :]
        w.f[d : d + widths[2]] = _packed(total, shape)

    accumulates = rows_mask(c, widths[2]) if addend is None else 0
    return given.step(
        run,
        reads=rows_mask(a, widths[0]) | rows_mask(b, widths[1]),
        accumulates=accumulates,
        writes=rows_mask(d, widths[2]),
        lanes=True,
        unit="matrix",
        matrix=shape.passes,
        settles=shape.passes + F32_STATES if shape.a == "f32" else 0,
        multiplies=shape.m * shape.n * shape.k,
    )


def _shape(given: Given) -> Shape:
    """Return what the instruction multiplies; stop for what is done to its operands beside that."""
    shape: Shape = given.declared.facts["shape"]
    fields = given.encoded.fields
    if fields["cbsz"] or fields["abid"] & 0b111 or fields["blgp"]:
        raise Stop("unsupported", "broadcasts or negates its operands, which is not modelled")
    return shape


def _along_k(bits: Array, width: int, encoding: str, element: str) -> Array:
    """Return A transposed, or B, as f32 [waves, k, width] from a lane's registers [registers, waves, lanes]."""
    count = bits.shape[1]
    dtype = numpy_dtype(float8_type(encoding, element) if element in ("fp8", "bf8") else element)
    by_lane = np.ascontiguousarray(bits.transpose(1, 2, 0))
    if element == "bf16":
        held = (by_lane.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    else:
        held = by_lane.view(dtype).astype(np.float32)
    run = held.shape[-1]
    spread = held.reshape(count, LANES // width, width, run).transpose(0, 1, 3, 2)
    return np.ascontiguousarray(spread.reshape(count, run * LANES // width, width))


def _filled(value: Array, count: int, shape: Shape) -> Array:
    return np.full((count, shape.m, shape.n), value, np.float32)


def _unpacked(c: Array, shape: Shape) -> Array:
    """Return C [waves, m, n] from registers [registers, waves, lanes]: blocks of four rows."""
    blocks, groups = len(c) // 4, LANES // shape.n
    parts = c.reshape(blocks, 4, c.shape[1], groups, shape.n).transpose(2, 0, 3, 1, 4)
    return np.ascontiguousarray(parts).reshape(c.shape[1], shape.m, shape.n)


def _packed(d: Array, shape: Shape) -> Array:
    """Return registers of D; the inverse of `_unpacked`."""
    groups = LANES // shape.n
    blocks = shape.m // (4 * groups)
    parts = d.reshape(d.shape[0], blocks, groups, 4, shape.n).transpose(1, 3, 0, 2, 4)
    return parts.reshape(4 * blocks, d.shape[0], LANES)
