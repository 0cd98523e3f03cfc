"""Facts of an arch: those it declares, and those that follow from its atoms and waves."""

import attrs
import numpy as np
import pytest

from kinfolk.arch import Arch, UnknownFact
from kinfolk.errors import IllegalOp, IRError, PluginError
from kinfolk.expr import ExprError, Scope, fact
from kinfolk.ir import build_kernel, constant
from kinfolk.ir.meaning import Matrix, OperandMap
from kinfolk.ir.op import OpDef
from kinfolk.ir.ops import float8, memory
from kinfolk.ir.types import BF16, F8E4M3FN, F8E5M2, F32, VectorType
from kinfolk.matrix import Atom, MatrixCatalog, atom_fact

ANYWHERE = OperandMap(np.zeros((32, 4), np.int64), np.zeros((32, 4), np.int64))
PRODUCT = Matrix(16, 16, 8, BF16, BF16, F32, ANYWHERE, ANYWHERE, ANYWHERE)
ATOM = Atom(OpDef(name="toy.product", result=lambda *_: (), issue="matrix", meaning=PRODUCT, lowering=print), 4)


def arch(**changes):
    parts = {"name": "toy", "target_ids": ("toy",), "wave_size": 32, "facts": {"lds_bytes": 1024}}
    return Arch(
        **(parts | {"matrix": MatrixCatalog((ATOM,)), "lower_kernel": None, "read_usage": None} | changes),
    )


SHAPE = {"m": 16, "n": 16, "k": 8, "a": "bf16"}


@pytest.mark.parametrize(
    "asked, there",
    [
        ({}, True),
        ({"b": "bf16", "c": "f32"}, True),
        ({"m": 32}, False),
        ({"n": 32}, False),
        ({"k": 16}, False),
        ({"a": "f16"}, False),
        ({"b": "f16"}, False),
        ({"c": "bf16"}, False),
    ],
)
def test_a_condition_can_ask_for_an_atom(asked, there):
    name = atom_fact(**SHAPE | asked)
    assert fact(name).holds(Scope(arch=arch())) is there
    assert arch().fact(name) is there
    assert fact(name).holds(Scope(arch=arch(matrix=MatrixCatalog(())))) is False


@pytest.mark.parametrize("name", ["matrix.", "matrix.16x16.bf16.bf16.f32", "matrix.16x16x8.bf16.f32", "lds_byte"])
def test_a_fact_of_no_meaning_is_no_fact(name):
    with pytest.raises(ExprError, match="no fact"):
        fact(name).evaluate(Scope(arch=arch()))
    with pytest.raises(UnknownFact, match=r"it declares: lds_bytes, wave_size$"):
        arch().fact(name)


def test_the_wave_size_is_a_fact_of_every_arch_and_one_number():
    assert arch().fact("wave_size") == 32
    assert attrs.evolve(arch(), wave_size=64).fact("wave_size") == 64
    assert arch(facts={"wave_size": 32}).wave_size == 32
    with pytest.raises(PluginError, match=r"toy has waves of 32, and declares the fact wave_size = 64"):
        arch(facts={"wave_size": 64})


def test_facts_are_read_like_a_mapping():
    assert dict(arch().facts) == {"lds_bytes": 1024, "wave_size": 32}
    assert len(arch().facts) == 2


def test_facts_and_what_else_is_declared_cannot_be_changed():
    declared = {"lds_bytes": 1024}
    made = arch(facts=declared)
    declared["lds_bytes"] = 1
    assert made.lds_bytes == 1024
    for mapping in (made.facts, made.facts.declared, made.roles, made.lacking, made.lacking_types, made.bounds):
        with pytest.raises(TypeError):
            mapping["lds_bytes"] = 1


BOUNDED = {
    "facts": {"threads": 64, "bytes": 1024},
    "bounds": {"workgroup_threads": "threads", "workgroup_bytes": "bytes"},
}


@pytest.mark.parametrize(
    "threads, elements, told", [(64, 256, ""), (96, 256, "block in threads is 96"), (64, 257, "1028")]
)
def test_a_kernel_is_held_to_the_bounds_when_it_is_built(threads, elements, told):
    def body():
        memory.allocate(F32, elements)

    def build(on):
        return build_kernel("k", (), arch=on, block=threads, body=body)

    build(arch())  # an arch that declares no bound has none
    if not told:
        build(arch(**BOUNDED))
        return
    with pytest.raises(IRError, match=told):
        build(arch(**BOUNDED))


@pytest.mark.parametrize("bounds", [{"workgroup_bytes": "absent"}, {"registers": "lds_bytes"}])
def test_a_bound_names_a_fact_that_is_a_number(bounds):
    with pytest.raises(PluginError, match="each by a declared fact that is an int"):
        arch(bounds=bounds)


TYPED = {"core.narrow_float8": {F8E4M3FN: "write f8E4M3FNUZ"}}


def test_an_op_may_be_lacking_for_one_type_alone():
    """The pair: one type is refused where the op is built, with what there is instead; its neighbour is not."""
    made = arch(lacking_types=TYPED)
    assert made.has("core.narrow_float8") and made.has("core.narrow_float8", F32, F8E5M2)
    assert not made.has("core.narrow_float8", F32, VectorType(F8E4M3FN, 4)) and made.has("core.add", F8E4M3FN)
    assert made.lacks("core.narrow_float8", F8E4M3FN) == "write f8E4M3FNUZ"

    def narrows(to):
        def body():
            float8.narrow_float8(constant(1.0, F32), to=to, overflow="saturate")

        return build_kernel("k", [], arch=made, block=32, body=body)

    assert narrows(F8E5M2).walk()
    with pytest.raises(IllegalOp, match=r"float8 is not legal on toy: write f8E4M3FNUZ \(at .*test_arch.py"):
        narrows(F8E4M3FN)
