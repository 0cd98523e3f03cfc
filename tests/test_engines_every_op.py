"""Every op of every arch in both engines of the simulator, bit for bit, on random and edge operands.

Ops on registers are found by their declarations: whatever operand types and attributes an op accepts of those tried
here is run. The others stand in kernels below. An op that is in no kernel fails the test that counts them.
"""

from __future__ import annotations

import itertools
from typing import Any

import attrs
import numpy as np
import pytest

from kinfolk.errors import IRError, SimulationError
from kinfolk.ir import build_kernel, constant
from kinfolk.ir.meaning import LaneFunction, LanePermutation, Matrix, MemoryAccess
from kinfolk.ir.numpy_lanes import NumpyAlgebra, NumpyLane, storage_dtype
from kinfolk.ir.op import OpDef
from kinfolk.ir.ops import CORE_OPS, arithmetic, control, lanes, memory
from kinfolk.ir.types import (
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    SCALARS,
    BufferType,
    PointerType,
    VectorType,
    ViewType,
    component_count,
    element_type,
    vector,
)
from kinfolk.parameters import Parameter
from kinfolk.plugins.loading import load
from kinfolk.testing.op_cases import Case, bits_of, cases
from kinfolk_runtime.simulator import Simulator

pytestmark = pytest.mark.needs("gfx942", "gfx950")

ARCHS = {name: load("arch", name).plugin.kinfolk_arch() for name in ("gfx942", "gfx950")}
OPS = {f"{name}:{op.name}": (arch, op) for name, arch in ARCHS.items() for op in arch.op_table}
WAVE = 64
PORTABLE = {op.name for op in CORE_OPS}
COMPUTED = {"fadd", "fsub", "fmul", "fdiv", "fma", "sqrt", "exp2", "log2", "rcp", "rint"}
"""Ops whose NaNs are any: which of two operands' NaN goes on, the algebra does not say. Nor do matrix ops."""


def allowed(case: Case, operands: list[Any], active: Any) -> Any:
    """Return the lanes on which the declaration asks for nothing that the operands do not keep."""
    if not isinstance(case.op.meaning, LaneFunction) or not case.types:
        return active
    algebra = NumpyAlgebra.of_lanes(WAVE)
    parts = [
        [NumpyLane(element_type(t), column.view(storage_dtype(element_type(t)))) for column in value.T]
        for t, value in zip(case.types, operands, strict=True)
    ]
    meaning = case.op.meaning
    with np.errstate(all="ignore"):
        if meaning.form == "components":
            meaning.body(
                algebra, *[[_copied(x) for x in part] for part in parts], result=case.results, **case.attributes
            )
        else:
            for n in range(component_count(case.results[0])):
                meaning.body(algebra, *(_copied(p[n if len(p) > 1 else 0]) for p in parts), **case.attributes)
    broken = np.zeros(WAVE, np.bool_)
    for _, where in algebra.violations:
        broken[where] = True
    return active & ~broken


def _copied(lane: NumpyLane) -> NumpyLane:
    return NumpyLane(lane.type, np.ascontiguousarray(lane.data))


class Bench:
    """One kernel that runs all cases of an op, each on the lanes of a mask; data lies in an array per scalar type."""

    def __init__(self, arch, found: list[Case]) -> None:
        self.cases = found
        scalars = {element_type(t) for case in found for t in (*case.types, *case.results)} | {I1}
        self.scalars = sorted(scalars, key=lambda t: t.name)
        parameters = [
            Parameter(name=f"{way}_{t.name}", type=PointerType(t), access=access, alignment=t.bytes)
            for t in self.scalars
            for way, access in (("in", "read"), ("out", "write"))
        ]
        self.sizes = {parameter.name: 0 for parameter in parameters}
        self.places: list[list[tuple[str, int, int]]] = []
        for case in found:
            columns = [("in", t) for t in case.types] + [("out", t) for t in case.results] + [("in", I1)]
            self.places.append([self._place(f"{way}_{element_type(t).name}", component_count(t)) for way, t in columns])
        self.kernel = build_kernel("every", parameters, arch=arch, block=WAVE, body=self._body)

    def _place(self, name: str, count: int) -> tuple[str, int, int]:
        begin = self.sizes[name]
        self.sizes[name] += WAVE * count
        return name, begin, count

    def _body(self, *pointers) -> None:
        by_name = dict(zip(self.sizes, pointers, strict=True))
        t = lanes.lane_id()

        def address(place):
            name, begin, count = place
            return memory.offset(by_name[name], t * count + begin)

        for case, places in zip(self.cases, self.places, strict=True):
            inner = places[: len(case.types)]
            outer = places[len(case.types) : -1]
            operands = [memory.load(address(place), count=place[2]) for place in inner]
            mask = memory.load(address(places[-1]))

            def run(case=case, operands=operands, outer=outer):
                for place, value in zip(outer, case.op.add(*operands, **case.attributes).results, strict=True):
                    memory.store(address(place), value)
                return ()

            if isinstance(case.op.meaning, (Matrix, LanePermutation)):
                run()
            else:
                control.if_else(mask, run)

    def arguments(self, seed: int, masked: bool):
        """Draw operands; with `masked` every case runs where its op asks for nothing that its operands do not keep."""
        random = np.random.default_rng(seed)
        arrays = {name: np.zeros(size, storage_of(name)) for name, size in self.sizes.items()}
        for case, places in zip(self.cases, self.places, strict=True):
            operands = []
            for name, begin, count in places[: len(case.types)]:
                drawn = bits_of(random, SCALARS[name[3:]], WAVE * count)
                if case.op.name == "core.uniform":
                    drawn = np.tile(drawn[:count], WAVE)
                arrays[name][begin : begin + WAVE * count] = drawn.view(arrays[name].dtype)
                operands.append(arrays[name][begin : begin + WAVE * count].reshape(WAVE, count))
            active = random.random(WAVE) < (1.0, 0.5, 0.1)[seed % 3] if masked else np.ones(WAVE, np.bool_)
            name, begin, _ = places[-1]
            arrays[name][begin : begin + WAVE] = allowed(case, operands, active) if masked else active
        return [arrays[name] for name in self.sizes]


def storage_of(name: str):
    element = SCALARS[name.partition("_")[2]]
    return np.dtype(np.bool_) if element == I1 else np.dtype(f"u{element.bytes}")


def in_both(kernel, arguments, grid=(1, 1, 1)):
    """Return what each engine leaves and how it fails; the fast one must have run the kernel itself."""
    left = []
    for engine in ("fast", "reference"):
        simulator, given = Simulator(engine=engine), arguments()
        try:
            simulator.launch(kernel, grid, given)
            left.append((given, None))
        except SimulationError as error:
            left.append((given, str(error)))
        assert simulator.notes == ()
    return left


def differing(bench: Bench, left) -> list[str]:
    """Return the cases whose results differ in a bit; of computed floats, in more than which NaN it is."""
    names, found = list(bench.sizes), []
    for case, places in zip(bench.cases, bench.places, strict=True):
        for type_, (name, begin, count) in zip(case.results, places[len(case.types) : -1], strict=True):
            a, b = (given[names.index(name)][begin : begin + WAVE * count] for given, _ in left)
            equal = a == b
            computed = isinstance(case.op.meaning, Matrix) or case.op.name.partition(".")[2] in COMPUTED
            if computed and type_ != I1 and element_type(type_) in (F32, F64):
                kind = storage_dtype(element_type(type_))
                equal |= np.isnan(a.view(kind)) & np.isnan(b.view(kind))
            if not equal.all():
                found.append(f"{case.types} {case.attributes} lane {int(np.argmin(equal)) // count}")
    return found


def own_cases(arch, op: OpDef) -> list[Case]:
    """Return an arch's cases, of a portable op those that no arch before it has."""
    found, (first, *_) = cases(arch, op), ARCHS.values()
    if arch is first or op.name not in PORTABLE:
        return found
    return [case for case in found if first.lacks(op.name, *case.types, *case.results) is not None]


REGISTER_OPS = [key for key, (arch, op) in OPS.items() if own_cases(arch, op)]


@pytest.mark.simulate
@pytest.mark.parametrize("key", REGISTER_OPS)
def test_an_op_on_registers(key):
    arch, op = OPS[key]
    bench = Bench(arch, own_cases(arch, op))
    for seed in range(6):
        left = in_both(bench.kernel, lambda seed=seed: bench.arguments(seed, masked=True))
        assert [fault for _, fault in left] == [None, None]
        assert differing(bench, left) == []
    left = in_both(bench.kernel, lambda: bench.arguments(9, masked=False))
    assert left[0][1] == left[1][1]


def of_kind(arch, action: str, space: str | None = None) -> list[OpDef]:
    """Return an arch's memory ops by what they do."""
    found = [op for op in arch.op_table if isinstance(op.meaning, MemoryAccess) and op.meaning.action == action]
    return [op for op in found if space in (None, op.meaning.space)]


def gives(op: OpDef, *types, **given) -> tuple[Any, ...] | None:
    """Return the result types of an op on operands of these types, None where it takes none such."""
    attributes = {attribute.name: given.get(attribute.name, attribute.default) for attribute in op.attributes}
    try:
        return op.result(types, attributes)
    except IRError:
        return None


def memory_kernel(arch, element, count: int):
    """Move elements through every kind of memory that the arch has, by every op that takes them; all lies in y."""
    block, buffer = WAVE * count, BufferType(element, 2 * WAVE * count)
    pointer, view_type = PointerType(element), ViewType(element)

    def body(x, y, extent):
        t, stored = lanes.lane_id(), itertools.count()

        def keep(value):
            memory.store(memory.offset(y, t * count + next(stored) * block), value)

        tile = memory.allocate(element, 2 * block)
        for op in of_kind(arch, "load", "global"):
            memory.workgroup_store(tile, t * count, op(memory.offset(x, t * count), count=count))
        for op in of_kind(arch, "load", "view"):
            if gives(op, view_type, I32, count=count):
                keep(op(memory.bound(x, extent), arithmetic.sub((t ^ 9) * count, 4), count=count))
        for op in of_kind(arch, "store", "view"):
            value = memory.load(memory.offset(x, (t ^ 3) * count), count=count)
            if gives(op, view_type, I32, value.type) is not None:
                op.add(memory.bound(y, extent), t * count + next(stored) * block, value)
        control.barrier()
        control.meet("half")
        for op in of_kind(arch, "load", "workgroup"):
            whole = {"count": count} if any(attribute.name == "count" for attribute in op.attributes) else {}
            if gives(op, buffer, I32, **whole) == (vector(element, count),):
                keep(op(tile, (t ^ 5) * count, **whole))
        for op in of_kind(arch, "stage"):
            through_view = op.meaning.space == "view"
            source = (view_type, I32) if through_view else (pointer,)
            if gives(op, *source, buffer, I32, count=count) is None:
                continue
            given = (memory.bound(x, extent), t * count) if through_view else (memory.offset(x, (t ^ 7) * count),)
            op.add(*given, tile, constant(block, I32), count=count)
            for wait in of_kind(arch, "wait"):
                wait.add()
            control.barrier()
            keep(memory.workgroup_load(tile, (t ^ 2) * count, count=count, offset=block))
            control.barrier()

    parameters = [
        Parameter(name="x", type=pointer, alignment=16),
        Parameter(name="y", type=pointer, access="write", alignment=16),
        Parameter(name="extent", type=I32),
    ]
    return build_kernel("memory", parameters, arch=arch, block=WAVE, body=body)


@pytest.mark.simulate
@pytest.mark.parametrize("count", [1, 2, 4, 8])
@pytest.mark.parametrize("element", SCALARS.values(), ids=str)
@pytest.mark.parametrize("name", ARCHS)
def test_memory(name, element, count):
    """NaNs and all other bits arrive as they were, through views that end before their data too."""
    kernel = memory_kernel(ARCHS[name], element, count)
    for extent in (WAVE * count, WAVE * count // 8 * 4):

        def arguments(extent=extent):
            x = bits_of(np.random.default_rng(count), element, WAVE * count)
            return [x, np.zeros(8 * WAVE * count, x.dtype), extent]

        (fast, fault), (reference, other) = in_both(kernel, arguments)
        assert (fault, other) == (None, None)
        assert fast[1].tobytes() == reference[1].tobytes()
        assert fast[1].any()


def adding_kernel(arch, element):
    """Lanes below a limit add to one of three places."""

    def body(x, y, limit):
        t = lanes.lane_id()

        def add():
            for op in of_kind(arch, "atomic_add"):
                op.add(memory.offset(y, t % 3), memory.load(memory.offset(x, t)))
            return ()

        control.if_else(t < limit, add)

    parameters = [
        Parameter(name="x", type=PointerType(element), alignment=4),
        Parameter(name="y", type=PointerType(element), access="readwrite", alignment=4),
        Parameter(name="limit", type=I32),
    ]
    return build_kernel("adding", parameters, arch=arch, block=WAVE, body=body)


@pytest.mark.simulate
@pytest.mark.parametrize("limit", [0, 1, 40, WAVE])
@pytest.mark.parametrize("element", [I32, F32], ids=str)
@pytest.mark.parametrize("name", ARCHS)
def test_additions_in_memory(name, element, limit):
    kernel = adding_kernel(ARCHS[name], element)
    for seed in range(4):

        def arguments(seed=seed):
            x = bits_of(np.random.default_rng(seed), element, WAVE)
            return [x, np.zeros(3, x.dtype), limit]

        (fast, fault), (reference, other) = in_both(kernel, arguments)
        assert (fault, other) == (None, None)
        a, b = (given[1].view(storage_dtype(element)) for given in (fast, reference))
        assert np.array_equal(a, b, equal_nan=element == F32)


def control_kernel(arch):
    """Loops of other lengths, branches in branches, barriers where all lanes of all waves come."""

    def body(x, y, rounds):
        t = lanes.thread_id()
        tile = memory.allocate(I32, 2 * WAVE)

        def around(index, held):
            def passed():
                memory.workgroup_store(tile, t, held[0])
                control.barrier()
                other = memory.workgroup_load(tile, t ^ (WAVE + 1))
                control.barrier()
                return [other]

            (given,) = control.if_else((index & 1).eq(0), passed, lambda: [held[0]])
            low = lanes.first_lane(given & 7)

            def deeper(step, sums):
                chosen = control.if_else(
                    (given ^ step) < t,
                    lambda: control.if_else((t & 3).eq(step & 3), lambda: [sums[0] ^ step], lambda: [sums[1]]),
                    lambda: [sums[0]],
                )
                return [sums[1], *chosen]

            pair = control.for_range(0, low, 1, [given, t], deeper)
            return [arithmetic.add(pair[0], pair[1], nsw=False)]

        control.schedule_fence()
        (total,) = control.for_range(0, rounds, 1, [memory.load(memory.offset(x, t))], around)
        memory.store(memory.offset(y, t + lanes.block_id(axis=0) * (2 * WAVE)), total)

    parameters = [
        Parameter(name="x", type=PointerType(I32), alignment=4),
        Parameter(name="y", type=PointerType(I32), access="write", alignment=4),
        Parameter(name="rounds", type=I32),
    ]
    return build_kernel("control", parameters, arch=arch, block=2 * WAVE, body=body)


@pytest.mark.simulate
@pytest.mark.parametrize("name", ARCHS)
def test_control(name):
    kernel = control_kernel(ARCHS[name])
    for rounds in (0, 1, 5):

        def arguments(rounds=rounds):
            x = bits_of(np.random.default_rng(rounds), I32, 2 * WAVE)
            return [x, np.zeros(6 * WAVE, np.uint32), rounds]

        (fast, fault), (reference, other) = in_both(kernel, arguments, (3, 1, 1))
        assert (fault, other) == (None, None)
        assert fast[1].tobytes() == reference[1].tobytes()


def uncompared(arch) -> set[str]:
    """Return the ops of an arch that no kernel of this file has."""
    kernels = [Bench(arch, found).kernel for op in arch.op_table if (found := cases(arch, op))]
    kernels += [memory_kernel(arch, element, count) for element in (I8, I16, I32) for count in (1, 2, 4, 8)]
    kernels += [adding_kernel(arch, I32), control_kernel(arch)]
    return {op.name for op in arch.op_table} - {op.name for kernel in kernels for op in kernel.walk()}


@pytest.mark.parametrize("name", ARCHS)
def test_every_op_is_compared(name):
    assert uncompared(ARCHS[name]) == set()


def test_an_op_that_is_not_compared_is_seen():
    """The control: an op whose operands nothing here draws."""
    odd = OpDef(
        name="toy.odd",
        operands=("x",),
        result=lambda types, _: vector_of_seven(types[0]),
        issue="vector",
        meaning=LaneFunction(lambda m, x: x),
        lowering=lambda w, op: None,
    )
    arch = ARCHS["gfx942"]
    assert uncompared(attrs.evolve(arch, ops=(*arch.ops, odd))) == {"toy.odd"}


def vector_of_seven(type_):
    if type_ != VectorType(F32, 7):
        raise IRError("takes seven f32")
    return (type_,)


@pytest.mark.simulate
def test_the_comparison_sees_one_bit_and_no_other_nan():
    bench = Bench(ARCHS["gfx942"], cases(*OPS["gfx942:core.fneg"])[:2])
    left = in_both(bench.kernel, lambda: bench.arguments(0, masked=True))
    assert differing(bench, left) == []
    name, begin, _ = bench.places[0][1]
    column = left[0][0][list(bench.sizes).index(name)]
    column[begin + 3] ^= 1
    [found] = differing(bench, left)
    assert "lane 3" in found
