"""How many segments there are, and that they divide the keys: against the rules as Python, and for every request."""

import itertools

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mla_requests import asking
from mla_toy_arch import arch

from kinfolk.expr import Scope
from kinfolk_mla.decode.plan import decode_plan, decode_spec
from kinfolk_mla.decode.segments import LEAST_TILES, Segments
from kinfolk_mla.wide import plan as wide
from kinfolk_mla.wide.spec import MlaGroupedSpec, MlaPipelinedSpec

UNITS = 304
SPECS = {
    "decode": (decode_spec(), 2),
    "pipelined registers": (wide.wide_spec(MlaPipelinedSpec, wide.PIPELINED_REGISTERS), 1),
    "pipelined direct": (wide.wide_spec(MlaPipelinedSpec, wide.PIPELINED_DIRECT), 1),
    "grouped registers": (wide.wide_spec(MlaGroupedSpec, wide.GROUPED_REGISTERS), 1),
    "grouped direct": (wide.wide_spec(MlaGroupedSpec, wide.GROUPED_DIRECT), 1),
}
HEADS = {
    "decode": 64,
    "pipelined registers": 128,
    "pipelined direct": 128,
    "grouped registers": 64,
    "grouped direct": 64,
}
"""Of a workgroup."""
TILE = {"decode": 16, "pipelined registers": 16, "pipelined direct": 32, "grouped registers": 16, "grouped direct": 32}
"""Keys of a tile."""


def asked(heads=128, sequences=1, keys=32768, **changes):
    return asking(num_heads=heads, num_seqs=sequences, max_seqlen_k=keys)(**changes)


def divided(name, request):
    """Return segments and the pages of each."""
    found, scope = Segments.of(*SPECS[name]), Scope(request=request, arch=arch())
    return found.count.integer(scope), found.pages.integer(scope)


@pytest.mark.parametrize(
    "name, changes, count",
    [
        ("pipelined registers", {}, 64),  # 2,048 tiles in segments of 32
        ("pipelined direct", {}, 32),  # tiles of twice as many keys
        ("pipelined registers", {"keys": 2**20}, UNITS),
        ("decode", {"keys": 2**20}, 304),  # 608 workgroups at once, two of which have the heads of a sequence
        ("decode", {"keys": 2**20, "heads": 64}, 608),
        ("pipelined registers", {"keys": 2**20, "sequences": 100}, 3),
        ("pipelined registers", {"keys": 2**20, "sequences": 152}, 2),
        ("pipelined registers", {"keys": 2**20, "sequences": 153}, 1),
        ("pipelined registers", {"keys": 2**20, "sequences": 5000}, 1),
        ("pipelined registers", {"keys": 1024}, 2),
        ("pipelined registers", {"keys": 1008}, 1),
        ("pipelined registers", {"keys": 0}, 1),
        ("pipelined registers", {"keys": 2**20, "num_cus": 80}, 80),
        ("pipelined registers", {"keys": 2**20, "num_cus": 1}, 1),
        ("pipelined registers", {"keys": 10, "num_seg": 7}, 7),
        ("pipelined registers", {"keys": 2**20, "num_seg": 1}, 1),
    ],
)
def test_segments_fill_the_compute_units_and_are_not_too_short(name, changes, count):
    assert divided(name, asked(**changes))[0] == count


def cases(draw):
    """Draw requests from one key to the most that 32 bits count."""
    keys = draw(st.integers(0, 5000) | st.integers(0, 2**31 - 17 * 16))
    return asked(
        draw(st.sampled_from([16, 64, 128])),
        draw(st.integers(1, 400) | st.integers(1, 65535)),
        keys,
        num_pages=0,
        num_seg=draw(st.just(0) | st.integers(1, 70) | st.just(65535)),
        num_cus=draw(st.just(0) | st.integers(1, 65536)),
    )


@pytest.mark.parametrize("name", SPECS)
def test_each_page_is_in_one_segment(name):
    """Any number of them, and in 32 bits wherever the kernel counts; short ones and too many come of pins alone."""

    @settings(max_examples=300, deadline=None)
    @given(st.composite(cases)())
    def divides(request):
        count, pages = divided(name, request)
        total = -(-request.max_seqlen_k // 16)
        assert 1 <= count <= 65535 and count * pages >= total
        assert (count - 1) * pages < 2**31 and pages * 16 < 2**31
        if request.num_seg:
            assert count == request.num_seg
        elif count > 1:
            per_cu = SPECS[name][1]
            workgroups = -(-request.num_heads * request.max_seqlen_q // HEADS[name]) * request.num_seqs
            assert pages * 16 >= LEAST_TILES * TILE[name]
            assert count * workgroups <= (request.num_cus or UNITS) * per_cu

    divides()


@pytest.mark.parametrize(
    "spec", [*(spec for spec, _ in SPECS.values()), decode_spec(unit=1)], ids=[*SPECS, "decode of single keys"]
)
def test_all_but_the_last_segment_are_whole_rounds(spec):
    for keys, num_seg in itertools.product((1, 16, 17, 100, 1000), (1, 2, 3, 7)):
        scope = Scope(request=asked(keys=keys, num_seg=num_seg), arch=arch())
        pages = Segments.of(spec, 1).pages.integer(scope)
        assert pages % (spec.tile_pages * spec.key_groups) == 0 and pages > 0


def planned(request):
    return attrs.evolve(decode_plan(request, arch()), facts=arch().facts)


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"num_seg": 7}, "7 segments of 4688 keys, as num_seg asks"),
        ({}, "64 segments of 512 keys: more would have fewer than 32 tiles each"),
        ({"num_cus": 8}, "8 segments of 4096 keys: with them 2 workgroups become as many as fill 8 compute units"),
        ({"sequences": 200}, "one segment: 400 workgroups leave no room for as many again on 304 compute units"),
        ({"keys": 1000}, "one segment: two would have fewer than 32 tiles each"),
        ({"keys": 0, "sequences": 9999}, "one segment: 19998 workgroups leave no room for as many again"),
    ],
)
def test_the_reason_is_told(changes, told):
    [found] = planned(asked(**changes)).told()
    assert told in found


@pytest.mark.parametrize("num_seg, held", [(1, 0), (2, 2), (64, 64)])
def test_the_workspace_is_as_large_as_there_are_segments_to_combine(num_seg, held):
    plan = planned(asked(heads=32, sequences=3, num_seg=num_seg))
    assert plan.minimum_bytes("part_out") == 3 * held * 32 * 512 * 4
    assert plan.minimum_bytes("part_ml") == 3 * held * 32 * 2 * 4
    assert plan.workspace_bytes() == 3 * held * 32 * 514 * 4


def told_of(name, request):
    """Return the remarks that hold."""
    remarks, scope = Segments.of(*SPECS[name]).remarks(), Scope(request=request, arch=arch())
    return [told for remark in remarks if (told := remark.told(scope))]


@pytest.mark.parametrize("keys, segments, empty", [(160, 10, 0), (160, 11, 1), (161, 11, 0), (0, 3, 3), (160, 7, 2)])
def test_segments_without_keys_are_told(keys, segments, empty):
    """In seven segments of ten tiles each has two, so that five have all."""
    told = told_of("pipelined registers", asked(keys=keys, num_seg=segments))
    assert told[0].endswith("as num_seg asks")
    said = [each for each in told if "empty" in each]
    assert [each.partition(" ")[0] for each in said] == ([str(empty)] if empty else [])
