"""Groups of waves that run the same code half a round apart: barriers of one place meet, others do not."""

from __future__ import annotations

import numpy as np
import pytest

from kinfolk.errors import SimulationError
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import control, lanes, memory
from kinfolk.ir.types import I32

ROUNDS = 3


def half_apart(early, first, second, late):
    """Two waves a half round apart: each adds up what the other wrote to workgroup memory one meeting before.

    The arguments are the places of the four barriers, in the order in which the code has them.
    """

    def body(y):
        wave, lane = lanes.wave_id(), lanes.thread_id()
        cells = memory.allocate(I32, 4)

        def behind():
            memory.workgroup_store(cells, 2 + (wave ^ 1), constant(50, I32))
            control.meet(early)
            return ()

        def round_(number, carried):
            (total,) = carried
            memory.workgroup_store(cells, wave, total + number + 1)
            control.meet(first)
            mine = memory.workgroup_load(cells, wave, count=1)
            control.meet(second)
            return [total + mine]

        control.if_else(wave.eq(1), behind)
        (total,) = control.for_range(0, ROUNDS, 1, [wave * 1000], round_)

        def ahead():
            control.meet(late)
            return ()

        control.if_else(wave.eq(0), ahead)
        memory.store(memory.offset(y, lane), total)

    return body


def total_of(wave):
    """Each round doubles a wave's total and adds the round's number."""
    total = wave * 1000
    for number in range(ROUNDS):
        total += total + number + 1
    return total


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_waves_half_a_round_apart_meet_by_place(toy, declare, seed):
    kernel = toy.kernel(half_apart("half", "half", "half", "half"), declare("y", I32, "write"), waves=2)
    y = np.zeros(2 * toy.wave, np.int32)
    toy.run(kernel, y, seed=seed)
    assert y.reshape(2, -1).tolist() == [[total_of(wave)] * toy.wave for wave in (0, 1)]


@pytest.mark.parametrize("where", range(4))
def test_barriers_of_other_places_part(toy, declare, where):
    """The control: one barrier of another name, and the waves stand at different ones."""
    places = ["half"] * 4
    places[where] = "elsewhere"
    kernel = toy.kernel(half_apart(*places), declare("y", I32, "write"), waves=2)
    with pytest.raises(SimulationError, match=r"core\.meet is not reached by all waves") as caught:
        toy.run(kernel, np.zeros(2 * toy.wave, np.int32))
    assert caught.value.kind == "sync"


def test_a_meeting_parts_epochs(toy, declare):
    """What one wave wrote before a meeting the other reads after it, at another op; without it they race."""

    def body(meets):
        def build(y):
            wave = lanes.wave_id()
            cells = memory.allocate(I32, 1)

            def write():
                memory.workgroup_store(cells, constant(0, I32), constant(7, I32))
                if meets:
                    control.meet("handed")
                return [constant(7, I32)]

            def read():
                if meets:
                    control.meet("handed")
                return [memory.workgroup_load(cells, constant(0, I32), count=1)]

            (value,) = control.if_else(wave.eq(0), write, read)
            memory.store(memory.offset(y, lanes.thread_id()), value)

        return build

    y = np.zeros(2 * toy.wave, np.int32)
    toy.run(toy.kernel(body(True), declare("y", I32, "write"), waves=2), y)
    assert (y == 7).all()
    with pytest.raises(SimulationError) as caught:
        toy.run(toy.kernel(body(False), declare("y", I32, "write"), waves=2), y)
    assert caught.value.kind == "race"


def test_a_plain_barrier_meets_no_place(toy, declare):
    def body(y):
        wave = lanes.wave_id()

        def here():
            control.barrier()
            return ()

        def there():
            control.meet("half")
            return ()

        control.if_else(wave.eq(0), here, there)
        memory.store(memory.offset(y, lanes.thread_id()), wave)

    kernel = toy.kernel(body, declare("y", I32, "write"), waves=2)
    with pytest.raises(SimulationError, match="is not reached by all waves"):
        toy.run(kernel, np.zeros(2 * toy.wave, np.int32))
