"""The matrix atoms of gfx950 against published mappings and LLVM's own names, not against our table."""

from __future__ import annotations

import re

import attrs
import numpy as np
import pytest

from kinfolk.errors import IRError
from kinfolk.ir import build_kernel, constant
from kinfolk.ir.meaning import Matrix
from kinfolk.ir.ops import lanes, memory
from kinfolk.ir.types import F32, PointerType, VectorType
from kinfolk.matrix import NoSuchAtom
from kinfolk.parameters import Parameter
from kinfolk_gfx950.matrix import matrix_catalog
from kinfolk_gfx950.plugin import arch

ATOMS = {atom.op.name.partition(".")[2]: atom for atom in matrix_catalog()}

# What AMD's matrix instruction calculator prints (matrix_calculator.py --architecture cdna3 --register-layout), as
# operand: (lane, element of the lane, row, column). The f32 shapes are those of AMD's "matrix cores" lab note, whose
# programs load A[thread x][thread y] and B[thread y][thread x] with x the lane within a row of lanes.
NARROW_16 = {"a": [(37, 1, 5, 9), (37, 3, 5, 11)], "b": [(39, 1, 9, 7), (39, 2, 10, 7)]}
NARROW_32 = {"a": [(37, 1, 5, 5), (37, 3, 5, 7)], "b": [(39, 1, 5, 7), (39, 2, 6, 7)]}
BYTES_16 = {"a": [(37, 1, 5, 17), (37, 7, 5, 23)], "b": [(39, 1, 17, 7), (39, 4, 20, 7)]}
BYTES_32 = {"a": [(37, 1, 5, 9), (37, 7, 5, 15)], "b": [(39, 1, 9, 7), (39, 4, 12, 7)]}
WORDS_16 = {"a": [(37, 0, 5, 2)], "b": [(39, 0, 2, 7)]}
WORDS_32 = {"a": [(37, 0, 5, 1)], "b": [(39, 0, 1, 7)]}
RESULT_16 = [(23, 1, 5, 7), (23, 3, 7, 7), (45, 1, 9, 13), (45, 2, 10, 13)]
RESULT_32 = [(23, 1, 1, 23), (23, 8, 16, 23), (23, 15, 27, 23), (45, 1, 5, 13), (45, 15, 31, 13)]
# The shapes of twice the k, which the calculator does not know: 8 neighbouring k a lane, as Triton's
# mfmaDotToLinearLayout (kWidth 8) has them; they are those of the 8-bit shapes.
PUBLISHED = {
    **{f"mfma_f32_16x16x32_{type_}": BYTES_16 for type_ in ("f16", "bf16")},
    **{f"mfma_f32_32x32x16_{type_}": BYTES_32 for type_ in ("f16", "bf16")},
    "mfma_f32_16x16x16_f16": NARROW_16,
    "mfma_f32_32x32x8_f16": NARROW_32,
    "mfma_f32_16x16x16_bf16": NARROW_16,
    "mfma_f32_32x32x8_bf16": NARROW_32,
    **{f"mfma_f32_16x16x32_{a}_{b}": BYTES_16 for a in ("fp8", "bf8") for b in ("fp8", "bf8")},
    **{f"mfma_f32_32x32x16_{a}_{b}": BYTES_32 for a in ("fp8", "bf8") for b in ("fp8", "bf8")},
    "mfma_f32_16x16x4_f32": WORDS_16,
    "mfma_f32_32x32x2_f32": WORDS_32,
}
TYPES = {"f16": "f16", "bf16": "bf16", "fp8": "f8E4M3FN", "bf8": "f8E5M2", "f32": "f32"}


def published(name):
    return PUBLISHED[name] | {"c": RESULT_16 if "_16x16x" in name else RESULT_32}


def disagreements(shape: Matrix, name):
    return [
        (operand, lane, slot)
        for operand, cells in published(name).items()
        for lane, slot, row, column in cells
        if (getattr(shape, operand).rows[lane, slot], getattr(shape, operand).columns[lane, slot]) != (row, column)
    ]


def test_the_table_and_what_is_published_name_the_same_atoms():
    assert ATOMS.keys() == PUBLISHED.keys()


@pytest.mark.parametrize("name", ATOMS)
def test_every_register_holds_what_amd_says(name):
    assert disagreements(ATOMS[name].shape, name) == []


@pytest.mark.parametrize("name", ATOMS)
def test_the_check_sees_exchanged_operands_and_another_row_order(name):
    """The controls: A and B exchanged, and the row order a public emulator has for 32 by 32 (16 rows a half wave)."""
    shape = ATOMS[name].shape
    assert disagreements(attrs.evolve(shape, a=shape.b, b=shape.a), name)
    lane, slot = np.arange(64)[:, None], np.arange(shape.c.slots)[None, :]
    wrong_rows = shape.c.slots * (lane // shape.n) + slot
    wrong = attrs.evolve(shape, c=attrs.evolve(shape.c, rows=wrong_rows))
    assert bool(disagreements(wrong, name)) == (shape.n == 32), "for 16 by 16 that order is the right one"


@pytest.mark.parametrize("name", ATOMS)
def test_a_name_says_its_shape_and_types(name):
    shape = ATOMS[name].shape
    kind, accumulated, size, *types = name.split("_")
    assert (kind, accumulated) == ("mfma", "f32")
    assert size == f"{shape.m}x{shape.n}x{shape.k}"
    a, b = types if len(types) == 2 else types * 2
    assert (shape.a_type.name, shape.b_type.name, shape.c_type.name) == (TYPES[a], TYPES[b], "f32")


# Triton, lib/Dialect/TritonGPU/IR/LinearLayoutConversions.cpp: kWidth neighbouring k a lane, lanes along m or n.
FORMULAS = {
    (16, 8): "(lane % 16, 8 * (lane // 16) + e)",
    (32, 8): "(lane % 32, 8 * (lane // 32) + e)",
    (16, 4): "(lane % 16, 4 * (lane // 16) + e)",
    (32, 4): "(lane % 32, 4 * (lane // 32) + e)",
    (16, 1): "(lane % 16, lane // 16)",
    (32, 1): "(lane % 32, lane // 32)",
}


@pytest.mark.parametrize("name", ATOMS)
def test_every_lane_and_slot_is_where_the_published_formula_says(name):
    shape = ATOMS[name].shape
    for lane in range(64):
        for e in range(shape.a.slots):
            along, k = eval(FORMULAS[shape.m, shape.a.slots], {"lane": lane, "e": e})
            assert (shape.a.rows[lane, e], shape.a.columns[lane, e]) == (along, k)
            assert (shape.b.columns[lane, e], shape.b.rows[lane, e]) == (along, k)
        for r in range(shape.c.slots):
            row = 4 * (lane // 16) + r if shape.m == 16 else 8 * (r // 4) + 4 * (lane // 32) + r % 4
            assert (shape.c.rows[lane, r], shape.c.columns[lane, r]) == (row, lane % shape.n)


@pytest.mark.parametrize("name", ATOMS)
def test_passes_follow_from_the_published_rate(name):
    """Operations a clock and compute unit: 256 in f32, 4096 in 16 and 8 bits, of which the shapes that gfx942 has too
    reach half in 16 bits; a pass is 4 clocks."""
    shape, width = ATOMS[name].shape, ATOMS[name].shape.a_type.bits
    rate = 256 if width == 32 else 2048 if shape.a.slots == 4 else 4096
    operations = 2 * shape.m * shape.n * shape.k
    assert ATOMS[name].passes == operations // (rate // arch().simds_per_cu) // 4


@pytest.mark.parametrize("name", ATOMS)
def test_scattered_operands_multiply_to_the_product(name):
    """Gathering A and B by their maps, multiplying, and scattering by the map of C is the product of integers."""
    shape = ATOMS[name].shape
    generator = np.random.default_rng(7)
    A, B = generator.integers(-3, 4, (shape.m, shape.k)), generator.integers(-3, 4, (shape.k, shape.n))
    a, b = A[shape.a.rows, shape.a.columns], B[shape.b.rows, shape.b.columns]
    gathered_a, gathered_b = np.full(A.shape, 99), np.full(B.shape, 99)
    gathered_a[shape.a.rows, shape.a.columns] = a
    gathered_b[shape.b.rows, shape.b.columns] = b
    registers = (gathered_a @ gathered_b)[shape.c.rows, shape.c.columns]
    D = np.zeros((shape.m, shape.n), int)
    D[shape.c.rows, shape.c.columns] = registers
    assert (D == A @ B).all()


def product(name, **attributes):
    """A kernel that multiplies twice into one accumulator that starts as a constant."""
    atom = ATOMS[name]
    shape = atom.shape

    def body(a, b, d):
        lane = lanes.lane_id()
        left = memory.load(memory.offset(a, lane * shape.a.slots), count=shape.a.slots, alignment=4)
        right = memory.load(memory.offset(b, lane * shape.b.slots), count=shape.b.slots, alignment=4)
        total = atom(left, right, constant(0.0, VectorType(F32, shape.c.slots)))
        total = atom(left, right, total)
        memory.store(memory.offset(d, lane * shape.c.slots), total, alignment=16)

    parameters = [
        Parameter(name="a", type=PointerType(shape.a_type), alignment=16),
        Parameter(name="b", type=PointerType(shape.b_type), alignment=16),
        Parameter(name="d", type=PointerType(F32), access="write", alignment=16),
    ]
    return build_kernel("k", parameters, arch=arch(), block=64, attributes=attributes, body=body)


@pytest.mark.compile
@pytest.mark.parametrize("name", ATOMS)
def test_every_atom_is_the_instruction_of_its_name(llvm, name):
    assembly = llvm.assembly(arch().lower(product(name), None, 22))
    assert len(re.findall(rf"^\s*v_{name} ", assembly, re.MULTILINE)) == 2
    assert f"v_{name} a[" in assembly
    assert "scratch_" not in assembly


@pytest.mark.compile
@pytest.mark.parametrize("name", ["mfma_f32_16x16x32_bf16", "mfma_f32_32x32x16_bf16"])
def test_accumulators_can_be_plain_registers(llvm, name):
    module = arch().lower(product(name, accumulators="vgpr", workgroups_per_cu=2), None, 22)
    assembly = llvm.assembly(module)
    assert re.search(rf"v_{name} v\[\d+:\d+\], v\[\d+:\d+\], v\[\d+:\d+\], 0", assembly)
    assert "v_accvgpr" not in assembly


def test_both_generations_spell_an_atom_alike():
    texts = [arch().lower(product("mfma_f32_16x16x32_fp8_bf8"), None, generation).text for generation in (20, 22)]
    calls = [re.findall(r"call .*mfma.*\)", text) for text in texts]
    assert calls[0] == calls[1] and len(calls[0]) == 2
    assert all("i64 " in call for call in calls[0])


def test_an_atom_takes_its_own_fragments_only():
    atom = ATOMS["mfma_f32_16x16x16_bf16"]

    def body(a, d):
        fragment = memory.load(a, count=4, alignment=4)
        memory.store(d, atom(fragment, fragment, constant(0.0, VectorType(F32, 16))), alignment=16)

    parameters = [
        Parameter(name="a", type=PointerType(atom.shape.a_type), alignment=16),
        Parameter(name="d", type=PointerType(F32), access="write", alignment=16),
    ]
    with pytest.raises(IRError, match="operand c is vector<4xf32>, got vector<16xf32>"):
        build_kernel("k", parameters, arch=arch(), block=64, body=body)


def test_an_atom_is_found_by_shape_and_types():
    catalog = arch().matrix
    assert catalog.find(m=16, n=16, a="bf16") is ATOMS["mfma_f32_16x16x32_bf16"], "of several the one of largest k"
    assert catalog.find(m=16, n=16, k=16, a="bf16") is ATOMS["mfma_f32_16x16x16_bf16"]
    assert catalog.find(m=32, n=32, a="f8E4M3FN", b="f8E5M2") is ATOMS["mfma_f32_32x32x16_fp8_bf8"]
    with pytest.raises(NoSuchAtom, match="no matrix atom 16x16x64 bf16"):
        catalog.find(m=16, n=16, k=64, a="bf16")
    with pytest.raises(NoSuchAtom, match="f8E4M3FNUZ x f8E4M3FNUZ"):
        catalog.find(m=16, n=16, a="f8E4M3FNUZ")
