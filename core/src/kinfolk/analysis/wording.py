"""Values as people write them: parameters by name, and what is computed from them as a formula."""

from __future__ import annotations

from typing import Final

from kinfolk.analysis.comparisons import constant_of
from kinfolk.ir.meaning import Control, LanePermutation, MemoryAccess, ScheduleMarker
from kinfolk.ir.value import Kernel, Value

SIGNS: Final = {
    "core.add": "+", "core.sub": "-", "core.mul": "*", "core.shl": "<<", "core.udiv": "//", "core.urem": "%",
    "core.sdiv": "//", "core.lshr": ">>", "core.and": "&", "core.or": "|", "core.xor": "^",
}  # fmt: skip
CHOICES: Final = {"core.smin": "min", "core.umin": "min", "core.smax": "max", "core.umax": "max"}
CASTS: Final = ("core.sext", "core.zext", "core.trunc")
PLACES: Final = {"core.lane_id": "lane", "core.wave_id": "wave", "core.thread_id": "thread"}
DEEPEST: Final = 3


def worded(value: Value, kernel: Kernel, depth: int = 0) -> str:
    """Return a value as a formula of parameters, places and constants, `...` where that gets long."""
    constant = constant_of(value)
    if constant is not None:
        return f"{constant:,}"
    op = value.defining_op
    if op is None:
        if value.owner is kernel.body:
            return kernel.parameters[value.index].name
        return "index of the loop" if value.index == 0 else "carried value"
    if op.name == "core.block_id":
        return f"workgroup {'xyz'[int(str(op.attributes['axis']))]}"
    if op.name in PLACES:
        return PLACES[op.name]
    match op.definition.meaning:
        case Control(kind="uniform") | ScheduleMarker() | LanePermutation() if op.operands:
            return worded(op.operands[0], kernel, depth)
        case MemoryAccess(action="load"):
            return "loaded value"
        case _:
            pass
    if op.name in CASTS:
        return worded(op.operands[0], kernel, depth)
    named = op.name not in SIGNS and op.name not in CHOICES
    if depth >= DEEPEST or (named and depth):
        return "..."
    words = [worded(operand, kernel, depth + 1) for operand in op.operands]
    if op.name in SIGNS:
        text = f"{words[0]} {SIGNS[op.name]} {words[1]}"
        return f"({text})" if depth else text
    if op.name in CHOICES:
        return f"{CHOICES[op.name]}({words[0]}, {words[1]})"
    if op.name == "core.select":
        return f"{words[1]} or {words[2]}"
    return f"{op.name.rpartition('.')[2]}({', '.join(words)})"
