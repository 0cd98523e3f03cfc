"""Short forms for declaring the portable ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kinfolk.ir import rules
from kinfolk.ir.meaning import LaneFunction
from kinfolk.ir.op import AttributeDef, BySelectedTarget, IssueClass, LlvmWriter, LowerToLlvm, OpDef, OpTable
from kinfolk.ir.value import Operation

CORE_OPS = OpTable()


def lane_op(
    name: str,
    operands: str,
    result: Any,
    lowering: LowerToLlvm | BySelectedTarget,
    *,
    attributes: tuple[AttributeDef, ...] = (),
    issue: IssueClass = "vector",
    components: bool = False,
    uniform: bool | None = None,
) -> Callable[[Callable[..., Any]], OpDef]:
    """Declare a pure portable op whose meaning is the decorated lane function."""

    def declare(body: Callable[..., Any]) -> OpDef:
        return CORE_OPS.register(
            OpDef(
                name=name,
                operands=tuple(operands.split()),
                attributes=attributes,
                result=result,
                issue=issue,
                meaning=LaneFunction(body, "components" if components else "elementwise"),
                lowering=lowering,
                uniform=uniform,
            )
        )

    return declare


def instruction(opcode: str) -> LowerToLlvm:
    """Lower to one LLVM instruction on operands of one type."""

    def lower(w: LlvmWriter, op: Operation) -> None:
        names = ", ".join(w.name(operand) for operand in op.operands)
        w.define(op.results[0], f"{opcode} {w.type(op.operands[0].type)} {names}")

    return lower


def overloaded(w: LlvmWriter, op: Operation) -> str:
    """Return LLVM's mangled suffix for the op's result type, such as `v4f32`."""
    text = w.type(op.results[0].type)
    names = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16"}
    if text.startswith("<"):
        count, element = text[1:-1].split(" x ")
        return f"v{count}{names.get(element, element)}"
    return names.get(text, text)


def intrinsic(function: str, flags: str = "") -> LowerToLlvm:
    """Lower to a call of an overloaded LLVM intrinsic on operands of one type."""

    def lower(w: LlvmWriter, op: Operation) -> None:
        returns = w.type(op.results[0].type)
        result = w.call(
            returns, f"llvm.{function}.{overloaded(w, op)}", *(w.typed(operand) for operand in op.operands), flags=flags
        )
        w.alias(op.results[0], result)

    return lower


BY_TARGET = BySelectedTarget()
TO = AttributeDef("to", "type")

__all__ = ["BY_TARGET", "CORE_OPS", "TO", "instruction", "intrinsic", "lane_op", "overloaded", "rules"]
