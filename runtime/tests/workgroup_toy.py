"""Ops of a small arch on workgroup memory: loads straight to it, the wait for them, additions."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kinfolk.ir import build_kernel
from kinfolk.ir.meaning import MemoryAccess
from kinfolk.ir.op import AttributeDef, OpDef, effects


def never(*_: Any) -> Any:
    raise AssertionError("nothing is lowered here")


def _stage(operands: tuple[str, ...]) -> OpDef:
    return OpDef(
        name=f"toy.stage_{operands[0]}",
        operands=(*operands, "buffer", "start"),
        attributes=(AttributeDef("count", "int", default=1), AttributeDef("offset", "int", default=0)),
        result=lambda types, _: (),
        effects=effects("reads", "writes", "convergent"),
        issue="global_memory",
        meaning=MemoryAccess("view" if operands[0] == "view" else "global", "stage"),
        lowering=never,
    )


STAGE, STAGE_VIEW = _stage(("pointer",)), _stage(("view", "index"))
WAIT = OpDef(
    name="toy.wait",
    attributes=(AttributeDef("outstanding", "int", default=0),),
    result=lambda types, _: (),
    effects=effects("writes", "convergent"),
    issue="scalar",
    meaning=MemoryAccess("workgroup", "wait"),
    lowering=never,
)

ADD = OpDef(
    name="toy.add",
    operands=("buffer", "index", "value"),
    attributes=(AttributeDef("offset", "int", default=0),),
    result=lambda types, _: (),
    effects=effects("reads", "writes"),
    issue="workgroup_memory",
    meaning=MemoryAccess("workgroup", "atomic_add"),
    lowering=never,
)


def built(toy, body, *parameters, waves=1):
    arch = evolve(toy.arch, ops=(*toy.arch.ops, STAGE, STAGE_VIEW, WAIT, ADD))
    return build_kernel("toy_kernel", parameters, arch=arch, block=waves * toy.wave, body=body)
