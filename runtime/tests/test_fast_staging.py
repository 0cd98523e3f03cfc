"""Loads straight to workgroup memory, in both engines: random orders of stagings and waits, each way to go wrong."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from engine_pair import run_both
from workgroup_toy import STAGE, STAGE_VIEW, WAIT, built

from kinfolk.ir import constant
from kinfolk.ir.ops import control, lanes, memory
from kinfolk.ir.types import BF16, F32, I8, I32, I64
from kinfolk.parameters import Parameter
from kinfolk_runtime.simulator import Buffer, Simulator
from kinfolk_runtime.simulator.staging import MOST_PENDING


def agrees(kernel, arguments, grid=(1, 1, 1), **given):
    fault, fast = run_both(kernel, grid, arguments, **given)
    assert fast.notes == ()
    return fault


class RandomOrder:
    """Draws stagings to places of their own, by all lanes or some, waits for some of them, and reads of what came."""

    def __init__(self, seed: int, wave: int, element) -> None:
        self.random, self.wave, self.element = np.random.default_rng(seed), wave, element

    def body(self, x, y):
        t = lanes.lane_id()
        counts = [count for count in (1, 2, 4, 8) if count * self.element.bytes in (4, 8, 16)]
        places = 4
        count = int(self.random.choice(counts))
        block = self.wave * count
        tile = memory.allocate(self.element, 2 * places * block)
        base = lanes.wave_id() * (places * block)
        for number in range(places):
            value = memory.load(memory.offset(x, t * count + number), count=count)
            memory.workgroup_store(tile, base + t * count, value, offset=number * block)
        view = memory.bound(x, constant(6 * block // 8 * 4, I32))
        pending: list[int] = []
        done = 0
        for _ in range(12):
            free = [place for place in range(places) if place not in pending]
            if free and self.random.random() < 0.6:
                place = int(self.random.choice(free))
                start = base + place * block - 2 * block
                shift = int(self.random.integers(0, 4)) * max(1, 4 // self.element.bytes)
                index = (t ^ int(self.random.integers(0, self.wave))) * count + shift

                def stage(index=index, start=start):
                    if self.random.random() < 0.5:
                        STAGE_VIEW.add(view, index, tile, start, count=count, offset=2 * block)
                    else:
                        STAGE.add(memory.offset(x, index), tile, start, count=count, offset=2 * block)
                    return ()

                if self.random.random() < 0.5:
                    stage()
                else:
                    bits, limit = int(self.random.integers(1, 32)), int(self.random.integers(1, 20))
                    control.if_else((t & bits) < limit, stage)
                pending.append(place)
            else:
                left = int(self.random.integers(0, len(pending) + 1))
                WAIT.add(outstanding=left)
                pending = pending[len(pending) - left :]
            for place in (place for place in range(places) if place not in pending):
                value = memory.workgroup_load(tile, base + (t ^ 1) * count, count=count, offset=place * block)
                memory.store(memory.offset(y, (lanes.thread_id() * 64 + done) * count), value)
                done = (done + 1) % 64
        WAIT.add()


@pytest.mark.parametrize("element", [I8, BF16, F32, I64], ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_random_orders_agree(any_toy, declare, seed, element):
    drawn = RandomOrder(seed, any_toy.wave, element)
    parameters = [declare("x", element, alignment=16), declare("y", element, "write")]
    kernel = built(any_toy, drawn.body, *parameters, waves=2)

    def arguments():
        random = np.random.default_rng(seed)
        x = random.integers(0, 256, any_toy.wave * 16 * element.bytes).astype(np.uint8).view(f"u{element.bytes}")
        return [x, np.zeros(2 * any_toy.wave * 64 * 8, x.dtype)]

    assert agrees(kernel, arguments, seed=seed % 3) is None


def one_staging(toy, declare, element=F32, count=4, view=None, waits=True, limit=1 << 20, size=512, waves=1):
    """Lane l stages block l at element `from` of x to element `to` of workgroup memory, then all of that is stored."""

    def body(x, y, source, start):
        t = lanes.lane_id()
        tile = memory.allocate(element, size)

        def stage():
            if view is None:
                STAGE.add(memory.offset(x, t * count + source), tile, start, count=count, offset=4)
            else:
                STAGE_VIEW.add(
                    memory.bound(x, constant(view, I32)), t * count + source, tile, start, count=count, offset=4
                )
            return ()

        control.if_else(t < limit, stage)
        if waits:
            WAIT.add()

        def read():
            value = memory.workgroup_load(tile, start + t * count, offset=4)
            memory.store(memory.offset(y, lanes.thread_id()), value)
            return ()

        control.if_else(t < limit, read)

    numbers = [Parameter(name=name, type=I32) for name in ("source", "start")]
    return built(toy, body, declare("x", element, alignment=16), declare("y", element, "write"), *numbers, waves=waves)


def arrays(element, source, start, **given):
    x = np.arange(512 * element.bytes, dtype=np.uint32).astype(np.uint8).view(f"u{element.bytes}")
    return [Buffer(x, **given) if given else x, np.zeros(256, x.dtype), source, start]


@pytest.mark.parametrize("view", [None, 512])
@pytest.mark.parametrize(
    "kind, source, start, given",
    [
        (None, 0, 0, {}),
        (None, 64, 16, {"limit": 3}),
        (None, 0, 508 - 12, {"limit": 3}),
        ("memory", 0, 508 - 8, {"limit": 3}),
        (None, 0, -4, {"limit": 3}),
        ("memory", 0, -8, {"limit": 3}),
        ("alignment", 0, 1, {"limit": 3}),
        ("alignment", 1, 0, {"element": BF16, "count": 2, "limit": 3}),
        (None, 2, 0, {"element": BF16, "count": 2, "limit": 3}),
        ("initialisation", 0, 0, {"waits": False}),
    ],
)
def test_a_staging_and_each_way_to_go_wrong(any_toy, declare, view, kind, source, start, given):
    kernel = one_staging(any_toy, declare, view=view, **given)
    element = given.get("element", F32)
    fault = agrees(kernel, lambda: arrays(element, source, start))
    if kind == "initialisation":  # the bytes count as never written, or as on their way
        assert fault.kind in ("initialisation", "race")
    else:
        assert (fault.kind if fault else None) == kind


@pytest.mark.parametrize("view, kind", [(None, "memory"), (512, "memory"), (128, None)])
def test_a_source_outside_the_allocation(any_toy, declare, view, kind):
    """What a view lets pass must exist; what it does not is zero."""
    kernel = one_staging(any_toy, declare, view=view, limit=4)

    def arguments():
        x, y, source, start = arrays(F32, 508 if view is None else 124, 0)
        return [x[: 510 if view is None else 136], y, source, start]

    fault = agrees(kernel, arguments)
    assert (fault.kind if fault else None) == kind


def test_unwritten_and_write_only_sources(any_toy, declare):
    kernel = one_staging(any_toy, declare)
    assert agrees(kernel, lambda: arrays(F32, 0, 0, initialized=False)).kind == "initialisation"

    def body(x, y):
        tile = memory.allocate(F32, 512)
        STAGE.add(memory.offset(x, lanes.lane_id()), tile, constant(0, I32))
        WAIT.add()
        memory.store(memory.offset(y, lanes.lane_id()), memory.workgroup_load(tile, lanes.lane_id()))

    kernel = built(any_toy, body, declare("x", F32, "write"), declare("y", F32, "write"))
    assert agrees(kernel, lambda: arrays(F32, 0, 0)[:2]).kind == "permission"


def test_a_place_that_differs_among_lanes(any_toy, declare):
    def body(x, y):
        t = lanes.lane_id()
        tile = memory.allocate(F32, 512)
        STAGE.add(memory.offset(x, t), tile, t & 1)
        WAIT.add()
        memory.store(memory.offset(y, t), memory.workgroup_load(tile, t))

    kernel = built(any_toy, body, declare("x", F32), declare("y", F32, "write"))
    assert agrees(kernel, lambda: arrays(F32, 0, 0)[:2]).kind == "uniformity"


@pytest.mark.parametrize("rounds", [MOST_PENDING, MOST_PENDING + 1])
def test_as_many_on_their_way_as_there_may_be(any_toy, declare, rounds):
    """Each of one lane's own bytes, in a loop; the first come first."""

    def body(x, y):
        t = lanes.lane_id()
        tile = memory.allocate(F32, 1040)

        def stage(index, carried):
            def one():
                STAGE.add(memory.offset(x, index & 63), tile, index)
                return ()

            control.if_else(t.eq(0), one)
            return []

        control.for_range(0, rounds, 1, [], stage)
        WAIT.add(outstanding=1)
        memory.store(memory.offset(y, t), memory.workgroup_load(tile, t, offset=rounds - 1 - any_toy.wave))
        WAIT.add()
        memory.store(memory.offset(y, t + 64), memory.workgroup_load(tile, t, offset=rounds - any_toy.wave))

    any_toy.arch = evolve(any_toy.arch, facts={**any_toy.arch.facts, "lds_bytes": 1 << 14})
    kernel = built(any_toy, body, declare("x", F32), declare("y", F32, "write"))
    fault = agrees(kernel, lambda: arrays(F32, 0, 0)[:2])
    assert (fault is not None) == (rounds > MOST_PENDING)
    assert fault is None or (fault.kind == "sync" and str(MOST_PENDING) in str(fault))


def test_a_wait_for_nothing(any_toy, declare):
    def body(y):
        WAIT.add()
        memory.store(memory.offset(y, lanes.lane_id()), lanes.lane_id())

    kernel = built(any_toy, body, declare("y", I32, "write"))
    assert agrees(kernel, lambda: [np.zeros(any_toy.wave, np.int32)]) is None


def test_the_comparison_sees_a_wait_that_is_too_short(any_toy, declare):
    """The control: what is read before it has come is what was there before, or a fault, never what comes."""

    def body(x, y, outstanding=0):
        t = lanes.lane_id()
        tile = memory.allocate(F32, any_toy.wave)
        STAGE.add(memory.offset(x, t), tile, constant(0, I32))
        WAIT.add(outstanding=outstanding)
        memory.store(memory.offset(y, t), memory.workgroup_load(tile, t))
        WAIT.add()

    parameters = [declare("x", F32), declare("y", F32, "write")]
    x, y = arrays(F32, 0, 0)[:2]
    Simulator().launch(built(any_toy, body, *parameters), (1, 1, 1), [x, y])
    assert (y[: any_toy.wave] == x[: any_toy.wave]).all()
    late = built(any_toy, lambda x, y: body(x, y, 1), *parameters)
    assert agrees(late, lambda: arrays(F32, 0, 0)[:2]).kind in ("initialisation", "race")
