"""A kernel's code translated: each instruction as the step that its declaration makes, found by place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import attrs

from kinfolk_amdgcn.isa import (
    conditions,
    division,
    doubles,
    floats,
    half_floats,
    halves,
    integers,
    local_atomics,
    scalar_bits,
)
from kinfolk_amdgcn.isa.cache_steps import CACHE
from kinfolk_amdgcn.isa.code_steps import CODE, jump_step
from kinfolk_amdgcn.isa.declare import Declared, Table
from kinfolk_amdgcn.isa.encoding import Encoded, decoded
from kinfolk_amdgcn.isa.fault import MachineFault, Stop
from kinfolk_amdgcn.isa.flow_steps import FLOW, flow_step
from kinfolk_amdgcn.isa.hazards import too_early
from kinfolk_amdgcn.isa.index_steps import INDEX, indexed_step, mode_after
from kinfolk_amdgcn.isa.kernel_object import KernelObject
from kinfolk_amdgcn.isa.local_steps import LOCAL, local_step, part_bytes
from kinfolk_amdgcn.isa.matrix_blocks import BLOCKS
from kinfolk_amdgcn.isa.matrix_steps import MATRIX, matrix_step
from kinfolk_amdgcn.isa.memory_steps import MEMORY, memory_step, scalar_load_step
from kinfolk_amdgcn.isa.mode_steps import MODES
from kinfolk_amdgcn.isa.operands import RegisterFile
from kinfolk_amdgcn.isa.scalar_alu import SCALAR
from kinfolk_amdgcn.isa.scalar_steps import scalar_step
from kinfolk_amdgcn.isa.scaled_conversions import SCALED
from kinfolk_amdgcn.isa.special_steps import SPECIAL, special_step
from kinfolk_amdgcn.isa.step import Given, Step
from kinfolk_amdgcn.isa.vector_alu import VECTOR
from kinfolk_amdgcn.isa.vector_steps import vector_step
from kinfolk_amdgcn.isa.waves import Waves

_ADDING: Final = (division, doubles, floats, half_floats, halves, integers, conditions, local_atomics, scalar_bits)
"""What adds to the tables of other modules by being imported."""
TABLES: Final[tuple[Table, ...]] = (
    VECTOR,
    SCALAR,
    SPECIAL,
    SCALED,
    MATRIX,
    BLOCKS,
    LOCAL,
    MEMORY,
    CACHE,
    MODES,
    FLOW,
    CODE,
    INDEX,
)
_STEPS: Final[dict[str, Callable[[Given], Step]]] = {
    "lane": vector_step,
    "scalar": scalar_step,
    "special": special_step,
    "matrix": matrix_step,
    "local": local_step,
    "buffer": memory_step,
    "flat": memory_step,
    "scalar_load": scalar_load_step,
}


@attrs.frozen(kw_only=True, eq=False)
class Program:
    """The steps of a kernel in the order of its code. `marked` bytes of workgroup memory are looked at as one."""

    kernel: KernelObject
    registers: RegisterFile
    steps: tuple[Step, ...]
    marked: int


def declared(encoded: Encoded) -> Declared | None:
    """Return the declaration of an instruction; None where it has none."""
    found = (table.find(encoded.format, encoded.opcode) for table in TABLES)
    return next((each for each in found if each is not None), None)


def translated(kernel: KernelObject, float8: str) -> Program:
    """Return a kernel's program.

    An instruction that is not modelled is a step which stops with its words and its place, where a wave comes to it.
    """
    registers = RegisterFile(kernel.vectors, kernel.accumulators)
    instructions = list(_instructions(kernel))
    index = {encoded.offset: number for number, encoded in enumerate(instructions)}
    steps: list[Step] = []
    by_number = 0  # operands of vector instructions that M0 moves
    for encoded in instructions:
        found = declared(encoded)
        if found is None:
            name = f"{encoded.format} opcode {encoded.opcode} ({encoded.words})"
            steps.append(_stopping(encoded, name, "is an instruction that is not modelled"))
            continue
        given = Given(declared=found, encoded=encoded, registers=registers, float8=float8)
        try:
            steps.append(_step(given, index, by_number))
        except Stop as stop:
            steps.append(_stopping(encoded, f"{found.name} ({encoded.words})", stop.what))
        by_number = mode_after(given, by_number)
    if steps and (not steps[-1].flow or steps[-1].taken is not None):
        steps.append(_past_the_end(instructions[-1]))
    for number, step in enumerate(steps):
        if (early := too_early(steps, number)) is not None:
            steps[number] = attrs.evolve(step, early=early)
    marked = min((part_bytes_of(encoded) for encoded in instructions), default=4)
    return Program(kernel=kernel, registers=registers, steps=tuple(steps), marked=marked)


def _instructions(kernel: KernelObject) -> Iterator[Encoded]:
    """Yield a kernel's instructions and, where it calls, those of the object's functions, by place from the kernel."""
    own = list(decoded(kernel.code))
    yield from own
    if any((found := declared(encoded)) is not None and found.facts.get("calls") for encoded in own):
        for place, code in kernel.functions:
            for encoded in decoded(code):
                yield attrs.evolve(encoded, offset=encoded.offset + place - kernel.place)


def _step(given: Given, index: Mapping[int, int], by_number: int) -> Step:
    """Return an instruction's step; `index` are the places of instructions, `by_number` operands that M0 moves."""
    declared, encoded = given.declared, given.encoded

    def index_of(offset: int) -> int:
        if offset not in index:
            raise Stop("unsupported", f"jumps to offset {offset:#x}, where no instruction of the kernel begins")
        return index[offset]

    if encoded.literal is not None and encoded.literal >> 31 and declared.name.endswith("_i64"):
        raise Stop("unsupported", "extends a literal to 64 bits, with or without its sign, which is not known")
    if "calls" in declared.facts:
        return jump_step(given, index)
    if by_number and declared.format.startswith("VOP"):
        return indexed_step(given, by_number)
    return flow_step(given, index_of) if declared.kind == "flow" else _STEPS[declared.kind](given)


def part_bytes_of(encoded: Encoded) -> int:
    """Return the bytes of the smallest single access of an instruction of workgroup memory; 4 for all others."""
    found = LOCAL.find(encoded.format, encoded.opcode)
    if found is None:
        return 4
    return part_bytes(Given(declared=found, encoded=encoded, registers=RegisterFile(0, 0), float8=""))


def _stopping(encoded: Encoded, text: str, what: str) -> Step:
    def run(w: Waves) -> None:
        raise Stop("unsupported", what)

    return Step(name=text, text=text, offset=encoded.offset, run=run)


def _past_the_end(last: Encoded) -> Step:
    """Return what stops waves that go on after the last instruction of all."""

    def run(w: Waves) -> None:
        raise Stop("memory", f"follows {last.words}, the last instruction of the code: no s_endpgm ends the waves")

    return Step(name="nothing", text="nothing", offset=last.offset + 4 * last.dwords, run=run)


def unmodelled(program: Program) -> tuple[str, ...]:
    """Return the instructions of a program that are not modelled, each once, in their order."""
    return tuple(dict.fromkeys(step.name for step in program.steps if "(" in step.name))


def check_modes(kernel: KernelObject) -> None:
    """Raise MachineFault for a kernel in a mode of floats that is not modelled, or that needs scratch memory."""
    wrong: Iterable[str] = (
        *(["flushes f32 denormals"] if kernel.denormals_f32 != 3 else []),
        *(["does not round f32 to nearest even"] if kernel.rounding_f32 else []),
        *(["flushes denormals of f16 and f64"] if kernel.denormals_f16_f64 != 3 else []),
        *(["does not round f16 and f64 to nearest even"] if kernel.rounding_f16_f64 else []),
        *([f"takes {name}" for name, _ in kernel.user if name in _UNKNOWN]),
    )
    for what in wrong:
        raise MachineFault(f"the kernel {what}, which is not modelled", kind="unsupported", kernel=kernel.symbol)


_UNKNOWN: Final = frozenset({"private_segment_buffer", "flat_scratch_init", "private_segment_size"})
