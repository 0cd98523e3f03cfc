"""Scenarios fit the request they are built for, poison what must not be read, and are what their names say."""

import attrs
import numpy as np
import pytest
from mla_requests import asking, scenario_of

from kinfolk.check import is_poison
from kinfolk_mla.prefill.scenarios import prefill_scenarios
from kinfolk_mla.reference import decode_reference
from kinfolk_mla.scenarios import LONG_SEQUENCES, decode_scenarios, fitted_lengths

NAMES = [
    "ragged",
    "spike",
    "climb",
    "empty",
    "no_query",
    "single_key",
    "exact_page",
    "page_plus_one",
    "extreme",
    "constant",
    "peaked",
    "one_sign",
    "bad_pages",
]


request = asking(num_heads=16, num_seqs=4, max_seqlen_k=300)


def scenario(name, **changes):
    return scenario_of(request(**changes), name)


def lengths_of(inputs):
    return np.diff(inputs["cu_seqlens_k"]).tolist()


SHAPES = [
    {},
    {"num_seqs": 1, "total_q": 1},
    {"max_seqlen_k": 1},
    {"max_seqlen_k": 0},
    {"num_pages": 3},
    {"num_pages": 0},
    {"total_q": 2},
    {"max_seqlen_q": 0, "total_q": 0},
    {"num_seqs": 11, "total_q": 11, "max_seqlen_k": 40},
]


def test_there_is_a_scenario_of_each_name():
    assert [each.name for each in decode_scenarios(request())] == NAMES
    assert [each.name for each in decode_scenarios(request(num_seg=2))] == [*NAMES, "last_segment"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_every_scenario_fits_its_request(name, changes):
    found = scenario(name, **changes)
    asked = found.request
    inputs = found.inputs()
    queries, lengths = np.diff(inputs["cu_seqlens_q"]), np.diff(inputs["cu_seqlens_k"])
    assert inputs["cu_seqlens_q"][0] == inputs["cu_seqlens_k"][0] == 0
    assert len(queries) == len(lengths) == asked.num_seqs and queries.sum() == asked.total_q
    assert queries.max() <= asked.max_seqlen_q and lengths.min() >= 0 and lengths.max() <= asked.max_seqlen_k
    assert inputs["qa"].shape == (asked.total_q, asked.num_heads, 576)
    assert inputs["c_kv"].shape == (asked.num_pages, 16, 512)
    assert inputs["k_rope"].shape == (asked.num_pages, 16, 64)
    table = inputs["block_table"]
    assert table.shape[0] == asked.num_seqs and table.shape[1] >= -(-asked.max_seqlen_k // 16)
    assert table.strides[1] == 4 and table.strides[0] > 4 * table.shape[1]
    expected = decode_reference(asked, inputs)
    assert not np.isnan(expected["out"].value).any() and not np.isnan(expected["lse"].value).any()


@pytest.mark.parametrize("name", NAMES)
def test_scenarios_differ_in_launch_fields_only_and_not_from_call_to_call(name):
    found, again = scenario(name), scenario(name)
    assert found.request.selection_key() == request().selection_key()
    for first, second in zip(found.inputs().values(), again.inputs().values(), strict=True):
        assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_whatever_no_sequence_owns_is_poisoned(name):
    found = scenario(name, num_pages=80)
    inputs = found.inputs()
    pages = found.request.num_pages
    owned = np.zeros((pages, 16), bool)
    for row, length in zip(inputs["block_table"], lengths_of(inputs), strict=True):
        for key in range(length):
            if 0 <= row[key // 16] < pages:
                owned[row[key // 16], key % 16] = True
        assert (row[-(-length // 16) :] == -1).all()
    for cache, dtype in (("c_kv", "bf16"), ("k_rope", "bf16")):
        unowned = is_poison(dtype, inputs[cache]).all(axis=-1)
        if name == "bad_pages":  # rows of pages whose ids are spoiled were written and are out of reach
            assert unowned.any() and not (unowned & owned).any()
        else:
            assert (unowned == ~owned).all() and unowned.any()


def test_ragged_reaches_the_longest_sequence():
    assert lengths_of(scenario("ragged").inputs()) == [300, 151, 100, 1]


def test_no_query_has_keys_that_nobody_asks_for():
    inputs = scenario("no_query").inputs()
    assert np.diff(inputs["cu_seqlens_q"])[0] == 0 and lengths_of(inputs)[0] > 0
    assert scenario("no_query", num_seqs=1, total_q=1).request.num_seqs == 2


def test_the_edges_of_a_page_are_met():
    assert {length % 16 for length in lengths_of(scenario("exact_page").inputs())} == {0}
    assert {length % 16 for length in lengths_of(scenario("page_plus_one").inputs())} == {1}


def test_spikes_lift_half_of_each_wave_past_the_threshold_on_live_accumulators():
    found = scenario("spike")
    inputs = found.inputs()
    keys = np.concatenate([inputs[name][inputs["block_table"][0, :5]].astype(float) for name in ("c_kv", "k_rope")], 2)
    scores = found.request.scale * inputs["qa"][0].astype(float) @ keys.reshape(80, 576)[:70].T
    before, after = scores[:, :35].max(axis=1), scores[:, 35]
    lifted = (after - before) / np.log(2) > 8
    assert lifted[::2].mean() > 0.5 and not lifted[1::2].any()
    assert ((scores[::2, 69] - scores[::2, :69].max(axis=1)) / np.log(2) > 8).all()


def test_the_last_segment_takes_half_the_rows_past_what_f32_has_powers_for():
    found = scenario("last_segment", num_seg=7)
    inputs = found.inputs()
    pages = inputs["block_table"][0, :19]
    keys = np.concatenate([inputs[name][pages].astype(float) for name in ("c_kv", "k_rope")], 2)
    scores = found.request.scale / np.log(2) * inputs["qa"][0].astype(float) @ keys.reshape(304, 576)[:300].T
    lifted = scores[:, 299] - scores[:, :299].max(axis=1) > 128
    assert lifted[::2].all() and not lifted[1::2].any()


def climbed(inputs, scale):
    """Return, of the keys of each sequence that lift a row past all before by what f32 has no power for, place in the
    page and which sixteen rows they lift: all of these and no other.
    """
    found = set()
    for sequence, length in enumerate(lengths_of(inputs)):
        pages = inputs["block_table"][sequence, : -(-length // 16)]
        keys = np.concatenate([inputs[name][pages].astype(float) for name in ("c_kv", "k_rope")], 2)
        scores = scale / np.log(2) * inputs["qa"][sequence].astype(float) @ keys.reshape(-1, 576)[:length].T
        for key in range(16, length):
            lifted = scores[:, key] - scores[:, :key].max(axis=1) > 128
            if lifted.any():
                assert lifted.sum() == 16 and lifted.reshape(-1, 16).any(axis=1).sum() == 1
                found.add((key % 16, int(np.argmax(lifted)) // 16))
    return found


def test_a_climb_is_of_some_rows_of_a_wave_and_of_one_key_wherever_lanes_hold_it():
    """A lane holds every fourth key of a page or four neighbours; a wave has two or four times sixteen rows."""
    found = scenario("climb", num_heads=64)
    places = climbed(found.inputs(), found.request.scale)
    for slot in (lambda key: key % 4, lambda key: key // 4):
        assert {(slot(key), rows) for key, rows in places} == {(key, rows) for key in range(4) for rows in range(4)}


def test_extreme_scores_are_finite_in_f32_and_beyond_any_sentinel():
    found = scenario("extreme")
    inputs = found.inputs()
    query = inputs["qa"][:2, :2, 512].astype(np.float32)
    for sequence, size in ((0, 2.0**100), (1, 2.0**127)):
        marks = inputs["k_rope"][inputs["block_table"][sequence, 0], :, 0].astype(np.float32)
        scores = query[sequence][:, None] * marks
        assert np.isfinite(scores).all() and np.abs(scores).max() == size
        assert (scores[0] > 0).all() and (scores[1] < -1e30).all()


def test_constant_gives_back_the_row():
    found = scenario("constant")
    inputs = found.inputs()
    row = inputs["c_kv"][inputs["block_table"][0, 0], 0].astype(float)
    expected = decode_reference(found.request, inputs)["out"].value[0]
    np.testing.assert_allclose(expected, np.broadcast_to(row, expected.shape), rtol=1e-13)


def test_one_sign_has_columns_of_one_sign_and_weights_of_every_size():
    found = scenario("one_sign", num_heads=64)
    inputs = found.inputs()
    pages = inputs["block_table"][0, :19]
    values = inputs["c_kv"][pages].astype(float).reshape(-1, 512)[:300]
    assert (np.sign(values) == np.sign(values[0])).all() and (values[0] > 0).any() and (values[0] < 0).any()
    keys = inputs["k_rope"][pages].astype(float).reshape(-1, 64)[:300]
    query = inputs["qa"][0].astype(float)
    assert np.count_nonzero(query) == 64 and np.count_nonzero(keys[:, 1:]) == 0
    scores = found.request.scale * query[:, 512:] @ keys.T / np.log(2)
    assert scores.min() >= 0 and 1.5 < scores.max() <= 2.01
    significands = np.histogram(2.0 ** (scores - scores.max(axis=1, keepdims=True)) % 1, bins=16)[0]
    assert significands[4:].min() > 0


def test_bad_pages_names_ids_on_both_sides_and_a_sequence_with_none_good():
    found = scenario("bad_pages")
    inputs = found.inputs()
    used = [row[: -(-length // 16)] for row, length in zip(inputs["block_table"], lengths_of(inputs), strict=True)]
    strange = {int(one) for row in used for one in row if not 0 <= one < found.request.num_pages}
    assert {-1, found.request.num_pages} <= strange
    expected = decode_reference(found.request, inputs)
    assert np.isneginf(expected["lse"].value[1]).all() and np.isfinite(expected["lse"].value[0]).all()


def test_a_large_batch_stays_cheap():
    lengths = fitted_lengths(request(num_seqs=100, total_q=100), (300,))
    assert lengths[:LONG_SEQUENCES] == (300,) * LONG_SEQUENCES
    assert set(lengths[LONG_SEQUENCES:]) == {16}


@pytest.mark.parametrize("other", [{"absorbed_query": False}])
def test_requests_of_other_kernels_have_none(other):
    assert decode_scenarios(attrs.evolve(request(), **other)) == ()


@pytest.mark.parametrize(
    ("heads", "tokens", "sampled"),
    [(128, 1024, 128), (129, 1024, 128), (64, 512, 64), (64, 2048, 32), (64, 8192, 2), (1, 16384, 1), (2, 16384, 1)],
)
def test_a_long_prompt_is_looked_at_whole_of_a_sample_of_its_heads(heads, tokens, sampled):
    """All queries and keys are there, 2^27 pairs at most over the heads; where heads are fewer it says so."""
    size = {"total_q": tokens, "max_seqlen_q": tokens, "absorbed_query": False, "candidate": "mla.prefill"}
    asked = asking(num_heads=heads, num_seqs=1, max_seqlen_k=tokens)(**size)
    [whole] = [each for each in prefill_scenarios(asked) if each.name == "whole"]
    assert (whole.request.num_heads, whole.request.total_q, whole.request.max_seqlen_k) == (sampled, tokens, tokens)
    assert (f"{sampled} of its {heads} heads" in whole.about) is (sampled < heads)
