"""Rows, heads of query tokens: any number of heads and of tokens, on every kernel that takes absorbed queries.

What no sequence owns is NaN, slots of no page are -1, and sequences of a batch differ in queries and keys: more of the
one, more of the other, one of either and none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest
from built_once import artifact_of, runners

from kinfolk.check import ScenarioReport, compare
from kinfolk.dispatch import dispatch, why
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import memory
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.plugins.composition import compose
from kinfolk_mla.decode import sequence
from kinfolk_mla.prefill_reference import absorbed_prefill
from kinfolk_mla.reference import decode_reference
from kinfolk_mla.request import MlaRequest
from kinfolk_runtime import call
from kinfolk_runtime.artifact import Artifact
from kinfolk_runtime.verify import run_scenario

pytestmark = [pytest.mark.simulate, pytest.mark.needs("mla", "gfx942", "gfx950")]
Patch = pytest.MonkeyPatch


def asked(heads: int, tokens: int, candidate: str | None = None, **changes: Any) -> MlaRequest:
    given: dict[str, Any] = {"num_heads": heads, "num_seqs": 3, "max_seqlen_q": tokens, "total_q": tokens + 2}
    given |= {"max_seqlen_k": 100, "absorbed_query": True, "candidate": candidate} | changes
    return MlaRequest(**given, **MlaRequest.cli_defaults(given))


def judged(request: MlaRequest, arch: str, scenario: str, artifact: Artifact | None = None) -> ScenarioReport:
    composition = compose("mla", arch)
    (chosen,) = [each for each in composition.scenarios(request) if each.name == scenario]
    return run_scenario(composition, artifact or artifact_of(request, arch), chosen, runners())


@functools.cache
def right(request: MlaRequest, arch: str, scenario: str) -> bool:
    """Return whether the kernels as they are pass a scenario: the control of every fault planted in them."""
    return judged(request, arch, scenario).status == "pass"


CASES = [
    ("gfx942", "mla.decode", 8, 1, "ragged"),
    ("gfx950", "mla.decode", 12, 1, "bad_pages"),
    ("gfx942", "mla.decode", 96, 1, "page_plus_one"),
    ("gfx942", "mla.decode", 12, 20, "queries"),
    ("gfx950", "mla.decode", 48, 2, "queries"),
    ("gfx942", "mla.decode", 128, 3, "bad_pages"),
    ("gfx942", "mla.pipelined", 32, 1, "ragged"),
    ("gfx942", "mla.pipelined", 12, 20, "queries"),
    ("gfx950", "mla.pipelined", 96, 2, "queries"),
    ("gfx942", "mla.grouped", 8, 20, "queries"),
    ("gfx950", "mla.grouped", 16, 3, "queries"),
    ("gfx950", "mla.grouped", 48, 1, "bad_pages"),
]


@pytest.mark.parametrize(("arch", "candidate", "heads", "tokens", "scenario"), CASES)
def test_any_heads_and_tokens_are_served(arch: str, candidate: str, heads: int, tokens: int, scenario: str) -> None:
    report = judged(asked(heads, tokens, candidate), arch, scenario)
    assert report.status == "pass", report.findings


@pytest.mark.parametrize("candidate", ["mla.decode", "mla.pipelined", "mla.grouped"])
def test_segments_of_several_queries_are_put_together(candidate: str) -> None:
    """Of a segment some rows see keys, and others none."""
    report = judged(asked(12, 20, candidate, num_seg=4), "gfx942", "queries")
    assert report.status == "pass", report.findings


def test_without_a_mask_every_token_sees_all_keys() -> None:
    assert judged(asked(12, 20, "mla.decode", causal=False), "gfx942", "queries").status == "pass"


def one_key_more(patch: Patch) -> None:
    whole = sequence.Sight.keys
    patch.setattr(sequence.Sight, "keys", lambda self, row, before: whole(self, row, before) + 1)


def a_token_a_row(patch: Patch) -> None:
    patch.setattr(sequence, "_token", lambda first, row, inverse: row)


def all_rows_of_one_token(patch: Patch) -> None:
    patch.setattr(sequence, "_token", lambda first, row, inverse: constant(0, I32))


def a_block_begins_with_a_token(patch: Patch) -> None:
    whole = sequence._token
    patch.setattr(sequence, "_token", lambda first, row, inverse: whole(constant(0, I32), row, inverse))


def rows_past_the_last_are_stored(patch: Patch) -> None:
    def rows(self: sequence.Work, tensor: Value, number: Value, width: int) -> Value:
        return memory.bound(memory.offset(tensor, number * width), constant(self.geometry.spec.rows * width, I32))

    patch.setattr(sequence.Work, "_rows", rows)


def first_row_is_last(patch: Patch) -> None:
    """Tiles are counted by a sequence's last token for all of its workgroups, masks by their own."""
    patch.setattr(sequence, "tokens_after", lambda arguments, rows_after: constant(0, I32))


FAULTS = [
    one_key_more,
    a_token_a_row,
    all_rows_of_one_token,
    a_block_begins_with_a_token,
    rows_past_the_last_are_stored,
    first_row_is_last,
]


@pytest.mark.parametrize("plant", FAULTS, ids=lambda each: each.__name__)
def test_a_planted_fault_is_told(monkeypatch: Patch, plant: Callable[[Patch], None]) -> None:
    """12 heads of 20 tokens: 240 rows, so that workgroups begin and end within tokens."""
    request = asked(12, 20, "mla.decode")
    artifact = artifact_of(request, "gfx942")
    assert right(request, "gfx942", "queries")
    with monkeypatch.context() as patch:
        plant(patch)
        composition = compose("mla", "gfx942")
        kernels = tuple(attrs.evolve(each, kernel=composition.emit(each.spec)) for each in artifact.kernels)
    report = judged(request, "gfx942", "queries", attrs.evolve(artifact, kernels=kernels))
    assert report.status == "fail", plant.__name__


def test_tokens_of_a_sequence_are_as_many_decode_steps() -> None:
    """Each token as a sequence of its own, with the pages of its sequence and the keys it sees; and by the definition
    of prefill, all queries of a head at once.
    """
    request = asked(12, 20)
    (chosen,) = [each for each in compose("mla", "gfx942").scenarios(request) if each.name == "queries"]
    inputs, many = dict(chosen.inputs()), chosen.request
    assert isinstance(many, MlaRequest)
    queries, keys = np.diff(inputs["cu_seqlens_q"]), np.diff(inputs["cu_seqlens_k"])
    owner = np.repeat(np.arange(len(queries)), queries)
    place = np.concatenate([np.arange(count) for count in queries])
    seen = np.maximum(keys[owner] - queries[owner] + place + 1, 0)
    single = attrs.evolve(many, num_seqs=len(owner), max_seqlen_q=1)
    steps = inputs | {
        "cu_seqlens_q": np.arange(len(owner) + 1, dtype=np.int32),
        "cu_seqlens_k": np.cumsum([0, *seen]).astype(np.int32),
        "block_table": inputs["block_table"][owner],
    }
    expected = decode_reference(many, inputs)
    together, alone = (call(artifact_of(each, "gfx942"), given) for each, given in ((many, inputs), (single, steps)))
    plan = dispatch(many, "gfx942")
    out, lse = absorbed_prefill(many, inputs)
    for name, defined in (("out", out), ("lse", lse)):
        dtype, found = plan.binding(name).dtype, np.asarray(together[name])
        near = attrs.evolve(expected[name], value=np.asarray(alone[name]).astype(np.float64))
        assert not compare(name, dtype, found, near).findings
        assert not compare(name, dtype, found, attrs.evolve(expected[name], value=defined)).findings
    assert (np.asarray(together["out"])[seen == 0] == 0).all() and np.isneginf(together["lse"][seen == 0]).all()


@pytest.mark.parametrize(
    ("heads", "tokens", "chosen"),
    [
        *((8, 1, "decode"), (16, 1, "decode"), (64, 1, "grouped"), (128, 1, "pipelined"), (16, 2, "decode")),
        *((12, 4, "grouped"), (16, 8, "pipelined"), (64, 3, "grouped"), (128, 2, "pipelined"), (128, 99, "pipelined")),
    ],
)
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_each_is_served_by_the_kernel_whose_rows_it_fills(arch: str, heads: int, tokens: int, chosen: str) -> None:
    """All that are slower are admitted and say so; none of projected queries takes an absorbed one."""
    answer = why(asked(heads, tokens), arch)
    assert answer.selected == f"mla.{chosen}"
    admitted = {each.name for each in answer.candidates if each.admitted}
    assert admitted == {"mla.decode", "mla.grouped", "mla.pipelined"}
    assert "mla.prefill.absorbed_query" in {each.code for found in answer.candidates for each in found.refusals}
