"""Roles: what an arch may declare its ops good for, and what is refused; permutations that read several operands."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from kinfolk.arch import Arch
from kinfolk.errors import IRError, PluginError
from kinfolk.ir import build_kernel
from kinfolk.ir.builder import op_in_role
from kinfolk.ir.meaning import LaneFunction, LanePermutation, MemoryAccess
from kinfolk.ir.op import AttributeDef, OpDef, effects
from kinfolk.ir.ops import lanes
from kinfolk.ir.types import BF16, F32, VectorType, element_type
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
GOOD = {"transpose_read_16": READ, "transpose_read_8": READ, "narrow_bf16": PAIR}


def an_arch(roles=GOOD, ops=(READ, PAIR)):
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
}


@pytest.mark.parametrize("said", WRONG)
def test_an_op_that_does_not_keep_its_role_is_refused(said):
    role, op = WRONG[said]
    with pytest.raises(PluginError, match=rf"{op.name} cannot have the role {role} \(.*\): it {said}"):
        an_arch({role: op}, (op,))


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
