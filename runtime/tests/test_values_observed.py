"""What the analyses say a value may be, against what it is when the reference engine runs: random kernels, all lanes.

A kernel for which no range is doubted must run without a violation of one, on whatever its parameters may be.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from observed_values import PAPER, ObservedValues

from kinfolk.analysis import ANALYSES, Subject
from kinfolk.ir import build_kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, lanes, memory
from kinfolk.ir.types import I32, PointerType
from kinfolk.parameters import Parameter
from kinfolk_runtime.simulator.fault import KernelFault

SEEDS = range(40)
WAVES, GROUPS = 2, 2
PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")


class RandomBody:
    """Integer arithmetic, branches and loops, drawn so that some of it is proved and some goes wrong."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def number(self) -> int:
        return self.chance.choice((0, 1, 2, 3, 4, 7, 8, 15, 16, 64, 100, -1, -8, 2**20, 2**30, -(2**31)))

    def value(self, known: list) -> object:
        return self.chance.choice(known)

    def grown(self, known: list, depth: int) -> list:
        """Return the values with a few more made of them."""
        known = list(known)
        for _ in range(self.chance.randint(2, 6)):
            made = self.chance.choices(
                (self.sum, self.bits, self.bounded, self.chosen, self.branch, self.loop), (6, 3, 3, 3, 2, 2)
            )[0]
            if depth or made not in (self.branch, self.loop):
                known += made(known, depth - 1)
        return known

    def sum(self, known: list, depth: int) -> list:
        op = self.chance.choice((arithmetic.add, arithmetic.sub, arithmetic.mul))
        b = constant(self.number(), I32) if self.chance.random() < 0.6 else self.value(known)
        return [op(self.value(known), b, nsw=self.chance.random() < 0.5)]

    def bits(self, known: list, depth: int) -> list:
        op = self.chance.choice((arithmetic.and_, arithmetic.or_, arithmetic.xor))
        shift = self.chance.choice((arithmetic.shl, arithmetic.lshr, arithmetic.ashr))
        b = constant(self.number(), I32) if self.chance.random() < 0.7 else self.value(known)
        return [op(self.value(known), b), shift(self.value(known), constant(self.chance.randint(0, 9), I32))]

    def bounded(self, known: list, depth: int) -> list:
        op = self.chance.choice((arithmetic.smin, arithmetic.smax, arithmetic.umin, arithmetic.umax))
        divide = self.chance.choice((arithmetic.udiv, arithmetic.urem, arithmetic.sdiv, arithmetic.srem))
        small = constant(self.chance.choice((1, 3, 4, 10, 64)), I32)
        return [op(self.value(known), self.value(known)), divide(self.value(known), small)]

    def condition(self, known: list):
        predicate = self.chance.choice(PREDICATES)
        self.compared = (self.value(known), self.value(known))
        made = arithmetic.icmp(*self.compared, predicate=predicate)
        if self.chance.random() < 0.3:
            return self.chance.choice((arithmetic.and_, arithmetic.or_))(made, self.condition(known))
        return lanes.any_lane(made) if self.chance.random() < 0.2 else made

    def chosen(self, known: list, depth: int) -> list:
        return [arithmetic.select(self.condition(known), self.value(known), self.value(known))]

    def branch(self, known: list, depth: int) -> list:
        condition, compared = self.condition(known), self.compared

        def side() -> list:
            apart = arithmetic.sub(*compared, nsw=True)
            return [self.value(self.grown([*known, apart], depth)) for _ in range(2)]

        return list(control.if_else(condition, side, side))

    def loop(self, known: list, depth: int) -> list:
        upper = arithmetic.smin(lanes.first_lane(self.value(known)), constant(self.chance.choice((0, 1, 5, 12)), I32))
        lower = arithmetic.smax(upper - self.chance.choice((1, 4, 12)), constant(-20, I32))
        step = self.chance.choice((1, 1, 2, 5))

        def turn(index, carried):
            inside = self.grown([*known, index, *carried], depth)
            return [self.value(inside) for _ in carried]

        return list(control.for_range(lower, upper, step, [self.value(known) for _ in range(2)], turn))


def drawn(seed: int):
    """Return a random kernel and the bounds of its parameters."""
    chance = random.Random(seed)
    ends = [sorted(chance.choice((0, 1, 5, 16, 1000, 2**20, 2**31 - 1, -3)) for _ in range(2)) for _ in range(2)]
    numbers = [Parameter(name=f"n{i}", type=I32, minimum=low, maximum=high) for i, (low, high) in enumerate(ends)]
    out = Parameter(name="out", type=PointerType(I32), access="write", alignment=4)

    def body(out, *numbers):
        known = [*numbers, lanes.lane_id(), lanes.wave_id(), lanes.block_id(axis=0, below=GROUPS), constant(8, I32)]
        made = RandomBody(chance).grown(known, 2)
        total = made[-1]
        for value in made[-4:]:
            total = arithmetic.xor(total, value)
        place = lanes.block_id(axis=0, below=GROUPS) * (WAVES * PAPER.wave_size) + lanes.thread_id()
        memory.store(memory.offset(out, place), total)

    kernel = build_kernel("k", [out, *numbers], arch=PAPER, block=WAVES * PAPER.wave_size, body=body)
    return kernel, ends


@pytest.fixture(scope="module")
def outcomes():
    """Run each kernel at both ends of its parameters' bounds and in between; return what came of it."""
    found = {}
    for seed in SEEDS:
        kernel, ends = drawn(seed)
        subject = Subject(kernel=kernel, arch=PAPER)
        doubted = bool(ANALYSES["i32_range"](subject))
        faults, observed = 0, 0
        for pick in (min, max, random.Random(seed).choice):
            simulator = ObservedValues(subject.values, subject.values_by_wave)
            out = np.zeros(GROUPS * WAVES * PAPER.wave_size, np.int32)
            try:
                simulator.launch(kernel, (GROUPS, 1, 1), [out, *(pick(pair) for pair in ends)])
            except KernelFault as fault:
                if fault.kind != "integer":
                    raise
                faults += 1
            assert not simulator.outside, (seed, simulator.outside[0])
            observed += simulator.observed
        found[seed] = (doubted, faults, observed)
    return found


def test_no_value_is_outside_what_it_may_be(outcomes):
    assert sum(observed for _, _, observed in outcomes.values()) > 2000


def test_a_range_that_is_violated_was_doubted(outcomes):
    """And the kernels are of both kinds: some are proved, and of those that are not some do go wrong."""
    for seed, (doubted, faults, _) in outcomes.items():
        assert doubted or not faults, seed
    assert sum(not doubted for doubted, _, _ in outcomes.values()) > 3
    assert sum(bool(faults) for _, faults, _ in outcomes.values()) > 3


def test_a_value_outside_is_seen():
    """Negative control: sets of a kernel whose parameter is declared smaller than what is passed."""
    n = Parameter(name="n", type=I32, minimum=0, maximum=3)
    out = Parameter(name="out", type=PointerType(I32), access="write", alignment=4)

    def body(out, n):
        memory.store(memory.offset(out, lanes.thread_id()), arithmetic.add(n, 4))

    kernel = build_kernel("k", [out, n], arch=PAPER, block=PAPER.wave_size, body=body)
    subject = Subject(kernel=kernel, arch=PAPER)
    for passed, wrong in ((3, 0), (4, 1)):
        simulator = ObservedValues(subject.values, subject.values_by_wave)
        simulator.launch(kernel, (1, 1, 1), [np.zeros(64, np.int32), passed])
        assert bool(simulator.outside) == bool(wrong)
