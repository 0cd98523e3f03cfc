"""Units moved between registers and a buffer of global memory, once it is known which of them are inside it.

Here the sanitizers have their say: bytes that hold nothing, races between workgroups, lanes that store different
values to one place. What no sanitizer looks for reads as poison and is not written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.ir.numpy_lanes import Array
from kinfolk_runtime.simulator.buffers import Unavailable
from kinfolk_runtime.simulator.fault import Party
from kinfolk_runtime.simulator.races import DOES, ROLES
from kinfolk_runtime.simulator.space import Mapped
from kinfolk_runtime.simulator.traffic import Meeting
from kinfolk_runtime.simulator.wave import Wave

if TYPE_CHECKING:
    from kinfolk_runtime.simulator.access import Transfer

POISON: Final = 0xA5
"""What every byte holds that is not there or not written; a small negative bf16 or f32 that stands out."""
Inside = npt.NDArray[np.bool_]


class WorkgroupsRace(Exception):  # never leaves the simulator: it becomes a KernelFault
    """Two workgroups race: where, and `raise_` (other) raises the fault once the other party is known."""

    def __init__(self, mapped: Mapped, meeting: Meeting, raise_: Callable[[Party], NoReturn]) -> None:
        super().__init__()
        self.mapped = mapped
        self.meeting = meeting
        self.raise_ = raise_


@attrs.define(eq=False)
class Probe:
    """Watches one workgroup for the op that did what `meeting` says; `found` is the first."""

    mapped: Mapped
    meeting: Meeting
    found: Party | None = None


def poisoned(shape: tuple[int, ...], unit: np.dtype[Any]) -> Array:
    """Return units of poison."""
    return np.full(shape, int.from_bytes(bytes([POISON]) * unit.itemsize, "little"), unit)


def fetch(w: Wave, transfer: Transfer, mapped: Mapped, lanes: Array, offsets: Array, inside: Inside) -> Array:
    """Return the units at byte offsets [count, lanes or 1] into a buffer; those not `inside` are 0."""
    _watch(w, transfer, mapped, lanes, offsets, inside)
    whole = bool(inside.all())
    where = offsets if whole else offsets[inside]
    try:
        if _strict(w):
            units = mapped.storage.read(where, transfer.unit)
        else:
            units = _read_what_is_there(w, mapped, where, transfer.unit)
    except Unavailable as missing:
        _fail_missing(w, transfer, mapped, missing, lanes, offsets, inside)
    if whole:
        return units
    result = np.zeros(offsets.shape, transfer.unit)
    result[inside] = units
    return result


def put(
    w: Wave, transfer: Transfer, mapped: Mapped, lanes: Array, offsets: Array, inside: Inside, values: Array
) -> None:
    """Store the units of `values` that are `inside`, or add them, one lane after the other."""
    _watch(w, transfer, mapped, lanes, offsets, inside)
    values = np.broadcast_to(values, offsets.shape)
    if transfer.role == "store" and "race" not in w.group.sanitize:
        values = settled(offsets, values, inside)
    whole = bool(inside.all())
    where, given = (offsets, values) if whole else (offsets[inside], values[inside])
    try:
        if not _strict(w):
            written = _write_what_is_there(w, transfer, mapped, where.reshape(-1), given.reshape(-1))
            inside = inside.copy()
            inside[inside] = written
        elif transfer.role == "store":
            mapped.storage.write(where, given)
        else:
            mapped.storage.add(where, given.view(transfer.storage))
    except Unavailable as missing:
        _fail_missing(w, transfer, mapped, missing, lanes, offsets, inside)
    if transfer.role == "store" and "race" in w.group.sanitize and inside.any():
        _check_kept(w, transfer, mapped, lanes, offsets, inside, values)


def settled(places: Array, values: Array, inside: Inside | None = None) -> Array:
    """Return units [count, lanes] in which all that go to one place are the last lane's; only those `inside` count."""
    if len(places) == 1:
        return values
    there = np.ones(places.shape, np.bool_) if inside is None else inside
    where, given = places.T[there.T][::-1], np.broadcast_to(values, places.shape).T[there.T][::-1]
    once, first = np.unique(where, return_index=True)
    if len(once) == len(where):
        return values
    result = np.array(np.broadcast_to(values, places.shape))
    result[there] = given[first][np.searchsorted(once, places[there])]
    return result


def _strict(w: Wave) -> bool:
    return "memory" in w.group.sanitize and "initialisation" in w.group.sanitize


def _let_go(w: Wave, missing: Unavailable) -> npt.NDArray[np.bool_]:
    """Return which units are there after all that is not looked for, or raise again."""
    if missing.kind in w.group.sanitize:
        raise missing
    return ~missing.wrong.reshape(-1)


def _read_what_is_there(w: Wave, mapped: Mapped, where: Array, unit: np.dtype[Any]) -> Array:
    if (where % unit.itemsize).any():
        parts = (where[..., None] + np.arange(unit.itemsize)).reshape(-1)
        return _read_what_is_there(w, mapped, parts, np.dtype(np.uint8)).view(unit).reshape(where.shape)
    flat, there = where.reshape(-1), np.arange(where.size)
    units = poisoned(flat.shape, unit)
    while len(there):
        try:
            units[there] = mapped.storage.read(flat[there], unit, any_state="initialisation" not in w.group.sanitize)
            break
        except Unavailable as missing:
            there = there[_let_go(w, missing)]
    return units.reshape(where.shape)


def _write_what_is_there(w: Wave, transfer: Transfer, mapped: Mapped, where: Array, given: Array) -> Inside:
    """Write or add what can be, flat; return which units were."""
    if transfer.unit.itemsize > 1 and (where % transfer.unit.itemsize).any():
        return _write_unaligned(w, transfer, mapped, where, given)
    there = np.arange(len(where))
    as_they_are = "initialisation" not in w.group.sanitize
    while len(there):
        try:
            if transfer.role == "store":
                mapped.storage.write(where[there], given[there])
            else:
                mapped.storage.add(where[there], given[there].view(transfer.storage), any_state=as_they_are)
            break
        except Unavailable as missing:
            there = there[_let_go(w, missing)]
    written = np.zeros(len(where), np.bool_)
    written[there] = True
    return written


def _write_unaligned(w: Wave, transfer: Transfer, mapped: Mapped, where: Array, given: Array) -> Inside:
    """Write unit after unit, a unit byte by byte."""
    written = np.zeros(len(where), np.bool_)
    for number, offset in enumerate(where):
        spots = offset + np.arange(transfer.unit.itemsize)
        value = given[number : number + 1]
        if transfer.role != "store":
            before = _read_what_is_there(w, mapped, spots[:1], transfer.unit)
            value = (before.view(transfer.storage) + value.view(transfer.storage)).view(transfer.unit)
        try:
            mapped.storage.write(spots, np.ascontiguousarray(value).view(np.uint8))
            written[number] = True
        except Unavailable as missing:
            _let_go(w, missing)
    return written


def _lanes_of(w: Wave, lanes: Array, wrong: npt.NDArray[np.bool_]) -> Array:
    where = np.atleast_1d(wrong.any(axis=0))
    return lanes[where] if len(where) == len(lanes) else lanes


def _fail_missing(
    w: Wave, transfer: Transfer, mapped: Mapped, missing: Unavailable, lanes: Array, offsets: Array, inside: Inside
) -> NoReturn:
    """Raise the fault of an access to bytes that hold nothing."""
    wrong = np.zeros(offsets.shape, np.bool_)
    wrong[inside] = missing.wrong.reshape(-1)
    first = int(offsets[wrong].min())
    fail(w, transfer, missing.kind, f"{missing.why} {mapped.name}", mapped, first, _lanes_of(w, lanes, wrong))


def fail(
    w: Wave, transfer: Transfer, kind: Any, what: str, mapped: Mapped, distance: int, lanes: Array, **more: Any
) -> NoReturn:
    """Raise the fault of an access `distance` bytes into a buffer."""
    element, size = distance // mapped.element_bytes, mapped.size // mapped.element_bytes
    w.fail(
        transfer.op,
        kind,
        f"{what} (element {element} of {size})",
        lanes,
        address=int(mapped.base) + distance,
        buffer=mapped.name,
        element=element,
        **more,
    )


def _check_kept(
    w: Wave, transfer: Transfer, mapped: Mapped, lanes: Array, offsets: Array, inside: Inside, values: Array
) -> None:
    """Raise where a lane finds another value than the one it stored."""
    lost = np.zeros(offsets.shape, np.bool_)
    found = _read_what_is_there(w, mapped, offsets[inside], transfer.unit)
    lost[inside] = found != values[inside]
    if not lost.any():
        return
    first = int(offsets[lost].min())
    here = inside & (offsets == first)
    what = f"writes different values to {mapped.name} from several lanes"
    others = tuple(int(lane) for lane in _lanes_of(w, lanes, here & ~lost))
    other = Party(transfer.op.name, str(transfer.op.location), w.group.place, w.index, others)
    fail(w, transfer, "race", what, mapped, first, _lanes_of(w, lanes, here & lost), other=other)


def _watch(w: Wave, transfer: Transfer, mapped: Mapped, lanes: Array, offsets: Array, inside: Inside) -> None:
    """Note what a workgroup touches of what others may write; raise where another has."""
    group = w.group
    size = transfer.unit.itemsize

    def touching(meeting: Meeting, granule: int) -> npt.NDArray[np.bool_]:
        return inside & (offsets < meeting.offset + granule) & (offsets + size > meeting.offset)

    if group.probe is not None and group.probe.mapped is mapped and group.probe.found is None:
        meeting = group.probe.meeting
        here = touching(meeting, mapped.element_bytes)
        if ROLES[meeting.role] == transfer.role and here.any():
            party = Party(
                transfer.op.name,
                str(transfer.op.location),
                group.place,
                w.index,
                tuple(int(lane) for lane in _lanes_of(w, lanes, here)),
            )
            group.probe.found = party
    watched = group.traffic.of(mapped) if group.traffic is not None else None
    if watched is None:
        return
    met = watched.touch(ROLES.index(transfer.role), offsets[inside], size, group.number)
    if met is None:
        return
    concerned = _lanes_of(w, lanes, touching(met, watched.granule))
    what = f"{DOES[transfer.role]} {mapped.name}, where another workgroup {DOES[ROLES[met.role]]} in the same launch,"

    def raise_(other: Party) -> NoReturn:
        fail(w, transfer, "race", what, mapped, met.offset, concerned, other=other)

    raise WorkgroupsRace(mapped, met, raise_)


__all__ = ["POISON", "Probe", "WorkgroupsRace", "fail", "fetch", "poisoned", "put", "settled"]
