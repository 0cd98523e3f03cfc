"""What the static analyses hold against random kernels, against what the reference engine sees when they run.

A kernel in which some run breaks a rule must be doubted by the analysis of that rule; of a parameter that is called
dead no output depends on, and on one that is not some does. i32 ranges have a test of their own, beside the values
that are observed.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import random_kernels
from observed_values import PAPER
from random_kernels import ENTRIES, MOST, built, outputs, tables

from kinfolk.analysis import ANALYSES, Subject
from kinfolk.ir.types import I16, I32
from kinfolk_runtime.simulator import Simulator
from kinfolk_runtime.simulator.fault import KernelFault

NUMBERS = ((0, 1), (3, 2), (1, 0), (2, 3))
WATCHED = Simulator(engine="reference", sanitize=("race", "memory", "initialisation", "sync"))
"""Not `indirection`: it asks the analysis."""
PLAIN = Simulator(engine="fast", sanitize="none")


def kinds(kernel, scalar=I32):
    """Return the kinds of faults that a kernel's runs come to, over tables, numbers and orders of waves."""
    found = set()
    for table, numbers in itertools.product(tables(scalar), NUMBERS):
        try:
            outputs(kernel, WATCHED, table, numbers, seed=numbers[0])
        except KernelFault as fault:
            found.add(fault.kind)
    return found


def doubted(kernel, *checks):
    subject = Subject(kernel=kernel, arch=PAPER)
    return any(ANALYSES[check](subject) for check in checks)


@pytest.mark.parametrize(
    "body, seeds, kind, checks",
    [
        ("barriers", 200, "sync", ("divergent_barrier", "divergent_loop")),
        ("accesses", 60, "alignment", ("unaligned_access",)),
        ("indirections", 120, "memory", ("unchecked_indirection",)),
    ],
)
def test_a_rule_that_some_run_breaks_was_doubted(body, seeds, kind, checks):
    """And kernels are of every kind: proved, doubted and broken; most of what is not broken is proved."""
    outcomes = []
    for seed in range(seeds):
        scalar = I16 if kind == "alignment" and seed % 2 else I32
        alignment = 16 if kind == "alignment" and seed % 4 > 1 else 4
        kernel = built(seed, getattr(random_kernels, body), alignment, scalar)
        outcome = doubted(kernel, *checks), kind in kinds(kernel, scalar)
        assert outcome != (False, True), f"a false negative: seed {seed}"
        outcomes.append(outcome)
    assert outcomes.count((True, True)) >= seeds // 20
    assert outcomes.count((False, False)) > 2 * outcomes.count((True, False))


def without_effect(kernel, seed):
    """Return the parameters on which, over the values that are passed, no element of y depends."""
    chance = np.random.default_rng(seed)
    one, other = (chance.integers(-(2**31), 2**31, ENTRIES).astype(np.int32) for _ in range(2))
    base = {pair: outputs(kernel, PLAIN, one, pair).tobytes() for pair in itertools.product(range(MOST + 1), repeat=2)}
    found = set()
    if all(base[n, m] == base[0, m] for n, m in base):
        found.add("n")
    if all(base[n, m] == base[n, 0] for n, m in base):
        found.add("m")
    if all(outputs(kernel, PLAIN, other, pair).tobytes() == base[pair] for pair in NUMBERS):
        found.add("table")
    return found


def test_a_parameter_is_dead_where_no_output_depends_on_it():
    """Where the analysis does not see that a value cannot matter, it says nothing: that is for few kernels."""
    missed = seen = 0
    for seed in range(100):
        kernel = built(seed, random_kernels.flows)
        subject = Subject(kernel=kernel, arch=PAPER)
        dead = {defect.where.rpartition(" ")[2] for defect in ANALYSES["dead_parameter"](subject)}
        idle = without_effect(kernel, seed)
        assert dead <= idle, f"called dead, and y depends on it: seed {seed}"
        loads = ANALYSES["unused_load"](subject)
        assert ("table" in dead) <= bool(loads) or not any(op.name == "core.load" for op in kernel.walk())
        missed, seen = missed + len(idle - dead), seen + len(dead)
    assert seen > 100 and missed < seen // 20


@pytest.mark.parametrize("name", ["runs", "maybe"])
def test_what_a_loop_is_given_matters_where_it_is_read_or_no_round_may_be_run(name):
    """And what is put into workgroup memory only where somebody reads it."""
    from random_kernels import number

    from kinfolk.ir.ops import control, memory

    def body(drawn):
        n, m = drawn.numbers
        rounds = number(2) if name == "runs" else m
        [last] = control.for_range(number(0), rounds, 1, [n], lambda index, carried: [index])
        memory.workgroup_store(memory.allocate(I32, random_kernels.BLOCK), drawn.thread, m)
        drawn.store(last)

    kernel = built(0, body)
    defects = ANALYSES["dead_parameter"](Subject(kernel=kernel, arch=PAPER))
    dead = {defect.where.rpartition(" ")[2] for defect in defects}
    assert dead == ({"table", "n", "m"} if name == "runs" else {"table"})
    assert dead == without_effect(kernel, 0)
