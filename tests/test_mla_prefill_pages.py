"""Prefill of projected queries over pages smaller than an atom: the same bits as of the same memory in large ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

from kinfolk.dispatch import dispatch
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import convert, memory
from kinfolk.ir.types import I1, I32, I64
from kinfolk.ir.value import Value
from kinfolk.plugins.composition import Composition, compose
from kinfolk.tile import paging
from kinfolk_mla.decode.limits import PAGE_SIZE, PAGE_SIZES, SMALL_PAGES
from kinfolk_mla.prefill import gathered
from kinfolk_mla.prefill.gathered import GatheredExpansion
from kinfolk_mla.prefill.rows import PresentKeys
from kinfolk_mla.request import MlaRequest
from kinfolk_runtime.artifact import Artifact
from kinfolk_runtime.binder import bind
from kinfolk_runtime.compilation import compile as compile_plan
from kinfolk_runtime.simulator import Simulator
from kinfolk_runtime.verify import run_scenario, runners_of

pytestmark = pytest.mark.needs("mla", "gfx942", "gfx950")

ARCHS = ["gfx942", "gfx950"]
Patch = pytest.MonkeyPatch


def asked(page_size: int, **changes: Any) -> MlaRequest:
    fields: dict[str, Any] = {"num_heads": 2, "num_seqs": 2, "total_q": 40, "max_seqlen_q": 35, "max_seqlen_k": 100}
    fields |= {"absorbed_query": False, "page_size": page_size, "candidate": "mla.prefill", **changes}
    return MlaRequest(**fields, **MlaRequest.cli_defaults(fields))


def symbols(page_size: int, arch: str) -> set[str]:
    launches = dispatch(asked(page_size), arch).launches
    return {launch.spec.symbol().rpartition("_")[0] for launch in launches}


@pytest.mark.parametrize("arch", ARCHS)
def test_small_pages_have_kernels_of_their_own_and_larger_ones_the_others(arch: str) -> None:
    """On both sides of the edge, which are pages of 8 and of 16 keys."""
    assert all(symbols(size, arch) == {"mla_expand_rows_bf16", "mla_prefill_rows_bf16"} for size in SMALL_PAGES)
    assert all(symbols(size, arch) == {"mla_expand_bf16", "mla_prefill_bf16"} for size in PAGE_SIZES)


@pytest.mark.parametrize("arch", ARCHS)
def test_attention_over_rows_is_one_kernel_whatever_the_cache(arch: str) -> None:
    narrow = {"gfx942": "f8E4M3FNUZ", "gfx950": "f8E4M3FN"}[arch]
    attend = {dispatch(asked(1, kv_dtype=each), arch).launches[1].spec for each in ("bf16", narrow)}
    assert len(attend) == 1


@pytest.mark.parametrize("arch", ARCHS)
def test_whole_prompts_in_small_pages_form_keys_and_values(arch: str) -> None:
    for page_size in SMALL_PAGES:
        given = {"page_size": page_size, "num_heads": 16, "candidate": None, "total_q": 600}
        whole = asked(**given, max_seqlen_q=512, max_seqlen_k=512)
        few = asked(**given, num_seqs=150, max_seqlen_q=4, max_seqlen_k=512)
        assert dispatch(whole, arch).candidate == "mla.prefill"
        assert dispatch(few, arch).candidate == "mla.absorbed.decode"


def artifact_of(composition: Composition, request: MlaRequest) -> Artifact:
    return compile_plan(dispatch(request, composition.arch.name), composition=composition)


def outputs_of(composition: Composition, request: MlaRequest, tensors: dict[str, Any]) -> dict[str, bytes]:
    """Return the bytes of both outputs; how many pages are not there is told in pages."""
    bound = bind(artifact_of(composition, request), tensors, executor=Simulator(), composition=composition)()
    return {name: np.array(bound[name]).tobytes() for name in ("out", "lse")}


def in_small_pages(request: MlaRequest, inputs: dict[str, Any], page_size: int) -> tuple[MlaRequest, dict[str, Any]]:
    """Return the request and the same memory in smaller pages, the table written out."""
    parts = request.page_size // page_size
    small = attrs.evolve(request, page_size=page_size, num_pages=request.num_pages * parts)
    cache = {name: inputs[name].reshape(small.num_pages, page_size, -1) for name in ("c_kv", "k_rope")}
    table = inputs["block_table"].astype(np.int64)[:, :, None]
    known = (table >= 0) & (table < request.num_pages)
    wide = np.where(known, table * parts + np.arange(parts), -1)
    return small, inputs | cache | {"block_table": wide.reshape(len(table), -1).astype(np.int32)}


@pytest.mark.compile
@pytest.mark.simulate
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("name", "page_size"), [("ragged", 1), ("ragged", 8), ("bad_pages", 2)])
def test_small_pages_are_the_same_memory_as_large_ones(arch: str, name: str, page_size: int) -> None:
    composition = compose("mla", arch)
    [scenario] = [each for each in composition.scenarios(asked(PAGE_SIZE)) if each.name == name]
    inputs = dict(scenario.inputs())
    small, given = in_small_pages(scenario.request, inputs, page_size)
    assert outputs_of(composition, scenario.request, inputs) == outputs_of(composition, small, given)


@pytest.mark.compile
@pytest.mark.simulate
@pytest.mark.parametrize(
    ("arch", "page_size", "changes"),
    [("gfx942", 2, {}), ("gfx950", 4, {"kv_dtype": "f8E4M3FN", "k_scale": 0.25})],
)
def test_every_scenario_passes(arch: str, page_size: int, changes: dict[str, Any]) -> None:
    """NaN in rows that no sequence owns among them, and page ids outside the cache."""
    composition, request = compose("mla", arch), asked(page_size, **changes)
    artifact = artifact_of(composition, request)
    scenarios = composition.scenarios(request)
    assert len(scenarios) == 11
    for scenario in scenarios:
        report = run_scenario(composition, artifact, scenario, runners_of(order_seeds=(1,)))
        assert report.status == "pass", (scenario.name, [str(finding) for finding in report.findings])


def all_keys_are_there(patch: Patch) -> None:
    patch.setattr(PresentKeys, "ask", lambda self, tile: [constant(-1, I32)] * self.scores.blocks)


def rotated_parts_stay_behind(patch: Patch) -> None:
    patch.setattr(GatheredExpansion, "_pass_rotated", lambda self, table: None)


def a_lane_tells_of_its_own_key(patch: Patch) -> None:
    patch.setattr(gathered, "across_lanes", lambda value, masks, combine: value)


def a_page_is_counted_with_each_key(patch: Patch) -> None:
    patch.setattr(paging.PageTable, "opens", lambda self, tile: constant(1, I1))


def every_key_is_a_page(patch: Patch) -> None:
    patch.setattr(paging.Parts, "slot", lambda self, tile: tile)


def a_row_is_32_bits_of_elements(patch: Patch) -> None:
    def pointer(self: paging.Row, cache: Value, row_elements: int) -> Value:
        return memory.offset(cache, convert.sext(convert.trunc(self.number * row_elements, to=I32), to=I64))

    patch.setattr(paging.Row, "pointer", pointer)


FAULTS: list[tuple[int, Callable[[Patch], None], str, str]] = [
    (1, all_keys_are_there, "bad_pages", "tolerance"),
    (1, rotated_parts_stay_behind, "whole", "simulation"),
    (1, a_lane_tells_of_its_own_key, "whole", "tolerance"),
    (4, a_page_is_counted_with_each_key, "bad_pages", "page_ids"),
    (4, every_key_is_a_page, "ragged", "tolerance"),
    (1, a_row_is_32_bits_of_elements, "address_5gib", "simulation"),
]


@pytest.mark.compile
@pytest.mark.simulate
@pytest.mark.parametrize(
    ("page_size", "plant", "name", "code"), FAULTS, ids=lambda each: getattr(each, "__name__", None)
)
def test_a_planted_fault_is_told(
    monkeypatch: Patch, page_size: int, plant: Callable[[Patch], None], name: str, code: str
) -> None:
    composition, request = compose("mla", "gfx942"), asked(page_size)
    artifact = artifact_of(composition, request)
    [scenario] = [each for each in composition.scenarios(request) if each.name == name]
    plant(monkeypatch)
    emitted = tuple(attrs.evolve(each, kernel=composition.emit(each.spec)) for each in artifact.kernels)
    faulty = attrs.evolve(artifact, kernels=emitted)
    monkeypatch.undo()
    report = run_scenario(composition, faulty, scenario, runners_of(order_seeds=(0,)))
    assert code in {finding.code for finding in report.findings}, [str(each) for each in report.findings]
