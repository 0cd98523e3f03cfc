"""What an arch must hold: facts, matrix atoms, roles, and that every op it has is lowered for every type it takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from kinfolk.arch import Arch, UnknownFact
from kinfolk.errors import KinfolkError
from kinfolk.flavor import flavors
from kinfolk.ir import build_kernel, constant
from kinfolk.ir.meaning import OperandMap
from kinfolk.ir.op import OpDef
from kinfolk.ir.ops import control, lanes, memory
from kinfolk.ir.types import (
    I1,
    I32,
    SCALARS,
    BufferType,
    DataType,
    PointerType,
    ScalarType,
    Type,
    ViewType,
    component_count,
    element_type,
)
from kinfolk.ir.value import Kernel, Value
from kinfolk.parameters import Access, Parameter
from kinfolk.roles import ROLES, role_fact
from kinfolk.testing.check import Findings, Outcome
from kinfolk.testing.op_cases import Case, cases, memory_cases
from kinfolk.testing.subject import Subject

VIEW_BYTES: Final = 2
"""The least that is read of a view at once."""
CASES: Final = 24
"""The most cases of an op in one kernel at level quick; at full all of them."""


def facts(subject: Subject) -> Outcome:
    """Read every fact as families do."""
    found = Findings("arch_facts", "facts")
    arch = subject.arch
    for name, value in arch.facts.items():
        found.looked_at()
        where = f"{arch.name}, fact {name}"
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            found.wrong(where, "is no name that an expression reads", "Name it in small letters, digits and _")
        if type(value) not in (int, bool, str):
            problem = f"is {value!r} of type {type(value).__name__}"
            found.wrong(where, problem, "Declare an int, a bool or a str: expressions compute with nothing else")
        elif type(value) is int and not 0 <= value < 2**63:
            found.wrong(where, f"is {value}", "Declare a number of at least 0 that fits in signed 64 bits")
    if arch.wave_size < 1 or arch.wave_size & (arch.wave_size - 1):
        found.wrong(arch.name, f"waves have {arch.wave_size} lanes", "Declare a power of two: lanes are paired by bits")
    if not arch.target_ids:
        found.wrong(arch.name, "no target id is declared", "Name what the compiler calls it")
    try:
        arch.fact("no_such_fact")
        found.wrong(arch.name, "an unknown fact has a value", "Raise UnknownFact")
    except UnknownFact as error:
        if not all(name in str(error) for name in arch.facts):
            found.wrong(arch.name, f"an unknown fact is refused without those there are: {error}", "List them")
    return found.outcome()


def no_atoms(subject: Subject) -> str:
    """Return that an arch has no matrix atom, where it has none."""
    return "" if list(subject.arch.matrix) else "it declares no matrix atom"


def atoms(subject: Subject) -> Outcome:
    """Multiply small integers as each atom's lane maps lay them out: the product is that of the matrices."""
    found = Findings("arch_atoms", "matrix atoms")
    for atom in subject.arch.matrix:
        found.looked_at()
        shape, where = atom.shape, f"{subject.arch.name}, atom {atom}"
        for name, part, extents in (
            ("A", shape.a, (shape.m, shape.k)),
            ("B", shape.b, (shape.k, shape.n)),
            ("C", shape.c, (shape.m, shape.n)),
        ):
            for problem in _map_problems(part, extents, subject.arch.wave_size):
                remedy = "Mend the lane map: its rows and columns say what each lane and slot holds"
                found.wrong(f"{where}, {name}", problem, remedy, kind=problem)
        if atom.passes < 1:
            found.wrong(where, f"issues in {atom.passes} passes", "Declare its issue time in 4 clocks")
    return found.outcome()


def _map_problems(part: OperandMap, extents: tuple[int, int], wave_size: int) -> Iterator[str]:
    rows, columns = np.asarray(part.rows), np.asarray(part.columns)
    if rows.shape != columns.shape or rows.shape[0] != wave_size:
        yield f"its map is of shape {rows.shape}, the wave has {wave_size} lanes"
        return
    inside = (rows >= 0) & (rows < extents[0]) & (columns >= 0) & (columns < extents[1])
    if not inside.all():
        yield f"{int((~inside).sum())} elements lie outside the {extents[0]} by {extents[1]} matrix"
        return
    held = np.bincount((rows * extents[1] + columns).ravel(), minlength=extents[0] * extents[1])
    if not held.all():
        yield f"{int((held == 0).sum())} of {held.size} elements are held by no lane"
    elif len(set(held.tolist())) > 1:
        yield f"elements are held by {held.min()} to {held.max()} lanes, not equally many"


def roles(subject: Subject) -> Outcome:
    """Ask for the op in every role: the one that is declared, else an error that says what there is instead."""
    found = Findings("arch_roles", "roles")
    for role in ROLES:
        found.looked_at()
        where, declared = f"{subject.arch.name}, role {role}", subject.arch.roles.get(role)
        if subject.arch.facts[role_fact(role)] is not (declared is not None):
            found.wrong(where, "its fact does not say whether there is an op", "Leave the fact to Arch")
        try:
            op = subject.arch.op_for(role)
        except KinfolkError as error:
            if declared is not None or role not in str(error):
                found.wrong(where, f"the error does not name it: {error}", "Raise IllegalOp through op_for_role")
        else:
            if op is not declared or op.name not in subject.arch.op_table:
                found.wrong(where, f"{op.name} is none of the arch's ops", "Declare the op among `ops`")
    return found.outcome()


def lowerings(subject: Subject) -> Outcome:
    """Lower, for every flavor, kernels of every op with every type that it takes."""
    found = Findings("arch_ops", "ops with types and attributes")
    lowered: set[str] = set()
    for op in subject.arch.op_table:
        every = cases(subject.arch, op) or memory_cases(subject.arch, op)
        chosen = every if subject.full else every[:: max(1, -(-len(every) // CASES))]
        _lower(subject.arch, op, chosen, found)
        lowered.update(case.op.name for case in chosen)
    for scalar in SCALARS.values():
        lowered.update(_lower_memory(subject.arch, scalar, found))
    untried = [op.name for op in subject.arch.op_table if op.name not in lowered and subject.arch.has(op.name)]
    for name, instead in subject.arch.lacking.items():
        found.looked_at()
        if not instead.strip():
            found.wrong(f"{subject.arch.name}, op {name}", "is lacking", "Say what to use instead of it")
    if untried:
        found.note(f"not tried, since what they take is not told by their declarations: {', '.join(untried)}")
    return found.outcome()


def _lower(arch: Arch, op: OpDef, chosen: list[Case], found: Findings) -> None:
    if not chosen:
        return
    found.looked_at(len(chosen))
    try:
        kernel = case_kernel(arch, chosen)
        for flavor in flavors():
            arch.lower(kernel, None, flavor.rank)
    except KinfolkError:
        for case in chosen:  # one by one, to name the one that fails
            _lower_one(arch, op, case, found)


def _lower_one(arch: Arch, op: OpDef, case: Case, found: Findings) -> None:
    types = ", ".join(map(str, case.types))
    try:
        kernel = case_kernel(arch, [case])
        for flavor in flavors():
            arch.lower(kernel, None, flavor.rank)
    except KinfolkError as error:
        remedy = "Lower it, or declare it in `lacking` or `lacking_types` with what to use instead"
        where, example = f"{arch.name}, op {op.name}", f"{op.name}({types}) {case.attributes or ''}".strip()
        found.wrong(where, f"is legal and is not lowered: {error}", remedy, example, kind="not lowered")


WAYS: Final[tuple[tuple[str, Access], ...]] = (("in", "read"), ("out", "write"), ("both", "readwrite"))


def case_kernel(arch: Arch, chosen: list[Case]) -> Kernel:
    """Return a kernel that reads the operands of each case from memory, applies its op, and writes the results.

    Operands that are memory are the parameters, views of them and buffers; a place in one is the lane's number.
    """
    every = [each for case in chosen for each in (*case.types, *case.results)]
    named = sorted({*map(element_type, every), I1}, key=lambda scalar: scalar.name)
    parameters = [
        Parameter(name=f"{way}_{scalar.name}", type=PointerType(scalar), access=access, alignment=16)
        for scalar in named
        for way, access in WAYS
    ]

    def body(*pointers: Value) -> None:
        at = dict(zip((parameter.name for parameter in parameters), pointers, strict=True))
        lane = lanes.lane_id()
        buffers = {each: memory.allocate(each.element, each.count) for each in every if isinstance(each, BufferType)}

        def place(way: str, type_: DataType) -> Value:
            return memory.offset(at[f"{way}_{element_type(type_).name}"], lane * component_count(type_))

        def operand(op: OpDef, type_: Type, before: Type | None) -> Value:
            accessed = "in" if "writes" not in op.effects else "both"
            if isinstance(type_, PointerType):
                return at[f"{accessed}_{type_.element.name}"]
            if isinstance(type_, ViewType):
                return memory.bound(at[f"{accessed}_{type_.element.name}"], constant(4 * arch.wave_size, I32))
            if isinstance(type_, BufferType):
                return buffers[type_]
            if isinstance(before, ViewType | BufferType):
                return lane
            return memory.load(place("in", type_), count=component_count(type_))

        for case in chosen:
            pairs = zip(case.types, (None, *case.types), strict=False)
            operands = [operand(case.op, each, before) for each, before in pairs]
            results = case.op.add(*operands, **case.attributes).results
            for each, value in zip(case.results, results, strict=True):
                memory.store(place("out", each), value)

    return build_kernel("every", parameters, arch=arch, block=arch.wave_size, body=body)


def _lower_memory(arch: Arch, scalar: ScalarType, found: Findings) -> set[str]:
    """Lower a kernel that reads and writes elements of one type in every kind of memory, in a loop and a branch.

    Returns the names of its ops.
    """

    def body(source: Value, target: Value, count: Value) -> None:
        view, lane = memory.bound(source, count), lanes.lane_id()
        shared = memory.allocate(scalar, arch.wave_size)
        value = memory.load(memory.offset(source, lane))
        memory.workgroup_store(shared, lane, value)
        control.barrier()
        own = memory.workgroup_load(shared, lane)

        def step(index: Value, carried: tuple[Value, ...]) -> tuple[()]:
            memory.store(memory.offset(target, index), own)
            return ()

        control.for_range(0, count, 1, (), step)
        control.if_else(lane.eq(0), lambda: memory.store(memory.offset(target, lane), value) or ())
        if scalar == I1:
            return  # of which there are no views
        least = max(1, VIEW_BYTES // scalar.bytes)
        read = memory.view_load(view, lane * least, count=least)
        memory.view_store(memory.bound(target, count), lane * least, read)

    parameters = [
        Parameter(name="source", type=PointerType(scalar), alignment=16),
        Parameter(name="target", type=PointerType(scalar), access="write", alignment=16),
        Parameter(name="count", type=I32),
    ]
    found.looked_at()
    try:
        kernel = build_kernel("memory", parameters, arch=arch, block=arch.wave_size, body=body)
        for flavor in flavors():
            arch.lower(kernel, None, flavor.rank)
    except KinfolkError as error:
        remedy = "Lower it, or declare it in `lacking_types` with what to use instead"
        found.wrong(f"{arch.name}, memory of {scalar}", f"is not lowered: {error}", remedy)
        return set()
    return {op.name for op in kernel.walk()}
