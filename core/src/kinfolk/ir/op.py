"""The declaration of an op: all that builder, verifier, printer, parser, engines, scheduler and lowering know of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import attrs

from kinfolk.errors import IllegalOp, InternalError, IRError
from kinfolk.ir.meaning import Meaning, MemoryAccess, ScheduleMarker
from kinfolk.ir.types import DataType, Type

if TYPE_CHECKING:
    from kinfolk.ir.value import Operation, Value

IssueClass = Literal["matrix", "workgroup_memory", "global_memory", "vector", "transcendental", "scalar", "none"]
Effect = Literal["reads", "writes", "barrier", "convergent"]
Attribute = bool | int | str | tuple[int, ...] | DataType
AttributeKind = Literal["bool", "int", "bits", "str", "ints", "type"]
ResultRule = Callable[[tuple[Type, ...], Mapping[str, Any]], tuple[Type, ...]]


class LlvmWriter(Protocol):
    """What an op's lowering may ask of the function it is written into. Names are LLVM operands without their type."""

    @property
    def llvm(self) -> int:
        """The LLVM generation whose IR is written, such as 22."""
        ...

    def type(self, type_: Type) -> str: ...
    def name(self, value: Value) -> str: ...
    def typed(self, value: Value) -> str: ...
    def fresh(self, text: str) -> str:
        """Write `%new = text` and return the new name."""
        ...

    def define(self, value: Value, text: str) -> None:
        """Write `%value = text`."""
        ...

    def alias(self, value: Value, name: str) -> None:
        """Let `value` be known by a name or literal that exists already."""
        ...

    def emit(self, text: str) -> None: ...
    def call(self, returns: str, function: str, *arguments: str, flags: str = "", attributes: str = "") -> str:
        """Write a call of `@function`, declare it, return its result's name ("" for void); arguments carry types."""
        ...

    def kind_of_memory(self, op: Operation) -> str:
        """The metadata suffix (alias scopes) of a memory operation, or ""."""
        ...


LowerToLlvm = Callable[["LlvmWriter", "Operation"], None]


class BySelectedTarget:
    """The lowering of a portable op that every arch words differently: the arch's table of lowerings has it."""


@attrs.frozen
class AttributeDef:
    """A compile-time attribute of an op. Without a default it must be given. `choices` limits a string."""

    name: str
    kind: AttributeKind
    default: Attribute | None = None
    choices: tuple[str, ...] = ()

    def check(self, op: str, value: object) -> None:
        """Raise `IRError` unless `value` has this attribute's kind."""
        if not _KINDS[self.kind](value):
            raise IRError(f"{op}: attribute {self.name} is of kind {self.kind}, got {value!r}")
        if self.choices and value not in self.choices:
            raise IRError(f"{op}: attribute {self.name} is {value!r}, one of {', '.join(self.choices)} is allowed")


def _is_ints(value: object) -> bool:
    return isinstance(value, tuple) and all(_KINDS["int"](item) for item in cast("tuple[object, ...]", value))


_KINDS: dict[str, Callable[[object], bool]] = {
    "bool": lambda value: type(value) is bool,
    "int": lambda value: type(value) is int and -(1 << 63) <= value < 1 << 63,
    "bits": lambda value: type(value) is int and value >= 0,
    "str": lambda value: type(value) is str,
    "ints": _is_ints,
    "type": lambda value: isinstance(value, DataType),
}


@attrs.frozen(kw_only=True, eq=False)
class OpDef:
    """An op, declared once.

    `name` is `dialect.op`. `operands` names the operands; a last name ending in `*` takes any number. `result` gives
    the result types from operand types and attributes, and raises `IRError` where they do not fit. `effects` is empty
    for a pure op. `meaning` says what it computes, `lowering` how LLVM is told. `source` names where a hardware
    meaning is documented.
    """

    name: str
    operands: tuple[str, ...] = ()
    attributes: tuple[AttributeDef, ...] = ()
    result: ResultRule
    effects: frozenset[Effect] = frozenset()
    issue: IssueClass = "vector"
    meaning: Meaning
    lowering: LowerToLlvm | BySelectedTarget
    regions: int = 0
    uniform: bool | None = None
    source: str = ""

    def __attrs_post_init__(self) -> None:
        dialect, _, op = self.name.partition(".")
        if not dialect.isidentifier() or not op.isidentifier():
            raise InternalError(f"an op is named dialect.op, got {self.name!r}")
        if not _is_meaning(self.meaning):
            raise InternalError(f"{self.name} does not register: it has no meaning")
        if not _is_lowering(self.lowering):
            raise InternalError(f"{self.name} does not register: it has no lowering")
        if not callable(self.result):
            raise InternalError(f"{self.name} does not register: it has no result rule")
        needed = (
            _ACCESSES.get(self.meaning.action, frozenset[Effect]()) if isinstance(self.meaning, MemoryAccess) else ()
        )
        if missing := sorted(set(needed) - self.effects):
            raise InternalError(f"{self.name} does not register: it accesses memory, its effects lack {missing}")

    def __call__(self, *operands: Value | int | float, **attributes: Any) -> Value:
        """Build the op where the current builder stands and return its one result."""
        from kinfolk.ir.builder import current_builder

        results = current_builder().add(self, operands, attributes).results
        if len(results) != 1:
            raise InternalError(f"{self.name} has {len(results)} results; use `.add`")
        return results[0]

    def add(self, *operands: Value | int | float, **attributes: Any) -> Operation:
        """Build the op where the current builder stands and return it, whatever its number of results."""
        from kinfolk.ir.builder import current_builder

        return current_builder().add(self, operands, attributes)

    @property
    def pure(self) -> bool:
        """Whether the op only computes its results."""
        return not self.effects and self.regions == 0 and not isinstance(self.meaning, ScheduleMarker)


_ACCESSES: dict[str, frozenset[Effect]] = {
    "load": frozenset[Effect]({"reads"}),
    "store": frozenset[Effect]({"writes"}),
    "atomic_add": frozenset[Effect]({"reads", "writes"}),
    "stage": frozenset[Effect]({"reads", "writes"}),
    "wait": frozenset[Effect]({"writes"}),
}


def is_attribute(value: object) -> bool:
    """Whether `value` is an attribute's: a bool, an i64, a str, a tuple of i64 or a scalar or vector type."""
    return any(_KINDS[kind](value) for kind in ("bool", "int", "str", "ints", "type"))


def _is_meaning(value: object) -> bool:
    return isinstance(value, Meaning)


def _is_lowering(value: object) -> bool:
    return callable(value) or isinstance(value, BySelectedTarget)


class OpTable:
    """The ops known in one place, by name; an arch's table has the portable ops below its own."""

    def __init__(self, ops: tuple[OpDef, ...] = (), parent: OpTable | None = None) -> None:
        self._parent = parent
        self._ops: dict[str, OpDef] = {}
        for op in ops:
            self.register(op)

    def register(self, op: OpDef) -> OpDef:
        """Add `op` and return it; a name taken already is an error."""
        if op.name in self:
            raise InternalError(f"{op.name} is declared twice")
        self._ops[op.name] = op
        return op

    def __contains__(self, name: str) -> bool:
        return name in self._ops or (self._parent is not None and name in self._parent)

    def __getitem__(self, name: str) -> OpDef:
        if name in self._ops:
            return self._ops[name]
        if self._parent is not None:
            return self._parent[name]
        raise IllegalOp(f"no op is named {name!r}; known: {', '.join(sorted(op.name for op in self))}")

    def __iter__(self) -> Iterator[OpDef]:
        if self._parent is not None:
            yield from self._parent
        yield from self._ops.values()

    def __len__(self) -> int:
        return sum(1 for _ in self)


def effects(*names: Effect) -> frozenset[Effect]:
    """Return a set of effects."""
    return frozenset(names)
