"""Every portable op in the words of this target, compiled."""

import attrs
import pytest

from kinfolk.errors import IRError
from kinfolk.ir import build_kernel
from kinfolk.ir.op import BySelectedTarget
from kinfolk.ir.ops import CORE_OPS, arithmetic, control, convert, lanes, memory, vector
from kinfolk.ir.types import BF16, F32, I32, SCALARS, PointerType, VectorType
from kinfolk.parameters import Parameter
from kinfolk_runtime.artifact import compile_job
from kinfolk_runtime.toolchains.host import toolchain_for
from kinfolk_toy_simt.atoms import MATRIX
from kinfolk_toy_simt.lowering import LACKING, LOWERINGS
from kinfolk_toy_simt.plugin import ARCH

BY_TARGET = {op.name for op in CORE_OPS if isinstance(op.lowering, BySelectedTarget)}
PARAMETERS = (
    Parameter(name="x", type=PointerType(BF16), alignment=16),
    Parameter(name="y", type=PointerType(F32), access="readwrite", alignment=4),
    Parameter(name="count", type=I32),
)


@pytest.fixture(scope="module")
def compiled():
    """Return what compiles a kernel and gives its code and its figures."""
    toolchain = toolchain_for("llvm22")

    def compile_kernel(kernel):
        code = toolchain.compile(compile_job(ARCH.lower(kernel, None, 22))).object
        return code.decode(), ARCH.usage(code, kernel.name)

    return compile_kernel


def kernel_of(body, name="sample", block=64):
    return build_kernel(name, PARAMETERS, arch=ARCH, block=block, attributes={}, body=body)


def test_every_op_whose_words_are_the_targets_has_some_or_is_lacking():
    assert LOWERINGS.keys() | LACKING.keys() >= BY_TARGET
    assert not LOWERINGS.keys() & LACKING.keys()
    assert all(LACKING.values())


@pytest.mark.compile
@pytest.mark.parametrize(
    ("element", "words"), [("i16", 1), ("bf16", 1), ("i32", 1), ("f32", 1), ("i64", 2), ("f64", 2)]
)
def test_first_lane_moves_values_of_every_size(compiled, element, words):
    def body(data):
        place = memory.offset(data, lanes.thread_id())
        memory.store(place, lanes.first_lane(memory.load(place)))

    parameter = Parameter(name="data", type=PointerType(SCALARS[element]), access="readwrite", alignment=8)
    code, _ = compiled(build_kernel("moved", [parameter], arch=ARCH, block=32, attributes={}, body=body))
    assert code.count("shfl.sync.idx") == words


def every_op(x, y, count):
    """Use all of them once."""
    lane, thread = lanes.lane_id(), lanes.thread_id()
    view = memory.bound(memory.offset(x, lanes.uniform(lanes.block_id(axis=0)) * count), count)
    values = convert.fpext(memory.view_load(view, control.opaque(thread) * 4, count=4), to=F32)
    powers = arithmetic.log2(arithmetic.rcp(arithmetic.exp2(values)))
    total = vector.extract(powers, index=0)
    total = total + lanes.shuffle_xor(total, mask=1)
    first = lanes.first_lane(lanes.byte_permute(thread, lane, selector=(0, 1, 4, 5)))
    shared = memory.allocate(F32, 64)
    memory.workgroup_store(shared, thread, total)
    control.barrier()
    control.schedule_fence()
    own = memory.workgroup_load(shared, thread ^ 1)
    control.meet("end")
    rounded = convert.fptrunc(own, to=BF16)
    memory.view_store(view, lanes.wave_id(), rounded)
    control.if_else(lanes.any_lane(first < count), lambda: memory.atomic_add(y, own) or (), cold=True)


@pytest.mark.compile
def test_a_kernel_of_every_op_compiles_and_keeps_nothing_in_private_memory(compiled):
    kernel = kernel_of(every_op)
    assert {op.name for op in kernel.walk()} >= BY_TARGET - LACKING.keys()
    code, usage = compiled(kernel)
    assert (usage.scratch_bytes, usage.scratch_ops) == (0, 0)
    assert usage.figures["workgroup_bytes"] == 256
    for word in ("shfl.sync.bfly", "vote.sync.any", "prmt", "ex2.approx.ftz", "atom.global.add", "bar"):
        assert word in code, word


@pytest.mark.compile
@pytest.mark.parametrize("atom", tuple(MATRIX), ids=str)
def test_an_atom_is_a_call_that_says_what_it_stands_for(compiled, atom):
    def body(x, y, count):
        a, b = (
            convert.bitcast(memory.load(x, count=operand.slots), to=VectorType(atom.shape.a_type, operand.slots))
            for operand in (atom.shape.a, atom.shape.b)
        )
        memory.store(y, atom(a, b, memory.load(y, count=atom.shape.c.slots)))

    code, _ = compiled(kernel_of(body))
    assert f".extern .func  (.param .align 16 .b8 func_retval0[16]) {atom.op.name.replace('.', '_')}" in code


@pytest.mark.compile
def test_an_access_by_a_view_is_predicated_and_one_by_a_pointer_is_not(compiled):
    def by_view(x, y, count):
        value = memory.view_load(memory.bound(y, count), lanes.thread_id())
        memory.store(memory.offset(y, lanes.thread_id()), value)

    def by_pointer(x, y, count):
        memory.store(memory.offset(y, lanes.thread_id()), memory.load(memory.offset(y, lanes.thread_id() ^ 1)))

    assert "setp" in compiled(kernel_of(by_view))[0]
    assert "setp" not in compiled(kernel_of(by_pointer))[0]


def test_waves_of_another_size_are_refused():
    kernel = kernel_of(lambda x, y, count: None)
    wide = attrs.evolve(ARCH, wave_size=64, banks=None, facts=dict(ARCH.facts.declared) | {"wave_size": 64})
    with pytest.raises(IRError, match="sample is built for waves of 32"):
        wide.lower(kernel, None, 22)
