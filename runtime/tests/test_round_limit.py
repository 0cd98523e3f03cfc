"""The limit on the rounds of a workgroup's loops, which both engines keep alike."""

from __future__ import annotations

import numpy as np
import pytest
from workgroup_toy import built

from kinfolk.ir.ops import control, lanes, memory
from kinfolk.ir.types import I32
from kinfolk_runtime.simulator import Simulator
from kinfolk_runtime.simulator.engine import ENGINES
from kinfolk_runtime.simulator.fault import KernelFault

WAVES, OUTER, INNER = 2, 3, 4
FURTHER = WAVES * ((OUTER - 1) + OUTER * (INNER - 1))
"""Rounds after the first of each loop that a workgroup begins, barrier or not."""


def nested(toy, declare, barrier):
    def body(y):
        t = lanes.thread_id()

        def outer(_, carried):
            given = control.for_range(0, INNER, 1, carried, lambda i, inner: [inner[0] + i])
            if barrier:
                control.barrier()
            return given

        [total] = control.for_range(0, OUTER, 1, [t], outer)
        memory.store(memory.offset(y, t), total)

    return built(toy, body, declare("y", I32, "write"), waves=WAVES)


def fault_of(kernel, toy, engine, round_limit, sanitize="all"):
    simulator = Simulator(engine=engine, round_limit=round_limit, sanitize=sanitize)
    try:
        simulator.launch(kernel, (1, 1, 1), [np.zeros(WAVES * toy.wave, np.int32)])
    except KernelFault as fault:
        return fault
    finally:
        assert simulator.notes == ()
    return None


@pytest.mark.parametrize("sanitize", ["all", "none"])
@pytest.mark.parametrize("barrier", [False, True], ids=["plain", "with barriers"])
@pytest.mark.parametrize("engine", ENGINES)
def test_one_round_too_many_is_a_fault_that_names_the_limit(any_toy, declare, engine, barrier, sanitize):
    kernel = nested(any_toy, declare, barrier)
    assert fault_of(kernel, any_toy, engine, FURTHER, sanitize) is None
    assert fault_of(kernel, any_toy, engine, None, sanitize) is None
    fault = fault_of(kernel, any_toy, engine, FURTHER - 1, sanitize)
    assert fault is not None and fault.kind == "limit"
    assert f"round_limit={FURTHER - 1}" in str(fault) and fault.op == "core.for"


def test_each_workgroup_has_its_own_rounds(any_toy, declare):
    kernel = nested(any_toy, declare, False)
    for engine in ENGINES:
        simulator = Simulator(engine=engine, round_limit=FURTHER, sanitize="none")
        simulator.launch(kernel, (4, 1, 1), [np.zeros(WAVES * any_toy.wave, np.int32)])


@pytest.mark.parametrize("round_limit", [-1, True, 2.0, 1 << 62])
def test_a_limit_is_a_whole_number(round_limit):
    with pytest.raises(ValueError, match="round_limit is"):
        Simulator(round_limit=round_limit)
