"""Reports and kernels as tables: every figure is shown, and what is wrong is said."""

from __future__ import annotations

import re

import attrs
import pytest

from kinfolk.check import Finding, KernelReport, OutputReport, Report, ScenarioReport
from kinfolk_runtime.cli.tables import print_kernels, print_report


def kernel(index: int) -> KernelReport:
    return KernelReport(
        symbol=f"kernel_{index}",
        spec_digest=f"{index:016x}",
        arch="paper",
        toolchain="paper-1",
        scratch_bytes=0,
        scratch_ops=0,
        figures={"columns": 1000 + index} if index else {"columns": 1000, "extra": 77},
    )


def report(*outputs: OutputReport, findings: tuple[Finding, ...] = ()) -> Report:
    scenario = ScenarioReport(name="ragged", outputs=outputs, findings=findings)
    return Report(
        family="rows",
        arch="paper",
        flavor="llvm22",
        candidate="rows.plain",
        executor="simulator",
        request={},
        scenarios=(scenario,),
        kernels=(kernel(1),),
    )


GOOD = OutputReport(name="out", elements=6, max_abs_err=0.75, error_there=0.25, tolerance=0.5, margin=0.5)
BROKEN = OutputReport(name="lse", elements=6, max_abs_err=None, error_there=None, tolerance=None, margin=None)


@pytest.mark.parametrize("count", [1, 3, 4])
def test_every_figure_of_every_kernel_is_shown(capsys, count):
    print_kernels("t", [kernel(index) for index in range(count)])
    told = capsys.readouterr().out
    assert "t, compiled by paper-1\n" in told
    for index in range(count):
        assert all(word in told for word in (f"kernel_{index}", str(1000 + index), f"{index:016x}"))
    assert "extra" in told and "77" in told


def test_a_passing_report_ends_with_its_margin(capsys):
    print_report(report(GOOD))
    assert (
        capsys.readouterr().out.splitlines()[-1]
        == "pass: 1 scenario on 1 kernel; the largest margin is 0.5, 1 is the limit"
    )


def test_the_margin_stands_beside_the_error_and_the_tolerance_it_is_the_ratio_of(capsys):
    print_report(report(GOOD))
    lines = capsys.readouterr().out.splitlines()
    [heading] = [re.split("[│┃]", line) for line in lines if "largest error" in line]
    [row] = [re.split("[│┃]", line) for line in lines if "ragged" in line]
    assert dict(zip(map(str.strip, heading), map(str.strip, row), strict=True)) == {
        "scenario": "ragged",
        "output": "out",
        "status": "pass",
        "margin": "0.5",
        "error there": "0.25",
        "tolerance there": "0.5",
        "largest error": "0.75",
    }


def scenarios(**findings: tuple[Finding, ...]) -> Report:
    made = (ScenarioReport(name=name, outputs=(GOOD,), findings=found) for name, found in findings.items())
    return attrs.evolve(report(GOOD), scenarios=tuple(made))


def test_a_scenario_without_an_element_says_so_and_alone_fails(capsys):
    nothing = OutputReport(name="out", elements=0, max_abs_err=0.0, error_there=0.0, tolerance=0.0, margin=0.0)
    beside = attrs.evolve(
        report(GOOD),
        scenarios=tuple(ScenarioReport(name=n, outputs=(o,)) for n, o in (("a", GOOD), ("no_rows", nothing))),
    )
    print_report(beside)
    told = capsys.readouterr().out.splitlines()
    [row] = [line for line in told if line.startswith("no_rows")]
    assert "nothing to compare" in row and "0.0" not in row
    assert told[-1].startswith("pass: 2 scenarios, 1 with nothing to compare, on 1 kernel")
    print_report(report(nothing))
    assert capsys.readouterr().out.splitlines()[-1].startswith("fail: nothing was compared: no output of 1 scenario")


def test_what_all_scenarios_share_is_told_once(capsys):
    same = (Finding("bind", "", "the grid is empty"),)
    print_report(scenarios(a=same, b=same, c=same))
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == "3 of 3 scenarios: the grid is empty"
    assert lines[-1].startswith("fail: 3 of 3 scenarios failed on 1 kernel")


def test_what_differs_in_numbers_is_told_once_and_what_differs_in_words_apart(capsys):
    print_report(
        scenarios(
            a=(Finding("nan", "out", "3 elements are NaN"),),
            b=(Finding("nan", "out", "40 elements are NaN"), Finding("nan", "lse", "1 element is NaN")),
            c=(),
        )
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3:-1] == [
        "2 of 3 scenarios (a, b): out: 3 elements are NaN in a, alike in the others",
        "b: lse: 1 element is NaN",
    ]
    assert lines[-1].startswith("fail: 2 of 3 scenarios failed")


def test_a_failing_report_says_what_was_found(capsys):
    print_report(report(GOOD, BROKEN, findings=(Finding("nan", "lse", "3 elements are NaN"),)))
    lines = capsys.readouterr().out.splitlines()
    assert "not finite" in "\n".join(lines)
    assert lines[-2:] == ["ragged: lse: 3 elements are NaN", "fail: 1 of 1 scenario failed on 1 kernel"]


def test_a_status_in_the_table_is_the_outputs_own(capsys):
    bad = OutputReport(name="lse", elements=4, max_abs_err=2.0, error_there=2.0, tolerance=1.0, margin=2.0)
    print_report(report(GOOD, bad))
    rows = [line.split("│") for line in capsys.readouterr().out.splitlines() if line.startswith("ragged")]
    assert [(row[1].strip(), row[2].strip()) for row in rows] == [(GOOD.name, "pass"), ("lse", "fail")]
