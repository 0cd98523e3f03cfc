"""Every sanitizer finds its planted faults in both engines and names them, and finds nothing where there is none."""

from __future__ import annotations

import inspect
from collections import Counter

import numpy as np
import pytest
from planted import (
    PLANTED,
    WAVE,
    Planted,
    load_past_the_end,
    loop_without_end,
    misaligned_load,
    output,
    outside_an_allocation,
    outside_what_exists,
    shift_past_the_width,
    store_before_the_start,
    sum_past_the_largest,
    workgroup_memory_never_written,
)
from workgroup_toy import built

from kinfolk.ir.types import I32
from kinfolk_runtime.simulator import KernelFault, Simulator
from kinfolk_runtime.simulator.sanitizers import ALL, NONE, SANITIZERS

pytestmark = pytest.mark.simulate


def named(planted: Planted) -> str:
    return f"{planted.sanitizer}, {planted.name}"


every_fault = pytest.mark.parametrize("planted", PLANTED, ids=named)


def run(toy, declare, planted: Planted, faulty: bool, sanitize, seed: int = 0):
    """Launch the kernel; return what it leaves in y, or the fault."""
    parameters = declare("x", I32, alignment=16), declare("y", I32, "readwrite")
    kernel = built(toy, lambda x, y: planted.body(x, y, faulty), *parameters, waves=planted.waves)
    simulator, y = Simulator(engine=toy.engine, sanitize=sanitize), output(planted)
    try:
        simulator.launch(kernel, planted.grid, [planted.x(), y], seed)
    except KernelFault as fault:
        return fault
    assert simulator.notes == ()
    return y


def line_of(planted: Planted, party: str) -> str:
    """Return where in this folder the party's op is built."""
    lines, first = inspect.getsourcelines(planted.body)
    [number] = [first + index for index, line in enumerate(lines) if f"# {party}" in line]
    return f"planted.py:{number}"


def test_there_are_two_faults_of_each_kind_or_more():
    counts = Counter(planted.sanitizer for planted in PLANTED)
    assert set(counts) == set(SANITIZERS) and min(counts.values()) >= 2


@every_fault
@pytest.mark.parametrize("alone", [False, True], ids=["all", "alone"])
def test_a_planted_fault_is_found_and_named(toy64, declare, planted, alone):
    fault = run(toy64, declare, planted, True, planted.sanitizer if alone else "all")
    assert isinstance(fault, KernelFault)
    assert fault.kind == (planted.kind or planted.sanitizer)
    assert (fault.op, fault.lanes, fault.wave) == (planted.op, planted.lanes, planted.wave)
    assert line_of(planted, "own") in (fault.source or "")
    assert fault.workgroup == (planted.workgroup if planted.sanitizer != "indirection" else None)
    assert fault.element == planted.element
    assert (fault.address is None) == (planted.element is None)
    assert (fault.other is None) == (planted.other is None)
    if planted.other is not None and fault.other is not None:
        other = fault.other
        assert (other.op, other.workgroup, other.wave, other.lanes) == planted.other
        assert line_of(planted, "other") in (other.source or "")
        assert f"; the other party: {other.op} at {other.source}, workgroup" in str(fault)
    assert str(fault).endswith(f"[{fault.kind}]")


@every_fault
def test_its_clean_twin_passes(toy64, declare, planted):
    for seed in (0, 3):
        assert not isinstance(run(toy64, declare, planted, False, "all", seed), KernelFault)


@every_fault
def test_with_the_switch_off_it_is_not_found(toy64, declare, planted):
    if planted.body is loop_without_end and toy64.engine == "reference":
        return  # four million rounds
    others = run(toy64, declare, planted, True, ALL - {planted.sanitizer})
    assert not isinstance(others, KernelFault) or others.kind != (planted.kind or planted.sanitizer)
    assert not isinstance(run(toy64, declare, planted, True, NONE), KernelFault)


@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize("planted", [one for one in PLANTED if one.sanitizer == "race"], ids=named)
def test_a_race_is_found_in_every_order(toy64, declare, planted, seed):
    fault = run(toy64, declare, planted, True, "all", seed)
    assert isinstance(fault, KernelFault) and fault.kind == "race"
    assert fault.other is not None and fault.other.op is not None


def of_a_run_without_sanitizers(toy, declare, body):
    [planted] = [one for one in PLANTED if one.body is body]
    return run(toy, declare, planted, True, "none")


POISON = np.array([0xA5A5A5A5], np.uint32).view(np.int32)[0]


def test_without_sanitizers_what_is_not_there_is_poison_and_stores_to_it_vanish(toy64, declare):
    t = np.arange(WAVE)
    found = of_a_run_without_sanitizers(toy64, declare, load_past_the_end)[:WAVE]
    assert found.tolist() == [*range(3 * WAVE + 1, 4 * WAVE), POISON]
    found = of_a_run_without_sanitizers(toy64, declare, outside_an_allocation)[:WAVE]
    assert found.tolist() == [*range(1, WAVE), POISON]
    found = of_a_run_without_sanitizers(toy64, declare, outside_what_exists)[:WAVE]
    assert found.tolist() == [*range(1, WAVE), POISON]
    found = of_a_run_without_sanitizers(toy64, declare, workgroup_memory_never_written)[:WAVE]
    assert found.tolist() == [*range(WAVE - 1), POISON]
    found = of_a_run_without_sanitizers(toy64, declare, store_before_the_start)
    assert found.tolist() == [*range(1, WAVE), *[0] * (3 * WAVE + 1)]
    found = of_a_run_without_sanitizers(toy64, declare, misaligned_load)[:WAVE]
    assert (found == 2 * t + 1).all()


def test_without_sanitizers_integers_wrap(toy64, declare):
    t = np.arange(WAVE)
    found = of_a_run_without_sanitizers(toy64, declare, sum_past_the_largest)[:WAVE]
    assert (found == (t + 2**31 - 2).astype(np.uint32).view(np.int32)).all()
    assert (of_a_run_without_sanitizers(toy64, declare, shift_past_the_width)[:WAVE] == t).all()
