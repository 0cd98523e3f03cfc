"""Matrix instructions beyond one product of floats in f32: several blocks, integers, f64, sparse and scaled operands.

Lanes count rows of A (columns of B), then blocks, then runs along k; a run are the elements that a lane holds side by
side. D has its rows in registers and lanes: in fours by register, or one by one where elements have 64 bits.
Of sparse operands two of each four elements along k are there, and 2 bits for each say which. Scales are powers of two
of 32 neighbouring elements along k.
Sources: AMD matrix instruction calculator, --architecture cdna3 --register-layout; "AMD Instinct MI300 Instruction Set
Architecture" and its successor for CDNA4, sections "Matrix Arithmetic Instructions" and "Sparse"; LLVM's intrinsics.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import numpy as np

from kinfolk.ir.types import F32, F64, I32
from kinfolk_amdgcn.isa.declare import Declared, Table
from kinfolk_amdgcn.isa.elements import BITS, CHOSEN, elements
from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.operands import FIRST_VECTOR, Source, constant, rows_mask, vector_source
from kinfolk_amdgcn.isa.step import Given, Step
from kinfolk_amdgcn.isa.waves import LANES, Array, Waves

BLOCKS: Final = Table()
SCALED_ALONG_K: Final = 32
_RESULT: Final[dict[str, Any]] = {"f32": np.float32, "f64": np.float64, "i32": np.int32}
_TYPES: Final = {"f32": F32, "f64": F64, "i32": I32}
_STATES: Final = {"f32": 2, "f64": 2}
"""Wait states past the passes where the arch does not say them, by the type that is multiplied."""
WIDEST: Final = 8
"""Bits of the widest elements that fields choose; products of narrower ones alone take half of the passes."""
SHORTEST, STATES_OF_TWO = 2, 3
"""Passes of the shortest products, and their wait states past these, on every arch."""


@attrs.frozen
class Product:
    """What an instruction multiplies: `blocks` products of m by k and k by n, in so many passes of 4 clocks.

    With `sparse`, A holds half of its k. `halves`: the elements of a lane are two runs, of each half of k.
    """

    m: int
    n: int
    k: int
    a: str
    b: str
    result: str
    passes: int
    blocks: int = 1
    sparse: bool = False
    halves: tuple[bool, bool] = (False, False)

    def registers(self, of_a: bool) -> int:
        """Registers that a lane's share of A or B takes."""
        kept = self.k // 2 if self.sparse and of_a else self.k
        return self.m * self.blocks * kept * BITS[self.a if of_a else self.b] // (32 * LANES)

    @property
    def result_registers(self) -> int:
        """Registers that a lane's share of the result takes."""
        return self.m * self.n * self.blocks * BITS.get(self.result, 32) // (32 * LANES)


def places(product: Product) -> Array:
    """Return where in blocks, rows and columns, counted in this order, each slot of each lane lies [slots, lanes]."""
    slots = product.m * product.n * product.blocks // LANES
    slot, lane = np.arange(slots)[:, None], np.arange(LANES)[None, :]
    column, rest = lane % product.n, lane // product.n
    if product.m == 4:
        block, row = rest % product.blocks, slot + rest // product.blocks
    else:
        groups, per_block = LANES // product.n, slots // product.blocks
        block, within = slot // per_block, slot % per_block
        in_fours = 4 * groups * (within // 4) + 4 * rest + within % 4
        row = groups * within + rest if product.result == "f64" else in_fours
    return (block * product.m + row) * product.n + column


def _declare_all() -> None:
    def add(name: str, opcode: int, product: Product) -> None:
        verb = "smfmac" if product.sparse else "mfma"
        facts = {"make": block_step, "product": product}
        row = Declared(name=f"v_{verb}_{name}", format="VOP3P", opcode=opcode, kind="special", facts=facts)
        BLOCKS.add(row)

    for base, element, k in ((64, "f32", 1), (72, "f16", 4), (80, "i8", 4), (93, "bf16", 4)):
        result = "i32" if element == "i8" else "f32"
        for number, (m, blocks, passes) in enumerate(((32, 2, 16), (16, 4, 8), (4, 16, 2))):
            name = f"{result}_{m}x{m}x{k}_{blocks}b_{element}"
            add(name, base + number, Product(m, m, k, element, element, result, passes, blocks))
    for opcode, m, k, passes in ((86, 32, 16, 8), (87, 16, 32, 4), (54, 16, 64, 4), (56, 32, 32, 8)):
        add(f"i32_{m}x{m}x{k}_i8", opcode, Product(m, m, k, "i8", "i8", "i32", passes))
    add("f32_16x16x8_xf32", 62, Product(16, 16, 8, "xf32", "xf32", "f32", 4))
    add("f32_32x32x4_xf32", 63, Product(32, 32, 4, "xf32", "xf32", "f32", 8))
    add("f64_16x16x4_f64", 110, Product(16, 16, 4, "f64", "f64", "f64", 8))
    add("f64_4x4x4_4b_f64", 111, Product(4, 4, 4, "f64", "f64", "f64", 4, blocks=4))
    for name, opcode, m, k, a, b in _sparse():
        result = "i32" if a == "i8" else "f32"
        product = Product(m, m, k, a, b, result, 4 if m == 16 else 8, sparse=True)
        add(f"{result}_{m}x{m}x{k}_{name}", opcode, product)
    for opcode, m, k, passes in ((45, 16, 128, 8), (46, 32, 64, 16)):
        facts = {"make": scaled_step, "product": Product(m, m, k, "", "", "f32", passes)}
        name = f"v_mfma_scale_f32_{m}x{m}x{k}_f8f6f4"
        BLOCKS.add(Declared(name=name, format="VOP3PX", opcode=opcode, kind="special", facts=facts))


def _sparse() -> list[tuple[str, int, int, int, str, str]]:
    """Return name, opcode, m, k and element types of sparse products."""
    plain = ((98, 16, 32, "f16"), (100, 32, 16, "f16"), (102, 16, 32, "bf16"), (104, 32, 16, "bf16"))
    plain += ((106, 16, 64, "i8"), (108, 32, 32, "i8"), (90, 16, 64, "f16"), (91, 32, 32, "f16"))
    plain += ((57, 16, 64, "bf16"), (70, 32, 32, "bf16"), (58, 16, 128, "i8"), (71, 32, 64, "i8"))
    found = [(element, opcode, m, k, element, element) for opcode, m, k, element in plain]
    pairs = (("bf8", "bf8"), ("bf8", "fp8"), ("fp8", "bf8"), ("fp8", "fp8"))
    for m, k, opcodes in (
        (16, 64, (120, 121, 122, 123)),
        (32, 32, (124, 125, 126, 127)),
        (16, 128, (59, 60, 61, 67)),
        (32, 64, (75, 78, 79, 83)),
    ):
        found += [(f"{a}_{b}", opcode, m, k, a, b) for opcode, (a, b) in zip(opcodes, pairs, strict=True)]
    return found


def block_step(given: Given) -> Step:
    """Return the step of a product whose operands the instruction's name says."""
    return product_step(given, given.declared.facts["product"])


def chosen_step(given: Given, m: int, k: int, passes: int) -> Step:
    """Return the step of a product in which fields say what operands are."""
    return product_step(given, _chosen(given, Product(m, m, k, "", "", "f32", passes)))


def scaled_step(given: Given) -> Step:
    """Return the step of such a product of operands with scales, which two registers hold in a byte each."""
    product = _chosen(given, given.declared.facts["product"])
    scales = [
        vector_source(given.field(f"scale{number}"), "i32", given.registers, given.encoded.literal) for number in (0, 1)
    ]
    chosen = [given.field("scale_low") >> n & 1 | (given.field("scale_high") >> n & 1) << 1 for n in (0, 1)]
    return product_step(given, product, list(zip(scales, chosen, strict=True)))


def _chosen(given: Given, product: Product) -> Product:
    codes = given.field("cbsz"), given.field("blgp")
    if max(codes) >= len(CHOSEN):
        raise Stop("unsupported", "multiplies elements of a type that is not known")
    a, b = (CHOSEN[code] for code in codes)
    narrow = BITS[a] < WIDEST and BITS[b] < WIDEST
    passes = product.passes // 2 if narrow else product.passes
    return attrs.evolve(product, a=a, b=b, halves=(BITS[a] == WIDEST, BITS[b] == WIDEST), passes=passes)


def product_step(given: Given, product: Product, scales: list[tuple[Source, int]] | None = None) -> Step:
    """Return the step of a product; `scales` are registers and the byte of each that scales rows of A, columns of B."""
    encoded, registers = given.encoded, given.registers
    banks = encoded.fields["acc"] & 1, encoded.fields["acc"] >> 1, encoded.fields["acc_cd"]
    codes = [encoded.fields[f"src{number}"] for number in range(3)]
    if min(codes[:2]) < FIRST_VECTOR:
        raise Stop("unsupported", "multiplies what is no vector register, which is not modelled")
    widths = [product.registers(of_a) for of_a in (True, False)]
    a, b = (registers.row(codes[n] - FIRST_VECTOR, bool(banks[n]), widths[n]) for n in (0, 1))
    size = product.result_registers
    d = registers.row(encoded.fields["vdst"], bool(banks[2]), size)
    addend = None if product.sparse else constant(codes[2], _TYPES[product.result], None)
    kind, place = _RESULT[product.result], places(product)
    c = d if product.sparse else registers.row(codes[2] - FIRST_VECTOR, bool(banks[2]), size) if addend is None else -1
    index = vector_source(codes[2], "i32", registers) if product.sparse else None
    start = np.array(addend or 0, f"u{np.dtype(kind).itemsize}").view(kind)
    plain = product.result == "f64" or bool(product.halves[0]) or given.declared.facts.get("shape") is not None
    plain = plain or scales is not None
    block_sources = None if plain or product.sparse else _block_sources(given, product)
    lane_sources = None if plain else _lane_sources(given.field("blgp"))
    negative = given.field("blgp") if product.result == "f64" else 0
    if negative >> 2:
        raise Stop("unsupported", "negates what is added, which is not modelled")

    def run(w: Waves) -> None:
        if not w.all_live:
            raise Stop("unsupported", "multiplies with lanes that are not live, which is not modelled")
        left = along_k(w.v[a : a + widths[0]], product, True, given.float8)
        bits = w.v[b : b + widths[1]]
        right = along_k(bits if lane_sources is None else bits[:, :, lane_sources], product, False, given.float8)
        if index is not None:
            left = _filled(left, _index(given, product, index.read(w).data), product)
        for number, (source, byte) in enumerate(scales or ()):
            scale = np.broadcast_to(source.read(w).data, (w.count, LANES)) >> np.uint32(8 * byte) & np.uint32(0xFF)
            left, right = (_scaled(left, scale), right) if number == 0 else (left, _scaled(right, scale))
        left = -left if negative & 1 else left if block_sources is None else left[:, block_sources]
        right = -right if negative & 2 else right
        total = np.full((w.count, product.blocks * product.m * product.n), start, kind)
        if c >= 0:
            held = w.v[c : c + size].transpose(1, 2, 0)
            slots = np.ascontiguousarray(held).view(kind).transpose(0, 2, 1)
            total[:, place] = slots
        total = total.reshape(w.count, product.blocks, product.m, product.n)
        for k in range(product.k):
            total += left[:, :, k, :, None] * right[:, :, k, None, :]
        slots = total.reshape(w.count, -1)[:, place].transpose(0, 2, 1)
        w.v[d : d + size] = np.ascontiguousarray(slots).view(np.uint32).transpose(2, 0, 1)

    reads = rows_mask(a, widths[0]) | rows_mask(b, widths[1]) | (index.registers if index else 0)
    for source, _ in scales or ():
        reads |= source.registers
    return given.step(
        run,
        reads=reads,
        accumulates=rows_mask(c, size) if c >= 0 else 0,
        writes=rows_mask(d, size),
        lanes=True,
        unit="matrix",
        matrix=product.passes,
        settles=_settles(product),
        multiplies=product.m * product.n * product.k * product.blocks,
    )


def _settles(product: Product) -> int:
    """Return wait states until a result is there, 0 where that is the arch's to say: not of the shortest products."""
    if product.a in _STATES:
        return product.passes + _STATES[product.a]
    return product.passes + STATES_OF_TWO if product.passes == SHORTEST else 0


def along_k(bits: Array, product: Product, of_a: bool, encoding: str) -> Array:
    """Return A transposed, or B, as [waves, blocks, k, width] from a lane's registers [registers, waves, lanes]."""
    width, element = (product.m, product.a) if of_a else (product.n, product.b)
    if product.halves[0 if of_a else 1]:
        half = attrs.evolve(product, halves=(False, False))
        return np.concatenate([along_k(part, half, of_a, encoding) for part in np.split(bits, 2)], axis=2)
    held = elements(np.ascontiguousarray(bits.transpose(1, 2, 0)), element, encoding)
    count, run = len(held), held.shape[-1]
    groups = LANES // (width * product.blocks)
    spread = held.reshape(count, groups, product.blocks, width, run).transpose(0, 2, 1, 4, 3)
    return np.ascontiguousarray(spread).reshape(count, product.blocks, groups * run, width)


def _index(given: Given, product: Product, held: Array) -> Array:
    """Return which of four each element of A is [waves, k / 2, m]: the field chooses a set of bits of the register."""
    per_lane = product.m * product.k // 2 // LANES
    sets = 32 // (2 * per_lane)
    chosen = given.field("abid") & 3 if given.field("cbsz") == 0 else 0
    if chosen >= sets:
        raise Stop("unsupported", f"chooses set {chosen} of {sets} of its index, which is not known")
    low = 2 * per_lane * chosen + 2 * np.arange(per_lane)
    found = np.broadcast_to(held, (held.shape[0], LANES))[:, :, None] >> low.astype(np.uint32) & np.uint32(3)
    groups = LANES // product.m
    return found.reshape(-1, groups, product.m, per_lane).transpose(0, 1, 3, 2).reshape(-1, product.k // 2, product.m)


def _filled(left: Array, index: Array, product: Product) -> Array:
    """Return A [waves, 1, k, m] with zeros where nothing is, from what is there and which of four each is."""
    count = left.shape[0]
    found = np.zeros((count, product.k, product.m), left.dtype)
    wave, _, row = np.indices(index.shape)
    k = 4 * (np.arange(product.k // 2) // 2)[None, :, None] + index
    np.add.at(found, (wave, k.astype(np.int64), row), left[:, 0])
    return found[:, None]


def _scaled(operand: Array, scale: Array) -> Array:
    """Return an operand [waves, 1, k, width] times two to the scale of its row or column and part of k."""
    width = operand.shape[3]
    parts = scale.reshape(len(scale), LANES // width, width)[:, : operand.shape[2] // SCALED_ALONG_K]
    powers = np.repeat(parts.astype(np.int32) - 127, SCALED_ALONG_K, axis=1)[:, None]
    return np.where(powers == 128, np.float32(np.nan), np.ldexp(operand, powers)).astype(np.float32)


def _block_sources(given: Given, product: Product) -> Array | None:
    """Return which block of A each block multiplies, where fields say so: one of several for all of these."""
    sizes, block = given.field("cbsz"), given.field("abid") & 0b111 | (given.field("abid") & 0b1000)
    block &= (1 << sizes) - 1
    if 1 << sizes > product.blocks:
        raise Stop("unsupported", f"gives a block to {1 << sizes} of {product.blocks}, which is not known")
    return np.arange(product.blocks) >> sizes << sizes | block if sizes else None


def _lane_sources(code: int) -> Array | None:
    """Return which lane of B each lane takes by a field: of one half, one row of 16 for all, or turned by 16."""
    lane = np.arange(LANES)
    sources = (None, lane % 32, lane % 32 + 32, (lane + 16) % LANES, *(lane % 16 + 16 * row for row in range(4)))
    return sources[code]


_declare_all()
