"""Moves and roundings within registers: transposes, narrow floats, reductions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from kinfolk.errors import IRError
from kinfolk.ir.ops import arithmetic, vector
from kinfolk.ir.types import BF16, F16, F32, I16
from kinfolk.tile.narrow import narrow, narrow_weights
from kinfolk.tile.reduction import across_lanes, in_lane
from kinfolk.tile.transpose import transpose_16_bit

NUMPY = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}
RANDOM = np.random.default_rng(7)


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (2, 4), (4, 2), (4, 4), (8, 8), (4, 8)])
@pytest.mark.parametrize("element", [BF16, F16, I16], ids=str)
def test_a_block_is_transposed(evaluate, per_lane_input, rows, columns, element):
    block = RANDOM.integers(0, 1 << 16, (64, rows, columns), dtype=np.uint16)
    inputs = [per_lane_input(element, block[:, row]) for row in range(rows)]
    result = evaluate(lambda *values: transpose_16_bit(values), *inputs)
    assert len(result.values) == columns
    for column, value in enumerate(result.values):
        assert np.array_equal(value, block[:, :, column])
    permutes = [op.name for op in result.kernel.walk()].count("core.byte_permute")
    assert permutes == columns * rows // 2


@pytest.mark.parametrize(
    ("element", "rows", "columns"), [(BF16, 3, 4), (BF16, 2, 3), (F32, 2, 2), (BF16, 2, 1)], ids=str
)
def test_other_blocks_are_refused(evaluate, per_lane_input, element, rows, columns):
    held = np.zeros((64, columns), np.float32) if columns > 1 else np.zeros(64, np.float32)
    inputs = [per_lane_input(element, held)] * rows
    with pytest.raises(IRError, match=f"even number of 16-bit elements, got {rows} of"):
        evaluate(lambda *values: transpose_16_bit(values), *inputs)


def weights():
    """Return f32 numbers from 0 up: random, powers of two, ties between two bf16 and their neighbours."""
    halves = (RANDOM.integers(0x3000, 0x4600, 64, dtype=np.uint32) << 16) | 0x8000
    return np.concatenate(
        [
            RANDOM.random(64, np.float32),
            np.exp2(-RANDOM.integers(0, 126, 64).astype(np.float32)),
            halves.view(np.float32),
            (halves - 1).view(np.float32),
            (halves + 1).view(np.float32),
            np.zeros(64, np.float32),
        ]
    ).reshape(6, 64)


@pytest.mark.parametrize("element", [BF16, F16], ids=str)
def test_narrow_rounds_to_nearest_even(evaluate, per_lane_input, element):
    values = np.concatenate([weights(), -weights()])
    inputs = [per_lane_input(F32, row) for row in values]
    (packed,) = evaluate(lambda *given: [narrow(given, element)], *inputs).values
    with np.errstate(over="ignore"):
        expected = values.T.astype(NUMPY[element.name])
    assert np.array_equal(packed, expected.view(np.uint16))


def test_weights_in_bf16_round_ties_up(evaluate, per_lane_input):
    values = weights()
    inputs = [per_lane_input(F32, row) for row in values]
    (packed,) = evaluate(lambda *given: [narrow_weights(given, BF16)], *inputs).values
    even = values.T.astype(ml_dtypes.bfloat16).view(np.uint16)
    bits = values.T.view(np.uint32)
    is_tie = (bits & 0xFFFF) == 0x8000
    assert np.array_equal(packed[~is_tie], even[~is_tie])
    assert np.array_equal(packed[is_tie], (bits[is_tie] >> 16) + 1)
    assert (packed[is_tie] != even[is_tie]).any()  # the two roundings do differ on these inputs


def test_weights_in_f16_and_a_single_pair(evaluate, per_lane_input):
    values = weights()
    inputs = [per_lane_input(F32, row) for row in values[:2]]
    (f16,) = evaluate(lambda *given: [narrow_weights(given, F16)], *inputs).values
    assert np.array_equal(f16, values[:2].T.astype(np.float16).view(np.uint16))
    (bf16,) = evaluate(lambda *given: [narrow_weights(given, BF16)], *inputs).values
    assert np.array_equal(bf16, values[:2].T.astype(ml_dtypes.bfloat16).view(np.uint16))


@pytest.mark.parametrize(
    ("size", "masks"), [(64, (16, 32)), (64, (1, 2, 4, 8, 16, 32)), (32, (1, 2, 4, 8, 16)), (32, ())]
)
def test_lanes_are_combined_over_the_masks(evaluate, per_lane_input, size, masks):
    values = RANDOM.integers(-1000, 1000, (size, 3)).astype(np.float32)

    def body(given):
        own = in_lane([vector.extract(given, index=index) for index in range(3)], arithmetic.fadd)
        return [across_lanes(own, masks, arithmetic.fmax), across_lanes(own, masks, arithmetic.fadd)]

    result = evaluate(body, per_lane_input(F32, values), wave_size=size)
    own = values.sum(axis=1)
    lane = np.arange(size)
    for number in range(size):
        group = own[(lane & ~sum(masks)) == (number & ~sum(masks))]
        assert result.floats(0)[number] == group.max()
        assert result.floats(1)[number] == group.sum()
