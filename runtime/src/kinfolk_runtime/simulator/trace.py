"""A lane function as a graph: its body is run once on symbols, and what it asked of the algebra is kept.

The graph lets a function over lists of components be evaluated on whole arrays: components computed alike are computed
together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from kinfolk.errors import InternalError
from kinfolk.ir.types import I1, I32, ScalarType

FIRST = "of the first operand"
METHODS: dict[str, ScalarType | str | int] = {
    "const": 1,
    "where": "of the second operand",
    "bits": 1,
    "lshr": FIRST,
    "ashr": FIRST,
    "trunc": 1,
    "zext": 1,
    "sext": 1,
    "unsigned_less": I1,
    "sdiv": FIRST,
    "udiv": FIRST,
    "multiply_overflows": I1,
    "rint": FIRST,
    "to_int": 1,
    "to_float": 1,
    "convert": 1,
    "fma": FIRST,
    "sqrt": FIRST,
    "lane_id": I32,
    "wave_id": I32,
    "thread_id": I32,
    "block_id": I32,
}
"""The methods of the algebra, and what type each gives: a fixed one, an operand's, or its argument at an index."""
PLACE = frozenset({"lane_id", "wave_id", "thread_id", "block_id"})
"""Methods whose value depends on where the wave is."""


@attrs.frozen(eq=False)
class Node:
    """One step of a lane function, with the operators of `Lane`; a leaf names an operand and a component of it.

    A shift by 0 and an or with a constant 0 are no steps.
    """

    type: ScalarType
    name: str
    arguments: tuple[Any, ...]

    def _operator(self, sign: str, other: Any, type_: ScalarType | None = None) -> Node:
        return Node(type_ or self.type, sign, (self, _operand(other)))

    def __add__(self, other: Any) -> Node:
        return self._operator("+", other)

    def __sub__(self, other: Any) -> Node:
        return self._operator("-", other)

    def __mul__(self, other: Any) -> Node:
        return self._operator("*", other)

    def __truediv__(self, other: Any) -> Node:
        return self._operator("/", other)

    def __and__(self, other: Any) -> Node:
        return self._operator("&", other)

    def __or__(self, other: Any) -> Node:
        nothing = self.name == "const" and self.arguments[0] == 0 and isinstance(other, Node)
        return other if nothing else self._operator("|", other)

    def __xor__(self, other: Any) -> Node:
        return self._operator("^", other)

    def __lshift__(self, other: Any) -> Node:
        return self if type(other) is int and other == 0 else self._operator("<<", other)

    def __lt__(self, other: Any) -> Node:
        return self._operator("<", other, I1)

    def __le__(self, other: Any) -> Node:
        return self._operator("<=", other, I1)

    def __gt__(self, other: Any) -> Node:
        return self._operator(">", other, I1)

    def __ge__(self, other: Any) -> Node:
        return self._operator(">=", other, I1)

    def eq(self, other: Any) -> Node:
        """Equality, as `Lane` has it."""
        return self._operator("eq", other, I1)

    def ne(self, other: Any) -> Node:
        """The negation of `eq`."""
        return self._operator("ne", other, I1)


def _operand(value: Any) -> Any:
    if not isinstance(value, (Node, int, float, ScalarType)):
        raise InternalError(f"a lane function passes {value!r} to the algebra; it takes lanes and Python numbers")
    return value


class Recorder:
    """The algebra as nodes; requirements collect in order."""

    def __init__(self) -> None:
        self.requirements: list[tuple[Node, str]] = []

    def require(self, condition: Node, why: str) -> None:
        """Keep a requirement."""
        self.requirements.append((condition, why))

    def __getattr__(self, name: str) -> Callable[..., Node]:
        if name not in METHODS:
            raise AttributeError(f"the lane algebra has no {name!r}")
        gives = METHODS[name]

        def build(*arguments: Any) -> Node:
            if name == "lshr" and type(arguments[1]) is int and arguments[1] == 0:
                return arguments[0]
            if isinstance(gives, ScalarType):
                type_ = gives
            elif isinstance(gives, int):
                type_ = arguments[gives]
            else:
                type_ = arguments[0 if gives == FIRST else 1].type
            return Node(type_, name, tuple(_operand(argument) for argument in arguments))

        return build


def leaf(type_: ScalarType, operand: int, component: int) -> Node:
    """Return the node of one component of an operand."""
    return Node(type_, "leaf", (operand, component))


@attrs.frozen(eq=False)
class Shape:
    """A node's graph with its leaves taken out: equal keys mean equal computations on the leaves, in order."""

    key: tuple[Any, ...]
    leaves: tuple[tuple[int, int], ...]


def shape_of(root: Node) -> Shape:
    """Return the shape of the graph below `root`."""
    seen: dict[int, int] = {}
    leaves: list[tuple[int, int]] = []

    def key(node: Any) -> Any:
        if not isinstance(node, Node):
            return (type(node).__name__, repr(node))
        if id(node) in seen:
            return ("again", seen[id(node)])
        seen[id(node)] = len(seen)
        if node.name == "leaf":
            leaves.append(node.arguments)
            return ("leaf", node.type.name)
        return (node.name, node.type.name, *(key(argument) for argument in node.arguments))

    return Shape(key(root), tuple(leaves))
