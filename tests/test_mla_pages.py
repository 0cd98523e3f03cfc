"""MLA decode over pages of several tiles: the same memory in small pages gives the same bits, and faults are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

from kinfolk.dispatch import dispatch
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic
from kinfolk.ir.types import I1, I32
from kinfolk.ir.value import Value
from kinfolk.plugins.composition import Composition, compose
from kinfolk.tile import paging
from kinfolk_mla.decode.limits import PAGE_SIZE, PAGE_SIZES
from kinfolk_mla.request import MlaRequest
from kinfolk_runtime.artifact import Artifact
from kinfolk_runtime.binder import bind
from kinfolk_runtime.compilation import compile as compile_plan
from kinfolk_runtime.simulator import Simulator
from kinfolk_runtime.verify import run_scenario, runners_of

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


def artifact_of(composition: Composition, request: MlaRequest) -> Artifact:
    return compile_plan(dispatch(request, composition.arch.name), composition=composition)


def in_small_pages(request: MlaRequest, inputs: dict[str, Any]) -> tuple[MlaRequest, dict[str, Any]]:
    """Return the request and the same memory in pages of 16, the table written out."""
    parts = request.page_size // PAGE_SIZE
    small = attrs.evolve(request, page_size=PAGE_SIZE, num_pages=request.num_pages * parts)
    cache = {name: inputs[name].reshape(small.num_pages, PAGE_SIZE, -1) for name in ("c_kv", "k_rope")}
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


def same_in_small_pages(composition: Composition, request: MlaRequest, name: str) -> None:
    scenario = scenario_of(composition, request, name)
    large, inputs = scenario.request, dict(scenario.inputs())
    small, given = in_small_pages(large, inputs)
    outputs = []
    for request, tensors in ((large, inputs), (small, given)):
        bound = bind(artifact_of(composition, request), tensors, executor=Simulator(), composition=composition)
        outputs.append({each: np.array(array) for each, array in bound().items()})
    assert [array.tobytes() for array in outputs[0].values()] == [array.tobytes() for array in outputs[1].values()]


def test_every_scenario_passes_on_the_largest() -> None:
    composition, request = compose("mla", "gfx942"), asked(max(PAGE_SIZES))
    artifact = artifact_of(composition, request)
    for scenario in composition.scenarios(request):
        report = run_scenario(composition, artifact, scenario, runners_of(order_seeds=(1,)))
        assert report.status == "pass", [str(finding) for finding in report.findings]


@pytest.mark.parametrize("num_seg", [2, 7, 16])
@pytest.mark.parametrize("name", ["ragged", "bad_pages", "address_table"])
def test_segments_that_begin_inside_a_page_are_right(num_seg: int, name: str) -> None:
    """300 keys are 19 tiles: of 10, 3 and 2 tiles a segment, in pages of 8, most begin inside a page."""
    composition, request = compose("mla", "gfx942"), asked(128, num_seg)
    [scenario] = [each for each in composition.scenarios(request) if each.name == name]
    report = run_scenario(composition, artifact_of(composition, request), scenario, runners_of(order_seeds=(0,)))
    assert report.status == "pass", [str(finding) for finding in report.findings]


def test_all_pages_are_one_kernel(composition: Composition) -> None:
    specs = {dispatch(asked(size), composition.arch.name).launches[0].spec for size in PAGE_SIZES}
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


FAULTS: list[tuple[Callable[[Patch], None], str, set[str]]] = [
    (every_tile_is_a_page, "ragged", {"simulation"}),
    (every_tile_is_the_first, "ragged", {"tolerance"}),
    (parts_in_reverse, "ragged", {"simulation"}),
    (a_page_is_counted_with_each_tile, "bad_pages", {"page_ids"}),
    (a_slot_too_few, "ragged", {"simulation"}),
]


@pytest.mark.parametrize(("plant", "name", "codes"), FAULTS, ids=lambda each: getattr(each, "__name__", None))
def test_a_planted_fault_is_told(
    monkeypatch: Patch, plant: Callable[[Patch], None], name: str, codes: set[str]
) -> None:
    composition = compose("mla", "gfx942")
    plant(monkeypatch)
    request = asked(64)
    artifact = artifact_of(composition, request)
    emitted = tuple(attrs.evolve(each, kernel=composition.emit(each.spec)) for each in artifact.kernels)
    faulty = attrs.evolve(artifact, kernels=emitted)
    report = run_scenario(composition, faulty, scenario_of(composition, request, name), runners_of(order_seeds=(0,)))
    assert report.status == "fail"
    assert codes & {finding.code for finding in report.findings}, [str(each) for each in report.findings]
