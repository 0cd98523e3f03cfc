"""Kernels as LLVM IR: the words that this target has for what LLVM has no portable word for.

LLVM has no backend for a made-up machine. The code here is for its nearest relative, the virtual machine PTX, which
also has waves of 32 lanes: each op below is one instruction or a few. A bounded view is a pointer and a size, and every
access through it is a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kinfolk.arch import LoweredModule
from kinfolk.errors import IRError
from kinfolk.ir.op import LlvmWriter, LowerToLlvm
from kinfolk.ir.types import BufferType, DataType, PointerType, ScalarType, VectorType, component_count, element_type
from kinfolk.ir.value import Kernel, Operation, Value
from kinfolk.lowering import FunctionWriter, Target
from kinfolk.parameters import Parameter

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.spec import Spec

TRIPLE, PROCESSOR, FEATURES = "nvptx64-nvidia-cuda", "sm_90", "+ptx80"
VIEW: Final = "{ ptr addrspace(1), i32 }"
"""A bounded view as a value: its base, and how many elements it has."""


def lower_kernel(kernel: Kernel, arch: Arch, spec: Spec | None, llvm: int) -> LoweredModule:
    """Return `kernel` as an LLVM IR module; IRError for waves of another size.

    What a kernel asks of the compiler in `kernel.attributes` concerns registers, which PTX leaves to whoever reads it.
    """
    if kernel.wave_size != arch.wave_size:
        raise IRError(f"{kernel.name} is built for waves of {kernel.wave_size}, {arch.name} has {arch.wave_size} lanes")
    writer = FunctionWriter(kernel, TARGET, llvm)
    writer.name_parameters()
    writer.region(kernel.body)
    text = writer.module([_parameter(each) for each in kernel.parameters], "nounwind")
    return LoweredModule(
        symbol=kernel.name, text=text, triple=TRIPLE, cpu=PROCESSOR, features=FEATURES, code="assembly"
    )


def _parameter(parameter: Parameter) -> str:
    if not isinstance(parameter.type, PointerType):
        return f"{'float' if parameter.type.name == 'f32' else parameter.type.name} %{parameter.name}"
    access = {"read": " readonly", "write": " writeonly", "readwrite": ""}[parameter.access]
    return f"ptr addrspace(1) noalias{access} align {parameter.alignment} %{parameter.name}"


# ---------------------------------------------------------------------------------------------------- who a lane is


def _register(name: str) -> Callable[[LlvmWriter], str]:
    return lambda w: w.call("i32", f"llvm.nvvm.read.ptx.sreg.{name}")


_THREAD: Final = _register("tid.x")


def _block_id(w: LlvmWriter, op: Operation) -> None:
    axis = op.attributes["axis"]
    assert isinstance(axis, int)
    w.alias(op.results[0], _register(f"ctaid.{'xyz'[axis]}")(w))


# ----------------------------------------------------------------------------------------- values that cross lanes


def _active(w: LlvmWriter) -> str:
    return f"i32 {w.call('i32', 'llvm.nvvm.activemask')}"


def _across(w: LlvmWriter, op: Operation, move: Callable[[str], str]) -> None:
    """Move a value of up to 64 bits by words of 32."""
    (x,), (result,) = op.operands, op.results
    type_ = x.type
    assert isinstance(type_, DataType)
    bits = component_count(type_) * element_type(type_).bits
    integer = w.name(x) if w.type(type_) == f"i{bits}" else w.fresh(f"bitcast {w.typed(x)} to i{bits}")
    if bits < 32:
        moved = w.fresh(f"trunc i32 {move(w.fresh(f'zext i{bits} {integer} to i32'))} to i{bits}")
    elif bits == 32:
        moved = move(integer)
    else:
        words = w.fresh(f"bitcast i64 {integer} to <2 x i32>")
        joined = "poison"
        for index in range(2):
            word = move(w.fresh(f"extractelement <2 x i32> {words}, i32 {index}"))
            joined = w.fresh(f"insertelement <2 x i32> {joined}, i32 {word}, i32 {index}")
        moved = w.fresh(f"bitcast <2 x i32> {joined} to i64")
    w.alias(result, moved if w.type(type_) == f"i{bits}" else w.fresh(f"bitcast i{bits} {moved} to {w.type(type_)}"))


def _shuffle_xor(w: LlvmWriter, op: Operation) -> None:
    mask, active = op.attributes["mask"], _active(w)

    def move(word: str) -> str:
        return w.call("i32", "llvm.nvvm.shfl.sync.bfly.i32", active, f"i32 {word}", f"i32 {mask}", "i32 31")

    _across(w, op, move)


def _first_lane(w: LlvmWriter, op: Operation) -> None:
    active = _active(w)
    lane = w.call("i32", "llvm.cttz.i32", active, "i1 true")

    def move(word: str) -> str:
        return w.call("i32", "llvm.nvvm.shfl.sync.idx.i32", active, f"i32 {word}", f"i32 {lane}", "i32 31")

    _across(w, op, move)


def _any_lane(w: LlvmWriter, op: Operation) -> None:
    w.alias(op.results[0], w.call("i1", "llvm.nvvm.vote.any.sync", _active(w), w.typed(op.operands[0])))


def _byte_permute(w: LlvmWriter, op: Operation) -> None:
    selector = op.attributes["selector"]
    assert isinstance(selector, tuple)
    control = sum(byte << (4 * position) for position, byte in enumerate(selector))
    low, high = op.operands
    w.alias(op.results[0], w.call("i32", "llvm.nvvm.prmt", w.typed(low), w.typed(high), f"i32 {control}"))


# ------------------------------------------------------------------------------------------------------------ memory


def _atomic_add(w: LlvmWriter, op: Operation) -> None:
    pointer, value = op.operands
    verb = "fadd" if element_type(pointer.type).kind == "float" else "add"
    w.fresh(f"atomicrmw {verb} {w.typed(pointer)}, {w.typed(value)} monotonic, align 4")


def _bound(w: LlvmWriter, op: Operation) -> None:
    pointer, count = op.operands
    based = w.fresh(f"insertvalue {VIEW} poison, {w.typed(pointer)}, 0")
    w.define(op.results[0], f"insertvalue {VIEW} {based}, {w.typed(count)}, 1")


def _each_inside(w: LlvmWriter, view: Value, index: Value, count: int, access: Callable[[int, str], str]) -> list[str]:
    """Access each component whose element lies in the view, and return the values of `access`, 0 for the others."""
    assert isinstance(w, FunctionWriter)
    element = w.type(element_type(view.type))
    base = w.fresh(f"extractvalue {w.typed(view)}, 0")
    size = w.fresh(f"extractvalue {w.typed(view)}, 1")
    found: list[str] = []
    for component in range(count):
        place = w.fresh(f"add {w.typed(index)}, {component}")
        inside = w.fresh(f"icmp ult i32 {place}, {size}")
        labels = w.new_label("inside"), w.new_label("behind")
        before = w.block
        w.emit(f"br i1 {inside}, label %{labels[0]}, label %{labels[1]}")
        w.start_block(labels[0])
        address = w.fresh(f"getelementptr {element}, ptr addrspace(1) {base}, i32 {place}")
        value = access(component, f"ptr addrspace(1) {address}")
        w.emit(f"br label %{labels[1]}")
        w.start_block(labels[1])
        if value:
            value = w.fresh(f"phi {element} [ {value}, %{labels[0]} ], [ zeroinitializer, %{before} ]")
        found.append(value)
    return found


def _view_load(w: LlvmWriter, op: Operation) -> None:
    (view, index), (result,) = op.operands, op.results
    scalar = element_type(view.type)
    element, kind = w.type(scalar), w.kind_of_memory(op)

    def load(_: int, address: str) -> str:
        return w.fresh(f"load {element}, {address}, align {scalar.bytes}{kind}")

    count = result.type.count if isinstance(result.type, VectorType) else 1
    parts = _each_inside(w, view, index, count, load)
    if isinstance(result.type, ScalarType):
        w.alias(result, parts[0])
        return
    joined, type_ = "poison", w.type(result.type)
    for component, part in enumerate(parts):
        joined = w.fresh(f"insertelement {type_} {joined}, {element} {part}, i32 {component}")
    w.alias(result, joined)


def _view_store(w: LlvmWriter, op: Operation) -> None:
    view, index, value = op.operands
    scalar = element_type(view.type)
    element, kind = w.type(scalar), w.kind_of_memory(op)
    count = value.type.count if isinstance(value.type, VectorType) else 1

    def store(component: int, address: str) -> str:
        part = w.name(value)
        if isinstance(value.type, VectorType):
            part = w.fresh(f"extractelement {w.typed(value)}, i32 {component}")
        w.emit(f"store {element} {part}, {address}, align {scalar.bytes}{kind}")
        return ""

    _each_inside(w, view, index, count, store)


def _allocate(w: LlvmWriter, op: Operation) -> None:
    assert isinstance(w, FunctionWriter)
    buffer = op.results[0].type
    assert isinstance(buffer, BufferType)
    name = f"@{w.kernel.name}_workgroup{w.global_count()}"
    memory = f"[{buffer.count} x {w.type(buffer.element)}] poison"
    w.global_memory(f"{name} = internal unnamed_addr addrspace(3) global {memory}, align 16")
    w.alias(op.results[0], name)


# ------------------------------------------------------------------------------------------- arithmetic and control


def _approximate(function: str) -> LowerToLlvm:
    """Lower to an instruction on f32 that flushes denormals, component by component."""

    def lower(w: LlvmWriter, op: Operation) -> None:
        (x,), (result,) = op.operands, op.results
        name = f"llvm.nvvm.{function}.approx.ftz.f"
        if isinstance(x.type, ScalarType):
            w.alias(result, w.call("float", name, w.typed(x)))
            return
        assert isinstance(x.type, VectorType)
        joined, type_ = "poison", w.type(x.type)
        for index in range(x.type.count):
            part = w.call("float", name, f"float {w.fresh(f'extractelement {w.typed(x)}, i32 {index}')}")
            joined = w.fresh(f"insertelement {type_} {joined}, float {part}, i32 {index}")
        w.alias(result, joined)

    return lower


def _barrier(function: str, *arguments: str) -> LowerToLlvm:
    """Lower to a barrier, which also orders what lanes do to workgroup memory."""

    def lower(w: LlvmWriter, op: Operation) -> None:
        w.call("void", f"llvm.nvvm.{function}", *arguments)

    return lower


LOWERINGS: Final[Mapping[str, LowerToLlvm]] = {
    "core.thread_id": lambda w, op: w.alias(op.results[0], _THREAD(w)),
    "core.lane_id": lambda w, op: w.define(op.results[0], f"and i32 {_THREAD(w)}, 31"),
    "core.wave_id": lambda w, op: w.define(op.results[0], f"lshr i32 {_THREAD(w)}, 5"),
    "core.block_id": _block_id,
    "core.shuffle_xor": _shuffle_xor,
    "core.first_lane": _first_lane,
    "core.uniform": lambda w, op: w.alias(op.results[0], w.name(op.operands[0])),
    "core.any_lane": _any_lane,
    "core.byte_permute": _byte_permute,
    "core.atomic_add": _atomic_add,
    "core.bound": _bound,
    "core.view_load": _view_load,
    "core.view_store": _view_store,
    "core.allocate": _allocate,
    "core.exp2": _approximate("ex2"),
    "core.log2": _approximate("lg2"),
    "core.rcp": _approximate("rcp"),
    "core.barrier": _barrier("barrier0"),
    "core.meet": _barrier("barrier.sync", "i32 0"),
    "core.schedule_fence": lambda w, op: w.emit('call void asm sideeffect "", "~{memory}"()'),
    "core.opaque": lambda w, op: w.define(
        op.results[0], f'call i32 asm sideeffect "", "=r,0"({w.typed(op.operands[0])})'
    ),
}
"""How each portable op is written whose words are the target's: all that declare `BY_TARGET`, but those `lacking`."""

LACKING: Final[Mapping[str, str]] = {
    "core.widen_float8": "convert to f16 before the data come here",
    "core.narrow_float8": "store f16",
}
"""Portable ops that the machine does not have, each with what to use instead."""

TARGET: Final = Target(
    triple=TRIPLE,
    data_layout="",  # the target's own
    convention="ptx_kernel",
    spaces={"global": 1, "workgroup": 3},
    view=VIEW,
    lowerings=LOWERINGS,
)
