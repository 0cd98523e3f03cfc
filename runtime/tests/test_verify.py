"""Verification on a kernel of a few ops: it passes, and each planted fault fails it with a finding of its own."""

from __future__ import annotations

import re
from typing import Any

import attrs
import numpy as np
import pytest
from double_family import (
    CAPABILITY,
    OBJECT,
    WAVE,
    DoubleRequest,
    DoubleSpec,
    Family,
    compile_without_llvm,
    composition_of,
    plan,
)

from kinfolk.arch import Arch
from kinfolk.candidate import Candidate
from kinfolk.check import Finding, Scenario
from kinfolk.dispatch import selections
from kinfolk.errors import PluginError
from kinfolk.expr import field
from kinfolk.hooks import hookimpl
from kinfolk.ir import Kernel, build_kernel
from kinfolk.ir.ops import control, lanes, memory
from kinfolk.ir.types import F32
from kinfolk.plan import Plan
from kinfolk.refusal import Limit, Refusal
from kinfolk.request import Request
from kinfolk.spec import Spec
from kinfolk_runtime.artifact import ArtifactError, sha256
from kinfolk_runtime.executor import Work
from kinfolk_runtime.simulator import Simulator
from kinfolk_runtime.simulator.fault import FaultKind, KernelFault, Party
from kinfolk_runtime.verify import ONE_ORDER, ORDER_SEEDS, run_scenario, runners_of, verify


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """How to verify a family without an LLVM: its kernels are emitted and run, and their figures made up."""
    monkeypatch.setattr("kinfolk_runtime.verify.compile_plan", compile_without_llvm)

    def runs(family: Family, request: DoubleRequest | None = None, **options: Any) -> Any:
        return verify(request or DoubleRequest(), "toy", composition=composition_of(family), **options)

    return runs


def test_a_right_kernel_passes_on_every_scenario(run):
    started = []
    report = run(Family(), started=lambda name, count: started.append((name, count)))
    assert report.status == "pass"
    assert started == [("as asked", 2), ("one", 2)] == [(each.name, 2) for each in report.scenarios]
    assert (report.candidate, report.executor, report.margin) == ("double.plain", "simulator", 0.0)
    [kernel] = report.kernels
    assert kernel.to_dict()["registers"] == 3 and kernel.toolchain == "made-up"


FAULTS = {
    "tolerance": {"error": 1e-5},
    "untouched": {"first": 1},
    "simulation": {"past": 1},
}


@pytest.mark.parametrize("code", FAULTS)
def test_a_planted_fault_is_a_finding(run, code):
    report = run(Family(**FAULTS[code]))
    assert report.status == "fail"
    assert all(code in [finding.code for finding in scenario.findings] for scenario in report.scenarios)
    assert '"status": "fail"' in report.to_json()


def test_an_error_within_the_tolerance_is_a_margin(run):
    report = run(Family(error=2.0**-22))
    assert report.status == "pass" and 0.0 < report.margin <= 1.0


def test_a_finding_of_the_family_fails_the_run(run):
    family = Family()
    family.extra = (Finding("odd", "y", "is odd"),)
    assert run(family).status == "fail"


def test_a_refused_request_is_reported_and_nothing_runs(run):
    report = run(Family(), DoubleRequest(factor=5))
    assert (report.status, report.candidate, report.scenarios) == ("refused", None, ())
    assert [refusal.code for refusal in report.refusals] == ["double.factor"]


def test_a_kernel_outside_the_gate_is_refused(run):
    words = {"limit": "0", "because": "b", "remedy": "r", "plugin": "p"}
    refusal = Refusal(code="resources.scratch_bytes", kind="cannot", field="scratch_bytes", value=8, **words)
    report = run(Family(gate=[refusal]))
    assert (report.status, report.refusals, report.candidate) == ("refused", (refusal,), "double.plain")


def test_named_scenarios_run_alone(run):
    assert [each.name for each in run(Family(), scenarios=["one"]).scenarios] == ["one"]
    assert run(Family(), scenarios=[]).status == "fail"
    with pytest.raises(ValueError, match="no scenario two; there are: as asked, one"):
        run(Family(), scenarios=["one", "two"])


def test_an_unknown_engine_is_refused_by_name(run):
    with pytest.raises(ValueError, match="engine is 'warp', known: reference, fast"):
        run(Family(), engine="warp")


def test_a_reference_that_leaves_an_output_out_is_the_plugins_fault(run):
    family = Family()
    family.expected_name = "z"
    with pytest.raises(PluginError, match="gives None for y"):
        run(family)


def test_outputs_are_judged_by_the_reference_that_the_caller_has():
    composition = composition_of(Family())
    wanted = selections.plan(composition, DoubleRequest(), "llvm22")
    artifact = compile_without_llvm(wanted, composition=composition)
    scenario = composition.scenarios_of(wanted)[0]
    right = composition.reference(scenario.request, scenario.inputs())
    wrong = {name: attrs.evolve(each, value=each.value + 1.0) for name, each in right.items()}
    reports = [run_scenario(composition, artifact, scenario, runners_of(), given) for given in (None, right, wrong)]
    assert [report.status for report in reports] == ["pass", "pass", "fail"]


OTHER = b"4 registers"
SWAPPED = {
    "its bytes": {"object": OTHER},
    "its bytes and their digest": {"object": OTHER, "object_sha256": sha256(OTHER)},
    "its key": {"key": "0" * 64},
}


@pytest.mark.parametrize("case", SWAPPED)
def test_a_wrong_binary_does_not_come_to_run(run, case):
    family = Family()
    family.tampered = lambda kernel: attrs.evolve(kernel, **SWAPPED[case])
    with pytest.raises(ArtifactError, match=r"exchanged|its key is|recorded is scratch_bytes"):
        run(family)
    family.tampered = lambda kernel: attrs.evolve(kernel, object=bytes(OBJECT))
    assert run(family).status == "pass"


class Handing(Family):
    """y = factor * x, where the first wave of each workgroup stages what the second stores, past a barrier or not."""

    def __init__(self, *, barrier: bool) -> None:
        super().__init__()
        self.barrier = barrier

    @hookimpl
    def kinfolk_candidates(self) -> tuple[Candidate, ...]:
        def planned(request: DoubleRequest, arch: Arch) -> Plan:
            alone = plan(request, arch)
            return attrs.evolve(alone, launches=(attrs.evolve(alone.launches[0], block=2 * WAVE),))

        [candidate] = super().kinfolk_candidates()
        return (attrs.evolve(candidate, plan=planned),)

    @hookimpl
    def kinfolk_emit_ir(self, spec: Spec, arch: Arch) -> Kernel:
        assert isinstance(spec, DoubleSpec)

        def body(x: Any, y: Any, count: Any) -> None:
            lane = lanes.lane_id()
            index = lanes.block_id(axis=0) * WAVE + lane
            shared = memory.allocate(F32, WAVE)

            def stage() -> tuple[()]:
                memory.workgroup_store(shared, lane, memory.load(memory.offset(x, index)) * float(spec.factor))
                return ()

            def store() -> tuple[()]:
                memory.store(memory.offset(y, index), memory.workgroup_load(shared, lane))
                return ()

            control.if_else((index < count) & (lanes.thread_id() < WAVE), stage)
            if self.barrier:
                control.barrier()
            control.if_else((index < count) & (lanes.thread_id() >= WAVE), store)

        return build_kernel(spec.symbol(), spec.parameters(), arch=arch, block=2 * WAVE, body=body)


def test_a_missing_barrier_that_the_ascending_order_hides_is_found_and_the_order_named(run):
    assert run(Handing(barrier=False), order_seeds=[0], sanitize="initialisation").status == "pass"
    assert run(Handing(barrier=True)).status == "pass"
    report = run(Handing(barrier=False), sanitize="initialisation")
    assert report.status == "fail"
    findings = [finding for scenario in report.scenarios for finding in scenario.findings]
    assert {finding.code for finding in findings} == {"simulation"}
    named = {word for finding in findings for word in re.findall(r"\[order seeds? ([\d, ]+)\]$", finding.message)}
    assert named and not any("0" in word for word in named)
    assert [output.name for output in report.scenarios[0].outputs] == ["y"]  # of the order that came to its end


def test_a_missing_barrier_is_a_race_in_every_order(run):
    report = run(Handing(barrier=False), order_seeds=[0])
    [message] = {finding.message for scenario in report.scenarios for finding in scenario.findings}
    assert "[race]" in message and "the other party: " in message


STORE, LOAD = Party("core.store", "f.py:3", (0, 0, 0)), Party("core.load", "f.py:4", (0, 0, 0))


def met(kind: FaultKind, place: int, first: Party, other: Party) -> KernelFault:
    """Return the fault of two parties in the workgroup at a place."""
    fault = KernelFault("meets", kind=kind, kernel="k", workgroup=(place, 0, 0), other=other)
    fault.op, fault.source = first.op, first.source
    return fault


@pytest.mark.parametrize(
    "kind, seconds, ends",
    [
        ("race", (LOAD, STORE), ["[race] [order seeds 0, 1]"]),  # the parties in the other order
        ("race", (STORE, LOAD), ["[race] [order seeds 0, 1]"]),
        ("race", (STORE, STORE), ["[race] [order seed 0]", "[race] [order seed 1]"]),
        ("memory", (STORE, LOAD), ["[memory] [order seed 0]", "[memory] [order seed 1]"]),
    ],
)
def test_a_race_that_orders_find_in_several_workgroups_is_told_once(run, monkeypatch, kind, seconds, ends):
    faults = iter([met(kind, 0, STORE, LOAD), met(kind, 1, *seconds)])

    def racing(self: Simulator, work: Work) -> None:
        raise next(faults)

    monkeypatch.setattr(Simulator, "run", racing)
    [scenario] = run(Family(), order_seeds=[0, 1], scenarios=["one"]).scenarios
    assert [finding.message.partition(" [")[1:] for finding in scenario.findings] == [(" [", end[1:]) for end in ends]
    assert "workgroup (0,0,0)" in scenario.findings[0].message


def test_what_no_launch_writes_is_a_finding_by_name_and_place(run):
    """Also where what was there happens to be right."""
    report = run(Family(first=2))
    for scenario in report.scenarios:
        size = scenario.outputs[0].elements
        [finding] = [one for one in scenario.findings if one.code == "unwritten"]
        left = min(2, size)
        assert finding.output == "y"
        assert finding.message.startswith(f"no launch writes {left} of {size} elements, the first at (0,)")
    silent = run(Family(first=2), sanitize="race")
    assert not [one for scenario in silent.scenarios for one in scenario.findings if one.code == "unwritten"]
    assert not [one for scenario in run(Family()).scenarios for one in scenario.findings]


def test_a_finding_of_every_order_is_one_and_names_them_all(run):
    report = run(Family(error=1e-5), order_seeds=[0, 5])
    [finding] = report.scenarios[0].findings
    assert finding.message.endswith("[order seeds 0, 5]")


def test_figures_are_those_of_the_worst_order(run, monkeypatch):
    """A kernel whose error differs from order to order; its tolerance is 1e-6."""
    errors = iter([0.25e-6, 0.75e-6, 0.5e-6])
    whole = Simulator.run

    def erring(self: Simulator, work: Work) -> None:
        whole(self, work)
        work.arguments[1].array[:] += np.float32(next(errors))

    monkeypatch.setattr(Simulator, "run", erring)
    inputs = {"x": np.zeros(1, np.float32)}
    monkeypatch.setattr(Scenario, "inputs", lambda self: inputs)
    [scenario] = run(Family(), scenarios=["one"]).scenarios
    [output] = scenario.outputs
    assert output.margin == pytest.approx(0.75, rel=1e-6)
    assert output.error_there == output.max_abs_err == pytest.approx(0.75e-6, rel=1e-6)


@pytest.mark.parametrize("seeds", [(), (-1,), (0, True), (1.0,)])
def test_order_seeds_are_refused_by_value(run, seeds):
    with pytest.raises(ValueError, match="order_seeds takes one or more Python ints"):
        run(Family(), order_seeds=seeds)


def test_the_simulator_runs_once_per_seed_and_another_executor_once():
    assert [runner.order_seed for runner in runners_of()] == list(ORDER_SEEDS) == [0, 1, 2]
    assert [runner.order_seed for runner in runners_of(order_seeds=[3, 3])] == [3]
    [given] = runners_of(Simulator(4))
    assert given.order_seed is None


def test_every_order_of_waves_gives_the_same_report(run):
    assert run(Family(), order_seeds=[7, 8]).to_dict() == run(Family()).to_dict()


def test_a_run_in_one_order_says_what_only_several_show(run):
    assert ONE_ORDER in run(Family(), order_seeds=[7]).notes
    assert ONE_ORDER not in run(Family(), order_seeds=[7, 8]).notes


SMALL = Limit(
    "double.count", "cannot", "count", field("count") <= 1000, because="indices are short", remedy="Split it."
)


class Reaching(Family):
    """A family whose third scenario asks for more than its candidate takes."""

    @hookimpl
    def kinfolk_candidates(self) -> tuple[Candidate, ...]:
        [candidate] = super().kinfolk_candidates()
        return (attrs.evolve(candidate, capability=(*CAPABILITY, SMALL)),)

    @hookimpl
    def kinfolk_scenarios(self, request: Request) -> tuple[Scenario, ...]:
        first, second = super().kinfolk_scenarios(request)
        far = attrs.evolve(request, count=1001)  # type: ignore[misc]
        return (first, second, attrs.evolve(first, name="far", request=far))


def test_a_scenario_whose_request_is_refused_is_left_out_with_the_bound(run):
    report = run(Reaching())
    assert report.status == "pass" and [each.name for each in report.scenarios] == ["as asked", "one"]
    told = "far is left out: count is 1001, supported: at most 1000 (indices are short). Split it."
    assert told in report.notes
    alone = run(Reaching(), scenarios=["far"])
    assert alone.status == "fail" and told in alone.notes


class InPart(Family):
    """A family one of whose scenarios has an input that exists in part, all of it here."""

    @hookimpl
    def kinfolk_scenarios(self, request: Request) -> tuple[Scenario, ...]:
        first, second = super().kinfolk_scenarios(request)
        return (first, attrs.evolve(second, name="part", sparse=frozenset("x")))


def test_a_scenario_of_sparse_memory_needs_an_executor_of_it(run):
    class Device(Simulator):
        name = "device"
        takes_sparse = False

    report = run(InPart(), executor=Device())
    assert report.status == "pass" and [each.name for each in report.scenarios] == ["as asked"]
    assert "part is left out: it needs an executor of memory that exists in part" in report.notes
