"""What decode takes: each limit on both sides of its edge, and every admitted request within the space of specs."""

import re

import attrs
import numpy as np
import pytest
from mla_requests import asking
from mla_toy_arch import arch, atoms

from kinfolk.contents import Offsets, PageIds
from kinfolk.expr import Scope, TensorGeometry, from_json
from kinfolk.fields import FieldError
from kinfolk.ir.meaning import Matrix, OperandMap
from kinfolk.ir.op import OpDef
from kinfolk.ir.types import SCALARS
from kinfolk.matrix import Atom, MatrixCatalog
from kinfolk.refusal import unmet
from kinfolk.usage import Usage
from kinfolk_mla.absorbed import limits as absorbed_limits
from kinfolk_mla.combine import limits as combine_limits
from kinfolk_mla.combine.plan import combine_spec
from kinfolk_mla.combine.spec import MlaCombineSpec
from kinfolk_mla.decode import limits as decode_limits
from kinfolk_mla.decode.candidate import DECODE
from kinfolk_mla.decode.limits import CAPABILITY, MOST_HEADS, MOST_QUERIES, workgroup_bytes
from kinfolk_mla.decode.plan import SCHEDULES, decode_plan, decode_spec, decode_specs, schedule_for
from kinfolk_mla.plugin import kinfolk_candidates, kinfolk_gate_resources, kinfolk_validate_spec
from kinfolk_mla.prefill import limits as prefill_limits
from kinfolk_mla.spec import INVERSE_BITS, MlaDecodeSpec, MlaNarrowDecodeSpec
from kinfolk_mla.wide import limits as wide_limits

SPEC_LIMITS = decode_limits.SPEC_LIMITS[MlaDecodeSpec]
NARROW_LIMITS = decode_limits.SPEC_LIMITS[MlaNarrowDecodeSpec]
request = asking(num_heads=128, num_seqs=3, max_seqlen_k=777)


EDGES = {
    "absorbed_query": (True, False),
    "max_seqlen_q": (2**20, 2**20 + 1),
    "total_q": (2**31 - 1, 2**31),
    "num_heads": (1024, 1025),
    "kv_lora_rank": (512, 256),
    "rope_dim": (64, 32),
    "page_size": (16, 48),
    "dtype": ("bf16", "f16"),
    "kv_dtype": ("bf16", "f8E5M2"),
    "num_seqs": (65535, 65536),
    "num_seg": (65535, 65536),
    "max_seqlen_k": (2**31 - 48, 2**31 - 47),
    "num_pages": (2**31 - 1, 2**31),
}


def having(encoding):
    """Return the arch with instructions that know an encoding of 8-bit floats."""
    return arch(facts=dict(arch().facts) | {"fp8_format": encoding})


def test_every_limit_has_an_edge_here():
    assert {limit.field for limit in CAPABILITY} == EDGES.keys()


@pytest.mark.parametrize("name", EDGES)
def test_each_limit_is_enforced_on_both_sides_and_says_so(name):
    good, bad = EDGES[name]
    others = {"num_pages": 147, "kv_dtype": "bf16"} | ({"total_q": 1} if name == "num_seqs" else {})
    if name == "max_seqlen_q":
        others |= {"total_q": bad}
    if name == "total_q":
        others |= {"num_seqs": 2**12, "max_seqlen_q": 2**20, "num_pages": 2**20}
    assert DECODE.unmet(CAPABILITY, request(**(others | {name: good})), having("ocp")) == ()
    [refusal] = DECODE.unmet(CAPABILITY, request(**(others | {name: bad})), having("ocp"))
    assert (refusal.code, refusal.field, refusal.value) == (f"mla.decode.{name}", name, bad)
    assert refusal.plugin == "kinfolk-mla" and str(good) in refusal.limit.replace("2147483600", str(2**31 - 48))
    assert refusal.remedy.endswith(".") and refusal.because


@pytest.mark.parametrize("heads", [1, 8, 12, 16, 24, 32, 48, 64, 96, 100, 127, 128, *range(16, 257, 16)])
def test_any_number_of_heads_is_served(heads):
    assert DECODE.unmet(CAPABILITY, request(num_heads=heads), arch()) == ()


@pytest.mark.parametrize("heads", [1025, 2048])
def test_more_heads_than_run_are_told_how_many_do(heads):
    [refusal] = DECODE.unmet(CAPABILITY, request(num_heads=heads), arch())
    assert f" {MOST_HEADS}" in refusal.remedy and refusal.kind == "cannot"


@pytest.mark.parametrize("heads, grid, most", [(16, 2**31 - 1, MOST_QUERIES), (128, 2**16, 512), (100, 1000, 10)])
def test_rows_are_an_axis_of_the_grid(heads, grid, most):
    """Of the kernel that combines segments, one workgroup a row."""
    small = arch(facts=dict(arch().facts) | {"max_grid_x": grid})
    assert DECODE.unmet(CAPABILITY, request(num_heads=heads, max_seqlen_q=most, total_q=most), small) == ()
    [refusal] = DECODE.unmet(CAPABILITY, request(num_heads=heads, max_seqlen_q=most + 1, total_q=most + 1), small)
    assert refusal.field == "max_seqlen_q" and f" {most} tokens" in refusal.remedy


def test_no_request_is_too_large_to_be_judged():
    huge = request(num_heads=2**62, num_seqs=1, max_seqlen_q=2**62, total_q=2**62, num_pages=1)
    fields = [refusal.field for refusal in DECODE.unmet(CAPABILITY, huge, arch())]
    assert fields == ["num_heads", "max_seqlen_q", "total_q"]


@pytest.mark.parametrize(
    "heads, tokens, idle",
    [
        *((heads, 1, True) for heads in (1, 8, 16, 32, 48, 80, 96, 112)),
        *((heads, 1, False) for heads in (49, 64, 120, 128, 256)),
        (16, 4, False),
        (16, 3, True),
        (12, 8, True),  # 96 rows: two of eight waves have none
        (20, 1001, False),  # 20,020: three of 1,252
    ],
)
def test_waves_without_rows_pass_where_they_are_many(heads, tokens, idle):
    asked = request(num_heads=heads, max_seqlen_q=tokens, total_q=tokens + 2)
    assert decode_plan(asked, arch()).launches[0].spec.idle_waves is idle


def test_all_limits_that_do_not_hold_are_told():
    wrong = request(num_heads=2000, page_size=48, dtype="f16")
    fields = [refusal.field for refusal in DECODE.unmet(CAPABILITY, wrong, arch())]
    assert fields == ["num_heads", "page_size", "dtype", "kv_dtype"]


OWN = {"ocp": "f8E4M3FN", "fnuz": "f8E4M3FNUZ"}


@pytest.mark.parametrize("encoding", OWN)
def test_a_cache_in_the_other_encoding_is_refused_with_the_name_of_the_right_one(encoding):
    own, other = OWN[encoding], next(name for each, name in OWN.items() if each != encoding)
    assert DECODE.unmet(CAPABILITY, request(kv_dtype=own), having(encoding)) == ()
    [refusal] = DECODE.unmet(CAPABILITY, request(kv_dtype=other), having(encoding))
    assert (refusal.code, refusal.value) == ("mla.decode.kv_dtype", other)
    assert refusal.limit.startswith(f"bf16 or {own} (") and refusal.remedy == f"Store the cache as bf16 or as {own}."
    specs = {spec.kv_dtype for spec in decode_specs(having(encoding), "llvm22") if isinstance(spec, MlaDecodeSpec)}
    assert specs == {"bf16", own}


def test_an_arch_that_does_not_say_which_8_bit_floats_it_knows_takes_none():
    assert DECODE.unmet(CAPABILITY, request(), arch()) == ()
    [refusal] = DECODE.unmet(CAPABILITY, request(kv_dtype="f8E4M3FN"), arch())
    assert (refusal.code, refusal.limit) == ("mla.decode.kv_dtype", "an arch that declares fp8_format")
    assert {spec.kv_dtype for spec in decode_specs(arch(), "llvm22") if isinstance(spec, MlaDecodeSpec)} == {"bf16"}


SPEC_EDGES = {
    "latent_width": (512, 528),
    "rope_width": (64, 80),
    "page_size": (16, 8),
    "dtype": ("f16", "f8E4M3FN"),
    "kv_dtype": ("f8E4M3FNUZ", "f8E4M3FN"),
    "workgroups_per_cu": (2, 3),
    "fence_every": (18, 19),
}


@pytest.mark.parametrize("count, taken", [(18, True), (19, False)])
def test_no_more_reads_are_parked_than_a_lane_makes_of_a_key_row(count, taken):
    """64 lanes share 16 heads: four lanes a row of 576 elements, 8 in a read of 16 bytes."""
    spec = attrs.evolve(decode_spec(), parked_query_reads=count, workgroups_per_cu=1)
    found = unmet(SPEC_LIMITS, spec, arch(facts=dict(arch().facts) | {"lds_bytes": 1 << 20}), "p")
    assert [refusal.field for refusal in found] == ([] if taken else ["parked_query_reads"])


@pytest.mark.parametrize("name", SPEC_EDGES)
def test_each_limit_of_a_spec_has_two_sides(name):
    good, bad = SPEC_EDGES[name]
    spec = decode_spec()

    def unmet_with(value):
        also = {"kv_dtype": value} if name == "dtype" else {}
        return unmet(SPEC_LIMITS, attrs.evolve(spec, **{name: value}, **also), having("fnuz"), "p")

    assert unmet_with(good) == ()
    [refusal] = unmet_with(bad)
    assert (refusal.field, refusal.value) == (name, bad)


@pytest.mark.parametrize(
    "matrix, dtype, missing",
    [
        (atoms("bf16"), "bf16", False),
        (atoms("bf16"), "f16", True),
        (atoms("f16"), "bf16", True),
        (atoms("bf16", k=32), "bf16", True),
        (atoms(), "f16", True),
    ],
)
def test_an_arch_without_the_atom_of_a_type_is_refused(matrix, dtype, missing):
    found = unmet(SPEC_LIMITS, attrs.evolve(decode_spec(), dtype=dtype, kv_dtype=dtype), arch(matrix=matrix), "p")
    assert [(refusal.code, refusal.kind) for refusal in found] == [("mla.decode.spec.atom", "cannot")] * missing
    assert all(f"matrix.16x16x16.{dtype}.{dtype}.f32" in str(refusal) for refusal in found)


def test_an_arch_of_other_waves_is_refused_for_that():
    other = arch(wave_size=32)
    found = unmet(SPEC_LIMITS, decode_spec(), other, "p")
    assert [refusal.code for refusal in found] == ["mla.decode.spec.wave_size"]
    assert "64" in found[0].limit


def narrow_arch(**changes):
    """Return the arch with waves of 32 lanes and an atom of 16x8x16 alone."""
    where = OperandMap(np.zeros((32, 4), np.int64), np.zeros((32, 4), np.int64))
    meaning = Matrix(16, 8, 16, SCALARS["bf16"], SCALARS["bf16"], SCALARS["f32"], where, where, where)
    op = OpDef(name="toy.narrow", result=lambda *_: (), issue="matrix", meaning=meaning, lowering=print)
    return arch(**({"wave_size": 32, "matrix": MatrixCatalog((Atom(op, 4),))} | changes))


def test_an_arch_of_narrow_waves_and_atoms_is_served_by_specs_of_their_own():
    """Twice as many workgroups, each of half as many heads; every spec of the space is valid there and nowhere else."""
    narrow = narrow_arch()
    *space, last = decode_specs(narrow, "llvm22")
    assert kinfolk_validate_spec(last, narrow) == ()
    assert {type(spec) for spec in space} == {MlaNarrowDecodeSpec}
    assert [spec.idle_waves for spec in space] == [False, True, False, True]
    assert all(unmet(NARROW_LIMITS, spec, narrow, "p") == () for spec in space)
    assert not set(space) & set(decode_specs(arch(), "llvm22"))
    codes = [refusal.code for refusal in unmet(NARROW_LIMITS, space[0], arch(), "p")]
    assert codes == ["mla.decode.spec.atom", "mla.decode.spec.wave_size"]
    for each, grid, block in ((arch(), (2, 3, 1), 256), (narrow, (4, 3, 1), 128)):
        plan = attrs.evolve(decode_plan(request(), each), facts=each.facts)
        assert [(plan.grid(launch), launch.block) for launch in plan.launches] == [(grid, block), ((0, 0, 0), 128)]


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({"wave_size": 64}, ["atom"]),
        ({"matrix": atoms("bf16")}, ["wave_size"]),
        ({"matrix": atoms("f16")}, ["atom", "wave_size"]),
    ],
)
def test_an_arch_that_has_one_of_the_two_alone_is_refused_for_the_other(changes, codes):
    half = narrow_arch(**changes)
    [kind] = {type(spec) for spec in decode_specs(half, "llvm22")} - {MlaCombineSpec}
    refusals = unmet(decode_limits.SPEC_LIMITS[kind], decode_spec(kind=kind), half, "p")
    assert kind is MlaDecodeSpec
    assert [refusal.code.removeprefix("mla.decode.spec.") for refusal in refusals] == codes


@pytest.mark.parametrize("limit", SPEC_LIMITS, ids=lambda limit: limit.code)
def test_what_a_spec_must_meet_is_data(limit):
    """Nothing of an arch is baked in: the condition reads it, and comes back from JSON as it is."""
    assert from_json(limit.condition.to_json()) == limit.condition
    assert limit.condition.leaves()


def test_the_declared_workgroup_memory_fits_twice_with_the_default_schedule():
    needed = workgroup_bytes().integer(Scope(request=decode_spec(), arch=arch()))
    assert needed == 16 * (512 + 64 + 8) * 2 + 3 * 256 * 16
    small = arch(facts=dict(arch().facts) | {"lds_bytes": 2 * needed - 1})
    assert unmet(SPEC_LIMITS, decode_spec(), small, "p")


def test_the_space_is_finite_and_each_spec_in_it_is_valid():
    *space, last = decode_specs(arch(), "llvm22")
    assert last == combine_spec() and kinfolk_validate_spec(last, arch()) == ()
    assert [spec.idle_waves for spec in space] == [False, True, False, True]
    assert len({spec.identity() for spec in space}) == len(space) == 4
    assert all(unmet(SPEC_LIMITS, spec, arch(), "p") == () for spec in space)


def test_arguments_are_what_the_request_says():
    drawn = request(num_heads=48, max_seqlen_k=70, num_pages=1000)
    plan = attrs.evolve(decode_plan(drawn, arch()), facts=arch().facts)
    tables = {"block_table": TensorGeometry((3, 5), (9, 1))}
    values = {value.name: value.value for value in plan.arguments(plan.launches[0], tables)}
    assert (values["block_table_stride"], values["num_pages"]) == (9, 1000)
    assert (values["total_q"], values["max_seqlen_k"]) == (3, 70)
    assert (values["num_segments"], values["segment_pages"]) == (1, 5)
    assert [plan.grid(launch) for launch in plan.launches] == [(1, 3, 1), (0, 0, 0)]
    more = attrs.evolve(decode_plan(request(num_heads=112, num_seg=7), arch()), facts=arch().facts)
    assert [more.grid(launch) for launch in more.launches] == [(2, 3, 7), (112, 3, 1)]


def test_the_plan_binds_what_the_kernel_takes_and_checks_its_indices():
    plan = decode_plan(request(), arch())
    assert plan.outputs == ("out", "lse") and plan.launches[0].block == 256
    assert plan.minimum_bytes("qa") == 3 * 128 * 576 * 2
    assert plan.minimum_bytes("c_kv") == 147 * 16 * 512 * 2
    table = {"block_table": TensorGeometry((3, 49), (60, 1))}
    assert plan.minimum_bytes("block_table", table) == (2 * 60 + 49) * 4
    assert [type(content) for content in plan.contents] == [Offsets, Offsets, PageIds]


@pytest.mark.parametrize("causal, tokens, count", [(True, 1, 0), (False, 1, 1), (False, 2, 0)])
def test_a_mask_that_changes_nothing_is_noted(causal, tokens, count):
    assert len(DECODE.notes_for(request(causal=causal, max_seqlen_q=tokens), arch())) == count


@pytest.mark.parametrize("heads", [1, 3, 12, 127, 1000, 1023, 1024])
def test_the_fraction_that_finds_a_token_is_exact(heads):
    """For every place of a workgroup's first row in a token, and every row; with four bits fewer it is not."""
    places = np.arange(heads)[:, None] + np.arange(128)[None, :]
    inverse = -(-(2**INVERSE_BITS) // heads)
    assert (places * inverse < 2**32).all()
    assert (places * inverse >> INVERSE_BITS == places // heads).all()


def test_a_fraction_of_fewer_bits_is_not_exact():
    """Negative control."""
    bits = INVERSE_BITS - 4
    wrong = 0
    for heads in range(900, 1025):
        places = np.arange(heads + 127)
        wrong += int((places * -(-(2**bits) // heads) >> bits != places // heads).sum())
    assert wrong


def usage(**figures):
    return Usage(symbol="k", target="toy", scratch_bytes=0, scratch_ops=0, figures=figures)


def test_a_kernel_must_fit_as_often_as_its_schedule_counts_on():
    spec = decode_spec()
    assert kinfolk_gate_resources(usage(workgroups_per_cu=2), spec, arch()) == ()
    [refusal] = kinfolk_gate_resources(usage(workgroups_per_cu=1), spec, arch())
    assert (refusal.code, refusal.value) == ("mla.decode.resources.workgroups_per_cu", 1)
    assert "at least 2" in str(refusal)
    assert kinfolk_gate_resources(usage(), spec, arch()) == (), "an arch that counts otherwise gates by itself"
    assert kinfolk_gate_resources(usage(workgroups_per_cu=0), object(), arch()) == ()


@pytest.mark.parametrize("workgroups, share", [(1, 512), (2, 256), (3, 170)])
def test_a_wave_keeps_to_its_share_of_the_registers(workgroups, share):
    spec = attrs.evolve(decode_spec(), workgroups_per_cu=workgroups)
    for vgpr, agpr in ((share, 0), (share - 8, 8)):
        assert kinfolk_gate_resources(usage(vgpr=vgpr, agpr=agpr), spec, arch()) == ()
        [refusal] = kinfolk_gate_resources(usage(vgpr=vgpr, agpr=agpr + 1), spec, arch())
        assert (refusal.code, refusal.field) == ("mla.decode.resources.vgpr", "vgpr")


def test_the_schedule_follows_from_what_an_arch_declares():
    plain, reading = arch(), arch(name="other", roles=["transpose_read_16"])
    schedules = [schedule for _, schedule in SCHEDULES]
    assert [schedule_for(each) for each in (reading, plain)] == schedules
    assert decode_plan(request(), reading).launches[0].spec == decode_spec(False, schedules[0])
    assert decode_plan(request(), plain).launches[0].spec == decode_spec()
    assert set(decode_specs(reading, "llvm22")) & set(decode_specs(plain, "llvm22")) == {combine_spec()}


def every_limit():
    """Return the limits of all candidates, of all kinds of specs and of what the compiler made of each."""
    found = [limit for candidate in kinfolk_candidates(having("fnuz")) for limit in candidate.capability]
    spaces = (
        decode_limits.SPEC_LIMITS,
        prefill_limits.SPEC_LIMITS,
        absorbed_limits.SPEC_LIMITS,
        wide_limits._SPEC_LIMITS,
    )
    found += [limit for space in spaces for limits in space.values() for limit in limits]
    found += [*combine_limits.SPEC_LIMITS, *combine_limits.RESOURCE_LIMITS]
    return [*found, *decode_limits.resource_limits(decode_spec())]


RAW = re.compile(r"[<>]|==|!=|select\(| in \(|'\w+'| // ")
"""What an expression has that is written out, and a sentence has not."""


def test_every_limit_says_what_it_takes_in_words():
    found = every_limit()
    assert len({limit.code for limit in found}) > 80
    scope = Scope(arch=having("fnuz"))
    assert not [(limit.code, limit.worded(scope)) for limit in found if RAW.search(limit.worded(scope))]
    assert any(
        RAW.search(str(limit.condition)) and RAW.search(attrs.evolve(limit, takes="").worded(scope)) for limit in found
    )


@pytest.mark.parametrize(
    ("word", "remedy"), [("fp8", "fp8_format is ocp"), ("FP8", "fnuz"), ("float8_e4m3fn", "Pass f8E4M3FN.")]
)
def test_names_of_8_bit_floats_that_are_none_have_a_remedy(word, remedy):
    with pytest.raises(FieldError) as caught:
        attrs.evolve(request(), kv_dtype=word)
    assert remedy in str(caught.value)
    assert request(kv_dtype="f8E4M3FN").kv_dtype == "f8E4M3FN"
