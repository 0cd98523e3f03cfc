"""Kept selections: how far each holds, and that one never differs from a fresh one."""

import threading

import attrs
import pytest
from dispatch_toy import (
    HEADS,
    LENGTH,
    Composition,
    ToyRequest,
    ToySpec,
    candidate,
    candidates,
    limit,
    split_by_python,
    toy_plan,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from kinfolk.dispatch import SelectionCache, select
from kinfolk.errors import NoCandidate
from kinfolk.expr import I64_MAX, field


def test_a_selection_holds_exactly_as_far_as_its_conditions_do():
    selection = select(Composition(), ToyRequest(num_heads=16, total_q=4, max_seqlen_k=100), "llvm22")
    # 256 * 16 = 4096 and 1024 are the limits of toy.narrow; toy.wide splits from 257 and its note ends at 512.
    ranges = {name: selection.interval(name) for name in ("total_q", "max_seqlen_k")}
    assert (ranges["max_seqlen_k"].low, ranges["max_seqlen_k"].high) == (-(2**63), 256)
    assert ranges["total_q"].high == 256
    assert ranges["total_q"].low == -(2**63) // 16
    assert selection.exact == ()
    longer = select(Composition(), ToyRequest(num_heads=16, max_seqlen_k=600), "llvm22").interval("max_seqlen_k")
    assert (longer.low, longer.high) == (512, 1024)


def test_conditions_of_a_candidate_that_is_refused_anyway_do_not_narrow():
    never = limit("a.heads", "num_heads", HEADS > 1000)
    short = limit("a.length", "max_seqlen_k", LENGTH <= 1024)
    for capability, high in (((never, short), I64_MAX), ((short, never), I64_MAX), ((short,), 1024)):
        selection = select(Composition([candidate("a", 0, capability), candidate("b", 1)]), ToyRequest(), "llvm22")
        assert selection.interval("max_seqlen_k").high == high
    both = (limit("a.q", "total_q", field("total_q") > 99), short)
    selection = select(Composition([candidate("a", 0, both), candidate("b", 1)]), ToyRequest(total_q=4), "llvm22")
    assert (selection.interval("total_q").high, selection.interval("max_seqlen_k").high) == (99, 1024)
    same_code = (limit("a", "num_heads", HEADS > 1), limit("a", "max_seqlen_k", LENGTH > 1024))
    selection = select(Composition([candidate("a", 0, same_code), candidate("b", 1)]), ToyRequest(), "llvm22")
    assert selection.interval("max_seqlen_k").high == 1024
    old = Composition([candidate("a", 0, (short,), min_llvm=22), candidate("b", 1)])
    assert select(old, ToyRequest(), "llvm20").interval("max_seqlen_k").high == I64_MAX


def test_a_launch_field_that_nothing_reads_is_free():
    composition = Composition([candidate("a")])
    selection = select(composition, ToyRequest(), "llvm22")
    assert (selection.ranges, selection.exact) == ((), ())
    assert selection.interval("max_seqlen_k").high == I64_MAX
    assert selection.covers(ToyRequest(total_q=10**9, max_seqlen_k=0, causal=False, scale=-2.0))


def test_a_launch_field_that_python_reads_holds_for_its_value_only():
    composition = Composition([candidate("a", plan=split_by_python)])
    selection = select(composition, ToyRequest(max_seqlen_k=100), "llvm22")
    assert selection.exact == (("max_seqlen_k", 100),)
    assert selection.interval("max_seqlen_k") is None
    assert not selection.covers(ToyRequest(max_seqlen_k=101))


@pytest.mark.parametrize("name, other", [("causal", False), ("scale", 2.0), ("max_seqlen_k", 101), ("total_q", 5)])
def test_every_way_for_a_plugin_to_read_is_noticed(name, other):
    """In plan, in admission, in a policy; through a method, through repr, through evolve."""

    def by_rank(request, survivors):
        getattr(request, name)
        return survivors

    def by_evolve(request, arch):
        twin = attrs.evolve(request, num_heads=1)
        assert type(twin) is ToyRequest
        assert isinstance(request, ToyRequest)
        return toy_plan(ToySpec(width=1), twin)

    def by_method(request, arch):
        request.whole()
        return toy_plan(ToySpec(width=1), request)

    def by_text(request, arch):
        assert repr(request) == repr(ToyRequest())
        return toy_plan(ToySpec(width=1), request)

    for composition in (
        Composition(rank=by_rank),
        Composition([candidate("a", plan=by_evolve)]),
        Composition([candidate("a", plan=by_method)]),
        Composition([candidate("a", plan=by_text)]),
    ):
        selection = select(composition, ToyRequest(), "llvm22")
        assert name in dict(selection.exact)
        assert not selection.covers(attrs.evolve(ToyRequest(), **{name: other}))
        assert selection.covers(ToyRequest())


def test_a_flag_that_a_condition_reads_is_matched_exactly():
    composition = Composition([candidate("a", capability=(limit("a.causal", "causal", field("causal")),))])
    selection = select(composition, ToyRequest(causal=True), "llvm22")
    assert selection.exact == (("causal", True),)
    with pytest.raises(NoCandidate):
        SelectionCache().plan(composition, ToyRequest(causal=False), "llvm22")


def test_a_growing_decode_step_is_a_lookup():
    cache, composition = SelectionCache(), Composition()
    plans = [cache.plan(composition, ToyRequest(num_heads=64, max_seqlen_k=k), "llvm22") for k in range(513, 3000)]
    assert (cache.misses, cache.hits) == (1, 2999 - 513)
    assert plans[0].launches is plans[-1].launches
    assert plans[-1].arguments(plans[-1].launches[0])[1].value == 2999
    assert plans[0].request.max_seqlen_k == 513


lengths = st.one_of(st.integers(0, 1400), st.sampled_from([255, 256, 257, 511, 512, 513, 1023, 1024, 1025]))
requests = st.builds(
    ToyRequest,
    num_heads=st.sampled_from([8, 16, 32, 48, 128, 144]),
    total_q=st.one_of(st.integers(0, 20), st.sampled_from([127, 128, 129, 255, 256, 257, 499, 500, 501, 2**62])),
    max_seqlen_k=lengths,
    causal=st.booleans(),
    scale=st.sampled_from([0.5, 1.0]),
)


def answer(find):
    try:
        plan = find()
    except NoCandidate as error:
        return str(error)
    return plan.to_json()


def compositions():
    admit = (limit("policy.q", "total_q", field("total_q") < 500, "policy"),)
    return (
        Composition(admit=admit),
        Composition(
            (*candidates(), candidate("toy.early", -1, (limit("e", "causal", field("causal")),), split_by_python))
        ),
        Composition(rank=lambda request, survivors: survivors[:: 1 if request.scale < 1 else -1]),
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(requests, min_size=2, max_size=30), st.integers(0, 2))
def test_a_kept_selection_never_differs_from_a_fresh_one(sequence, which):
    composition, cache = compositions()[which], SelectionCache(size=4)
    for request in sequence:
        kept = answer(lambda: cache.plan(composition, request, "llvm22"))  # noqa: B023  # called at once
        fresh = answer(lambda: select(composition, request, "llvm22").plan)  # noqa: B023
        assert kept == fresh


def test_the_comparison_sees_an_interval_that_is_one_too_wide():
    """Negative control: with the interval moved by one, kept and fresh differ at the edge."""
    cache, composition = SelectionCache(), Composition()
    selection = cache.selection(composition, ToyRequest(num_heads=64), "llvm22")
    wider = tuple((name, low, high + 1) for name, low, high in selection.ranges)
    [key] = cache._entries
    cache._entries[key] = (attrs.evolve(selection, ranges=wider),)
    edge = ToyRequest(num_heads=64, max_seqlen_k=selection.interval("max_seqlen_k").high + 1)
    kept = answer(lambda: cache.plan(composition, edge, "llvm22"))
    assert kept != answer(lambda: select(composition, edge, "llvm22").plan)


def test_selection_keys_keep_apart_what_differs():
    cache, composition = SelectionCache(), Composition()
    twin = Composition()
    cache.plan(composition, ToyRequest(), "llvm22")
    for other in (
        lambda: cache.plan(composition, ToyRequest(), "llvm20"),
        lambda: cache.plan(twin, ToyRequest(), "llvm22"),
        lambda: cache.plan(composition, ToyRequest(dtype="f16"), "llvm22"),
        lambda: cache.plan(composition, ToyRequest(candidate="toy.wide"), "llvm22"),
    ):
        before = cache.misses
        other()
        assert cache.misses == before + 1
    assert ToyRequest(max_seqlen_k=1).selection_key() == ToyRequest(max_seqlen_k=2, scale=3.0).selection_key()


def test_the_cache_is_bounded_and_drops_the_least_recently_used():
    cache, composition = SelectionCache(size=2), Composition([candidate("a")])
    for heads in (1, 2, 1, 3):
        cache.plan(composition, ToyRequest(num_heads=heads), "llvm22")
    assert (len(cache), cache.misses) == (2, 3)
    cache.plan(composition, ToyRequest(num_heads=1), "llvm22")
    assert cache.misses == 3
    cache.plan(composition, ToyRequest(num_heads=2), "llvm22")
    assert cache.misses == 4


def test_selections_of_one_key_are_bounded_too():
    cache, composition = SelectionCache(), Composition([candidate("a", plan=split_by_python)])
    for length in range(100):
        cache.plan(composition, ToyRequest(max_seqlen_k=length), "llvm22")
    [kept] = cache._entries.values()
    assert len(kept) <= 16
    cache.clear()
    assert len(cache) == 0


def test_threads_share_a_cache():
    cache, composition = SelectionCache(size=3), Composition()
    wrong = []

    def work(seed):
        for i in range(200):
            request = ToyRequest(num_heads=16 * (1 + (i + seed) % 5), max_seqlen_k=(7 * i) % 1200)
            if cache.plan(composition, request, "llvm22").request != request:
                wrong.append(request)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(cache) <= 3
