"""The decode kernel where nobody checked what it is given: offsets that fall, and specs that no plan names."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import attrs
import numpy as np
import pytest
from built_once import simulator

from kinfolk.check import compare, numpy_dtype
from kinfolk.ir import Kernel
from kinfolk.ir.ops import memory
from kinfolk.plugins.composition import Composition, compose
from kinfolk_mla.decode.geometry import Geometry
from kinfolk_mla.decode.plan import decode_spec, schedule_for
from kinfolk_mla.decode.sequence import Arguments, Work
from kinfolk_mla.reference import decode_reference
from kinfolk_mla.request import MlaRequest
from kinfolk_mla.scenarios import decode_scenarios
from kinfolk_mla.spec import MlaDecodeSpec
from kinfolk_runtime.simulator.engine import Simulator
from kinfolk_runtime.simulator.fault import KernelFault
from kinfolk_runtime.simulator.sanitizers import ALL, Sanitizer

pytestmark = [pytest.mark.simulate, pytest.mark.needs("mla")]

REQUEST = MlaRequest(
    num_heads=16,
    num_seqs=2,
    total_q=2,
    max_seqlen_q=1,
    max_seqlen_k=40,
    absorbed_query=True,
    page_size=16,
    num_pages=8,
    dtype="bf16",
    kv_dtype="bf16",
    causal=True,
    scale=192**-0.5,
)


@pytest.fixture(scope="module", params=["gfx942", "gfx950"])
def composition(request: pytest.FixtureRequest) -> Composition:
    return compose("mla", request.param)


def spec_of(composition: Composition, dtype: str = "bf16") -> MlaDecodeSpec:
    return attrs.evolve(decode_spec(schedule=schedule_for(composition.arch)), dtype=dtype, kv_dtype=dtype)


@functools.cache
def kernel_of(arch: str, dtype: str = "bf16") -> Kernel:
    composition = compose("mla", arch)
    return composition.emit(spec_of(composition, dtype))


def arguments_of(request: MlaRequest, scenario: str, **changed: list[int]) -> dict[str, Any]:
    """Return kernel arguments with a scenario's inputs, and outputs that hold NaN."""
    (chosen,) = [each for each in decode_scenarios(request) if each.name == scenario]
    inputs = dict(chosen.inputs()) | {name: np.array(values, np.int32) for name, values in changed.items()}
    table = np.ascontiguousarray(inputs["block_table"])
    rows = (request.total_q, request.num_heads)
    outputs = {
        "status": np.zeros(1, np.int32),
        "out": np.full((*rows, request.kv_lora_rank), np.nan, numpy_dtype(request.dtype)),
        "lse": np.full(rows, np.nan, np.float32),
    }
    values = {
        "scale": request.scale,
        "k_scale": request.k_scale,
        "block_table_stride": table.shape[1],
        "num_pages": request.num_pages,
        "total_q": request.total_q,
        "max_seqlen_q": request.max_seqlen_q,
        "num_heads": request.num_heads,
        "heads_inverse": 0,
        "max_seqlen_k": request.max_seqlen_k,
        "part_out": np.zeros(0, np.float32),
        "part_ml": np.zeros(0, np.float32),
        "num_segments": 1,
        "segment_pages": -(-request.max_seqlen_k // request.page_size),
        "page_shift": 0,
    }
    return inputs | {"block_table": table} | outputs | values


def launched(kernel: Kernel, arguments: dict[str, Any], sanitize: Iterable[Sanitizer] = ALL) -> dict[str, Any]:
    with_sanitizers = simulator() if sanitize == ALL else Simulator(sanitize=sanitize)
    with_sanitizers.launch(kernel, (1, REQUEST.num_seqs, 1), arguments)
    return arguments


@pytest.mark.parametrize("offsets", [(40, 40), (40, 39), (40, 0), (40, -(2**31)), (2**31 - 1, -(2**31))])
def test_a_sequence_whose_offsets_fall_is_empty(composition: Composition, offsets: tuple[int, int]) -> None:
    """From 40 to 40 is no key; so is from 40 to anything less. The sequence after it is what it was."""
    kernel = kernel_of(composition.arch.name)
    first, last = offsets
    whole = launched(kernel, arguments_of(REQUEST, "ragged", cu_seqlens_k=[0, 40, 60]))
    found = launched(kernel, arguments_of(REQUEST, "ragged", cu_seqlens_k=[first, last, last + 20]))
    assert (found["out"][0] == 0).all() and np.isneginf(found["lse"][0]).all()
    assert np.array_equal(found["out"][1], whole["out"][1]) and np.isfinite(found["lse"][1]).all()
    assert np.isfinite(whole["lse"][0]).all() and found["status"] == 0


def test_a_difference_that_32_bits_do_not_hold_is_no_length(composition: Composition) -> None:
    kernel = kernel_of(composition.arch.name)
    last = 2**31 - 1
    found = launched(kernel, arguments_of(REQUEST, "ragged", cu_seqlens_k=[-1, last, last]))
    assert (found["out"] == 0).all() and np.isneginf(found["lse"]).all()


@pytest.mark.parametrize("length", [41, 2**20, 2**31 - 21])
def test_a_sequence_longer_than_there_may_be_is_cut(composition: Composition, length: int) -> None:
    """So the view of its slots ends with its row of the table, whatever the offsets are."""
    kernel = kernel_of(composition.arch.name)
    whole = launched(kernel, arguments_of(REQUEST, "ragged", cu_seqlens_k=[0, REQUEST.max_seqlen_k, 60]))
    found = launched(kernel, arguments_of(REQUEST, "ragged", cu_seqlens_k=[0, length, length + 20]))
    assert np.array_equal(found["out"], whole["out"]) and np.array_equal(found["lse"], whole["lse"])


def test_without_the_clamp_a_fall_reads_past_the_table(
    composition: Composition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the length as it comes is 2^28 pages."""
    whole = Work.of

    def unclamped(arguments: Arguments, geometry: Geometry) -> Work:
        work = whole(arguments, geometry)
        first, last = (memory.offset(arguments.cu_seqlens_k, work.sequence + number) for number in (0, 1))
        return attrs.evolve(work, length=memory.load(last) - memory.load(first))

    monkeypatch.setattr(Work, "of", unclamped)
    kernel = composition.emit(spec_of(composition))
    monkeypatch.undo()
    with pytest.raises(KernelFault, match="block_table"):
        launched(kernel, arguments_of(REQUEST, "ragged", cu_seqlens_k=[0, 40, 1]), ALL - {"indirection"})
    with pytest.raises(KernelFault, match="the size of a view made of a loaded value without an upper bound"):
        launched(kernel, arguments_of(REQUEST, "ragged"))


@pytest.mark.parametrize("second", [1, 0, -5])
def test_a_sequence_whose_query_offsets_fall_has_no_query(composition: Composition, second: int) -> None:
    """Its row is nobody's, and keeps what it held."""
    kernel = kernel_of(composition.arch.name)
    found = launched(kernel, arguments_of(REQUEST, "ragged", cu_seqlens_q=[0, 1, second]))
    assert np.isfinite(found["lse"][0]).all() and np.isfinite(found["out"][0].astype(np.float32)).all()
    assert np.isnan(found["lse"][1]).all() and np.isnan(found["out"][1].astype(np.float32)).all()


@pytest.mark.parametrize("row", [REQUEST.total_q, 2**30, 2**31 - 2, -1, -(2**31)])
def test_a_query_row_that_does_not_exist_is_no_query(composition: Composition, row: int) -> None:
    """Nothing is read for it, and nothing written."""
    kernel = kernel_of(composition.arch.name)
    found = launched(kernel, arguments_of(REQUEST, "ragged", cu_seqlens_q=[row, row + 1, row + 1]))
    assert np.isnan(found["lse"]).all() and np.isnan(found["out"].astype(np.float32)).all()


def test_the_last_query_row_is_one(composition: Composition) -> None:
    """The other side of the edge."""
    kernel = kernel_of(composition.arch.name)
    last = REQUEST.total_q - 1
    found = launched(kernel, arguments_of(REQUEST, "ragged", cu_seqlens_q=[last, last + 1, last + 1]))
    assert np.isfinite(found["lse"][last]).all() and np.isnan(found["lse"][:last]).all()


@pytest.mark.parametrize(
    "dtype, scenario", [("f16", "ragged"), ("f16", "spike"), ("bf16", "ragged"), ("bf16", "extreme")]
)
def test_a_spec_of_either_16_bit_type_gives_a_kernel_of_it(composition: Composition, dtype: str, scenario: str) -> None:
    request = attrs.evolve(REQUEST, dtype=dtype, kv_dtype=dtype, max_seqlen_k=80, num_pages=16)
    spec = spec_of(composition, dtype)
    assert not composition.validate_spec(spec)
    arguments = launched(kernel_of(composition.arch.name, dtype), arguments_of(request, scenario))
    expected = decode_reference(request, {name: arguments[name] for name in INPUTS})
    for name in ("out", "lse"):
        outcome = compare(name, "f32" if name == "lse" else dtype, arguments[name], expected[name])
        assert not outcome.findings, outcome


INPUTS = ("qa", "c_kv", "k_rope", "cu_seqlens_q", "cu_seqlens_k", "block_table")


@pytest.mark.parametrize("dtype", ["f32", "f8E4M3FN"])
def test_a_spec_of_another_type_is_refused_and_not_an_error_of_the_ir(composition: Composition, dtype: str) -> None:
    fields = [refusal.field for refusal in composition.validate_spec(spec_of(composition, dtype))]
    assert fields[0] == "dtype"
