"""The LLVM text of one op's function: it reads its operands' offsets from the code, and goes on to the next op."""

from __future__ import annotations

import hashlib

import attrs

from kinfolk.ir.types import ScalarType
from kinfolk_runtime.simulator.fast.layout import (
    EXEC,
    FAULTED,
    PC,
    STATUS,
    WAVE,
    WORD,
    component_bytes,
)

NAME = "@THIS"


@attrs.frozen
class OpText:
    """A finished function: `name` is made from its content, `words` are those that one execution takes of the code."""

    name: str
    text: str
    declarations: frozenset[str]
    words: int


class OpWriter:
    """Writes one function `void (ptr %c, ptr %r, ptr %i)`: context, frame of the wave, place in the code."""

    def __init__(self, wave_size: int) -> None:
        self.wave = wave_size
        self.lines: list[str] = []
        self.declarations: set[str] = set()
        self.words = 1
        self._names = 0
        self._exec: str | None = None
        self.faults = False
        self.ended = False

    # Instructions.

    def let(self, text: str) -> str:
        """Write an instruction and return its result's name."""
        self._names += 1
        name = f"%v{self._names}"
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """Write an instruction without a result."""
        self.lines.append(f"  {text}")

    def declare(self, text: str) -> None:
        """Declare a function, once."""
        self.declarations.add(text)

    def fresh(self, stem: str) -> str:
        """Return a label that is not in use."""
        self._names += 1
        return f"{stem}{self._names}"

    def label(self, name: str) -> None:
        """Begin a block; the one before must have ended."""
        self.lines.append(f"{name}:")

    def branch(self, condition: str, then: str, otherwise: str) -> None:
        """End the block by a condition."""
        self.do(f"br i1 {condition}, label %{then}, label %{otherwise}")

    def jump(self, to: str) -> None:
        """End the block."""
        self.do(f"br label %{to}")

    # Words of the code, the context, and vectors.

    def word(self) -> str:
        """Return the next word of the code."""
        address = self.let(f"getelementptr i64, ptr %i, i64 {self.words}")
        self.words += 1
        return self.let(f"load i64, ptr {address}")

    def slot(self) -> str:
        """Return the address of the value whose frame offset is the next word."""
        return self.let(f"getelementptr i8, ptr %r, i64 {self.word()}")

    def at(self, address: str, offset: int) -> str:
        """Return an address some bytes further."""
        return address if offset == 0 else self.let(f"getelementptr i8, ptr {address}, i64 {offset}")

    def field(self, record: str, word: int, type_: str = "i64") -> str:
        """Return a word of a record."""
        return self.let(f"load {type_}, ptr {self.at(record, WORD * word)}")

    def set_field(self, record: str, word: int, value: str, type_: str = "i64") -> None:
        """Write a word of a record."""
        self.do(f"store {type_} {value}, ptr {self.at(record, WORD * word)}")

    def exec(self) -> str:
        """Return the mask of active lanes as i64; read once."""
        if self._exec is None:
            self._exec = self.field("%c", EXEC)
        return self._exec

    @property
    def full(self) -> int:
        """The mask of all lanes as a signed i64."""
        return -1 if self.wave == 64 else (1 << self.wave) - 1

    def vector(self, element: str) -> str:
        """Return a vector type over the lanes."""
        return f"<{self.wave} x {element}>"

    def splat(self, value: str, element: str) -> str:
        """Return a scalar on every lane."""
        type_ = self.vector(element)
        seed = self.let(f"insertelement {type_} poison, {element} {value}, i32 0")
        return self.let(f"shufflevector {type_} {seed}, {type_} poison, {self.vector('i32')} zeroinitializer")

    def lanes_of(self, mask: str) -> str:
        """Return a mask as one i1 per lane."""
        if self.wave == 64:
            return self.let(f"bitcast i64 {mask} to <64 x i1>")
        narrow = self.let(f"trunc i64 {mask} to i{self.wave}")
        return self.let(f"bitcast i{self.wave} {narrow} to {self.vector('i1')}")

    def mask_of(self, lanes: str) -> str:
        """Return one i1 per lane as a mask in i64."""
        if self.wave == 64:
            return self.let(f"bitcast <64 x i1> {lanes} to i64")
        narrow = self.let(f"bitcast {self.vector('i1')} {lanes} to i{self.wave}")
        return self.let(f"zext i{self.wave} {narrow} to i64")

    def ascending(self, element: str, step: int = 1) -> str:
        """Return the constant 0, step, 2 step, ... by lane."""
        return "<" + ", ".join(f"{element} {step * lane}" for lane in range(self.wave)) + ">"

    # Components of values.

    def load(self, address: str, type_: ScalarType, component: int) -> str:
        """Return one component of a value on all lanes."""
        from kinfolk.ir.llvm_lanes import storage_type

        where = self.at(address, component * component_bytes(type_, self.wave))
        if type_.bits == 1:
            return self.lanes_of(self.let(f"load i64, ptr {where}"))
        return self.let(f"load {self.vector(storage_type(type_))}, ptr {where}, align {self._alignment(type_)}")

    def store(self, address: str, type_: ScalarType, component: int, value: str) -> None:
        """Write one component of a value on all lanes."""
        from kinfolk.ir.llvm_lanes import storage_type

        where = self.at(address, component * component_bytes(type_, self.wave))
        if type_.bits == 1:
            self.do(f"store i64 {self.mask_of(value)}, ptr {where}")
        else:
            vector = self.vector(storage_type(type_))
            self.do(f"store {vector} {value}, ptr {where}, align {self._alignment(type_)}")

    def _alignment(self, type_: ScalarType) -> int:
        return min(64, component_bytes(type_, self.wave))

    # Ends.

    def fault_unless_clear(self, mask: str) -> None:
        """Go on where an i64 is 0; otherwise the op has failed."""
        self.fault_if(self.let(f"icmp ne i64 {mask}, 0"))

    def fault_if(self, condition: str) -> None:
        """The op fails on a condition."""
        self.faults = True
        after = self.fresh("fine")
        self.do(f"br i1 {condition}, label %fault, label %{after}, !prof !0")
        self.label(after)

    def first_lane(self) -> str:
        """Return the number of the first active lane as i64."""
        self.declare("declare i64 @llvm.cttz.i64(i64, i1)")
        return self.let(f"call i64 @llvm.cttz.i64(i64 {self.exec()}, i1 true)")

    def go_on(self) -> None:
        """Run the op that follows."""
        self.go_to(self.let(f"getelementptr i64, ptr %i, i64 {self.words}"))

    def go_by(self, words: str) -> None:
        """Run the op some words further."""
        self.go_to(self.let(f"getelementptr i64, ptr %i, i64 {words}"))

    def go_to(self, place: str) -> None:
        """Run the op at a place in the code."""
        function = self.let(f"load ptr, ptr {place}")
        self.do(f"musttail call void {function}(ptr %c, ptr %r, ptr {place})")
        self.do("ret void")
        self.ended = True

    def leave(self, status: int, place: str) -> None:
        """Return to who runs the waves; the wave goes on at `place`, if at all."""
        self.set_field("%c", STATUS, str(status))
        self.set_field("%c", PC, place, "ptr")
        self.do("ret void")
        self.ended = True

    def finish(self) -> OpText:
        """Return the function; it goes on to the next op unless an end was written."""
        if not self.ended:
            self.go_on()
        if self.faults:
            self.label("fault")
            self.leave(FAULTED, "%i")
        body = "\n".join(self.lines)
        text = f"define void {NAME}(ptr %c, ptr %r, ptr %i) {{\n{body}\n}}\n"
        digest = hashlib.sha256(text.encode()).hexdigest()[:20]
        return OpText(f"op_{digest}", text, frozenset(self.declarations), self.words)


__all__ = ["NAME", "WAVE", "OpText", "OpWriter"]
