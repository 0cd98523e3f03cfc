"""The report has the schema that tools rely on, and is strict JSON whatever happened."""

import json
import math

import attrs
import pytest

from kinfolk.check import Comparison, Finding, KernelReport, OutputReport, Report, ScenarioReport
from kinfolk.refusal import Refusal
from kinfolk.usage import Usage

USAGE = Usage(symbol="k", target="toy", scratch_bytes=0, scratch_ops=0, figures={"registers": 12})
KERNEL = KernelReport.of(USAGE, spec_digest="0" * 16, arch="toy", toolchain="llvm")
GOOD = ScenarioReport(
    name="one",
    outputs=(OutputReport(name="out", elements=4, max_abs_err=0.75, error_there=0.5, tolerance=1.0, margin=0.5),),
    findings=(),
)
REFUSAL = Refusal(
    code="a.b", kind="cannot", field="scale", value=math.inf, limit="finite", because="b", remedy="r", plugin="p"
)


def report(**changes):
    whole = {"family": "f", "arch": "toy", "flavor": "llvm22", "candidate": "f.one", "executor": "simulator"}
    parts = {"request": {"n": 1, "scale": 0.5}, "scenarios": (GOOD,), "kernels": (KERNEL,)}
    return Report(**(whole | parts | changes))


def failed(**changes):
    figures = {"max_abs_err": 0.5, "error_there": 0.5, "tolerance": 1.0, "margin": 0.5} | changes
    return ScenarioReport(
        name="bad", outputs=(OutputReport.of(Comparison(name="out", elements=4, findings=(), **figures)),)
    )


def test_the_document_has_the_keys_of_the_schema():
    document = json.loads(report().to_json())
    keys = ["schema", "status", "family", "arch", "flavor", "candidate", "executor", "request"]
    assert list(document) == [*keys, "scenarios", "kernels", "refusals", "engine", "sanitizers", "notes"]
    assert (document["schema"], document["status"]) == ("kinfolk.report/1", "pass")
    assert document["scenarios"] == [
        {
            "name": "one",
            "status": "pass",
            "outputs": [
                {
                    "name": "out",
                    "elements": 4,
                    "max_abs_err": 0.75,
                    "error_there": 0.5,
                    "tolerance": 1.0,
                    "margin": 0.5,
                }
            ],
            "findings": [],
        }
    ]
    fixed = {"symbol": "k", "spec_digest": "0" * 16, "arch": "toy", "toolchain": "llvm"}
    assert document["kernels"] == [fixed | {"scratch_bytes": 0, "scratch_ops": 0, "registers": 12}]


FAILURES = {
    "no scenario": {"scenarios": ()},
    "no kernel": {"kernels": ()},
    "a scenario that compared nothing": {"scenarios": (ScenarioReport(name="x", outputs=()),)},
    "a run that compared no element": {
        "scenarios": (ScenarioReport(name="x", outputs=(attrs.evolve(GOOD.outputs[0], elements=0),)),)
    },
    "a margin above 1": {"scenarios": (GOOD, failed(margin=1.0000001))},
    "a margin that is infinite": {"scenarios": (failed(margin=math.inf, max_abs_err=math.inf),)},
    "a finding": {"scenarios": (ScenarioReport(name="x", outputs=GOOD.outputs, findings=(Finding("a", "b", "c"),)),)},
}


@pytest.mark.parametrize("case", FAILURES)
def test_what_did_not_pass_has_failed(case):
    failing = report(**FAILURES[case])
    assert failing.status == "fail"
    assert json.loads(failing.to_json())["status"] == "fail"


def test_a_margin_of_exactly_one_passes():
    assert report(scenarios=(failed(margin=1.0),)).status == "pass"


def test_numbers_that_json_lacks_are_null_or_words():
    text = report(scenarios=(failed(margin=math.inf, max_abs_err=math.nan),), refusals=(REFUSAL,)).to_json()
    document = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} in the document"))
    assert document["scenarios"][0]["outputs"][0]["margin"] is None
    assert (document["status"], document["refusals"][0]["value"]) == ("refused", "inf")


def test_the_largest_margin_is_the_reports():
    assert report().margin == 0.5
    assert report(scenarios=(GOOD, failed(margin=math.inf))).margin is None
    assert report(scenarios=()).margin is None
