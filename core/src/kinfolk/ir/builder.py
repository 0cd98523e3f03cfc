"""Building a kernel: ops are checked against their declaration, and against what the arch has, as they are built."""

from __future__ import annotations

import struct
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from kinfolk.errors import IllegalOp, InternalError, IRError
from kinfolk.ir.meaning import Control, MemoryAccess
from kinfolk.ir.op import Attribute, OpDef, OpTable
from kinfolk.ir.types import F32, I1, BufferType, DataType, ScalarType, Type, VectorType, element_type
from kinfolk.ir.value import Kernel, Location, Operation, Region, Value

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.parameters import Parameter

_IR_FOLDER = str(Path(__file__).parent)
_local = threading.local()
ALLOCATION_ALIGNMENT: Final = 16
"""Where allocations of workgroup memory begin: at multiples of so many bytes."""


def current_builder() -> Builder:
    """Return the builder whose kernel is being built on this thread."""
    builder: Builder | None = getattr(_local, "builder", None)
    if builder is None:
        raise InternalError("no kernel is being built on this thread; ops are built inside `build_kernel`")
    return builder


def op_in_role(role: str) -> OpDef | None:
    """Return the op that the arch being built for has in a role of `kinfolk.roles`; None where it has none."""
    return current_builder().op_in_role(role)


def op_for_role(role: str) -> OpDef:
    """Return the op that the arch being built for has in a role of `kinfolk.roles`.

    Raises IllegalOp, naming what is missing and what of its kind the arch has, where it has none.
    """
    return current_builder().op_for_role(role)


def constant(value: int | float, type_: DataType) -> Value:
    """Return a constant of the kernel being built."""
    return current_builder().constant(value, type_)


def float_bits(value: float, type_: ScalarType) -> int:
    """Return the storage bits of `value` rounded to f32 or f64, or in f16 or bf16, which must hold it exactly."""
    if type_.name == "bf16":
        bits = float_bits(value, F32)
        if bits & 0xFFFF or (value == value and struct.unpack("<f", struct.pack("<f", value)) != (value,)):
            raise IRError(f"{value!r} is not exact in bf16")
        return bits >> 16
    if type_.name not in _FORMATS:
        raise IRError(f"constants of {type_} are given as bits")
    try:
        packed = struct.pack(_FORMATS[type_.name], value)
    except OverflowError:
        raise IRError(f"{value!r} is past the largest {type_}") from None
    if type_.name == "f16" and value == value and struct.unpack("<e", packed) != (value,):
        raise IRError(f"{value!r} is not exact in f16")
    return int.from_bytes(packed, "little")


_FORMATS = {"f64": "<d", "f32": "<f", "f16": "<e"}


class Builder:
    """Appends ops to the region it stands in. Constants are made once and stand at the start of the kernel."""

    def __init__(
        self,
        table: OpTable,
        arch_name: str,
        lacks: Callable[..., str | None],
        roles: Mapping[str, OpDef] | None = None,
    ) -> None:
        self.table = table
        self._roles = roles or {}
        self._arch_name = arch_name
        self._lacks = lacks
        self._region: Region | None = None
        self._constants: dict[tuple[ScalarType, int], Value] = {}
        self._constant_ops: list[Operation] = []

    def constant(self, value: int | float, type_: DataType) -> Value:
        """Return `value` as a constant of `type_`; a vector has it in every component."""
        element = element_type(type_)
        if element.kind == "float":
            bits = float_bits(float(value), element)
        else:
            if type(value) is not int:
                raise IRError(f"a constant of {element} is a Python int, got {value!r}")
            low, high = (0, 1) if element.bits == 1 else (-(1 << (element.bits - 1)), (1 << element.bits) - 1)
            if not low <= value <= high:
                raise IRError(f"{value} does not fit {element}")
            bits = value & ((1 << element.bits) - 1)
        scalar = self.constant_bits(bits, element)
        if isinstance(type_, VectorType):
            return self.add(self.table["core.splat"], (scalar,), {"count": type_.count}).results[0]
        return scalar

    def constant_bits(self, bits: int, type_: ScalarType) -> Value:
        """Return the constant of `type_` with these storage bits."""
        key = (type_, bits)
        if key not in self._constants:
            op = Operation(self.table["core.constant"], (), {"to": type_, "bits": bits}, (type_,))
            self._constant_ops.append(op)
            self._constants[key] = op.results[0]
        return self._constants[key]

    def op_in_role(self, role: str) -> OpDef | None:
        """Return the arch's op in a role, None where it has none; IRError for a role nobody knows."""
        from kinfolk.roles import known_role

        return self._roles.get(known_role(role))

    def op_for_role(self, role: str) -> OpDef:
        """Return the arch's op in a role; IllegalOp where it has none."""
        from kinfolk.roles import op_for_role

        return op_for_role(self._arch_name, role, self._roles)

    def add(
        self,
        definition: OpDef,
        operands: Sequence[Value | int | float],
        attributes: Mapping[str, Any],
        regions: tuple[Region, ...] = (),
    ) -> Operation:
        """Append an op: literals become constants of the first operand's type, attributes get their defaults."""
        if definition.name not in self.table or self.table[definition.name] is not definition:
            raise IllegalOp(
                f"{definition.name} is not an op of {self._arch_name}; it has: {self._near(definition.name)}"
            )
        if instead := self._lacks(definition.name):
            raise IllegalOp(f"{definition.name} is not legal on {self._arch_name}: {instead}")
        values = self._values(definition, operands)
        complete = complete_attributes(definition, attributes)
        try:
            check_arity(definition, len(values))
            types = infer_results(definition, tuple(value.type for value in values), complete, regions)
        except IRError as error:
            raise IRError(f"{definition.name}: {error} (at {_location()})") from None
        if instead := self._lacks(definition.name, *(value.type for value in values), *types):
            raise IllegalOp(f"{definition.name} is not legal on {self._arch_name}: {instead} (at {_location()})")
        operation = Operation(definition, values, complete, types, regions, _location())
        if self._region is None:
            raise InternalError(f"{definition.name} is built outside a region")
        self._region.operations.append(operation)
        return operation

    def _near(self, name: str) -> str:
        dialect = name.partition(".")[0]
        return (
            ", ".join(op.name for op in self.table if op.name.startswith(dialect + "."))
            or f"no op of dialect {dialect}"
        )

    def _values(self, definition: OpDef, operands: Sequence[Value | int | float]) -> tuple[Value, ...]:
        known = [operand for operand in operands if isinstance(operand, Value)]
        if len(known) == len(operands):
            return tuple(known)
        typed = [value for value in known if isinstance(value.type, DataType) and value.type != I1]
        if not typed:
            raise IRError(f"{definition.name} takes at least one value; all its operands are Python numbers")
        model = typed[0].type
        assert isinstance(model, DataType)
        return tuple(operand if isinstance(operand, Value) else self.constant(operand, model) for operand in operands)

    @contextmanager
    def inside(self, region: Region) -> Generator[Region]:
        """Append to `region` meanwhile."""
        outer, self._region = self._region, region
        try:
            yield region
        finally:
            self._region = outer

    @property
    def operations(self) -> list[Operation]:
        """The operations of the region that is being built, so far."""
        if self._region is None:
            raise InternalError("operations are asked for outside a region")
        return self._region.operations

    def place_constants(self, body: Region) -> None:
        """Put the constants at the start of the kernel's body, in order of first use."""
        body.operations[:0] = self._constant_ops


def complete_attributes(definition: OpDef, given: Mapping[str, Any]) -> dict[str, Attribute]:
    """Return the attributes in declared order with defaults; raise `IRError` for a missing, unknown or wrong one."""
    declared = {attribute.name: attribute for attribute in definition.attributes}
    for name in given:
        if name not in declared:
            raise IRError(f"{definition.name} has no attribute {name}; it has: {', '.join(declared) or 'none'}")
    complete: dict[str, Attribute] = {}
    for name, attribute in declared.items():
        value = given.get(name, attribute.default)
        if value is None:
            raise IRError(f"{definition.name} needs attribute {name}")
        attribute.check(definition.name, value)
        complete[name] = value
    return complete


def infer_results(
    definition: OpDef, operands: tuple[Type, ...], attributes: Mapping[str, Any], regions: tuple[Region, ...]
) -> tuple[Type, ...]:
    """Return an op's result types; a branch gives what its regions yield. Raise `IRError` where operands do not fit."""
    types = definition.result(operands, attributes)
    if definition.meaning != Control("if"):
        return types
    if not all(region.operations for region in regions):
        raise IRError("a branch is empty; it ends in yield")
    yielded = [tuple(value.type for value in region.operations[-1].operands) for region in regions]
    if len(yielded) != 2 or yielded[0] != yielded[1]:
        raise IRError(f"the branches yield {' and '.join(_list(types) for types in yielded)}; they must agree")
    return yielded[0]


def _list(types: Sequence[Type]) -> str:
    return ", ".join(map(str, types)) or "nothing"


def check_arity(definition: OpDef, count: int) -> None:
    """Raise `IRError` unless `count` operands fit the declaration."""
    declared = definition.operands
    if declared and declared[-1].endswith("*"):
        if count < len(declared) - 1:
            raise IRError(f"takes at least {len(declared) - 1} operands, got {count}")
    elif count != len(declared):
        raise IRError(f"takes {len(declared)} operands ({', '.join(declared)}), got {count}")


def _location() -> Location:
    frames: list[tuple[str, int]] = []
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and len(frames) < 3:
        path = frame.f_code.co_filename
        place = (_short(path), frame.f_lineno)
        if not path.startswith(_IR_FOLDER) and place not in frames[-1:]:  # a comprehension is a frame on its own line
            frames.append(place)
        frame = frame.f_back
    return Location(tuple(frames))


_SHORT: dict[str, str] = {}


def _short(path: str) -> str:
    if path not in _SHORT:
        _SHORT[path] = "/".join(Path(path).parts[-3:])
    return _SHORT[path]


def build_kernel(
    name: str,
    parameters: Sequence[Parameter],
    *,
    arch: Arch,
    block: int,
    attributes: Mapping[str, Attribute] | None = None,
    body: Callable[..., None],
) -> Kernel:
    """Build a kernel for `arch` by calling `body` with one value per parameter, then verify it.

    `block` is the number of threads of a workgroup, a whole number of waves. Raises `IllegalOp` for an op the arch
    lacks and `IRError` for a broken rule, a bound of the arch included, at the line that builds it.
    """
    from kinfolk.ir.ops.control import RETURN
    from kinfolk.ir.verify import verify

    if block % arch.wave_size or block <= 0:
        raise IRError(f"{name}: block is {block} threads, a whole number of waves of {arch.wave_size} is needed")
    _expect_within(name, "block in threads", block, arch, "workgroup_threads")
    builder = Builder(arch.op_table, arch.name, arch.lacks, arch.roles)
    region = Region(tuple(parameter_type(parameter) for parameter in parameters))
    outer = getattr(_local, "builder", None)
    _local.builder = builder
    try:
        with builder.inside(region):
            body(*region.arguments)
            builder.add(RETURN, (), {})
    finally:
        _local.builder = outer
    builder.place_constants(region)
    kernel = Kernel(
        name=name,
        parameters=tuple(parameters),
        body=region,
        block=block,
        wave_size=arch.wave_size,
        attributes=dict(attributes or {}),
    )
    verify(kernel)
    _expect_within(name, "workgroup memory in bytes", workgroup_bytes(kernel), arch, "workgroup_bytes")
    return kernel


def workgroup_bytes(kernel: Kernel) -> int:
    """Return the bytes of workgroup memory that a kernel allocates, each allocation at a multiple of 16."""
    total = 0
    for op in kernel.body.operations:  # the verifier lets no loop or branch allocate
        meaning = op.definition.meaning
        if isinstance(meaning, MemoryAccess) and meaning.action == "allocate":
            (result,) = op.results
            assert isinstance(result.type, BufferType)
            total = -(-total // ALLOCATION_ALIGNMENT) * ALLOCATION_ALIGNMENT + result.type.bytes
    return total


def _expect_within(name: str, what: str, value: int, arch: Arch, bound: str) -> None:
    """Raise IRError where a kernel is past a bound that its arch declares."""
    declared = arch.bound(bound)
    if declared is not None and value > declared[1]:
        fact, most = declared
        raise IRError(f"{name}: {what} is {value}, {arch.name} has at most {most} ({fact})")


def parameter_type(parameter: Parameter) -> Type:
    """Return the type of the value a parameter is inside the kernel."""
    return parameter.type
