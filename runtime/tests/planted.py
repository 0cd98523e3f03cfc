"""Kernels with one planted fault each, or without it, and what the simulator is to say of it.

In a body the lines of the two parties end in `# own` and `# other`. Waves have 64 lanes. A body is given the pointers x
(read) and y (written), and whether to be faulty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from workgroup_toy import ADD, STAGE, WAIT

from kinfolk.ir import constant
from kinfolk.ir.ops import arithmetic, control, lanes, memory, vector
from kinfolk.ir.types import I32
from kinfolk_runtime.simulator import Buffer, SparseBuffer

Body = Callable[[Any, Any, bool], None]
WAVE = 64
FIRST = (0, 0, 0)


@attrs.frozen(kw_only=True)
class Planted:
    """One fault and where it is: of the own party, and of the other where there is one."""

    sanitizer: str
    body: Body
    op: str
    kind: str = ""
    lanes: tuple[int, ...] = (0,)
    wave: int | None = 0
    workgroup: tuple[int, int, int] = FIRST
    element: int | None = 0
    other: tuple[str, tuple[int, int, int], int, tuple[int, ...]] | None = None
    waves: int = 1
    grid: tuple[int, int, int] = (1, 1, 1)
    x: Callable[[], Any] = lambda: np.arange(4 * WAVE, dtype=np.int32)

    @property
    def name(self) -> str:
        """What the fault is, in words."""
        return self.body.__name__.replace("_", " ")


def number(value: int) -> Any:
    """A constant i32."""
    return constant(value, I32)


def when(condition: Any, deed: Callable[[], Any]) -> None:
    """Do something on some lanes."""
    control.if_else(condition, lambda: (deed() and ()) or ())


def put(pointer: Any, place: Any, value: Any) -> None:
    """Store at an element."""
    memory.store(memory.offset(pointer, place), value)


def got(pointer: Any, place: Any) -> Any:
    """Load an element."""
    return memory.load(memory.offset(pointer, place))


def missing_barrier(x, y, faulty):
    tile, t, wave = memory.allocate(I32, 2 * WAVE), lanes.lane_id(), lanes.wave_id()
    memory.workgroup_store(tile, wave * WAVE + t, t)  # other
    if not faulty:
        control.barrier()
    held = memory.workgroup_load(tile, (wave ^ 1) * WAVE + t)  # own
    put(y, lanes.thread_id(), held)


def two_waves_write(x, y, faulty):
    """They write the same values: which one stays does not matter, that they meet does."""
    tile, t, wave = memory.allocate(I32, WAVE), lanes.lane_id(), lanes.wave_id()
    when(wave < (2 if faulty else 1), lambda: memory.workgroup_store(tile, t, t))  # own # other
    control.barrier()
    put(y, lanes.thread_id(), memory.workgroup_load(tile, t))


def addition_against_a_read(x, y, faulty):
    tile, t, wave = memory.allocate(I32, WAVE), lanes.lane_id(), lanes.wave_id()
    when(wave < 1, lambda: memory.workgroup_store(tile, t, t))
    control.barrier()
    when(wave > (0 if faulty else -1), lambda: ADD.add(tile, t, t))  # other
    if not faulty:
        control.barrier()
    held = memory.workgroup_load(tile, t)  # own
    put(y, lanes.thread_id(), held)


def read_in_flight(x, y, faulty):
    tile, t = memory.allocate(I32, WAVE), lanes.lane_id()
    STAGE.add(memory.offset(x, t), tile, t - t)  # other
    if not faulty:
        WAIT.add()
    held = memory.workgroup_load(tile, t)  # own
    WAIT.add()
    put(y, t, held)


def store_in_flight(x, y, faulty):
    tile, t = memory.allocate(I32, WAVE), lanes.lane_id()
    STAGE.add(memory.offset(x, t), tile, t - t)  # other
    if not faulty:
        WAIT.add()
    memory.workgroup_store(tile, t, t)  # own
    WAIT.add()
    put(y, t, memory.workgroup_load(tile, t))


def staged_where_a_staging_is_in_flight(x, y, faulty):
    tile, t = memory.allocate(I32, WAVE), lanes.lane_id()
    STAGE.add(memory.offset(x, t), tile, t - t)  # other
    if not faulty:
        WAIT.add()
    STAGE.add(memory.offset(x, t + 1), tile, t - t)  # own
    WAIT.add()
    put(y, t, memory.workgroup_load(tile, t))


def waited_for_only_after_the_barrier(x, y, faulty):
    """The wave that stages waits behind the barrier that is to tell the other wave that all is there."""
    tile, t, wave = memory.allocate(I32, WAVE), lanes.lane_id(), lanes.wave_id()
    when(wave < 1, lambda: STAGE.add(memory.offset(x, t), tile, t - t))  # other
    if not faulty:
        WAIT.add()
    control.barrier()
    WAIT.add()
    held = memory.workgroup_load(tile, t)  # own
    put(y, lanes.thread_id(), held)


def staged_over_what_another_wave_still_reads(x, y, faulty):
    tile, t, wave = memory.allocate(I32, WAVE), lanes.lane_id(), lanes.wave_id()
    when(wave < 1, lambda: memory.workgroup_store(tile, t, t))
    control.barrier()
    held = memory.workgroup_load(tile, t)  # own
    if not faulty:
        control.barrier()
    when(wave < 1, lambda: STAGE.add(memory.offset(x, t), tile, t - t))  # other
    control.barrier()
    WAIT.add()
    put(y, lanes.thread_id(), held)


def lanes_of_one_store(x, y, faulty):
    tile, t = memory.allocate(I32, WAVE), lanes.lane_id()
    memory.workgroup_store(tile, t >> 1 if faulty else t, t)  # own # other
    put(y, t, memory.workgroup_load(tile, t - t))


def lanes_of_one_store_to_global_memory(x, y, faulty):
    t = lanes.lane_id()
    memory.store(memory.offset(y, t >> 1 if faulty else t), t)  # own # other
    put(y, (t >> 1) + WAVE, t - t)  # equal values are none


def lanes_of_one_store_through_a_view(x, y, faulty):
    t = lanes.lane_id()
    memory.view_store(memory.bound(y, number(WAVE)), t >> 1 if faulty else t, t)  # own # other


def two_workgroups_write(x, y, faulty):
    t, group = lanes.lane_id(), lanes.block_id(axis=0)
    memory.store(memory.offset(y, t + (0 if faulty else group * WAVE)), group)  # own # other


def one_workgroup_reads_what_another_writes(x, y, faulty):
    t, group = lanes.lane_id(), lanes.block_id(axis=0)
    held = got(y, t + (0 if faulty else group * WAVE))  # own
    when(group < 1, lambda: memory.store(memory.offset(y, t), held + 1))  # other


def addition_of_one_workgroup_against_a_store_of_another(x, y, faulty):
    t, group = lanes.lane_id(), lanes.block_id(axis=0)
    when(group < (1 if faulty else 0), lambda: memory.store(y, t - t))  # other
    memory.atomic_add(y, t)  # own


def load_past_the_end(x, y, faulty):
    t = lanes.lane_id()
    held = got(x, t + (3 * WAVE + 1 if faulty else 3 * WAVE))  # own
    put(y, t, held)


def store_before_the_start(x, y, faulty):
    t = lanes.lane_id()
    memory.store(memory.offset(y, t - (1 if faulty else 0)), t)  # own


def misaligned_load(x, y, faulty):
    t = lanes.lane_id()
    held = memory.load(memory.offset(x, t * 2 + (1 if faulty else 0)), count=2, alignment=8)  # own
    put(y, t, vector.extract(held, index=0))


def outside_an_allocation(x, y, faulty):
    tile, t = memory.allocate(I32, WAVE), lanes.lane_id()
    memory.workgroup_store(tile, t, t)
    held = memory.workgroup_load(tile, t + (1 if faulty else 0))  # own
    put(y, t, held)


def workgroup_memory_never_written(x, y, faulty):
    tile, t = memory.allocate(I32, WAVE), lanes.lane_id()
    when(t < (WAVE - 1 if faulty else WAVE), lambda: memory.workgroup_store(tile, t, t))
    held = memory.workgroup_load(tile, t)  # own
    put(y, t, held)


def buffer_never_written(x, y, faulty):
    t = lanes.lane_id()
    if not faulty:
        put(y, t, t)
    held = got(y, t)  # own
    put(y, t, held)


def outside_what_exists(x, y, faulty):
    t = lanes.lane_id()
    held = got(x, t + (1 if faulty else 0))  # own
    put(y, t, held)


def barrier_under_divergence(x, y, faulty):
    t = lanes.lane_id()
    when(t < (WAVE - 1 if faulty else WAVE), control.barrier)  # own
    put(y, t, t)


def waves_at_different_barriers(x, y, faulty):
    if faulty:
        when(lanes.wave_id() < 1, control.barrier)  # own
    control.barrier()
    put(y, lanes.thread_id(), lanes.lane_id())


def one_wave_returns_without_the_barrier(x, y, faulty):
    when(lanes.wave_id() < (1 if faulty else 2), control.barrier)  # own
    put(y, lanes.thread_id(), lanes.lane_id())


def never_waited_for(x, y, faulty):
    tile, t = memory.allocate(I32, WAVE), lanes.lane_id()
    STAGE.add(memory.offset(x, t), tile, t - t)  # own
    if not faulty:
        WAIT.add()
    put(y, t, t)


def loop_without_end(x, y, faulty):
    """A wave waits for a flag that another one is to raise, for as long as there are numbers."""
    t = lanes.lane_id()
    rounds = number((1 << 22) + 2 if faulty else 1 << 10)
    (held,) = control.for_range(0, rounds, 1, [t], lambda i, carried: [carried[0]])  # own
    put(y, t, held)


def sum_past_the_largest(x, y, faulty):
    t = lanes.lane_id()
    held = t + number(2**31 - 2 if faulty else 2**31 - WAVE)  # own
    put(y, t, held)


def shift_past_the_width(x, y, faulty):
    t = lanes.lane_id()
    held = t << (number(32) if faulty else number(31))  # own
    put(y, t, held)


def loaded_index(x, y, faulty):
    t = lanes.lane_id()
    at = got(x, t)
    held = got(x, at if faulty else arithmetic.umin(at, number(WAVE)))  # own
    put(y, t, held)


def loaded_place_in_workgroup_memory(x, y, faulty):
    tile, t = memory.allocate(I32, WAVE), lanes.lane_id()
    at = got(x, t)
    memory.workgroup_store(tile, at if faulty else at & (WAVE - 1), t)  # own
    put(y, t, memory.workgroup_load(tile, t))


ALL_LANES = tuple(range(WAVE))
LOAD, STORE = "core.load", "core.store"
HELD, HOLDS = "core.workgroup_load", "core.workgroup_store"
ADDS, STAGES = "toy.add", "toy.stage_pointer"


def two(op: str, wave: int = 0, lanes: tuple[int, ...] = (0,), workgroup: tuple[int, int, int] = FIRST) -> Any:
    """Return the other party."""
    return op, workgroup, wave, lanes


def sparse() -> SparseBuffer:
    """A buffer of which one wave's elements exist."""
    return SparseBuffer(1 << 33, {0: np.arange(WAVE, dtype=np.int32)})


RACE, MEMORY, INITIALISATION = "race", "memory", "initialisation"
SECOND = (1, 0, 0)
PLANTED = (
    Planted(sanitizer=RACE, body=missing_barrier, op=HELD, wave=1, other=two(HOLDS), waves=2),
    Planted(sanitizer=RACE, body=two_waves_write, op=HOLDS, wave=1, other=two(HOLDS), waves=2),
    Planted(sanitizer=RACE, body=addition_against_a_read, op=HELD, other=two(ADDS, 1), waves=2),
    Planted(sanitizer=RACE, body=read_in_flight, op=HELD, other=two(STAGES)),
    Planted(sanitizer=RACE, body=store_in_flight, op=HOLDS, other=two(STAGES)),
    Planted(sanitizer=RACE, body=staged_where_a_staging_is_in_flight, op=STAGES, other=two(STAGES)),
    Planted(sanitizer=RACE, body=waited_for_only_after_the_barrier, op=HELD, wave=1, other=two(STAGES), waves=2),
    Planted(
        sanitizer=RACE, body=staged_over_what_another_wave_still_reads, op=HELD, wave=1, other=two(STAGES), waves=2
    ),
    Planted(sanitizer=RACE, body=lanes_of_one_store, op=HOLDS, other=two(HOLDS, lanes=(1,))),
    Planted(sanitizer=RACE, body=lanes_of_one_store_to_global_memory, op=STORE, other=two(STORE, lanes=(1,))),
    Planted(
        sanitizer=RACE,
        body=lanes_of_one_store_through_a_view,
        op="core.view_store",
        other=two("core.view_store", lanes=(1,)),
    ),
    Planted(sanitizer=RACE, body=two_workgroups_write, op=STORE, workgroup=SECOND, other=two(STORE), grid=(2, 1, 1)),
    Planted(
        sanitizer=RACE,
        body=one_workgroup_reads_what_another_writes,
        op=LOAD,
        workgroup=SECOND,
        other=two(STORE),
        grid=(2, 1, 1),
    ),
    Planted(
        sanitizer=RACE,
        body=addition_of_one_workgroup_against_a_store_of_another,
        op="core.atomic_add",
        lanes=ALL_LANES,
        workgroup=SECOND,
        other=two(STORE, lanes=ALL_LANES),
        grid=(2, 1, 1),
    ),
    Planted(sanitizer=MEMORY, body=load_past_the_end, op=LOAD, lanes=(63,), element=4 * WAVE),
    Planted(sanitizer=MEMORY, body=store_before_the_start, op=STORE, element=-1),
    Planted(sanitizer=MEMORY, body=misaligned_load, kind="alignment", op=LOAD, lanes=ALL_LANES, element=1),
    Planted(sanitizer=MEMORY, body=outside_an_allocation, op=HELD, lanes=(63,), element=WAVE),
    Planted(sanitizer=INITIALISATION, body=workgroup_memory_never_written, op=HELD, lanes=(63,), element=63),
    Planted(sanitizer=INITIALISATION, body=buffer_never_written, op=LOAD, lanes=ALL_LANES),
    Planted(sanitizer=INITIALISATION, body=outside_what_exists, op=LOAD, lanes=(63,), element=WAVE, x=sparse),
    Planted(sanitizer="sync", body=barrier_under_divergence, op="core.barrier", lanes=(63,), element=None),
    Planted(sanitizer="sync", body=waves_at_different_barriers, op="core.barrier", lanes=(), element=None, waves=2),
    Planted(
        sanitizer="sync", body=one_wave_returns_without_the_barrier, op="core.barrier", lanes=(), element=None, waves=2
    ),
    Planted(sanitizer="sync", body=never_waited_for, op=STAGES, lanes=ALL_LANES),
    Planted(sanitizer="sync", body=loop_without_end, op="core.for", lanes=ALL_LANES, element=None),
    Planted(sanitizer="integer", body=sum_past_the_largest, op="core.add", lanes=ALL_LANES[2:], element=None),
    Planted(sanitizer="integer", body=shift_past_the_width, op="core.shl", lanes=ALL_LANES, element=None),
    Planted(sanitizer="indirection", body=loaded_index, op=LOAD, lanes=(), wave=None, element=None),
    Planted(
        sanitizer="indirection", body=loaded_place_in_workgroup_memory, op=HOLDS, lanes=(), wave=None, element=None
    ),
)


def output(planted: Planted) -> Any:
    """Return y, which holds 0 in the elements that a wave may touch, or was never written."""
    array = np.zeros(4 * WAVE, np.int32)
    return Buffer(array, initialized=False) if planted.body is buffer_never_written else array
