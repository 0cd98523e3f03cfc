"""Loads from global straight to workgroup memory, and the wait for them.

A lane reads from an address of its own; what the wave's lanes read lies in workgroup memory in order of lanes, from a
place that is one for the whole wave (M0 holds it). The load counts as a vector memory operation until it has arrived.
Source: "AMD Instinct MI300 Instruction Set Architecture", section "Memory Buffer Load to LDS" and global_load_lds_*.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kinfolk.ir import rules
from kinfolk.ir.meaning import MemoryAccess
from kinfolk.ir.op import AttributeDef, LlvmWriter, OpDef, effects
from kinfolk.ir.ops.memory import buffer_address
from kinfolk.ir.types import I32, Type, ViewType, element_type
from kinfolk.ir.value import Operation
from kinfolk_amdgcn.lowering.memory import byte_offset

MAX_OUTSTANDING: Final = 63  # vmcnt has six bits
_ATTRIBUTES: Final = (
    AttributeDef("count", "int", default=1),
    AttributeDef("offset", "int", default=0),
    AttributeDef("scope", "str", default=""),
)


def staging_ops(dialect: str, widths: tuple[int, ...], source: str) -> tuple[OpDef, OpDef, OpDef]:
    """Return the ops of an arch that stages `widths` bytes a lane: from a view, from a pointer, and the wait.

    `stage_view(view, index, buffer, start)` and `stage(pointer, buffer, start)` move `count` elements a lane to element
    `start + offset` of the buffer, which is equal on all lanes, and behind. `wait_staged(outstanding=n)` waits until at
    most the latest n of the wave's stagings are on their way; barriers do not wait for them.

    It is written as `s_waitcnt vmcnt(n)`, which counts every load and store of the wave. LLVM may make `vmcnt(0)` of it
    or add that behind (`tests/test_wait_staged.py` has the assembly), which is right and waits for more. LLVM 22 does
    before a read that may be of what is still on its way, and at a barrier: n stay on their way until the next barrier,
    past reads of another allocation or with another `scope`. LLVM 20 does before the next read from workgroup memory
    of any kind; behind a barrier, which it waits n at, before a read of the same allocation and `scope`, and, where
    both differ, all the same: there tell tiles apart by one of the two.
    """
    return (
        _op(f"{dialect}.stage_view", ("view", "index", "buffer", "start"), widths, _lower_stage_view, source),
        _op(f"{dialect}.stage", ("pointer", "buffer", "start"), widths, _lower_stage, source),
        OpDef(
            name=f"{dialect}.wait_staged",
            attributes=(AttributeDef("outstanding", "int", default=0),),
            result=_wait_rule,
            effects=effects("writes", "convergent"),
            issue="scalar",
            meaning=MemoryAccess("workgroup", "wait"),
            lowering=_lower_wait,
            source=f"{source}, S_WAITCNT",
        ),
    )


def _op(name: str, operands: tuple[str, ...], widths: tuple[int, ...], lowering: Any, source: str) -> OpDef:
    return OpDef(
        name=name,
        operands=operands,
        attributes=_ATTRIBUTES,
        result=_rule(operands[0] == "view", widths),
        effects=effects("reads", "writes", "convergent"),
        issue="global_memory",
        meaning=MemoryAccess("view" if operands[0] == "view" else "global", "stage"),
        lowering=lowering,
        source=source,
    )


def _rule(through_view: bool, widths: tuple[int, ...]) -> Any:
    def rule(types: tuple[Type, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
        source, buffer = types[0], rules.buffer(types[-2])
        if through_view:
            rules.expect(isinstance(source, ViewType), f"stages from a view, got {source}")
            rules.index(types[1])
        else:
            rules.pointer(source)
        rules.expect(types[-1] == I32, f"the place in workgroup memory is i32, got {types[-1]}")
        element = element_type(source)
        rules.expect(buffer.element == element, f"stages {element} to elements of that type, got {buffer}")
        moved = attributes["count"] * element.bytes
        allowed = " or ".join(map(str, widths))
        rules.expect(moved in widths, f"a lane stages {allowed} bytes, got {attributes['count']} of {element}: {moved}")
        return ()

    return rule


def _bytes(op: Operation) -> int:
    count = op.attributes["count"]
    assert isinstance(count, int)
    return count * element_type(op.operands[0].type).bytes


def _lower_stage_view(w: LlvmWriter, op: Operation) -> None:
    view, index, buffer, start = op.operands
    w.call(
        "void",
        "llvm.amdgcn.raw.ptr.buffer.load.lds",
        w.typed(view),
        buffer_address(w, op, buffer, start),
        f"i32 {_bytes(op)}",
        f"i32 {byte_offset(w, index, element_type(view.type).bytes)}",
        "i32 0",  # no scalar offset: sources disagree on whether the range check counts it
        "i32 0",
        "i32 0",
        attributes=w.kind_of_memory(op),
    )


def _lower_stage(w: LlvmWriter, op: Operation) -> None:
    pointer, buffer, start = op.operands
    place, size = buffer_address(w, op, buffer, start), f"i32 {_bytes(op)}"
    w.call(
        "void",
        "llvm.amdgcn.global.load.lds",
        w.typed(pointer),
        place,
        size,
        "i32 0",
        "i32 0",
        attributes=w.kind_of_memory(op),
    )


def _wait_rule(types: tuple[Type, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
    rules.expect(not types, "takes no operands")
    left = attributes["outstanding"]
    rules.expect(0 <= left <= MAX_OUTSTANDING, f"leaves 0 to {MAX_OUTSTANDING} outstanding, got {left}")
    return ()


def _lower_wait(w: LlvmWriter, op: Operation) -> None:
    """Write s_waitcnt vmcnt: it counts every vector memory operation in order, so it never waits for too few."""
    left = op.attributes["outstanding"]
    assert isinstance(left, int)
    others = 7 << 4 | 15 << 8  # expcnt and lgkmcnt at their most: not waited for
    w.call("void", "llvm.amdgcn.s.waitcnt", f"i32 {left & 15 | others | left >> 4 << 14}")
