"""Values, operations, regions and kernels: SSA with nested regions of one block each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from kinfolk.errors import InternalError
from kinfolk.ir.types import ScalarType, Type, VectorType

if TYPE_CHECKING:
    from kinfolk.ir.op import Attribute, OpDef
    from kinfolk.parameters import Parameter


@attrs.frozen
class Location:
    """Where in an emitter an op was built: innermost first, the toolkit's line and then its caller's."""

    frames: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return ", called from ".join(f"{path}:{line}" for path, line in self.frames) or "unknown source"


class Value:
    """One SSA value. Python operators on it build ops.

    `+ - *` (integers: signed, no wrap), `// %` (unsigned), `& | ^ << >>` (logical), `< <= > >=` (signed, ordered).
    """

    __slots__ = ("index", "owner", "type")

    def __init__(self, type_: Type, owner: Operation | Region, index: int) -> None:
        self.type = type_
        self.owner = owner
        self.index = index

    def __bool__(self) -> bool:
        raise TypeError(
            "a device value has no truth value while a kernel is built; use if_else, select, or a Python constant"
        )

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        if isinstance(other, (Value, int, float)):
            raise TypeError(
                "a device value is not compared by == or != while a kernel is built; use .eq, .ne, or `is` for identity"
            )
        return NotImplemented

    __hash__ = object.__hash__

    @property
    def scalar(self) -> ScalarType:
        """The type of a scalar value, or of a vector's elements."""
        if isinstance(self.type, ScalarType):
            return self.type
        if isinstance(self.type, VectorType):
            return self.type.element
        raise InternalError(f"a value of type {self.type} has no elements of its own")

    @property
    def defining_op(self) -> Operation | None:
        """The op that computes this value; None for a parameter or a region argument."""
        return self.owner if isinstance(self.owner, Operation) else None

    def _build(self, name: str, *operands: Value | int | float, **attributes: Any) -> Value:
        from kinfolk.ir.builder import current_builder

        builder = current_builder()
        return builder.add(builder.table[name], operands, attributes).results[0]

    def _arithmetic(self, name: str, a: Value | int | float, b: Value | int | float) -> Value:
        if self.scalar.kind == "float":
            return self._build(f"core.f{name}", a, b)
        return self._build(f"core.{name}", a, b, nsw=True)

    def __add__(self, other: Value | int | float) -> Value:
        return self._arithmetic("add", self, other)

    def __radd__(self, other: int | float) -> Value:
        return self._arithmetic("add", other, self)

    def __sub__(self, other: Value | int | float) -> Value:
        return self._arithmetic("sub", self, other)

    def __rsub__(self, other: int | float) -> Value:
        return self._arithmetic("sub", other, self)

    def __mul__(self, other: Value | int | float) -> Value:
        return self._arithmetic("mul", self, other)

    def __rmul__(self, other: int | float) -> Value:
        return self._arithmetic("mul", other, self)

    def __floordiv__(self, other: Value | int) -> Value:
        return self._build("core.udiv", self, other)

    def __mod__(self, other: Value | int) -> Value:
        return self._build("core.urem", self, other)

    def __and__(self, other: Value | int) -> Value:
        return self._build("core.and", self, other)

    def __or__(self, other: Value | int) -> Value:
        return self._build("core.or", self, other)

    def __xor__(self, other: Value | int) -> Value:
        return self._build("core.xor", self, other)

    def __lshift__(self, other: Value | int) -> Value:
        return self._build("core.shl", self, other)

    def __rshift__(self, other: Value | int) -> Value:
        return self._build("core.lshr", self, other)

    def _compare(self, predicate: str, other: Value | int | float) -> Value:
        name = "core.fcmp" if self.scalar.kind == "float" else "core.icmp"
        return self._build(name, self, other, predicate=_PREDICATES[name][predicate])

    def __lt__(self, other: Value | int | float) -> Value:
        return self._compare("lt", other)

    def __le__(self, other: Value | int | float) -> Value:
        return self._compare("le", other)

    def __gt__(self, other: Value | int | float) -> Value:
        return self._compare("gt", other)

    def __ge__(self, other: Value | int | float) -> Value:
        return self._compare("ge", other)

    def eq(self, other: Value | int | float) -> Value:
        """Return an i1 that says whether both are equal."""
        return self._compare("eq", other)

    def ne(self, other: Value | int | float) -> Value:
        """Return an i1 that says whether both differ."""
        return self._compare("ne", other)


_PREDICATES = {
    "core.icmp": {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge", "eq": "eq", "ne": "ne"},
    "core.fcmp": {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"},
}


class Operation:
    """One op in a region: its declaration, operands, attributes, results, nested regions and where it was built."""

    __slots__ = ("attributes", "definition", "location", "operands", "regions", "results")

    def __init__(
        self,
        definition: OpDef,
        operands: tuple[Value, ...],
        attributes: Mapping[str, Attribute],
        result_types: tuple[Type, ...],
        regions: tuple[Region, ...] = (),
        location: Location | None = None,
    ) -> None:
        self.definition = definition
        self.operands = operands
        self.attributes = dict(attributes)
        self.results = tuple(Value(type_, self, index) for index, type_ in enumerate(result_types))
        self.regions = regions
        self.location = location or Location(())

    @property
    def name(self) -> str:
        """`dialect.op`."""
        return self.definition.name


class Region:
    """A block of operations with arguments; the last operation is its terminator."""

    __slots__ = ("arguments", "operations")

    def __init__(self, argument_types: tuple[Type, ...] = ()) -> None:
        self.arguments = tuple(Value(type_, self, index) for index, type_ in enumerate(argument_types))
        self.operations: list[Operation] = []

    def walk(self) -> Iterator[Operation]:
        """Yield every operation in it and in nested regions, in order of the text."""
        return walked(self.operations)


def walked(operations: Iterable[Operation]) -> Iterator[Operation]:
    """Yield operations and those in their regions, in order of the text."""
    for operation in operations:
        yield operation
        for region in operation.regions:
            yield from region.walk()


@attrs.frozen(kw_only=True, eq=False)
class Kernel:
    """A kernel: symbol, declared parameters (the body's arguments, in order), and what was fixed when it was built.

    `block` counts the threads of a workgroup, `wave_size` the lanes of a wave. `attributes` are compile options the
    arch understands, such as the workgroups per compute unit aimed at.
    """

    name: str
    parameters: tuple[Parameter, ...]
    body: Region
    block: int
    wave_size: int
    attributes: Mapping[str, Attribute] = attrs.field(factory=dict[str, Any])

    def walk(self) -> Iterator[Operation]:
        """Yield every operation in order of the text."""
        return self.body.walk()
