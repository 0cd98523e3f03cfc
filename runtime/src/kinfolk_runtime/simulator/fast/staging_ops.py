"""Functions of loads that go from global straight to workgroup memory, and of the wait for them.

What a staging has read is kept in the wave's frame until it is waited for: how many there are, then an entry for each,
the oldest first: its lanes, where lane 0's bytes go, bytes per lane, and the lanes' lines.
"""

from __future__ import annotations

from typing import Final

from kinfolk.ir.meaning import MemoryAccess
from kinfolk.ir.types import BufferType, element_type
from kinfolk.ir.value import Operation
from kinfolk_runtime.simulator.fast.checks import Checks
from kinfolk_runtime.simulator.fast.layout import (
    DATA,
    FLYING,
    HIDINGS,
    MARKS,
    SHARED,
    SLOT_ALIGNMENT,
    WAVE_BITS,
    WRITES,
)
from kinfolk_runtime.simulator.fast.lines import Mover
from kinfolk_runtime.simulator.fast.memory_ops import (
    Moved,
    agreed,
    begins_in_view,
    move_through_pointers,
    move_through_view,
)
from kinfolk_runtime.simulator.fast.text import OpText, OpWriter
from kinfolk_runtime.simulator.staging import MOST_PENDING

_LANES, _PLACE, _LANE_BYTES = 0, 1, 2
"""Words of an entry; the lines follow at `SLOT_ALIGNMENT`."""


def source_of(op: Operation, meaning: MemoryAccess) -> Moved:
    """Return what a staging reads."""
    count = op.attributes["count"]
    assert isinstance(count, int)
    element = element_type(op.operands[0].type)
    whole = element.bytes * count
    return Moved("load", element, count, element.bytes if meaning.space == "view" else min(4, whole), 0)


def entry_bytes(line_bytes: int) -> int:
    """Return the bytes of an entry whose lines take at most `line_bytes`."""
    return SLOT_ALIGNMENT + -(-line_bytes // SLOT_ALIGNMENT) * SLOT_ALIGNMENT


def pending_bytes(line_bytes: int) -> int:
    """Return the bytes of all that a wave may have on its way."""
    return SLOT_ALIGNMENT + MOST_PENDING * entry_bytes(line_bytes)


def place_words(op: Operation, begin: int, count: int) -> tuple[int, int, int]:
    """Return where the allocation begins, what the op adds to its place there, and its elements."""
    offset = op.attributes.get("offset", 0)
    assert isinstance(offset, int)
    return begin, offset, count


def stage(op: Operation, meaning: MemoryAccess, wave_size: int, checks: Checks, watched: bool) -> OpText:
    """Return the function of a staging: pointer, or view and index; start. Then the constant in the index, if any, the
    wave's stagings, the bytes of an entry, and what `place_words` gives.

    `watched`: it may read what the kernel writes.
    """
    moved = source_of(op, meaning)
    w = OpWriter(wave_size)
    sources = [w.slot() for _ in op.operands[:-2]]
    start = w.slot()
    mover = Mover(w, moved.element, moved.count)
    if meaning.space == "view":
        view, index = sources
        active = w.lanes_of(w.exec())
        begins = begins_in_view(w, op, moved, index, active, checks)
        if checks.memory:
            _refuse_unaligned(w, begins, active, min(4, moved.bytes))
        move_through_view(w, moved, mover, view, begins, active, checks, watched)
    else:
        move_through_pointers(w, moved, mover, sources[0], checks, watched)
    pending, entry_size = w.slot(), w.word()
    place, lanes = _place(w, op, moved, start, checks)
    count = w.let(f"load i64, ptr {pending}")
    w.fault_if(w.let(f"icmp eq i64 {count}, {MOST_PENDING}"))
    w.do(f"store i64 {w.let(f'add i64 {count}, 1')}, ptr {pending}")
    entries = w.at(pending, SLOT_ALIGNMENT)
    entry = w.let(f"getelementptr i8, ptr {entries}, i64 {w.let(f'mul i64 {count}, {entry_size}')}")
    w.set_field(entry, _LANES, lanes)
    w.set_field(entry, _PLACE, place)
    w.set_field(entry, _LANE_BYTES, str(moved.bytes))
    w.declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    lines = w.at(entry, SLOT_ALIGNMENT)
    w.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {lines}, ptr {mover.staged}, i64 {moved.bytes * wave_size}, i1 false)")
    if checks.flies:
        _fly(w, place, lanes, moved.bytes, checks)
    if checks.initialisation:
        target = w.let(f"getelementptr i8, ptr {w.field('%c', MARKS, 'ptr')}, i64 {place}")
        w.do(f"call void @fill_lanes(ptr {target}, i64 {lanes}, i64 {moved.bytes}, i8 0)")
    if checks.flies or checks.initialisation:
        shared = w.field("%c", SHARED, "ptr")
        w.set_field(shared, HIDINGS, w.let(f"add i64 {w.field(shared, HIDINGS)}, 1"))
    return w.finish()


def _fly(w: OpWriter, place: str, lanes: str, lane_bytes: int, checks: Checks) -> None:
    """Let the bytes be in flight, which they must not be yet; the wave may write them from now on."""
    target = w.let(f"getelementptr i8, ptr {w.field('%c', FLYING, 'ptr')}, i64 {place}")
    held = w.let(f"call i64 @any_lanes(ptr {target}, i64 {lanes}, i64 {lane_bytes})")
    w.fault_unless_clear(held)
    w.do(f"call void @fill_lanes(ptr {target}, i64 {lanes}, i64 {lane_bytes}, i8 1)")
    if checks.granule:
        w.do(
            f"call void @note_lanes(ptr %c, i64 {place}, i64 {lanes}, i64 {lane_bytes}, i64 {checks.granule}, "
            f"i64 {checks.set_bytes})"
        )


def _refuse_unaligned(w: OpWriter, begins: str, active: str, alignment: int) -> None:
    low = w.let(f"and {w.vector('i64')} {begins}, splat (i64 {alignment - 1})")
    skewed = w.let(f"icmp ne {w.vector('i64')} {low}, zeroinitializer")
    w.fault_unless_clear(w.mask_of(w.let(f"and {w.vector('i1')} {skewed}, {active}")))


def _place(w: OpWriter, op: Operation, moved: Moved, start: str, checks: Checks) -> tuple[str, str]:
    """Return where in workgroup memory lane 0's bytes go, and the active lanes whose bytes are inside the allocation,
    which all of them must be.
    """
    begin, extra, elements = w.word(), w.word(), w.word()
    buffer = op.operands[-2].type
    assert isinstance(buffer, BufferType)
    first = w.let(f"add i64 {w.let(f'sext i32 {agreed(w, start, 32, w.first_lane())} to i64')}, {extra}")
    vector = w.vector("i64")
    firsts = w.let(f"add {vector} {w.splat(first, 'i64')}, {w.ascending('i64', moved.count)}")
    last = w.splat(w.let(f"sub i64 {elements}, {moved.count}"), "i64")
    low = w.let(f"icmp sge {vector} {firsts}, zeroinitializer")
    inside = w.mask_of(w.let(f"and {w.vector('i1')} {low}, {w.let(f'icmp sle {vector} {firsts}, {last}')}"))
    lanes = w.let(f"and i64 {inside}, {w.exec()}")
    place = w.let(f"add i64 {w.let(f'mul i64 {first}, {buffer.element.bytes}')}, {begin}")
    if checks.memory:
        w.fault_if(w.let(f"icmp ne i64 {lanes}, {w.exec()}"))
        w.fault_unless_clear(w.let(f"srem i64 {place}, {moved.bytes}"))
    return place, lanes


def wait(op: Operation, wave_size: int, checks: Checks) -> OpText:
    """Return the function that delivers the oldest stagings: the wave's stagings, the bytes of an entry."""
    outstanding = op.attributes["outstanding"]
    assert isinstance(outstanding, int)
    w = OpWriter(wave_size)
    pending, entry_size = w.slot(), w.word()
    flies = "true" if checks.flies else "false"
    w.do(
        f"call void @deliver(ptr %c, ptr {pending}, i64 {entry_size}, i64 {outstanding}, i1 {flies}, "
        f"i64 {checks.granule}, i64 {checks.set_bytes})"
    )
    return w.finish()


def waited(wave_size: int) -> OpText:
    """Return the function that fails at the end of a wave where a staging was never waited for: the wave's stagings."""
    w = OpWriter(wave_size)
    w.fault_unless_clear(w.let(f"load i64, ptr {w.slot()}"))
    return w.finish()


def _by_lanes(
    head: str, body: str, *, declared: str = "", last: str = "some", carried: str = "", result: str = "void"
) -> str:
    """Return a function that does something to `%size` bytes at `%begin`, for each run of lanes in `%exec`.

    `declared` is what it calls, `last` the block in which `body` ends, `carried` what goes from one run to the next.
    """
    return f"""
{declared}declare i64 @llvm.cttz.i64(i64, i1)
{head} {{
  br label %run
run:
  %left = phi i64 [%exec, %0], [%left2, %{last}]
{carried}  %over = icmp eq i64 %left, 0
  br i1 %over, label %done, label %some
some:
  %lane = call i64 @llvm.cttz.i64(i64 %left, i1 true)
  %shifted = lshr i64 %left, %lane
  %inverse = xor i64 %shifted, -1
  %length = call i64 @llvm.cttz.i64(i64 %inverse, i1 false)
  %begin = mul i64 %lane, %bytes
  %size = mul i64 %length, %bytes
{body}  %lowest = shl i64 1, %lane
  %carried = add i64 %left, %lowest
  %left2 = and i64 %left, %carried
  br label %run
done:
  ret {result}
}}
"""


_FILL_LANES: Final = _by_lanes(
    "define internal void @fill_lanes(ptr %target, i64 %exec, i64 %bytes, i8 %value)",
    """  %there = getelementptr i8, ptr %target, i64 %begin
  call void @llvm.memset.p0.i64(ptr %there, i8 %value, i64 %size, i1 false)
""",
    declared="declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)\n",
)
_COPY_LANES: Final = _by_lanes(
    "define internal void @copy_lanes(ptr %target, ptr %source, i64 %exec, i64 %bytes)",
    """  %there = getelementptr i8, ptr %target, i64 %begin
  %here = getelementptr i8, ptr %source, i64 %begin
  call void @llvm.memcpy.p0.p0.i64(ptr %there, ptr %here, i64 %size, i1 false)
""",
    declared="declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n",
)
_NOTE_LANES: Final = _by_lanes(
    "define internal void @note_lanes(ptr %c, i64 %place, i64 %exec, i64 %bytes, i64 %granule, i64 %set.bytes)",
    f"""  %writes.at = getelementptr i64, ptr %c, i64 {WRITES}
  %writes = load ptr, ptr %writes.at
  %bits.at = getelementptr i64, ptr %c, i64 {WAVE_BITS}
  %from = add i64 %place, %begin
  %spot = udiv i64 %from, %granule
  %at = mul i64 %spot, %set.bytes
  %spots = udiv i64 %size, %granule
  %count = mul i64 %spots, %set.bytes
  %sets = getelementptr i8, ptr %writes, i64 %at
  br label %set
set:
  %n = phi i64 [0, %some], [%n2, %set]
  %within = urem i64 %n, %set.bytes
  %mine.at = getelementptr i8, ptr %bits.at, i64 %within
  %mine = load i8, ptr %mine.at
  %here = getelementptr i8, ptr %sets, i64 %n
  %held = load i8, ptr %here
  %both = or i8 %held, %mine
  store i8 %both, ptr %here
  %n2 = add i64 %n, 1
  %again = icmp ult i64 %n2, %count
  br i1 %again, label %set, label %after
after:
""",
    last="after",
)
_ANY_LANES: Final = _by_lanes(
    "define internal i64 @any_lanes(ptr %target, i64 %exec, i64 %bytes)",
    """  %there = getelementptr i8, ptr %target, i64 %begin
  br label %byte
byte:
  %n = phi i64 [0, %some], [%n2, %byte]
  %sum = phi i8 [0, %some], [%sum2, %byte]
  %here = getelementptr i8, ptr %there, i64 %n
  %held = load i8, ptr %here
  %sum2 = or i8 %sum, %held
  %n2 = add i64 %n, 1
  %again = icmp ult i64 %n2, %size
  br i1 %again, label %byte, label %after
after:
  %found = zext i8 %sum2 to i64
  %total2 = or i64 %total, %found
""",
    last="after",
    carried="  %total = phi i64 [0, %0], [%total2, %after]\n",
    result="i64 %total",
)
_DELIVER: Final = f"""
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
define internal void @deliver(ptr %c, ptr %pending, i64 %entry.size, i64 %outstanding, i1 %flies, i64 %granule,
    i64 %set.bytes) {{
  %count = load i64, ptr %pending
  %entries = getelementptr i8, ptr %pending, i64 {SLOT_ALIGNMENT}
  %enough = icmp ule i64 %count, %outstanding
  br i1 %enough, label %done, label %some
some:
  %arriving = sub i64 %count, %outstanding
  %data.at = getelementptr i64, ptr %c, i64 {DATA}
  %data = load ptr, ptr %data.at
  %marks.at = getelementptr i64, ptr %c, i64 {MARKS}
  %marks = load ptr, ptr %marks.at
  br label %each
each:
  %n = phi i64 [0, %some], [%n2, %landed]
  %offset = mul i64 %n, %entry.size
  %entry = getelementptr i8, ptr %entries, i64 %offset
  %lanes.at = getelementptr i64, ptr %entry, i64 {_LANES}
  %lanes = load i64, ptr %lanes.at
  %place.at = getelementptr i64, ptr %entry, i64 {_PLACE}
  %place = load i64, ptr %place.at
  %bytes.at = getelementptr i64, ptr %entry, i64 {_LANE_BYTES}
  %bytes = load i64, ptr %bytes.at
  %lines = getelementptr i8, ptr %entry, i64 {SLOT_ALIGNMENT}
  %target = getelementptr i8, ptr %data, i64 %place
  call void @copy_lanes(ptr %target, ptr %lines, i64 %lanes, i64 %bytes)
  %marked = getelementptr i8, ptr %marks, i64 %place
  call void @fill_lanes(ptr %marked, i64 %lanes, i64 %bytes, i8 -1)
  br i1 %flies, label %lands, label %landed
lands:
  %flying.at = getelementptr i64, ptr %c, i64 {FLYING}
  %flying = load ptr, ptr %flying.at
  %flown = getelementptr i8, ptr %flying, i64 %place
  call void @fill_lanes(ptr %flown, i64 %lanes, i64 %bytes, i8 0)
  %noted = icmp ne i64 %granule, 0
  br i1 %noted, label %note, label %landed
note:
  call void @note_lanes(ptr %c, i64 %place, i64 %lanes, i64 %bytes, i64 %granule, i64 %set.bytes)
  br label %landed
landed:
  %n2 = add i64 %n, 1
  %more = icmp ult i64 %n2, %arriving
  br i1 %more, label %each, label %arrived
arrived:
  store i64 %outstanding, ptr %pending
  %rest.at = mul i64 %arriving, %entry.size
  %rest = getelementptr i8, ptr %entries, i64 %rest.at
  %rest.size = mul i64 %outstanding, %entry.size
  call void @llvm.memmove.p0.p0.i64(ptr %entries, ptr %rest, i64 %rest.size, i1 false)
  br label %done
done:
  ret void
}}
"""
SUPPORT: Final = {
    "fill_lanes": _FILL_LANES,
    "copy_lanes": _COPY_LANES,
    "note_lanes": _NOTE_LANES,
    "any_lanes": _ANY_LANES,
    "deliver": _DELIVER,
}
"""Helper functions by name."""
