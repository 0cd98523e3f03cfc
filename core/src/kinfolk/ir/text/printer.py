"""A kernel as text: MLIR's generic syntax, all attributes written out, floats as their storage bits, no locations."""

from __future__ import annotations

from collections.abc import Sequence

from kinfolk.errors import IRError
from kinfolk.ir.op import Attribute
from kinfolk.ir.types import ScalarType, Type, element_type
from kinfolk.ir.value import Kernel, Operation, Region, Value
from kinfolk.parameters import Parameter

_INDENT = "  "


def print_kernel(kernel: Kernel) -> str:
    """Return the text of a kernel: a module that holds it alone.

    Values are numbered in order of the text, attributes stand in declared order with their defaults. Kernels of equal
    text are equal but for the source lines they were built at.
    """
    printer = _Printer()
    printer.line(0, '"builtin.module"() ({')
    printer.line(1, '"core.kernel"() ({')
    printer.region(kernel.body, 2)
    printer.line(1, f"}}) {_head(kernel)} : () -> ()")
    printer.line(0, "}) : () -> ()")
    return "\n".join([*printer.lines, ""])


def _head(kernel: Kernel) -> str:
    options = {name: _attribute(kernel.attributes[name]) for name in sorted(kernel.attributes)}
    return _dictionary(
        {
            "sym_name": quoted(kernel.name),
            "block": _attribute(kernel.block),
            "wave_size": _attribute(kernel.wave_size),
            "parameters": f"[{', '.join(_parameter(parameter) for parameter in kernel.parameters)}]",
            "attributes": _dictionary(options) or "{}",
        }
    )


def _parameter(parameter: Parameter) -> str:
    bounds = {"minimum": parameter.minimum, "maximum": parameter.maximum}
    return _dictionary(
        {
            "name": quoted(parameter.name),
            "access": quoted(parameter.access),
            "alignment": _attribute(parameter.alignment),
            **{name: _attribute(bound) for name, bound in bounds.items() if bound is not None},
        }
    )


def _dictionary(items: dict[str, str]) -> str:
    return "{" + ", ".join(f"{name} = {value}" for name, value in items.items()) + "}" if items else ""


def _attribute(value: Attribute) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return f"{value} : i64"
        case str():
            return quoted(value)
        case tuple():
            return f"array<i64: {', '.join(map(str, value))}>" if value else "array<i64>"
        case _:
            return str(value)


def quoted(text: str) -> str:
    """Return a string literal: printable ASCII as it is, all else as the hex of its UTF-8 bytes."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise IRError(f"the text of an attribute is {text!r}, which UTF-8 cannot hold") from None
    return '"' + "".join(_escaped(byte) for byte in data) + '"'


def _escaped(byte: int) -> str:
    if byte == ord("\\"):
        return r"\\"
    return chr(byte) if 0x20 <= byte < 0x7F and byte != ord('"') else f"\\{byte:02X}"


def _bits(value: Attribute, operation: Operation) -> str:
    """Return storage bits as a hex integer of the width of the result they are the bits of."""
    assert isinstance(value, int)
    width = element_type(operation.results[0].type).bits if operation.results else 64
    return f"0x{value:0{max(1, width // 4)}X} : {ScalarType(f'i{width}', width, 'int')}"


class _Printer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self._names: dict[Value, str] = {}
        self._results = 0
        self._arguments = 0

    def line(self, depth: int, text: str) -> None:
        self.lines.append(_INDENT * depth + text)

    def region(self, region: Region, depth: int) -> None:
        """Write a region's label, where it takes arguments, and its operations at `depth`."""
        if region.arguments:
            for argument in region.arguments:
                self._names[argument] = f"%arg{self._arguments}"
                self._arguments += 1
            arguments = ", ".join(f"{self._names[argument]}: {argument.type}" for argument in region.arguments)
            self.line(depth - 1, f"^bb0({arguments}):")
        for operation in region.operations:
            self._operation(operation, depth)

    def _operation(self, operation: Operation, depth: int) -> None:
        operands = ", ".join(self._operand(operation, operand) for operand in operation.operands)
        # Nested regions come before the results in the text, but the results are named first: they stand to their left.
        for result in operation.results:
            self._names[result] = f"%{self._results}"
            self._results += 1
        results = ", ".join(self._names[result] for result in operation.results)
        opening = f'{results + " = " if results else ""}"{operation.name}"({operands})'
        for position, region in enumerate(operation.regions):
            self.line(depth, f"{opening} ({{" if position == 0 else "}, {")
            self.region(region, depth + 1)
        attributes = _dictionary(self._attributes(operation))
        closing = f"{' ' + attributes if attributes else ''} : {_signature(operation)}"
        self.line(depth, f"}}){closing}" if operation.regions else f"{opening}{closing}")

    def _operand(self, operation: Operation, operand: Value) -> str:
        if operand not in self._names:
            raise IRError(f"{operation.name} uses a value that nothing above it defines (at {operation.location})")
        return self._names[operand]

    def _attributes(self, operation: Operation) -> dict[str, str]:
        bits = {attribute.name for attribute in operation.definition.attributes if attribute.kind == "bits"}
        declared = [attribute.name for attribute in operation.definition.attributes]
        return {
            name: _bits(operation.attributes[name], operation)
            if name in bits
            else _attribute(operation.attributes[name])
            for name in declared
        }


def _signature(operation: Operation) -> str:
    operands = [operand.type for operand in operation.operands]
    results = [result.type for result in operation.results]
    given = str(results[0]) if len(results) == 1 else _types(results)
    return f"{_types(operands)} -> {given}"


def _types(types: Sequence[Type]) -> str:
    return f"({', '.join(map(str, types))})"
