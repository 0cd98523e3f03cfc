"""A copy of a kernel in which one operation is another, or is gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from kinfolk.ir.builder import complete_attributes, float_bits, infer_results
from kinfolk.ir.op import Attribute, OpDef
from kinfolk.ir.ops import vector
from kinfolk.ir.types import DataType, VectorType, element_type
from kinfolk.ir.value import Kernel, Operation, Region, Value

Edit = Callable[["Place"], Sequence[Value]]
"""Builds what stands in an operation's place, and returns the values that its results are instead."""


class Place:
    """Where an operation stood: its operands and regions in the copy, and the way to build others there."""

    def __init__(self, op: Operation, regions: tuple[Region, ...], values: dict[Value, Value]) -> None:
        self.op = op
        self.regions = regions
        self.operands = tuple(values[operand] for operand in op.operands)
        self.operations: list[Operation] = []
        self._values = values

    def value(self, of: Value) -> Value:
        """Return the copy of a value that is defined where the operation stands."""
        return self._values[of]

    def build(
        self,
        definition: OpDef,
        operands: Sequence[Value],
        attributes: dict[str, Attribute] | None = None,
        regions: tuple[Region, ...] = (),
    ) -> tuple[Value, ...]:
        """Append an operation and return its results; IRError where its operands do not fit."""
        complete = complete_attributes(definition, attributes or {})
        types = infer_results(definition, tuple(value.type for value in operands), complete, regions)
        built = Operation(definition, tuple(operands), complete, types, regions, self.op.location)
        self.operations.append(built)
        return built.results

    def again(
        self,
        operands: Sequence[Value] | None = None,
        definition: OpDef | None = None,
        **attributes: Attribute,
    ) -> tuple[Value, ...]:
        """Append the operation itself with other operands, another declaration or other attributes."""
        return self._again(
            definition or self.op.definition, self.operands if operands is None else operands, attributes
        )

    def with_attributes(self, attributes: Mapping[str, Attribute]) -> tuple[Value, ...]:
        """Append the operation itself with other attributes."""
        return self._again(self.op.definition, self.operands, attributes)

    def _again(
        self, definition: OpDef, operands: Sequence[Value], attributes: Mapping[str, Attribute]
    ) -> tuple[Value, ...]:
        names = {attribute.name for attribute in definition.attributes}
        kept = {name: value for name, value in self.op.attributes.items() if name in names}
        return self.build(definition, operands, {**kept, **attributes}, self.regions)

    def bits(self, bits: int, type_: DataType) -> Value:
        """Append a constant of these storage bits; a vector has it in every component."""
        (scalar,) = self.build(vector.constant, (), {"to": element_type(type_), "bits": bits})
        return (
            self.build(vector.splat, (scalar,), {"count": type_.count})[0] if isinstance(type_, VectorType) else scalar
        )

    def constant(self, value: float, type_: DataType) -> Value:
        """Append a constant; integers wrap."""
        element = element_type(type_)
        if element.kind == "float":
            return self.bits(float_bits(float(value), element), type_)
        return self.bits(int(value) & ((1 << element.bits) - 1), type_)


@attrs.frozen(eq=False)
class _Copy:
    edits: Mapping[Operation, Edit]
    values: dict[Value, Value] = attrs.field(factory=dict[Value, Value])

    def region(self, region: Region) -> Region:
        copied = Region(tuple(argument.type for argument in region.arguments))
        self.values.update(zip(region.arguments, copied.arguments, strict=True))
        for op in region.operations:
            regions = tuple(self.region(inner) for inner in op.regions)
            edit = self.edits.get(op)
            if edit is not None:
                place = Place(op, regions, self.values)
                results = edit(place)
                copied.operations += place.operations
            else:
                operands = tuple(self.values[operand] for operand in op.operands)
                types = tuple(value.type for value in op.results)
                again = Operation(op.definition, operands, op.attributes, types, regions, op.location)
                copied.operations.append(again)
                results = again.results
            self.values.update(zip(op.results, results, strict=True))
        return copied


def rewritten(kernel: Kernel, target: Operation, edit: Edit) -> Kernel:
    """Return a copy of `kernel` in which `edit` has built what stands in the place of `target`; it is not verified.

    Raises IRError where what is built does not fit, and ValueError where `target` is no operation of the kernel.
    """
    if target not in kernel.walk():
        raise ValueError(f"{target.name} at {target.location} is no operation of {kernel.name}")
    return all_rewritten(kernel, {target: edit})


def all_rewritten(kernel: Kernel, edits: Mapping[Operation, Edit]) -> Kernel:
    """Return a copy of `kernel` with each of `edits` in the place of its operation, as `rewritten` has one."""
    return attrs.evolve(kernel, body=_Copy(edits).region(kernel.body))
