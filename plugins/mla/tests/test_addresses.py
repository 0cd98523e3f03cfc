"""Scenarios about addresses: the pages they name lie where integers end, what they poison is what must not be read."""

import tracemalloc

import numpy as np
import pytest
from mla_requests import asking

from kinfolk.page_addresses import SEQUENCES
from kinfolk_mla.addresses import address_scenarios, shape_of
from kinfolk_mla.reference import decode_reference

request = asking(num_heads=16, num_seqs=1, max_seqlen_k=16)
SCENARIOS = {scenario.name: scenario for scenario in address_scenarios(request())}
NAMES = list(SCENARIOS)


@pytest.fixture(scope="module")
def drawn():
    return {name: scenario.inputs() for name, scenario in SCENARIOS.items()}


def pages_of(inputs, sequence):
    first, last = inputs["cu_seqlens_k"][sequence : sequence + 2]
    return -(-(last - first) // 16)


def used(inputs):
    return {int(page) for row in range(SEQUENCES) for page in inputs["block_table"][row][: pages_of(inputs, row)]}


@pytest.mark.parametrize("name, latent_gib", [("address_2gib", 2), ("address_5gib", 5), ("address_ids", 256)])
def test_caches_are_as_large_as_they_are_called(drawn, name, latent_gib):
    assert 0 < drawn[name]["c_kv"].nbytes - latent_gib * 2**30 <= 2 * 2**14


@pytest.mark.parametrize(
    "name, offsets",
    [("address_2gib", [2**31]), ("address_5gib", [2**31, 2**32]), ("address_ids", [2**31, 2**32, 2**33])],
)
def test_byte_offsets_lie_below_at_and_above_each_edge(drawn, name, offsets):
    inputs = drawn[name]
    for cache in ("c_kv", "k_rope"):
        page_bytes = inputs[cache].strides[0]
        starts = {page * page_bytes for page in used(inputs)}
        for edge in offsets if cache == "c_kv" or name == "address_ids" else []:
            assert {edge - page_bytes, edge, edge + page_bytes} <= starts, (cache, edge)
        assert starts == set(inputs[cache].ranges())


def test_ids_lie_on_both_sides_of_each_width(drawn):
    assert {2**power + step for power in (15, 16, 23, 24) for step in (-1, 0)} <= used(drawn["address_ids"])
    assert drawn["address_ids"]["c_kv"].shape[0] == 2**24 + 1  # and the last page is one of them


def test_the_edges_of_another_page_are_where_it_first_reaches_them():
    other = request(page_size=24)
    pages = shape_of(other).edge_pages(2**22)
    for unit in (24 * 512, 24 * 512 * 2, 24 * 64, 24 * 64 * 2):
        for edge in (2**31, 2**32):
            below = max(page for page in pages if page * unit < edge)
            assert (below + 1) * unit >= edge and below + 1 in pages


@pytest.mark.parametrize("name", NAMES)
def test_lengths_meet_the_edges_of_a_page(drawn, name):
    inputs = drawn[name]
    lengths = np.diff(inputs["cu_seqlens_k"])
    assert [length % 16 for length in lengths] == [0, 1, 15, 8, 0] and lengths[-1] == 0
    assert SCENARIOS[name].request.max_seqlen_k == lengths.max()


@pytest.mark.parametrize("name", NAMES)
def test_only_rows_in_use_exist(drawn, name):
    inputs = drawn[name]
    for cache in ("c_kv", "k_rope"):
        rows = sum(len(part) for part in inputs[cache].held.values())
        assert rows == inputs["cu_seqlens_k"][-1]


def test_dead_slots_hold_ids_of_every_kind(drawn):
    inputs = drawn["address_dead_slots"]
    num_pages, held = inputs["c_kv"].shape[0], inputs["c_kv"].held
    for row in range(SEQUENCES):
        dead = {int(page) for page in inputs["block_table"][row, pages_of(inputs, row) :]}
        assert {-1, num_pages, 2**31 - 1, -(2**31)} <= dead
        inside = {page for page in dead if 0 <= page < num_pages}
        assert inside - set(held) and inside & set(held)


def test_bad_ids_are_of_every_kind_and_one_sequence_has_no_other(drawn):
    inputs = drawn["address_bad_ids"]
    num_pages, ids = inputs["c_kv"].shape[0], used(inputs)
    wrong = {page for page in ids if not 0 <= page < num_pages}
    assert {-1, num_pages, 2**31 - 1, -(2**31)} <= wrong
    assert any(page * 2**13 % 2**32 // 2**13 in inputs["c_kv"].held for page in wrong if page > num_pages)
    expected = decode_reference(SCENARIOS["address_bad_ids"].request, inputs)
    assert np.isneginf(expected["lse"].value).all(axis=1).tolist() == [False, False, True, False, True]
    assert expected["status"] > 5


def test_a_table_ends_with_the_slots_in_use(drawn):
    inputs = drawn["address_table"]
    assert [len(inputs["block_table"][row]) for row in range(SEQUENCES)] == [
        pages_of(inputs, row) for row in range(SEQUENCES)
    ]
    for name in set(NAMES) - {"address_table", "address_dead_slots"}:
        assert drawn[name]["block_table"].shape[1] == pages_of(drawn[name], 0)


@pytest.mark.parametrize("name", NAMES)
def test_neither_inputs_nor_reference_make_the_cache(name):
    tracemalloc.start()
    scenario = SCENARIOS[name]
    decode_reference(scenario.request, scenario.inputs())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 * 2**20


@pytest.mark.parametrize("changes", [{"absorbed_query": False}, {"max_seqlen_q": 0, "total_q": 0}])
def test_requests_of_other_kernels_or_without_queries_have_none(changes):
    assert address_scenarios(request(**changes)) == ()
