"""Roles: what an arch may declare its ops good for, and what is refused; permutations that read several operands."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from kinfolk.arch import Arch
from kinfolk.errors import IllegalOp, IRError, PluginError
from kinfolk.ir import build_kernel
from kinfolk.ir.builder import op_for_role, op_in_role
from kinfolk.ir.meaning import LaneFunction, LanePermutation, MemoryAccess, ScheduleMarker
from kinfolk.ir.op import AttributeDef, OpDef, effects
from kinfolk.ir.ops import lanes
from kinfolk.ir.rules import expect
from kinfolk.ir.types import BF16, F32, I32, VectorType, element_type
from kinfolk.matrix import MatrixCatalog
from kinfolk.roles import ROLES


def lowered(w, op):
    raise AssertionError("nothing is lowered here")


READ = OpDef(
    name="toy.read",
    operands=("buffer", "index"),
    attributes=tuple(
        AttributeDef(name, kind, default=default)
        for name, kind, default in (("offset", "int", 0), ("alignment", "int", 8), ("scope", "str", ""))
    ),
    result=lambda types, _: (VectorType(element_type(types[0]), 4),),
    effects=effects("reads", "convergent"),
    meaning=MemoryAccess("workgroup", "load", lambda size, lane, component: (lane ^ 1, component)),
    lowering=lowered,
)
PAIR = OpDef(
    name="toy.pair",
    operands=("a", "b"),
    result=lambda types, _: (VectorType(BF16, 2),),
    meaning=LaneFunction(lambda m, a, b, *, result: [a[0], b[0]], "components"),
    lowering=lowered,
)


def swap(apart, wrong=0):
    def sources(size, active):
        lane = np.arange(size)
        upper = lane // apart % 2
        return (upper, lane - upper * apart), (upper, (lane + (1 - upper) * apart) ^ wrong)

    return OpDef(
        name=f"toy.swap_{apart}",
        operands=("a", "b"),
        result=lambda types, _: types,
        effects=effects("convergent"),
        meaning=LanePermutation(sources),
        lowering=lowered,
    )


def stages(types, attributes):
    expect(attributes["count"] * element_type(types[0]).bytes in (4, 16), "moves 4 or 16 bytes")
    return ()


STAGE = OpDef(
    name="toy.stage",
    operands=("pointer", "buffer", "start"),
    attributes=tuple(AttributeDef(name, "int", default=1) for name in ("count", "offset", "scope")),
    result=stages,
    effects=effects("reads", "writes"),
    meaning=MemoryAccess("global", "stage"),
    lowering=lowered,
)
STAGE_VIEW = attrs.evolve(STAGE, name="toy.stage_view", meaning=MemoryAccess("view", "stage"))
LANE = OpDef(name="toy.lane", result=lambda *_: (I32,), meaning=LaneFunction(lambda m: m.lane_id()), lowering=lowered)
WAIT = OpDef(
    name="toy.wait",
    attributes=(AttributeDef("outstanding", "int", default=0),),
    result=lambda types, _: (),
    effects=effects("writes"),
    meaning=MemoryAccess("workgroup", "wait"),
    lowering=lowered,
)
PIN = OpDef(
    name="toy.pin",
    operands=("x",),
    attributes=(AttributeDef("register", "str", default="vector"),),
    result=lambda types, _: types,
    effects=effects("convergent"),
    meaning=ScheduleMarker(),
    lowering=lowered,
)
GOOD = {
    "transpose_read_16": READ,
    "transpose_read_8": READ,
    "narrow_bf16": PAIR,
    "swap_16": swap(16),
    "swap_32": swap(32),
    "stage_4": STAGE,
    "stage_16": STAGE,
    "stage_view_4": STAGE_VIEW,
    "stage_view_16": STAGE_VIEW,
    "lane_again": LANE,
    "pin": PIN,
    "wait_staged": WAIT,
}
OPS = tuple(dict.fromkeys(GOOD.values()))


def an_arch(roles=GOOD, ops=OPS):
    return Arch(
        name="toy",
        target_ids=("toy",),
        wave_size=32,
        facts={},
        matrix=MatrixCatalog(()),
        ops=ops,
        roles=roles,
        lower_kernel=lowered,
        read_usage=lowered,
    )


def test_every_role_can_be_had_and_is_found_while_building():
    arch = an_arch()
    assert arch.roles.keys() == ROLES.keys()
    found = []
    build_kernel("k", [], arch=arch, block=32, body=lambda: found.extend(map(op_in_role, ROLES)))
    assert found == list(GOOD.values())
    bare = []
    build_kernel("k", [], arch=an_arch(roles={}), block=32, body=lambda: bare.extend(map(op_in_role, ROLES)))
    assert bare == [None] * len(ROLES)


ATTRIBUTES = [attribute for attribute in READ.attributes if attribute.name != "scope"]
WRONG = {
    "is no load from workgroup memory": ("transpose_read_16", PAIR),
    "hands no element to another lane": (
        "transpose_read_8",
        attrs.evolve(READ, meaning=MemoryAccess("workgroup", "load")),
    ),
    "has no attribute scope": ("transpose_read_16", attrs.evolve(READ, attributes=tuple(ATTRIBUTES))),
    "gives bf16": ("transpose_read_16", attrs.evolve(READ, result=lambda types, _: (BF16,))),
    "is no lane function": ("narrow_bf16", READ),
    "gives f32 for two f32": ("narrow_bf16", attrs.evolve(PAIR, result=lambda types, _: (F32,))),
    "is no lane permutation": ("swap_32", PAIR),
    "gives i32 for two i32": ("swap_16", attrs.evolve(swap(16), result=lambda types, _: types[:1])),
    "exchanges other lanes": ("swap_32", swap(16)),
    "exchanges other lanes ": ("swap_16", swap(16, wrong=1)),
    "stages nothing from a pointer to workgroup memory": ("stage_4", STAGE_VIEW),
    "stages nothing from a view to workgroup memory": ("stage_view_16", STAGE),
    "has no attribute offset or scope": ("stage_16", attrs.evolve(STAGE, attributes=STAGE.attributes[:1])),
    "gives i32, not nothing": ("stage_4", attrs.evolve(STAGE, result=lambda types, _: (I32,))),
    "is no lane function of nothing": ("lane_again", PAIR),
    "gives bf16 ": ("lane_again", attrs.evolve(LANE, result=lambda *_: (BF16,))),
    "does more than to hand on a value": ("pin", LANE),
    "has no attribute register": ("pin", attrs.evolve(PIN, attributes=())),
    "gives f32 for": ("pin", attrs.evolve(PIN, result=lambda *_: (F32,))),
    "waits for no staging": ("wait_staged", STAGE),
    "has no attribute outstanding": ("wait_staged", attrs.evolve(WAIT, attributes=())),
}


@pytest.mark.parametrize("said", WRONG)
def test_an_op_that_does_not_keep_its_role_is_refused(said):
    role, op = WRONG[said]
    with pytest.raises(PluginError, match=rf"{op.name} cannot have the role {role} \(.*\): it {said.strip()}"):
        an_arch({role: op}, (op,))


def test_an_op_that_stages_another_width_does_not_have_the_role():
    def narrow(types, attributes):
        expect(attributes["count"] * element_type(types[0]).bytes == 4, "moves 4 bytes")
        return ()

    op = attrs.evolve(STAGE, result=narrow)
    assert an_arch({"stage_4": op}, (op,)).op_for("stage_4") is op
    with pytest.raises(PluginError, match=r"toy.stage does not take .*, count = 4: moves 4 bytes"):
        an_arch({"stage_16": op}, (op,))


def test_what_is_missing_is_named_with_what_there_is_of_its_kind():
    """The pair: the arch that has the op gives it; the one that has the other width names that."""
    assert an_arch().op_for("stage_16") is STAGE
    said = (
        r"toy has no op in the role stage_16 \(each lane moves 16 bytes from a pointer to workgroup memory .*\); "
        r"of its kind it has stage_4 \(each lane moves 4 bytes .*\)$"
    )
    without = an_arch({"stage_4": STAGE, "stage_view_16": STAGE_VIEW})
    with pytest.raises(IllegalOp, match=said):
        without.op_for("stage_16")
    with pytest.raises(IllegalOp, match=r"no op in the role wait_staged \(.*\); of its kind it has nothing$"):
        without.op_for("wait_staged")
    asked = []

    def body():
        asked.append(op_for_role("stage_4"))
        op_for_role("stage_16")

    with pytest.raises(IllegalOp, match=said):
        build_kernel("k", [], arch=without, block=32, body=body)
    assert asked == [STAGE]


def test_a_role_that_nobody_knows_is_asked_for_in_vain_and_not_in_silence():
    for ask in (op_in_role, op_for_role):
        with pytest.raises(IRError, match=r"nobody knows the role 'stage_8', roles are: transpose_read_16, .*stage_16"):
            build_kernel("k", [], arch=an_arch(), block=32, body=lambda ask=ask: ask("stage_8") and None)
    with pytest.raises(IRError, match="nobody knows the role 'stage_8'"):
        an_arch().op_for("stage_8")


def test_a_role_nobody_knows_and_an_op_that_is_not_listed_are_refused():
    with pytest.raises(PluginError, match="toy declares an op for the role 'turner', roles are: transpose_read_16"):
        an_arch({"turner": READ})
    with pytest.raises(PluginError, match=r"toy declares toy.read for the role transpose_read_16, but does not list"):
        an_arch({"transpose_read_16": READ}, (PAIR,))


def blending(sources):
    return OpDef(
        name="toy.blend",
        operands=("a", "b"),
        result=lambda types, _: (types[0],),
        effects=effects("convergent"),
        meaning=LanePermutation(sources),
        lowering=lowered,
    )


def test_a_permutation_may_read_another_operand_in_each_lane_but_none_that_is_not_there():
    lane = np.arange(32)
    for operand, fits in ((lane % 2, True), (1, True), (lane % 3, False), (2, False), (-(lane % 2), False)):
        op = blending(lambda size, active, operand=operand: ((operand, lane),))

        def body(op=op):
            op(lanes.lane_id(), lanes.thread_id())

        if fits:
            build_kernel("k", [], arch=an_arch({}, (op,)), block=32, body=body)
        else:
            with pytest.raises(IRError, match=r"reads operands .*, it has 2"):
                build_kernel("k", [], arch=an_arch({}, (op,)), block=32, body=body)
