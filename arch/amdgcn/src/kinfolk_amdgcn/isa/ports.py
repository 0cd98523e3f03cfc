"""Where accesses of lanes go: memory, the private memory of lanes, workgroup memory, or what an address chooses.

Source: LLVM, "User Guide for AMDGPU Backend", "Address Spaces"; "AMD Instinct MI300 Instruction Set Architecture",
chapter "Flat Memory Instructions".
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np

from kinfolk.machine import AccessError
from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.waves import LANES, SHARED_APERTURE, Array, Waves

PRIVATE_APERTURE: Final = SHARED_APERTURE + 1
"""Upper halves of flat addresses that are places in workgroup memory and in private memory."""
_LOW: Final = np.uint64(0xFFFFFFFF)
Index = tuple[Array, ...]
"""Wave and lane of each access, and which of its lane's units it is."""


class Port(Protocol):
    """Reads and writes units of lanes at byte addresses."""

    def read(self, w: Waves, index: Index, addresses: Array, unit: int) -> Array:
        """Return units as unsigned integers."""
        ...

    def write(self, w: Waves, index: Index, addresses: Array, values: Array, atomic: bool = False) -> None:
        """Write units, unsigned integers."""
        ...


class Naming:
    """Turn what memory says of an access into a stop that names wave and lanes; `index` are those that took part."""

    def __init__(self, index: Index | None) -> None:
        self._index = index

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, AccessError):
            first = int(np.flatnonzero(error.wrong.any(axis=tuple(range(1, error.wrong.ndim))))[0])
            if self._index is None:
                raise Stop(error.kind, error.why, first) from None
            raise Stop(error.kind, error.why, int(self._index[0][first]), [int(self._index[1][first])]) from None


class _Memory:
    """Global memory."""

    def read(self, w: Waves, index: Index, addresses: Array, unit: int) -> Array:
        with Naming(index):
            return w.batch.memory.read(addresses, unit)

    def write(self, w: Waves, index: Index, addresses: Array, values: Array, atomic: bool = False) -> None:
        with Naming(index):
            w.batch.memory.write(addresses, values)


class _Private:
    """Memory of each lane alone, from 0 on."""

    _strict = True

    def read(self, w: Waves, index: Index, addresses: Array, unit: int) -> Array:
        wave, lane = index[:2]
        rows, at = self._place(w, index, addresses, unit)
        found = np.zeros(len(at), f"u{unit}")
        for byte in range(unit):
            never = ~w.batch.private_written[rows, lane, at + byte]
            if never.any() and self._strict:
                first = int(np.argmax(never))
                what = "reads private memory that was never written"
                raise Stop("uninitialised", what, int(wave[first]), [int(lane[first])])
            found |= w.batch.private[rows, lane, at + byte].astype(found.dtype) << found.dtype.type(8 * byte)
        return found

    def write(self, w: Waves, index: Index, addresses: Array, values: Array, atomic: bool = False) -> None:
        unit = values.dtype.itemsize
        rows, at = self._place(w, index, addresses, unit)
        for byte in range(unit):
            w.batch.private[rows, index[1], at + byte] = (values >> values.dtype.type(8 * byte)).astype(np.uint8)
            w.batch.private_written[rows, index[1], at + byte] = True

    def _place(self, w: Waves, index: Index, addresses: Array, unit: int) -> tuple[Array, Array]:
        at, size = (addresses & _LOW).astype(np.int64), w.batch.private.shape[2]
        wrong = at + unit > size
        if wrong.any():
            first = int(np.argmax(wrong))
            what = f"reaches byte {int(at[first])} of private memory, of which a lane has {size} bytes"
            raise Stop("memory", what, int(index[0][first]), [int(index[1][first])])
        return (w.group * w.batch.local.waves + w.number)[index[0]], at


class _Spilled(_Private):
    """Private memory at a place that is the same for all lanes, where compilers keep registers that may be unwritten.

    Reading what was never written is no fault yet: a register that holds nothing else is not written either.
    """

    _strict = False

    def known(self, w: Waves, addresses: Array, unit: int) -> Array:
        """Return in which lanes [waves, lanes] all bytes at their addresses were written."""
        rows = (w.group * w.batch.local.waves + w.number)[:, None]
        found = np.ones(w.live.shape, np.bool_)
        for byte in range(unit):
            at = np.minimum(addresses + byte, w.batch.private.shape[2] - 1)
            found &= w.batch.private_written[rows, np.arange(LANES), at]
        return found

    def forget(self, w: Waves, index: Index, addresses: Array, unit: int) -> None:
        """Take bytes for never written, which get what registers held that are not."""
        rows, at = self._place(w, index, addresses, unit)
        for byte in range(unit):
            w.batch.private_written[rows, index[1], at + byte] = False


class _Local:
    """Workgroup memory as a flat address reaches it."""

    def read(self, w: Waves, index: Index, addresses: Array, unit: int) -> Array:
        local = w.batch.local
        places, units = self._units(w, index, addresses, unit)
        local.check_read(w, units)
        local.mark_read(w, units)
        return local.bytes.view(f"u{unit}")[places // unit]

    def write(self, w: Waves, index: Index, addresses: Array, values: Array, atomic: bool = False) -> None:
        local = w.batch.local
        places, units = self._units(w, index, addresses, values.dtype.itemsize)
        if atomic:
            local.check_atomic(w, units)
            local.mark_atomic(w, units)
        else:
            local.check_write(w, units)
            local.mark_write(w, units)
        local.bytes.view(values.dtype)[places // values.dtype.itemsize] = values

    def _units(self, w: Waves, index: Index, addresses: Array, unit: int) -> tuple[Array, Array]:
        """Return bytes of the batch's memory, and units [waves, lanes, units] of them, -1 for others."""
        local = w.batch.local
        wave, lane, number = index
        wide = np.full((w.count, LANES, int(number.max(initial=0)) + 1), -1, np.int64)
        at = (addresses & _LOW).astype(np.int64)
        for what, wrong in (("memory", at + unit > local.limit), ("alignment", at % unit != 0)):
            if wrong.any():
                first = int(np.argmax(wrong))
                told = f"reaches workgroup memory at {int(at[first]):#x}, of {local.limit} bytes, {unit} at once"
                raise Stop(what, told, int(wave[first]), [int(lane[first])])  # pyright: ignore[reportArgumentType]
        places = at + w.group[wave] * local.size
        wide[wave, lane, number] = places
        units = local.units_of(wide.reshape(w.count, -1), unit).reshape(w.count, LANES, -1)
        return places, units


MEMORY_PORT: Final[Port] = _Memory()
PRIVATE_PORT: Final[Port] = _Private()
SPILL_PORT: Final = _Spilled()
LOCAL_PORT: Final[Port] = _Local()


class _Flat:
    """What an address chooses by its upper half."""

    def read(self, w: Waves, index: Index, addresses: Array, unit: int) -> Array:
        found = np.zeros(len(addresses), f"u{unit}")
        for port, chosen in self._ports(addresses):
            part: Index = tuple(each[chosen] for each in index)
            found[chosen] = port.read(w, part, addresses[chosen], unit)
        return found

    def write(self, w: Waves, index: Index, addresses: Array, values: Array, atomic: bool = False) -> None:
        for port, chosen in self._ports(addresses):
            part: Index = tuple(each[chosen] for each in index)
            port.write(w, part, addresses[chosen], values[chosen], atomic)

    def _ports(self, addresses: Array) -> list[tuple[Port, Array]]:
        upper = addresses >> np.uint64(32)
        shared, private = upper == SHARED_APERTURE, upper == PRIVATE_APERTURE
        parts = ((LOCAL_PORT, shared), (PRIVATE_PORT, private), (MEMORY_PORT, ~(shared | private)))
        return [(port, chosen) for port, chosen in parts if chosen.any()]


FLAT_PORT: Final[Port] = _Flat()
