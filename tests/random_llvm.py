"""Random functions in LLVM IR without undefined behaviour, the same for any target: integers, floats, flow, an array.

A function takes `in` (64 i32), `out` (8 i32 of one item), its item's number `t` and a number `n` that all items share.
NaNs get one payload before their bits are looked at, and minima and maxima of zeros one sign: targets may differ there.
"""

from __future__ import annotations

import random
from typing import Final

INTEGERS: Final = ("i16", "i32", "i32", "i32", "i64")
FLOATS: Final = ("float", "float", "double")
NAN: Final = "0x7FF8000000000000"
BITS: Final = {"float": "i32", "double": "i64"}
COUNTS: Final = ("ctpop", "bitreverse", "bswap")
OF_TWO: Final = ("smin", "smax", "umin", "umax", "uadd.sat", "ssub.sat")
ROUNDED: Final = ("floor", "ceil", "trunc", "rint", "fabs", "sqrt")
ARRAY: Final = 16
"""Elements of the array of i32 that each item has in private memory."""


class Program:
    """A random function, drawn from a seed; `text` is its body, `declarations` what it calls."""

    def __init__(self, seed: int, length: int) -> None:
        self._draw = random.Random(seed)
        self._lines: list[str] = []
        self._entry: list[str] = []
        self._values: list[tuple[str, str]] = [("i32", "%t"), ("i32", "%n")]
        self._named = 0
        self._exits: list[str] = []
        self._declared: set[str] = set()
        for _ in range(4):
            self._read("%in", 64)
        for _ in range(length):
            self._statement(0)
        for place in range(8):
            self._lines.append(f"  %o{place} = getelementptr i32, ptr addrspace(1) %out, i32 {place}")
            mixed = self._add("i32", f"xor i32 {self._value('i32')}, {self._value('i32')}")
            self._lines.append(f"  store i32 {self._add('i32', f'add i32 {mixed}, %t')}, ptr addrspace(1) %o{place}")

    @property
    def text(self) -> str:
        """Its body; private memory is in address space 5."""
        return "\n".join(self._entry + self._lines) + "\n  ret void\n}\n" + "\n".join(sorted(self._declared))

    def _name(self) -> str:
        self._named += 1
        return f"%v{self._named}"

    def _add(self, type_: str, what: str) -> str:
        name = self._name()
        self._lines.append(f"  {name} = {what}")
        self._values.append((type_, name))
        return name

    def _value(self, type_: str) -> str:
        known = [name for each, name in self._values if each == type_]
        if known and self._draw.random() < 0.9:
            return self._draw.choice(known[-6:] if self._draw.random() < 0.5 else known)
        if type_ == "i1":
            condition = self._draw.choice(("eq", "ult", "sgt", "ne"))
            return self._add("i1", f"icmp {condition} i32 {self._value('i32')}, {self._constant()}")
        if type_ == "i32":
            return self._constant()
        if type_ in FLOATS:
            return self._add(type_, f"sitofp i32 {self._value('i32')} to {type_}")
        return self._add(type_, f"{'trunc' if type_ == 'i16' else 'sext'} i32 {self._value('i32')} to {type_}")

    def _constant(self) -> str:
        return str(self._draw.choice((0, 1, -1, 3, 7, 31, 255, 65536, 2147483647, self._draw.randrange(-999, 999))))

    def _call(self, type_: str, name: str, *operands: str) -> str:
        mangled = f"@llvm.{name}.{ {'float': 'f32', 'double': 'f64'}.get(type_, type_) }"
        self._declared.add(f"declare {type_} {mangled}({', '.join([type_] * len(operands))})")
        return self._add(type_, f"call {type_} {mangled}({', '.join(f'{type_} {each}' for each in operands)})")

    def _statement(self, depth: int) -> None:
        chance = self._draw.random()
        if chance < 0.1 and depth < 3:
            self._branch(depth)
        elif chance < 0.16 and depth < 2:
            self._loop(depth)
        elif chance < 0.24 and self._exits:
            after = self._label()
            self._lines += [f"  br i1 {self._value('i1')}, label %{self._exits[-1]}, label %{after}", f"{after}:"]
        elif chance < 0.34:
            self._touch()
        elif chance < 0.6:
            self._float(self._draw.choice(FLOATS))
        else:
            self._integer(self._draw.choice(INTEGERS))

    def _integer(self, type_: str) -> None:
        bits, one, two = int(type_[1:]), self._value(type_), self._value(type_)
        kind = self._draw.randrange(7)
        if kind < 2:
            self._add(type_, f"{self._draw.choice(('add', 'sub', 'mul', 'and', 'or', 'xor'))} {type_} {one}, {two}")
        elif kind == 2:
            count = self._add(type_, f"and {type_} {two}, {bits - 1}")
            self._add(type_, f"{self._draw.choice(('shl', 'lshr', 'ashr'))} {type_} {one}, {count}")
        elif kind == 3:
            divisor = self._add(type_, f"or {type_} {two}, 1")
            positive = self._add(type_, f"and {type_} {divisor}, {(1 << bits - 1) - 1}")
            self._add(type_, f"{self._draw.choice(('udiv', 'urem', 'sdiv', 'srem'))} {type_} {one}, {positive}")
        elif kind == 4:
            self._call(type_, self._draw.choice(COUNTS), one)
        elif kind == 5:
            self._call(type_, self._draw.choice(OF_TWO), one, two)
        else:
            self._add(type_, f"select i1 {self._value('i1')}, {type_} {one}, {type_} {two}")

    def _float(self, type_: str) -> None:
        one, two = self._value(type_), self._value(type_)
        kind = self._draw.randrange(7)
        if kind < 2:
            self._add(type_, f"{self._draw.choice(('fadd', 'fsub', 'fmul', 'fdiv'))} {type_} {one}, {two}")
        elif kind == 2:
            self._call(type_, self._draw.choice(ROUNDED), one)
        elif kind == 3:
            self._call(type_, "fma", one, two, self._value(type_))
        elif kind == 4:
            lesser = self._call(type_, self._draw.choice(("minnum", "maxnum")), one, two)
            self._values.pop()
            self._add(type_, f"fadd {type_} {lesser}, 0.0")
        elif kind == 5:
            condition = self._draw.choice(("olt", "oeq", "uge", "une", "uno"))
            self._add("i1", f"fcmp {condition} {type_} {one}, {two}")
        else:
            odd = self._add("i1", f"fcmp uno {type_} {one}, {one}")
            plain = self._add(type_, f"select i1 {odd}, {type_} {NAN}, {type_} {one}")
            self._add(BITS[type_], f"bitcast {type_} {plain} to {BITS[type_]}")

    def _read(self, base: str, count: int, space: int = 1) -> None:
        place = self._add("i32", f"and i32 {self._value('i32')}, {count - 1}")
        pointer = self._name()
        self._lines.append(f"  {pointer} = getelementptr i32, ptr addrspace({space}) {base}, i32 {place}")
        self._add("i32", f"load i32, ptr addrspace({space}) {pointer}")

    def _touch(self) -> None:
        """Read from the input, or write an element of the item's own array and read another."""
        if self._draw.random() < 0.4:
            return self._read("%in", 64)
        place, pointer = self._add("i32", f"and i32 {self._value('i32')}, {ARRAY - 1}"), self._name()
        self._lines.append(f"  {pointer} = getelementptr i32, ptr addrspace(5) %array, i32 {place}")
        self._lines.append(f"  store i32 {self._value('i32')}, ptr addrspace(5) {pointer}")
        return self._read("%array", ARRAY, 5)

    def _label(self) -> str:
        self._named += 1
        return f"b{self._named}"

    def _block(self, depth: int, ends: str) -> None:
        known = list(self._values)
        for _ in range(self._draw.randrange(2, 7)):
            self._statement(depth + 1)
        self._touch()
        self._values = known
        self._lines.append(f"  br label %{ends}")

    def _branch(self, depth: int) -> None:
        first, second, after = self._label(), self._label(), self._label()
        self._lines += [f"  br i1 {self._value('i1')}, label %{first}, label %{second}", f"{first}:"]
        self._block(depth, after)
        self._lines.append(f"{second}:")
        self._block(depth, after)
        self._lines.append(f"{after}:")

    def _loop(self, depth: int) -> None:
        """Add a loop of up to 7 rounds, by item; what is in it may leave it."""
        head, body, rest, after = (self._label() for _ in range(4))
        most = self._add("i32", f"and i32 {self._value('i32')}, 7")
        held = self._name()
        self._entry.append(f"  {held} = alloca i32, addrspace(5)")
        self._lines += [f"  store i32 0, ptr addrspace(5) {held}", f"  br label %{head}", f"{head}:"]
        known = list(self._values)
        number = self._add("i32", f"load i32, ptr addrspace(5) {held}")
        more = self._add("i1", f"icmp ult i32 {number}, {most}")
        self._lines += [f"  br i1 {more}, label %{body}, label %{after}", f"{body}:"]
        self._exits.append(after)
        self._block(depth, rest)
        self._exits.pop()
        self._lines.append(f"{rest}:")
        following = self._add("i32", f"add i32 {number}, 1")
        self._lines += [f"  store i32 {following}, ptr addrspace(5) {held}", f"  br label %{head}", f"{after}:"]
        self._values = known
