"""Arrays that exist in part: what they give is what a whole array gives, and what they do not hold is an error."""

import numpy as np
import pytest

from kinfolk.check import SparseArray

WHOLE = np.arange(4 * 3 * 2, dtype=np.int32).reshape(4, 3, 2)


def sparse(**held):
    return SparseArray(shape=WHOLE.shape, dtype=WHOLE.dtype, held={int(name[1:]): part for name, part in held.items()})


def test_the_geometry_is_that_of_a_whole_array():
    found = sparse(r0=WHOLE[0])
    for name in ("shape", "dtype", "ndim", "itemsize", "size", "nbytes", "strides"):
        assert getattr(found, name) == getattr(WHOLE, name), name


def test_sizes_past_32_bits():
    found = SparseArray(
        shape=(2**24 + 1, 16, 512), dtype=np.dtype(np.int16), held={2**24: np.zeros((1, 512), np.int16)}
    )
    assert found.nbytes == (2**24 + 1) * 2**14 and list(found.ranges()) == [2**38]


def test_pairs_of_indices_gather_as_numpy_does():
    found = sparse(r3=WHOLE[3], r1=WHOLE[1, :2])
    rows, places = np.array([3, 1, 3, 1]), np.array([2, 1, 0, 0])
    assert np.array_equal(found[rows, places], WHOLE[rows, places])
    assert found[rows[:0], places[:0]].shape == (0, 2)


def test_a_row_is_as_long_as_it_exists():
    found = sparse(r1=WHOLE[1, :2])
    assert np.array_equal(found[1], WHOLE[1, :2]) and found[2].shape == (0, 2)


@pytest.mark.parametrize("row, place", [(1, 2), (2, 0)])
def test_what_does_not_exist_is_not_gathered(row, place):
    with pytest.raises(LookupError, match=f"row {row} has"):
        sparse(r1=WHOLE[1, :2])[np.array([1, row]), np.array([0, place])]


def test_ranges_are_bytes_of_the_whole_array():
    found = sparse(r3=WHOLE[3], r1=WHOLE[1, :2], r2=WHOLE[2, :0])
    flat = WHOLE.reshape(-1).view(np.uint8)
    assert list(found.ranges()) == [WHOLE.strides[0], 3 * WHOLE.strides[0]]
    for start, part in found.ranges().items():
        assert flat[start : start + part.nbytes].tobytes() == part.tobytes()


@pytest.mark.parametrize(
    "row, part",
    [(4, WHOLE[0]), (-1, WHOLE[0]), (0, WHOLE[0, :, :1]), (0, np.zeros((4, 2), np.int32)), (0, WHOLE[0].astype(float))],
)
def test_a_part_lies_in_the_array(row, part):
    with pytest.raises(ValueError, match=f"row {row} holds"):
        SparseArray(shape=WHOLE.shape, dtype=WHOLE.dtype, held={row: part})


def test_nobody_writes_through_a_part():
    mine = WHOLE[0].copy()
    found = sparse(r0=mine)
    with pytest.raises(ValueError, match="read-only"):
        found[0][0] = 7
    mine[0] = 7  # whose array it is may


def test_rows_lie_a_pitch_apart_and_do_not_overlap():
    held = {0: np.zeros(3, np.float32), 4: np.ones(3, np.float32)}
    apart = SparseArray(shape=(5, 3), dtype=np.dtype(np.float32), held=held, pitch=2**30)
    assert apart.strides == (2**32, 4) and list(apart.ranges()) == [0, 4 * 2**32]
    with pytest.raises(ValueError, match="pitch is 2, rows of 3 elements overlap"):
        SparseArray(shape=(5, 3), dtype=np.dtype(np.float32), held=held, pitch=2)
