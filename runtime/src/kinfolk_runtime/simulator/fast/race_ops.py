"""How races are found: in workgroup memory by sets of waves per granule, judged where the waves meet; between
workgroups by the words of `traffic`, judged at each access.
"""

from __future__ import annotations

from typing import Final

from kinfolk.ir.builder import ALLOCATION_ALIGNMENT
from kinfolk.ir.meaning import MemoryAccess
from kinfolk.ir.types import element_type
from kinfolk.ir.value import Kernel
from kinfolk_runtime.simulator.fast.checks import Checks
from kinfolk_runtime.simulator.fast.layout import (
    ADDRESSES,
    GRANULE,
    GROUP,
    SCRATCH,
    TRAFFIC,
)
from kinfolk_runtime.simulator.fast.memory_ops import Moved
from kinfolk_runtime.simulator.fast.staging_ops import source_of
from kinfolk_runtime.simulator.fast.support import range_at
from kinfolk_runtime.simulator.sanitizers import Sanitizer
from kinfolk_runtime.simulator.traffic import ADDED, LOADED, SEVERAL, STORED


def checks_of(kernel: Kernel, sanitize: frozenset[Sanitizer]) -> Checks:
    """Return what the functions of a kernel look for."""
    waves = kernel.block // kernel.wave_size
    plain = Checks(sanitize)
    if not plain.race:
        return plain
    granule, used, stages = ALLOCATION_ALIGNMENT, False, False
    for op in kernel.walk():
        meaning = op.definition.meaning
        if not isinstance(meaning, MemoryAccess):
            continue
        if meaning.action == "stage":
            target = element_type(op.operands[-2].type).bytes
            size = source_of(op, meaning).bytes
            aligned = size & -size if plain.memory else target
            stages = True
        elif meaning.space == "workgroup" and meaning.action in ("load", "store", "atomic_add"):
            moved = Moved.of(op, meaning)
            aligned = moved.bytes & -moved.bytes
            aligned = min(aligned, max(moved.alignment, moved.element.bytes) if plain.memory else moved.element.bytes)
        else:
            continue
        granule, used = min(granule, aligned), True
    set_bytes = max(1, 1 << (max(waves, 8) - 1).bit_length() - 3)
    return Checks(sanitize, granule if used and waves > 1 else 0, set_bytes, stages)


def wave_bits(wave: int, set_bytes: int) -> int:
    """Return a wave's bit in every set of a word, as a signed i64."""
    one = (1 << wave % (8 * set_bytes)).to_bytes(set_bytes, "little")
    return int.from_bytes(one * (8 // set_bytes), "little", signed=True)


def _judge(set_bytes: int) -> str:
    vector, item = f"<{64 // set_bytes} x i{8 * set_bytes}>", f"i{8 * set_bytes}"
    bits = vector.replace(item, "i1")
    return f"""
declare {item} @llvm.vector.reduce.or.v{64 // set_bytes}{item}({vector})
define internal i64 @judge_{set_bytes}(ptr %sets, i64 %bytes) {{
  %write.sets = getelementptr i8, ptr %sets, i64 %bytes
  %add.sets = getelementptr i8, ptr %write.sets, i64 %bytes
  br label %next
next:
  %n = phi i64 [0, %0], [%n2, %next]
  %raced = phi {vector} [zeroinitializer, %0], [%raced2, %next]
  %reads.at = getelementptr i8, ptr %sets, i64 %n
  %writes.at = getelementptr i8, ptr %write.sets, i64 %n
  %adds.at = getelementptr i8, ptr %add.sets, i64 %n
  %reads = load {vector}, ptr %reads.at, align 64
  %writes = load {vector}, ptr %writes.at, align 64
  %adds = load {vector}, ptr %adds.at, align 64
  store {vector} zeroinitializer, ptr %reads.at, align 64
  store {vector} zeroinitializer, ptr %writes.at, align 64
  store {vector} zeroinitializer, ptr %adds.at, align 64
  %fewer.writes = sub {vector} %writes, splat ({item} 1)
  %several.writes = and {vector} %writes, %fewer.writes
  %others = or {vector} %reads, %adds
  %elsewhere = xor {vector} %writes, splat ({item} -1)
  %foreign = and {vector} %others, %elsewhere
  %against.write = or {vector} %several.writes, %foreign
  %unwritten = icmp eq {vector} %writes, zeroinitializer
  %written.race = select {bits} %unwritten, {vector} zeroinitializer, {vector} %against.write
  %fewer.adds = sub {vector} %adds, splat ({item} 1)
  %several.adds = and {vector} %adds, %fewer.adds
  %apart = xor {vector} %adds, %reads
  %against.add = or {vector} %several.adds, %apart
  %unread = icmp eq {vector} %reads, zeroinitializer
  %unadded = icmp eq {vector} %adds, zeroinitializer
  %either = or {bits} %unread, %unadded
  %added.race = select {bits} %either, {vector} zeroinitializer, {vector} %against.add
  %race = or {vector} %written.race, %added.race
  %raced2 = or {vector} %raced, %race
  %n2 = add i64 %n, 64
  %more = icmp ult i64 %n2, %bytes
  br i1 %more, label %next, label %over
over:
  %any = call {item} @llvm.vector.reduce.or.v{64 // set_bytes}{item}({vector} %raced2)
  %some = icmp ne {item} %any, 0
  %result = zext i1 %some to i64
  ret i64 %result
}}
"""


_FOREIGN: Final = """
define internal i1 @foreign(ptr %word, i32 %me) {
  %held = load atomic i32, ptr %word seq_cst, align 4
  %some = icmp ne i32 %held, 0
  %other = icmp ne i32 %held, %me
  %result = and i1 %some, %other
  ret i1 %result
}
"""

_ENTER: Final = f"""
define internal void @enter(ptr %word, i32 %me) {{
  %first = load atomic i32, ptr %word seq_cst, align 4
  br label %again
again:
  %held = phi i32 [%first, %0], [%seen, %try]
  %none = icmp eq i32 %held, 0
  %number = and i32 %held, {SEVERAL - 1}
  %mine = icmp eq i32 %number, %me
  %marked = or i32 %held, {-SEVERAL}
  %kept = select i1 %mine, i32 %held, i32 %marked
  %new = select i1 %none, i32 %me, i32 %kept
  %same = icmp eq i32 %new, %held
  br i1 %same, label %done, label %try
try:
  %pair = cmpxchg ptr %word, i32 %held, i32 %new seq_cst seq_cst
  %seen = extractvalue {{i32, i1}} %pair, 0
  %went = extractvalue {{i32, i1}} %pair, 1
  br i1 %went, label %done, label %again
done:
  ret void
}}
"""

_TOUCH: Final = f"""
define internal i64 @touch(ptr %c, ptr %record, i64 %offset, i64 %bytes, i64 %role) {{
  %granule.at = getelementptr i64, ptr %record, i64 {GRANULE}
  %granule = load i64, ptr %granule.at
  %watched = icmp ne i64 %granule, 0
  br i1 %watched, label %find, label %fine
find:
  %group.at = getelementptr i64, ptr %c, i64 {GROUP}
  %group = load i64, ptr %group.at
  %me = trunc i64 %group to i32
{range_at("%bytes", "find", "fine")}  %words.at = getelementptr i64, ptr %range, i64 {TRAFFIC}
  %loaded = load ptr, ptr %words.at
  %size = sub i64 %high, %low
  %less = sub i64 %granule, 1
  %rounded = add i64 %size, %less
  %spots = udiv i64 %rounded, %granule
  %stored = getelementptr i32, ptr %loaded, i64 %spots
  %added = getelementptr i32, ptr %stored, i64 %spots
  %inner = sub i64 %offset, %low
  %first = udiv i64 %inner, %granule
  %reach = add i64 %inner, %bytes
  %last.byte = sub i64 %reach, 1
  %last = udiv i64 %last.byte, %granule
  %reads = icmp eq i64 %role, {LOADED}
  %writes = icmp eq i64 %role, {STORED}
  %read.or.write = select i1 %writes, ptr %stored, ptr %added
  %own = select i1 %reads, ptr %loaded, ptr %read.or.write
  br label %spot
spot:
  %s = phi i64 [%first, %found], [%s2, %clear]
  %own.word = getelementptr i32, ptr %own, i64 %s
  call void @enter(ptr %own.word, i32 %me)
  %stored.word = getelementptr i32, ptr %stored, i64 %s
  %raced.store = call i1 @foreign(ptr %stored.word, i32 %me)
  br i1 %raced.store, label %raced, label %unwritten
unwritten:
  %loaded.word = getelementptr i32, ptr %loaded, i64 %s
  %some.load = call i1 @foreign(ptr %loaded.word, i32 %me)
  %not.reads = xor i1 %reads, true
  %raced.load = and i1 %some.load, %not.reads
  br i1 %raced.load, label %raced, label %unread
unread:
  %adds = icmp eq i64 %role, {ADDED}
  br i1 %adds, label %clear, label %unadded
unadded:
  %added.word = getelementptr i32, ptr %added, i64 %s
  %raced.add = call i1 @foreign(ptr %added.word, i32 %me)
  br i1 %raced.add, label %raced, label %clear
clear:
  %s2 = add i64 %s, 1
  %again = icmp ule i64 %s2, %last
  br i1 %again, label %spot, label %fine
fine:
  ret i64 0
raced:
  ret i64 1
}}
"""

_TOUCH_LANES: Final = f"""
declare i64 @llvm.cttz.i64(i64, i1)
define internal i64 @touch_lanes(ptr %c, ptr %record, i64 %begin, i64 %lanes, i64 %bytes, i64 %role) {{
  %granule.at = getelementptr i64, ptr %record, i64 {GRANULE}
  %granule = load i64, ptr %granule.at
  %watched = icmp ne i64 %granule, 0
  br i1 %watched, label %some, label %fine
some:
  %scratch.at = getelementptr i64, ptr %c, i64 {SCRATCH}
  %scratch = load ptr, ptr %scratch.at
  %offsets = getelementptr i8, ptr %scratch, i64 {ADDRESSES}
  br label %lane
lane:
  %left = phi i64 [%lanes, %some], [%left2, %one]
  %over = icmp eq i64 %left, 0
  br i1 %over, label %fine, label %one
one:
  %l = call i64 @llvm.cttz.i64(i64 %left, i1 true)
  %less = sub i64 %left, 1
  %left2 = and i64 %left, %less
  %there = getelementptr i64, ptr %offsets, i64 %l
  %inner = load i64, ptr %there
  %offset = add i64 %inner, %begin
  %failed = call i64 @touch(ptr %c, ptr %record, i64 %offset, i64 %bytes, i64 %role)
  %is.failed = icmp ne i64 %failed, 0
  br i1 %is.failed, label %raced, label %lane
fine:
  ret i64 0
raced:
  ret i64 1
}}
"""

SUPPORT: Final = {
    **{f"judge_{size}": _judge(size) for size in (1, 2, 4, 8)},
    "foreign": _FOREIGN,
    "enter": _ENTER,
    "touch": _TOUCH,
    "touch_lanes": _TOUCH_LANES,
}
"""Helper functions by name."""
