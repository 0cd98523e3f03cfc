"""Online softmax over tiles, on lanes, against fp64 of all scores at once."""

from __future__ import annotations

import numpy as np
import pytest

from kinfolk.ir.ops import lanes, vector
from kinfolk.ir.types import F32
from kinfolk.tile.fused_softmax import FusedSoftmax
from kinfolk.tile.softmax import LOWEST, OnlineSoftmax, RowState, mask_scores, scale_accumulators
from kinfolk.tile.state import branch

RANDOM = np.random.default_rng(11)
SLOTS = 4
MASKS = (1, 2)  # a row lies in four lanes: 16 rows of 16 scores a tile
LARGEST = float(np.finfo(np.float32).max)


@pytest.fixture(params=[OnlineSoftmax, FusedSoftmax], ids=lambda kind: kind.__name__)
def attend(request, evaluate, per_lane_input):
    """Attend with one kind of softmax, or a faulty one."""

    def run(tiles, values, scale, *, kind=None, **options):
        return attended(evaluate, per_lane_input, tiles, values, scale, kind=kind or request.param, **options)

    return run


def attended(evaluate, per_lane_input, tiles, values, scale, *, kind, threshold=8.0):
    """Return (sum of weight * value / total weight, lse, maximum, number of raises) per lane.

    `tiles` and `values` are [tiles, lanes, slots]; a value meets the score in its slot.
    """

    def body(given_scale, *given):
        softmax = kind.of(given_scale, MASKS, threshold)
        state, total = softmax.start(), [given[-1] * 0.0]
        raises = lanes.lane_id() & 0
        for scores_of, values_of in zip(given[: len(tiles)], given[len(tiles) :], strict=True):
            scores = [vector.extract(scores_of, index=index) for index in range(SLOTS)]
            largest = softmax.tile_maximum(scores)
            needed = softmax.exceeds(state, largest)
            raised, factor = softmax.raise_maximum(state, largest)

            def correct(raised=raised, factor=factor, total=total[0], raises=raises):
                return raised, scale_accumulators([total], factor), raises + 1

            def keep(state=state, total=total[0], raises=raises):
                return state, [total], raises

            state, total, raises = branch(needed, correct, keep)
            state, weights = softmax.weights(state, scores)
            total[0] = total[0] + vector.pack(*weights) * values_of
        inverse, lse = softmax.finish(state)
        return [total[0] * vector.splat(inverse, count=SLOTS), lse, state.maximum, raises]

    inputs = [per_lane_input(F32, np.asarray(part, np.float32)) for part in (*tiles, *values)]
    with np.errstate(all="ignore"):
        result = evaluate(body, float(scale), *inputs)
    sums = result.values[0].view(np.float32).astype(np.float64).sum(axis=1).reshape(-1, 4).sum(axis=1)
    lse, maximum = (result.floats(index).reshape(-1, 4) for index in (1, 2))
    assert (lse == lse[:, :1]).all()  # every lane of a row has the whole
    return sums, lse[:, 0].astype(np.float64), maximum[:, 0], result.integers(3).reshape(-1, 4)[:, 0]


def reference(tiles, values, scale):
    """Return softmax-weighted sums and log-sum-exp of each row of four lanes, in fp64."""
    rows = np.concatenate([np.asarray(tile, np.float32).astype(np.float64).reshape(16, -1) for tile in tiles], axis=1)
    columns = np.concatenate([np.asarray(value, np.float64).reshape(16, -1) for value in values], axis=1)
    scaled = rows * float(np.float32(scale))
    highest = scaled.max(axis=1, keepdims=True)
    empty = np.isneginf(highest)
    weights = np.exp(scaled - np.where(empty, 0.0, highest))
    total = weights.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        out = np.where(empty, 0.0, (weights * columns).sum(axis=1, keepdims=True) / total)
        return out[:, 0], (highest + np.log(total))[:, 0]


def drawn(count=3, spread=4.0):
    tiles = RANDOM.normal(0.0, spread, (count, 64, SLOTS)).astype(np.float32)
    return tiles, RANDOM.normal(0.0, 1.0, (count, 64, SLOTS)).astype(np.float32)


def check(attend, tiles, values, scale, **options):
    """Hold the sums and LSE against fp64.

    A score's rounding and the declared exp2 (1.2e-7) leave a weight within (|exponent| + 4) * 2^-23 of itself;
    exponents below -150 weigh nothing, so 160 * 2^-23 bounds all, and 2^-23 * 16 * tiles the sums.
    """
    sums, lse, maximum, raises = attend(tiles, values, scale, **options)
    expected, expected_lse = reference(tiles, values, scale)
    bound = (160 + 16 * len(tiles)) * 2.0**-23
    assert np.all(np.abs(sums - expected) <= bound * np.abs(np.asarray(values, np.float64)).max())
    finite = np.isfinite(expected_lse)
    assert np.array_equal(lse[~finite], expected_lse[~finite])
    assert np.all(np.abs(lse[finite] - expected_lse[finite]) <= bound * (1 + np.abs(expected_lse[finite])))
    return maximum, raises


@pytest.mark.parametrize("scale", [1.0, 0.0721687836, 3.0])
@pytest.mark.parametrize("spread", [0.5, 4.0, 40.0])
def test_tiles_give_the_softmax_of_the_whole_row(attend, scale, spread):
    tiles, values = drawn(spread=spread)
    check(attend, tiles, values, scale)


def test_the_maximum_is_raised_only_past_the_threshold(attend):
    """In log2 units: one row climbs by 7.9 and is left alone, one by 8.1 and is not; both sums are right."""
    tiles, values = np.zeros((2, 64, SLOTS), np.float32), drawn(2)[1]
    step = np.log(2.0)
    tiles[1, :4] = 7.9 * step
    tiles[1, 4:8] = 8.1 * step
    maximum, raises = check(attend, tiles, values, 1.0)
    assert raises.tolist() == [1, 2, *[1] * 14]
    assert maximum[0] == 0.0
    assert maximum[1] == tiles[1, 4, 0]


def test_a_threshold_of_nothing_raises_every_time(attend):
    tiles, values = np.zeros((2, 64, SLOTS), np.float32), drawn(2)[1]
    tiles[1] = 0.001
    maximum, raises = check(attend, tiles, values, 1.0, threshold=0.0)
    assert set(raises) == {2}
    assert set(maximum) == {tiles[1, 0, 0]}


def test_a_spike_after_weights_were_added_scales_them_down(attend):
    tiles, values = drawn(3, 1.0)
    tiles[2, ::4, 1] = 30.0
    check(attend, tiles, values, 1.0)


def test_a_row_without_a_score_is_zero_and_minus_infinity(attend):
    tiles, values = drawn(2)
    tiles[:, :4] = -np.inf
    tiles[0, 4:8] = -np.inf  # a masked tile before scores
    tiles[1, 8:12] = -np.inf  # and after
    maximum, raises = check(attend, tiles, values, 1.0)
    sums, lse, _, _ = attend(tiles, values, 1.0)
    assert (sums[0], lse[0], raises[0]) == (0.0, -np.inf, 0)
    assert maximum[0] == np.float32(LOWEST)


@pytest.mark.parametrize("scale", [1.0, 0.0721687836, 2.0**-60])
@pytest.mark.parametrize(
    "scores", [(LARGEST, LARGEST), (-LARGEST, -LARGEST), (-LARGEST, LARGEST), (LARGEST, -LARGEST), (-LARGEST, -np.inf)]
)
def test_any_finite_score_is_a_score(attend, scores, scale):
    tiles, values = drawn(2)
    tiles[0], tiles[1] = scores
    tiles[1, :, 1:] = -np.inf
    check(attend, tiles, values, scale)


class Forgetful(OnlineSoftmax):
    """Raises the maximum without scaling down what was added under the lower one."""

    def raise_maximum(self, state, tile_maximum):
        raised, factor = super().raise_maximum(state, tile_maximum)
        return RowState(raised.maximum, state.total), factor


def test_the_check_sees_a_missing_rescale(attend):
    tiles, values = drawn(2, 1.0)
    tiles[1] += 10.0
    check(attend, tiles, values, 1.0)
    with pytest.raises(AssertionError):
        check(attend, tiles, values, 1.0, kind=Forgetful)


@pytest.mark.parametrize("valid", [0, 1, 63, 64, 100])
def test_scores_past_the_end_are_masked(evaluate, per_lane_input, valid):
    scores = RANDOM.normal(size=64).astype(np.float32)

    def body(given, count):
        return mask_scores([given], [lanes.lane_id()], count)

    found = evaluate(body, per_lane_input(F32, scores), valid).floats()
    assert np.array_equal(found, np.where(np.arange(64) < valid, scores, -np.inf))


def test_accumulators_are_scaled_by_one_factor_a_lane(evaluate, per_lane_input):
    factor, vectors = RANDOM.normal(size=64).astype(np.float32), RANDOM.normal(size=(64, 4)).astype(np.float32)

    def body(by, wide, narrow):
        return scale_accumulators([wide, narrow], by)

    result = evaluate(body, per_lane_input(F32, factor), per_lane_input(F32, vectors), per_lane_input(F32, factor))
    assert np.array_equal(result.values[0].view(np.float32), vectors * factor[:, None])
    assert np.array_equal(result.floats(1), factor * factor)
