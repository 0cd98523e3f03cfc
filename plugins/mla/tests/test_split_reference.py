"""Parts of a token's keys, merged: whatever the split, it is attention over all of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinfolk_mla.reference import Keys, attend
from kinfolk_mla.split_reference import Part, merged, split

SCALE = 0.7


def keys_of(count, seed=0, size=1.0):
    generator = np.random.default_rng(seed)
    latent, rope = size * generator.standard_normal((count, 6)), generator.standard_normal((count, 3))
    return Keys(np.arange(count), latent, rope, 0, count)


def queries(heads=4, seed=1):
    return np.random.default_rng(seed).standard_normal((heads, 9))


def merged_over(keys, bounds, query):
    return merged(Part.of(query, each, SCALE) for each in split(keys, bounds))


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_any_split_gives_the_single_pass(data):
    count = data.draw(st.integers(0, 40), "keys")
    bounds = sorted(data.draw(st.lists(st.integers(0, count), max_size=12), "bounds"))
    keys = keys_of(count, data.draw(st.integers(0, 99), "seed"), data.draw(st.sampled_from((0.0, 1.0, 300.0)), "size"))
    whole = attend(queries(), keys, SCALE)
    out, lse = merged_over(keys, bounds, queries())
    np.testing.assert_allclose(out, whole.out, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(lse, whole.lse, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("bounds", [[], [0, 0], [0] * 63])
def test_without_keys_all_parts_are_empty(bounds):
    out, lse = merged_over(keys_of(0), bounds, queries())
    assert (out == 0.0).all() and np.isneginf(lse).all()


def test_an_empty_part_is_not_read():
    part = Part.of(queries(), keys_of(0), SCALE)
    assert np.isneginf(part.highest).all() and (part.total == 0.0).all() and np.isnan(part.weighted).all()
    whole = attend(queries(), keys_of(5), SCALE)
    out, _ = merged_over(keys_of(5), [0, 3, 3, 5], queries())
    np.testing.assert_allclose(out, whole.out, rtol=1e-12)


def test_keys_of_refused_pages_stay_where_they_were():
    """Bounds are positions in the sequence, not counts of the keys that exist."""
    keys = keys_of(12)
    existing = Keys(keys.positions[4:], keys.latent[4:], keys.rope[4:], 1, 12)
    assert [each.positions.tolist() for each in split(existing, [4, 6])] == [[], [4, 5], [6, 7, 8, 9, 10, 11]]


def test_normalised_parts_merge_by_their_lse():
    """As docs/mla.md says callers do, with other parts of the keys."""
    first, second = split(keys_of(20), [7])
    (a, b), whole = (attend(queries(), each, SCALE) for each in (first, second)), attend(queries(), keys_of(20), SCALE)
    lse = np.logaddexp(a.lse, b.lse)
    np.testing.assert_allclose(lse, whole.lse, rtol=1e-13)
    out = np.exp(a.lse - lse)[:, None] * a.out + np.exp(b.lse - lse)[:, None] * b.out
    np.testing.assert_allclose(out, whole.out, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "fault",
    [
        lambda parts: parts[1:],
        lambda parts: [*parts, parts[0]],
        lambda parts: [Part(parts[0].highest + 0.1, parts[0].total, parts[0].weighted), *parts[1:]],
        lambda parts: [Part(parts[0].highest, parts[0].total + 0.1, parts[0].weighted), *parts[1:]],
    ],
    ids=["lost", "twice", "highest", "total"],
)
def test_a_wrong_part_shows(fault):
    keys = keys_of(20)
    whole = attend(queries(), keys, SCALE)
    out, lse = merged(fault([Part.of(queries(), each, SCALE) for each in split(keys, [7, 11])]))
    assert np.abs(out - whole.out).max() > 1e-3 and np.abs(lse - whole.lse).max() > 1e-3


def test_no_parts_are_an_error():
    with pytest.raises(ValueError, match="one or more parts"):
        merged([])
