"""Random kernels on global memory in both engines, with every set of sanitizers: one verdict, the same bits."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from engine_pair import run_both
from workgroup_toy import ADD, STAGE, STAGE_VIEW, WAIT, built

from kinfolk.ir import constant
from kinfolk.ir.ops import arithmetic, control, lanes, memory
from kinfolk.ir.types import I32
from kinfolk.parameters import Parameter
from kinfolk_runtime.simulator import Buffer, SparseBuffer
from kinfolk_runtime.simulator.sanitizers import sanitizers

GROUPS = 3
SEEDS = 40
KINDS = ("plain", "unwritten", "gaps", "sparse")
ALSO = {"memory": ("alignment", "permission")}
SETS = ("none", "race", "memory", "initialisation,integer", "race,initialisation,sync", "memory,integer,sync")


class RandomAccesses:
    """Draws a kernel of several workgroups that load, store and add in global memory, mostly in places of their own.

    `boldness` is the chance of another's place, `wildness` that of one outside a buffer or not aligned, or of integers
    that overflow.
    """

    def __init__(self, seed: int, boldness: float, wildness: float) -> None:
        self.random, self.boldness, self.wildness = np.random.default_rng(seed), boldness, wildness

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def draw(self, items):
        return items[int(self.random.integers(len(items)))]

    def index(self, own, size: int):
        """Return a place of the thread's own, another's, or none."""
        if self.chance(self.wildness):
            far = self.draw([size - 1, size, -1, -size, 1 << 20, (1 << 29) + 5, (1 << 31) - 1])
            return self.draw([constant(far, I32), arithmetic.add(own, constant(far, I32), nsw=False)])
        if not self.chance(self.boldness):
            return own
        return self.draw(
            [
                lambda: arithmetic.umin(own + int(self.random.integers(1, 4)), constant(size - 1, I32)),
                lambda: own ^ 1,
                lambda: lanes.thread_id() + 0,
                lambda: constant(int(self.random.integers(size)), I32),
            ]
        )()

    def number(self, own):
        if self.chance(self.wildness):
            big = constant(self.draw([(1 << 31) - 1, -(1 << 31), 40, -1]), I32)
            return self.draw([lambda: own + big, lambda: own * big, lambda: own - big, lambda: own << big])()
        return self.draw(self.values)

    def step(self, x, y, z, c, tile, own, size: int, depth: int) -> None:
        kind = self.draw(
            [
                "load",
                "load",
                "store",
                "store",
                "add",
                "if",
                "view_load",
                "view_store",
                "tile_load",
                "tile_store",
                "stage",
            ]
        )
        pointer = self.draw([x, z, z]) if kind == "load" else self.draw([y, z])
        if self.chance(self.wildness / 2):
            pointer = self.draw([x, y])
        alignment = self.draw([0, 0, 8]) if self.chance(self.wildness) else 0
        at = self.index(own, size)
        if kind == "load":
            self.values.append(memory.load(memory.offset(pointer, at), alignment=alignment))
        elif kind == "store":
            memory.store(memory.offset(pointer, at), self.number(own), alignment=alignment)
        elif kind == "add":
            memory.atomic_add(memory.offset(c, at), self.number(own))
        elif kind.startswith("view"):
            length = self.draw([size, size, size // 2, 2 * size]) if self.chance(self.wildness) else size
            view = memory.bound(self.draw([x, z]) if kind == "view_load" else pointer, constant(length, I32))
            if kind == "view_load":
                self.values.append(memory.view_load(view, at))
            else:
                memory.view_store(view, at, self.number(own))
        elif kind == "tile_load":
            self.values.append(memory.workgroup_load(tile, self.index(lanes.thread_id(), size)))
        elif kind == "tile_store":
            store = memory.workgroup_store if self.chance(0.7) else ADD.add
            store(tile, self.index(lanes.thread_id(), size), self.number(own))
        elif kind == "stage":
            self.stage(x, tile, own, size)
        elif depth < 2:
            some = (own & self.draw([1, 4, 64])).eq(0)
            control.if_else(some, lambda: self.inside(x, y, z, c, tile, own, size, depth))

    def stage(self, x, tile, own, size: int) -> None:
        count = self.draw([1, 1, 2, 4]) if self.chance(self.wildness) else 1
        start = lanes.first_lane(lanes.thread_id() - lanes.lane_id())
        if self.chance(self.wildness):
            start = constant(self.draw([size - 1, -1, -3, size // 2 + 1, 1 << 30, -(1 << 31)]), I32)
        if self.chance(0.5):
            STAGE.add(memory.offset(x, self.index(own, size)), tile, start, count=count)
        else:
            view = memory.bound(x, constant(size, I32))
            STAGE_VIEW.add(view, self.index(own, size), tile, start, count=count, offset=self.draw([0, 0, 2]))
        if self.chance(1 - self.boldness):
            WAIT.add()

    def inside(self, x, y, z, c, tile, own, size: int, depth: int):
        outside = list(self.values)
        for _ in range(int(self.random.integers(1, 4))):
            self.step(x, y, z, c, tile, own, size, depth + 1)
        self.values = outside
        return ()

    def body(self, size: int, threads: int):
        def build(x, y, z, c, n):
            own = lanes.block_id(axis=0) * threads + lanes.thread_id()
            self.values = [own, memory.load(memory.offset(x, own)), lanes.thread_id() + n]
            tile = memory.allocate(I32, size)
            for part in range(size // threads):
                if not self.chance(self.wildness / 2):
                    memory.workgroup_store(tile, lanes.thread_id(), own, offset=part * threads)
            control.barrier()
            for _ in range(int(self.random.integers(2, 9))):
                self.step(x, y, z, c, tile, own, size, 0)
            for number, value in enumerate(self.values[-3:]):
                memory.store(memory.offset(y, own), value) if number == 0 and self.chance(0.5) else None
                memory.store(memory.offset(z, own), value)

        return build


def verdict(toy, declare, seed: int, boldness: float, wildness: float, sanitize="all", kind="plain", threads=None):
    """Return the kind of fault that both engines find, or "clean" where both leave the same bits."""
    drawn = RandomAccesses(seed, boldness, wildness)
    waves = 1 + seed % 2
    size = GROUPS * waves * toy.wave
    parameters = [declare("x", I32), declare("y", I32, "write"), declare("z", I32, "readwrite")]
    kernel = built(
        toy,
        drawn.body(size, waves * toy.wave),
        *parameters,
        declare("c", I32, "readwrite"),
        Parameter(name="n", type=I32),
        waves=waves,
    )
    left = []

    def arguments():
        x, y, z, c = (np.arange(size, dtype=np.int32) * factor for factor in (1, 2, 3, 5))
        left.append([x, y, z, c])
        if kind == "unwritten":
            return [x, Buffer(y, initialized=False), Buffer(z, initialized=False), c, 3]
        if kind == "gaps":
            wide = np.zeros((size // 8, 9), np.int32)
            left[-1].append(wide)
            return [x, y, wide[:, :8], c, 3]
        if kind == "sparse":
            half = size // 2
            return [x, SparseBuffer(4 * size, {0: y[: half - 4], 4 * half: y[half:]}), z, c, 3]
        return [x, y, z, c, 3]

    fault, fast = run_both(kernel, (GROUPS, 1, 1), arguments, seed=seed // 2 % 3, threads=threads, sanitize=sanitize)
    assert fast.notes == ()
    if fault is None:
        for mine, other in zip(*left, strict=True):
            assert mine.tobytes() == other.tobytes()
    return fault.kind if fault else "clean"


@pytest.mark.parametrize("threads", [1, 2])
def test_races_between_workgroups_are_judged_alike(any_toy, declare, threads):
    """Whichever of two workgroups comes first on its thread."""
    found = Counter(
        verdict(any_toy, declare, seed, (0.0, 0.1, 0.3)[seed % 3], 0.0, threads=threads) for seed in range(SEEDS)
    )
    assert set(found) <= {"clean", "race", "sync"} and min(found["clean"], found["race"]) > SEEDS // 8


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("reads", [False, True])
def test_workgroups_on_threads_hide_no_race_and_make_none_up(any_toy, declare, reads, seed):
    """Each of 200 workgroups writes a place that a table gives; the verdict is whether two have the same."""

    def body(x, y, z):
        place = memory.load(memory.offset(x, lanes.block_id(axis=0))) * any_toy.wave + lanes.lane_id()
        memory.store(memory.offset(y, place), lanes.block_id(axis=0) + lanes.lane_id())
        if reads:
            memory.store(memory.offset(z, place), memory.load(memory.offset(z, place)))

    parameters = [declare("x", I32), declare("y", I32, "write"), declare("z", I32, "readwrite")]
    kernel = built(any_toy, body, *parameters)
    for draw in range(12):
        table = np.random.default_rng(draw).permutation(200).astype(np.int32)
        if draw % 2:
            table[np.random.default_rng(draw).integers(200)] = table[17]
        shared = len(set(table)) < 200

        def arguments(table=table):
            return [table, np.zeros(200 * any_toy.wave, np.int32), np.zeros(200 * any_toy.wave, np.int32)]

        fault, _ = run_both(kernel, (200, 1, 1), arguments, seed=seed, threads=3, sanitize="race")
        assert (fault.kind if fault else None) == ("race" if shared else None)


@pytest.mark.parametrize("sanitize", SETS)
def test_what_is_not_looked_for_is_the_same_in_both_engines(any_toy, declare, sanitize):
    """Wild accesses with some of the sanitizers: the same fault of those, or the same bits."""
    found = Counter(
        verdict(any_toy, declare, seed, 0.1, 0.25, sanitize, KINDS[seed % 4], threads=1) for seed in range(SEEDS)
    )
    looked_for = {kind for name in sanitizers(sanitize) for kind in (name, *ALSO.get(name, ()))}
    assert found["clean"] and set(found) - {"clean"} <= looked_for
    assert (len(found) > 1) == (sanitize != "none")


@pytest.mark.parametrize("sanitize", ["all", "none"])
@pytest.mark.parametrize("where", ["pointer", "view", "workgroup"])
def test_of_lanes_whose_vectors_overlap_the_last_one_stays(any_toy, declare, where, sanitize):
    """Lane after lane, not component after component; a race where those are looked for."""

    def body(x, y):
        t = lanes.lane_id()
        values = memory.load(memory.offset(x, t * 2), count=2)
        if where == "pointer":
            memory.store(memory.offset(y, t), values)
        elif where == "view":
            memory.view_store(memory.bound(y, constant(2 * any_toy.wave, I32)), t, values)
        else:
            tile = memory.allocate(I32, 2 * any_toy.wave)
            memory.workgroup_store(tile, t, t, offset=any_toy.wave)
            memory.workgroup_store(tile, t, values)
            memory.store(memory.offset(y, t), memory.workgroup_load(tile, t))

    kernel = built(any_toy, body, declare("x", I32), declare("y", I32, "write"))
    left = []

    def arguments():
        left.append(np.zeros(2 * any_toy.wave, np.int32))
        return [np.arange(2 * any_toy.wave, dtype=np.int32), left[-1]]

    fault, _ = run_both(kernel, (1, 1, 1), arguments, sanitize=sanitize)
    assert (fault.kind if fault else None) == (None if sanitize == "none" else "race")
    if fault is None:
        assert left[0][: any_toy.wave].tolist() == list(range(0, 2 * any_toy.wave, 2))
