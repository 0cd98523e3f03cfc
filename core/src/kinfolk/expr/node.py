"""The nodes of an expression: what each one can do, constants, and the leaves that read the scope."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Final, NoReturn, cast

import attrs

from kinfolk.expr.scope import ExprError, Observer, Scope, Value, checked

NODES: Final[dict[str, type[Expr]]] = {}
MAX_HEIGHT: Final = 128
"""An expression nests no deeper: whoever reads one recurses, and a deeper one is a loop in Python that ran away."""


def lift(value: Expr | Value) -> Expr:
    """Return an expression as it is, and a plain value as a constant."""
    return value if isinstance(value, Expr) else Const(value)


def typed(value: object) -> object:
    """Return a key that keeps `1` and `True` apart, alone or in a tuple."""
    if isinstance(value, tuple):
        return tuple(typed(member) for member in cast("tuple[object, ...]", value))
    return type(value), value


def _node(tag: str, left: Expr | Value, right: Expr | Value) -> Expr:
    build = cast("Callable[[Expr, Expr], Expr]", NODES[tag])
    return build(lift(left), lift(right))


def tall(node: Expr) -> None:
    """Note how deep a new node's operands nest; raise ValueError where that is past `MAX_HEIGHT`."""
    below: int = max((getattr(child, "height", 0) for child in node.children), default=0)
    if below >= MAX_HEIGHT:
        raise ValueError(f"an expression nests at most {MAX_HEIGHT} operations deep, this {node.tag} would be one more")
    object.__setattr__(node, "height", below + 1)


def height_field() -> Any:
    """Declare where a node with operands notes how deep they nest; no part of what the node is."""
    return attrs.field(init=False, eq=False, repr=False, default=0)


class Expr:
    """A node. Operators build nodes; `==` compares trees, `eq` builds a comparison; no node has a truth value."""

    __slots__ = ("_read",)
    _read: tuple[Expr, ...]  # what `leaves` found; no part of what the node is
    tag: ClassVar[str]
    precedence: ClassVar[int] = 9

    @classmethod
    def __attrs_init_subclass__(cls) -> None:
        if "tag" in cls.__dict__:
            NODES[cls.tag] = cls

    @property
    def kind(self) -> str:
        """The value's type: int, bool or str; `any` where only evaluation can tell."""
        return "any"

    def value_in(self, scope: Scope) -> Value:
        """Return the value, unobserved."""
        raise NotImplementedError

    def evaluate(self, scope: Scope) -> Value:
        """Return the value in `scope`; raise ExprError, naming expression and values, where there is none."""
        observer = cast("Observer | None", getattr(scope.request, "__kinfolk_observer__", None))
        return self.value_in(scope) if observer is None else observer.value_of(self, scope)

    def holds(self, scope: Scope) -> bool:
        """Evaluate a condition; raise ExprError where the value is not a bool."""
        value = self.evaluate(scope)
        if type(value) is not bool:
            raise ExprError(f"{self} is {value!r}, not a bool, and so no condition")
        return value

    def integer(self, scope: Scope) -> int:
        """Evaluate a count; raise ExprError where the value is not an int."""
        value = self.evaluate(scope)
        if type(value) is not int:
            raise ExprError(f"{self} is {value!r}, not an int")
        return value

    @property
    def children(self) -> tuple[Expr, ...]:
        """The expressions this one is made of."""
        return ()

    def leaves(self) -> tuple[Expr, ...]:
        """Return every distinct field, fact, stride and extent read, in order of first appearance."""
        try:
            return self._read
        except AttributeError:
            pass
        found: dict[Expr, None] = {}
        ahead: list[Expr] = [self]
        while ahead:
            node = ahead.pop()
            if children := node.children:
                ahead += reversed(children)
            elif isinstance(node, Leaf):
                found[node] = None
        object.__setattr__(self, "_read", tuple(found))
        return self._read

    def data(self) -> list[Any]:
        """Return the tree as JSON data, `[tag, operand, ...]`; `from_data` gives it back exactly."""
        return [self.tag, *(child.data() for child in self.children)]

    def to_json(self) -> str:
        """Return canonical JSON: equal trees give equal text."""
        return json.dumps(self.data(), separators=(",", ":"), ensure_ascii=True)

    def _within(self, level: int) -> str:
        return str(self) if self.precedence >= level else f"({self})"

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self} has no truth value in Python; combine with all_of, any_of, not_ and select")

    def __add__(self, other: Expr | int) -> Expr:
        return _node("add", self, other)

    def __radd__(self, other: int) -> Expr:
        return _node("add", other, self)

    def __sub__(self, other: Expr | int) -> Expr:
        return _node("sub", self, other)

    def __rsub__(self, other: int) -> Expr:
        return _node("sub", other, self)

    def __mul__(self, other: Expr | int) -> Expr:
        return _node("mul", self, other)

    def __rmul__(self, other: int) -> Expr:
        return _node("mul", other, self)

    def __floordiv__(self, other: Expr | int) -> Expr:
        return _node("floor_div", self, other)

    def __rfloordiv__(self, other: int) -> Expr:
        return _node("floor_div", other, self)

    def __lt__(self, other: Expr | int) -> Expr:
        return _node("lt", self, other)

    def __le__(self, other: Expr | int) -> Expr:
        return _node("le", self, other)

    def __gt__(self, other: Expr | int) -> Expr:
        return _node("gt", self, other)

    def __ge__(self, other: Expr | int) -> Expr:
        return _node("ge", self, other)

    def floor_div(self, other: Expr | int) -> Expr:
        """Return the quotient rounded towards minus infinity."""
        return _node("floor_div", self, other)

    def ceil_div(self, other: Expr | int) -> Expr:
        """Return the quotient rounded towards plus infinity."""
        return _node("ceil_div", self, other)

    def eq(self, other: Expr | Value) -> Expr:
        """Return the condition that both are equal; they must be of one type."""
        return _node("eq", self, other)

    def ne(self, other: Expr | Value) -> Expr:
        """Return the condition that both differ; they must be of one type."""
        return _node("ne", self, other)

    def one_of(self, values: Iterable[Value]) -> Expr:
        """Return the condition that this is one of the values."""
        return NODES["one_of"](self, tuple(values))  # type: ignore[call-arg]  # its own constructor


@attrs.frozen
class Const(Expr):
    """A constant; a string can only be compared for equality."""

    tag: ClassVar[str] = "const"
    value: Value = attrs.field(eq=typed)

    def __attrs_post_init__(self) -> None:
        try:
            checked(self.value, "a constant")
        except ExprError as error:
            raise (ValueError if type(self.value) is int else TypeError)(str(error)) from None

    @property
    def kind(self) -> str:
        return type(self.value).__name__

    def value_in(self, scope: Scope) -> Value:
        return self.value

    def data(self) -> list[Any]:
        return [self.tag, self.value]

    def __str__(self) -> str:
        return repr(self.value)


@attrs.frozen
class Leaf(Expr):
    """What is read from the scope, under a name."""

    name: str = attrs.field(validator=attrs.validators.instance_of(str))

    def data(self) -> list[Any]:
        return [self.tag, self.name]

    def __str__(self) -> str:
        return self.name


@functools.cache
def _field_names(kind: type) -> frozenset[str] | None:
    """Return the fields of an attrs class; None of any other class, whose attributes all count as fields."""
    declared = cast("tuple[attrs.Attribute[Any], ...] | None", getattr(kind, "__attrs_attrs__", None))
    return None if declared is None else frozenset(field.name for field in declared)


@attrs.frozen
class Field(Leaf):
    """A field of the request, or of the spec where a spec is judged."""

    tag: ClassVar[str] = "field"

    def value_in(self, scope: Scope) -> Value:
        return checked(self.held_in(scope), "field", self.name)

    def held_in(self, scope: Scope) -> object:
        """Return what the request holds, which may be what no expression takes, such as a float."""
        names = _field_names(type(scope.request))
        # A property is no field: only Python could evaluate it, and what it depends on would stay hidden.
        if names is not None and self.name not in names:
            raise ExprError(f"{type(scope.request).__name__} has no field {self.name!r}")
        try:
            return getattr(scope.request, self.name)
        except AttributeError:
            raise ExprError(f"{type(scope.request).__name__} has no field {self.name!r}") from None


@attrs.frozen
class Fact(Leaf):
    """A fact of the arch."""

    tag: ClassVar[str] = "fact"

    def value_in(self, scope: Scope) -> Value:
        return checked(scope.fact(self.name), "fact", self.name)


@attrs.frozen
class AxisLeaf(Leaf):
    """A number of one tensor axis; a negative axis counts from the last."""

    axis: int = attrs.field(validator=attrs.validators.instance_of(int))

    @property
    def kind(self) -> str:
        return "int"

    def data(self) -> list[Any]:
        return [self.tag, self.name, self.axis]

    def __str__(self) -> str:
        return f"{self.tag}({self.name}, {self.axis})"

    def _at(self, numbers: Sequence[int]) -> int:
        try:
            return int(checked(numbers[self.axis], str(self)))
        except IndexError:
            raise ExprError(f"{self}: the tensor has {len(numbers)} axes") from None


@attrs.frozen
class Stride(AxisLeaf):
    """A stride of a tensor, in elements."""

    tag: ClassVar[str] = "stride"

    def value_in(self, scope: Scope) -> Value:
        return self._at(scope.tensor(self.name).element_strides)


@attrs.frozen
class Extent(AxisLeaf):
    """An extent of a tensor, in elements."""

    tag: ClassVar[str] = "extent"

    def value_in(self, scope: Scope) -> Value:
        return self._at(scope.tensor(self.name).shape)
