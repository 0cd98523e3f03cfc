"""Functions of ops that stay within registers: lane functions, lane permutations, claims, copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import attrs
import numpy as np

from kinfolk.ir.llvm_lanes import LlvmAlgebra, LlvmLane, storage_type
from kinfolk.ir.meaning import LaneFunction, LanePermutation
from kinfolk.ir.types import DataType, ScalarType, Type, component_count, element_type
from kinfolk.ir.value import Operation
from kinfolk_runtime.simulator.fast.layout import BLOCK, WAVE
from kinfolk_runtime.simulator.fast.text import OpText, OpWriter

Origin = tuple[int, int]
"""An operand and a component of it."""


@attrs.frozen
class LaneText:
    """A lane function as text, and what is known of it.

    `origins`: the operand components that the result consists of, where it computes nothing. `places`: what it asks
    about where it runs.
    """

    text: OpText | None
    origins: tuple[Origin, ...] | None
    places: frozenset[str]


def lane_function(op: Operation, meaning: LaneFunction, wave_size: int, trapped: bool = True) -> LaneText:
    """Return the function of a lane function: result, operands.

    `trapped`: integers that break their rule are faults; what floats break is a fault in any case.
    """
    writer = OpWriter(wave_size)
    places: set[str] = set()
    algebra = LlvmAlgebra(wave_size, writer.let, writer.declare, lambda name: _place(writer, name, places))
    target = writer.slot()
    sources = [writer.slot() for _ in op.operands]
    types = [cast("DataType", value.type) for value in op.operands]
    result = cast("DataType", op.results[0].type)
    if meaning.form == "elementwise":
        lanes = _elementwise(writer, algebra, op, meaning, sources, types, target)
    else:
        lists = [
            [algebra.lane(element_type(t), writer.load(s, element_type(t), part), (index, part)) for part in range(n)]
            for index, (s, t) in enumerate(zip(sources, types, strict=True))
            for n in [component_count(t)]
        ]
        lanes = meaning.body(algebra, *lists, result=(op.results[0].type,), **op.attributes)
        for part, lane in enumerate(lanes):
            _put(writer, algebra, target, element_type(result), part, lane)
    if trapped or any(element_type(type_).kind != "int" for type_ in types):
        _judge(writer, algebra)
    origins = [lane.origin for lane in lanes]
    moves = None if algebra.violations or None in origins else tuple(cast("list[Origin]", origins))
    return LaneText(writer.finish(), moves, frozenset(places))


def _elementwise(
    writer: OpWriter,
    algebra: LlvmAlgebra,
    op: Operation,
    meaning: LaneFunction,
    sources: Sequence[str],
    types: Sequence[DataType],
    target: str,
) -> list[LlvmLane]:
    result = cast("DataType", op.results[0].type)
    counts = [component_count(type_) for type_ in types]
    shared = [
        writer.load(source, element_type(type_), 0) if count == 1 else ""
        for source, type_, count in zip(sources, types, counts, strict=True)
    ]
    lanes: list[LlvmLane] = []
    for part in range(component_count(result)):
        operands = [
            algebra.lane(
                element_type(type_),
                shared[index] or writer.load(sources[index], element_type(type_), part),
                (index, part if counts[index] > 1 else 0),
            )
            for index, type_ in enumerate(types)
        ]
        lane = meaning.body(algebra, *operands, **op.attributes)
        _put(writer, algebra, target, element_type(result), part, lane)
        lanes.append(lane)
    return lanes


def _put(writer: OpWriter, algebra: LlvmAlgebra, target: str, type_: ScalarType, part: int, lane: LlvmLane) -> None:
    writer.store(target, type_, part, algebra.bits(lane, type_).name)


def _judge(writer: OpWriter, algebra: LlvmAlgebra) -> None:
    """The op fails where an active lane does not meet a requirement."""
    if not algebra.violations:
        return
    broken = algebra.violations[0]
    for other in algebra.violations[1:]:
        broken = writer.let(f"or {writer.vector('i1')} {broken}, {other}")
    writer.fault_unless_clear(writer.let(f"and i64 {writer.mask_of(broken)}, {writer.exec()}"))


def _place(writer: OpWriter, name: str, asked: set[str]) -> str:
    asked.add(name)
    if name == "lane_id":
        return writer.ascending("i32")
    if name.startswith("block_id"):
        return writer.splat(_narrow(writer, writer.field("%c", BLOCK + int(name[-1]))), "i32")
    wave = writer.splat(_narrow(writer, writer.field("%c", WAVE)), "i32")
    if name == "wave_id":
        return wave
    vector = writer.vector("i32")
    first = writer.let(f"mul {vector} {wave}, splat (i32 {writer.wave})")
    return writer.let(f"add {vector} {first}, {writer.ascending('i32')}")


def _narrow(writer: OpWriter, word: str) -> str:
    return writer.let(f"trunc i64 {word} to i32")


class UnknownPermutation(Exception):  # never leaves the engine: such a kernel runs in the reference engine
    """Which lanes an op reads is not known in advance."""


def permutation(op: Operation, meaning: LanePermutation, wave_size: int) -> OpText:
    """Return the function of a lane permutation: results, operands. Reading an idle lane is a fault."""
    sources = meaning.sources(wave_size, np.ones(wave_size, np.bool_), **op.attributes)
    changing = [_changes_with_mask(op, meaning, wave_size, index) for index in range(len(sources))]
    writer = OpWriter(wave_size)
    targets = [writer.slot() for _ in op.results]
    operands = [writer.slot() for _ in op.operands]
    if changing == ["first"] and len(operands) == 1:
        _first_lane(writer, op, targets[0], operands[0])
        return writer.finish()
    if any(changing):
        raise UnknownPermutation(f"{op.name}: which lanes it reads depends on which are active")
    active = writer.lanes_of(writer.exec())
    moved: list[tuple[str, ScalarType, int, str]] = []
    for target, result, (operand, lanes) in zip(targets, op.results, sources, strict=True):
        index = np.asarray(lanes)
        if index.min() < 0 or index.max() >= wave_size:
            raise UnknownPermutation(f"{op.name}: it reads a lane that does not exist")
        seen = _shuffled(writer, active, "i1", index)
        idle = writer.let(f"xor {writer.vector('i1')} {seen}, splat (i1 true)")
        writer.fault_unless_clear(writer.let(f"and i64 {writer.mask_of(idle)}, {writer.exec()}"))
        type_ = cast("DataType", result.type)
        element = element_type(type_)
        for part in range(component_count(type_)):
            value = _read_from(writer, operands, operand, index, element, part)
            moved.append((target, element, part, value))
    for target, element, part, value in moved:
        writer.store(target, element, part, value)
    return writer.finish()


def _changes_with_mask(op: Operation, meaning: LanePermutation, size: int, number: int) -> str:
    """Return "" where the lanes read do not depend on which are active, "first" where it is the first active one.

    Asked on many masks, as the declaration is a function.
    """
    random = np.random.default_rng(0)
    whole = meaning.sources(size, np.ones(size, np.bool_), **op.attributes)[number]
    same = first = True
    for trial in range(24):
        mask = random.random(size) < (0.1, 0.5, 0.9)[trial % 3]
        mask[random.integers(size)] = True
        operand, lanes = meaning.sources(size, mask, **op.attributes)[number]
        same &= bool(np.array_equal(lanes, whole[1]) and np.array_equal(operand, whole[0]))
        first &= bool(np.all(np.asarray(lanes) == int(np.argmax(mask))) and np.array_equal(operand, 0))
    if same:
        return ""
    return "first" if first else "unknown"


def _first_lane(writer: OpWriter, op: Operation, target: str, source: str) -> None:
    lane = writer.first_lane()
    type_ = cast("DataType", op.results[0].type)
    element = element_type(type_)
    for part in range(component_count(type_)):
        value = writer.load(source, element, part)
        vector, scalar = writer.vector(storage_type(element)), storage_type(element)
        one = writer.let(f"extractelement {vector} {value}, i64 {lane}")
        writer.store(target, element, part, writer.splat(one, scalar))


def _shuffled(writer: OpWriter, value: str, element: str, lanes: Any) -> str:
    order = ", ".join(f"i32 {int(lane)}" for lane in lanes)
    vector = writer.vector(element)
    return writer.let(f"shufflevector {vector} {value}, {vector} poison, {writer.vector('i32')} <{order}>")


def _read_from(
    writer: OpWriter, operands: Sequence[str], operand: Any, lanes: Any, element: ScalarType, part: int
) -> str:
    """Return what each lane reads: lane `lanes[l]` of one operand, or of the operand that lane l reads."""
    scalar = storage_type(element)
    chosen = np.broadcast_to(np.asarray(operand), (writer.wave,))
    result = ""
    for number in np.unique(chosen):
        moved = _shuffled(writer, writer.load(operands[int(number)], element, part), scalar, lanes)
        if not result:
            result = moved
            continue
        here = "<" + ", ".join(f"i1 {'true' if one else 'false'}" for one in chosen == number) + ">"
        vector = writer.vector(scalar)
        result = writer.let(f"select {writer.vector('i1')} {here}, {vector} {moved}, {vector} {result}")
    return result


def exchanged(writer: OpWriter, parts: Sequence[str], element: str, lanes: Any, components: Any) -> list[str]:
    """Return components whose lane l holds component `components[c, l]` of lane `lanes[c, l]`."""
    result: list[str] = []
    lane_rows, component_rows = cast("Any", np.asarray(lanes)), cast("Any", np.asarray(components))
    for lane_row, component_row in zip(lane_rows, component_rows, strict=True):
        whole = ""
        for number in np.unique(component_row):
            moved = _shuffled(writer, parts[int(number)], element, lane_row)
            if not whole:
                whole = moved
                continue
            here = "<" + ", ".join(f"i1 {'true' if one else 'false'}" for one in component_row == number) + ">"
            vector = writer.vector(element)
            whole = writer.let(f"select {writer.vector('i1')} {here}, {vector} {moved}, {vector} {whole}")
        result.append(whole)
    return result


def uniform(type_: Type, wave_size: int) -> OpText:
    """Return the function of a claim: result, operand."""
    writer = OpWriter(wave_size)
    target, source = writer.slot(), writer.slot()
    data = cast("DataType", type_)
    element, scalar = element_type(data), storage_type(element_type(data))
    lane = writer.first_lane()
    firsts: list[str] = []
    differs = ""
    for part in range(component_count(data)):
        value = writer.load(source, element, part)
        vector = writer.vector(scalar)
        first = writer.splat(writer.let(f"extractelement {vector} {value}, i64 {lane}"), scalar)
        firsts.append(first)
        if scalar in ("float", "double"):
            integer = writer.vector("i32" if scalar == "float" else "i64")
            value = writer.let(f"bitcast {vector} {value} to {integer}")
            first, vector = writer.let(f"bitcast {vector} {first} to {integer}"), integer
        here = writer.let(f"icmp ne {vector} {value}, {first}")
        differs = here if not differs else writer.let(f"or {writer.vector('i1')} {differs}, {here}")
    writer.fault_unless_clear(writer.let(f"and i64 {writer.mask_of(differs)}, {writer.exec()}"))
    for part, first in enumerate(firsts):
        writer.store(target, element, part, first)
    return writer.finish()


def any_lane(count: int, wave_size: int) -> OpText:
    """Return the function that asks whether a condition holds on any active lane: result, condition."""
    writer = OpWriter(wave_size)
    target, source = writer.slot(), writer.slot()
    for part in range(count):
        held = writer.let(f"and i64 {writer.field(source, part)}, {writer.exec()}")
        some = writer.let(f"icmp ne i64 {held}, 0")
        writer.set_field(target, part, writer.let(f"select i1 {some}, i64 {writer.full}, i64 0"))
    return writer.finish()


def copy(size: int, wave_size: int) -> OpText:
    """Return the function that copies a slot of `size` bytes: target, source."""
    writer = OpWriter(wave_size)
    target, source = writer.slot(), writer.slot()
    lines = [writer.let(f"load <64 x i8>, ptr {writer.at(source, at)}, align 8") for at in range(0, size, 64)]
    for index, line in enumerate(lines):
        writer.do(f"store <64 x i8> {line}, ptr {writer.at(target, 64 * index)}, align 8")
    return writer.finish()


def merge(type_: Type, wave_size: int) -> OpText:
    """Return the function that writes a branch's value on its own lanes: target, source."""
    writer = OpWriter(wave_size)
    target, source = writer.slot(), writer.slot()
    count = component_count(type_) if isinstance(type_, DataType) else 1
    element = element_type(type_) if isinstance(type_, DataType) else ScalarType("pointer", 64, "int")
    active = writer.lanes_of(writer.exec())
    whole = writer.let(f"icmp eq i64 {writer.exec()}, {writer.full}")
    every, some, done = writer.fresh("every"), writer.fresh("some"), writer.fresh("done")
    writer.branch(whole, every, some)
    writer.label(every)
    for part in range(count):
        writer.store(target, element, part, writer.load(source, element, part))
    writer.jump(done)
    writer.label(some)
    vector = writer.vector(storage_type(element))
    for part in range(count):
        new, old = writer.load(source, element, part), writer.load(target, element, part)
        joined = writer.let(f"select {writer.vector('i1')} {active}, {vector} {new}, {vector} {old}")
        writer.store(target, element, part, joined)
    writer.jump(done)
    writer.label(done)
    return writer.finish()
