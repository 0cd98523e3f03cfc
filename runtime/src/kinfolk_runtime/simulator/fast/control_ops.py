"""Functions of loops, branches, barriers and ends, and the one that runs workgroups, a wave at a time."""

from __future__ import annotations

from kinfolk_runtime.simulator.fast.checks import Checks
from kinfolk_runtime.simulator.fast.layout import (
    BACK_EDGES,
    BLOCK,
    CONTEXT_WORDS,
    ENTRIES,
    EXEC,
    FAULTED,
    GROUP,
    HIDINGS,
    JOB_CODE,
    JOB_CONTEXTS,
    JOB_FAULT_AT,
    JOB_FAULT_WAVE,
    JOB_FRAME_BYTES,
    JOB_FRAMES,
    JOB_GRID_X,
    JOB_GRID_Y,
    JOB_MARK_BYTES,
    JOB_MARKS,
    JOB_ORDER,
    JOB_RACE_BYTES,
    JOB_RACES,
    JOB_SEED,
    JOB_SET_BYTES,
    JOB_SHARED,
    JOB_WAVES,
    MOST_BACK_EDGES,
    PC,
    RETURNED,
    ROUND_LIMIT,
    ROUNDS_LEFT,
    RUNNING,
    SHARED,
    STAND,
    STATUS,
    WAITS,
)
from kinfolk_runtime.simulator.fast.library import ENTRY
from kinfolk_runtime.simulator.fast.text import NAME, OpText, OpWriter
from kinfolk_runtime.simulator.order import FACTORS, MULTIPLIERS, STEP


def barrier(wave_size: int, checks: Checks) -> OpText:
    """Return the function that stops a wave until the others have come; all its lanes must be active.

    Its word says which barrier it is: waves that stand at one meet, at whatever op.
    """
    w = OpWriter(wave_size)
    stand = w.word()
    if checks.sync:
        w.fault_if(w.let(f"icmp ne i64 {w.exec()}, {w.full}"))
    w.set_field("%c", STAND, stand)
    w.leave(WAITS, w.let("getelementptr i64, ptr %i, i64 2"))
    return w.finish()


def end(wave_size: int) -> OpText:
    """Return the function that ends a wave."""
    w = OpWriter(wave_size)
    w.set_field("%c", STAND, "0")
    w.leave(RETURNED, "%i")
    return w.finish()


def _bound(w: OpWriter, slot: str, lane: str) -> str:
    """Return the i32 that the active lanes agree on, as i64; a difference is a fault."""
    vector = w.vector("i32")
    value = w.let(f"load {vector}, ptr {slot}, align 64")
    one = w.let(f"extractelement {vector} {value}, i64 {lane}")
    differs = w.let(f"icmp ne {vector} {value}, {w.splat(one, 'i32')}")
    w.fault_unless_clear(w.let(f"and i64 {w.mask_of(differs)}, {w.exec()}"))
    return w.let(f"sext i32 {one} to i64")


def _count(w: OpWriter, counter: str, index: str) -> None:
    everywhere = w.splat(w.let(f"trunc i64 {index} to i32"), "i32")
    w.do(f"store {w.vector('i32')} {everywhere}, ptr {counter}, align 64")


def loop(wave_size: int, checks: Checks) -> OpText:
    """Return the function that begins a loop: lower, upper, step, state, counter; words to what follows the loop."""
    w = OpWriter(wave_size)
    slots = [w.slot() for _ in range(3)]
    state, counter, past = w.slot(), w.slot(), w.word()
    lane = w.first_lane()
    lower, upper, step = (_bound(w, slot, lane) for slot in slots)
    w.fault_if(w.let(f"icmp slt i64 {step}, 1"))
    some = w.let(f"icmp slt i64 {lower}, {upper}")
    w.set_field(state, 0, lower)
    w.set_field(state, 1, upper)
    w.set_field(state, 2, step)
    enters, skips = w.fresh("enters"), w.fresh("skips")
    w.branch(some, enters, skips)
    w.label(skips)
    w.go_by(past)
    w.label(enters)
    if checks.integer:  # the round after the last has index lower + rounds * step, which must be below 2^31
        span = w.let(f"add i64 {w.let(f'sub i64 {upper}, {lower}')}, {w.let(f'sub i64 {step}, 1')}")
        rounds = w.let(f"sdiv i64 {span}, {step}")
        after = w.let(f"add i64 {lower}, {w.let(f'mul i64 {rounds}, {step}')}")
        w.fault_if(w.let(f"icmp sge i64 {after}, {1 << 31}"))
    _count(w, counter, lower)
    w.go_on()
    return w.finish()


def next_round(wave_size: int, checks: Checks) -> OpText:
    """Return the function that ends a round: state, counter; words back to the body."""
    w = OpWriter(wave_size)
    state, counter, back = w.slot(), w.slot(), w.word()
    index = w.let(f"add i64 {w.field(state, 0)}, {w.field(state, 2)}")
    w.set_field(state, 0, index)
    again, over = w.fresh("again"), w.fresh("over")
    w.branch(w.let(f"icmp slt i64 {index}, {w.field(state, 1)}"), again, over)
    w.label(again)
    shared = w.field("%c", SHARED, "ptr")
    left = w.let(f"sub i64 {w.field(shared, ROUNDS_LEFT)}, 1")
    w.set_field(shared, ROUNDS_LEFT, left)
    w.fault_if(w.let(f"icmp slt i64 {left}, 0"))
    if checks.sync:
        edges = w.let(f"add i64 {w.field(shared, BACK_EDGES)}, 1")
        w.set_field(shared, BACK_EDGES, edges)
        w.fault_if(w.let(f"icmp ugt i64 {edges}, {w.field(shared, MOST_BACK_EDGES)}"))
    _count(w, counter, index)
    w.go_by(back)
    w.label(over)
    w.go_on()
    return w.finish()


def branch(wave_size: int) -> OpText:
    """Return the function that begins a branch: condition, state; words to the other side's begin."""
    w = OpWriter(wave_size)
    condition, state, other = w.slot(), w.slot(), w.word()
    asked = w.let(f"load i64, ptr {condition}")
    taken = w.let(f"and i64 {asked}, {w.exec()}")
    rest = w.let(f"xor i64 {taken}, {w.exec()}")
    w.set_field(state, 0, w.exec())
    w.set_field(state, 1, rest)
    enters, skips = w.fresh("enters"), w.fresh("skips")
    w.branch(w.let(f"icmp ne i64 {taken}, 0"), enters, skips)
    w.label(skips)
    w.go_by(other)
    w.label(enters)
    w.set_field("%c", EXEC, taken)
    w.go_on()
    return w.finish()


def otherwise(wave_size: int) -> OpText:
    """Return the function that begins the other side: state; words past its end."""
    w = OpWriter(wave_size)
    state, past = w.slot(), w.word()
    rest = w.field(state, 1)
    enters, skips = w.fresh("enters"), w.fresh("skips")
    w.branch(w.let(f"icmp ne i64 {rest}, 0"), enters, skips)
    w.label(skips)
    w.set_field("%c", EXEC, w.field(state, 0))
    w.go_by(past)
    w.label(enters)
    w.set_field("%c", EXEC, rest)
    w.go_on()
    return w.finish()


def joined(wave_size: int) -> OpText:
    """Return the function that ends a branch: state."""
    w = OpWriter(wave_size)
    w.set_field("%c", EXEC, w.field(w.slot(), 0))
    return w.finish()


def entered(wave_size: int) -> OpText:
    """Return the function that counts a wave which enters a region, and its active lanes: which words to add to."""
    w = OpWriter(wave_size)
    number = w.word()
    w.declare("declare i64 @llvm.ctpop.i64(i64)")
    counts = w.field(w.field("%c", SHARED, "ptr"), ENTRIES, "ptr")
    waves = w.let(f"getelementptr i64, ptr {counts}, i64 {number}")
    w.set_field(waves, 0, w.let(f"add i64 {w.field(waves, 0)}, 1"))
    lanes = w.let(f"call i64 @llvm.ctpop.i64(i64 {w.exec()})")
    w.set_field(waves, 1, w.let(f"add i64 {w.field(waves, 1)}, {lanes}"))
    return w.finish()


def forget(wave_size: int) -> OpText:
    """Return the function that clears words of the frame: the first, how many."""
    w = OpWriter(wave_size)
    first, count = w.slot(), w.word()
    w.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    size = w.let(f"mul i64 {count}, 8")
    w.do(f"call void @llvm.memset.p0.i64(ptr {first}, i8 0, i64 {size}, i1 false)")
    return w.finish()


def _word(name: str, word: int, record: str = "%job", type_: str = "i64") -> str:
    return f"  %{name}.at = getelementptr i64, ptr {record}, i64 {word}\n  %{name} = load {type_}, ptr %{name}.at\n"


_JOB = "".join(
    (
        _word("waves", JOB_WAVES),
        _word("contexts", JOB_CONTEXTS, type_="ptr"),
        _word("frames", JOB_FRAMES, type_="ptr"),
        _word("frame.bytes", JOB_FRAME_BYTES),
        _word("marks", JOB_MARKS, type_="ptr"),
        _word("mark.bytes", JOB_MARK_BYTES),
        _word("x.count", JOB_GRID_X),
        _word("y.count", JOB_GRID_Y),
        _word("code", JOB_CODE, type_="ptr"),
        _word("seed", JOB_SEED),
        _word("order", JOB_ORDER, type_="ptr"),
        _word("shared", JOB_SHARED, type_="ptr"),
        _word("races", JOB_RACES, type_="ptr"),
        _word("race.bytes", JOB_RACE_BYTES),
        _word("set.bytes", JOB_SET_BYTES),
    )
)
"""Reads the words of the job."""

_ENTRY = f"""define i64 {NAME}(ptr %job, ptr %places, i64 %count) {{
{_JOB}  %seeded = mul i64 %seed, {FACTORS[0]}
  %drawn = icmp ne i64 %seed, 0
  br label %group
group:
  %n = phi i64 [0, %0], [%n2, %group.done]
  %any = icmp ult i64 %n, %count
  br i1 %any, label %begin, label %over
over:
  ret i64 %n
"""
"""Takes workgroups one after the other."""

_BEGIN = f"""begin:
  %place.at = getelementptr i64, ptr %places, i64 %n
  %place = load i64, ptr %place.at
  %x = urem i64 %place, %x.count
  %yz = udiv i64 %place, %x.count
  %y = urem i64 %yz, %y.count
  %z = udiv i64 %yz, %y.count
  call void @llvm.memset.p0.i64(ptr %marks, i8 0, i64 %mark.bytes, i1 false)
  call void @llvm.memset.p0.i64(ptr %races, i8 0, i64 %race.bytes, i1 false)
  %hidings = getelementptr i64, ptr %shared, i64 {HIDINGS}
  store i64 0, ptr %hidings
  %round.limit.at = getelementptr i64, ptr %shared, i64 {ROUND_LIMIT}
  %round.limit = load i64, ptr %round.limit.at
  %rounds.left = getelementptr i64, ptr %shared, i64 {ROUNDS_LEFT}
  store i64 %round.limit, ptr %rounds.left
  %placed = mul i64 %place, {FACTORS[1]}
  %stream = add i64 %seeded, %placed
  br label %ready
ready:
  %w = phi i64 [0, %begin], [%w2, %ready]
  %c.at = mul i64 %w, {8 * CONTEXT_WORDS}
  %c = getelementptr i8, ptr %contexts, i64 %c.at
  store i64 FULL, ptr %c
  %bx = getelementptr i64, ptr %c, i64 {BLOCK}
  store i64 %x, ptr %bx
  %by = getelementptr i64, ptr %c, i64 {BLOCK + 1}
  store i64 %y, ptr %by
  %bz = getelementptr i64, ptr %c, i64 {BLOCK + 2}
  store i64 %z, ptr %bz
  %pc.at = getelementptr i64, ptr %c, i64 {PC}
  store ptr %code, ptr %pc.at
  %status.begin = getelementptr i64, ptr %c, i64 {STATUS}
  store i64 {RUNNING}, ptr %status.begin
  %group.number = getelementptr i64, ptr %c, i64 {GROUP}
  %place.1 = add i64 %place, 1
  store i64 %place.1, ptr %group.number
  %w2 = add i64 %w, 1
  %all = icmp eq i64 %w2, %waves
  br i1 %all, label %round, label %ready
"""
"""Sets what is a workgroup's own; FULL stands for the mask of all lanes."""

_ORDER = f"""round:
  %r = phi i64 [0, %ready], [%r2, %round.done]
  %edges.at = getelementptr i64, ptr %shared, i64 {BACK_EDGES}
  store i64 0, ptr %edges.at
  br label %plain
plain:
  %o = phi i64 [0, %round], [%o2, %plain]
  %o.at = getelementptr i64, ptr %order, i64 %o
  store i64 %o, ptr %o.at
  %o2 = add i64 %o, 1
  %o.all = icmp eq i64 %o2, %waves
  br i1 %o.all, label %ordered, label %plain
ordered:
  br i1 %drawn, label %draw, label %waves.begin
draw:
  %rounds = mul i64 %r, {FACTORS[2]}
  %state0 = add i64 %stream, %rounds
  %last0 = sub i64 %waves, 1
  br label %draw.next
draw.next:
  %last = phi i64 [%last0, %draw], [%last2, %draw.one]
  %state = phi i64 [%state0, %draw], [%state2, %draw.one]
  %drew = icmp eq i64 %last, 0
  br i1 %drew, label %waves.begin, label %draw.one
draw.one:
  %state2 = add i64 %state, {STEP}
  %s1 = lshr i64 %state2, 30
  %s2 = xor i64 %state2, %s1
  %s3 = mul i64 %s2, {MULTIPLIERS[0]}
  %s4 = lshr i64 %s3, 27
  %s5 = xor i64 %s3, %s4
  %s6 = mul i64 %s5, {MULTIPLIERS[1]}
  %s7 = lshr i64 %s6, 31
  %s8 = xor i64 %s6, %s7
  %choices = add i64 %last, 1
  %other = urem i64 %s8, %choices
  %a.at = getelementptr i64, ptr %order, i64 %last
  %b.at = getelementptr i64, ptr %order, i64 %other
  %a = load i64, ptr %a.at
  %b = load i64, ptr %b.at
  store i64 %b, ptr %a.at
  store i64 %a, ptr %b.at
  %last2 = sub i64 %last, 1
  br label %draw.next
"""
"""Draws the order of waves for a round between two barriers."""

_WAVES = f"""waves.begin:
  br label %wave
wave:
  %k = phi i64 [0, %waves.begin], [%k2, %wave.fine]
  %status0 = phi i64 [0, %waves.begin], [%first.status, %wave.fine]
  %stand0 = phi i64 [0, %waves.begin], [%first.stand, %wave.fine]
  %index.at = getelementptr i64, ptr %order, i64 %k
  %index = load i64, ptr %index.at
  %wc.at = mul i64 %index, {8 * CONTEXT_WORDS}
  %wc = getelementptr i8, ptr %contexts, i64 %wc.at
  %frame.at = mul i64 %index, %frame.bytes
  %frame = getelementptr i8, ptr %frames, i64 %frame.at
  %wpc.at = getelementptr i64, ptr %wc, i64 {PC}
  %wpc = load ptr, ptr %wpc.at
  %status.at = getelementptr i64, ptr %wc, i64 {STATUS}
  store i64 {RUNNING}, ptr %status.at
  %function = load ptr, ptr %wpc
  call void %function(ptr %wc, ptr %frame, ptr %wpc)
  %status = load i64, ptr %status.at
  %stand.at = getelementptr i64, ptr %wc, i64 {STAND}
  %stand = load i64, ptr %stand.at
  %failed = icmp eq i64 %status, {FAULTED}
  br i1 %failed, label %fault, label %stood
stood:
  %is.first = icmp eq i64 %k, 0
  %first.status = select i1 %is.first, i64 %status, i64 %status0
  %first.stand = select i1 %is.first, i64 %stand, i64 %stand0
  %same.status = icmp eq i64 %status, %first.status
  %same.stand = icmp eq i64 %stand, %first.stand
  %same = and i1 %same.status, %same.stand
  %parted0 = getelementptr i64, ptr %order, i64 %waves
  %was.parted = load i64, ptr %parted0
  %old.parted = select i1 %is.first, i64 0, i64 %was.parted
  %new.parted = select i1 %same, i64 %old.parted, i64 1
  store i64 %new.parted, ptr %parted0
  br label %wave.fine
wave.fine:
  %k2 = add i64 %k, 1
  %k.all = icmp eq i64 %k2, %waves
  br i1 %k.all, label %met, label %wave
"""
"""Runs every wave to where it stops, and notes whether all stop alike."""

_MEET = (
    """met:
  %is.parted = icmp ne i64 %new.parted, 0
  br i1 %is.parted, label %fault, label %together
together:
JUDGE  br label %round.done
round.done:
  %r2 = add i64 %r, 1
"""
    + f"""  %returned = icmp eq i64 %first.status, {RETURNED}
  br i1 %returned, label %group.done, label %round
"""
)
"""Ends a round where all waves stopped alike."""

_JUDGE = """  %raced = call i64 @judge_SIZE(ptr %races, i64 %set.bytes)
  %is.raced = icmp ne i64 %raced, 0
  br i1 %is.raced, label %fault, label %judged
judged:
"""
"""Ends the run where waves raced since they last met; SIZE stands for the bytes of a set."""

_APART = f"""waves.begin:
  br label %wave
wave:
  %k = phi i64 [0, %waves.begin], [%k2, %wave.fine]
  %live = phi i64 [0, %waves.begin], [%live2, %wave.fine]
  %index.at = getelementptr i64, ptr %order, i64 %k
  %index = load i64, ptr %index.at
  %wc.at = mul i64 %index, {8 * CONTEXT_WORDS}
  %wc = getelementptr i8, ptr %contexts, i64 %wc.at
  %frame.at = mul i64 %index, %frame.bytes
  %frame = getelementptr i8, ptr %frames, i64 %frame.at
  %wpc.at = getelementptr i64, ptr %wc, i64 {PC}
  %status.at = getelementptr i64, ptr %wc, i64 {STATUS}
  %before = load i64, ptr %status.at
  %gone = icmp eq i64 %before, {RETURNED}
  br i1 %gone, label %wave.fine, label %wave.run
wave.run:
  %wpc = load ptr, ptr %wpc.at
  store i64 {RUNNING}, ptr %status.at
  %function = load ptr, ptr %wpc
  call void %function(ptr %wc, ptr %frame, ptr %wpc)
  %status = load i64, ptr %status.at
  %failed = icmp eq i64 %status, {FAULTED}
  br i1 %failed, label %fault, label %stood
stood:
  %waits = icmp eq i64 %status, {WAITS}
  %one.more = zext i1 %waits to i64
  br label %wave.fine
wave.fine:
  %lives = phi i64 [0, %wave], [%one.more, %stood]
  %live2 = add i64 %live, %lives
  %k2 = add i64 %k, 1
  %k.all = icmp eq i64 %k2, %waves
  br i1 %k.all, label %met, label %wave
"""
"""Runs every wave that has not returned to where it stops, whether or not all stop alike."""

_MEET_APART = """met:
JUDGE  br label %round.done
round.done:
  %r2 = add i64 %r, 1
  %returned = icmp eq i64 %live2, 0
  br i1 %returned, label %group.done, label %round
"""
"""Ends a round of waves that stopped anywhere."""

_ENDS = f"""group.done:
  %n2 = add i64 %n, 1
  br label %group
fault:
  %fault.wave.at = getelementptr i64, ptr %job, i64 {JOB_FAULT_WAVE}
  store i64 %index, ptr %fault.wave.at
  %fault.pc = load ptr, ptr %wpc.at
  %fault.at.at = getelementptr i64, ptr %job, i64 {JOB_FAULT_AT}
  store ptr %fault.pc, ptr %fault.at.at
  ret i64 %n
}}
"""
"""Ends a workgroup, or the run at a fault."""


def runner(wave_size: int, checks: Checks) -> OpText:
    """Return `run_workgroups(job, places, count)`: the number of workgroups that ran to their end, in order.

    Where it is less than `count` the next one is at fault.
    """
    full = -1 if wave_size == 64 else (1 << wave_size) - 1
    judge = _JUDGE.replace("SIZE", str(checks.set_bytes)) if checks.granule else ""
    waves = _WAVES + _MEET if checks.sync else _APART + _MEET_APART
    text = _ENTRY + _BEGIN.replace("FULL", str(full)) + _ORDER + waves.replace("JUDGE", judge) + _ENDS
    declarations = frozenset({"declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"})
    kind = f"{wave_size}_{'sync' if checks.sync else 'apart'}_{checks.set_bytes if checks.granule else 0}"
    return OpText(f"{ENTRY}_{kind}", text, declarations, 0)
