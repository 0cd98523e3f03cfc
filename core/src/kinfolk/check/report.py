"""The report of a run, schema `kinfolk.report/1`: data for tools, strict JSON without NaN or infinities."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

import attrs

from kinfolk.check.compare import Comparison, Finding
from kinfolk.refusal import Refusal, Status, status_of
from kinfolk.usage import Usage

SCHEMA: Final = "kinfolk.report/1"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose values may come from a caller, with infinities and NaN as words."""
    strange = {
        name: repr(value) for name, value in row.items() if isinstance(value, float) and not math.isfinite(value)
    }
    return {**row, **strange}


@attrs.frozen(kw_only=True)
class OutputReport:
    """One output of one scenario, under the order that gave it the largest margin.

    `error_there` and `tolerance` are of the element with the largest margin, their ratio; `max_abs_err` may be of
    another element. A figure is None where something that must be finite is not. `elements` are those of one order.
    """

    name: str
    elements: int
    max_abs_err: float | None
    error_there: float | None
    tolerance: float | None
    margin: float | None

    @classmethod
    def of(cls, comparison: Comparison) -> OutputReport:
        """Return the row of a comparison."""
        return cls(
            name=comparison.name,
            elements=comparison.elements,
            max_abs_err=_finite(comparison.max_abs_err),
            error_there=_finite(comparison.error_there),
            tolerance=_finite(comparison.tolerance),
            margin=_finite(comparison.margin),
        )

    @property
    def status(self) -> str:
        """`pass` or `fail`, of this output's figures alone."""
        return "pass" if self.margin is not None and self.margin <= 1.0 else "fail"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON row."""
        return attrs.asdict(self)


@attrs.frozen(kw_only=True)
class ScenarioReport:
    """One scenario: its outputs, and all that was wrong. One that compared nothing has failed."""

    name: str
    outputs: tuple[OutputReport, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def status(self) -> str:
        """`pass` or `fail`."""
        within = all(output.status == "pass" for output in self.outputs)
        return "pass" if self.outputs and within and not self.findings else "fail"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON row."""
        return {
            "name": self.name,
            "status": self.status,
            "outputs": [output.to_dict() for output in self.outputs],
            "findings": [finding.to_dict() for finding in self.findings],
        }


def _figures(figures: Mapping[str, int]) -> dict[str, int]:
    return dict(figures)


@attrs.frozen(kw_only=True)
class KernelReport:
    """One compiled kernel: who it is, and what the compiler's object says it takes."""

    symbol: str
    spec_digest: str
    arch: str
    toolchain: str
    scratch_bytes: int
    scratch_ops: int
    figures: Mapping[str, int] = attrs.field(converter=_figures)

    @classmethod
    def of(cls, usage: Usage, *, spec_digest: str, arch: str, toolchain: str) -> KernelReport:
        """Return the row of a kernel's usage."""
        return cls(
            symbol=usage.symbol,
            spec_digest=spec_digest,
            arch=arch,
            toolchain=toolchain,
            scratch_bytes=usage.scratch_bytes,
            scratch_ops=usage.scratch_ops,
            figures=usage.figures,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON row: what core fixes, then the arch's own figures."""
        fixed = attrs.asdict(self, filter=attrs.filters.exclude("figures"))
        return {**fixed, **self.figures}


@attrs.frozen(kw_only=True)
class Report:
    """What became of a request: refused with reasons, or run on every scenario.

    A run that compared nothing has failed. `engine` is that of the simulator and `sanitizers` are what it looked for,
    None elsewhere; `notes` are what there is to say about the run, such as kernels that another engine had to run.
    """

    family: str
    arch: str
    flavor: str
    candidate: str | None
    executor: str
    request: Mapping[str, Any]
    scenarios: tuple[ScenarioReport, ...] = ()
    kernels: tuple[KernelReport, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    engine: str | None = None
    sanitizers: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()

    @property
    def status(self) -> Status:
        """`pass`, `refused`, or `fail`, which an error among the refusals is too."""
        passed = self.kernels and self.elements and all(each.status == "pass" for each in self.scenarios)
        return status_of(self.refusals, passed=bool(passed))

    @property
    def elements(self) -> int:
        """The elements that were compared; a scenario may have none, a run that has none has failed."""
        return sum(output.elements for scenario in self.scenarios for output in scenario.outputs)

    @property
    def margin(self) -> float | None:
        """The largest margin of all outputs; None where nothing was compared or one is not finite."""
        margins = [output.margin for scenario in self.scenarios for output in scenario.outputs]
        known = [margin for margin in margins if margin is not None]
        return max(known) if known and len(known) == len(margins) else None

    def to_dict(self) -> dict[str, Any]:
        """Return the document."""
        return {
            "schema": SCHEMA,
            "status": self.status,
            "family": self.family,
            "arch": self.arch,
            "flavor": self.flavor,
            "candidate": self.candidate,
            "executor": self.executor,
            "request": _plain(self.request),
            "scenarios": [scenario.to_dict() for scenario in self.scenarios],
            "kernels": [kernel.to_dict() for kernel in self.kernels],
            "refusals": [_plain(refusal.to_dict()) for refusal in self.refusals],
            "engine": self.engine,
            "sanitizers": None if self.sanitizers is None else list(self.sanitizers),
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        """Return the document as strict JSON; raises ValueError where a number is none that JSON has."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)
