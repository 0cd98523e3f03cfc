"""What the decode kernels with 32 heads a wave take: each limit of a spec on both sides, in words a person reads."""

import attrs
import pytest
from mla_requests import asking
from mla_toy_arch import arch, atoms

from kinfolk.expr import from_json
from kinfolk.refusal import unmet
from kinfolk.spec import LoopWork
from kinfolk.usage import Usage
from kinfolk_mla.plugin import kinfolk_gate_resources, kinfolk_validate_spec
from kinfolk_mla.wide import limits, plan
from kinfolk_mla.wide.spec import MlaGroupedSpec, MlaPipelinedSpec

SPECS = {
    "pipelined registers": plan.wide_spec(MlaPipelinedSpec, plan.PIPELINED_REGISTERS),
    "pipelined direct": plan.wide_spec(MlaPipelinedSpec, plan.PIPELINED_DIRECT),
    "grouped registers": plan.wide_spec(MlaGroupedSpec, plan.GROUPED_REGISTERS),
    "grouped direct": plan.wide_spec(MlaGroupedSpec, plan.GROUPED_DIRECT),
}
TILE_BYTES = 16 * (512 * 2 + 64 * 2 + 16)
LDS_BYTES = {
    "pipelined registers": 3 * TILE_BYTES,
    "pipelined direct": 4 * 2 * TILE_BYTES,
    "grouped registers": 3 * TILE_BYTES,
    "grouped direct": 4 * 2 * TILE_BYTES,
}


def having(name, without="", **changes):
    """Return an arch that has what a spec needs, and no more, without a role and with other facts."""
    direct = "direct" in name
    roles = [role for role in limits.DIRECT_ROLES if direct and role != without]
    facts = {**arch().facts, "lds_bytes": LDS_BYTES[name], **changes}
    return arch(matrix=atoms("bf16", "f16", sizes=(32 if direct else 16,)), facts=facts, roles=roles)


def codes(found):
    return [refusal.code.partition(".spec.")[2] for refusal in found]


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_is_taken_where_all_it_needs_is_there(name):
    assert kinfolk_validate_spec(SPECS[name], having(name)) == ()


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("change", [{"lds_bytes": -1}, {"vgprs_per_simd": -1}])
def test_one_less_of_what_an_arch_has_is_refused(name, change):
    [(fact, less)] = change.items()
    lacking = having(name, **{fact: having(name).fact(fact) + less})
    [refusal] = kinfolk_validate_spec(SPECS[name], lacking)
    assert codes([refusal]) == ["workgroup_memory" if fact == "lds_bytes" else "registers"]
    assert fact in refusal.limit


@pytest.mark.parametrize("name", ["pipelined direct", "grouped direct"])
@pytest.mark.parametrize("role", limits.DIRECT_ROLES)
def test_direct_staging_needs_each_of_its_ops(name, role):
    assert codes(kinfolk_validate_spec(SPECS[name], having(name, without=role))) == [role]


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("change", [{"latent_width": 528}, {"rope_width": 80}, {"page_size": 8}, {"dtype": "f32"}])
def test_a_spec_of_another_shape_is_refused(name, change):
    [field] = change
    also = {"kv_dtype": change["dtype"]} if field == "dtype" else {}
    assert codes(kinfolk_validate_spec(attrs.evolve(SPECS[name], **change, **also), having(name))) == [field]


@pytest.mark.parametrize("name", SPECS)
def test_a_cache_of_another_type_is_refused(name):
    """An arch that knows an encoding serves it where tiles pass through registers, and in no other encoding."""
    spec = attrs.evolve(SPECS[name], kv_dtype="f8E4M3FN")
    assert codes(kinfolk_validate_spec(spec, having(name))) == ["kv_dtype"]
    found = {each: codes(kinfolk_validate_spec(spec, having(name, fp8_format=each))) for each in ("ocp", "fnuz")}
    assert found == {"ocp": ["kv_dtype"] if "direct" in name else [], "fnuz": ["kv_dtype"]}


@pytest.mark.parametrize("name", SPECS)
def test_an_arch_with_the_other_atoms_alone_is_refused(name):
    other = arch(matrix=atoms("bf16", "f16", sizes=(16 if "direct" in name else 32,)), roles=limits.DIRECT_ROLES)
    found, *_ = kinfolk_validate_spec(SPECS[name], other)
    assert codes([found]) == ["atom"]
    assert ("32x32x16" if "direct" in name else "16x16x16") in str(found)


@pytest.mark.parametrize("name", SPECS)
def test_limits_are_data_and_short(name):
    bare = arch(matrix=atoms("bf16", k=4), facts={**arch().facts, "lds_bytes": 1, "vgprs_per_simd": 1})
    late = {"units_after_barrier": 32, "value_read_ahead": 8}
    wrong = attrs.evolve(SPECS[name], latent_width=528, rope_width=80, page_size=8, dtype="f32", **late)
    found = unmet(limits.spec_limits(wrong), wrong, bare, "p")
    assert len(found) == len(limits.spec_limits(wrong)) - 2, "all but the size of a wave, and the atom of no such type"
    for refusal in found:
        assert len(refusal.limit) <= 70 and "select" not in refusal.limit, refusal.limit
        assert refusal.remedy.endswith(".") and refusal.because
    for limit in limits.spec_limits(SPECS[name]):
        assert from_json(limit.condition.to_json()) == limit.condition


@pytest.mark.parametrize("candidate", [plan.PIPELINED, plan.GROUPED])
def test_a_request_is_taken_with_any_rows_and_keys_that_are_counted(candidate):
    request = asking(num_heads=64, num_seqs=3, max_seqlen_k=777)
    for heads, tokens in ((1, 1), (12, 1), (64, 1), (128, 1), (1024, 1), (16, 8), (128, 4096)):
        asked = request(num_heads=heads, max_seqlen_q=tokens, total_q=tokens + 2)
        assert candidate.unmet(candidate.capability, asked, arch()) == ()
    [refusal] = candidate.unmet(candidate.capability, request(num_heads=1025), arch())
    assert (refusal.code, refusal.kind) == (f"{candidate.name}.num_heads", "cannot")
    longest = 2**31 - 9 * 16
    assert candidate.unmet(candidate.capability, request(max_seqlen_k=longest), arch()) == ()
    [refusal] = candidate.unmet(candidate.capability, request(max_seqlen_k=longest + 1), arch())
    assert refusal.field == "max_seqlen_k"


@pytest.mark.parametrize(
    "heads, tokens, slower",
    [
        *((heads, 1, {"pipelined", "grouped"}) for heads in (1, 8, 16, 32)),
        *((heads, 1, {"pipelined"}) for heads in (33, 48, 64, 129, 192)),
        *((heads, 1, set()) for heads in (65, 96, 128, 193, 256)),
        (16, 2, {"pipelined", "grouped"}),
        (16, 3, {"pipelined"}),
        (16, 5, set()),
        (64, 3, {"pipelined"}),
        (64, 4, set()),
        (64, 13, {"pipelined"}),
        (64, 15, set()),
    ],
)
def test_what_is_slower_is_said_and_is_no_refusal(heads, tokens, slower):
    """By rows: half a workgroup and more without any is slower than the kernel of half as many."""
    asked = asking(num_heads=heads, num_seqs=3, max_seqlen_k=777)(max_seqlen_q=tokens, total_q=tokens + 2)
    notes = {each.name: each.notes_for(asked, arch()) for each in (plan.PIPELINED, plan.GROUPED)}
    found = {name.removeprefix("mla.") for name, said in notes.items() if any(note.slower for note in said)}
    assert found == slower


@pytest.mark.parametrize(
    "name, tokens, heads",
    [
        ("pipelined registers", 16, 128),
        ("pipelined direct", 32, 128),
        ("grouped registers", 2 * 16, 64),
        ("grouped direct", 2 * 32, 64),
    ],
)
def test_a_round_gets_a_tile_of_each_group_done(name, tokens, heads):
    assert SPECS[name].work_per_round() == LoopWork(tokens=tokens, heads=heads)


@pytest.mark.parametrize("name", SPECS)
def test_a_wave_may_have_all_registers_and_no_more(name):
    def usage(**figures):
        return Usage(symbol="k", target="toy", scratch_bytes=0, scratch_ops=0, figures=figures)

    spec = SPECS[name]
    assert kinfolk_gate_resources(usage(vgpr=256, agpr=256, workgroups_per_cu=1), spec, arch()) == ()
    [refusal] = kinfolk_gate_resources(usage(vgpr=257, agpr=256), spec, arch())
    assert refusal.code.endswith(".resources.vgpr")
    [refusal] = kinfolk_gate_resources(usage(workgroups_per_cu=0), spec, arch())
    assert refusal.code.endswith(".resources.workgroups_per_cu")
