"""Keys and values in pages: what the reference gathers, and what the inputs of scenarios hold."""

import attrs
import numpy as np
import pytest

from kinfolk.check import SparseArray
from kinfolk_attention_fwd.drawn import drawn
from kinfolk_attention_fwd.page_addresses import shape_of
from kinfolk_attention_fwd.paged_scenarios import DEAD, paged, paged_scenarios
from kinfolk_attention_fwd.reference import findings, reference, sequences, useful_flops
from kinfolk_attention_fwd.request import AttentionFwdRequest

QUERIES, LENGTHS = (5, 0, 1, 9), (21, 8, 16, 4)
REQUEST = AttentionFwdRequest(
    layout="paged",
    num_seqs=4,
    total_q=15,
    max_seqlen_q=9,
    max_seqlen_k=21,
    num_heads=4,
    num_kv_heads=2,
    head_size=16,
    head_size_v=24,
    page_size=4,
    num_pages=20,
    dtype="bf16",
    kv_dtype="bf16",
    causal=True,
    return_lse=True,
    scale=0.25,
)


def batch(request=REQUEST, seed=0):
    generator = np.random.default_rng(seed)
    rows = drawn(request, generator, QUERIES, LENGTHS)
    return rows, paged(request, generator, rows)


def by_hand(rows, sequence, token, head, missing=()):
    """Return the output of one query from its definition, over the keys that are not `missing`."""
    query, keys = rows.query[sequence][token, head].astype("bfloat16").astype(float), rows.keys[sequence][:, head // 2]
    ahead = LENGTHS[sequence] - QUERIES[sequence]
    seen = [key for key in range(len(keys)) if key <= token + ahead and key not in missing]
    scores = 0.25 * (keys[seen].astype("bfloat16").astype(float) @ query)
    values = rows.values[sequence][seen, head // 2].astype("bfloat16").astype(float)
    return np.exp(scores) / np.exp(scores).sum() @ values


@pytest.mark.parametrize("page", [1, 4, 16])
def test_each_query_attends_to_the_keys_of_its_sequences_pages(page):
    request = attrs.evolve(REQUEST, page_size=page, num_pages=80)
    rows, inputs = batch(request)
    out = reference(request, inputs)["out"].value
    for row, (sequence, token) in enumerate([*((0, i) for i in range(5)), (2, 0), *((3, i) for i in range(9))]):
        for head in range(4):
            if token >= QUERIES[sequence] - LENGTHS[sequence]:
                np.testing.assert_allclose(out[row, head], by_hand(rows, sequence, token, head), rtol=1e-12)
            else:
                assert (out[row, head] == 0.0).all()


def test_two_pages_the_wrong_way_round_are_seen():
    _, inputs = batch()
    right = reference(REQUEST, inputs)["out"]
    inputs["block_table"][0, [0, 4]] = inputs["block_table"][0, [4, 0]]
    wrong = reference(REQUEST, inputs)["out"].value
    assert (np.abs(wrong - right.value) > right.tolerance.bound)[0].any()  # query 0 sees one key of page 4


@pytest.mark.parametrize("strange", [-1, 20, DEAD, -(2**31)])
def test_keys_of_an_id_outside_the_cache_are_not_there_and_counted(strange):
    rows, inputs = batch()
    inputs["block_table"][0, 2] = strange
    inputs["block_table"][1, 0] = strange  # of a sequence without queries
    expected = reference(REQUEST, inputs)
    np.testing.assert_allclose(expected["out"].value[4, 3], by_hand(rows, 0, 4, 3, missing=range(8, 12)), rtol=1e-12)
    assert expected["status"] == [1]
    outputs = {name: expected[name].value for name in ("out", "lse")}
    assert not list(findings(REQUEST, outputs | {"status": np.array([1])}, expected))
    [found] = findings(REQUEST, outputs | {"status": np.array([2])}, expected)
    assert found.code == "page_ids"


def test_numbers_that_no_caller_may_pass_have_a_meaning():
    _, inputs = batch()
    inputs["seqused_k"][:] = (-3, 8, 2**31 - 1, 4)
    inputs["block_table"][2] = np.arange(6)
    inputs["k"], inputs["v"] = np.nan_to_num(inputs["k"].astype(float)), np.nan_to_num(inputs["v"].astype(float))
    inputs["cu_seqlens_q"][-1] = 16
    found = list(sequences(REQUEST, inputs))
    assert [(each.place[0].start, each.length) for each in found] == [(0, 0), (5, 21)]


def test_flops_count_the_pairs_that_are_seen():
    _, inputs = batch()
    pairs = sum(
        min(key, length) for count, length in zip(QUERIES, LENGTHS, strict=True) for key in _ends(count, length)
    )
    assert useful_flops(REQUEST, inputs) == 2 * pairs * 4 * (16 + 24)


def _ends(count, length):
    return [max(0, length - count + token + 1) for token in range(count)]


BIG = attrs.evolve(REQUEST, page_size=16, num_kv_heads=1, head_size=128, head_size_v=128, window_left=70, num_pages=9)


@pytest.mark.parametrize("scenario", paged_scenarios(BIG), ids=lambda each: each.name)
def test_what_no_sequence_has_is_poisoned_in_every_scenario(scenario):
    request, inputs = scenario.request, scenario.inputs()
    expected = reference(request, inputs)
    assert np.isfinite(expected["out"].value).all()
    assert inputs["q"].shape == (request.total_q, request.num_heads, 128)
    assert len(inputs["cu_seqlens_q"]) == request.num_seqs + 1 and len(inputs["seqused_k"]) == request.num_seqs
    if isinstance(inputs["k"], SparseArray):
        assert {"k", "v"} <= scenario.sparse and inputs["k"].shape == (request.num_pages, 16, 1, 128)
        return
    owned = np.zeros(inputs["k"].shape[:2], bool)
    for row, length in zip(inputs["block_table"], inputs["seqused_k"], strict=True):
        length = min(max(length, 0), request.max_seqlen_k)
        slots = row[: -(-length // 16)]
        assert (row[len(slots) :] == DEAD).all() or scenario.name == "strange_numbers"
        for slot, page in enumerate(slots):
            if 0 <= page < request.num_pages:
                owned[page, : min(16, length - 16 * slot)] = True
    poisoned = np.isnan(inputs["k"].astype(float)).all(axis=(2, 3))
    assert not (owned & poisoned).any()
    assert (poisoned | owned).all() or scenario.name in ("bad_pages", "long", "strange_numbers")
    assert request.num_pages > sum(-(-max(length, 0) // 16) for length in LENGTHS) or poisoned.any()


def test_pages_lie_on_both_sides_of_every_edge():
    request = attrs.evolve(BIG, num_heads=8, num_kv_heads=8)
    pages = set(shape_of(request).edge_pages(2**20))
    unit = 16 * 8 * 128
    for edge in (0x7FFF0000 // (2 * unit), 2**31 // (2 * unit), 2**32 // (2 * unit), 2**31 // unit, 2**16):
        assert {edge - 1, edge, edge + 1} <= pages
