"""MLA decode over pages of several tiles: the same memory in small pages gives the same bits, and faults are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest
from built_once import artifact_of, runners, simulator

from kinfolk.dispatch import dispatch
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, convert, memory
from kinfolk.ir.types import I1, I32, I64
from kinfolk.ir.value import Value
from kinfolk.plugins.composition import Composition, compose
from kinfolk.tile import paging
from kinfolk_mla.decode import gathered
from kinfolk_mla.decode.epilogue import count_refused_pages
from kinfolk_mla.decode.gathered import GatheredTile
from kinfolk_mla.decode.limits import PAGE_SIZE, PAGE_SIZES, SMALL_PAGES
from kinfolk_mla.request import MlaRequest
from kinfolk_runtime.binder import bind
from kinfolk_runtime.verify import run_scenario

pytestmark = [pytest.mark.compile, pytest.mark.simulate, pytest.mark.needs("mla", "gfx942")]

Patch = pytest.MonkeyPatch
LARGER = PAGE_SIZES[1:]


HEADS = {"mla.decode": 16, "mla.grouped": 64, "mla.pipelined": 128}


def asked(page_size: int, num_seg: int = 1, candidate: str = "mla.decode") -> MlaRequest:
    fields: dict[str, Any] = {"num_seqs": 6, "total_q": 6, "max_seqlen_q": 1, "max_seqlen_k": 300}
    fields |= {"num_heads": HEADS[candidate], "candidate": candidate}
    fields |= {"absorbed_query": True, "page_size": page_size, "num_seg": num_seg}
    return MlaRequest(**fields, **MlaRequest.cli_defaults(fields))


@pytest.fixture(scope="module", params=["gfx942", "gfx950"])
def composition(request: pytest.FixtureRequest) -> Composition:
    return compose("mla", request.param)


def scenario_of(composition: Composition, request: MlaRequest, name: str) -> Any:
    [found] = [each for each in composition.scenarios(request) if each.name == name]
    return found


def in_small_pages(
    request: MlaRequest, inputs: dict[str, Any], page_size: int = PAGE_SIZE
) -> tuple[MlaRequest, dict[str, Any]]:
    """Return the request and the same memory in smaller pages, the table written out."""
    parts = request.page_size // page_size
    small = attrs.evolve(request, page_size=page_size, num_pages=request.num_pages * parts)
    cache = {name: inputs[name].reshape(small.num_pages, page_size, -1) for name in ("c_kv", "k_rope")}
    table = inputs["block_table"].astype(np.int64)
    known = (table >= 0) & (table < request.num_pages)
    wide = np.where(known, table * parts, -1)[:, :, None] + np.where(known[:, :, None], np.arange(parts), 0)
    return small, inputs | cache | {"block_table": wide.reshape(len(table), -1).astype(np.int32)}


WIDE = [
    ("mla.pipelined", 32, 1, "bad_pages"),
    ("mla.pipelined", 128, 3, "ragged"),
    ("mla.grouped", 32, 3, "ragged"),
    ("mla.grouped", 64, 1, "bad_pages"),
]
"""300 keys in three segments are 7 tiles of 16 each, or 4 of 32: the second begins inside a page of 128."""


@pytest.mark.parametrize("page_size", LARGER)
@pytest.mark.parametrize("name", ["ragged", "bad_pages"])
def test_pages_are_the_same_memory_as_as_many_small_ones(composition: Composition, page_size: int, name: str) -> None:
    same_in_small_pages(composition, asked(page_size), name)


@pytest.mark.parametrize(("candidate", "page_size", "num_seg", "name"), WIDE)
def test_so_they_are_to_the_wide_kernels(
    composition: Composition, candidate: str, page_size: int, num_seg: int, name: str
) -> None:
    same_in_small_pages(composition, asked(page_size, num_seg, candidate), name)


@pytest.mark.parametrize("page_size", SMALL_PAGES)
def test_so_they_are_where_keys_are_gathered(composition: Composition, page_size: int) -> None:
    same_in_small_pages(composition, asked(PAGE_SIZE), "ragged", page_size)


def same_in_small_pages(composition: Composition, request: MlaRequest, name: str, page_size: int = PAGE_SIZE) -> None:
    scenario = scenario_of(composition, request, name)
    large, inputs = scenario.request, dict(scenario.inputs())
    small, given = in_small_pages(large, inputs, page_size)
    outputs = []
    for request, tensors in ((large, inputs), (small, given)):
        bound = bind(
            artifact_of(request, composition.arch.name), tensors, executor=simulator(), composition=composition
        )
        outputs.append({each: np.array(array) for each, array in bound().items()})
    assert [array.tobytes() for array in outputs[0].values()] == [array.tobytes() for array in outputs[1].values()]


@pytest.mark.parametrize(("page_size", "num_seg"), [(max(PAGE_SIZES), 1), (1, 1), (2, 3)])
def test_every_scenario_passes_on_the_largest_and_on_small_ones(page_size: int, num_seg: int) -> None:
    composition, request = compose("mla", "gfx942"), asked(page_size, num_seg)
    artifact = artifact_of(request, composition.arch.name)
    for scenario in composition.scenarios(request):
        report = run_scenario(composition, artifact, scenario, runners((1,)))
        assert report.status == "pass", [str(finding) for finding in report.findings]


@pytest.mark.parametrize("num_seg", [2, 7, 16])
@pytest.mark.parametrize("name", ["ragged", "bad_pages", "address_table"])
def test_segments_that_begin_inside_a_page_are_right(num_seg: int, name: str) -> None:
    """300 keys are 19 tiles: of 10, 3 and 2 tiles a segment, in pages of 8, most begin inside a page."""
    composition, request = compose("mla", "gfx942"), asked(128, num_seg)
    [scenario] = [each for each in composition.scenarios(request) if each.name == name]
    report = run_scenario(composition, artifact_of(request, composition.arch.name), scenario, runners())
    assert report.status == "pass", [str(finding) for finding in report.findings]


def test_all_pages_are_one_kernel_or_for_small_ones_another(composition: Composition) -> None:
    for sizes in (PAGE_SIZES, SMALL_PAGES):
        specs = {dispatch(asked(size), composition.arch.name).launches[0].spec for size in sizes}
        assert len(specs) == 1


def every_tile_is_a_page(patch: Patch) -> None:
    patch.setattr(paging.Parts, "slot", lambda self, tile: self.first + tile)


def every_tile_is_the_first(patch: Patch) -> None:
    patch.setattr(paging.Parts, "place", lambda self, tile: constant(0, I32))


def parts_in_reverse(patch: Patch) -> None:
    whole = paging.Parts.place

    def place(self: paging.Parts, tile: Value) -> Value:
        return (constant(1, I32) << self.shift) - 1 - whole(self, tile)

    patch.setattr(paging.Parts, "place", place)


def a_page_is_counted_with_each_tile(patch: Patch) -> None:
    patch.setattr(paging.PageTable, "opens", lambda self, tile: constant(1, I1))


def a_slot_too_few(patch: Patch) -> None:
    patch.setattr(paging.Parts, "slots", lambda self, tiles: arithmetic.lshr(self.first + tiles, self.shift))


def a_neighbours_row_is_carried(patch: Patch) -> None:
    whole = GatheredTile._carried
    patch.setattr(GatheredTile, "_carried", lambda self, tile: whole(self, tile) ^ 1)


def every_lane_counts(patch: Patch) -> None:
    patch.setattr(gathered, "count_refused_pages", lambda work, refused, lanes: count_refused_pages(work, refused, 64))


def one_lane_counts(patch: Patch) -> None:
    patch.setattr(gathered, "count_refused_pages", lambda work, refused, lanes: count_refused_pages(work, refused))


def a_row_is_32_bits_of_elements(patch: Patch) -> None:
    def pointer(self: paging.Row, cache: Value, row_elements: int) -> Value:
        return memory.offset(cache, convert.sext(convert.trunc(self.number * row_elements, to=I32), to=I64))

    patch.setattr(paging.Row, "pointer", pointer)


def only_own_keys_are_watched(patch: Patch) -> None:
    patch.setattr(GatheredTile, "_watched", GatheredTile._carried)


FAULTS: list[tuple[int, Callable[[Patch], None], str, set[str]]] = [
    (64, every_tile_is_a_page, "ragged", {"simulation"}),
    (64, every_tile_is_the_first, "ragged", {"tolerance"}),
    (64, parts_in_reverse, "ragged", {"simulation"}),
    (64, a_page_is_counted_with_each_tile, "bad_pages", {"page_ids"}),
    (64, a_slot_too_few, "ragged", {"simulation"}),
    (4, every_tile_is_a_page, "ragged", {"simulation"}),
    (4, parts_in_reverse, "ragged", {"simulation"}),
    (4, a_page_is_counted_with_each_tile, "bad_pages", {"page_ids"}),
    (1, a_neighbours_row_is_carried, "ragged", {"tolerance", "simulation"}),
    (1, every_lane_counts, "bad_pages", {"page_ids"}),
    (1, one_lane_counts, "bad_pages", {"page_ids"}),
    (1, a_row_is_32_bits_of_elements, "address_5gib", {"simulation"}),
    (1, only_own_keys_are_watched, "bad_pages", {"page_ids"}),
]


@pytest.mark.parametrize(
    ("page_size", "plant", "name", "codes"), FAULTS, ids=lambda each: getattr(each, "__name__", None)
)
def test_a_planted_fault_is_told(
    monkeypatch: Patch, page_size: int, plant: Callable[[Patch], None], name: str, codes: set[str]
) -> None:
    composition = compose("mla", "gfx942")
    request = asked(page_size)
    artifact = artifact_of(request, composition.arch.name)
    plant(monkeypatch)
    emitted = tuple(attrs.evolve(each, kernel=composition.emit(each.spec)) for each in artifact.kernels)
    faulty = attrs.evolve(artifact, kernels=emitted)
    report = run_scenario(composition, faulty, scenario_of(composition, request, name), runners())
    assert report.status == "fail"
    assert codes & {finding.code for finding in report.findings}, [str(each) for each in report.findings]
