"""Where buffer accesses go: records and offsets from the base of a resource, checked against its size.

Source: "AMD Instinct MI300 Instruction Set Architecture", section "Buffer Addressing".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
import numpy as np

from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.operands import EXEC_MASK, rows_mask, scalar_mask, scalar_source
from kinfolk_amdgcn.isa.step import Given
from kinfolk_amdgcn.isa.waves import LANES, Array, Waves

Places = Callable[[Waves], tuple[Array, Array]]
"""Byte addresses [waves, lanes], and which bytes from there on are in range: how many [waves, lanes]."""
ELEMENT: Final = 4
"""Bytes that stay together where the records of a buffer are interleaved."""
NEVER: Final = -(1 << 20)


@attrs.frozen
class Resource:
    """Fields of a buffer's resource, each [waves, 1]."""

    base: Array
    stride: Array
    interleaved: Array
    records: Array
    together: Array
    adds_lane: Array


def resource_of(w: Waves, base: int) -> Resource:
    """Return the resource in four scalar registers."""
    low, high, records, rest = (w.s[:, base + number].astype(np.int64)[:, None] for number in range(4))
    return Resource(
        base=low | (high & 0xFFFF) << 32,
        stride=high >> 16 & 0x3FFF,
        interleaved=(high >> 31).astype(np.bool_),
        records=records,
        together=8 << (rest >> 21 & 3),
        adds_lane=(rest >> 23 & 1).astype(np.bool_),
    )


def buffer_places(given: Given) -> tuple[Places, int]:
    """Return where a buffer access goes, and a mask of the registers that say so.

    AMD's and LLVM's texts differ in whether the scalar offset counts where the range of raw buffers is checked, and
    in what a size counts of records that are not interleaved; code for which that would matter stops.
    """
    base, offset = 4 * given.field("srsrc"), given.field("offset")
    indexed, by_lane = given.field("idxen"), given.field("offen")
    width = indexed + by_lane
    row = given.registers.row(given.field("vaddr"), False, width) if width else -1
    scalar = scalar_source(given.field("soffset"), "i32")
    size = given.declared.facts["size"] * given.declared.facts["count"]

    def places(w: Waves) -> tuple[Array, Array]:
        resource = resource_of(w, base)
        within: Array = np.full(w.live.shape, offset, np.int64)
        if by_lane:
            within = within + w.v[row + indexed].astype(np.int64)
        moved = np.broadcast_to(scalar.read(w).data, (w.count,)).astype(np.int64)[:, None]
        if not (indexed or resource.stride.any() or resource.adds_lane.any()):
            return _raw(w, resource, within, moved, size)
        number = w.v[row].astype(np.int64) if indexed else np.zeros(w.live.shape, np.int64)
        number = number + np.where(resource.adds_lane, np.arange(LANES), 0)
        return _of_records(w, resource, number, within, moved, size)

    reads = scalar_mask(base, 4) | scalar.registers | EXEC_MASK | (rows_mask(row, width) if row >= 0 else 0)
    return places, reads


def _raw(w: Waves, resource: Resource, within: Array, moved: Array, size: int) -> tuple[Array, Array]:
    there = resource.records - within
    if moved.any():
        fits, with_scalar = there >= size, there - moved >= size
        none, none_with = there <= 0, there - moved <= 0
        if (((fits != with_scalar) | (none != none_with)) & w.live).any():
            raise Stop("unsupported", "is in range or not by whether its scalar offset counts, which is not known")
    return resource.base + moved + within, there


def _of_records(
    w: Waves, resource: Resource, number: Array, within: Array, moved: Array, size: int
) -> tuple[Array, Array]:
    """Return places in records `number`; interleaved ones lie element by element beside their neighbours."""
    stride = resource.stride
    plain = number * stride + within
    groups, place = number // resource.together, number % resource.together
    element, rest = within // ELEMENT, within % ELEMENT
    spread = (groups * stride + element * ELEMENT) * resource.together + place * ELEMENT + rest
    if (resource.interleaved & w.live).any() and size > ELEMENT:
        raise Stop("unsupported", "accesses more than an element of interleaved records, which is not modelled")
    by_record = np.where(number < resource.records, np.int64(1 << 20), np.int64(NEVER))
    in_bytes = resource.records - plain
    there = np.where(resource.interleaved | (stride != 0), by_record, in_bytes)
    unsure = ~resource.interleaved & (stride != 0) & ((in_bytes >= size) != (by_record >= size))
    if (unsure & w.live).any():
        raise Stop("unsupported", "is in range or not by whether a size counts bytes or records, which is not known")
    return resource.base + moved + np.where(resource.interleaved, spread, plain), there
