"""What becomes of every shape of a file on an arch: dispatched, compiled and gated, run and compared, timed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from kinfolk.check import KernelReport
from kinfolk.dispatch import selections
from kinfolk.dispatch.why import explain
from kinfolk.errors import Refused
from kinfolk.flavor import DEFAULT_FLAVOR
from kinfolk.refusal import Refusal
from kinfolk_runtime.bench.expectation import Groups, disagreements
from kinfolk_runtime.bench.shapes import Shape, Shapes
from kinfolk_runtime.bench.timing import Timed, Times, expect_clock, timed
from kinfolk_runtime.compilation import compile as compile_plan
from kinfolk_runtime.executor import DEFAULT, Executor, executor_of
from kinfolk_runtime.timing import NotTimedError, can_be_timed, expect_right, time_request
from kinfolk_runtime.verify import kernel_reports, verify

if TYPE_CHECKING:
    from kinfolk.check import Scenario
    from kinfolk.plan import Plan
    from kinfolk.plugins.composition import Composition
    from kinfolk.request import Request

SCHEMA: Final = "kinfolk.bench/1"
Mode = Literal["resolve", "build", "verify", "time"]
MODES: Final[tuple[Mode, ...]] = ("resolve", "build", "verify", "time")
RUNS: Final = ("verify", "time")
"""Modes that run kernels: shapes that take long are left out of them unless they are wanted."""
Status = Literal["pass", "refused", "fail", "left out"]
Started = Callable[[str], None]


@attrs.frozen(kw_only=True)
class Row:
    """What became of one shape on one arch.

    `refused` is one that is refused as its file expects, `because` says why; `left out` one that takes long, in a mode
    that runs kernels. `findings` say why it fails, in sentences. `figures` depend on the mode: `workgroups` of all
    launches, `margin` and `scenarios`, `median_us`, `least_us`, `most_us`, `repeats` and `tflops`.
    """

    shape: Shape
    arch: str
    status: Status
    candidate: str | None = None
    request: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    refusals: tuple[Refusal, ...] = ()
    because: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    kernels: tuple[KernelReport, ...] = ()
    figures: Mapping[str, float] = attrs.field(factory=dict[str, float])

    def to_dict(self) -> dict[str, Any]:
        """Return the row of a document."""
        return {
            "shape": self.shape.name,
            "source": self.shape.source,
            "arch": self.arch,
            "status": self.status,
            "candidate": self.candidate,
            "request": dict(self.request),
            "figures": {name: value if math.isfinite(value) else None for name, value in self.figures.items()},
            "kernels": [kernel.to_dict() for kernel in self.kernels],
            "because": list(self.because),
            "findings": list(self.findings),
            "refusals": [refusal.to_dict() for refusal in self.refusals],
        }


@attrs.frozen(kw_only=True)
class Bench:
    """What became of all shapes, by file and arch in order; schema `kinfolk.bench/1`."""

    family: str
    mode: Mode
    flavor: str
    executor: str | None
    files: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def status(self) -> Literal["pass", "fail"]:
        """`pass` where no shape fails and some were looked at."""
        looked_at = any(row.status in ("pass", "refused") for row in self.rows)
        return "pass" if looked_at and not any(row.status == "fail" for row in self.rows) else "fail"

    def to_dict(self) -> dict[str, Any]:
        """Return the document."""
        return {
            "schema": SCHEMA,
            "status": self.status,
            "family": self.family,
            "mode": self.mode,
            "flavor": self.flavor,
            "executor": self.executor,
            "files": list(self.files),
            "rows": [row.to_dict() for row in self.rows],
        }


@attrs.frozen(kw_only=True)
class Choices:
    """How shapes are looked at: the mode, what runs kernels, on which scenarios, and how often for times."""

    mode: Mode = "resolve"
    flavor: str = DEFAULT_FLAVOR
    executor: str | Executor = DEFAULT
    scenarios: tuple[str, ...] = ()
    order_seeds: tuple[int, ...] = (0,)
    long: bool = False
    repeats: int = 20


def bench(
    compositions: Iterable[Composition],
    files: Sequence[Shapes],
    choices: Choices,
    started: Started | None = None,
) -> Bench:
    """Look at every shape of some files on some archs, and return what became of each.

    `started(name)` is told each shape as it begins. What goes wrong with a shape is in its row and stops no other.
    Raises NoClockError where times are wanted of an executor without a clock.
    """
    runs = choices.mode in RUNS
    executor = executor_of(choices.executor) if runs else None
    if choices.mode == "time" and executor is not None:
        expect_clock(executor)
    rows: list[Row] = []
    every = tuple(compositions)
    for file in files:
        for composition in every:
            for shape in file.shapes:
                if started:
                    started(shape.name)
                rows.append(_Looking(composition, file, shape, choices).row())
    return Bench(
        family=files[0].family if files else "",
        mode=choices.mode,
        flavor=choices.flavor,
        executor=executor.name if executor else None,
        files=tuple(file.name for file in files),
        rows=tuple(rows),
    )


@attrs.frozen(eq=False)
class _Looking:
    """One shape on one arch."""

    composition: Composition
    file: Shapes
    shape: Shape
    choices: Choices

    def row(self) -> Row:
        """Return what becomes of it."""
        arch = self.composition.arch.name
        empty = Row(shape=self.shape, arch=arch, status="fail", request=self.shape.request)
        if self.choices.mode in RUNS and self.shape.long and not self.choices.long:
            return attrs.evolve(empty, status="left out")
        try:
            found, groups = self._looked_at(empty)
        except Refused as error:
            found, groups = empty, (error.refusals,)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong with one shape, the others are looked at
            from kinfolk_runtime.cli.asked import reasons

            found, groups = empty, (reasons(error),)
        refusals = tuple(dict.fromkeys(refusal for group in groups for refusal in group))
        expected = self.file.expected(self.shape, arch)
        findings = (*found.findings, *disagreements(groups, expected))
        status: Status = "fail" if findings else "refused" if refusals else "pass"
        because = tuple(each.because for each in expected) if status == "refused" else ()
        return attrs.evolve(found, status=status, refusals=refusals, because=because, findings=findings)

    def _looked_at(self, row: Row) -> tuple[Row, Groups]:
        """Return the row as far as it comes, and who refuses."""
        from kinfolk.cli.output import shell_word
        from kinfolk.cli.values import request_from

        words = [f"{name}={shell_word(value)}" for name, value in self.shape.request.items()]
        read = request_from(self.composition.request_type, words)
        row = attrs.evolve(row, request=read.fields)
        if read.request is None:
            return row, (read.refusals,)
        request, flavor = read.request, self.choices.flavor
        answer = explain(self.composition, request, flavor)
        row = attrs.evolve(row, candidate=answer.selected)
        if answer.selected is None:
            groups = [each.refusals for each in answer.candidates if each.refusals]
            return row, groups or (answer.refusals,)
        plan = selections.plan(self.composition, request, flavor)
        row = attrs.evolve(row, figures={"workgroups": sum(math.prod(plan.grid(each)) for each in plan.launches)})
        if self.choices.mode == "build":
            artifact = compile_plan(plan, composition=self.composition)
            return attrs.evolve(row, kernels=kernel_reports(artifact.kernels)), ()
        if self.choices.mode == "verify":
            return self._verified(row, request)
        return (self._timed(row, plan), ()) if self.choices.mode == "time" else (row, ())

    def _verified(self, row: Row, request: Request) -> tuple[Row, Groups]:
        choices = self.choices
        report = verify(
            request,
            self.composition.arch.name,
            choices.flavor,
            executor=choices.executor,
            order_seeds=choices.order_seeds,
            scenarios=choices.scenarios or None,
            composition=self.composition,
        )
        found = [f"{each.name}: {finding}" for each in report.scenarios for finding in each.findings]
        if report.status == "fail" and not found and not report.refusals:
            found.append("nothing was compared: no output of its scenarios has an element")
        figures: dict[str, float] = {**row.figures, "scenarios": len(report.scenarios)}
        if report.scenarios:
            figures["margin"] = math.inf if report.margin is None else report.margin
        judged = attrs.evolve(row, figures=figures, kernels=report.kernels, findings=tuple(found))
        return judged, ((report.refusals,) if report.refusals else ())

    def _timed(self, row: Row, plan: Plan) -> Row:
        """Return times of a scenario whose outputs were compared in the same run; else a finding and no times."""
        scenario = next(iter(self._scenarios(plan)), None)
        if scenario is None:
            return attrs.evolve(row, findings=("its family has no scenario to time it on",))
        executor = executor_of(self.choices.executor)
        timed_by = self._launches_alone if can_be_timed(executor) else self._calls
        try:
            times = timed_by(plan, scenario, executor)
        except NotTimedError as error:
            return attrs.evolve(row, findings=(str(error),))
        figures: dict[str, float] = {**row.figures, **attrs.asdict(times)}
        flops = self.composition.useful_flops(scenario.request, plan.candidate, scenario.inputs())
        if flops is not None and times.median_us > 0.0:
            figures["tflops"] = flops / times.median_us / 1e6
        artifact = compile_plan(plan, composition=self.composition)
        return attrs.evolve(row, figures=figures, kernels=kernel_reports(artifact.kernels))

    def _launches_alone(self, plan: Plan, scenario: Scenario, executor: Executor) -> Times:
        """Return times of launches as one graph, caches flushed between."""
        found = time_request(
            plan.request,
            self.composition.arch.name,
            plan.flavor,
            executor=executor,
            scenario=scenario.name,
            launches=self.choices.repeats,
            composition=self.composition,
        )
        return Times.of([1e3 * each for each in found.times_ms])

    def _calls(self, plan: Plan, scenario: Scenario, executor: Executor) -> Times:
        """Return times of calls, of an executor that tells times and no more."""
        from kinfolk_runtime.binder import bind

        timed_plan = selections.plan(self.composition, scenario.request, plan.flavor)
        artifact = compile_plan(timed_plan, composition=self.composition)
        expect_right(self.composition, artifact, scenario, executor)
        marked = Timed(executor)
        bound = bind(artifact, scenario.inputs(), executor=marked, composition=self.composition)
        return timed(bound, marked, self.choices.repeats)

    def _scenarios(self, plan: Plan) -> Iterator[Any]:
        wanted = self.choices.scenarios
        return (each for each in self.composition.scenarios_of(plan) if not wanted or each.name in wanted)


__all__ = ["MODES", "RUNS", "SCHEMA", "Bench", "Choices", "Mode", "Row", "Times", "bench"]
