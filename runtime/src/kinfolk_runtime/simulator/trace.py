"""A lane function as a graph: its body is run once on symbols, and what it asked of the algebra is kept.

The graph lets a function over lists of components be evaluated on whole arrays: components computed alike are computed
together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from kinfolk.errors import InternalError
from kinfolk.ir.types import I1, I32, ScalarType

FIRST = "of the first operand"
_METHODS: dict[str, ScalarType | str | int] = {
    # What type each method of the algebra gives: fixed, the first operand's, or its argument at an index.
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
PLACE = frozenset({"lane_id", "wave_id", "thread_id", "block_id"})
"""Methods whose value depends on where the wave is."""


@attrs.frozen(eq=False)
class Node:
    """One step of a lane function, with the operators of `Lane`; a leaf names an operand and a component of it."""

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
        return self._operator("|", other)

    def __xor__(self, other: Any) -> Node:
        return self._operator("^", other)

    def __lshift__(self, other: Any) -> Node:
        return self._operator("<<", other)

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
        if name not in _METHODS:
            raise AttributeError(f"the lane algebra has no {name!r}")
        gives = _METHODS[name]

        def build(*arguments: Any) -> Node:
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


def written(root: Node, requirements: Sequence[tuple[Node, str]]) -> tuple[str, dict[str, Any]]:
    """Return a Python function `run(m, x)` of the graph as text, and the constants it names.

    `x` are the leaves as lanes, in order of their first use from the requirements and then from the root.
    """
    lines: list[str] = []
    names: dict[int, str] = {}
    constants: dict[str, Any] = {}
    leaves = 0

    def constant(value: Any, type_: ScalarType | None) -> str:
        if isinstance(value, ScalarType) or type_ is None:
            return _kept(constants, value)
        return _kept(constants, ("const", value, type_))

    def name(node: Any, type_: ScalarType | None) -> str:
        nonlocal leaves
        if not isinstance(node, Node):
            return constant(node, type_)
        if id(node) in names:
            return names[id(node)]
        if node.name == "leaf":
            text = f"x[{leaves}]"
            leaves += 1
        else:
            text = _call(node, name)
        names[id(node)] = f"v{len(names)}"
        lines.append(f"    {names[id(node)]} = {text}")
        return names[id(node)]

    for condition, why in requirements:
        held = name(condition, None)
        lines.append(f"    m.require({held}, {why!r})")
    result = name(root, None)
    body = "\n".join([*lines, f"    return {result}"])
    return f"def run(m, x):\n{body}\n", constants


def _kept(constants: dict[str, Any], value: Any) -> str:
    for known, held in constants.items():
        if repr(held) == repr(value):
            return known
    constants[f"c{len(constants)}"] = value
    return f"c{len(constants) - 1}"


def _call(node: Node, name: Callable[[Any, ScalarType | None], str]) -> str:
    first = node.arguments[0] if node.arguments else None
    if node.name == "const":
        return name(node.arguments[0], node.type)
    if node.name in _METHODS:
        number = first.type if isinstance(first, Node) else None
        if node.name == "block_id":
            number = None
        return f"m.{node.name}({', '.join(name(argument, number) for argument in node.arguments)})"
    assert isinstance(first, Node)
    a, b = name(first, None), name(node.arguments[1], first.type)
    return f"{a}.{node.name}({b})" if node.name in ("eq", "ne") else f"{a} {node.name} {b}"
