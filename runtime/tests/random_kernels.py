"""Random kernels for the static analyses: small ones that run in milliseconds, some right, some with a defect.

A kernel takes `table` (read), `y` (read and written) and two numbers; it is drawn by a seed and built of what the
analyses reason about: arithmetic on places and numbers, loads, branches, loops, exchanges of lanes, workgroup memory.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
from observed_values import PAPER

from kinfolk.ir import Kernel, build_kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory, vector
from kinfolk.ir.types import I16, I32, PointerType
from kinfolk.parameters import Parameter

WAVE, WAVES, GROUPS = PAPER.wave_size, 2, 2
BLOCK = WAVE * WAVES
ENTRIES = 256
"""Elements of the table, and of y."""
MOST = 3
"""The largest of the numbers that are passed."""
PREDICATES = ("eq", "ne", "slt", "sge", "ult", "ugt")
Given = tuple[Any, Any, Any, Any]
Body = Callable[["Drawn"], None]


def number(value: int) -> Any:
    return constant(value, I32)


class Drawn:
    """A kernel while it is drawn: what chance there is, its parameters, and the values known so far."""

    def __init__(self, chance: random.Random, given: Given, scalar: Any = I32) -> None:
        self.chance, self.scalar = chance, scalar
        self.table, self.y, *self.numbers = given
        block = lanes.block_id(axis=0, below=GROUPS)
        self.thread = lanes.thread_id()
        self.known = [*self.numbers, lanes.lane_id(), lanes.wave_id(), block, number(1), number(2)]
        self.own = arithmetic.add(arithmetic.mul(block, BLOCK), self.thread)
        self.tile: Any = None

    def pick(self, *ways: Any) -> Any:
        return self.chance.choice(ways)

    def value(self) -> Any:
        return self.chance.choice(self.known)

    def load(self, at: Any) -> Any:
        return memory.load(memory.offset(self.table, at))

    def store(self, value: Any) -> None:
        """Put a value at the thread's own element of y."""
        memory.store(memory.offset(self.y, self.own), value)

    def condition(self) -> Any:
        made = arithmetic.icmp(self.value(), self.value(), predicate=self.chance.choice(PREDICATES))
        way = self.chance.random()
        if way < 0.15:
            return self.pick(arithmetic.and_, arithmetic.or_, arithmetic.xor)(made, self.condition())
        return lanes.any_lane(made) if way < 0.3 else made

    def inside(self, deed: Callable[[], list[Any]]) -> Callable[[], list[Any]]:
        """Return a region's body: what it makes is known in it alone."""

        def body() -> list[Any]:
            before = self.known
            self.known = list(before)
            try:
                return deed()
            finally:
                self.known = before

        return body

    def branch(self, condition: Any, then: Callable[[], list[Any]], other: Callable[[], list[Any]]) -> None:
        made = control.if_else(condition, self.inside(then), self.inside(other))
        self.known = [*self.known, *made]

    def loop(self, deed: Callable[[], list[Any]], rounds: Any, carried: int = 1) -> None:
        """Add a loop that carries values; its counter and they are known in it, they after it."""

        def turn(index: Any, values: Any) -> list[Any]:
            return self.inside(lambda: self.known.extend([index, *values]) or deed())()

        made = control.for_range(number(0), rounds, 1, [self.value() for _ in range(carried)], turn)
        self.known = [*self.known, *made]


def built(seed: int, body: Body, alignment: int = 4, scalar: Any = I32) -> Kernel:
    """Return the kernel that a body draws by a seed."""
    parameters = [
        Parameter(name="table", type=PointerType(scalar), alignment=alignment),
        Parameter(name="y", type=PointerType(I32), access="readwrite", alignment=4),
        *(Parameter(name=name, type=I32, minimum=0, maximum=MOST) for name in ("n", "m")),
    ]

    def whole(*given: Any) -> None:
        body(Drawn(random.Random(seed), given, scalar))

    return build_kernel("drawn", parameters, arch=PAPER, block=BLOCK, body=whole)


def barriers(drawn: Drawn, depth: int = 2) -> None:
    """Barriers and meetings in branches and loops that all, some waves or some lanes take; then a store."""

    def deed(depth: int) -> list[Any]:
        for _ in range(drawn.chance.randint(1, 3)):
            way = drawn.chance.random()
            if way < 0.3:
                drawn.pick(control.barrier, control.barrier, lambda: control.meet("here"))()
            elif way < 0.65 or not depth:
                drawn.known.append(_mixed(drawn))
            elif way < 0.85:
                drawn.branch(drawn.condition(), lambda: deed(depth - 1), lambda: deed(depth - 1))
            else:
                rounds = arithmetic.and_(drawn.value(), number(3))
                drawn.loop(lambda: deed(depth - 1), lanes.first_lane(rounds))
        return [drawn.value()]

    drawn.store(deed(depth)[0])


def _mixed(drawn: Drawn) -> Any:
    """Return a value made of known ones: as uniform as they are, less, or more."""
    a, b = drawn.value(), drawn.value()
    way = drawn.chance.randrange(8)
    if way == 0:
        return drawn.load(arithmetic.and_(a, number(ENTRIES - 1)))
    if way == 1:
        return memory.load(memory.offset(drawn.y, drawn.own))
    if way == 2:
        return lanes.first_lane(a)
    if way == 3:
        return lanes.shuffle_xor(a, mask=1)
    if way == 4:
        return arithmetic.select(drawn.condition(), a, b)
    return drawn.pick(arithmetic.add, arithmetic.xor, arithmetic.and_)(a, b)


def accesses(drawn: Drawn) -> None:
    """Vectors read at places that are multiples of something: of the table, of workgroup memory, of a view."""
    count = drawn.pick(2, 4)
    size = drawn.scalar.bytes * count
    tile = memory.allocate(drawn.scalar, ENTRIES)
    for part in range(2):
        memory.workgroup_store(tile, arithmetic.add(drawn.thread, part * BLOCK), drawn.load(drawn.thread))
    control.barrier()
    for _ in range(drawn.chance.randint(1, 4)):
        a, b = drawn.value(), drawn.pick(drawn.value(), *(number(2**power) for power in range(5)))
        op = drawn.pick(arithmetic.mul, arithmetic.mul, arithmetic.add, arithmetic.or_, arithmetic.xor, arithmetic.smin)
        drawn.known.append(op(a, b))
        if drawn.chance.random() < 0.3:
            four = lambda: [arithmetic.shl(drawn.value(), number(2))]  # noqa: E731
            drawn.branch(drawn.condition(), four, lambda: [drawn.value()])
        if drawn.chance.random() < 0.3:
            drawn.loop(lambda: [arithmetic.add(drawn.value(), drawn.pick(number(4), drawn.value()))], number(3))
    place = drawn.known[-1]
    if drawn.chance.random() < 0.5:
        place = arithmetic.mul(place, number(drawn.pick(2, 4, 8)))
    place = arithmetic.and_(place, number(ENTRIES // 2 - 1))
    way = drawn.chance.randrange(3)
    if way == 0:
        read = memory.load(memory.offset(drawn.table, place), count=count, alignment=drawn.pick(4, size))
    elif way == 1:
        read = memory.workgroup_load(tile, place, count=count, alignment=drawn.pick(4, size))
    else:
        base = arithmetic.and_(drawn.value(), number(drawn.pick(2, 6, 14)))
        whole = memory.bound(memory.offset(drawn.table, lanes.first_lane(base)), number(ENTRIES // 2))
        read = memory.view_load(whole, place, count=count)
    kept = vector.extract(read, index=count - 1)
    drawn.store(kept if drawn.scalar == I32 else convert.sext(kept, to=I32))


def indirections(drawn: Drawn) -> None:
    """Loaded values, bounded from one side, both or none, that become places. Bounds that are there are right."""
    last = ENTRIES - 1
    for _ in range(drawn.chance.randint(1, 3)):
        drawn.known.append(drawn.load(drawn.pick(drawn.thread, lanes.lane_id())))
        for _ in range(drawn.chance.randint(0, 2)):
            drawn.known.append(_bounded(drawn, drawn.value(), last))
    if drawn.chance.random() < 0.3:
        drawn.loop(lambda: [_bounded(drawn, drawn.value(), last)], number(2))
    place = _bounded(drawn, drawn.known[-1], last)
    if drawn.chance.random() < 0.5:
        tile = memory.allocate(I32, ENTRIES)
        for part in range(2):
            memory.workgroup_store(tile, arithmetic.add(drawn.thread, part * BLOCK), drawn.thread)
        control.barrier()
        drawn.store(memory.workgroup_load(tile, place))
    else:
        drawn.store(drawn.load(place))


def _bounded(drawn: Drawn, value: Any, last: int) -> Any:
    """Return a value with more bounds than it had, or none more."""
    low, high = number(0), number(last)
    way = drawn.chance.randrange(12)
    if way == 0:
        return arithmetic.smin(value, high)
    if way == 1:
        return arithmetic.smax(value, low)
    if way == 2:
        return arithmetic.umin(value, high)
    if way == 3:
        return arithmetic.smin(arithmetic.smax(value, low), high)
    if way == 4:
        return arithmetic.and_(value, high)
    if way == 5:
        return arithmetic.urem(value, number(ENTRIES))
    if way == 6:
        return arithmetic.select(arithmetic.icmp(value, high, predicate="ule"), value, low)
    if way == 7:
        return arithmetic.select(arithmetic.icmp(value, high, predicate=drawn.pick("sle", "slt")), value, low)
    if way == 8:
        return arithmetic.select(arithmetic.icmp(low, value, predicate=drawn.pick("sle", "sgt")), value, low)
    if way == 9:
        return lanes.shuffle_xor(value, mask=drawn.pick(1, 32))
    if way == 10:
        within = arithmetic.icmp(value, high, predicate=drawn.pick("ule", "ult", "sle"))
        [kept] = control.if_else(within, lambda: [value], lambda: [low])
        return kept
    return value


def flows(drawn: Drawn) -> None:
    """Loads and numbers of which some go nowhere: into sums that nobody stores, loops whose results are left, workgroup
    memory that nobody reads. What goes somewhere, y depends on."""
    chance = drawn.chance
    unread, *tiles = (memory.allocate(I32, BLOCK) for _ in range(4))
    known = [*drawn.numbers, arithmetic.add(drawn.thread, number(1))]
    drawn.known = known
    for _ in range(chance.randint(3, 7)):
        way = chance.randrange(7)
        a, b = drawn.value(), drawn.value()
        if way == 0:
            drawn.known.append(drawn.load(arithmetic.and_(a, number(ENTRIES - 1))))
        elif way == 1:
            odd = arithmetic.and_(arithmetic.xor(lanes.lane_id(), a), number(1))
            drawn.branch(
                arithmetic.icmp(odd, number(0), predicate="eq"),
                lambda: [_sensitive(drawn)],
                lambda: [_sensitive(drawn)],
            )
        elif way == 2:
            drawn.loop(lambda: [_sensitive(drawn) for _ in range(2)], number(4), carried=2)
        elif way == 3:
            control.barrier()
            memory.workgroup_store(unread, drawn.thread, a)
        elif way == 4 and tiles:
            tile = tiles.pop()
            memory.workgroup_store(tile, drawn.thread, b)
            control.barrier()
            drawn.known.append(memory.workgroup_load(tile, arithmetic.xor(drawn.thread, number(WAVE))))
        else:
            drawn.known.append(_sensitive(drawn))
    drawn.store(chance.choice(drawn.known))


def _sensitive(drawn: Drawn) -> Any:
    """Return what depends on both of two known values."""
    a, b = drawn.value(), drawn.value()
    return arithmetic.add(arithmetic.mul(a, number(drawn.pick(3, 5, 7))), arithmetic.mul(b, number(11)))


def outputs(kernel: Kernel, simulator: Any, table: Any, numbers: tuple[int, int], seed: int = 0) -> Any:
    """Run a kernel and return y; whatever the simulator raises goes on."""
    y = np.zeros(GROUPS * BLOCK, np.int32)
    simulator.launch(kernel, (GROUPS, 1, 1), [table, y, *numbers], order_seed=seed)
    return y


def tables(scalar: Any = I32) -> list[Any]:
    """Return what the table may hold: small numbers, the ends of the type, places just inside and outside."""
    kind = np.int16 if scalar == I16 else np.int32
    ends = np.iinfo(kind)
    edges = np.array([0, -1, ends.max, ends.min, ENTRIES - 1, ENTRIES, 7, -ENTRIES], kind)
    return [
        (np.arange(ENTRIES) % 5).astype(kind),
        np.resize(edges, ENTRIES),
        np.repeat(edges, ENTRIES // len(edges)).astype(kind),
    ]
