"""A slot of values that is refilled while others read it: a race, whoever has laid the round out."""

from __future__ import annotations

import attrs
import pytest
from built_once import artifact_of, judged
from emitter_faults import assert_seen, values_refill_the_slot_that_is_read, with_fault

from kinfolk.plugins.composition import compose
from kinfolk_attention_fwd.request import AttentionFwdRequest
from kinfolk_attention_fwd.spec import AttentionSpec

pytestmark = [pytest.mark.simulate, pytest.mark.needs("attention_fwd", "gfx942", "gfx950")]

DENSE = AttentionFwdRequest(
    layout="dense",
    num_seqs=1,
    total_q=300,
    max_seqlen_q=300,
    max_seqlen_k=330,
    num_heads=2,
    num_kv_heads=2,
    head_size=128,
    head_size_v=128,
    dtype="bf16",
    kv_dtype="bf16",
    causal=True,
    return_lse=True,
    scale=128**-0.5,
)
PAGED = attrs.evolve(DENSE, layout="paged", page_size=64, num_pages=9, candidate="attention_fwd.paged")


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("request_", [DENSE, PAGED], ids=lambda each: each.layout)
def test_a_refilled_slot_is_a_race_and_no_kernel_has_one(
    request_: AttentionFwdRequest, arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    composition, artifact = compose("attention_fwd", arch), artifact_of(request_, arch)
    assert judged(composition, artifact, "whole").status == "pass"
    faulty = with_fault(composition, artifact, AttentionSpec, values_refill_the_slot_that_is_read, monkeypatch)
    report = judged(composition, faulty, "whole")
    assert_seen(report, {"simulation"})
    [finding] = report.findings
    assert "[race]" in finding.message
