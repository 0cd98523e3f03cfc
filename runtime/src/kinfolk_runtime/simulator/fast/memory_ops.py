"""Functions of accesses to global memory: through pointers, and through bounded views."""

from __future__ import annotations

from typing import Any, cast

import attrs
import numpy as np

from kinfolk.ir.meaning import MemoryAccess
from kinfolk.ir.types import DataType, ScalarType, component_count, element_type
from kinfolk.ir.value import Operation
from kinfolk_runtime.simulator.fast.checks import Checks
from kinfolk_runtime.simulator.fast.lane_ops import exchanged
from kinfolk_runtime.simulator.fast.layout import (
    ACCESS,
    ADDRESSES,
    BASE,
    HOST,
    MAY_READ,
    MAY_WRITE,
    SHARED,
    SIZE,
    SPARE_BYTES,
    VIEW_ACCESS,
    VIEW_BASE,
    VIEW_HOST,
    VIEW_READ,
    VIEW_SIZE,
    VIEW_WRITTEN,
    ZEROS,
)
from kinfolk_runtime.simulator.fast.lines import Mover
from kinfolk_runtime.simulator.fast.support import ADD_F32, ADD_I32, COMPARE, LOAD, STORE
from kinfolk_runtime.simulator.fast.text import OpText, OpWriter
from kinfolk_runtime.simulator.traffic import LOADED, STORED
from kinfolk_runtime.simulator.views import added_constant


class UnknownAccess(Exception):  # never leaves the engine: such a kernel runs in the reference engine
    """A memory op of a form that has no function here."""


@attrs.frozen
class Moved:
    """What one memory op moves per lane."""

    role: str
    element: ScalarType
    count: int
    alignment: int
    offset: int

    @classmethod
    def of(cls, op: Operation, meaning: MemoryAccess) -> Moved:
        """Return what `op` moves; raise `UnknownAccess` for what has no function."""
        if meaning.action not in ("load", "store", "atomic_add"):
            raise UnknownAccess(f"{op.name}: {meaning.action}")
        data = cast("DataType", op.results[0].type if meaning.action == "load" else op.operands[-1].type)
        element, count = element_type(data), component_count(data)
        if meaning.action == "atomic_add" and (element.bits == 1 or (element.kind == "float" and element.bits < 32)):
            raise UnknownAccess(f"{op.name}, which adds {element}")
        claimed, offset = op.attributes.get("alignment", 0), op.attributes.get("offset", 0)
        assert isinstance(claimed, int) and isinstance(offset, int)
        if element.bytes * count > SPARE_BYTES:
            raise UnknownAccess(f"{op.name}, which moves {data}: more than {SPARE_BYTES} bytes a lane")
        if abs(offset) >= 1 << 30:
            raise UnknownAccess(f"{op.name} at offset {offset}: not within 2^30")
        return cls(meaning.action, element, count, claimed or element.bytes, offset)

    @property
    def bytes(self) -> int:
        """Bytes per lane."""
        return self.element.bytes * self.count

    @property
    def mode(self) -> int:
        """What the helpers are told to do."""
        if self.role == "atomic_add":
            return ADD_F32 if self.element.name == "f32" else ADD_I32
        return LOAD if self.role == "load" else STORE

    @property
    def needs(self) -> int:
        """What the parameter must be declared for."""
        return {"load": MAY_READ, "store": MAY_WRITE}.get(self.role, MAY_READ | MAY_WRITE)


def pointer_offset(op: Operation, wave_size: int) -> OpText:
    """Return the function that moves a pointer: result, pointer, index."""
    w = OpWriter(wave_size)
    target, pointer, index = w.slot(), w.slot(), w.slot()
    base = w.let(f"load {w.vector('i64')}, ptr {pointer}, align 64")
    type_ = element_type(op.operands[1].type)
    count = w.load(index, type_, 0)
    if type_.bits < 64:
        count = w.let(f"sext {w.vector(f'i{type_.bits}')} {count} to {w.vector('i64')}")
    size = element_type(op.operands[0].type).bytes
    distance = w.let(f"mul {w.vector('i64')} {count}, splat (i64 {size})")
    moved = w.let(f"add {w.vector('i64')} {base}, {distance}")
    w.do(f"store {w.vector('i64')} {moved}, ptr {target}, align 64")
    return w.finish()


def pointer_access(op: Operation, meaning: MemoryAccess, wave_size: int, checks: Checks, watched: bool) -> OpText:
    """Return the function of an access: result, pointer; or pointer, value.

    `watched`: it may touch what the kernel writes.
    """
    moved = Moved.of(op, meaning)
    if moved.role == "atomic_add" and (moved.element.name not in ("i32", "f32") or moved.count != 1):
        raise UnknownAccess(f"{op.name}, which adds {op.operands[-1].type} to global memory: one i32 or f32 is added")
    w = OpWriter(wave_size)
    loads = moved.role == "load"
    first_slot, second_slot = w.slot(), w.slot()
    target, pointer, value = (first_slot, second_slot, "") if loads else ("", first_slot, second_slot)
    mover = Mover(w, moved.element, moved.count)
    if not loads:
        mover.put_parts(mover.value_parts(value))
    move_through_pointers(w, moved, mover, pointer, checks, watched)
    if loads:
        mover.put_value(target, handed(w, moved, meaning, mover, mover.parts()))
    return w.finish()


def move_through_pointers(w: OpWriter, moved: Moved, mover: Mover, pointer: str, checks: Checks, watched: bool) -> None:
    """Write the access of each active lane's line at the lane's address, once it is found right."""
    vector = w.vector("i64")
    addresses = w.let(f"load {vector}, ptr {pointer}, align 64")
    if moved.offset:
        addresses = w.let(f"add {vector} {addresses}, splat (i64 {moved.offset * moved.element.bytes})")
    fast, slow, done = w.fresh("fast"), w.fresh("slow"), w.fresh("done")
    active = w.lanes_of(w.exec())
    if moved.role == "atomic_add":
        w.jump(slow)
    else:
        record, offsets = _plain_offsets(w, moved, addresses, active, fast, slow)
        w.label(fast)
        if checks.race and watched:
            _touch(w, moved, mover, record, offsets, "0", w.exec())
        host = w.let(f"add {vector} {offsets}, {w.splat(w.field(record, HOST), 'i64')}")
        _move_plain(w, moved, mover, host, active, checks)
        w.jump(done)
    w.label(slow)
    w.do(f"store {vector} {addresses}, ptr {w.at(mover.scratch, ADDRESSES)}, align 64")
    call = f"call i64 @slow_pointers(ptr %c, ptr {mover.staged}, i64 MODE, i64 {moved.needs}, "
    call += f"i64 {moved.element.bytes}, i64 {moved.count}, i64 {moved.alignment - 1}, i64 CHECKS)"
    _move_slowly(w, moved, call, checks, watched)
    w.jump(done)
    w.label(done)


def _touch(w: OpWriter, moved: Moved, mover: Mover, record: str, offsets: str, begin: str, lanes: str) -> None:
    """Let the workgroup be known to touch a buffer at `offsets` from `begin`; the op fails where it races another."""
    w.do(f"store {w.vector('i64')} {offsets}, ptr {w.at(mover.scratch, ADDRESSES)}, align 64")
    role = LOADED if moved.role == "load" else STORED
    call = f"call i64 @touch_lanes(ptr %c, ptr {record}, i64 {begin}, i64 {lanes}, i64 {moved.bytes}, i64 {role})"
    w.fault_unless_clear(w.let(call))


def _move_plain(w: OpWriter, moved: Moved, mover: Mover, host: str, lanes: str, checks: Checks) -> None:
    """Load or store at addresses of the host that are found right."""
    if moved.role == "load":
        mover.keep_addresses(host, lanes, ZEROS)
        mover.lines_from_memory()
        return
    mover.keep_addresses(host, lanes, None)
    mover.lines_to_memory()
    if checks.race:
        w.fault_if(mover.lines_differ())


def _move_slowly(w: OpWriter, moved: Moved, call: str, checks: Checks, watched: bool) -> None:
    """Write the call of a helper; after a store another that compares, as two lanes may have stored one element."""
    bits = checks.helper_bits(watched)
    w.fault_unless_clear(w.let(call.replace("MODE", str(moved.mode)).replace("CHECKS", str(bits))))
    if checks.race and moved.role == "store":
        w.fault_unless_clear(w.let(call.replace("MODE", str(COMPARE)).replace("CHECKS", "0")))


def _plain_offsets(w: OpWriter, moved: Moved, addresses: str, active: str, fast: str, slow: str) -> tuple[str, str]:
    """Go `fast` where all active lanes access one plain buffer rightly; return its record and their offsets there."""
    vector = w.vector("i64")
    one = w.let(f"extractelement {vector} {addresses}, i64 {w.first_lane()}")
    record = w.let(f"call ptr @plain(ptr %c, i64 {one})")
    plain = w.fresh("plain")
    w.branch(w.let(f"icmp ne ptr {record}, null"), plain, slow)
    w.label(plain)
    seen = w.let(f"select {w.vector('i1')} {active}, {vector} {addresses}, {vector} {w.splat(one, 'i64')}")
    offsets = w.let(f"sub {vector} {seen}, {w.splat(w.field(record, BASE), 'i64')}")
    for name in ("umax", "or"):
        w.declare(f"declare i64 @llvm.vector.reduce.{name}.v{w.wave}i64({vector})")
    largest = w.let(f"call i64 @llvm.vector.reduce.umax.v{w.wave}i64({vector} {offsets})")
    room = w.let(f"sub i64 {w.field(record, SIZE)}, {moved.bytes}")
    fits = w.let(f"and i1 {w.let(f'icmp sge i64 {room}, 0')}, {w.let(f'icmp ule i64 {largest}, {room}')}")
    granted = w.let(f"and i64 {w.field(record, ACCESS)}, {moved.needs}")
    right = w.let(f"and i1 {fits}, {w.let(f'icmp ne i64 {granted}, 0')}")
    if moved.alignment > 1:
        low = w.let(f"call i64 @llvm.vector.reduce.or.v{w.wave}i64({vector} {seen})")
        straight = w.let(f"icmp eq i64 {w.let(f'and i64 {low}, {moved.alignment - 1}')}, 0")
        right = w.let(f"and i1 {right}, {straight}")
    w.branch(right, fast, slow)
    return record, offsets


def bound(op: Operation, wave_size: int, checks: Checks) -> OpText:
    """Return the function that makes a view: result, pointer, size in elements."""
    w = OpWriter(wave_size)
    target, pointer, count = w.slot(), w.slot(), w.slot()
    lane = w.first_lane()
    base = agreed(w, pointer, 64, lane)
    extent = w.let(f"sext i32 {agreed(w, count, 32, lane)} to i64")
    size = w.let(f"mul i64 {extent}, {element_type(op.operands[0].type).bytes}")
    w.fault_if(w.let(f"icmp uge i64 {size}, {1 << 31}"))
    low = w.let(f"or i64 {base}, {size}") if checks.memory else size
    w.fault_unless_clear(w.let(f"and i64 {low}, 3"))
    record = w.let(f"call ptr @plain(ptr %c, i64 {base})")
    plain, other, done = w.fresh("plain"), w.fresh("other"), w.fresh("done")
    w.set_field(target, VIEW_BASE, base)
    w.set_field(target, VIEW_SIZE, size)
    w.branch(w.let(f"icmp ne ptr {record}, null"), plain, other)
    w.label(plain)
    offset = w.let(f"sub i64 {base}, {w.field(record, BASE)}")
    end = w.let(f"add i64 {offset}, {size}")
    inside = w.let(f"icmp sle i64 {end}, {w.field(record, SIZE)}")
    whole = w.let(f"and i1 {inside}, {w.let(f'icmp sge i64 {offset}, 0')}")
    host = w.let(f"add i64 {offset}, {w.field(record, HOST)}")
    w.set_field(target, VIEW_HOST, w.let(f"select i1 {whole}, i64 {host}, i64 0"))
    w.set_field(target, VIEW_ACCESS, w.field(record, ACCESS))
    w.jump(done)
    w.label(other)
    w.set_field(target, VIEW_HOST, "0")
    w.set_field(target, VIEW_ACCESS, "0")
    w.jump(done)
    w.label(done)
    return w.finish()


def joined_view(wave_size: int) -> OpText:
    """Return the function that ends a branch's second side for a view: target, source, state of the branch.

    Lanes that parted cannot hold two views: what the first side left, if it ran, must be the same.
    """
    w = OpWriter(wave_size)
    target, source, state = w.slot(), w.slot(), w.slot()
    parted = w.let(f"icmp ne i64 {w.field(state, 0)}, {w.field(state, 1)}")
    for word in (VIEW_BASE, VIEW_SIZE):
        differs = w.let(f"icmp ne i64 {w.field(target, word)}, {w.field(source, word)}")
        w.fault_if(w.let(f"and i1 {parted}, {differs}"))
    for word in (VIEW_BASE, VIEW_SIZE, VIEW_HOST, VIEW_ACCESS):
        w.set_field(target, word, w.field(source, word))
    return w.finish()


def agreed(w: OpWriter, slot: str, bits: int, lane: str) -> str:
    """Return the number that the active lanes agree on; a difference is a fault."""
    vector = w.vector(f"i{bits}")
    value = w.let(f"load {vector}, ptr {slot}, align 64")
    one = w.let(f"extractelement {vector} {value}, i64 {lane}")
    differs = w.let(f"icmp ne {vector} {value}, {w.splat(one, f'i{bits}')}")
    w.fault_unless_clear(w.let(f"and i64 {w.mask_of(differs)}, {w.exec()}"))
    return one


def view_access(op: Operation, meaning: MemoryAccess, wave_size: int, checks: Checks, watched: bool) -> OpText:
    """Return the function of an access: result, view, index; or view, index, value. Then the constant in the index.

    `watched`: it may touch what the kernel writes.
    """
    moved = Moved.of(op, meaning)
    if moved.role == "atomic_add" or moved.offset < 0:
        raise UnknownAccess(f"{op.name}: neither an addition nor a negative offset goes through a view")
    w = OpWriter(wave_size)
    loads = moved.role == "load"
    slots = [w.slot() for _ in range(3)]
    target, view, index, value = (*slots, "") if loads else ("", *slots)
    mover = Mover(w, moved.element, moved.count)
    if not loads:
        mover.put_parts(mover.value_parts(value))
    active = w.lanes_of(w.exec())
    begins = begins_in_view(w, op, moved, index, active, checks)
    move_through_view(w, moved, mover, view, begins, active, checks, watched)
    if loads:
        mover.put_value(target, handed(w, moved, meaning, mover, mover.parts()))
    return w.finish()


def move_through_view(
    w: OpWriter, moved: Moved, mover: Mover, view: str, begins: str, active: str, checks: Checks, watched: bool
) -> None:
    """Write the access of each active lane's line where it begins in the view, in bytes."""
    within, same = _inside(w, moved, begins, w.field(view, VIEW_SIZE), active)
    if checks.counts:
        _count(w, moved, within)
    host = w.field(view, VIEW_HOST)
    granted = w.let(f"and i64 {w.field(view, VIEW_ACCESS)}, {moved.needs}")
    right = w.let(f"and i1 {same}, {w.let(f'icmp ne i64 {granted}, 0')}")
    right = w.let(f"and i1 {right}, {w.let(f'icmp ne i64 {host}, 0')}")
    fast, slow, done = w.fresh("fast"), w.fresh("slow"), w.fresh("done")
    w.branch(right, fast, slow)
    w.label(fast)
    vector = w.vector("i64")
    if checks.race and watched:
        base = w.field(view, VIEW_BASE)
        record = w.let(f"call ptr @find(ptr %c, i64 {base})")
        begin = w.let(f"sub i64 {base}, {w.field(record, BASE)}")
        _touch(w, moved, mover, record, begins, begin, w.mask_of(within))
    _move_plain(w, moved, mover, w.let(f"add {vector} {begins}, {w.splat(host, 'i64')}"), within, checks)
    w.jump(done)
    w.label(slow)
    w.do(f"store {vector} {begins}, ptr {w.at(mover.scratch, ADDRESSES)}, align 64")
    unit = min(4, moved.element.bytes)
    call = f"call i64 @slow_view(ptr %c, ptr {mover.staged}, ptr {view}, i64 MODE, i64 {moved.needs}, "
    call += f"i64 {unit}, i64 {moved.bytes // unit}, i64 CHECKS)"
    _move_slowly(w, moved, call, checks, watched)
    w.jump(done)
    w.label(done)


def _count(w: OpWriter, moved: Moved, within: str) -> None:
    """Count the bytes that lanes access inside of the view."""
    w.declare("declare i64 @llvm.ctpop.i64(i64)")
    shared, word = w.field("%c", SHARED, "ptr"), VIEW_WRITTEN if moved.role == "store" else VIEW_READ
    lanes = w.let(f"call i64 @llvm.ctpop.i64(i64 {w.mask_of(within)})")
    amount = w.let(f"mul i64 {lanes}, {moved.bytes}")
    w.set_field(shared, word, w.let(f"add i64 {w.field(shared, word)}, {amount}"))


def begins_in_view(w: OpWriter, op: Operation, moved: Moved, index: str, active: str, checks: Checks) -> str:
    """Return where in the view each lane's access begins, in bytes, once its index keeps the claims."""
    size = element_type(op.operands[0].type).bytes
    narrow, wide, lanes = w.vector("i32"), w.vector("i64"), w.vector("i1")
    number = w.let(f"load {narrow}, ptr {index}, align 64")
    wrong: list[str] = []
    if size > 1:
        limit = (1 << 31) // size
        shifted = w.let(f"add {narrow} {number}, splat (i32 {limit})")
        wrong.append(w.let(f"icmp uge {narrow} {shifted}, splat (i32 {2 * limit})"))
    if added_constant(op):
        added = w.splat(w.let(f"trunc i64 {w.word()} to i32"), "i32")
        wrong.append(w.let(f"icmp ult {narrow} {number}, {added}"))
    for each in wrong if checks.integer else ():
        both = w.let(f"and {lanes} {each}, {active}")
        w.fault_unless_clear(w.mask_of(both))
    begin = w.let(f"zext {narrow} {number} to {wide}")
    if moved.offset:
        begin = w.let(f"add {wide} {begin}, splat (i64 {moved.offset})")
    return w.let(f"mul {wide} {begin}, splat (i64 {size})") if size > 1 else begin


def _inside(w: OpWriter, moved: Moved, begins: str, size: str, active: str) -> tuple[str, str]:
    """Return which active lanes access the view, and an i1: whether none does so in part."""
    wide, lanes = w.vector("i64"), w.vector("i1")
    unit = min(4, moved.element.bytes)
    short = min(4, moved.bytes)
    last = (moved.bytes - unit) // 4 * 4 + short
    sizes = w.splat(size, "i64")
    ends: list[str] = []
    for reach in (short, last):
        end = w.let(f"add {wide} {begins}, splat (i64 {reach})")
        ends.append(w.let(f"and {lanes} {w.let(f'icmp sle {wide} {end}, {sizes}')}, {active}"))
    differ = w.mask_of(w.let(f"xor {lanes} {ends[0]}, {ends[1]}"))
    return ends[1], w.let(f"icmp eq i64 {differ}, 0")


def handed(w: OpWriter, moved: Moved, meaning: MemoryAccess, mover: Mover, parts: list[str]) -> list[str]:
    """Return loaded components where the op hands them; taking one from an inactive lane is a fault."""
    if meaning.exchange is None:
        return parts
    component, lane = np.indices((moved.count, w.wave))
    lanes, components = cast("tuple[Any, Any]", meaning.exchange(w.wave, lane, component))
    active = w.lanes_of(w.exec())
    for row in np.asarray(lanes):
        order = ", ".join(f"i32 {int(one)}" for one in row)
        type_ = w.vector("i1")
        from_ = w.let(f"shufflevector {type_} {active}, {type_} poison, {w.vector('i32')} <{order}>")
        idle = w.let(f"xor {type_} {from_}, splat (i1 true)")
        w.fault_unless_clear(w.let(f"and i64 {w.mask_of(idle)}, {w.exec()}"))
    return exchanged(w, parts, mover.item, lanes, components)
