"""A small evaluator of emitted IR, straight from the meanings of the ops: one wave after the other, no barriers.

It shares nothing with the simulator but the op table. What a lane function requires, what memory holds and what a
uniform value claims is asserted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from kinfolk.arch import Arch
from kinfolk.ir import build_kernel
from kinfolk.ir.meaning import Control, LaneFunction, LanePermutation, Matrix, MemoryAccess, OperandMap, ScheduleMarker
from kinfolk.ir.numpy_lanes import NumpyAlgebra, NumpyLane, storage_dtype
from kinfolk.ir.ops import lanes, memory
from kinfolk.ir.types import BF16, F32, I32, PointerType, ScalarType, component_count, element_type, vector
from kinfolk.matrix import MatrixCatalog
from kinfolk.parameters import Access, Parameter


@attrs.frozen(eq=False)
class PerLane:
    """A value of `element`, given as raw storage or numbers [threads] or [threads, components]."""

    element: ScalarType
    values: Any


@attrs.frozen(eq=False)
class Memory:
    """Global memory of `element`; what a kernel writes is seen in `data`, what it touched in `reads` and `writes`."""

    element: ScalarType
    data: Any
    access: Access = "readwrite"
    reads: Counter[int] = attrs.field(factory=Counter)
    writes: Counter[int] = attrs.field(factory=Counter)


@attrs.frozen(eq=False)
class _Pointer:
    memory: Memory
    offset: Any


@attrs.frozen(eq=False)
class _View:
    memory: Memory
    base: int
    count: int


@attrs.frozen(eq=False)
class Evaluation:
    """What a body returned, as arrays [threads, components] in storage of their type, with the kernel that ran."""

    values: list[Any]
    kernel: Any
    workgroup: list[Memory]

    def floats(self, index: int = 0) -> Any:
        """One returned f32 scalar as numbers [threads]."""
        return self.values[index][:, 0].view(np.float32)

    def integers(self, index: int = 0) -> Any:
        """One returned i32 scalar as signed numbers [threads]."""
        return self.values[index][:, 0].view(np.int32).astype(np.int64)


def arch_of(wave_size: int) -> Arch:
    """Return an arch without atoms or facts."""
    return Arch(
        name=f"plain{wave_size}",
        target_ids=(f"plain{wave_size}",),
        wave_size=wave_size,
        facts={},
        matrix=MatrixCatalog(()),
        lower_kernel=lambda *given: pytest.fail("lowered"),
        read_usage=lambda *given: pytest.fail("read"),
    )


class _Wave:
    def __init__(self, size: int, index: int, workgroup: dict[Any, Memory]) -> None:
        self.size, self.index, self.workgroup = size, index, workgroup
        self.env: dict[Any, Any] = {}
        self.active = np.ones(size, np.bool_)

    def algebra(self) -> NumpyAlgebra:
        lane = np.arange(self.size, dtype=np.uint32)
        return NumpyAlgebra(
            lane, np.full_like(lane, self.index), lane + np.uint32(self.size * self.index), (0, 0, 0), self.active
        )

    def region(self, region: Any) -> list[Any]:
        for op in region.operations:
            meaning = op.definition.meaning
            operands = [self.env[operand] for operand in op.operands]
            match meaning:
                case LaneFunction():
                    results = [self._lane_function(op, meaning, operands)]
                case LanePermutation():
                    results = []
                    for operand, source in meaning.sources(self.size, self.active, **op.attributes):
                        assert self.active[source][self.active].all()
                        results.append([part[source] for part in operands[operand]])
                case MemoryAccess():
                    results = self._memory(op, meaning, operands)
                case ScheduleMarker():
                    results = operands
                case Control("yield" | "return"):
                    return operands
                case Control():
                    results = self._control(op, meaning, operands)
                case _:
                    raise NotImplementedError(op.name)
            self.env.update(zip(op.results, results, strict=True))
        raise AssertionError("a region without an end")

    def _lane_function(self, op: Any, meaning: LaneFunction, operands: list[Any]) -> list[Any]:
        m = self.algebra()
        wrapped = [
            [NumpyLane(element_type(value.type), part) for part in parts]
            for value, parts in zip(op.operands, operands, strict=True)
        ]
        (result,) = op.results
        with np.errstate(all="ignore"):
            if meaning.form == "components":
                lanes_ = meaning.body(m, *wrapped, result=(result.type,), **op.attributes)
            else:
                lanes_ = [
                    meaning.body(m, *(parts[i if len(parts) > 1 else 0] for parts in wrapped), **op.attributes)
                    for i in range(component_count(result.type))
                ]
        assert not m.violations, (op.name, m.violations, str(op.location))
        return [np.broadcast_to(lane.data, (self.size,)) for lane in lanes_]

    def _one(self, parts: list[Any]) -> Any:
        seen = parts[0][self.active]
        assert (seen == seen[0]).all(), "differs between lanes"
        return seen[0]

    def _signed(self, parts: list[Any]) -> int:
        value = self._one(parts)
        return int(value.view(f"i{value.dtype.itemsize}"))

    def _control(self, op: Any, meaning: Control, operands: list[Any]) -> list[Any]:
        if meaning.kind == "uniform":
            self._one(operands[0])
            return [operands[0]]
        if meaning.kind == "any":
            return [[np.full(self.size, bool((operands[0][0] & self.active).any()))]]
        if meaning.kind == "for":
            lower, upper, step = (self._signed(bound) for bound in operands[:3])
            carried = operands[3:]
            (region,) = op.regions
            for index in range(lower, upper, step):
                first = [np.full(self.size, index & 0xFFFFFFFF, np.uint32)]
                self.env.update(zip(region.arguments, [first, *carried], strict=True))
                carried = self.region(region)
            return carried
        if meaning.kind == "if":
            outer, results = self.active, None
            for region, chosen in zip(op.regions, (operands[0][0], ~operands[0][0]), strict=True):
                self.active = outer & chosen
                if self.active.any():
                    found = self.region(region)
                    results = found if results is None else self._merged(found, results)
            self.active = outer
            return results or []
        raise NotImplementedError(op.name)

    def _merged(self, new: list[Any], old: list[Any]) -> list[Any]:
        return [
            [np.where(self.active, a, b) for a, b in zip(parts, others, strict=True)]
            for parts, others in zip(new, old, strict=True)
        ]

    def _memory(self, op: Any, meaning: MemoryAccess, operands: list[Any]) -> list[Any]:
        if meaning.action == "allocate":
            count = op.attributes["count"]
            fresh = Memory(op.attributes["element"], np.zeros(count, storage_dtype(op.attributes["element"])))
            return [self.workgroup.setdefault(op, fresh)]
        base = operands[0]
        if meaning.action == "offset":
            index = operands[1][0]
            return [_Pointer(base.memory, base.offset + index.view(f"i{index.dtype.itemsize}").astype(np.int64))]
        if meaning.action == "bound":
            return [_View(base.memory, int(self._one([base.offset])), self._signed(operands[1]))]
        held, first, limit = self._place(meaning, operands)
        data = op.results[0] if op.results else op.operands[-1]
        count = component_count(data.type)
        where = first[:, None] + op.attributes.get("offset", 0) + np.arange(count)
        touched = self.active[:, None] & (where < limit)
        assert ((where >= 0) & (where < len(held.data)))[touched].all(), f"{op.name} is out of bounds ({op.location})"
        if meaning.action == "store":
            held.data[where[touched]] = np.stack(operands[-1], axis=1)[touched]
            held.writes.update(where[touched].tolist())
            return []
        if meaning.space == "workgroup":
            assert held.writes.keys() >= set(where[touched].tolist()), f"{op.name} reads what was never written"
        held.reads.update(where[touched].tolist())
        loaded = np.where(touched, held.data[np.where(touched, where, 0)], held.data.dtype.type(0))
        return [[loaded[:, part] for part in range(count)]]

    def _place(self, meaning: MemoryAccess, operands: list[Any]) -> tuple[Memory, Any, int]:
        base = operands[0]
        if meaning.space == "global":
            return base.memory, base.offset, len(base.memory.data)
        index = operands[1][0].astype(np.int64)  # unsigned
        if meaning.space == "view":
            return base.memory, base.base + index, base.base + base.count
        return base, index, len(base.data)


def evaluate(
    body: Callable[..., Sequence[Any]], *inputs: PerLane | Memory | int | float, wave_size: int = 64, waves: int = 1
) -> Evaluation:
    """Run `body(*values)` on every wave of a workgroup, in order, and return what the values it returned hold."""
    threads, parameters, memories = wave_size * waves, [], []
    for number, given in enumerate(inputs):
        if isinstance(given, int | float):
            parameters.append(Parameter(name=f"p{number}", type=I32 if isinstance(given, int) else F32))
            memories.append(given)
            continue
        held = given if isinstance(given, Memory) else Memory(given.element, _storage(given).reshape(-1))
        pointer = PointerType(held.element)
        parameters.append(Parameter(name=f"p{number}", type=pointer, alignment=held.element.bytes, access=held.access))
        memories.append(held)
    returned: list[Any] = []

    def built(*values: Any) -> None:
        loaded = [_loaded(value, given, threads) for value, given in zip(values, inputs, strict=True)]
        returned.extend(body(*loaded))

    kernel = build_kernel("body", parameters, arch=arch_of(wave_size), block=threads, body=built)
    shared: dict[Any, Memory] = {}
    outcomes: list[list[Any]] = []
    for index in range(waves):
        wave = _Wave(wave_size, index, shared)
        for argument, held in zip(kernel.body.arguments, memories, strict=True):
            wave.env[argument] = _argument(held, wave_size)
        wave.region(kernel.body)
        outcomes.append([np.stack(wave.env[value], axis=1) for value in returned])
    values = [np.concatenate([outcome[i] for outcome in outcomes]) for i in range(len(returned))]
    return Evaluation(values, kernel, list(shared.values()))


def _argument(held: Memory | int | float, size: int) -> Any:
    if isinstance(held, Memory):
        return _Pointer(held, np.zeros(size, np.int64))
    return [np.full(size, held, np.int32).view(np.uint32) if isinstance(held, int) else np.full(size, held, np.float32)]


def _storage(given: PerLane) -> Any:
    dtype = storage_dtype(given.element)
    values = np.asarray(given.values)
    return values.astype(dtype) if values.dtype.itemsize != dtype.itemsize else values.view(dtype)


def _loaded(value: Any, given: Any, threads: int) -> Any:
    if not isinstance(given, PerLane):
        return value
    values = np.asarray(given.values)
    assert len(values) == threads
    count = 1 if values.ndim == 1 else values.shape[1]
    assert vector(given.element, count)
    return memory.load(memory.offset(value, lanes.thread_id() * count), count=count)


@pytest.fixture(name="evaluate", scope="session")
def _evaluate() -> Callable[..., Evaluation]:
    return evaluate


@pytest.fixture(name="per_lane_input", scope="session")
def _per_lane_input() -> type[PerLane]:
    return PerLane


@pytest.fixture(name="global_memory", scope="session")
def _global_memory() -> type[Memory]:
    return Memory


@pytest.fixture(scope="session")
def atoms() -> dict[str, Matrix]:
    """Return real atoms of 64 lanes by shape, their maps as published."""
    published = json.loads((Path(__file__).parent / "atoms.json").read_text())["atoms"]
    return {name: _atom(entry) for name, entry in published.items()}


def _atom(entry: dict[str, Any]) -> Matrix:
    tables = {role: np.array(entry[role]) for role in ("a", "b", "c")}
    maps = {role: OperandMap(table[:, :, 0], table[:, :, 1]) for role, table in tables.items()}
    return Matrix(entry["m"], entry["n"], entry["k"], BF16, BF16, F32, maps["a"], maps["b"], maps["c"])
