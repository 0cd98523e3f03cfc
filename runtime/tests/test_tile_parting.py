"""Barriers that follow from what is read and written, on the simulator: no race with them, one without any of them."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from engine_pair import run_both
from workgroup_toy import ADD, STAGE, WAIT

from kinfolk.ir import build_kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import control, lanes, memory
from kinfolk.ir.types import I32
from kinfolk.ir.value import walked
from kinfolk.tile.parting import drain, parted
from kinfolk.tile.stagger import Stagger
from kinfolk.tile.state import loop

ROUNDS, WAVES = 5, 2


class OneTile:
    """Rounds that read what the other wave wrote of a tile and write the next one in its place; the sum stands last."""

    def __init__(self, toy, directly):
        self.threads, self.wave, self.directly = WAVES * toy.wave, toy.wave, directly
        self.arch = evolve(toy.arch, ops=(*toy.arch.ops, STAGE, WAIT), roles={"wait_staged": WAIT})

    def built(self, declare):
        parameters = (declare("x", I32), declare("y", I32, "write"))
        return build_kernel("k", parameters, arch=self.arch, block=self.threads, body=self.body)

    def body(self, x, y):
        self.x, self.thread = x, lanes.thread_id()
        self.buffer = memory.allocate(I32, self.threads)
        with parted(self.buffer, later="read"):
            self.write(constant(0, I32))
        total = loop(0, ROUNDS, constant(0, I32), self.round)
        memory.store(memory.offset(y, self.thread), total)

    def write(self, tile):
        source = memory.offset(self.x, tile * self.threads + self.thread)
        if self.directly:
            STAGE.add(source, self.buffer, lanes.wave_id() * self.wave, count=1)
        else:
            memory.workgroup_store(self.buffer, self.thread, memory.load(source))

    def round(self, tile, total):
        with parted(self.buffer, later="read"):
            found = memory.workgroup_load(self.buffer, self.thread ^ self.wave)
            self.write(tile + 1)
        return total * 3 + found

    def verdict(self, kernel):
        """Return what both engines find wrong, None where nothing is and the result is right."""
        x = np.random.default_rng(5).integers(0, 9, (ROUNDS + 1, WAVES, self.wave)).astype(np.int32)
        expected = np.zeros((WAVES, self.wave), np.int64)
        for tile in x[:ROUNDS]:
            expected = expected * 3 + tile[::-1]
        arrays = []

        def arguments():
            arrays.append([x.reshape(-1), np.zeros(self.threads, np.int32)])
            return arrays[-1]

        fault, _ = run_both(kernel, (1, 1, 1), arguments)
        if fault is None:
            assert (arrays[0][1] == expected.reshape(-1)).all()
        return fault.kind if fault else None


def without(kernel, name, number):
    """Take the `number`th op of a name out of a kernel."""
    [operation] = [op for op in kernel.walk() if op.name == name][number : number + 1]
    owners = [kernel.body, *(region for op in walked(kernel.body.operations) for region in op.regions)]
    [owner] = [region for region in owners if operation in region.operations]
    owner.operations.remove(operation)
    return kernel


@pytest.mark.parametrize("directly", [False, True])
def test_each_barrier_is_needed_and_they_are_enough(any_toy, declare, directly):
    """Before the first round, between reading and writing, and at a round's end; a wait before those that need it."""
    tile = OneTile(any_toy, directly)
    kernel = tile.built(declare)
    names = [op.name for op in kernel.walk()]
    assert (names.count("core.barrier"), names.count("toy.wait")) == (3, 2 if directly else 0)
    assert tile.verdict(kernel) is None
    for name in ("core.barrier", "toy.wait"):
        for number in range(names.count(name)):
            assert tile.verdict(without(tile.built(declare), name, number)) == "race"


def test_an_addition_to_a_tile_is_a_write(any_toy, declare):
    """Between it and a read there is a barrier; additions in a row have none."""

    def body(y):
        buffer = memory.allocate(I32, any_toy.wave)
        with parted(buffer):
            memory.workgroup_store(buffer, lanes.lane_id(), lanes.lane_id())
            ADD.add(buffer, lanes.lane_id(), lanes.lane_id())
            found = memory.workgroup_load(buffer, lanes.lane_id())
            ADD.add(buffer, lanes.lane_id(), found)
        memory.store(memory.offset(y, lanes.lane_id()), found)

    arch = evolve(any_toy.arch, ops=(*any_toy.arch.ops, ADD))
    kernel = build_kernel("k", (declare("y", I32, "write"),), arch=arch, block=any_toy.wave, body=body)
    named = {"core.workgroup_store": "w", "toy.add": "a", "core.workgroup_load": "r", "core.barrier": "B"}
    assert "".join(named.get(op.name, "") for op in kernel.walk()) == "waBrBa"


@pytest.mark.parametrize(
    ("words", "waits"),
    [("", 0), ("s", 1), ("s0", 0), ("s1", 1), ("s0s", 1), ("(s)", 1), ("(0s)", 1), ("(s0)", 0), ("s(0)", 1), ("0", 0)],
)
def test_what_may_be_on_its_way_is_waited_for_and_nothing_else(any_toy, declare, words, waits):
    """`s` asks for bytes, a digit waits for all but so many; in parentheses, in a loop, which may have no round."""
    tile = OneTile(any_toy, True)

    def body(x, y):
        buffer, stack = memory.allocate(I32, any_toy.wave), [words]

        def do(letters):
            while letters and letters[0] != ")":
                letter, letters = letters[0], letters[1:]
                if letter == "(":
                    rest = letters.partition(")")
                    control.for_range(0, 1, 1, (), lambda _, now, inner=rest[0]: do(inner) or now)
                    letters = rest[2]
                elif letter == "s":
                    STAGE.add(memory.offset(x, lanes.lane_id()), buffer, constant(0, I32), count=1)
                else:
                    WAIT.add(outstanding=int(letter))

        do(stack.pop())
        drain()
        memory.store(memory.offset(y, lanes.lane_id()), lanes.lane_id())

    def built():
        parameters = (declare("x", I32), declare("y", I32, "write"))
        return build_kernel("k", parameters, arch=tile.arch, block=any_toy.wave, body=body)

    def arguments():
        return [np.zeros(any_toy.wave, np.int32), np.zeros(any_toy.wave, np.int32)]

    kernel, written = built(), sum(letter.isdigit() for letter in words)
    assert sum(op.name == "toy.wait" for op in kernel.walk()) == written + waits
    assert run_both(kernel, (1, 1, 1), arguments)[0] is None
    if waits and words != "s(0)":
        fault, _ = run_both(without(built(), "toy.wait", written), (1, 1, 1), arguments)
        assert fault.kind == "sync", "what is still on its way when a wave ends"


@pytest.mark.parametrize("left_out", ["fall_behind", "catch_up", None])
def test_groups_half_a_round_apart_meet_as_often(any_toy, declare, monkeypatch, left_out):
    """In a half round group 0 writes and group 1 reads what it wrote; without falling behind both do so at once."""

    def body(y):
        group, buffer = lanes.wave_id(), memory.allocate(I32, 2 * any_toy.wave)
        stagger = Stagger(group=group, place="half")
        if left_out != "fall_behind":
            stagger.fall_behind(tuple, tuple)

        def round_(number, total):
            half = number % 2 * any_toy.wave + lanes.lane_id()
            control.if_else(group.eq(0), lambda: memory.workgroup_store(buffer, half, number) or ())
            control.meet("half")
            found = control.if_else(
                group.eq(1), lambda: [memory.workgroup_load(buffer, half)], lambda: [constant(0, I32)]
            )
            control.meet("half")
            return total + found[0]

        total = loop(0, 4, constant(0, I32), round_)
        if left_out != "catch_up":
            stagger.catch_up()
        memory.store(memory.offset(y, lanes.thread_id()), total)

    def verdict():
        arrays = []

        def arguments():
            arrays.append([np.zeros(2 * any_toy.wave, np.int32)])
            return arrays[-1]

        kernel = build_kernel("k", (declare("y", I32, "write"),), arch=any_toy.arch, block=2 * any_toy.wave, body=body)
        fault, _ = run_both(kernel, (1, 1, 1), arguments)
        return fault.kind if fault else arrays[0][0].tolist()

    assert verdict() == ([0] * any_toy.wave + [0 + 1 + 2 + 3] * any_toy.wave if left_out is None else "sync")
