"""Caches of gigabytes: both archs pass the scenarios about addresses, and what addresses wrongly fails them by name."""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pytest
from built_once import artifact_of

from kinfolk.analysis import indirections
from kinfolk.check import ScenarioReport, numpy_dtype
from kinfolk.dispatch import dispatch
from kinfolk.errors import BindError, NoCandidate
from kinfolk.ir import Kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, convert, lanes, memory
from kinfolk.ir.types import I16, I32, I64
from kinfolk.ir.value import Value
from kinfolk.plugins.composition import Composition, compose
from kinfolk.tile import paging
from kinfolk_mla.addresses import address_scenarios
from kinfolk_mla.decode import keys
from kinfolk_mla.request import MlaRequest
from kinfolk_mla.spec import INVERSE_BITS
from kinfolk_runtime.artifact import Artifact
from kinfolk_runtime.binder import StatusError, bind, call
from kinfolk_runtime.mutation import with_kernel
from kinfolk_runtime.simulator import Simulator, SparseBuffer
from kinfolk_runtime.simulator.sanitizers import ALL, Sanitizer
from kinfolk_runtime.verify import run_scenario, runners_of, verify

pytestmark = [pytest.mark.simulate, pytest.mark.needs("mla", "gfx942")]

REQUEST = MlaRequest(
    num_heads=16,
    num_seqs=1,
    total_q=1,
    max_seqlen_q=1,
    max_seqlen_k=16,
    absorbed_query=True,
    page_size=16,
    num_pages=1,
    dtype="bf16",
    kv_dtype="bf16",
    causal=True,
    scale=192**-0.5,
)
NAMES = [scenario.name for scenario in address_scenarios(REQUEST)]
MOST_BYTES = 2**30
"""By which a run may raise the most memory that this process ever held: half of the smallest latent cache."""
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module", params=["gfx942", "gfx950"])
def composition(request: pytest.FixtureRequest) -> Composition:
    return compose("mla", request.param)


@pytest.fixture(scope="module")
def artifact(composition: Composition) -> Artifact:
    return artifact_of(REQUEST, composition.arch.name)


def judged(
    composition: Composition, artifact: Artifact, emitted: Kernel, name: str, sanitize: Iterable[Sanitizer] = ALL
) -> ScenarioReport:
    """Run one scenario on `emitted` in place of the artifact's kernel, in one order: no address depends on it."""
    planted = with_kernel(artifact, artifact.kernels[0].spec, emitted)
    (chosen,) = [each for each in composition.scenarios(REQUEST) if each.name == name]
    return run_scenario(composition, planted, chosen, runners_of(order_seeds=(0,), sanitize=sanitize))


def names_of(report: ScenarioReport) -> set[str]:
    """Return the codes of the findings; of a fault of the simulator, its kind, which ends its message."""
    messages = [finding.message for finding in report.findings if finding.code == "simulation"]
    kinds = {message.partition("] [order seed")[0].rpartition("[")[2] for message in messages}
    return {finding.code for finding in report.findings if finding.code != "simulation"} | kinds


def most_held_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("heads", [16, 128])
def test_large_caches_are_right_and_take_little_memory(composition: Composition, heads: int) -> None:
    request, held = attrs.evolve(REQUEST, num_heads=heads), most_held_bytes()
    report = verify(request, composition.arch.name, scenarios=NAMES)
    assert report.status == "pass", [finding for each in report.scenarios for finding in each.findings]
    assert [each.name for each in report.scenarios] == NAMES and report.engine == "fast"
    assert all(output.elements for each in report.scenarios for output in each.outputs)
    assert most_held_bytes() - held < MOST_BYTES


def page_product(product: Callable[[Value, int], Value]) -> Callable[[Patch], None]:
    """Plant another way from a page's id, and the elements of a page, to the element at which it begins."""

    def plant(patch: Patch) -> None:
        def view(self: paging.Page, cache: Value, row_elements: int, page_size: int) -> Value:
            page = convert.trunc(self.identifier, to=I32)  # a page is one tile here, so its number is its id
            pointer = memory.offset(cache, product(page, page_size * row_elements))
            return memory.bound(pointer, self.rows * row_elements)

        patch.setattr(paging.Page, "view", view)

    return plant


def product_in_32_bits(page: Value, elements: int) -> Value:
    return convert.sext(arithmetic.mul(page, elements, nsw=False), to=I64)


def product_in_32_bits_without_sign(page: Value, elements: int) -> Value:
    return convert.zext(arithmetic.mul(page, elements, nsw=False), to=I64)


def product_claimed_to_fit(page: Value, elements: int) -> Value:
    return convert.sext(arithmetic.mul(page, elements, nsw=True), to=I64)


def bytes_in_32_bits(page: Value, elements: int) -> Value:
    return convert.sext(arithmetic.mul(page, 2 * elements, nsw=False), to=I64) // 2


def id_of_16_bits(page: Value, elements: int) -> Value:
    return convert.sext(convert.trunc(page, to=I16), to=I64) * elements


def id_of_16_bits_without_sign(page: Value, elements: int) -> Value:
    return convert.zext(convert.trunc(page, to=I16), to=I64) * elements


def id_of_24_bits(page: Value, elements: int) -> Value:
    return convert.sext(arithmetic.ashr(arithmetic.shl(page, 8), 8), to=I64) * elements


def id_of_24_bits_without_sign(page: Value, elements: int) -> Value:
    return convert.zext(arithmetic.lshr(arithmetic.shl(page, 8), 8), to=I64) * elements


def table_not_bounded(patch: Patch) -> None:
    """The view of a sequence's slots is as long as any table."""
    whole = paging.PageTable.of_sequence.__func__

    def of_sequence(cls: type[paging.PageTable], table: Value, *given: Value, **named: Any) -> paging.PageTable:
        made = whole(cls, table, *given, **named)
        stride, sequence = given
        first = convert.sext(sequence, to=I64) * convert.sext(stride, to=I64)
        return attrs.evolve(made, view=memory.bound(memory.offset(table, first), constant(1 << 20, I32)))

    patch.setattr(paging.PageTable, "of_sequence", classmethod(of_sequence))


def rows_not_bounded(patch: Patch) -> None:
    """A page inside the cache has all its rows, also one that is named behind the sequence's last."""

    def resolve(self: paging.PageTable, identifier: Value, tile: Value) -> paging.Page:
        page, zero = lanes.uniform(identifier), constant(0, I32)
        inside = arithmetic.icmp(page, self.num_pages, predicate="ult")
        rows = lanes.uniform(arithmetic.select(inside, constant(self.page_size, I32), zero))
        return paging.Page(arithmetic.select(inside, page, zero), rows)

    patch.setattr(paging.PageTable, "resolve", resolve)


def table_and_rows_not_bounded(patch: Patch) -> None:
    table_not_bounded(patch)
    rows_not_bounded(patch)


def one_slot_too_many(patch: Patch) -> None:
    whole = paging.PageTable.of_sequence.__func__

    def of_sequence(cls: type[paging.PageTable], *given: Value, **named: Any) -> paging.PageTable:
        made = whole(cls, *given, **named)
        return attrs.evolve(made, tiles=made.tiles + 1)

    patch.setattr(paging.PageTable, "of_sequence", classmethod(of_sequence))


def id_judged(inside: Callable[[Value, Value], Value], known: Callable[[Value, Value], Value]) -> Callable[..., None]:
    """Plant another judgement of a page id, and another page in place of one that it refuses."""

    def plant(patch: Patch) -> None:
        def resolve(self: paging.PageTable, identifier: Value, tile: Value) -> paging.Page:
            page, zero = lanes.uniform(identifier), constant(0, I32)
            left = arithmetic.smax(self.length - tile * self.page_size, zero)
            rows = arithmetic.smin(left, constant(self.page_size, I32))
            valid = lanes.uniform(arithmetic.select(inside(page, self.num_pages), rows, zero))
            return paging.Page(known(page, self.num_pages), valid)

        patch.setattr(paging.PageTable, "resolve", resolve)

    return plant


def signed(page: Value, bound: Value) -> Value:
    return arithmetic.icmp(page, bound, predicate="slt")


def at_most(page: Value, bound: Value) -> Value:
    return arithmetic.icmp(page, bound, predicate="ule")


def always(page: Value, bound: Value) -> Value:
    return arithmetic.icmp(bound, bound, predicate="eq")


def as_it_is(page: Value, bound: Value) -> Value:
    return page


def first(page: Value, bound: Value) -> Value:
    return arithmetic.select(arithmetic.icmp(page, bound, predicate="ult"), page, constant(0, I32))


def refused_not_counted(patch: Patch) -> None:
    patch.setattr(keys, "count_refused_pages", lambda work, refused: None)


FAULTS: dict[str, tuple[Callable[[Patch], None], str, set[str]]] = {
    "product in 32 bits": (page_product(product_in_32_bits), "address_5gib", {"memory"}),
    "product in 32 bits, no sign": (page_product(product_in_32_bits_without_sign), "address_ids", {"initialisation"}),
    "product claimed to fit": (page_product(product_claimed_to_fit), "address_5gib", {"integer"}),
    "bytes in 32 bits": (page_product(bytes_in_32_bits), "address_2gib", {"memory"}),
    "id of 16 bits": (page_product(id_of_16_bits), "address_2gib", {"memory"}),
    "id of 16 bits, no sign": (page_product(id_of_16_bits_without_sign), "address_2gib", {"initialisation"}),
    "id of 24 bits": (page_product(id_of_24_bits), "address_ids", {"memory"}),
    "id of 24 bits, no sign": (page_product(id_of_24_bits_without_sign), "address_ids", {"initialisation"}),
    "table not bounded": (table_not_bounded, "address_table", {"initialisation"}),
    "table not bounded, at its end": (table_not_bounded, "address_5gib", {"memory"}),
    "rows not bounded": (rows_not_bounded, "address_5gib", {"initialisation"}),
    "dead slots read": (table_and_rows_not_bounded, "address_dead_slots", {"initialisation"}),
    "one slot too many": (one_slot_too_many, "address_dead_slots", {"page_ids"}),
    "id judged with sign": (id_judged(signed, as_it_is), "address_bad_ids", {"memory"}),
    "id judged one too far": (id_judged(at_most, as_it_is), "address_bad_ids", {"memory"}),
    "id not judged": (id_judged(always, as_it_is), "address_bad_ids", {"memory"}),
    "first page for a refused one": (id_judged(always, first), "address_bad_ids", {"initialisation"}),
    "refused ids not counted": (refused_not_counted, "address_bad_ids", {"page_ids"}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_narrow_address_fails_its_scenario_by_name(
    fault: str, composition: Composition, artifact: Artifact, monkeypatch: Patch
) -> None:
    plant, scenario, seen = FAULTS[fault]
    plant(monkeypatch)
    faulty = composition.emit(artifact.kernels[0].spec)
    monkeypatch.undo()
    report = judged(composition, artifact, faulty, scenario, ALL - {"indirection"})
    assert report.status == "fail" and seen <= names_of(report), report.findings


@pytest.mark.parametrize("fault", ["id judged with sign", "id not judged"])
def test_an_id_without_a_bound_is_an_indirection_in_any_scenario(
    fault: str, composition: Composition, artifact: Artifact, monkeypatch: Patch
) -> None:
    """Without running: no scenario need bring the id that shows it."""
    FAULTS[fault][0](monkeypatch)
    faulty = composition.emit(artifact.kernels[0].spec)
    monkeypatch.undo()
    [found, *_] = indirections(faulty)
    assert found.what == "the base of a view" and found.chain[0].name == "core.view_load"
    assert names_of(judged(composition, artifact, faulty, "address_dead_slots")) == {"indirection"}


@pytest.mark.parametrize(
    "product, scenario",
    [(product_in_32_bits, "address_2gib"), (product_claimed_to_fit, "address_2gib"), (id_of_24_bits, "address_5gib")],
)
def test_below_its_edge_a_narrow_address_passes(
    product: Any, scenario: str, composition: Composition, artifact: Artifact, monkeypatch: Patch
) -> None:
    """The control: what fails past an edge is right before it, so it is the edge that is tested."""
    page_product(product)(monkeypatch)
    narrow = composition.emit(artifact.kernels[0].spec)
    monkeypatch.undo()
    report = judged(composition, artifact, narrow, scenario)
    assert report.status == "pass", report.findings


def arguments_of_one_key(artifact: Artifact, *, token: int = 0, sequence: int = 0, stride: int = 1) -> dict[str, Any]:
    """Return the arguments of one sequence of one key whose query is row `token` and whose table row lies far out.

    The key is all ones and the query all zeros: `out` must be 1, and lse 0. Of query, table and outputs only the rows
    in use exist.
    """
    heads, dtype = REQUEST.num_heads, numpy_dtype("bf16")
    offsets = {name: np.zeros(sequence + 2, np.int32) for name in ("cu_seqlens_q", "cu_seqlens_k")}
    offsets["cu_seqlens_q"][sequence:] = token, token + 1
    offsets["cu_seqlens_k"][sequence + 1] = 1

    def row_of(width: int, dtype: np.dtype[Any]) -> SparseBuffer:
        row = np.zeros((heads, width), dtype)
        return SparseBuffer((token + 1) * row.nbytes, {token * row.nbytes: row})

    table_row = 4 * sequence * stride
    return offsets | {
        "qa": row_of(576, dtype),
        "c_kv": np.ones((1, 16, 512), dtype),
        "k_rope": np.ones((1, 16, 64), dtype),
        "block_table": SparseBuffer(table_row + 4, {table_row: np.zeros(1, np.int32)}),
        "status": np.zeros(1, np.int32),
        "out": row_of(512, dtype),
        "lse": row_of(1, np.dtype(np.float32)),
        "scale": 1.0,
        "k_scale": 1.0,
        "block_table_stride": stride,
        "num_pages": 1,
        "total_q": token + 1,
        "max_seqlen_q": 1,
        "max_seqlen_k": 1,
        "num_heads": heads,
        "heads_inverse": 2**INVERSE_BITS // heads,
        "part_out": np.zeros(0, np.float32),
        "part_ml": np.zeros(0, np.float32),
        "num_segments": 1,
        "segment_pages": 1,
        "page_shift": 0,
    }


def written(buffer: SparseBuffer) -> npt.NDArray[np.uint8]:
    """Return the bytes that exist of a buffer."""
    (part,) = buffer.ranges()
    return np.ctypeslib.as_array((ctypes.c_uint8 * (part.end - part.start)).from_address(part.address))


ROWS = [edge + step for edge in (2**16, 2**17, 2**18, 2**25) for step in (-1, 0, 1)]
"""Rows of 16 heads at which `out` passes 2^30, 2^31 and 2^32 bytes, and `lse` 2^31."""


@pytest.mark.parametrize("token", ROWS)
def test_rows_of_queries_past_4_gib(composition: Composition, artifact: Artifact, token: int) -> None:
    arguments = arguments_of_one_key(artifact, token=token)
    Simulator().launch(artifact.kernels[0].kernel, (1, 1, 1), arguments)
    assert (written(arguments["out"]).view(numpy_dtype("bf16")).astype(np.float32) == 1).all()
    assert (written(arguments["lse"]).view(np.float32) == 0).all()


@pytest.mark.parametrize("stride", [2**28, 2**28 + 1, 2**29 - 1, 2**29, 2**31 - 1])
def test_rows_of_tables_past_4_gib(composition: Composition, artifact: Artifact, stride: int) -> None:
    arguments = arguments_of_one_key(artifact, sequence=4, stride=stride)
    Simulator().launch(artifact.kernels[0].kernel, (1, 5, 1), arguments)
    assert (written(arguments["out"]).view(numpy_dtype("bf16")).astype(np.float32) == 1).all()


def test_bad_ids_are_counted_by_a_bound_call_and_refused_by_the_plain_one(
    composition: Composition, artifact: Artifact
) -> None:
    (chosen,) = [each for each in composition.scenarios(REQUEST) if each.name == "address_bad_ids"]
    made = attrs.evolve(artifact, plan=dispatch(chosen.request, composition.arch.name))
    inputs = chosen.inputs()
    bound = bind(made, inputs)
    bound()
    wrong = int(composition.reference(chosen.request, inputs)["status"][0])
    assert bound.status() == {"status": wrong} and wrong > 5
    with pytest.raises(BindError, match=r"block_table\[0, 0\] is page -1, ids in \[0, 327682\) are needed"):
        call(made, inputs)
    unchecked = attrs.evolve(made, plan=attrs.evolve(made.plan, contents=()))
    with pytest.raises(StatusError, match=f"status word status is {wrong} after the launch"):
        call(unchecked, inputs)


def test_a_cache_past_the_bound_is_refused_with_the_bound_and_what_to_do() -> None:
    largest = attrs.evolve(REQUEST, num_pages=2**31 - 1)
    assert dispatch(largest, "gfx942").candidate == "mla.decode"
    with pytest.raises(NoCandidate, match=r"num_pages is 2147483648, supported: at most 2147483647 .*Divide the cache"):
        dispatch(attrs.evolve(largest, num_pages=2**31), "gfx942")
