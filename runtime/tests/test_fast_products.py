"""Matrix ops in both engines: every kind of element, layouts in rows of lanes and scattered ones, any bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve

from kinfolk.errors import InternalError
from kinfolk.ir import build_kernel
from kinfolk.ir.meaning import Matrix, OperandMap
from kinfolk.ir.op import OpDef
from kinfolk.ir.ops import lanes, memory
from kinfolk.ir.types import (
    BF16,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F16,
    F32,
    F64,
    I8,
    I32,
    ScalarType,
    vector,
)
from kinfolk_runtime.simulator import Simulator

BYTES = (F8E4M3FN, F8E5M2, F8E4M3FNUZ, F8E5M2FNUZ)
KINDS = [(t, t, F32) for t in (BF16, F16, F32, *BYTES)]
KINDS += [(F8E4M3FN, F8E5M2, F32), (F8E5M2FNUZ, F16, F32), (BF16, F8E5M2, F32), (I8, I8, I32)]
SHAPES = [(16, 16, 16), (32, 32, 8), (16, 16, 32), (16, 64, 4), (8, 32, 8), (32, 2, 32), (6, 32, 32)]
PRODUCTS = [(kinds, SHAPES[0]) for kinds in KINDS]
PRODUCTS += list(zip((KINDS[0], KINDS[3], KINDS[-1]) * 2, SHAPES[1:], strict=True))
"""Every kind in one shape, and every other shape in one kind: each is a function to compile."""


def never(*_: Any) -> Any:
    raise AssertionError("nothing is lowered here")


def laid_out(m: int, n: int, k: int, wave: int, kinds, scatter: bool) -> Matrix:
    """Return a product whose operands lie in rows of lanes, or anywhere."""
    random = np.random.default_rng(m + n + k)

    def laid(rows: int, columns: int, across: bool) -> OperandMap:
        places = [(row, column) for row in range(rows) for column in range(columns)]
        places = places if across else sorted(places, key=lambda place: (place[1], place[0]))
        if scatter:
            places = [places[int(one)] for one in random.permutation(len(places))]
        table = np.array(places).reshape(-1, wave, 2).transpose(1, 0, 2)
        return OperandMap(np.ascontiguousarray(table[..., 0]), np.ascontiguousarray(table[..., 1]))

    return Matrix(m, n, k, *kinds, a=laid(m, k, False), b=laid(k, n, True), c=laid(m, n, True))


def product(toy, declare, meaning: Matrix):
    """Return a kernel of one product; operands lie in memory lane by lane."""
    slots = [meaning.a.slots, meaning.b.slots, meaning.c.slots]
    multiply = OpDef(
        name="toy.product",
        operands=("a", "b", "c"),
        result=lambda types, _: (vector(meaning.c_type, slots[2]),),
        issue="matrix",
        meaning=meaning,
        lowering=never,
    )

    def body(a, b, c, d):
        t = lanes.thread_id()
        loaded = [
            memory.load(memory.offset(p, t * count), count=count) for p, count in zip((a, b, c), slots, strict=True)
        ]
        memory.store(memory.offset(d, t * slots[2]), multiply(*loaded))

    arch = evolve(toy.arch, ops=(*toy.arch.ops, multiply))
    types = (meaning.a_type, meaning.b_type, meaning.c_type)
    parameters = [declare(name, t) for name, t in zip("abc", types, strict=True)]
    parameters.append(declare("d", meaning.c_type, "write"))
    return build_kernel("product", parameters, arch=arch, block=toy.wave, body=body)


def drawn(random, type_: ScalarType, size: int, draw: int):
    """Return storage bits: 0 ordinary numbers, 1 small ones, 2 any that are finite, 3 any, 4 zeros and limits."""
    width = np.dtype(f"u{type_.bytes}")
    if draw < 2 and type_.name in ("f32", "bf16"):
        values = (random.normal(size=size) * (1.0 if draw == 0 else 2.0**-40)).astype(np.float32)
        return (values.view(np.uint32) >> (32 - type_.bits)).astype(width)
    if draw < 2 and type_ == F16:
        return (random.normal(size=size) * (1.0 if draw == 0 else 2.0**-12)).astype(np.float16).view(width)
    bits = random.integers(0, 1 << type_.bits, size, dtype=np.uint64).astype(width)
    if draw == 2 and type_ != I8:
        top = {"bf16": 0x7F80, "f16": 0x7C00, "f32": 0x7F800000}.get(type_.name, 0x7C)
        return np.where((bits & top) == top, 0, bits).astype(width)
    if draw == 4:
        half = 1 << (type_.bits - 1)
        return random.choice(np.array([0, 1, half, half + 1, half - 1, 2 * half - 1], np.uint64), size).astype(width)
    return bits


@pytest.mark.parametrize("scatter", [False, True], ids=["rows", "scattered"])
@pytest.mark.parametrize("kinds, shape", PRODUCTS, ids=lambda value: "x".join(map(str, value)))
def test_products_agree(any_toy, scatter, kinds, shape, declare):
    meaning = laid_out(*shape, any_toy.wave, kinds, scatter)
    kernel = product(any_toy, declare, meaning)
    for draw in range(5):
        left = []
        for engine in ("fast", "reference"):
            random = np.random.default_rng(draw)
            a, b = (
                drawn(random, t, map_.slots * any_toy.wave, draw)
                for t, map_ in zip(kinds, (meaning.a, meaning.b), strict=False)
            )
            c = drawn(random, meaning.c_type, meaning.c.slots * any_toy.wave, draw if kinds[2] == I32 else 0)
            given = [a, b, c, np.zeros_like(c)]
            simulator = Simulator(engine=engine)
            simulator.launch(kernel, (1, 1, 1), given)
            assert simulator.notes == ()
            left.append(given[3])
        nan = np.zeros(left[0].shape, np.bool_)
        if meaning.c_type == F32:
            nan = np.isnan(left[0].view(np.float32)) & np.isnan(left[1].view(np.float32))
        assert (nan | (left[0] == left[1])).all()


@pytest.mark.parametrize("scatter", [False, True], ids=["rows", "scattered"])
def test_integers_are_signed_and_their_sum_wraps(toy, declare, scatter):
    """Against exact sums, with an addend at both ends of i32."""
    meaning = laid_out(16, 16, 32, toy.wave, (I8, I8, I32), scatter)
    random = np.random.default_rng(3)
    a, b = (random.integers(-128, 128, shape).astype(np.int8) for shape in ((16, 32), (32, 16)))
    c = random.choice(np.array([0, 1, 2**31 - 1, -(2**31)]), (16, 16)).astype(np.int32)

    def held(matrix, map_):
        return np.ascontiguousarray(matrix[map_.rows, map_.columns])

    d = np.zeros((toy.wave, meaning.c.slots), np.int32)
    toy.run(product(toy, declare, meaning), held(a, meaning.a), held(b, meaning.b), held(c, meaning.c), d)
    exact = a.astype(object) @ b.astype(object) + c.astype(object)
    expected = ((exact + 2**31) % 2**32 - 2**31).astype(np.int64).astype(np.int32)
    assert (d == held(expected, meaning.c)).all()
    assert ((exact > 2**31 - 1) | (exact < -(2**31))).any(), "the control: some sum must wrap"


@pytest.mark.parametrize("kinds", [(F64, F64, F32), (F32, F32, F64), (I8, I8, F32), (I8, BF16, I32), (F16, F16, F16)])
def test_types_that_no_product_is_declared_for(toy, declare, kinds):
    meaning = laid_out(16, 16, 16, toy.wave, kinds, False)
    kernel = product(toy, declare, meaning)
    sizes = [map_.slots * toy.wave for map_ in (meaning.a, meaning.b, meaning.c, meaning.c)]
    given = [np.zeros(size, f"u{t.bytes}") for size, t in zip(sizes, (*kinds, kinds[2]), strict=True)]
    with pytest.raises(InternalError, match=r"toy\.product multiplies"):
        toy.run(kernel, *given)
