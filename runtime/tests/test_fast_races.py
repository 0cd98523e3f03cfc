"""Small random kernels in both engines: the same verdict on races, barriers, reads; the same bits where clean."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from attrs import evolve
from engine_pair import run_both
from workgroup_toy import ADD, STAGE, WAIT, built

from kinfolk.ir import constant
from kinfolk.ir.ops import control, lanes, memory
from kinfolk.ir.types import I32

ROOM = 2
SEEDS = 120


class RandomTraffic:
    """Draws a kernel whose waves store, load, add and stage in workgroup memory, mostly in places of their own."""

    def __init__(self, seed: int, wave: int, waves: int, stages: bool, boldness: float) -> None:
        self.random, self.wave, self.stages, self.boldness = np.random.default_rng(seed), wave, stages, boldness
        self.threads = waves * wave
        self.values = []
        self.kept = 0

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def index(self, t):
        """Return a place of the thread's own, or that of another thread, or one for all."""
        if not self.chance(self.boldness):
            return t
        size = self.threads
        kind = int(self.random.integers(4))
        if kind == 0:
            return t ^ int(self.random.choice([1, 2, self.wave // 2]))
        if kind == 1:
            return (t + int(self.random.integers(1, size))) & (size - 1)
        if kind == 2:
            return (t & (self.wave - 1)) | int(self.random.choice([0, self.wave]))
        return t - t + int(self.random.integers(size))

    def value(self, t):
        return self.values[int(self.random.integers(len(self.values)))] if self.chance(0.8) else t - t + 7

    def step(self, tile, x, t, depth: int) -> None:
        kind = self.random.choice(
            ["store", "load", "add", "barrier", "if", "for", "stage", "wait"],
            p=[0.22, 0.3, 0.12, 0.16, 0.06, 0.06, 0.05, 0.03],
        )
        count = int(self.random.choice([1, 1, 2]))
        extra = self.threads * int(self.random.integers(ROOM)) * count
        if kind == "store":
            memory.workgroup_store(tile, self.index(t), self.value(t), offset=extra)
        elif kind == "load":
            self.keep(memory.workgroup_load(tile, self.index(t), offset=extra))
        elif kind == "add":
            ADD.add(tile, self.index(t), self.value(t))
        elif kind == "barrier" and (depth == 0 or self.chance(0.1)):
            control.barrier()
        elif kind == "if" and depth < 2:
            bit = int(self.random.choice([1, 4, self.wave]))
            control.if_else((t & bit).eq(0), lambda: self.inside(tile, x, t, depth))
        elif kind == "for" and depth < 2:
            control.for_range(0, 2, 1, [], lambda _, __: self.inside(tile, x, t, depth))
        elif kind == "stage" and self.stages:
            start = lanes.wave_id() * self.wave if not self.chance(self.boldness) else 0
            STAGE.add(memory.offset(x, lanes.lane_id()), tile, self.place(start), count=1, offset=extra)
            if self.chance(1 - self.boldness):
                WAIT.add()
        elif kind == "wait" and self.stages:
            WAIT.add(outstanding=int(self.random.integers(2)))

    def place(self, start):
        return constant(start, I32) if isinstance(start, int) else start

    def keep(self, value) -> None:
        self.values.append(value)

    def inside(self, tile, x, t, depth: int):
        outside = list(self.values)
        for _ in range(int(self.random.integers(1, 4))):
            self.step(tile, x, t, depth + 1)
        self.values = outside
        return ()

    def body(self, x, y):
        t = lanes.thread_id()
        self.values = [t, memory.load(memory.offset(x, t))]
        tile = memory.allocate(I32, 2 * ROOM * self.threads)
        for part in range(2 * ROOM):
            memory.workgroup_store(tile, t, self.value(t), offset=part * self.threads)
        if self.chance(0.95):
            control.barrier()
        for _ in range(int(self.random.integers(3, 12))):
            self.step(tile, x, t, 0)
        if self.stages and self.chance(0.9):
            WAIT.add()
        for number, value in enumerate(self.values[-8:]):
            memory.store(memory.offset(y, t * 8 + number), value)


def verdict(toy, declare, seed: int, waves: int, stages: bool):
    """Return the kind of fault that both engines find, or "clean" where both leave the same bits."""
    drawn = RandomTraffic(seed, toy.wave, waves, stages, (0.0, 0.1, 0.5)[seed // 3 % 3])
    kernel = built(toy, drawn.body, declare("x", I32), declare("y", I32, "write"), waves=waves)
    size = waves * toy.wave

    def arguments():
        return [np.arange(100, 100 + size, dtype=np.int32), np.zeros(8 * size, np.int32)]

    fault, fast = run_both(kernel, (1, 1, 1), arguments, seed=seed % 3)
    assert fast.notes == ()
    return fault.kind if fault else "clean"


@pytest.mark.parametrize("stages", [False, True], ids=["plain", "staged"])
def test_random_kernels_are_judged_alike(any_toy, declare, stages):
    found = Counter(verdict(any_toy, declare, seed, 2, stages) for seed in range(SEEDS))
    assert found["clean"] > SEEDS // 6 and found["race"] > SEEDS // 6 and found["sync"]


@pytest.mark.parametrize("waves", [1, 8, 16, 32])
def test_any_number_of_waves_is_judged_alike(any_toy, declare, waves):
    """Sets of waves of one, two and four bytes; no sets at all."""
    roomy = type(any_toy)(any_toy.wave)
    roomy.arch = evolve(any_toy.arch, facts={**any_toy.arch.facts, "max_workgroup_size": 2048, "lds_bytes": 1 << 16})
    found = Counter(verdict(roomy, declare, seed, waves, seed % 2 == 0) for seed in range(SEEDS // 4))
    assert found["clean"] and found["race"]


@pytest.mark.parametrize("sanitize", ["all", "race"])
@pytest.mark.parametrize("rounds, within", [(6, True), (7, False)])
def test_back_edges_are_counted_alike(any_toy, declare, monkeypatch, rounds, within, sanitize):
    """Two waves that go back as often as they may between two barriers, in nested loops, and once more."""
    monkeypatch.setattr("kinfolk_runtime.simulator.control.MOST_BACK_EDGES", 2 * (2 + 3 * 5))

    def body(y):
        t = lanes.thread_id()
        for _ in range(2):

            def outer(_, carried):
                return control.for_range(0, rounds, 1, carried, lambda i, inner: [inner[0] + i])

            [total] = control.for_range(0, 3, 1, [t], outer)
            memory.store(memory.offset(y, t), total)
            control.barrier()

    kernel = built(any_toy, body, declare("y", I32, "write"), waves=2)
    fault, _ = run_both(kernel, (1, 1, 1), lambda: [np.zeros(2 * any_toy.wave, np.int32)], sanitize=sanitize)
    assert (fault is None) == (within or sanitize == "race")
    assert fault is None or fault.kind == "sync"
