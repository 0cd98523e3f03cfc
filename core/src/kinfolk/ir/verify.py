"""The verifier: the rules of SSA and of the op table, checked on a finished kernel however it came about."""

from __future__ import annotations

import re
from typing import NoReturn

import numpy as np

from kinfolk.errors import IRError
from kinfolk.ir.builder import check_arity, complete_attributes, infer_results
from kinfolk.ir.meaning import Control, LanePermutation, MemoryAccess
from kinfolk.ir.op import is_attribute
from kinfolk.ir.value import Kernel, Operation, Region, Value

_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]*", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def verify(kernel: Kernel) -> None:
    """Raise `IRError` naming the op and its source line unless `kernel` keeps every rule."""
    _head(kernel)
    expected = tuple(parameter.type for parameter in kernel.parameters)
    got = tuple(argument.type for argument in kernel.body.arguments)
    if expected != got:
        raise IRError(f"{kernel.name}: the body takes {_types(got)}, the parameters are {_types(expected)}")
    _Verifier(kernel).region(kernel.body, set(), "return", top=True)


def _head(kernel: Kernel) -> None:
    if not _SYMBOL.fullmatch(kernel.name):
        raise IRError(f"{kernel.name!r} is no name of a kernel: letters, digits and _ . $ make one")
    if kernel.wave_size <= 0 or kernel.block <= 0 or kernel.block % kernel.wave_size:
        raise IRError(f"{kernel.name}: block {kernel.block} is not a whole number of waves of {kernel.wave_size}")
    names = [parameter.name for parameter in kernel.parameters]
    if len(set(names)) != len(names):
        raise IRError(f"{kernel.name}: two parameters have one name among {', '.join(names)}")
    for name in [*names, *kernel.attributes]:
        if not _NAME.fullmatch(name):
            raise IRError(
                f"{kernel.name}: {name!r} is no name of a parameter or attribute: letters, digits and _ make one"
            )
    for name, value in kernel.attributes.items():
        if not is_attribute(value):
            raise IRError(
                f"{kernel.name}: attribute {name} is a bool, an i64, a str, integers or a type, got {value!r}"
            )


class _Verifier:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def region(self, region: Region, visible: set[Value], terminator: str, top: bool = False) -> None:
        known = visible | set(region.arguments)
        if not region.operations:
            raise IRError(f"{self._kernel.name}: a region is empty; it ends in {terminator}")
        for position, operation in enumerate(region.operations):
            last = position + 1 == len(region.operations)
            meaning = operation.definition.meaning
            ends = isinstance(meaning, Control) and meaning.kind in ("yield", "return")
            if ends != last or (last and isinstance(meaning, Control) and meaning.kind != terminator):
                self._fail(operation, f"a region ends in exactly one {terminator}")
            if isinstance(meaning, LanePermutation):
                self._permutation(operation, meaning)
            if isinstance(meaning, MemoryAccess) and meaning.action == "allocate" and not top:
                self._fail(operation, "workgroup memory is allocated outside loops and branches")
            self.operation(operation, known)
            if any(result in known for result in operation.results):
                self._fail(operation, "stands in the kernel twice")
            known.update(operation.results)

    def operation(self, operation: Operation, known: set[Value]) -> None:
        for index, operand in enumerate(operation.operands):
            if operand not in known:
                self._fail(operation, f"operand {index} is used where its value is not defined")
        try:
            check_arity(operation.definition, len(operation.operands))
            complete = complete_attributes(operation.definition, operation.attributes)
            if complete != operation.attributes:
                raise IRError(f"lacks attribute {', '.join(sorted(complete.keys() - operation.attributes.keys()))}")
            if len(operation.regions) != operation.definition.regions:
                raise IRError(f"has {operation.definition.regions} regions, got {len(operation.regions)}")
            types = infer_results(
                operation.definition, tuple(value.type for value in operation.operands), complete, operation.regions
            )
        except IRError as error:
            self._fail(operation, str(error))
        got = tuple(value.type for value in operation.results)
        if types != got:
            self._fail(operation, f"gives {_types(types)}, it is written as {_types(got)}")
        if operation.attributes.get("invariant") is True:
            self._invariant(operation)
        self._regions(operation, known)

    def _invariant(self, operation: Operation) -> None:
        """What is read as invariant belongs to a parameter that the kernel does not write."""
        pointer = operation.operands[0]
        while (owner := pointer.defining_op) is not None and _is_offset(owner):
            pointer = owner.operands[0]
        if pointer.owner is not self._kernel.body:
            self._fail(operation, "is invariant: its pointer must come from a parameter, by offsets alone")
        parameter = self._kernel.parameters[pointer.index]
        if parameter.access != "read":
            self._fail(
                operation, f"is invariant, but the kernel may write what {parameter.name} points to: {parameter.access}"
            )

    def _regions(self, operation: Operation, known: set[Value]) -> None:
        meaning = operation.definition.meaning
        for region in operation.regions:
            self.region(region, known, "yield")
        if not isinstance(meaning, Control):
            return
        if meaning.kind == "if" and any(region.arguments for region in operation.regions):
            self._fail(operation, "a branch takes no arguments")
        if meaning.kind == "for":
            (region,) = operation.regions
            carried = tuple(value.type for value in operation.operands[3:])
            arguments = tuple(value.type for value in region.arguments)
            yielded = tuple(value.type for value in region.operations[-1].operands)
            if arguments[1:] != carried or yielded != carried or arguments[:1] != (operation.operands[0].type,):
                self._fail(
                    operation,
                    f"carries {_types(carried)}, its body takes {_types(arguments[1:])} and yields {_types(yielded)}",
                )

    def _permutation(self, operation: Operation, meaning: LanePermutation) -> None:
        """Every lane reads from a lane of the wave."""
        waves = self._kernel.wave_size
        for operand, lanes in meaning.sources(waves, np.ones(waves, np.bool_), **operation.attributes):
            if lanes.shape != (waves,) or lanes.min() < 0 or lanes.max() >= waves:
                self._fail(operation, f"reads lane {lanes.max()}, a wave has {waves} lanes")
            if not set(np.unique(operand).tolist()) <= set(range(len(operation.operands))):
                self._fail(operation, f"reads operands {np.unique(operand).tolist()}, it has {len(operation.operands)}")

    def _fail(self, operation: Operation, message: str) -> NoReturn:
        raise IRError(f"{self._kernel.name}: {operation.name}: {message} (at {operation.location})")


def _is_offset(operation: Operation) -> bool:
    meaning = operation.definition.meaning
    return isinstance(meaning, MemoryAccess) and meaning.action == "offset"


def _types(types: tuple[object, ...]) -> str:
    return ", ".join(map(str, types)) or "nothing"
