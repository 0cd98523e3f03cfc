"""Faults in what emits kernels: what tests that plant them share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kinfolk.check import ScenarioReport
from kinfolk.plugins.composition import Composition
from kinfolk.spec import Spec
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


def codes(report: ScenarioReport) -> set[str]:
    """Return the codes of a report's findings."""
    assert report.status == ("fail" if report.findings else "pass")
    return {finding.code for finding in report.findings}


def assert_seen(report: ScenarioReport, wanted: set[str]) -> None:
    """Whatever else shows: a run that broke off shows nothing but that it did, which only some faults are to be."""
    assert wanted <= codes(report), report.findings
    assert codes(report) & {"simulation", "bind"} <= wanted, report.findings
