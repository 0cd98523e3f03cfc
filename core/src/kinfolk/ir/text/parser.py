"""Text back to a kernel. Errors name line and column, what stands there and what was expected; nothing is executed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from kinfolk.errors import InternalError, IRError
from kinfolk.ir.builder import check_arity, complete_attributes, infer_results
from kinfolk.ir.op import Attribute, OpDef, OpTable
from kinfolk.ir.text.lexer import Word, unquoted
from kinfolk.ir.text.reader import Reader
from kinfolk.ir.types import PointerType, ScalarType, Type
from kinfolk.ir.value import Kernel, Location, Operation, Region, Value
from kinfolk.ir.verify import verify
from kinfolk.parameters import Parameter

DEEPEST_NESTING = 64
_Names = dict[str, Value]


def parse_kernel(text: str, table: OpTable) -> Kernel:
    """Return the kernel that `text` holds, verified; its ops are those of `table`.

    Names of values and the order of attributes are free; locations are lines of the text. Raises `IRError`.
    """
    kernel = _Parser(text, table).module()
    verify(kernel)
    return kernel


class _Parser(Reader):
    def __init__(self, text: str, table: OpTable) -> None:
        super().__init__(text)
        self._table = table
        self._depth = 0

    def module(self) -> Kernel:
        """Read the whole text."""
        self._opening("builtin.module")
        kernel = self._kernel()
        self._sign("}")
        self._closing()
        self._take("end", "the end of the text: a module holds one kernel")
        return kernel

    def _opening(self, name: str) -> None:
        word = self._take("string", f'"{name}"')
        if unquoted(self._text, word) != name:
            self._stop(f'"{name}"', word)
        for sign in "()({":
            self._sign(sign)

    def _closing(self, attributes: Callable[[], object] | None = None) -> object:
        """Read `) {…} : () -> ()`, with attributes where they are asked for, and return them."""
        self._sign(")")
        given = attributes() if attributes else None
        for sign in (":", "(", ")", "->", "(", ")"):
            self._sign(sign)
        return given

    def _kernel(self) -> Kernel:
        start = self._word
        self._opening("core.kernel")
        body = self._region({}, closing="}")
        head = cast("dict[str, object]", self._closing(lambda: self._dictionary(self._head_value)))
        for name, type_ in _HEAD.items():
            if type(head.get(name)) is not type_:
                self._refuse(start, f"core.kernel needs attribute {name}, of kind {type_.__name__}")
        rows = cast("list[tuple[Word, dict[str, object]]]", head["parameters"])
        types = [argument.type for argument in body.arguments]
        if len(rows) != len(types):
            self._refuse(start, f"the body takes {len(types)} values, {len(rows)} parameters are declared")
        return Kernel(
            name=cast("str", head["sym_name"]),
            parameters=tuple(self._parameter(*row, type_) for row, type_ in zip(rows, types, strict=True)),
            body=body,
            block=cast("int", head["block"]),
            wave_size=cast("int", head["wave_size"]),
            attributes=cast("dict[str, Attribute]", head["attributes"]),
        )

    def _head_value(self, name: str) -> object:
        if name not in _HEAD:
            self._stop(f"one of {', '.join(_HEAD)}", self._words[self._next - 2])
        if name == "attributes":
            return self._dictionary(lambda _: self._attribute())
        if name != "parameters":
            return self._attribute()
        rows: list[tuple[Word, dict[str, object]]] = []
        self._sign("[")
        self._several("]", lambda: rows.append((self._word, self._dictionary(lambda _: self._attribute()))))
        return rows

    def _parameter(self, word: Word, row: dict[str, object], type_: Type) -> Parameter:
        name, access, alignment = (row.get(key) for key in ("name", "access", "alignment"))
        bounds = {key: row[key] for key in ("minimum", "maximum") if key in row}
        if row.keys() - bounds.keys() != {"name", "access", "alignment"}:
            self._refuse(word, "a parameter has a name, an access, an alignment and perhaps a minimum and a maximum")
        if type(name) is not str or any(type(each) is not int for each in (alignment, *bounds.values())):
            self._refuse(word, "the name of a parameter is a string, its alignment and its bounds are integers")
        if access not in ("read", "write", "readwrite"):
            self._refuse(word, f"access of {name} is {access!r}, one of read, write, readwrite is allowed")
        if not isinstance(type_, (PointerType, ScalarType)):
            self._refuse(word, f"parameter {name} has type {type_}; it is a pointer or a scalar")
        numbers = cast("dict[str, int]", {"alignment": alignment, **bounds})
        try:
            return Parameter(name=name, type=type_, access=access, **numbers)
        except InternalError as error:
            self._refuse(word, str(error))

    def _region(self, outer: _Names, closing: str) -> Region:
        """Read a block and its operations up to the sign that closes it; names of `outer` are visible in it."""
        self._depth += 1
        if self._depth > DEEPEST_NESTING:
            self._stop(f"regions nested at most {DEEPEST_NESTING} deep")
        names = dict(outer)
        arguments: list[tuple[Word, Type]] = []
        if self._word.kind == "label":
            self._next += 1
            if self._has("("):
                self._several(")", lambda: arguments.append(self._argument()))
            self._sign(":")
        region = Region(tuple(type_ for _, type_ in arguments))
        for (word, _), argument in zip(arguments, region.arguments, strict=True):
            self._bind(names, word, argument)
        while not self._has(closing):
            region.operations.append(self._operation(names))
        self._depth -= 1
        return region

    def _argument(self) -> tuple[Word, Type]:
        word = self._take("value", "an argument such as %arg0")
        self._sign(":")
        return word, self._type()

    def _bind(self, names: _Names, word: Word, value: Value) -> None:
        if word.text in names:
            self._stop("a name that no value has yet", word)
        names[word.text] = value

    def _operation(self, names: _Names) -> Operation:
        results = self._results()
        start = self._take("string", "an operation such as \"core.add\", or '}'")
        name = unquoted(self._text, start)
        if name not in self._table:
            dialect = name.partition(".")[0] + "."
            known = ", ".join(op.name for op in self._table if op.name.startswith(dialect))
            self._stop(f"an op of the table{': ' + known if known else ''}", start)
        definition = self._table[name]
        operands, regions = self._operands(names), self._regions(names)
        attributes = self._operation_attributes(definition)
        self._sign(":")
        given = self._signature(tuple(value.type for value in operands))
        operation = self._checked(start, definition, operands, attributes, regions, given)
        if len(results) != len(operation.results):
            self._refuse(start, f"{name} gives {len(operation.results)} values, {len(results)} are named")
        for word, value in zip(results, operation.results, strict=True):
            self._bind(names, word, value)
        return operation

    def _results(self) -> list[Word]:
        if self._word.kind != "value":
            return []
        results = [self._take("value", "a value")]
        while self._has(","):
            results.append(self._take("value", "a value such as %0"))
        self._sign("=")
        return results

    def _operands(self, names: _Names) -> tuple[Value, ...]:
        operands: list[Value] = []

        def operand() -> None:
            word = self._take("value", "a value such as %0, or ')'")
            if word.text not in names:
                self._stop("a value that is defined above and visible here", word)
            operands.append(names[word.text])

        self._sign("(")
        self._several(")", operand)
        return tuple(operands)

    def _regions(self, names: _Names) -> tuple[Region, ...]:
        regions: list[Region] = []

        def region() -> None:
            self._sign("{")
            regions.append(self._region(names, closing="}"))

        if self._has("("):
            self._several(")", region)
        return tuple(regions)

    def _operation_attributes(self, definition: OpDef) -> Mapping[str, object]:
        if self._word.text != "{":
            return {}
        bits = {attribute.name for attribute in definition.attributes if attribute.kind == "bits"}
        return self._dictionary(lambda name: self._attribute(name in bits))

    def _signature(self, operands: tuple[Type, ...]) -> tuple[Type, ...]:
        """Read `(i32, f32) -> f32`: the operands' types must be these; return the results'."""
        start = self._word
        written = self._types()
        if written != operands:
            self._stop(f"the operands' types ({', '.join(map(str, operands))})", start)
        self._sign("->")
        return self._types() if self._word.text == "(" else (self._type(),)

    def _checked(
        self,
        start: Word,
        definition: OpDef,
        operands: tuple[Value, ...],
        attributes: Mapping[str, object],
        regions: tuple[Region, ...],
        given: tuple[Type, ...],
    ) -> Operation:
        """Return the operation, if the declaration of its op allows it."""
        try:
            if len(regions) != definition.regions:
                raise IRError(f"has {definition.regions} regions, got {len(regions)}")
            check_arity(definition, len(operands))
            complete = complete_attributes(definition, attributes)
            types = infer_results(definition, tuple(value.type for value in operands), complete, regions)
        except IRError as error:
            self._refuse(start, f"{definition.name}: {error}")
        if types != given:
            expected, found = (", ".join(map(str, row)) or "nothing" for row in (types, given))
            self._refuse(start, f"{definition.name} gives {expected}, it is written as {found}")
        line = self._text.count("\n", 0, start.offset) + 1
        return Operation(definition, operands, complete, types, regions, Location((("kernel text", line),)))


_HEAD: dict[str, type] = {"sym_name": str, "block": int, "wave_size": int, "parameters": list, "attributes": dict}
