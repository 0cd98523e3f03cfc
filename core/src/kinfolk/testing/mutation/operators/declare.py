"""What an operator of mutation is, and what several of them ask of an operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs
import numpy as np

from kinfolk.ir.meaning import Control, LaneFunction
from kinfolk.ir.numpy_lanes import NumpyAlgebra, NumpyLane, storage_dtype
from kinfolk.ir.ops import vector
from kinfolk.ir.types import DataType, ScalarType, VectorType, element_type
from kinfolk.ir.value import Kernel, Operation, Region, Value
from kinfolk.testing.mutation.rewrite import Edit, Place


@attrs.frozen(eq=False)
class Change:
    """One way in which an operation can be wrong: `about` in a phrase, `edit` what stands there instead.

    `in_code`: compiled code shows it; else it is a change of what an op means, of which a compiler knows nothing.
    """

    about: str
    edit: Edit
    in_code: bool = True


@attrs.frozen(eq=False)
class Surroundings:
    """A kernel, and for each of its operations the region in which it stands and its place there.

    `rare` are the operations that decide nothing but whether a short cut is taken.
    """

    kernel: Kernel
    places: Mapping[Operation, tuple[Region, int]]
    rare: frozenset[Operation]

    @classmethod
    def of(cls, kernel: Kernel) -> Surroundings:
        """Survey a kernel."""
        places: dict[Operation, tuple[Region, int]] = {}
        regions = [kernel.body]
        while regions:
            region = regions.pop()
            for number, op in enumerate(region.operations):
                places[op] = (region, number)
                regions += op.regions
        return cls(kernel, places, _deciding_short_cuts(kernel))

    def before(self, op: Operation) -> Iterator[Operation]:
        """Yield the operations before `op` in its region, the nearest first."""
        region, number = self.places[op]
        return reversed(region.operations[:number])


def is_short_cut(op: Operation) -> bool:
    """Whether an operation is a branch whose first side is rarely taken, and writes nothing: the other is a short cut
    past it, and it may be taken at any time.
    """
    if not is_control(op, "if") or op.attributes.get("cold") is not True:
        return False
    return not any({"writes", "barrier"} & each.definition.effects for each in op.regions[0].walk())


def _deciding_short_cuts(kernel: Kernel) -> frozenset[Operation]:
    ops = list(kernel.walk())
    users: dict[Value, list[Operation]] = {}
    for op in ops:
        for operand in op.operands:
            users.setdefault(operand, []).append(op)
    found: set[Operation] = set()
    for op in reversed(ops):
        if op.regions or not op.results or {"writes", "barrier"} & op.definition.effects:
            continue
        using = [user for value in op.results for user in users.get(value, ())]
        if using and all(user in found or is_short_cut(user) for user in using):
            found.add(op)
    return frozenset(found)


Changes = Callable[[Operation, Surroundings], Iterator[Change]]


@attrs.frozen
class Operator:
    """A kind of mistake. `changes` yields each way of making it at an operation, none where it does not apply.

    One that is `marginal` only moves where a line is drawn. That a short cut is taken a little more or less often
    is no mistake but a choice between two right ways: a marginal operator leaves alone what decides nothing else.
    """

    name: str
    about: str
    changes: Changes
    marginal: bool = False


def operand_replaced(number: int, make: Callable[[Place, Value], Value]) -> Edit:
    """Return the edit in which operand `number` is what `make` builds of it."""

    def edit(place: Place) -> Sequence[Value]:
        operands = list(place.operands)
        operands[number] = make(place, operands[number])
        return place.again(operands)

    return edit


def operands_swapped(a: int, b: int) -> Edit:
    """Return the edit in which two operands have changed places."""

    def edit(place: Place) -> Sequence[Value]:
        operands = list(place.operands)
        operands[a], operands[b] = operands[b], operands[a]
        return place.again(operands)

    return edit


def result_is(number: int) -> Edit:
    """Return the edit in which the result is operand `number`, and nothing is computed."""
    return lambda place: (place.operands[number],)


def dropped(place: Place) -> Sequence[Value]:
    """Build nothing, in place of an operation without results."""
    return ()


def constant_bits(value: Value) -> int | None:
    """Return the bits of a constant, or of the one scalar that all components of a constant vector are; else None."""
    op = value.defining_op
    if op is not None and op.definition is vector.splat:
        op = op.operands[0].defining_op
    if op is None or op.definition is not vector.constant:
        return None
    bits = op.attributes["bits"]
    assert isinstance(bits, int)
    return bits


def operand_name(op: Operation, number: int) -> str:
    """Return what the declaration calls an operand; of a list, the name with the place in it."""
    names = op.definition.operands
    if number < len(names) - 1 or not names[-1].endswith("*"):
        return names[number]
    return f"{names[-1][:-1]}[{number - len(names) + 1}]"


def is_control(op: Operation, kind: str) -> bool:
    """Whether an operation is control of a kind."""
    meaning = op.definition.meaning
    return isinstance(meaning, Control) and meaning.kind == kind


_SAMPLES = 256
_commuting: dict[tuple[object, ...], bool] = {}


def commutes(op: Operation, a: int, b: int) -> bool:
    """Whether a lane function of scalars is the same with two operands swapped, as far as many operands show."""
    meaning = op.definition.meaning
    if not isinstance(meaning, LaneFunction) or meaning.form != "elementwise":
        return False
    types = tuple(element_type(value.type) for value in op.operands)
    key = (op.definition.name, types, a, b, *op.attributes.items())
    if key not in _commuting:
        _commuting[key] = _commutes(op, meaning, types, a, b)
    return _commuting[key]


def _commutes(op: Operation, meaning: LaneFunction, types: Sequence[ScalarType], a: int, b: int) -> bool:
    generator = np.random.default_rng(0)
    operands = [NumpyLane(type_, _drawn(type_, generator)) for type_ in types]
    swapped = list(operands)
    swapped[a], swapped[b] = swapped[b], swapped[a]
    with np.errstate(all="ignore"):
        one, other = (
            meaning.body(NumpyAlgebra.of_lanes(_SAMPLES), *each, **op.attributes) for each in (operands, swapped)
        )
    return bool(np.all((one.data == other.data) | ((one.data != one.data) & (other.data != other.data))))


def _drawn(type_: ScalarType, generator: np.random.Generator) -> np.ndarray:
    """Return small numbers of both signs, and bits of any kind."""
    dtype = storage_dtype(type_)
    if dtype == np.bool_:
        return generator.integers(0, 2, _SAMPLES).astype(np.bool_)
    small = generator.integers(-9, 9, _SAMPLES // 2)
    if dtype.kind == "f":
        return np.concatenate([small, generator.standard_normal(_SAMPLES // 2)]).astype(dtype)
    words = generator.integers(0, 1 << min(type_.bits, 62), _SAMPLES // 2)
    return np.concatenate([small, words]).astype(np.int64).astype(dtype)


def is_integer(type_: object, least_bits: int = 8) -> bool:
    """Whether a type is a scalar or vector of integers of so many bits."""
    return isinstance(type_, (ScalarType, VectorType)) and (
        element_type(type_).kind == "int" and element_type(type_).bits >= least_bits
    )


def plus(amount: int) -> Callable[[Place, Value], Value]:
    """Return what adds to an integer, wrapping."""
    from kinfolk.ir.ops import arithmetic

    def make(place: Place, value: Value) -> Value:
        assert isinstance(value.type, DataType)
        return place.build(arithmetic.add, (value, place.constant(amount, value.type)))[0]

    return make
