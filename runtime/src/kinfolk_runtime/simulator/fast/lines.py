"""Moving data between lanes' own addresses and values in frames: lane by lane through the scratch of the thread.

A lane's data is copied whole to its line in the scratch, then the lines are parted into components, by halves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kinfolk.ir.llvm_lanes import storage_type
from kinfolk.ir.types import ScalarType
from kinfolk_runtime.simulator.fast.layout import ADDRESSES, KEPT, READS, SCRATCH, SET_SLACK, SPOTS, STAGED, WAVE_BITS
from kinfolk_runtime.simulator.fast.text import OpWriter

_UNROLLED = 8


class Mover:
    """Copies `count` elements of a type per lane. i1 is a byte in memory."""

    def __init__(self, writer: OpWriter, element: ScalarType, count: int) -> None:
        self.w, self.element, self.count = writer, element, count
        self.bytes = element.bytes * count
        self.item = "i8" if element.bits == 1 else storage_type(element)
        self.scratch = writer.field("%c", SCRATCH, "ptr")

    @property
    def staged(self) -> str:
        """Where lanes' lines lie."""
        return self.w.at(self.scratch, STAGED)

    def keep_addresses(self, addresses: str, active: str, spare: int | None) -> None:
        """Keep one address per lane, `<wave x i64>` of the host; masked lanes get a spare one, or their line's."""
        w = self.w
        vector = w.vector("i64")
        where = self.staged if spare is None else w.at(self.scratch, spare)
        place = w.splat(w.let(f"ptrtoint ptr {where} to i64"), "i64")
        if spare is None:
            place = w.let(f"add {vector} {place}, {w.ascending('i64', self.bytes)}")
        chosen = w.let(f"select {w.vector('i1')} {active}, {vector} {addresses}, {vector} {place}")
        w.do(f"store {vector} {chosen}, ptr {w.at(self.scratch, ADDRESSES)}, align 64")

    def keep_spots(self, addresses: str, active: str) -> None:
        """Keep the address of every lane's sets of waves; masked lanes get one that nobody asks."""
        w = self.w
        vector = w.vector("i64")
        spare = w.splat(w.let(f"sub i64 {w.field('%c', READS)}, {SET_SLACK}"), "i64")
        chosen = w.let(f"select {w.vector('i1')} {active}, {vector} {addresses}, {vector} {spare}")
        w.do(f"store {vector} {chosen}, ptr {w.at(self.scratch, SPOTS)}, align 64")

    def lines_from_memory(self, notes: int = 0) -> None:
        """Copy every lane's data to its line; enter the wave into so many bytes of sets at each lane's spot."""

        def fetch(address: str, line: str) -> None:
            self._copy(line, address)

        self._each_lane(fetch, notes)

    def lines_to_memory(self, notes: int = 0) -> None:
        """Copy every lane's line to its address, in order of lanes; enter the wave into sets as above."""
        self._each_lane(self._copy, notes)

    def lines_differ(self) -> str:
        """Return an i1, whether some lane's line is not what is at its address."""
        w = self.w
        kept = w.at(self.scratch, KEPT)
        w.do(f"store i64 0, ptr {kept}")

        def compare(address: str, line: str) -> None:
            seen = w.let(f"load i64, ptr {kept}")
            for at, type_ in _chunks(self.bytes):
                here, there = (w.let(f"load {type_}, ptr {w.at(one, at)}, align 1") for one in (line, address))
                for half in self._words(w.let(f"xor {type_} {here}, {there}"), type_):
                    seen = w.let(f"or i64 {seen}, {half}")
            w.do(f"store i64 {seen}, ptr {kept}")

        self._each_lane(compare)
        return w.let(f"icmp ne i64 {w.let(f'load i64, ptr {kept}')}, 0")

    def add_lines_to_memory(self, notes: int = 0) -> None:
        """Add every lane's line to what is at its address: component after component, each in order of lanes."""
        w = self.w
        instruction = "fadd" if self.element.kind == "float" else "add"
        for part in range(self.count):

            def add(address: str, line: str, at: int = part * self.element.bytes) -> None:
                there = w.at(address, at)
                held = w.let(f"load {self.item}, ptr {there}, align 1")
                term = w.let(f"load {self.item}, ptr {w.at(line, at)}, align 1")
                w.do(f"store {self.item} {w.let(f'{instruction} {self.item} {held}, {term}')}, ptr {there}, align 1")

            self._each_lane(add, notes if part == 0 else 0)

    def mark(self) -> None:
        """Set all bits at every lane's address."""

        def ones(address: str, _: str) -> None:
            for at, type_ in _chunks(self.bytes):
                minus = "splat (i64 -1)" if type_.startswith("<") else "-1"
                self.w.do(f"store {type_} {minus}, ptr {self.w.at(address, at)}, align 1")

        self._each_lane(ones)

    def all_marked(self) -> str:
        """Return an i1, whether all bits are set at every lane's address."""
        return self.w.let(f"icmp eq i64 {self._gathered('and', -1)}, -1")

    def none_marked(self) -> str:
        """Return an i1, whether no bit is set at any lane's address."""
        return self.w.let(f"icmp eq i64 {self._gathered('or', 0)}, 0")

    def _gathered(self, join: str, start: int) -> str:
        w = self.w
        kept = w.at(self.scratch, KEPT)
        w.do(f"store i64 {start}, ptr {kept}")

        def ask(address: str, _: str) -> None:
            seen = w.let(f"load i64, ptr {kept}")
            for at, type_ in _chunks(self.bytes):
                part = w.let(f"load {type_}, ptr {w.at(address, at)}, align 1")
                for half in self._words(part, type_):
                    seen = w.let(f"{join} i64 {seen}, {half}")
            w.do(f"store i64 {seen}, ptr {kept}")

        self._each_lane(ask)
        return w.let(f"load i64, ptr {kept}")

    def _words(self, part: str, type_: str) -> list[str]:
        """Return a piece as words of 64 bits, sign-extended."""
        if type_.startswith("<"):
            return [self.w.let(f"extractelement {type_} {part}, i32 {half}") for half in (0, 1)]
        return [part if type_ == "i64" else self.w.let(f"sext {type_} {part} to i64")]

    def _copy(self, target: str, source: str) -> None:
        for at, type_ in _chunks(self.bytes):
            part = self.w.let(f"load {type_}, ptr {self.w.at(source, at)}, align 1")
            self.w.do(f"store {type_} {part}, ptr {self.w.at(target, at)}, align 1")

    def _note(self, spot: str, notes: int, bits: str) -> None:
        """Enter the wave into the sets at a lane's spot."""
        w = self.w
        for at, type_ in _chunks(notes):
            there = w.at(spot, at)
            mine = bits
            if type_.startswith("<"):
                mine = w.let(f"insertelement {type_} poison, i64 {bits}, i32 0")
                mine = w.let(f"shufflevector {type_} {mine}, {type_} poison, <2 x i32> zeroinitializer")
            elif type_ != "i64":
                mine = w.let(f"trunc i64 {bits} to {type_}")
            held = w.let(f"load {type_}, ptr {there}, align 1")
            w.do(f"store {type_} {w.let(f'or {type_} {held}, {mine}')}, ptr {there}, align 1")

    def _each_lane(self, body: Callable[[str, str], None], notes: int = 0) -> None:
        """Write a loop over lanes, some at a time; `body(address, line)` writes one."""
        w = self.w
        bits = w.field("%c", WAVE_BITS) if notes else ""
        before, round_, after = w.fresh("before"), w.fresh("lanes"), w.fresh("after")
        addresses, lines = w.at(self.scratch, ADDRESSES), self.staged
        w.jump(before)
        w.label(before)
        w.jump(round_)
        w.label(round_)
        following = w.fresh("%next")
        lane = w.let(f"phi i64 [0, %{before}], [{following}, %{round_}]")
        first = w.let(f"getelementptr i64, ptr {addresses}, i64 {lane}")
        offset = w.let(f"mul i64 {lane}, {self.bytes}")
        line = w.let(f"getelementptr i8, ptr {lines}, i64 {offset}")
        for number in range(_UNROLLED):
            address = w.let(f"load ptr, ptr {w.at(first, 8 * number)}")
            body(address, w.at(line, self.bytes * number))
            if notes:
                spot = w.let(f"load ptr, ptr {w.at(first, SPOTS - ADDRESSES + 8 * number)}")
                self._note(spot, notes, bits)
        w.lines.append(f"  {following} = add i64 {lane}, {_UNROLLED}")
        more = w.let(f"icmp ult i64 {following}, {w.wave}")
        w.branch(more, round_, after)
        w.label(after)

    def parts(self) -> list[str]:
        """Return the lines as components on all lanes."""
        w, count = self.w, self.count
        if count & (count - 1) == 0:
            total = w.wave * count
            whole = w.let(f"load <{total} x {self.item}>, ptr {self.staged}, align 64")
            return self._parted(whole, total, count)
        parts: list[str] = []
        for part in range(count):
            value = "poison"
            for lane in range(w.wave):
                where = w.at(self.staged, self.bytes * lane + self.element.bytes * part)
                one = w.let(f"load {self.item}, ptr {where}")
                value = w.let(f"insertelement {w.vector(self.item)} {value}, {self.item} {one}, i32 {lane}")
            parts.append(value)
        return parts

    def _parted(self, whole: str, total: int, count: int) -> list[str]:
        """Return every `count`-th item from each start, by parting even from odd."""
        if count == 1:
            return [whole]
        type_, half = f"<{total} x {self.item}>", total // 2
        sides: list[list[str]] = []
        for start in (0, 1):
            order = ", ".join(f"i32 {index}" for index in range(start, total, 2))
            side = self.w.let(f"shufflevector {type_} {whole}, {type_} poison, <{half} x i32> <{order}>")
            sides.append(self._parted(side, half, count // 2))
        return [part for pair in zip(*sides, strict=True) for part in pair]

    def put_parts(self, parts: Sequence[str]) -> None:
        """Write components on all lanes as lines."""
        w, count = self.w, self.count
        if count & (count - 1) == 0:
            whole = self._joined(list(parts), w.wave)
            w.do(f"store <{w.wave * count} x {self.item}> {whole}, ptr {self.staged}, align 64")
            return
        for part, value in enumerate(parts):
            for lane in range(w.wave):
                one = w.let(f"extractelement {w.vector(self.item)} {value}, i32 {lane}")
                where = w.at(self.staged, self.bytes * lane + self.element.bytes * part)
                w.do(f"store {self.item} {one}, ptr {where}")

    def _joined(self, parts: list[str], lanes: int) -> str:
        if len(parts) == 1:
            return parts[0]
        half = len(parts) // 2
        even = self._joined(parts[0::2], lanes)
        odd = self._joined(parts[1::2], lanes)
        total = lanes * half
        type_ = f"<{total} x {self.item}>"
        order = ", ".join(f"i32 {index}, i32 {total + index}" for index in range(total))
        return self.w.let(f"shufflevector {type_} {even}, {type_} {odd}, <{2 * total} x i32> <{order}>")

    def value_parts(self, address: str) -> list[str]:
        """Return a value's components as items of memory."""
        parts = [self.w.load(address, self.element, part) for part in range(self.count)]
        if self.element.bits == 1:
            return [self.w.let(f"zext {self.w.vector('i1')} {part} to {self.w.vector('i8')}") for part in parts]
        return parts

    def put_value(self, address: str, parts: Sequence[str]) -> None:
        """Write items of memory as a value."""
        for number, part in enumerate(parts):
            if self.element.bits == 1:
                part = self.w.let(f"icmp ne {self.w.vector('i8')} {part}, zeroinitializer")
            self.w.store(address, self.element, number, part)


def _chunks(size: int) -> list[tuple[int, str]]:
    """Return (offset, LLVM type) of the pieces that some bytes are moved in."""
    pieces: list[tuple[int, str]] = []
    at = 0
    for width, type_ in ((16, "<2 x i64>"), (8, "i64"), (4, "i32"), (2, "i16"), (1, "i8")):
        while size - at >= width:
            pieces.append((at, type_))
            at += width
    return pieces


__all__ = ["Mover"]
