"""What an AMD arch owes of its matrix atoms: each lane and slot where published data has it, and LLVM's instruction."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

import attrs
import numpy as np
import pytest

from kinfolk.arch import Arch
from kinfolk.errors import IRError
from kinfolk.ir import build_kernel, constant
from kinfolk.ir.meaning import Matrix
from kinfolk.ir.ops import lanes, memory
from kinfolk.ir.types import F32, PointerType, VectorType
from kinfolk.ir.value import Kernel, Value
from kinfolk.matrix import Atom
from kinfolk.parameters import Parameter
from kinfolk_amdgcn.plugin import AmdPlugin
from kinfolk_amdgcn.testing.llvm import Llvm

Cell = tuple[int, int, int, int]
"""Lane, element of the lane, row, column."""
Cells = Mapping[str, Sequence[Cell]]
"""Some cells of operands a and b."""

# What AMD's matrix instruction calculator prints (matrix_calculator.py --architecture cdna3 --register-layout). The f32
# shapes are those of AMD's "matrix cores" lab note, whose programs load A[thread x][thread y] and B[thread y][thread x]
# with x the lane within a row of lanes.
NARROW_16: Final[Cells] = {"a": [(37, 1, 5, 9), (37, 3, 5, 11)], "b": [(39, 1, 9, 7), (39, 2, 10, 7)]}
NARROW_32: Final[Cells] = {"a": [(37, 1, 5, 5), (37, 3, 5, 7)], "b": [(39, 1, 5, 7), (39, 2, 6, 7)]}
BYTES_16: Final[Cells] = {"a": [(37, 1, 5, 17), (37, 7, 5, 23)], "b": [(39, 1, 17, 7), (39, 4, 20, 7)]}
BYTES_32: Final[Cells] = {"a": [(37, 1, 5, 9), (37, 7, 5, 15)], "b": [(39, 1, 9, 7), (39, 4, 12, 7)]}
WORDS_16: Final[Cells] = {"a": [(37, 0, 5, 2)], "b": [(39, 0, 2, 7)]}
WORDS_32: Final[Cells] = {"a": [(37, 0, 5, 1)], "b": [(39, 0, 1, 7)]}
RESULT: Final[Mapping[int, Sequence[Cell]]] = {
    16: [(23, 1, 5, 7), (23, 3, 7, 7), (45, 1, 9, 13), (45, 2, 10, 13)],
    32: [(23, 1, 1, 23), (23, 8, 16, 23), (23, 15, 27, 23), (45, 1, 5, 13), (45, 15, 31, 13)],
}
"""Cells of the result by its width."""

DENSE: Final[Mapping[str, Cells]] = {
    **{f"mfma_f32_16x16x16_{type_}": NARROW_16 for type_ in ("f16", "bf16")},
    **{f"mfma_f32_32x32x8_{type_}": NARROW_32 for type_ in ("f16", "bf16")},
    **{f"mfma_f32_16x16x32_{a}_{b}": BYTES_16 for a in ("fp8", "bf8") for b in ("fp8", "bf8")},
    **{f"mfma_f32_32x32x16_{a}_{b}": BYTES_32 for a in ("fp8", "bf8") for b in ("fp8", "bf8")},
    "mfma_f32_16x16x4_f32": WORDS_16,
    "mfma_f32_32x32x2_f32": WORDS_32,
}
"""The dense shapes of one block, by the instructions' names."""


def published_cell(width: int, slots: int, lane: int, element: int) -> tuple[int, int]:
    """Return where A's element of a lane lies along m and along k.

    Triton, lib/Dialect/TritonGPU/IR/LinearLayoutConversions.cpp: `slots` neighbouring k a lane, lanes along m or n.
    """
    return lane % width, slots * (lane // width) + element


def published_result(width: int, lane: int, slot: int) -> tuple[int, int]:
    """Return row and column of a lane's slot of the result, by the same source."""
    row = 4 * (lane // 16) + slot if width == 16 else 8 * (slot // 4) + 4 * (lane // 32) + slot % 4
    return row, lane % width


def disagreements(shape: Matrix, cells: Cells) -> list[tuple[str, int, int]]:
    """Return operand, lane and slot of the published cells, the result's too, that a shape has elsewhere."""
    return [
        (operand, lane, slot)
        for operand, places in {**cells, "c": RESULT[shape.n]}.items()
        for lane, slot, row, column in places
        if (getattr(shape, operand).rows[lane, slot], getattr(shape, operand).columns[lane, slot]) != (row, column)
    ]


def product_kernel(arch: Arch, atom: Atom, **attributes: str | int) -> Kernel:
    """Return a kernel that multiplies twice into one accumulator that starts as a constant."""
    shape = atom.shape

    def body(a: Value, b: Value, d: Value) -> None:
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
    return build_kernel("k", parameters, arch=arch, block=arch.wave_size, attributes=attributes, body=body)


class AtomTests:
    """Subclass it as `TestAtoms` with `plugin`, the module's `PLUGIN`, and what is published of its atoms.

    `published` has some cells of each by name (`DENSE` and its like), `types` element types by the words of the names,
    `rate` the operations a clock and compute unit of a shape. Tests named `..._instruction` take the fixture `llvm`.
    """

    plugin: ClassVar[AmdPlugin]
    published: ClassVar[Mapping[str, Cells]]
    types: ClassVar[Mapping[str, str]]
    rate: ClassVar[Callable[[Matrix], int]]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run a test with the parameter `name` for each atom that is published."""
        if "name" in metafunc.fixturenames:
            metafunc.parametrize("name", sorted(self.published))

    @property
    def atoms(self) -> dict[str, Atom]:
        """The atoms by the names of their ops, without the dialect."""
        return {atom.op.name.partition(".")[2]: atom for atom in self.plugin.arch.matrix}

    def test_the_table_and_what_is_published_name_the_same_atoms(self) -> None:
        assert self.atoms.keys() == self.published.keys()

    def test_every_register_holds_what_is_published(self, name: str) -> None:
        assert disagreements(self.atoms[name].shape, self.published[name]) == []

    def test_the_check_sees_exchanged_operands_and_another_row_order(self, name: str) -> None:
        """The controls: A and B exchanged, and the row order a public emulator has for 32 by 32 (16 rows a half)."""
        shape, cells = self.atoms[name].shape, self.published[name]
        assert disagreements(attrs.evolve(shape, a=shape.b, b=shape.a), cells)
        lane, slot = np.arange(self.plugin.arch.wave_size)[:, None], np.arange(shape.c.slots)[None, :]
        wrong_rows = shape.c.slots * (lane // shape.n) + slot
        wrong = attrs.evolve(shape, c=attrs.evolve(shape.c, rows=wrong_rows))
        assert bool(disagreements(wrong, cells)) == (shape.n == 32), "for 16 by 16 that order is the right one"

    def test_every_lane_and_slot_is_where_the_published_formula_says(self, name: str) -> None:
        shape = self.atoms[name].shape
        for lane in range(self.plugin.arch.wave_size):
            for element in range(shape.a.slots):
                along, k = published_cell(shape.m, shape.a.slots, lane, element)
                assert (shape.a.rows[lane, element], shape.a.columns[lane, element]) == (along, k)
                assert (shape.b.columns[lane, element], shape.b.rows[lane, element]) == (along, k)
            for slot in range(shape.c.slots):
                place = shape.c.rows[lane, slot], shape.c.columns[lane, slot]
                assert place == published_result(shape.m, lane, slot)

    def test_a_name_says_its_shape_and_types(self, name: str) -> None:
        shape = self.atoms[name].shape
        kind, accumulated, size, *types = name.split("_")
        assert (kind, accumulated) == ("mfma", "f32")
        assert size == f"{shape.m}x{shape.n}x{shape.k}"
        a, b = types if len(types) == 2 else types * 2
        assert (shape.a_type.name, shape.b_type.name, shape.c_type.name) == (self.types[a], self.types[b], "f32")

    def test_passes_follow_from_the_published_rate(self, name: str) -> None:
        """A pass is 4 clocks of one SIMD."""
        shape = self.atoms[name].shape
        operations, simds = 2 * shape.m * shape.n * shape.k, self.plugin.arch.simds_per_cu
        assert self.atoms[name].passes == operations // (type(self).rate(shape) // simds) // 4

    def test_scattered_operands_multiply_to_the_product(self, name: str) -> None:
        """Gathering A and B by their maps, multiplying, and scattering by the map of C is the product of integers."""
        shape = self.atoms[name].shape
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

    def test_an_atom_takes_its_own_fragments_only(self, name: str) -> None:
        atom = self.atoms[name]
        other = 48 - atom.shape.c.slots  # neither of the two widths that results have, 4 and 16

        def body(a: Value, b: Value) -> None:
            left, right = memory.load(a, count=atom.shape.a.slots), memory.load(b, count=atom.shape.b.slots)
            atom(left, right, constant(0.0, VectorType(F32, other)))

        parameters = [
            Parameter(name="a", type=PointerType(atom.shape.a_type), alignment=16),
            Parameter(name="b", type=PointerType(atom.shape.b_type), alignment=16),
        ]
        with pytest.raises(IRError, match=rf"operand c is vector<{atom.shape.c.slots}xf32>, got vector<{other}xf32>"):
            build_kernel("k", parameters, arch=self.plugin.arch, block=64, body=body)

    def test_both_generations_spell_an_atom_alike(self, name: str) -> None:
        kernel = product_kernel(self.plugin.arch, self.atoms[name])
        texts = [self.plugin.arch.lower(kernel, None, generation).text for generation in (20, 22)]
        calls = [re.findall(r"call .*mfma.*\)", text) for text in texts]
        assert calls[0] == calls[1] and len(calls[0]) == 2

    @pytest.mark.compile
    def test_every_atom_is_the_instruction_of_its_name(self, llvm: Llvm, name: str) -> None:
        assembly = llvm.assembly(self.plugin.arch.lower(product_kernel(self.plugin.arch, self.atoms[name]), None, 22))
        assert len(re.findall(rf"^\s*v_{name} ", assembly, re.MULTILINE)) == 2
        assert f"v_{name} a[" in assembly
        assert "scratch_" not in assembly

    @pytest.mark.compile
    def test_accumulators_of_an_instruction_can_be_plain_registers(self, llvm: Llvm, name: str) -> None:
        kernel = product_kernel(self.plugin.arch, self.atoms[name], accumulators="vgpr", workgroups_per_cu=2)
        assembly = llvm.assembly(self.plugin.arch.lower(kernel, None, 22))
        assert re.search(rf"v_{name} v\[\d+:\d+\], v(\[\d+:\d+\]|\d+), v(\[\d+:\d+\]|\d+), 0", assembly)
        assert "v_accvgpr" not in assembly
