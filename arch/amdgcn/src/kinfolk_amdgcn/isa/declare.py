"""How an instruction is declared: once, with opcode, types of operands and a meaning in the op table's algebra."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

import attrs

from kinfolk.errors import InternalError
from kinfolk.ir.types import BF16, F16, F32, F64, I1, I16, I32, I64, ScalarType

Kind = Literal["lane", "scalar", "special", "matrix", "local", "buffer", "flat", "scalar_load", "flow", "wait"]
"""What carries an instruction out: lane functions, functions of scalar registers, or a stage of its own."""
Meaning = (
    Callable[[Any, Any], Any]
    | Callable[[Any, Any, Any], Any]
    | Callable[[Any, Any, Any, Any], Any]
    | Callable[[Any, Any, Any, Any, Any], Any]
)
"""A function of an algebra and one to four operands."""
OfTwo = Callable[[Any, Any, Any], Any]
TYPES: Final[dict[str, ScalarType]] = {
    "i32": I32,
    "f32": F32,
    "i64": I64,
    "f64": F64,
    "i16": I16,
    "f16": F16,
    "bf16": BF16,
    "mask": I1,
    "scc": I1,
}
"""Types of operands by name. A `mask` is a bit per lane in a pair of scalar registers, `scc` the condition bit."""
VOP3_OF: Final = {"VOP1": 320, "VOP2": 256, "VOPC": 0}
"""What is added to an opcode where its instruction is encoded as VOP3."""


@attrs.frozen(kw_only=True)
class Declared:
    """One instruction. `operands` and `results` are names of `TYPES`, in the order of the encoding's fields.

    `meaning` takes an algebra and the operands and gives the result, or a tuple of `results`. `scc` of a scalar
    instruction gives the condition bit from the result and the operands. `packed` instructions do the same on both
    halves of their operands. `facts` are what a stage of its own needs to know.
    """

    name: str
    format: str
    opcode: int
    kind: Kind
    results: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()
    meaning: Callable[..., Any] | None = None
    scc: Callable[..., Any] | None = None
    reads_destination: bool = False
    packed: bool = False
    facts: dict[str, Any] = attrs.field(factory=dict[str, Any])


class Table:
    """Instructions by format and opcode; two under one number are an error."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], Declared] = {}

    def add(self, row: Declared) -> None:
        """Take an instruction, and its VOP3 form where its format has one."""
        forms = [row]
        if row.format in VOP3_OF:
            forms.append(attrs.evolve(row, format="VOP3", opcode=row.opcode + VOP3_OF[row.format]))
        for form in forms:
            key = (form.format, form.opcode)
            if key in self._rows:
                raise InternalError(f"{form.name} and {self._rows[key].name} are both {form.format} {form.opcode}")
            self._rows[key] = form

    def declare(self, kind: Kind, name: str, format_: str, opcode: int, types: str, **more: Any) -> None:
        """Take an instruction by fields of `Declared`; `types` are its results and operands, `f32: f32 f32`."""
        results, operands = signature(types)
        self.add(
            Declared(name=name, format=format_, opcode=opcode, kind=kind, results=results, operands=operands, **more)
        )

    def find(self, format_: str, opcode: int) -> Declared | None:
        """Return the instruction of a format and opcode; None for one that is not declared."""
        return self._rows.get((format_, opcode))

    def __iter__(self) -> Iterator[Declared]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)


def signature(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return results and operands of `f32: f32 f32`."""
    results, _, operands = text.partition(":")
    names = tuple(results.split()), tuple(operands.split())
    for name in (*names[0], *names[1]):
        if name not in TYPES:
            raise InternalError(f"an operand is of type {name!r}, there are {', '.join(TYPES)}")
    return names
