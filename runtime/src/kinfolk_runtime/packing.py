"""The argument block of a launch as bytes: what every host passes, whatever wrote it."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final, cast

from kinfolk.errors import BindError, InternalError
from kinfolk.plan import ArgumentValue
from kinfolk.usage import KernelArgument

_FORMS: Final = {"pointer": "<Q", "i32": "<i", "i64": "<q", "f32": "<f"}


def packed(values: Sequence[ArgumentValue], layout: Sequence[KernelArgument], addresses: Mapping[str, int]) -> bytes:
    """Return arguments as the kernel reads them, little-endian, each at its offset, zeros between.

    `addresses` gives the device address of each binding. Raises BindError for a float that f32 does not hold, and
    InternalError where values and layout do not fit.
    """
    if len(values) != len(layout):
        raise InternalError(f"{len(values)} arguments are packed into {len(layout)} places")
    block = bytearray(max((place.offset + place.size for place in layout), default=0))
    for value, place in zip(values, layout, strict=True):
        form = _FORMS[value.kind]
        if struct.calcsize(form) != place.size:
            raise InternalError(f"argument {value.name} is {value.kind}, its place has {place.size} bytes")
        number = addresses[cast("str", value.value)] if value.kind == "pointer" else value.value
        try:
            struct.pack_into(form, block, place.offset, number)
        except OverflowError as error:
            raise BindError(f"argument {value.name} is {number}, which {value.kind} does not hold.") from error
    return bytes(block)
