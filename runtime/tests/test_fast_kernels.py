"""Whole kernels in both engines: random programs, matrix layouts, faults, threads, kinds of memory, what is left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve
from engine_pair import run_both

from kinfolk.errors import SimulationError
from kinfolk.ir import build_kernel
from kinfolk.ir.meaning import LanePermutation
from kinfolk.ir.op import AttributeDef, OpDef, effects
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory, vector
from kinfolk.ir.types import F32, I1, I32
from kinfolk.parameters import Parameter
from kinfolk_runtime.simulator import Buffer, Simulator, SparseBuffer
from kinfolk_runtime.simulator.fast import program
from kinfolk_runtime.simulator.fast.library import HostLibrary
from kinfolk_runtime.simulator.fast.slots import in_parallel
from kinfolk_runtime.simulator.order import wave_order


def never(*_: Any) -> Any:
    raise AssertionError("nothing is lowered here")


class RandomProgram:
    """Draws a kernel: arithmetic, vectors, nested branches and loops, values carried, swapped and passed through."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def one(self, items):
        return items[int(self.random.integers(len(items)))]

    def step(self, ints, floats, vectors, depth: int) -> None:
        """Add one value, or several from a region, to the lists of values."""
        kind = self.one(["int", "int", "float", "float", "vector", "pack", "extract", "cross", "if", "for", "first"])
        if kind == "int":
            make = self.one([lambda a, b: a ^ b, lambda a, b: arithmetic.add(a, b, nsw=False), arithmetic.smax])
            ints.append(make(self.one(ints), self.one(ints)))
        elif kind == "float":
            make = self.one([arithmetic.fadd, arithmetic.fmul, arithmetic.fsub])
            floats.append(make(self.one(floats), self.one(floats)))
        elif kind == "vector":
            vectors.append(self.one([arithmetic.fadd, arithmetic.fmul])(self.one(vectors), self.one(vectors)))
        elif kind == "pack":
            vectors.append(vector.pack(*(self.one(floats) for _ in range(4))))
        elif kind == "extract":
            floats.append(vector.extract(self.one(vectors), index=int(self.random.integers(4))))
        elif kind == "cross" and depth == 0:
            ints.append(lanes.shuffle_xor(self.one(ints), mask=int(self.one([1, 2, 4, 16]))))
        elif kind == "first":
            ints.append(lanes.first_lane(self.one(ints)))
        elif kind == "if" and depth < 3:
            self.branch(ints, floats, vectors, depth)
        elif kind == "for" and depth < 3:
            self.loop(ints, floats, vectors, depth)

    def inside(self, ints, floats, vectors, depth: int):
        """Return new lists after some steps in a region."""
        mine = (list(ints), list(floats), list(vectors))
        for _ in range(int(self.random.integers(1, 6))):
            self.step(*mine, depth + 1)
        return mine

    def picked(self, lists):
        """Return values to yield: two ints, two floats, a vector; often ones from outside, and one twice."""
        ints, floats, vectors = lists
        first = self.one(ints)
        return [first, self.one([first, self.one(ints)]), self.one(floats), self.one(floats), self.one(vectors)]

    def keep(self, results, ints, floats, vectors) -> None:
        ints += results[:2]
        floats += results[2:4]
        vectors += results[4:]

    def branch(self, ints, floats, vectors, depth: int) -> None:
        a, b = self.one(ints), self.one(ints)
        condition = self.one([lambda: a < b, lambda: lanes.any_lane(a < b), lambda: (a & 1).eq(0)])()
        results = control.if_else(
            condition,
            lambda: self.picked(self.inside(ints, floats, vectors, depth)),
            lambda: self.picked(self.inside(ints, floats, vectors, depth)),
        )
        self.keep(list(results), ints, floats, vectors)

    def loop(self, ints, floats, vectors, depth: int) -> None:
        upper = lanes.first_lane(self.one(ints)) & 3

        def body(index, carried):
            mine = self.inside([*ints, index, *carried[:2]], [*floats, *carried[2:4]], [*vectors, carried[4]], depth)
            if self.random.random() < 0.4:  # values that only change places
                return [carried[1], carried[0], carried[3], carried[2], self.one([carried[4], self.one(mine[2])])]
            return self.picked(mine)

        self.keep(
            list(control.for_range(0, upper, 1, self.picked((ints, floats, vectors)), body)), ints, floats, vectors
        )

    def body(self, x, f, y, z):
        """Build the kernel: everything it has at the end is stored."""
        t = lanes.thread_id()
        ints = [memory.load(memory.offset(x, t)), t, lanes.wave_id() + 0]
        floats = [memory.load(memory.offset(f, t)), convert.sitofp(t, to=F32)]
        vectors = [memory.load(memory.offset(f, t * 4), count=4)]
        for _ in range(14):
            self.step(ints, floats, vectors, 0)
        for number, value in enumerate(ints[-12:]):
            memory.store(memory.offset(y, t * 12 + number), value)
        for number, value in enumerate([*floats[-8:], *(vector.extract(v, index=3) for v in vectors[-4:])]):
            memory.store(memory.offset(z, t * 12 + number), value)


@pytest.mark.parametrize("seed", range(24))
def test_random_programs_agree(any_toy, declare, seed):
    toy = any_toy
    drawn = RandomProgram(seed)
    kernel = toy.kernel(
        drawn.body,
        declare("x", I32),
        declare("f", F32),
        declare("y", I32, "write"),
        declare("z", F32, "write"),
        waves=2,
    )
    threads = 2 * toy.wave

    def arguments():
        random = np.random.default_rng(seed)
        ints, floats = random.integers(-50, 50, threads), random.normal(size=4 * threads)
        outputs = np.zeros((threads, 12), np.int32), np.zeros((threads, 12), np.float32)
        return [ints.astype(np.int32), floats.astype(np.float32), *outputs]

    fault, fast = run_both(kernel, (1, 1, 1), arguments, seed=seed % 3)
    assert fault is None and fast.notes == ()


def test_copies_at_once():
    """Swaps, cycles, chains, a source within what another copy writes: the same as reading all first."""
    random = np.random.default_rng(0)
    spared = 0
    for _ in range(500):
        sizes = [int(size) for size in random.choice([32, 64], 6)]
        moves = []
        for to in map(int, random.permutation(6)[:4]):
            source = int(random.choice([one for one in range(6) if sizes[one] >= sizes[to]]))
            within = 32 if sizes[source] > sizes[to] and random.integers(2) else 0
            moves.append((64 * to, 64 * source + within, sizes[to]))
        before = random.integers(0, 256, 1024).astype(np.uint8)
        expected, got = before.copy(), before.copy()
        for to, source, size in moves:
            expected[to : to + size] = before[source : source + size]
        spares = iter(range(384, 1024, 64))
        made = in_parallel(moves, lambda size, spares=spares: next(spares))
        for to, source, size in made:
            got[to : to + size] = got[source : source + size].copy()
        assert (got[:384] == expected[:384]).all()
        spared += any(to >= 384 for to, _, _ in made)
    assert spared


def test_the_first_fault_in_the_order_of_workgroups_is_the_one(any_toy, declare):
    """Workgroups on threads: what is raised, and what is left in memory, is the reference's."""

    def body(x, y):
        place = lanes.block_id(axis=0)
        value = memory.load(memory.offset(x, place))
        memory.store(memory.offset(y, place), value // memory.load(memory.offset(x, place)))

    kernel = any_toy.kernel(body, declare("x", I32), declare("y", I32, "readwrite"))

    def arguments():
        x = np.arange(1, 201, dtype=np.int32)
        x[[60, 130, 199]] = 0
        return [x, np.full(200, -1, np.int32)]

    for seed in (0, 5):
        for threads in (1, 3):
            fault, _ = run_both(kernel, (200, 1, 1), arguments, seed=seed, threads=threads)
            assert fault.kind == "integer" and fault.workgroup[0] in (60, 130, 199)


def test_a_fault_after_many_additions_is_replayed_on_the_memory_of_its_time(any_toy, declare):
    """A workgroup that fails for what those before it have added."""

    def body(total, y):
        memory.atomic_add(total, lanes.lane_id() - lanes.lane_id() + 1)
        seen = memory.load(total)
        limit = control.current_builder().constant(20 * any_toy.wave, I32)
        memory.store(memory.offset(y, arithmetic.select(seen > limit, seen, seen - seen)), seen)

    kernel = any_toy.kernel(body, declare("total", I32, "readwrite"), declare("y", I32, "write"))
    fault, _ = run_both(
        kernel,
        (40, 1, 1),
        lambda: [np.zeros(1, np.int32), np.zeros(4, np.int32)],
        threads=2,
        sanitize="memory,initialisation,sync,integer",
    )
    assert (fault.kind, fault.workgroup) == ("memory", (20, 0, 0))


@pytest.mark.parametrize("kind", ["plain", "unwritten", "gaps", "sparse"])
def test_kinds_of_memory_agree(any_toy, declare, kind):
    """Reads and writes, right and wrong by a little, through pointers and views, in every kind of buffer."""

    def body(x, y, at, count):
        t = lanes.thread_id()
        view = memory.bound(memory.offset(x, at), count)
        index = arithmetic.add(t * 2, at, nsw=False)
        value = memory.view_load(view, index, count=2)
        more = memory.load(memory.offset(x, at + lanes.lane_id()))
        memory.view_store(memory.bound(y, count), index, value)
        memory.store(memory.offset(y, at + lanes.lane_id()), more)

    numbers = [Parameter(name=name, type=I32) for name in ("at", "count")]
    kernel = any_toy.kernel(body, declare("x", I32), declare("y", I32, "write"), *numbers)
    found = set()
    for at in (0, 2, 16, 900):
        for count in (0, 30, 64, 1000):

            def arguments(at=at, count=count):
                values = np.arange(1024, dtype=np.int32)
                if kind == "sparse":
                    x = SparseBuffer(1 << 33, {0: values[:300], 1 << 12: values[300:]})
                elif kind == "gaps":
                    x = values.reshape(8, 128)[:, :127]
                else:
                    x = Buffer(values, initialized=kind == "plain")
                return [x, np.zeros(1024, np.int32), at, count]

            fault, _ = run_both(kernel, (1, 1, 1), arguments)
            found.add(fault.kind if fault else None)
    assert found == {"plain": {None, "memory"}, "sparse": {None, "initialisation"}}.get(kind, found)
    assert found - {None} or kind == "plain"


def test_a_kernel_with_an_op_that_has_no_function_runs_on_the_reference_engine(any_toy, declare):
    def by_the_count(wave_size, active, **_):
        return ((0, np.full(wave_size, int(active.sum()) - 1)),)

    odd = OpDef(
        name="toy.last_of_as_many",
        operands=("x",),
        attributes=(AttributeDef("unused", "int", default=0),),
        result=lambda types, _: (types[0],),
        effects=effects("convergent"),
        issue="vector",
        meaning=LanePermutation(by_the_count),
        lowering=never,
    )
    arch = evolve(any_toy.arch, ops=(*any_toy.arch.ops, odd))

    def body(y):
        t = lanes.thread_id()
        memory.store(memory.offset(y, t), odd(t))

    kernel = build_kernel("odd", [declare("y", I32, "write")], arch=arch, block=any_toy.wave, body=body)
    fault, fast = run_both(kernel, (1, 1, 1), lambda: [np.zeros(any_toy.wave, np.int32)])
    assert fault is None
    [note] = fast.notes
    assert "odd runs on the reference engine" in note and "toy.last_of_as_many" in note


def numbered(toy, declare):
    """Each lane stores three times its number."""
    return toy.kernel(
        lambda y: memory.store(memory.offset(y, lanes.lane_id()), lanes.lane_id() * 3), declare("y", I32, "write")
    )


@pytest.mark.parametrize("first", ["all", "none"])
def test_what_is_not_looked_for_is_not_in_the_functions_made_before(any_toy, declare, first):
    """The same ops with and without a sanitizer, in one process, whichever comes first."""

    def body(y):
        memory.store(memory.offset(y, lanes.lane_id()), lanes.lane_id() + 0x7FFFFFFF)

    for sanitize in [first, "all", "none", "integer"]:
        kernel = any_toy.kernel(body, declare("y", I32, "write"))
        y = np.zeros(any_toy.wave, np.int32)
        simulator = Simulator(sanitize=sanitize)
        if sanitize == "none":
            simulator.launch(kernel, (1, 1, 1), [y])
            assert y[1] == -(2**31)
        else:
            with pytest.raises(SimulationError, match="integer"):
                simulator.launch(kernel, (1, 1, 1), [y])


def test_without_llvm_kernels_run_on_the_reference_engine(any_toy, declare, monkeypatch):
    def missing():
        raise ImportError("No module named 'llvmlite'")

    monkeypatch.setattr("kinfolk_runtime.simulator.fast.library._llvm", missing)
    monkeypatch.setattr(program, "LIBRARY", HostLibrary())
    kernel = numbered(any_toy, declare)
    _, fast = run_both(kernel, (1, 1, 1), lambda: [np.zeros(any_toy.wave, np.int32)])
    [note] = fast.notes
    assert "llvmlite" in note


def test_compiled_functions_are_kept_on_disk(any_toy, declare, monkeypatch, tmp_path):
    """A second process finds the objects of the first, whatever else its kernel needs; a damaged one is made again."""
    monkeypatch.setenv("KINFOLK_CACHE_DIR", str(tmp_path))
    compiled, made = HostLibrary._compiled, []

    def counted(self, source):
        made.append(source)
        return compiled(self, source)

    monkeypatch.setattr(HostLibrary, "_compiled", counted)

    def run(kernel) -> int:
        """Return how many functions a process that has none compiles for a kernel."""
        made.clear()
        monkeypatch.setattr(program, "LIBRARY", HostLibrary())
        run_both(kernel, (1, 1, 1), lambda: [np.zeros(any_toy.wave, np.int32)])
        return len(made)

    def more(y):
        lane = lanes.lane_id()
        memory.store(memory.offset(y, lane), (lane * 3) ^ 5)

    assert run(numbered(any_toy, declare)) > 1
    assert run(numbered(any_toy, declare)) == 0
    assert run(any_toy.kernel(more, declare("y", I32, "write"))) == 1
    kept = sorted((tmp_path / "simulator").rglob("*.o"))
    whole = kept[0].read_bytes()
    kept[0].write_bytes(whole[:-100])
    assert run(any_toy.kernel(more, declare("y", I32, "write"))) == 1
    assert kept[0].read_bytes() == whole


def test_additions_by_workgroups_on_threads(any_toy, declare):
    """Integers added to memory by many workgroups at once, by loops that lanes leave after rounds of their own."""

    def body(x, total, count):
        t = lanes.thread_id() + lanes.block_id(axis=0) * (2 * any_toy.wave)
        mine = memory.load(memory.offset(x, t))

        def around(index, held):
            def still():
                memory.atomic_add(memory.offset(total, mine & 3), index + 1)
                return [arithmetic.add(held[0], 1, nsw=False)]

            return list(control.if_else(index < (mine & 7), still, lambda: [held[0]]))

        (rounds,) = control.for_range(0, 8, 1, [t ^ t], around)
        control.if_else(rounds > 0, lambda: memory.atomic_add(count, rounds) or ())

    parameters = [declare("x", I32), declare("total", I32, "readwrite"), declare("count", I32, "readwrite")]
    kernel = any_toy.kernel(body, *parameters, waves=2)
    groups = 60
    x = np.random.default_rng(0).integers(0, 1 << 20, groups * 2 * any_toy.wave).astype(np.int32)
    expected = [sum(n * (n + 1) // 2 for n in (x[x & 3 == k] & 7).tolist()) for k in range(4)]
    for threads, seed in ((1, 0), (3, 0), (3, 4)):
        arrays = [x, np.zeros(4, np.int32), np.zeros(1, np.int32)]
        Simulator(engine="fast", threads=threads).launch(kernel, (groups, 1, 1), arrays, seed)
        assert arrays[1].tolist() == expected and arrays[2][0] == int((x & 7).sum())
    fault, fast = run_both(kernel, (groups, 1, 1), lambda: [x, np.zeros(4, np.int32), np.zeros(1, np.int32)], threads=3)
    assert fault is None and fast.notes == ()


@pytest.mark.parametrize("count", [1, 3, 8])
def test_the_order_of_waves_is_a_permutation_that_the_seed_draws(count):
    drawn = {tuple(wave_order(seed, 3, 1, count)) for seed in range(40)}
    assert all(sorted(order) == list(range(count)) for order in drawn)
    assert len(drawn) > (1 if count > 1 else 0)
    assert wave_order(0, 3, 1, count) == list(range(count))


def test_masks_of_components_and_i1_in_memory_agree(any_toy, declare):
    def body(x, y, z):
        t = lanes.thread_id()
        values = memory.load(memory.offset(x, t * 4), count=4)
        masks = values > vector.splat(control.current_builder().constant(0.0, F32), count=4)
        memory.store(memory.offset(y, t * 4), masks)
        again = memory.load(memory.offset(y, t * 4), count=4)
        memory.store(memory.offset(z, t * 4), arithmetic.select(again, values, values + values))

    kernel = any_toy.kernel(body, declare("x", F32), declare("y", I1, "readwrite"), declare("z", F32, "write"), waves=2)
    size = 8 * any_toy.wave

    def arguments():
        x = np.random.default_rng(2).normal(size=size).astype(np.float32)
        return [x, np.zeros(size, np.bool_), np.zeros(size, np.float32)]

    fault, _ = run_both(kernel, (1, 1, 1), arguments)
    assert fault is None
