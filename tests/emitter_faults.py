"""Faults in what emits kernels: what tests that plant them share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kinfolk.check import ScenarioReport
from kinfolk.ir.value import Value
from kinfolk.plugins.composition import Composition
from kinfolk.spec import Spec
from kinfolk.tile.attention.values import RowValues, TransposedValues
from kinfolk_runtime.artifact import Artifact
from kinfolk_runtime.mutation import with_kernel


def with_fault(
    composition: Composition,
    artifact: Artifact,
    kind: type[Spec],
    plant: Callable[[pytest.MonkeyPatch], None],
    patch: pytest.MonkeyPatch,
) -> Artifact:
    """Return an artifact whose kernels of a kind of spec, of which it has one, are emitted with a fault planted."""
    [spec] = {each.spec for each in artifact.kernels if isinstance(each.spec, kind)}
    with patch.context() as planting:
        plant(planting)
        faulty = composition.emit(spec)
    return with_kernel(artifact, spec, faulty)


def values_refill_the_slot_that_is_read(patch: pytest.MonkeyPatch) -> None:
    """A round over two tiles of values writes the next ones where its own are, which other waves still read."""
    for kind in (RowValues, TransposedValues):
        patch.setattr(kind, "stores", into_the_other_slot(kind.stores))


def into_the_other_slot(whole: Callable[..., Any]) -> Callable[..., Any]:
    def stores(self: Any, slot: Value, loaded: Any) -> Any:
        first = slot is self.slots.begin
        return whole(self, slot if first else self.slots.after(slot), loaded)

    return stores


def codes(report: ScenarioReport) -> set[str]:
    """Return the codes of a report's findings."""
    assert report.status == ("fail" if report.findings else "pass")
    return {finding.code for finding in report.findings}


def assert_seen(report: ScenarioReport, wanted: set[str]) -> None:
    """Whatever else shows: a run that broke off shows nothing but that it did, which only some faults are to be."""
    assert wanted <= codes(report), report.findings
    assert codes(report) & {"simulation", "bind"} <= wanted, report.findings
