"""Projected queries over latent rows: both kernels around attention against numpy, the choice, planted faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import ml_dtypes
import numpy as np
import pytest
from built_once import artifact_of, judged, simulator
from emitter_faults import assert_seen, with_fault

from kinfolk.dispatch import dispatch, explain
from kinfolk.errors import PinRefused
from kinfolk.expr import Scope
from kinfolk.ir.builder import constant
from kinfolk.ir.types import I32
from kinfolk.plugins.composition import Composition, compose
from kinfolk_mla.absorbed import absorb, project, tokens
from kinfolk_mla.absorbed.spec import MlaAbsorbSpec, MlaProjectSpec, MlaTokensSpec
from kinfolk_mla.decode.sequence import wide
from kinfolk_mla.prefill import weights
from kinfolk_mla.prefill.crossover import equal_queries
from kinfolk_mla.prefill.preference import BY_THE_FASTEST, few_queries
from kinfolk_mla.prefill_reference import projected_prefill
from kinfolk_mla.projection import absorbed_query, projected_output
from kinfolk_mla.request import MlaRequest
from kinfolk_runtime import call
from kinfolk_runtime.artifact import Artifact

pytestmark = pytest.mark.needs("mla", "gfx942", "gfx950")

ARCHS = ["gfx942", "gfx950"]
HEADS = 16
REQUEST = MlaRequest(
    num_heads=HEADS,
    num_seqs=3,
    total_q=3,
    max_seqlen_q=1,
    max_seqlen_k=70,
    absorbed_query=False,
    page_size=16,
    num_pages=20,
    dtype="bf16",
    kv_dtype="bf16",
    causal=True,
    scale=192**-0.5,
)
PINNED = attrs.evolve(REQUEST, candidate="mla.absorbed.decode")
BF16 = ml_dtypes.bfloat16
Patch = pytest.MonkeyPatch


def drawn(count: int) -> tuple[MlaRequest, dict[str, Any]]:
    """Return a request of `count` sequences with a query each, and few keys, the second with none."""
    generator = np.random.default_rng(count)

    def draw(*shape: int, size: float = 1.0) -> Any:
        return (size * generator.standard_normal(shape)).astype(BF16)

    lengths = [(5 * sequence + 3) % 17 if sequence != 1 else 0 for sequence in range(count)]
    request = attrs.evolve(PINNED, num_seqs=count, total_q=count, max_seqlen_k=32)
    return request, {
        "q": draw(count, HEADS, 192),
        "w_ukv": draw(HEADS, 512, 256, size=512**-0.5),
        "c_kv": draw(20, 16, 512),
        "k_rope": draw(20, 16, 64),
        "cu_seqlens_q": np.arange(count + 1, dtype=np.int32),
        "cu_seqlens_k": np.cumsum([0, *lengths]).astype(np.int32),
        "block_table": generator.integers(0, 20, (count, 2)).astype(np.int32),
    }


def last_places(found: Any, expected: Any) -> Any:
    """Return by how many bf16 the elements of two arrays lie apart, among those that are not tiny."""
    places = [np.asarray(each).view(np.int16).astype(int) for each in (found, expected)]
    ordered = [np.where(each < 0, -(each & 0x7FFF), each) for each in places]
    size = np.abs(np.asarray(expected).astype(float))
    return np.abs(ordered[0] - ordered[1])[size > size.max() * 2.0**-6]


@pytest.mark.simulate
@pytest.mark.parametrize(("arch", "count"), [("gfx942", 1), ("gfx942", 131), ("gfx950", 33)])
def test_queries_are_absorbed_and_outputs_projected_as_numpy_does(arch: str, count: int) -> None:
    """In the workspaces as they are afterwards; a block is 128 tokens, a wave 32: the last ones are not full."""
    request, inputs = drawn(count)
    made = {"qa": np.zeros((count, HEADS, 576), BF16), "latent": np.zeros((count, HEADS, 512), BF16)}
    found = call(artifact_of(request, arch), inputs | made, simulator())
    up = inputs["w_ukv"]
    absorbed = absorbed_query(inputs["q"], up[:, :, :128], rope_dim=64)
    assert (made["qa"][..., 512:] == inputs["q"][..., 128:]).all(), "passed on bit by bit"
    assert last_places(made["qa"], absorbed).max() <= 1
    assert last_places(found["out"], projected_output(made["latent"], up[:, :, 128:])).max() <= 1
    out, lse = projected_prefill(request, inputs)
    np.testing.assert_allclose(np.asarray(found["out"]).astype(float), out, atol=2e-2 * np.abs(out).max())
    np.testing.assert_allclose(found["lse"], lse, atol=1.7e-2)


def chosen(queries: int, keys: int, arch: str = "gfx942", flavor: str = "llvm22", **changes: Any) -> str:
    request = attrs.evolve(REQUEST, max_seqlen_q=queries, total_q=queries, max_seqlen_k=keys, **changes)
    return dispatch(request, arch, flavor).candidate


EDGES = [
    pytest.param("gfx942", {}, 1, 2, 161, "decode", id="one query"),
    pytest.param("gfx942", {}, 64, 94, 201, "pipelined", id="64 queries"),
    pytest.param("gfx942", {}, 200, 40201, 201, "pipelined", id="200 queries"),
    pytest.param("gfx950", {}, 203, 41413, 204, "pipelined", id="203 queries"),
    pytest.param("gfx942", {"num_heads": 4}, 48, 65, 184, "grouped", id="192 rows"),
    pytest.param("gfx950", {"kv_dtype": "f8E4M3FN"}, 123, 15253, 124, "pipelined", id="8-bit floats"),
]


@pytest.mark.parametrize(("arch", "changes", "queries", "least", "few", "latent"), EDGES)
def test_few_queries_behind_many_keys_are_absorbed(
    arch: str, changes: dict[str, Any], queries: int, least: int, few: int, latent: str
) -> None:
    """From q k >= N (k - q) on, keys and values are formed: on both sides of that edge."""
    assert queries * least < few * (least - queries) and queries * (least - 1) >= few * (least - 1 - queries)
    name = f"mla.absorbed.{latent}"
    assert chosen(queries, least, arch, **changes) == chosen(queries, 10**6, arch, **changes) == name
    assert chosen(queries, least, arch, **changes, candidate="mla.prefill") == "mla.prefill"
    assert chosen(queries, least - 1, arch, **changes, candidate=name) == name
    if few == least_of_all(arch, changes):
        assert chosen(queries, least - 1, arch, **changes) == "mla.prefill"


def least_of_all(arch: str, changes: dict[str, Any]) -> int:
    """Return with how many queries keys and values are formed, whichever candidate would attend over latent rows."""
    return equal_queries(arch)["mla.pipelined"]["kv_dtype" in changes]


@pytest.mark.parametrize("arch, few", [("gfx942", 201), ("gfx950", 204)])
def test_many_queries_are_never_absorbed(arch: str, few: int) -> None:
    assert chosen(few - 1, 10**6, arch) == "mla.absorbed.pipelined"
    assert chosen(few, 10**6, arch) == "mla.prefill"


@pytest.mark.parametrize("arch, few", [("gfx942", 161), ("gfx950", 108)])
def test_the_kernel_of_old_compilers_leaves_more_to_keys_and_values(arch: str, few: int) -> None:
    assert chosen(few - 1, 10**6, arch, "llvm20") == "mla.absorbed.decode"
    assert chosen(few, 10**6, arch, "llvm20") == "mla.prefill"
    assert chosen(few, 10**6, arch) == "mla.absorbed.pipelined"


@pytest.mark.parametrize("arch", ARCHS)
def test_the_numbers_of_queries_are_those_of_the_measured_loops(arch: str) -> None:
    """Until a loop is faster, and `crossover` says what to write."""
    own = {"gfx942": "f8E4M3FNUZ", "gfx950": "f8E4M3FN"}[arch]
    for latent, equal in equal_queries(arch).items():
        requests = [attrs.evolve(REQUEST, kv_dtype=each) for each in ("bf16", own)]
        scopes = [Scope(request=each, arch=compose("mla", arch).arch) for each in requests]
        assert tuple(few_queries(latent).integer(scope) for scope in scopes) == equal, latent
        assert all(BY_THE_FASTEST.integer(scope) >= few_queries(latent).integer(scope) for scope in scopes)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("flavor", ["llvm20", "llvm22"])
@pytest.mark.parametrize("changes", [{}, {"num_seg": 4}], ids=["", "segments"])
def test_what_serves_absorbed_queries_serves_projected_ones(arch: str, flavor: str, changes: dict[str, int]) -> None:
    """Of any number of rows, behind a long prefix and where no candidate forms keys and values."""
    for heads, queries in [(1, 1), (16, 2), (16, 3), (16, 4), (16, 8), (20, 16), (128, 1), (128, 5), (7, 100)]:
        keys = 10**5 if not changes else queries
        given = {"num_heads": heads, **changes}
        absorbed = chosen(queries, keys, arch, flavor, absorbed_query=True, **given)
        assert chosen(queries, keys, arch, flavor, **given) == absorbed.replace("mla.", "mla.absorbed."), given


def test_why_tells_from_how_many_keys_on_it_pays() -> None:
    told = {each.name: each.notes for each in explain(compose("mla", "gfx942"), REQUEST, "llvm22").candidates}
    assert "with up to 1 queries a sequence, absorbing them pays from 2 keys on" in told["mla.absorbed.decode"]
    assert any("slower" in note for note in told["mla.prefill"])
    assert any("slower here: of the last 128 rows" in note for note in told["mla.absorbed.pipelined"])
    assert not any("slower" in note for note in told["mla.absorbed.decode"])


def test_the_first_name_pins_none_and_those_there_are_are_named() -> None:
    with pytest.raises(
        PinRefused, match=r"supported: .*mla\.absorbed\.pipelined, mla\.absorbed\.grouped, mla\.absorbed\.decode"
    ):
        dispatch(attrs.evolve(REQUEST, candidate="mla.absorbed"), "gfx942")


@pytest.mark.parametrize("name", ["mla.absorbed.pipelined", "mla.absorbed.grouped", "mla.absorbed.decode"])
def test_what_latent_attention_does_not_take_is_refused_in_this_candidates_name(name: str) -> None:
    request = attrs.evolve(REQUEST, page_size=48, nope_dim=64, candidate=name)
    candidates = explain(compose("mla", "gfx942"), request, "llvm22").candidates
    refused = next(each.refusals for each in candidates if each.name == name)
    assert {each.code for each in refused} == {f"{name}.page_size", f"{name}.nope_dim"}


def rotated_part_dropped(patch: Patch) -> None:
    patch.setattr(absorb.Absorption, "_pass_rotated", lambda self: None)


def columns_of_keys_for_values(patch: Patch) -> None:
    patch.setattr(project, "constant", lambda number, type_: constant(0, I32))


def weights_of_the_first_head(patch: Patch) -> None:
    patch.setattr(weights, "wide", lambda number: wide(number) * 0)


def stored_before_the_others_have_read(patch: Patch) -> None:
    patch.setattr(absorb.control, "barrier", lambda: None)


def one_token_too_many(patch: Patch) -> None:
    """Rows past the last token are read and written."""
    patch.setattr(tokens, "bounded", lambda number, most: constant(most, I32))


def tiles_of_weights_exchanged(patch: Patch) -> None:
    whole = weights.Weights.load
    patch.setattr(weights.Weights, "load", lambda self, start, chunk=0: whole(self, start, chunk ^ 1))


Plant = Callable[[Patch], None]
FAULTS: list[tuple[Plant, type[MlaTokensSpec], set[str]]] = [
    (rotated_part_dropped, MlaAbsorbSpec, {"simulation"}),
    (columns_of_keys_for_values, MlaProjectSpec, {"tolerance"}),
    (weights_of_the_first_head, MlaAbsorbSpec, {"tolerance"}),
    (weights_of_the_first_head, MlaProjectSpec, {"tolerance"}),
    (stored_before_the_others_have_read, MlaAbsorbSpec, {"simulation"}),
    (one_token_too_many, MlaAbsorbSpec, {"simulation"}),
    (one_token_too_many, MlaProjectSpec, {"simulation"}),
    (tiles_of_weights_exchanged, MlaAbsorbSpec, {"tolerance"}),
    (tiles_of_weights_exchanged, MlaProjectSpec, {"tolerance"}),
]


@pytest.fixture(scope="module", name="usual")
def usual_kernels() -> tuple[Composition, Artifact]:
    return compose("mla", "gfx942"), artifact_of(PINNED, "gfx942")


@pytest.mark.simulate
def test_the_usual_kernels_pass(usual: tuple[Composition, Artifact]) -> None:
    report = judged(*usual, "whole")
    assert report.status == "pass", report.findings


@pytest.mark.simulate
@pytest.mark.parametrize(
    ("arch", "changes"), [("gfx942", {"page_size": 32, "num_seg": 2}), ("gfx950", {"kv_dtype": "f8E4M3FN"})]
)
def test_every_scenario_passes(arch: str, changes: dict[str, Any]) -> None:
    """In two segments, and over a cache of 8-bit floats."""
    composition, request = compose("mla", arch), attrs.evolve(PINNED, **changes)
    artifact = artifact_of(request, arch)
    names = [each.name for each in composition.scenarios(request)]
    assert len(names) == 11
    for name in names:
        report = judged(composition, artifact, name)
        assert report.status == "pass", (name, report.findings)


@pytest.mark.simulate
@pytest.mark.parametrize(("plant", "kind", "seen"), FAULTS, ids=lambda part: getattr(part, "__name__", ""))
def test_a_planted_fault_is_seen(
    plant: Plant,
    kind: type[MlaTokensSpec],
    seen: set[str],
    usual: tuple[Composition, Artifact],
    monkeypatch: Patch,
) -> None:
    composition, artifact = usual
    faulty = with_fault(composition, artifact, kind, plant, monkeypatch)
    assert_seen(judged(composition, faulty, "whole"), seen)


WAYS = [
    pytest.param(
        {"max_seqlen_q": 16, "max_seqlen_k": 200, "num_heads": 4}, "mla.absorbed.grouped", id="behind a prefix"
    ),
    pytest.param(
        {"max_seqlen_q": 1, "max_seqlen_k": 300, "num_heads": 128}, "mla.absorbed.pipelined", id="a step of many heads"
    ),
    pytest.param({"max_seqlen_q": 2, "max_seqlen_k": 300, "num_heads": 16}, "mla.absorbed.decode", id="idle waves"),
    pytest.param({"max_seqlen_q": 16, "max_seqlen_k": 200, "page_size": 1}, "mla.absorbed.decode", id="small pages"),
    pytest.param({"max_seqlen_q": 300, "page_size": 1, "num_pages": 400}, "mla.prefill", id="prompts in small pages"),
    pytest.param({"max_seqlen_q": 16, "max_seqlen_k": 10, "num_heads": 4}, "mla.prefill", id="whole prompts"),
]


def other_kernels(composition: Composition, request: MlaRequest, scenarios: tuple[Any, ...]) -> list[str]:
    """Return the names of scenarios whose own requests select other kernels than the request does."""

    def kernels(of: MlaRequest) -> list[str]:
        return [launch.spec.identity() for launch in dispatch(of, composition.arch.name).launches]

    return [each.name for each in scenarios if kernels(each.request) != kernels(request)]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("fields, candidate", WAYS)
def test_scenarios_run_the_kernels_that_a_request_selects_pinned_or_not(
    arch: str, fields: dict[str, int], candidate: str
) -> None:
    composition = compose("mla", arch)
    request = attrs.evolve(REQUEST, **fields, total_q=fields["max_seqlen_q"] + 2)
    plan = dispatch(request, arch)
    assert plan.candidate == candidate
    for asked in (plan, dispatch(attrs.evolve(request, candidate=candidate), arch)):
        scenarios = composition.scenarios_of(asked)
        assert len(scenarios) > 8 and not other_kernels(composition, request, scenarios)


def test_scenarios_that_pin_no_candidate_select_others() -> None:
    composition = compose("mla", "gfx942")
    assert "empty" in other_kernels(composition, REQUEST, composition.scenarios(REQUEST))
