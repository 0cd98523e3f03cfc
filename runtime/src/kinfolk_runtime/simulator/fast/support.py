"""Helpers of memory ops as LLVM text: accesses checked lane by lane and unit by unit, where nothing simpler holds.

They return 1 where the access is a fault, which the reference engine then names. Of what is not looked for, bits of
`%checks` being clear, an access outside an allocation, or of bytes that do not exist, reads poison or vanishes.
"""

from __future__ import annotations

from typing import Final

from kinfolk_runtime.simulator.fast.checks import BOUNDED, WATCHED, WRITTEN
from kinfolk_runtime.simulator.fast.layout import (
    ACCESS,
    ADDRESSES,
    AXES,
    AXIS_COUNT,
    BASE,
    BUFFER_COUNT,
    BUFFERS,
    END,
    EXEC,
    ITEM_BYTES,
    MAY_WRITE,
    RANGE_COUNT,
    RANGE_HOST,
    RANGE_MARKS,
    RANGE_WORDS,
    RANGES,
    RECORD_WORDS,
    SCRATCH,
    SIMPLE,
    SIZE,
    START,
    VIEW_BASE,
    VIEW_SIZE,
)
from kinfolk_runtime.simulator.space import SLOT_BITS
from kinfolk_runtime.simulator.traffic import ADDED, LOADED, STORED
from kinfolk_runtime.simulator.transfers import POISON

LOAD, STORE, ADD_I32, ADD_F32, COMPARE = 0, 1, 2, 3, 4
"""What an access does. Comparing fails where a unit does not hold the data; it asks nothing else."""
_POISON: Final = int.from_bytes(bytes([POISON] * 8), "little", signed=True)

_FIND = f"""
define internal ptr @find(ptr %c, i64 %address) {{
  %number = lshr i64 %address, {SLOT_BITS}
  %index = sub i64 %number, 1
  %count.at = getelementptr i64, ptr %c, i64 {BUFFER_COUNT}
  %count = load i64, ptr %count.at
  %known = icmp ult i64 %index, %count
  %table.at = getelementptr i64, ptr %c, i64 {BUFFERS}
  %table = load ptr, ptr %table.at
  %offset = mul i64 %index, {8 * RECORD_WORDS}
  %record = getelementptr i8, ptr %table, i64 %offset
  %result = select i1 %known, ptr %record, ptr null
  ret ptr %result
}}
"""

_PLAIN = f"""
define internal ptr @plain(ptr %c, i64 %address) {{
  %record = call ptr @find(ptr %c, i64 %address)
  %none = icmp eq ptr %record, null
  br i1 %none, label %no, label %some
some:
  %simple.at = getelementptr i64, ptr %record, i64 {SIMPLE}
  %simple = load i64, ptr %simple.at
  %is = icmp ne i64 %simple, 0
  br i1 %is, label %yes, label %no
yes:
  ret ptr %record
no:
  ret ptr null
}}
"""


def range_at(size: str, before: str, nowhere: str) -> str:
    """Return the text that finds the `%range` of `%record` with `size` bytes at `%offset`, and goes on at `found`.

    `before` is the block it stands in; where no range has all of the bytes it goes to `nowhere`.
    """
    return f"""  %count.at = getelementptr i64, ptr %record, i64 {RANGE_COUNT}
  %count = load i64, ptr %count.at
  %ranges.at = getelementptr i64, ptr %record, i64 {RANGES}
  %ranges = load ptr, ptr %ranges.at
  %end = add i64 %offset, {size}
  br label %next
next:
  %n = phi i64 [0, %{before}], [%n2, %other]
  %more = icmp ult i64 %n, %count
  br i1 %more, label %look, label %{nowhere}
look:
  %at = mul i64 %n, {8 * RANGE_WORDS}
  %range = getelementptr i8, ptr %ranges, i64 %at
  %low.at = getelementptr i64, ptr %range, i64 {START}
  %low = load i64, ptr %low.at
  %high.at = getelementptr i64, ptr %range, i64 {END}
  %high = load i64, ptr %high.at
  %above = icmp sge i64 %offset, %low
  %below = icmp sle i64 %end, %high
  %inside = and i1 %above, %below
  br i1 %inside, label %found, label %other
other:
  %n2 = add i64 %n, 1
  br label %next
found:
"""


_SPOT = f"""
define internal ptr @spot(ptr %record, i64 %offset, i64 %unit, ptr %marks) {{
{range_at("%unit", "0", "nowhere")}  %inner = sub i64 %offset, %low
  %axes.at = getelementptr i64, ptr %range, i64 {AXES}
  %axes = load ptr, ptr %axes.at
  %axis.count.at = getelementptr i64, ptr %range, i64 {AXIS_COUNT}
  %axis.count = load i64, ptr %axis.count.at
  %plain = icmp eq i64 %axis.count, 0
  br i1 %plain, label %there, label %axis
axis:
  %k = phi i64 [0, %found], [%k2, %axis.in]
  %rest = phi i64 [%inner, %found], [%rest2, %axis.in]
  %k.at = mul i64 %k, 16
  %step.at = getelementptr i8, ptr %axes, i64 %k.at
  %step = load i64, ptr %step.at
  %length.at = getelementptr i64, ptr %step.at, i64 1
  %length = load i64, ptr %length.at
  %index = udiv i64 %rest, %step
  %past = icmp uge i64 %index, %length
  br i1 %past, label %gap, label %axis.in
axis.in:
  %taken = mul i64 %index, %step
  %rest2 = sub i64 %rest, %taken
  %k2 = add i64 %k, 1
  %last = icmp eq i64 %k2, %axis.count
  br i1 %last, label %item, label %axis
item:
  %item.at = getelementptr i64, ptr %range, i64 {ITEM_BYTES}
  %item.bytes = load i64, ptr %item.at
  %beyond = icmp uge i64 %rest2, %item.bytes
  br i1 %beyond, label %gap, label %there
there:
  %host.at = getelementptr i64, ptr %range, i64 {RANGE_HOST}
  %host = load ptr, ptr %host.at
  %mark.at = getelementptr i64, ptr %range, i64 {RANGE_MARKS}
  %mark = load ptr, ptr %mark.at
  %unmarked = icmp eq ptr %mark, null
  %mark.here = getelementptr i8, ptr %mark, i64 %inner
  %mark.found = select i1 %unmarked, ptr null, ptr %mark.here
  store ptr %mark.found, ptr %marks
  %result = getelementptr i8, ptr %host, i64 %inner
  ret ptr %result
gap:
  store ptr %record, ptr %marks
  ret ptr null
nowhere:
  store ptr null, ptr %marks
  ret ptr null
}}
"""
"""Where bytes are in the host, and their marks or null. Where they are not, marks are null but between rows."""


def _by_width(head: str, body: str, ending: str) -> str:
    """Return a function of (..., i64 %unit) with one body for each width of a unit."""
    blocks = "\n".join(f"w{n}:\n{body.replace('iN', f'i{8 * n}').replace('#', str(n))}" for n in (1, 2, 4, 8))
    return f"""
{head} {{
  switch i64 %unit, label %w8 [i64 1, label %w1 i64 2, label %w2 i64 4, label %w4]
{blocks}
{ending}}}
"""


_COPY_UNIT = _by_width(
    "define internal void @copy_unit(ptr %target, ptr %source, i64 %unit)",
    "  %v# = load iN, ptr %source, align 1\n  store iN %v#, ptr %target, align 1\n  ret void",
    "",
)
_SET_UNIT = _by_width(
    "define internal void @set_unit(ptr %target, i64 %value, i64 %unit)",
    "  %v# = trunc i64 %value to iN\n  store iN %v#, ptr %target, align 1\n  ret void",
    "",
).replace("%v8 = trunc i64 %value to i64", "%v8 = add i64 %value, 0")
_MARKED = _by_width(
    "define internal i1 @is_marked(ptr %marks, i64 %unit)",
    "  %v# = load iN, ptr %marks, align 1\n  %r# = icmp eq iN %v#, -1\n  ret i1 %r#",
    "",
)

_SAME = _by_width(
    "define internal i1 @is_same(ptr %one, ptr %other, i64 %unit)",
    "  %a# = load iN, ptr %one, align 1\n  %b# = load iN, ptr %other, align 1\n"
    "  %r# = icmp eq iN %a#, %b#\n  ret i1 %r#",
    "",
)

_UNIT = f"""
define internal i64 @move_unit(ptr %c, ptr %record, i64 %offset, i64 %unit, i64 %mode, ptr %data, i64 %checks) {{
  %marks.at = alloca ptr
  %bounds = and i64 %checks, {BOUNDED}
  %bounded = icmp ne i64 %bounds, 0
  %wants = and i64 %checks, {WRITTEN}
  %written = icmp ne i64 %wants, 0
  %loads = icmp eq i64 %mode, {LOAD}
  %outside = icmp eq ptr %record, null
  br i1 %outside, label %nowhere, label %somewhere
nowhere:
  br i1 %bounded, label %bad, label %none
somewhere:
  %watches = and i64 %checks, {WATCHED}
  %watched = icmp ne i64 %watches, 0
  %stores = icmp eq i64 %mode, {STORE}
  br i1 %watched, label %watch, label %look
watch:
  %add.or.load = select i1 %loads, i64 {LOADED}, i64 {ADDED}
  %role = select i1 %stores, i64 {STORED}, i64 %add.or.load
  %raced = call i64 @touch(ptr %c, ptr %record, i64 %offset, i64 %unit, i64 %role)
  %is.raced = icmp ne i64 %raced, 0
  br i1 %is.raced, label %bad, label %look
look:
  %host = call ptr @spot(ptr %record, i64 %offset, i64 %unit, ptr %marks.at)
  %marks = load ptr, ptr %marks.at
  %missing = icmp eq ptr %host, null
  br i1 %missing, label %lacking, label %have
lacking:
  %gap = icmp ne ptr %marks, null
  %wrong = select i1 %gap, i1 %bounded, i1 %written
  br i1 %wrong, label %bad, label %none
none:
  br i1 %loads, label %poison, label %done
poison:
  call void @set_unit(ptr %data, i64 {_POISON}, i64 %unit)
  ret i64 0
have:
  %unmarked = icmp eq ptr %marks, null
  br i1 %stores, label %store, label %read
read:
  %unasked = xor i1 %written, true
  %free = or i1 %unmarked, %unasked
  br i1 %free, label %valid, label %ask
ask:
  %set = call i1 @is_marked(ptr %marks, i64 %unit)
  br i1 %set, label %valid, label %bad
valid:
  switch i64 %mode, label %load [i64 {ADD_I32}, label %add i64 {ADD_F32}, label %fadd i64 {COMPARE}, label %compare]
load:
  call void @copy_unit(ptr %data, ptr %host, i64 %unit)
  ret i64 0
add:
  %term = load i32, ptr %data
  %old = atomicrmw add ptr %host, i32 %term monotonic
  ret i64 0
fadd:
  %fterm = load float, ptr %data
  %before = load float, ptr %host
  %sum = fadd float %before, %fterm
  store float %sum, ptr %host
  ret i64 0
compare:
  %same = call i1 @is_same(ptr %host, ptr %data, i64 %unit)
  br i1 %same, label %done, label %bad
store:
  call void @copy_unit(ptr %host, ptr %data, i64 %unit)
  br i1 %unmarked, label %done, label %mark
mark:
  call void @set_unit(ptr %marks, i64 -1, i64 %unit)
  ret i64 0
done:
  ret i64 0
bad:
  ret i64 1
}}
"""

_LANE_LOOP = f"""
  %exec.at = getelementptr i64, ptr %c, i64 {EXEC}
  %exec = load i64, ptr %exec.at
  %bytes = mul i64 %unit, %count
  br label %lane
lane:
  %left = phi i64 [%exec, %0], [%left2, %lane.done]
  %over = icmp eq i64 %left, 0
  br i1 %over, label %good, label %one
one:
  %l = call i64 @llvm.cttz.i64(i64 %left, i1 true)
  %less = sub i64 %left, 1
  %left2 = and i64 %left, %less
  %line.at = mul i64 %l, %bytes
  %line = getelementptr i8, ptr %staged, i64 %line.at
"""
_ALLOWED = f"""
define internal ptr @allowed(ptr %record, i64 %needs, i64 %mode, i64 %checks) {{
  %access.at = getelementptr i64, ptr %record, i64 {ACCESS}
  %access = load i64, ptr %access.at
  %granted = and i64 %access, %needs
  %all = icmp eq i64 %granted, %needs
  %bounds = and i64 %checks, {BOUNDED}
  %free = icmp eq i64 %bounds, 0
  %loads = icmp eq i64 %mode, {LOAD}
  %writes = and i64 %access, {MAY_WRITE}
  %writable = icmp ne i64 %writes, 0
  %harmless = or i1 %loads, %writable
  %let = and i1 %free, %harmless
  %may = or i1 %all, %let
  %result = select i1 %may, ptr %record, ptr null
  ret ptr %result
}}
"""
"""The record where the parameter is declared for the access, or that is not looked for and harms nobody; else null."""

_SLOW_POINTERS = f"""
declare i64 @llvm.cttz.i64(i64, i1)
define internal i64 @slow_pointers(ptr %c, ptr %staged, i64 %mode, i64 %needs, i64 %unit, i64 %count, i64 %align,
    i64 %checks) {{
  %bounds = and i64 %checks, {BOUNDED}
  %free = icmp eq i64 %bounds, 0
  %scratch.at = getelementptr i64, ptr %c, i64 {SCRATCH}
  %scratch = load ptr, ptr %scratch.at
  %addresses = getelementptr i8, ptr %scratch, i64 {ADDRESSES}
{_LANE_LOOP}
  %address.at = getelementptr i64, ptr %addresses, i64 %l
  %address = load i64, ptr %address.at
  %record = call ptr @find(ptr %c, i64 %address)
  %none = icmp eq ptr %record, null
  br i1 %none, label %out, label %mapped
mapped:
  %base = load i64, ptr %record
  %offset = sub i64 %address, %base
  %size.at = getelementptr i64, ptr %record, i64 {SIZE}
  %size = load i64, ptr %size.at
  %room = sub i64 %size, %bytes
  %small = icmp slt i64 %room, 0
  %past = icmp ugt i64 %offset, %room
  %low = and i64 %address, %align
  %unaligned = icmp ne i64 %low, 0
  %bound = xor i1 %free, true
  %skewed = and i1 %unaligned, %bound
  %wrong = or i1 %small, %past
  br i1 %wrong, label %out, label %fits
fits:
  br i1 %skewed, label %bad, label %ask
ask:
  %may = call ptr @allowed(ptr %record, i64 %needs, i64 %mode, i64 %checks)
  br label %units
out:
  br label %units
units:
  %where = phi ptr [null, %out], [%may, %ask]
  %offset2 = phi i64 [0, %out], [%offset, %ask]
  br label %unit.loop
unit.loop:
  %u = phi i64 [0, %units], [%u2, %unit.done]
  %u.at = mul i64 %u, %unit
  %there = add i64 %offset2, %u.at
  %data = getelementptr i8, ptr %line, i64 %u.at
  %failed = call i64 @move_unit(ptr %c, ptr %where, i64 %there, i64 %unit, i64 %mode, ptr %data, i64 %checks)
  %is.failed = icmp ne i64 %failed, 0
  br i1 %is.failed, label %bad, label %unit.done
unit.done:
  %u2 = add i64 %u, 1
  %more = icmp ult i64 %u2, %count
  br i1 %more, label %unit.loop, label %lane.done
lane.done:
  br label %lane
good:
  ret i64 0
bad:
  ret i64 1
}}
"""

_SLOW_VIEW = f"""
declare i64 @llvm.cttz.i64(i64, i1)
define internal i64 @slow_view(ptr %c, ptr %staged, ptr %view, i64 %mode, i64 %needs, i64 %unit, i64 %count,
    i64 %checks) {{
  %scratch.at = getelementptr i64, ptr %c, i64 {SCRATCH}
  %scratch = load ptr, ptr %scratch.at
  %begins = getelementptr i8, ptr %scratch, i64 {ADDRESSES}
  %view.base.at = getelementptr i64, ptr %view, i64 {VIEW_BASE}
  %view.base = load i64, ptr %view.base.at
  %view.size.at = getelementptr i64, ptr %view, i64 {VIEW_SIZE}
  %view.size = load i64, ptr %view.size.at
  %record = call ptr @find(ptr %c, i64 %view.base)
{_LANE_LOOP}
  %begin.at = getelementptr i64, ptr %begins, i64 %l
  %begin = load i64, ptr %begin.at
  %short = icmp slt i64 %bytes, 4
  %part.bytes = select i1 %short, i64 %bytes, i64 4
  br label %unit.loop
unit.loop:
  %u = phi i64 [0, %one], [%u2, %unit.done]
  %u.at = mul i64 %u, %unit
  %data = getelementptr i8, ptr %line, i64 %u.at
  %part = and i64 %u.at, -4
  %reach1 = add i64 %part, %part.bytes
  %reach = add i64 %begin, %reach1
  %inside = icmp sle i64 %reach, %view.size
  br i1 %inside, label %within, label %without
without:
  %loads = icmp eq i64 %mode, {LOAD}
  br i1 %loads, label %zero, label %unit.done
zero:
  call void @set_unit(ptr %data, i64 0, i64 %unit)
  br label %unit.done
within:
  %none = icmp eq ptr %record, null
  br i1 %none, label %out, label %mapped
mapped:
  %base.at = getelementptr i64, ptr %record, i64 {BASE}
  %base = load i64, ptr %base.at
  %delta = sub i64 %view.base, %base
  %there1 = add i64 %begin, %u.at
  %there = add i64 %there1, %delta
  %size.at = getelementptr i64, ptr %record, i64 {SIZE}
  %size = load i64, ptr %size.at
  %end = add i64 %there, %unit
  %before = icmp slt i64 %there, 0
  %past = icmp sgt i64 %end, %size
  %wrong = or i1 %before, %past
  br i1 %wrong, label %out, label %fits
fits:
  %may = call ptr @allowed(ptr %record, i64 %needs, i64 %mode, i64 %checks)
  br label %go
out:
  br label %go
go:
  %where = phi ptr [null, %out], [%may, %fits]
  %there2 = phi i64 [0, %out], [%there, %fits]
  %failed = call i64 @move_unit(ptr %c, ptr %where, i64 %there2, i64 %unit, i64 %mode, ptr %data, i64 %checks)
  %is.failed = icmp ne i64 %failed, 0
  br i1 %is.failed, label %bad, label %unit.done
unit.done:
  %u2 = add i64 %u, 1
  %more = icmp ult i64 %u2, %count
  br i1 %more, label %unit.loop, label %lane.done
lane.done:
  br label %lane
good:
  ret i64 0
bad:
  ret i64 1
}}
"""

SUPPORT: Final = {
    "find": _FIND,
    "plain": _PLAIN,
    "spot": _SPOT,
    "copy_unit": _COPY_UNIT,
    "set_unit": _SET_UNIT,
    "is_marked": _MARKED,
    "is_same": _SAME,
    "move_unit": _UNIT,
    "allowed": _ALLOWED,
    "slow_pointers": _SLOW_POINTERS,
    "slow_view": _SLOW_VIEW,
}
"""Helper functions by name."""
