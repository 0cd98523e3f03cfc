"""A traced lane function written as Python over numpy arrays of storage bits.

The frequent steps are written as `NumpyAlgebra` does them; for the others, and for requirements, the algebra is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from kinfolk.ir.numpy_lanes import NumpyLane, constant_array, storage_dtype
from kinfolk.ir.types import I1, ScalarType
from kinfolk_runtime.simulator.trace import METHODS, Node

Run = Callable[..., Any]
_PLAIN: Final = frozenset({"+", "-", "*", "/", "&", "|", "^", "<<"})
_ORDERED: Final = frozenset({"<", "<=", ">", ">="})


def compiled(root: Node, requirements: Sequence[tuple[Node, str]], leaves: Sequence[tuple[int, int]]) -> Run:
    """Return `run(m, *arrays of leaves)`: the array of `root`, requirements asked of the algebra `m` before."""
    writer = _Writer(leaves)
    for condition, why in requirements:
        held = writer.lane(condition)
        writer.lines.append(f"m.require({held}, {why!r})")
    result = writer.array(root, root.type)
    arguments = "".join(f", x{index}" for index in range(len(leaves)))
    body = "".join(f"    {line}\n" for line in [*writer.lines, f"return {result}"])
    exec(f"def run(m{arguments}):\n{body}", writer.names)
    return writer.names["run"]


class _Writer:
    def __init__(self, leaves: Sequence[tuple[int, int]]) -> None:
        self.lines: list[str] = []
        self._leaves = list(leaves)
        self.names: dict[str, Any] = {"where": np.where, "Lane": NumpyLane}
        self._nodes: dict[int, str] = {}
        self._held: dict[Any, str] = {}

    def array(self, node: Any, type_: ScalarType) -> str:
        """Return the name of an operand's array; a Python number is a constant of `type_`."""
        if not isinstance(node, Node):
            return self._hold(("array", type_, repr(node)), lambda: constant_array(node, type_))
        if node.name == "const":
            return self.array(node.arguments[0], node.type)
        if node.name == "leaf":
            return f"x{self._leaves.index(node.arguments)}"
        if id(node) not in self._nodes:
            text = self._text(node)
            self._nodes[id(node)] = name = f"v{len(self._nodes)}"
            self.lines.append(f"{name} = {text}")
        return self._nodes[id(node)]

    def lane(self, node: Node) -> str:
        """Return an operand as the algebra takes it."""
        return f"Lane({self._hold(('type', node.type), lambda: node.type)}, {self.array(node, node.type)})"

    def _hold(self, key: Any, make: Callable[[], Any]) -> str:
        if key not in self._held:
            self._held[key] = f"c{len(self._held)}"
            self.names[self._held[key]] = make()
        return self._held[key]

    def _dtype(self, dtype: np.dtype[Any]) -> str:
        return self._hold(("dtype", dtype.str), lambda: dtype)

    def _signed(self, node: Any, type_: ScalarType) -> str:
        """Return an operand's array as a comparison reads it: integers signed."""
        dtype = storage_dtype(type_)
        if dtype.kind != "u":
            return self.array(node, type_)
        signed = np.dtype(f"i{dtype.itemsize}")
        if not isinstance(node, Node):
            return self._hold(("signed", type_, repr(node)), lambda: constant_array(node, type_).view(signed))
        return f"{self.array(node, type_)}.view({self._dtype(signed)})"

    def _text(self, node: Node) -> str:
        arguments = node.arguments
        first: Any = arguments[0] if arguments else None
        match node.name:
            case name if name in _PLAIN:
                return f"{self.array(first, first.type)} {name} {self.array(arguments[1], first.type)}"
            case name if name in _ORDERED:
                return f"{self._signed(first, first.type)} {name} {self._signed(arguments[1], first.type)}"
            case "eq" | "ne":
                sign = "==" if node.name == "eq" else "!="
                return f"{self.array(first, first.type)} {sign} {self.array(arguments[1], first.type)}"
            case "where":
                chosen = ", ".join(self.array(value, node.type) for value in arguments[1:])
                return f"where({self.array(first, I1)}, {chosen})"
            case "lshr":
                return f"{self.array(first, first.type)} >> {self.array(arguments[1], first.type)}"
            case "bits":
                same = storage_dtype(first.type) == storage_dtype(node.type)
                view = "" if same else f".view({self._dtype(storage_dtype(node.type))})"
                return f"{self.array(first, first.type)}{view}"
            case "zext" | "trunc" if node.type != I1:
                return f"{self.array(first, first.type)}.astype({self._dtype(storage_dtype(node.type))})"
            case _:
                return self._call(node)

    def _call(self, node: Node) -> str:
        assert node.name in METHODS
        first: Any = node.arguments[0] if node.arguments else None
        given: list[str] = []
        for argument in node.arguments:
            if isinstance(argument, Node):
                given.append(self.lane(argument))
            elif isinstance(argument, ScalarType):
                given.append(self._hold(("type", argument), lambda argument=argument: argument))
            elif isinstance(first, Node):
                given.append(
                    f"Lane({self._hold(('type', first.type), lambda: first.type)}, {self.array(argument, first.type)})"
                )
            else:
                given.append(repr(argument))
        return f"m.{node.name}({', '.join(given)}).data"
