"""Functions of accesses to workgroup memory. Bytes are marked once written; reading others is a fault."""

from __future__ import annotations

from kinfolk.ir.meaning import MemoryAccess
from kinfolk.ir.value import Operation
from kinfolk_runtime.simulator.fast.layout import DATA, DUMP, HIDINGS, MARKS, ONES, ZEROS
from kinfolk_runtime.simulator.fast.lines import Mover
from kinfolk_runtime.simulator.fast.memory_ops import Moved, handed
from kinfolk_runtime.simulator.fast.text import OpText, OpWriter


def workgroup_access(op: Operation, meaning: MemoryAccess, wave_size: int, remembers: bool) -> OpText:
    """Return the function of an access: result, index; or index, value. Then the words that `place_words` gives.

    With `remembers` the checks of a full wave hold until the word at the last offset is cleared, or bytes cease to
    count as written.
    """
    moved = Moved.of(op, meaning)
    w = OpWriter(wave_size)
    adds = moved.role == "atomic_add"
    loads = moved.role == "load"
    first_slot, second_slot = w.slot(), w.slot()
    target, index, value = (first_slot, second_slot, "") if loads else ("", first_slot, second_slot)
    mover = Mover(w, moved.element, moved.count)
    begin, extra, limit = (w.word() for _ in range(3))
    narrow, wide = w.vector("i32"), w.vector("i64")
    number = w.let(f"load {narrow}, ptr {index}, align 64")
    number = w.let(f"add {narrow} {number}, {w.splat(w.let(f'trunc i64 {extra} to i32'), 'i32')}")
    active = w.lanes_of(w.exec())
    offsets = w.let(f"zext {narrow} {number} to {wide}")
    if moved.element.bytes > 1:
        offsets = w.let(f"mul {wide} {offsets}, splat (i64 {moved.element.bytes})")
    offsets = w.let(f"add {wide} {offsets}, {w.splat(begin, 'i64')}")
    check, checked = w.fresh("check"), w.fresh("checked")
    flag = w.slot() if remembers else ""
    hidings = w.let(f"load i64, ptr {w.field('%c', HIDINGS, 'ptr')}")
    epoch = w.let(f"add i64 {hidings}, 1")
    if remembers:
        known = w.let(f"icmp eq i64 {w.let(f'load i64, ptr {flag}')}, {epoch}")
        w.branch(known, checked, check)
    else:
        w.jump(check)
    w.label(check)
    limits = w.splat(w.let(f"trunc i64 {limit} to i32"), "i32")
    outside = w.let(f"icmp uge {narrow} {number}, {limits}")
    w.fault_unless_clear(w.let(f"and i64 {w.mask_of(outside)}, {w.exec()}"))
    if moved.alignment > moved.element.bytes:
        low = w.let(f"and {wide} {offsets}, splat (i64 {moved.alignment - 1})")
        skewed = w.let(f"icmp ne {wide} {low}, zeroinitializer")
        w.fault_unless_clear(w.let(f"and i64 {w.mask_of(skewed)}, {w.exec()}"))
    _keep(w, mover, offsets, MARKS, active, ONES if loads or adds else DUMP)
    if loads or adds:
        w.fault_if(w.let(f"xor i1 {mover.all_marked()}, true"))
    else:
        mover.mark()
    if remembers:
        whole = w.let(f"icmp eq i64 {w.exec()}, {w.full}")
        w.do(f"store i64 {w.let(f'select i1 {whole}, i64 {epoch}, i64 0')}, ptr {flag}")
    w.jump(checked)
    w.label(checked)
    _keep(w, mover, offsets, DATA, active, ZEROS if loads else DUMP)
    if loads:
        mover.lines_from_memory()
        mover.put_value(target, handed(w, moved, meaning, mover, mover.parts()))
    else:
        mover.put_parts(mover.value_parts(value))
        if adds:
            mover.add_lines_to_memory()
        else:
            mover.lines_to_memory()
    return w.finish()


def _keep(w: OpWriter, mover: Mover, offsets: str, area: int, active: str, spare: int) -> None:
    base = w.splat(w.field("%c", area), "i64")
    mover.keep_addresses(w.let(f"add {w.vector('i64')} {offsets}, {base}"), active, spare)


def place_words(op: Operation, meaning: MemoryAccess, begin: int, count: int) -> tuple[int, int, int]:
    """Return the words of an access in an allocation of `count` elements: where it begins, what the op adds to the
    index, and at how many places an access fits."""
    moved = Moved.of(op, meaning)
    return begin, moved.offset, max(0, count - moved.count + 1)
