"""Rows kept transposed in workgroup memory: what a lane reads is operand A of the steps, each element written once.

Waves run one after the other: the last one reads what all have written.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from kinfolk.errors import IRError
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import control, lanes, memory
from kinfolk.ir.types import BF16, I16, I32, VectorType
from kinfolk.tile.kept_transposed import KeptTransposed
from kinfolk.tile.layout import Layout, steps_of


def steps_for(atom, blocks):
    """Return the rows of the steps over the scores of `blocks` products of the atom, one below the other."""
    steps = steps_of(Layout.of("scores", atom.c), atom.b)
    return [step.rows + block * atom.m for block in range(blocks) for step in steps]


# the atom, blocks of keys, columns, columns read, waves, blocks of elements that a thread carries
SHAPES = {
    "one block a thread": ("32x32x8", 2, 128, 128, 8, 1),
    "two blocks a thread": ("32x32x8", 2, 128, 128, 4, 2),
    "two windows": ("32x32x8", 1, 256, 256, 8, 1),
    "small atom": ("16x16x16", 4, 64, 64, 4, 1),
    "two fragments side by side": ("32x32x8", 4, 64, 64, 8, 1),
    "one fragment, some columns read": ("32x32x8", 2, 128, 96, 8, 1),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_what_a_lane_reads_is_operand_a(evaluate, global_memory, atoms, shape):
    """Fragment j of a window is, as A[m, k], source column side_by_side * m + j in the row of k of the step."""
    name, blocks, columns, used, waves, pieces = shape
    atom = atoms[name]
    steps = steps_for(atom, blocks)
    rows = len(steps) * atom.k
    data = np.arange(rows * columns, dtype=np.uint16).reshape(rows, columns)
    source, width = global_memory(I16, data.reshape(-1)), atom.a.slots
    numbers, beside = [], []

    def body(pointer):
        kept = KeptTransposed.of(
            I16, atom, steps=steps, columns=columns, slots=1, threads=64 * waves, vector_width=8, padding=8, used=used
        )
        beside.append(kept.side_by_side)
        assert (kept.pieces, kept.width) == (pieces, width)
        view = memory.bound(pointer, constant(data.size, I32))
        start, target = kept.source(), kept.target()
        for piece in range(kept.pieces):
            block = [kept.load(view, start, piece, row) for row in range(kept.width)]
            for column, value in enumerate(kept.columns_of(block)):
                kept.store(target, piece, column, value)
        for number in range(kept.reads):
            fragment, together = kept.steps_of(number)
            numbers.extend((fragment, step) for step in together)

        def read():
            return [each for number in range(kept.reads) for each in kept.operands(kept.read(kept.address(), number))]

        nothing = constant(0, VectorType(I16, width))
        return control.if_else(lanes.wave_id().eq(waves - 1), read, lambda: [nothing] * len(numbers))

    result = evaluate(body, source, wave_size=64, waves=waves)
    assert sorted(numbers) == [(f, s) for f in range(used // atom.m) for s in range(len(steps))]
    for (fragment, step), value in zip(numbers, result.values, strict=True):
        window, j = divmod(fragment, beside[0])
        column = window * atom.m * beside[0] + beside[0] * atom.a.rows + j
        wanted = data[steps[step][atom.a.columns], column]
        assert np.array_equal(np.asarray(value)[-64:].astype(np.uint16), wanted)
    (held,) = result.workgroup
    assert len(held.writes) == data.size and set(held.writes.values()) == {1}


def test_the_product_lies_in_columns(evaluate, atoms):
    atom = atoms["32x32x8"]

    def body():
        kept = KeptTransposed.of(
            BF16, atom, steps=steps_for(atom, 2), columns=128, slots=2, threads=512, vector_width=8, padding=8
        )
        first, order = kept.columns_of_result()
        for place, fragment, slot in order:
            assert np.array_equal(first + place, kept.width * atom.c.rows[:, slot] + fragment)
        assert kept.elements * 2 == kept.tile.buffer.type.count
        return []

    evaluate(body)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"columns": 80}, "do not fill reads of 8 elements, nor windows"),
        ({"vector_width": 16, "steps": 2}, "2 steps over 128 columns do not fill reads of 16 elements"),
        ({"threads": 768}, "768 threads do not share 512 blocks of 4 by 4 elements evenly"),
        ({"shifted": True}, "do not hold neighbouring rows of the tile"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(evaluate, atoms, changes, told):
    atom = atoms["32x32x8"]
    steps = steps_for(atom, 2)[: changes.get("steps")]
    if "shifted" in changes:
        steps = [step[::-1].copy() for step in steps]
    given = {"columns": 128, "threads": 512, "vector_width": 8} | {
        name: value for name, value in changes.items() if name not in ("steps", "shifted")
    }

    def body():
        KeptTransposed.of(BF16, atom, steps=steps, slots=1, padding=8, **given)
        return []

    with pytest.raises(IRError, match=re.escape(told)):
        evaluate(body)
