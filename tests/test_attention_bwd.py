"""Attention's gradients: the kernels on the simulator, against the reference, against themselves, and with faults."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from built_once import artifact_of, judged
from emitter_faults import assert_seen, with_fault

from kinfolk.dispatch import dispatch
from kinfolk.errors import PinRefused
from kinfolk.ir.value import Value
from kinfolk.plugins.composition import Composition, compose
from kinfolk.spec import Spec
from kinfolk_attention_bwd import formed, keys, queries, rounds, row_terms
from kinfolk_attention_bwd.request import AttentionBwdRequest
from kinfolk_attention_bwd.spec import KeysSpec, QueriesSpec, RowTermsSpec
from kinfolk_runtime import call
from kinfolk_runtime.artifact import Artifact
from kinfolk_runtime.simulator import Simulator

pytestmark = [pytest.mark.simulate, pytest.mark.needs("attention_bwd", "gfx942", "gfx950")]

REQUEST = AttentionBwdRequest(
    layout="bshd",
    batch=1,
    seqlen_q=150,
    seqlen_k=170,
    num_heads=4,
    num_kv_heads=2,
    num_v_heads=2,
    head_size=128,
    head_size_v=128,
    dtype="bf16",
    causal=True,
    scale=128**-0.5,
)
NARROW = {"head_size": 64, "head_size_v": 64, "scale": 0.125}
PAGE = Path(__file__).resolve().parent.parent / "docs" / "attention_bwd.md"
Patch = pytest.MonkeyPatch


def served(arch: str, **changes: Any) -> tuple[Composition, Artifact]:
    return compose("attention_bwd", arch), artifact_of(attrs.evolve(REQUEST, **changes), arch)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"dtype": "f16", "causal": False, "num_heads": 1, "num_kv_heads": 1, "num_v_heads": 1},
        {**NARROW, "bottom_right": False, "num_heads": 3, "num_kv_heads": 1, "num_v_heads": 1},
        {**NARROW, "dtype": "f16", "num_heads": 2},
    ],
    ids=str,
)
def test_every_scenario_passes(arch: str, changes: dict[str, Any]) -> None:
    composition, artifact = served(arch, **changes)
    for each in composition.scenarios(artifact.plan.request):
        report = judged(composition, artifact, each.name)
        assert report.status == "pass", (each.name, report.findings)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_equal_inputs_give_equal_bits_whatever_runs_first(arch: str) -> None:
    """By both engines and in several orders of waves: each element is summed by one workgroup, in one order."""
    composition, artifact = served(arch, deterministic=True, seqlen_q=70, seqlen_k=90)
    [scenario] = [each for each in composition.scenarios(artifact.plan.request) if each.name == "tile_plus_one"]
    artifact = attrs.evolve(artifact, plan=dispatch(scenario.request, arch))
    names = [kernel.spec.symbol().rsplit("_", 1)[0] for kernel in artifact.kernels]
    assert names == [f"attention_bwd_{kind}_128_bf16" for kind in ("rows", "keys", "queries")]
    inputs = scenario.inputs()
    executors = [Simulator(), Simulator().with_order(5), Simulator(engine="reference")]
    first, *others = [call(artifact, inputs, executor=executor) for executor in executors]
    for name in ("dq", "dk", "dv"):
        for other in others:
            np.testing.assert_array_equal(
                np.asarray(first[name]).view(np.uint16), np.asarray(other[name]).view(np.uint16)
            )


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"layout": "thd"}, ["layout"]),
        ({"dtype": "f32"}, ["dtype"]),
        ({"head_size_v": 64}, ["head_size_v"]),
        ({"head_size": 96, "head_size_v": 96}, ["head_size"]),
        ({"num_v_heads": 4}, ["num_v_heads"]),
        ({"window_left": 5}, ["window_left"]),
        ({"window_right": 0}, ["window_right"]),
        (
            {"layout": "paged", "dtype": "f32", "head_size": 256, "window_left": 3},
            ["layout", "dtype", "head_size_v", "head_size", "window_left"],
        ),
    ],
    ids=str,
)
def test_what_is_not_served_is_refused_by_name_and_in_order(changes: dict[str, Any], fields: list[str]) -> None:
    with pytest.raises(PinRefused) as refused:
        dispatch(attrs.evolve(REQUEST, candidate="attention_bwd.split", **changes), "gfx942")
    assert [each.code for each in refused.value.refusals] == [f"attention_bwd.split.{name}" for name in fields]


@pytest.mark.needs("attention_fwd")
def test_the_python_of_the_page_runs_and_computes_gradients(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    [block] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(block, str(PAGE), "exec"), names)
    assert capsys.readouterr().out == "(2, 20, 8, 64) (2, 70, 2, 64) (2, 70, 2, 64)\n"
    query, keys, dout = (names["tensors"][name][1].astype(float) for name in ("q", "k", "dout"))
    expected = np.zeros((70, 64))
    for head in range(4, 8):  # those that read head 1 of keys and values
        for token in range(20):
            scores = query[token, head] @ keys[: 51 + token, 1].T / 8
            weights = np.exp(scores) / np.exp(scores).sum()
            expected[: 51 + token] += weights[:, None] * dout[token, head]
    np.testing.assert_allclose(names["outputs"]["dv"][1, :, 1].astype(float), expected, atol=0.03)


def no_mask_of_queries(patch: Patch) -> None:
    patch.setattr(queries.Queries, "masked", lambda self, scores, place, block, own: list(scores))


def a_key_too_many(patch: Patch) -> None:
    whole = queries._seen
    patch.setattr(queries, "_seen", lambda arguments, number: whole(arguments, number + 1))


def no_mask_of_keys(patch: Patch) -> None:
    patch.setattr(keys.Keys, "masked", lambda self, scores, place, block, own: list(scores))


def diagonal_from_the_first_key(patch: Patch) -> None:
    """Causal top-left, whatever stands before the queries."""
    whole = keys.Keys.masked

    def masked(self: keys.Keys, scores: Any, place: keys.Place, block: int, own: int) -> list[Value]:
        return whole(attrs.evolve(self, key=self.key + self.arguments.ahead), scores, place, block, own)

    patch.setattr(keys.Keys, "masked", masked)


def a_tile_too_few(patch: Patch) -> None:
    whole = keys.Keys._tiles

    def tiles(self: keys.Keys) -> tuple[Value, Value, Value]:
        begin, unmasked, count = whole(self)
        return begin, unmasked, count - 1

    patch.setattr(keys.Keys, "_tiles", tiles)


def the_first_head_alone(patch: Patch) -> None:
    """Of the heads that read a key all go by, and each is the first."""
    patch.setattr(keys.Keys, "_head", lambda self, place: self.kv_head * self.arguments.heads_per_kv)


def scale_left_out(patch: Patch) -> None:
    whole = keys.store_sums
    patch.setattr(keys, "store_sums", lambda *given: whole(*given[:-1], None))


def sum_left_out(patch: Patch) -> None:
    """Gradients of scores are P times the product, without the row's sum."""
    whole = formed.begun

    def begun(of: Any, state: Any, masks: bool) -> Any:
        found = whole(of, state, masks)
        found.products[:] = [[formed.zeros(of.frame) for _ in row] for row in found.products]
        return found

    patch.setattr(rounds, "begun", begun)


def lse_of_base_e(patch: Patch) -> None:
    patch.setattr(row_terms, "LOG2_E", 1.0)


def dead_rows_live(patch: Patch) -> None:
    """A row counts as live whose LSE is any."""
    patch.setattr(row_terms, "_finite", lambda lse: lse.eq(lse) | lse.ne(lse))


def stored_before_the_others_have_read(patch: Patch) -> None:
    patch.setattr(rounds.control, "barrier", lambda: None)


FAULTS: list[tuple[type[Spec], Callable[[Patch], None], str, set[str]]] = [
    (QueriesSpec, no_mask_of_queries, "square", {"tolerance"}),
    (QueriesSpec, a_key_too_many, "square", {"tolerance"}),
    (QueriesSpec, sum_left_out, "square", {"tolerance"}),
    (KeysSpec, no_mask_of_keys, "square", {"tolerance"}),
    (KeysSpec, diagonal_from_the_first_key, "prefix", {"tolerance"}),
    (KeysSpec, a_tile_too_few, "tile_plus_one", {"tolerance"}),
    (KeysSpec, the_first_head_alone, "unlike_heads", {"tolerance"}),
    (KeysSpec, scale_left_out, "one_sign", {"tolerance"}),
    (KeysSpec, sum_left_out, "one_sign", {"tolerance"}),
    (KeysSpec, stored_before_the_others_have_read, "tile_plus_one", {"simulation"}),
    (RowTermsSpec, lse_of_base_e, "peaked", {"tolerance"}),
    (RowTermsSpec, dead_rows_live, "dead_rows", {"nan", "empty"}),
]


@pytest.fixture(scope="module", name="kernels")
def kernels_with_no_fault() -> tuple[Composition, Artifact]:
    return served("gfx942")


@pytest.mark.parametrize(("kind", "plant", "scenario", "seen"), FAULTS, ids=lambda part: getattr(part, "__name__", ""))
def test_a_planted_fault_is_seen(
    kind: type[Spec],
    plant: Callable[[Patch], None],
    scenario: str,
    seen: set[str],
    kernels: tuple[Composition, Artifact],
    monkeypatch: Patch,
) -> None:
    composition, artifact = kernels
    faulty = with_fault(composition, artifact, kind, plant, monkeypatch)
    assert_seen(judged(composition, faulty, scenario), seen)
