"""Matrix ops by their lane maps: the layout against plain matrices, the order of the sum, controls that must fail."""

from __future__ import annotations

import attrs
import ml_dtypes
import numpy as np
import pytest

from kinfolk.errors import SimulationError
from kinfolk.ir.meaning import OperandMap
from kinfolk.ir.ops import control, lanes, memory, vector
from kinfolk.ir.types import BF16, F32, VectorType
from kinfolk.matrix import Atom, MatrixCatalog

BFLOAT = ml_dtypes.bfloat16


def product(toy, declare, multiply=None, swap=False, some_lanes=False):
    """One product of fragments that lie in memory as [lane][slot]."""
    multiply = multiply or toy.multiply
    slots = 16 * 16 // toy.wave

    def body(a, b, c, d):
        place = lanes.thread_id() * slots
        left, right = (memory.load(memory.offset(source, place), count=slots) for source in (a, b))
        if swap:
            left, right = right, left
        start = memory.load(memory.offset(c, place), count=slots)

        def multiplied():
            return [multiply(left, right, start)]

        (result,) = control.if_else(lanes.thread_id() > 0, multiplied, lambda: [start]) if some_lanes else multiplied()
        memory.store(memory.offset(d, place), result)

    return toy.kernel(body, declare("a", BF16), declare("b", BF16), declare("c", F32), declare("d", F32, "write"))


def laid(matrix, map_):
    return np.ascontiguousarray(matrix[map_.rows, map_.columns])


def in_ascending_k(a, b, c):
    """The sum as it is declared: f32, one k after the other."""
    d = c.copy()
    for k in range(a.shape[1]):
        d = (d + a[:, k : k + 1].astype(np.float32) * b[k : k + 1].astype(np.float32)).astype(np.float32)
    return d


def matrices(seed=0):
    random = np.random.default_rng(seed)
    a, b = (random.normal(size=(16, 16)).astype(BFLOAT) * BFLOAT(2.0 ** random.integers(-8, 8)) for _ in range(2))
    return a, b, random.normal(size=(16, 16)).astype(np.float32)


def run(toy, kernel, meaning, a, b, c):
    d = np.zeros((toy.wave, meaning.c.slots), np.float32)
    toy.run(kernel, laid(a, meaning.a), laid(b, meaning.b), laid(c, meaning.c), d)
    matrix = np.full((16, 16), np.nan, np.float32)
    matrix[meaning.c.rows, meaning.c.columns] = d
    return matrix


@pytest.mark.parametrize("seed", range(4))
def test_the_product_is_the_product_in_the_declared_order(toy, declare, seed):
    a, b, c = matrices(seed)
    d = run(toy, product(toy, declare), toy.multiply.meaning, a, b, c)
    assert (d == in_ascending_k(a, b, c)).all()
    exact = a.astype(np.float64) @ b.astype(np.float64) + c
    scale = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64) + np.abs(c)
    assert (np.abs(d - exact) <= 17 * 2**-24 * scale).all()


def test_the_order_of_the_sum_is_seen(toy, declare):
    """Negative control: descending k gives other bits somewhere, so the test above would notice."""
    a, b, c = matrices()
    assert (in_ascending_k(a[:, ::-1], b[::-1], c) != in_ascending_k(a, b, c)).any()
    big, small = np.zeros((16, 16), BFLOAT), np.ones((16, 16), BFLOAT)
    big[:, :3] = [2.0**24, 1.0, -(2.0**24)]
    d = run(toy, product(toy, declare), toy.multiply.meaning, big, small, np.zeros((16, 16), np.float32))
    assert (d == 0).all()  # 2^24 + 1 rounds to 2^24; another order gives 1


def test_exchanged_operands_are_seen(toy, declare):
    a, b, c = matrices()
    d = run(toy, product(toy, declare, swap=True), toy.multiply.meaning, a, b, c)
    assert not np.allclose(d, in_ascending_k(a, b, c), rtol=0.1)


def test_a_layout_without_order_is_gathered(toy, declare):
    """C shuffled among lanes and slots: the result is the same matrix, the values lie elsewhere."""
    meaning = toy.multiply.meaning
    order = np.random.default_rng(5).permutation(256)
    shape = meaning.c.rows.shape
    shuffled = OperandMap(*(axis.reshape(-1)[order].reshape(shape) for axis in (meaning.c.rows, meaning.c.columns)))
    odd = attrs.evolve(toy.multiply, name="toy.odd", meaning=attrs.evolve(meaning, c=shuffled))
    toy.arch = attrs.evolve(toy.arch, matrix=MatrixCatalog((Atom(odd, 4),)))
    a, b, c = matrices()
    d = run(toy, product(toy, declare, odd), odd.meaning, a, b, c)
    assert (d == in_ascending_k(a, b, c)).all()


def test_a_product_takes_all_lanes(toy, declare):
    a, b, c = matrices()
    kernel = product(toy, declare, some_lanes=True)
    with pytest.raises(SimulationError, match="some are inactive") as caught:
        run(toy, kernel, toy.multiply.meaning, a, b, c)
    assert (caught.value.kind, caught.value.lanes) == ("lane", (0,))


def test_a_uniform_start_serves_all_lanes(toy, declare):
    def body(a, d):
        slots = 256 // toy.wave
        fragment = memory.load(memory.offset(a, lanes.thread_id() * slots), count=slots)
        zero = control.current_builder().constant(0.0, VectorType(F32, slots))
        same = vector.splat(vector.extract(memory.load(a, count=2), index=1), count=slots)
        result = toy.multiply(fragment, same, zero)
        memory.store(memory.offset(d, lanes.thread_id() * slots), result)

    a, _, _ = matrices()
    meaning = toy.multiply.meaning
    d = np.zeros((toy.wave, meaning.c.slots), np.float32)
    laid_a = laid(a, meaning.a)
    toy.run(toy.kernel(body, declare("a", BF16), declare("d", F32, "write")), laid_a, d)
    same = np.full((16, 16), laid_a.reshape(-1)[1])
    assert (d == laid(in_ascending_k(a, same, np.zeros((16, 16), np.float32)), meaning.c)).all()
