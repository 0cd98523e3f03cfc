"""Functions of accesses to workgroup memory. Bytes are marked once written; reading others is a fault."""

from __future__ import annotations

from kinfolk.ir.meaning import MemoryAccess
from kinfolk.ir.value import Operation
from kinfolk_runtime.simulator.fast.checks import Checks
from kinfolk_runtime.simulator.fast.layout import (
    ADDS,
    DATA,
    DUMP,
    FLYING,
    HIDINGS,
    MARKS,
    ONES,
    POISONED,
    READS,
    SHARED,
    WRITES,
    ZEROS,
)
from kinfolk_runtime.simulator.fast.lines import Mover
from kinfolk_runtime.simulator.fast.memory_ops import Moved, handed
from kinfolk_runtime.simulator.fast.text import OpText, OpWriter


def workgroup_access(op: Operation, meaning: MemoryAccess, wave_size: int, remembers: bool, checks: Checks) -> OpText:
    """Return the function of an access: result, index; or index, value. Then the words that `place_words` gives.

    With `remembers` the checks of a full wave hold until the word at the last offset is cleared, or bytes cease to
    count as written.
    """
    moved = Moved.of(op, meaning)
    w = OpWriter(wave_size)
    loads = moved.role == "load"
    first_slot, second_slot = w.slot(), w.slot()
    target, index, value = (first_slot, second_slot, "") if loads else ("", first_slot, second_slot)
    mover = Mover(w, moved.element, moved.count)
    begin, extra, limit = (w.word() for _ in range(3))
    narrow, wide = w.vector("i32"), w.vector("i64")
    number = w.let(f"load {narrow}, ptr {index}, align 64")
    number = w.let(f"add {narrow} {number}, {w.splat(w.let(f'trunc i64 {extra} to i32'), 'i32')}")
    lanes = w.lanes_of(w.exec())
    offsets = w.let(f"zext {narrow} {number} to {wide}")
    if moved.element.bytes > 1:
        offsets = w.let(f"mul {wide} {offsets}, splat (i64 {moved.element.bytes})")
    offsets = w.let(f"add {wide} {offsets}, {w.splat(begin, 'i64')}")
    limits = w.splat(w.let(f"trunc i64 {limit} to i32"), "i32")
    inside = w.let(f"icmp ult {narrow} {number}, {limits}")
    if not checks.memory:
        lanes = w.let(f"and {w.vector('i1')} {lanes}, {inside}")
    if checks.places:
        _check_places(w, moved, mover, offsets, inside, lanes, w.slot() if remembers else "", checks)
    notes = checks.set_bytes_of(moved.bytes)
    if notes:
        area = {"load": READS, "store": WRITES, "atomic_add": ADDS}[moved.role]
        spots = w.let(f"lshr {wide} {offsets}, splat (i64 {checks.granule.bit_length() - 1})")
        if checks.set_bytes > 1:
            spots = w.let(f"mul {wide} {spots}, splat (i64 {checks.set_bytes})")
        mover.keep_spots(w.let(f"add {wide} {spots}, {w.splat(w.field('%c', area), 'i64')}"), lanes)
    if loads:
        _keep(w, mover, offsets, DATA, lanes, ZEROS if checks.memory else POISONED)
        mover.lines_from_memory(notes)
        mover.put_value(target, handed(w, moved, meaning, mover, mover.parts()))
        return w.finish()
    _keep(w, mover, offsets, DATA, lanes, DUMP if moved.role == "atomic_add" else None)
    mover.put_parts(mover.value_parts(value))
    if moved.role == "atomic_add":
        mover.add_lines_to_memory(notes)
    else:
        mover.lines_to_memory(notes)
        if checks.race:
            w.fault_if(mover.lines_differ())
    return w.finish()


def _check_places(
    w: OpWriter, moved: Moved, mover: Mover, offsets: str, inside: str, lanes: str, flag: str, checks: Checks
) -> None:
    """The op fails where it must not go; with a flag that holds, nothing is asked."""
    check, checked = w.fresh("check"), w.fresh("checked")
    hidings = w.field(w.field("%c", SHARED, "ptr"), HIDINGS)
    epoch = w.let(f"add i64 {hidings}, 1")
    if flag:
        known = w.let(f"icmp eq i64 {w.let(f'load i64, ptr {flag}')}, {epoch}")
        w.branch(known, checked, check)
    else:
        w.jump(check)
    w.label(check)
    if checks.memory:
        outside = w.let(f"xor i64 {w.mask_of(inside)}, -1")
        w.fault_unless_clear(w.let(f"and i64 {outside}, {w.exec()}"))
        if moved.alignment > moved.element.bytes:
            wide = w.vector("i64")
            low = w.let(f"and {wide} {offsets}, splat (i64 {moved.alignment - 1})")
            skewed = w.let(f"icmp ne {wide} {low}, zeroinitializer")
            w.fault_unless_clear(w.let(f"and i64 {w.mask_of(skewed)}, {w.exec()}"))
    if checks.flies:
        _keep(w, mover, offsets, FLYING, lanes, ZEROS)
        w.fault_if(w.let(f"xor i1 {mover.none_marked()}, true"))
    if checks.initialisation:
        stores = moved.role == "store"
        _keep(w, mover, offsets, MARKS, lanes, DUMP if stores else ONES)
        if stores:
            mover.mark()
        else:
            w.fault_if(w.let(f"xor i1 {mover.all_marked()}, true"))
    if flag:
        whole = w.let(f"icmp eq i64 {w.exec()}, {w.full}")
        w.do(f"store i64 {w.let(f'select i1 {whole}, i64 {epoch}, i64 0')}, ptr {flag}")
    w.jump(checked)
    w.label(checked)


def _keep(w: OpWriter, mover: Mover, offsets: str, area: int, lanes: str, spare: int | None) -> None:
    base = w.splat(w.field("%c", area), "i64")
    mover.keep_addresses(w.let(f"add {w.vector('i64')} {offsets}, {base}"), lanes, spare)


def place_words(op: Operation, meaning: MemoryAccess, begin: int, count: int) -> tuple[int, int, int]:
    """Return the words of an access in an allocation of `count` elements: where it begins, what the op adds to the
    index, and at how many places an access fits."""
    moved = Moved.of(op, meaning)
    return begin, moved.offset, max(0, count - moved.count + 1)
