"""Arguments of a kernel that nothing but its code object declares: by place or name, checked against the metadata."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, cast

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.errors import BindError
from kinfolk.ir.types import PointerType
from kinfolk.machine import EntryPoint, LaunchShape
from kinfolk.parameters import Parameter
from kinfolk.usage import KernelArgument
from kinfolk_runtime.simulator.buffers import Buffer, SparseBuffer, Storage

_FLOATS: Final = {2: "<e", 4: "<f", 8: "<d"}
LARGEST_DIMENSION: Final = 1 << 31


@attrs.frozen(kw_only=True, eq=False)
class Given:
    """One argument as it is passed: a buffer or null for a pointer, else the bytes of a value."""

    name: str
    place: KernelArgument
    storage: Storage | None = None
    read_only: bool = False
    data: bytes = b""


def names(entry: EntryPoint) -> tuple[str, ...]:
    """Return what the arguments are called: by the object, or `#` and their place from 0 on where it says nothing."""
    return tuple(argument.name or f"#{number}" for number, argument in enumerate(entry.arguments))


def given_arguments(
    entry: EntryPoint, arguments: Sequence[object] | Mapping[str, object], read_only: Collection[str | int] = ()
) -> tuple[Given, ...]:
    """Return the arguments in the kernel's order; BindError where names, number or values do not fit its own."""
    called = names(entry)
    values = _in_order(entry, called, arguments)
    unknown = [each for each in read_only if each not in called and each not in range(len(called))]
    if unknown:
        raise BindError(f"read_only names {unknown[0]!r}, {_takes(entry, called)}")
    return tuple(
        _given(entry.symbol, name, place, value, name in read_only or number in read_only)
        for number, (name, place, value) in enumerate(zip(called, entry.arguments, values, strict=True))
    )


def _in_order(
    entry: EntryPoint, called: tuple[str, ...], arguments: Sequence[object] | Mapping[str, object]
) -> list[object]:
    if isinstance(arguments, Mapping):
        missing = [name for name in called if name not in arguments]
        unknown = [name for name in arguments if name not in called]
        if missing or unknown:
            what = f"{', '.join(unknown)} is none of them" if unknown else f"{', '.join(missing)} is not given"
            raise BindError(f"{_takes(entry, called)}; {what}. Pass every one, pointers that are not used as None.")
        return [arguments[name] for name in called]
    if len(arguments) != len(called):
        raise BindError(
            f"{_takes(entry, called)}; {len(arguments)} are given. Pass every one in order, pointers that are not "
            f"used as None: a compiler may have added some at the end."
        )
    return list(arguments)


def _takes(entry: EntryPoint, called: tuple[str, ...]) -> str:
    each = ", ".join(
        f"{name} ({place.kind}, {place.size} bytes)" for name, place in zip(called, entry.arguments, strict=True)
    )
    return f"{entry.symbol} takes {len(called)} arguments: {each or 'none'}"


def _given(symbol: str, name: str, place: KernelArgument, value: object, read_only: bool) -> Given:
    if place.kind == "pointer":
        if value is not None and not isinstance(value, np.ndarray | Buffer | SparseBuffer):
            raise BindError(
                f"argument {name} of {symbol} is a pointer, got {value!r}: pass an array, or None for null."
            )
        check_array(name, cast("object", value))
        storage = Buffer(cast("npt.NDArray[Any]", value)) if isinstance(value, np.ndarray) else value
        read_only = read_only or (isinstance(storage, Buffer) and not storage.writeable)
        return Given(name=name, place=place, storage=storage, read_only=read_only)
    if place.kind != "value":
        raise BindError(f"argument {name} of {symbol} is a {place.kind}, which is not passed here.")
    data = _bytes_of(value, place.size)
    if data is None:
        raise BindError(
            f"argument {name} of {symbol} is a value of {place.size} bytes, got {value!r}: pass an int or a float that "
            f"it holds, a numpy scalar or bytes of that size."
        )
    return Given(name=name, place=place, data=data)


def _bytes_of(value: object, size: int) -> bytes | None:
    """Return a value's bytes, little-endian; None where it is none of that size."""
    if isinstance(value, bytes | np.generic):
        data = value if isinstance(value, bytes) else value.tobytes()
        return data if len(data) == size else None
    if isinstance(value, bool):
        return bytes([value]) if size == 1 else None
    if isinstance(value, int):
        fits = -(1 << 8 * size - 1) <= value < 1 << 8 * size
        return (value & (1 << 8 * size) - 1).to_bytes(size, "little") if fits else None
    try:
        return struct.pack(_FLOATS[size], value) if isinstance(value, float) and size in _FLOATS else None
    except OverflowError:
        return None


def check_declared(entry: EntryPoint, parameters: Sequence[Parameter], arguments: Sequence[object]) -> None:
    """Raise BindError where parameters that a caller declares are not the kernel's, or arguments do not fit them."""
    symbol = entry.symbol
    if entry.arguments and len(entry.arguments) != len(parameters):
        raise BindError(f"{_takes(entry, names(entry))}; {len(parameters)} parameters are declared. Declare every one.")
    if len(arguments) != len(parameters):
        called = ", ".join(parameter.name for parameter in parameters) or "none"
        raise BindError(
            f"{symbol} is declared with {len(parameters)} parameters ({called}), {len(arguments)} arguments are given. "
            f"Pass one for each, in order."
        )
    for parameter, value in zip(parameters, arguments, strict=True):
        if isinstance(parameter.type, PointerType):
            check_array(parameter.name, value, written=parameter.access != "read")
            continue
        bits, name = parameter.type.bits, parameter.type.name
        is_float = parameter.type.kind == "float"
        fits = type(value) is float if is_float else False
        if type(value) is int:
            fits = is_float or -(1 << bits - 1) <= value < 1 << bits - 1
        if not fits:
            takes = "an int or a float" if is_float else f"an int of {bits} bits with sign"
            raise BindError(f"argument {parameter.name} of {symbol} is {value!r}, its type is {name}: pass {takes}.")


def check_array(name: str, value: object, *, written: bool = False) -> None:
    """Raise BindError for an array whose bytes are no plain values of this host, or may not be written and will be."""
    if not isinstance(value, np.ndarray):
        return
    array = cast("npt.NDArray[Any]", value)
    if array.dtype.hasobject or not array.dtype.isnative:
        raise BindError(
            f"argument {name} is an array of {array.dtype}, which has no bytes that a kernel could use: pass one of "
            f"numbers in this host's order of bytes."
        )
    if written and not array.flags.writeable:
        raise BindError(f"argument {name} is an array that may only be read, the kernel may write it: pass a copy.")


def check_shape(entry: EntryPoint, shape: LaunchShape) -> None:
    """Raise BindError for a launch that the kernel was not compiled for, or that has no workgroup or item."""
    for field, sizes in (("grid", shape.grid), ("block", shape.block)):
        if len(sizes) != 3 or any(type(size) is not int or not 1 <= size < LARGEST_DIMENSION for size in sizes):
            raise BindError(f"{field} is {sizes!r}: pass three sizes from 1 on, 1 for an axis that is not used.")
    items = shape.block[0] * shape.block[1] * shape.block[2]
    if items > entry.largest_block:
        raise BindError(f"block is {shape.block}, {items} items; {entry.symbol} is compiled for {entry.largest_block}.")
    if entry.required_block and shape.block != tuple(entry.required_block):
        raise BindError(f"block is {shape.block}; {entry.symbol} is compiled for {tuple(entry.required_block)} alone.")
    if type(shape.dynamic_bytes) is not int or shape.dynamic_bytes < 0:
        raise BindError(
            f"dynamic_bytes is {shape.dynamic_bytes!r}: pass a number of bytes of workgroup memory, 0 or more."
        )
