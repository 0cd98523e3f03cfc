"""Which calls the lowerings of an arch write: collected by lowering each op for every operand type it takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import product
from typing import Any, Final

import attrs

from kinfolk.arch import Arch
from kinfolk.errors import IRError
from kinfolk.ir import build_kernel
from kinfolk.ir.meaning import Matrix
from kinfolk.ir.op import Attribute, AttributeDef, OpDef
from kinfolk.ir.ops import arithmetic, memory, vector
from kinfolk.ir.types import (
    BF16,
    F32,
    I1,
    I32,
    SCALARS,
    BufferType,
    DataType,
    PointerType,
    ScalarType,
    Type,
    VectorType,
    ViewType,
    component_count,
    element_type,
)
from kinfolk.ir.types import vector as vector_of
from kinfolk.ir.value import Kernel, Operation, Value
from kinfolk.parameters import Parameter
from kinfolk_amdgcn.legality.statement import Statement
from kinfolk_amdgcn.legality.table import Legality, Row
from kinfolk_amdgcn.lowering import target_for
from kinfolk_amdgcn.lowering.watch import WatchedWriter

COUNTS: Final = (1, 2, 4, 8)
INTEGERS: Final = (0, 1, 2, 4, 8, 12, 16, 32)
MOST_LOADED_BYTES: Final = 16
TUPLES: Final = ((0, 1, 2, 3), (1, 0), (0,))
_ELEMENTS: Final = tuple(SCALARS.values())
_FEW: Final = (I1, I32, F32, BF16)  # where three operands would be too many combinations
_BUFFER_ELEMENTS: Final = 256


def candidates() -> tuple[Statement, ...]:
    """Return the statements of interest that no lowering needs to write, one a line in `candidates.txt`."""
    lines = (files("kinfolk_amdgcn.legality") / "candidates.txt").read_text(encoding="utf-8").splitlines()
    return tuple(Statement(line) for line in lines if line)


def statements_of(
    arch: Arch, llvms: Iterable[int], known: Iterable[Statement]
) -> dict[Statement, dict[int, tuple[str, ...]]]:
    """Return what the ops of an arch write, per LLVM generation the ops that do.

    A call that differs from a known statement in literals alone, where those do not choose, is that statement. What the
    arch lacks by the table it has now is lowered too, so that a new measurement finds again what it lacks.
    """
    arch = attrs.evolve(arch, lacking={})
    table = Legality(tuple(Row(statement=each, status={}) for each in known))
    found: dict[Statement, dict[int, set[str]]] = {}
    for op in arch.op_table:
        for kernel in samples(op, arch):
            for llvm in llvms:
                for call in calls_of(kernel, arch, llvm):
                    row = table.find(call)
                    if row is None:
                        row = Row(statement=call, status={})
                        table = Legality((*table.rows, row))
                    found.setdefault(row.statement, {}).setdefault(llvm, set()).add(op.name)
    return {
        each: {llvm: tuple(sorted(ops)) for llvm, ops in sorted(uses.items())} for each, uses in sorted(found.items())
    }


def calls_of(kernel: Kernel, arch: Arch, llvm: int) -> tuple[Statement, ...]:
    """Return the calls that lowering writes for the operation that a sample is about: the last before its return."""
    about, seen = kernel.body.operations[-2], list[Statement]()

    def watch(op: Operation, call: Statement) -> None:
        if op is about:
            seen.append(call)

    writer = WatchedWriter(kernel, arch, target_for(arch, llvm), llvm, watch)
    writer.name_parameters()
    writer.region(kernel.body)
    return tuple(seen)


def samples(op: OpDef, arch: Arch) -> Iterator[Kernel]:
    """Yield kernels that end with `op`: one for each of the operand types and attributes that its rule takes."""
    if op.regions or op.name in ("core.return", "core.yield"):
        return
    for types, attributes in accepted(op):

        def body(*parameters: Value, types: Sequence[Type] = types, attributes: Any = attributes) -> None:
            operands = [_value(type_, parameters) for type_ in types]
            op.add(*operands, **attributes)

        try:
            yield build_kernel("sample", _PARAMETERS, arch=arch, block=2 * arch.wave_size, body=body)
        except IRError:
            continue


def accepted(op: OpDef) -> Iterator[tuple[tuple[Type, ...], Mapping[str, Attribute]]]:
    """Yield the operand types and attributes that an op's rule takes."""
    if isinstance(op.meaning, Matrix):
        shape = op.meaning
        parts = ((shape.a_type, shape.a), (shape.b_type, shape.b), (shape.c_type, shape.c))
        yield tuple(vector_of(type_, operand.slots) for type_, operand in parts), {}
        return
    if any(name.endswith("*") for name in op.operands):
        return
    pools = [_attribute_pool(attribute) for attribute in op.attributes]
    types = _operand_types(_ELEMENTS if len(op.operands) < 3 else _FEW)
    for values in product(*pools):
        attributes = {attribute.name: value for attribute, value in zip(op.attributes, values, strict=True)}
        for operands in product(types, repeat=len(op.operands)):
            try:
                op.result(operands, attributes)
            except (IRError, AssertionError, AttributeError, KeyError, IndexError, TypeError):
                continue
            yield operands, attributes


def _attribute_pool(attribute: AttributeDef) -> tuple[Attribute, ...]:
    if attribute.default is not None and attribute.name != "count":
        return (attribute.default,)
    if attribute.kind == "type":
        return tuple(vector_of(element, count) for element in _ELEMENTS for count in COUNTS)
    pools: dict[str, tuple[Attribute, ...]] = {
        "bool": (False,),
        "int": INTEGERS,
        "bits": (0,),
        "str": attribute.choices,
        "ints": TUPLES,
    }
    return pools[attribute.kind]


def _operand_types(elements: Sequence[ScalarType]) -> tuple[Type, ...]:
    data = [vector_of(element, count) for element in elements for count in COUNTS]
    places = [element for element in elements if element != I1]
    pointers: list[Type] = [PointerType(element) for element in places]
    return (*data, *pointers, *map(ViewType, places), *(BufferType(element, _BUFFER_ELEMENTS) for element in places))


def _parameter(element: ScalarType) -> Parameter:
    return Parameter(name=f"p_{element.name}", type=PointerType(element), access="readwrite", alignment=16)


_PLACES: Final = tuple(element for element in _ELEMENTS if element != I1)
_PARAMETERS: Final = (*map(_parameter, _PLACES), Parameter(name="n", type=I32))


def _value(type_: Type, parameters: Sequence[Value]) -> Value:
    """Return a value of a type that the compiler knows nothing of."""
    *pointers, count = parameters
    by_element = dict(zip(_PLACES, pointers, strict=True))
    match type_:
        case PointerType():
            return memory.offset(by_element[type_.element], count)
        case ViewType():
            return memory.bound(by_element[type_.element], count)
        case BufferType():
            return memory.ALLOCATE(element=type_.element, count=type_.count)
        case ScalarType() | VectorType() if element_type(type_) == I1:
            words = _value(vector_of(I32, component_count(type_)), parameters)
            return arithmetic.icmp(words, words, predicate="ne")
        case ScalarType() | VectorType():
            return _loaded(type_, by_element[element_type(type_)])


def _loaded(type_: DataType, pointer: Value) -> Value:
    """Return a loaded value; one wider than a load repeats a component, which no lowering can tell."""
    count, element = component_count(type_), element_type(type_)
    if count * element.bytes <= MOST_LOADED_BYTES:
        return memory.load(pointer, count=count)
    return vector.splat(memory.load(pointer), count=count)
