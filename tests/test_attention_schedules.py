"""Schedules of rounds over tiles: what limits take is emitted without a defect, and what is one past them is not."""

from __future__ import annotations

import random
from typing import Any

import attrs
import pytest

from kinfolk.analysis import analyse
from kinfolk.dispatch import dispatch
from kinfolk.errors import IRError, PinRefused
from kinfolk.ir.builder import workgroup_bytes
from kinfolk.plugins.composition import Composition, compose
from kinfolk.spec import Spec
from kinfolk_attention_fwd import plugin as attention_fwd
from kinfolk_attention_fwd import schedule
from kinfolk_attention_fwd.dense import plan
from kinfolk_attention_fwd.request import AttentionFwdRequest
from kinfolk_mla import plugin as mla

ARCHS = ("gfx942", "gfx950")
pytestmark = pytest.mark.needs("mla", "attention_fwd", *ARCHS)
SMALL = {
    "tile_keys": 32,
    "weights_after": 1,
    "key_read_ahead": 1,
    "value_read_ahead": 1,
    "units_after_barrier": 0,
    "reads_together": 1,
}
"""Tiles of so few keys that every limit lies within what a spec's class takes."""
BASES: list[tuple[str, str, dict[str, Any]]] = [
    ("attention_fwd", "AttentionDenseSpec", {"head_size": 80, **SMALL}),
    ("attention_fwd", "AttentionDenseSpec", {"head_size": 128, "capped": False, "windowed": False}),
    ("attention_fwd", "AttentionGatheredSpec", {"head_size": 64, **SMALL}),
    ("mla", "MlaPrefillSpec", {"key_slots": 1}),
]
FIELDS = ("reads_together", "key_read_ahead", "value_read_ahead", "units_after_barrier", "weights_after")
SCHEDULES = {
    "key_slots": (1, 2),
    "reads_together": (1, 2),
    "key_read_ahead": range(1, 9),
    "value_read_ahead": range(1, 9),
    "fence_every": range(9),
    "weights_after": range(1, 13),
    "units_after_barrier": range(16),
}
EMIT = {"mla": mla.kinfolk_emit_ir, "attention_fwd": attention_fwd.kinfolk_emit_ir}
FAMILY = {"waves": (4, 8), "tile_keys": (32, 64, 96, 128)}
"""What a spec of forward attention has beside them."""


def spec_of(composition: Composition, kind: str, changes: dict[str, Any]) -> Spec:
    """Return the first spec of a class that a plan can name and that has what of `changes` is no schedule, changed."""
    named = (spec for each in composition.candidates() for spec in each.specs(composition.arch, "llvm22"))
    fixed = {name: value for name, value in changes.items() if name not in SCHEDULES and name not in FAMILY}
    found = (each for each in named if type(each).__name__ == kind)
    return attrs.evolve(
        next(each for each in found if all(getattr(each, name) == value for name, value in fixed.items())),
        **{name: value for name, value in changes.items() if name not in fixed},
    )


def values_of(spec: Spec, name: str) -> list[Spec]:
    """Return the spec with every value of a field that its class takes, the lowest first."""
    return [attrs.evolve(spec, **{name: value}) for value in SCHEDULES[name]]


def is_whole(composition: Composition, spec: Spec) -> bool:
    """Whether a kernel comes of a spec, whatever limits say, and no analysis has anything against it."""
    try:
        kernel = EMIT[composition.family](spec, composition.arch)
    except (IRError, IndexError):
        return False
    return not list(analyse(kernel, arch=composition.arch, spec=spec))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("family", "kind", "changes"), BASES, ids=lambda each: each if isinstance(each, str) else "")
def test_what_is_at_each_limit_is_emitted_and_what_is_past_it_is_refused(
    family: str, kind: str, changes: dict[str, Any], arch: str
) -> None:
    """And would be no kernel: a limit that is too strict hides schedules."""
    composition = compose(family, arch)
    base, edges = spec_of(composition, kind, changes), 0
    for name in FIELDS:
        values = values_of(base, name)
        most = max(place for place, each in enumerate(values) if not composition.validate_spec(each))
        if values[most] is not values[-1]:
            edges += 1
            [refusal] = composition.validate_spec(values[most + 1])
            assert refusal.code.endswith(f".spec.{name}") and refusal.field == name
            assert str(getattr(values[most], name)) in refusal.remedy or name == "reads_together"
            assert is_whole(composition, values[most]), (name, values[most])
            assert not is_whole(composition, values[most + 1]), (name, values[most + 1])
    assert edges


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("kind", ["AttentionDenseSpec", "AttentionPagedSpec", "AttentionGatheredSpec"])
def test_any_schedule_that_limits_take_is_a_whole_kernel_in_the_memory_that_they_count(kind: str, arch: str) -> None:
    """Of any widths, by chance. A limit of one byte less than a kernel has refuses it."""
    composition, draw, looked_at = compose("attention_fwd", arch), random.Random(arch + kind), 0
    named = {spec for each in composition.candidates() for spec in each.specs(composition.arch, "llvm22")}
    bases = sorted((each for each in named if type(each).__name__ == kind), key=lambda each: each.digest())
    while looked_at < 4:
        changes = {name: draw.choice(values) for name, values in (SCHEDULES | FAMILY).items()}
        spec = attrs.evolve(draw.choice(bases), **changes)
        if composition.validate_spec(spec):
            continue
        looked_at += 1
        assert is_whole(composition, spec), spec
        bytes_ = workgroup_bytes(EMIT["attention_fwd"](spec, composition.arch))
        facts = composition.arch.facts.declared
        for lds, codes in ((bytes_, []), (bytes_ - 1, ["workgroup_memory"])):
            arch_ = attrs.evolve(composition.arch, facts={**facts, "lds_bytes": lds})
            refusals = attention_fwd.kinfolk_validate_spec(spec, arch_)
            assert [each.code.rpartition(".")[2] for each in refusals] == codes, spec


def test_a_schedule_that_its_arch_does_not_take_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tiles of keys of 192 columns leave no room for those of their values, whoever asks for them."""
    request = AttentionFwdRequest(
        layout="dense",
        num_seqs=1,
        total_q=20,
        max_seqlen_q=20,
        max_seqlen_k=70,
        num_heads=2,
        num_kv_heads=2,
        head_size=192,
        head_size_v=192,
        dtype="bf16",
        kv_dtype="bf16",
        causal=True,
        return_lse=True,
        scale=0.07,
        candidate="attention_fwd.dense",
    )
    chosen = schedule.schedule_for
    monkeypatch.setattr(plan, "schedule_for", lambda arch, kind: attrs.evolve(chosen(arch, kind), key_slots=2))
    with pytest.raises(PinRefused) as refused:
        dispatch(request, "gfx942")
    monkeypatch.undo()
    assert dispatch(request, "gfx942")
    [refusal] = refused.value.refusals
    assert (refusal.code, refusal.value) == ("attention_fwd.dense.spec.workgroup_memory", 2)
    assert "lds_bytes" in refusal.limit
