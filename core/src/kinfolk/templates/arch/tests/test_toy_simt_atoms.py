"""The matrix atoms: where their elements lie, and what the simulator makes of them."""

import attrs
import numpy as np
import pytest

from kinfolk.check import numpy_dtype
from kinfolk.ir import build_kernel
from kinfolk.ir.meaning import OperandMap
from kinfolk.ir.ops import lanes, memory
from kinfolk.ir.types import F32, PointerType
from kinfolk.matrix import Atom, MatrixCatalog
from kinfolk.parameters import Parameter
from kinfolk_runtime.simulator import Simulator
from kinfolk_toy_simt.atoms import MATRIX
from kinfolk_toy_simt.plugin import ARCH

ATOMS = tuple(MATRIX)
RANDOM = np.random.default_rng(11)


@pytest.mark.parametrize("atom", ATOMS, ids=str)
def test_every_element_has_exactly_one_place(atom):
    shape = atom.shape
    for operand, size in ((shape.a, (shape.m, shape.k)), (shape.b, (shape.k, shape.n)), (shape.c, (shape.m, shape.n))):
        places = sorted(zip(operand.rows.flat, operand.columns.flat, strict=True))
        assert places == [(row, column) for row in range(size[0]) for column in range(size[1])]
        assert operand.rows.shape[0] == ARCH.wave_size


def product(atom, arch=ARCH):
    """Return A, B and what the atom gives on the simulator, each lane loading and storing its slots as the maps say."""
    shape = ATOMS[0].shape
    a, b = RANDOM.integers(-8, 8, (shape.m, shape.k)), RANDOM.integers(-8, 8, (shape.k, shape.n))
    element = atom.shape.a_type

    def body(first, second, result):
        lane = lanes.lane_id()
        left = memory.load(memory.offset(first, lane * shape.a.slots), count=shape.a.slots)
        right = memory.load(memory.offset(second, lane * shape.b.slots), count=shape.b.slots)
        start = memory.load(memory.offset(result, lane * shape.c.slots), count=shape.c.slots)
        memory.store(memory.offset(result, lane * shape.c.slots), atom(left, right, start))

    parameters = (
        Parameter(name="first", type=PointerType(element), alignment=4),
        Parameter(name="second", type=PointerType(element), alignment=4),
        Parameter(name="result", type=PointerType(F32), access="readwrite", alignment=4),
    )
    kernel = build_kernel("one_product", parameters, arch=arch, block=arch.wave_size, attributes={}, body=body)
    storage = numpy_dtype(element.name)
    held = np.zeros(shape.c.rows.shape, np.float32)
    given = [
        np.ascontiguousarray(matrix[place.rows, place.columns].astype(storage))
        for matrix, place in ((a, shape.a), (b, shape.b))
    ]
    Simulator().launch(kernel, (1, 1, 1), [*given, held])
    found = np.zeros((shape.m, shape.n))
    found[shape.c.rows, shape.c.columns] = held
    return a, b, found


@pytest.mark.simulate
@pytest.mark.parametrize("atom", ATOMS, ids=str)
def test_the_product_is_the_matrix_product(atom):
    a, b, found = product(atom)
    assert np.array_equal(found, a @ b)


@pytest.mark.simulate
def test_a_wrong_place_is_seen():
    """The control: an atom that takes the slots of B in another order than the lanes have them."""
    shape = ATOMS[0].shape
    wrong = attrs.evolve(shape, b=OperandMap(shape.b.rows[:, ::-1], shape.b.columns))
    atom = Atom(attrs.evolve(ATOMS[0].op, meaning=wrong), ATOMS[0].passes)
    a, b, found = product(atom, attrs.evolve(ARCH, matrix=MatrixCatalog((atom,)), facts=ARCH.facts.declared))
    assert not np.array_equal(found, a @ b)
