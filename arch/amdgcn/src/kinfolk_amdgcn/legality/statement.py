"""One LLVM statement to be measured: `call float @llvm.amdgcn.exp2.f32(float ?)`, with `?` for each value it takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import attrs

from kinfolk.errors import InternalError

PROBE: Final = "probe"
"""The name of the kernel that a statement is measured in."""

TARGET: Final = "llvm.amdgcn."

_VECTOR = re.compile(r"<\d+ x (\w+)>")
_LENGTH = re.compile(r"\.v\d+")
_LANE = "@llvm.amdgcn.workitem.id.x()"
_DECLARE_LOAD = "declare i32 @llvm.amdgcn.raw.ptr.buffer.load.i32(ptr addrspace(8), i32, i32, i32)"
_CALL = re.compile(r"call (.+?) @([\w.]+)\((.*)\)")
_TYPE = r"ptr addrspace\(\d+\)|ptr|<\d+ x \w+>|\w+"
_HOLE = re.compile(rf"({_TYPE}) \?")
_ARGUMENT = re.compile(rf"({_TYPE}) (.+)")
_ATOMIC = re.compile(rf"atomicrmw \w+ .*?, ({_TYPE}) \?")
_CONVERSION = re.compile(r"\w+ .* to (.+)")

Declaration = tuple[str, str, tuple[str, ...]]
"""Result type, function, and operand types."""


@attrs.frozen(order=True, slots=False)
class Statement:
    """A statement as text. Literals in it are operands that choose the instruction, or have to be literals."""

    text: str

    @classmethod
    def of_call(cls, returns: str, function: str, arguments: Sequence[str]) -> Statement:
        """Return the statement of a call as a lowering writes it: names become holes, literals stay."""
        return cls(f"call {returns} @{function}({', '.join(map(_hole, arguments))})")

    @cached_property
    def declaration(self) -> Declaration | None:
        """What a call declares; None for an instruction of LLVM itself."""
        match = _CALL.fullmatch(self.text)
        return match and (match[1], match[2], tuple(type_ for type_, _ in self._arguments(match[3])))

    @cached_property
    def literals(self) -> tuple[str | None, ...]:
        """Per operand of a call its literal, or None for a hole."""
        match = _CALL.fullmatch(self.text)
        values = [value for _, value in self._arguments(match[3])] if match else []
        return tuple(None if value == "?" else value for value in values)

    @cached_property
    def componentwise(self) -> Declaration | None:
        """The declaration without the lengths of vectors, of an intrinsic that is LLVM's own; None of a target's."""
        if self.declaration is None or self.name.startswith(TARGET):
            return None
        returns, function, types = self.declaration
        scalars = [_VECTOR.sub(r"\1", type_) for type_ in (returns, *types)]
        return scalars[0], _LENGTH.sub(".", function), tuple(scalars[1:])

    @cached_property
    def returns(self) -> str:
        """The type of its result, `void` for none."""
        for pattern in (_CALL, _ATOMIC, _CONVERSION):
            if match := pattern.match(self.text):
                return match[1]
        return "void"

    @property
    def name(self) -> str:
        """The function it calls, or the whole text."""
        return self.declaration[1] if self.declaration else self.text

    @property
    def kind(self) -> str:
        """What it has in common with its like: two words after `llvm.amdgcn.`, or the instruction."""
        return ".".join(self.name.split(".")[:4]) if self.declaration else self.text.split()[0]

    def __str__(self) -> str:
        if self.declaration is None:
            return self.text
        chosen = [literal for literal in self.literals if literal not in (None, "0", "false")]
        return f"{self.name}{f' ({chr(44).join(map(str, chosen))})' if chosen else ''}"

    @property
    def takes_data(self) -> bool:
        """Whether one of its holes is a value that lanes may have each of their own: not an address."""
        return any(not type_.startswith("ptr") for type_ in _HOLE.findall(self.text))

    def module(self, *, uniform: bool) -> str:
        """Return the LLVM IR of a kernel that does nothing else.

        Addresses are arguments of the kernel; the other values are too where `uniform`, else each lane loads its own.
        """
        parameters, loads, names = ["ptr addrspace(1) %out"], list[str](), list[str]()
        for index, type_ in enumerate(_HOLE.findall(self.text)):
            names.append(f"%x{index}")
            if uniform or type_.startswith("ptr"):
                parameters.append(f"{type_} %x{index}")
                continue
            parameters.append(f"ptr addrspace(1) %p{index}")
            loads.append(f"%q{index} = getelementptr {type_}, ptr addrspace(1) %p{index}, i32 %lane")
            loads.append(f"%x{index} = load {type_}, ptr addrspace(1) %q{index}")
        holes = iter(names)
        text = _HOLE.sub(lambda hole: f"{hole[1]} {next(holes)}", self.text)
        statement = text if self.returns == "void" else f"%result = {text}"
        lane = f"%lane = call i32 {_LANE}" if loads else ""
        body = [lane, *loads, statement, *_stored(self.returns), "ret void"]
        declares = {f"declare {d[0]} @{d[1]}({', '.join(d[2])})"} if (d := self.declaration) else set[str]()
        declares |= {f"declare i32 {_LANE}"} if loads else set()
        declares |= {_DECLARE_LOAD} if self.returns == "ptr addrspace(8)" else set()
        head = f"define amdgpu_kernel void @{PROBE}({', '.join(parameters)}) #0 {{"
        attributes = 'attributes #0 = { nounwind "amdgpu-flat-work-group-size"="64,64" }'
        lines = [*sorted(declares), head, *(f"  {line}" for line in body if line), "}", attributes, "!0 = !{}", ""]
        return "\n".join(lines)

    def _arguments(self, text: str) -> list[tuple[str, str]]:
        matches = [_ARGUMENT.fullmatch(part) for part in text.split(", ")] if text else []
        if None in matches:
            raise InternalError(f"an operand of {self.text!r} has no type or no value")
        return [(match[1], match[2]) for match in matches if match]


def _hole(argument: str) -> str:
    type_, _, value = argument.rpartition(" ")
    return f"{type_.removesuffix(' immarg')} {'?' if value[:1] in '%@' or value == 'poison' else value}"


def _stored(returns: str) -> list[str]:
    if returns == "void":
        return []
    if returns == "ptr addrspace(8)":
        load = "call i32 @llvm.amdgcn.raw.ptr.buffer.load.i32(ptr addrspace(8) %result, i32 0, i32 0, i32 0)"
        return [f"%loaded = {load}", "store i32 %loaded, ptr addrspace(1) %out"]
    if returns.startswith("{"):  # its two parts are one type
        part = returns.strip("{} ").split(",")[0]
        first, second = (f"%part{index} = extractvalue {returns} %result, {index}" for index in (0, 1))
        return [first, second, f"%sum = sub {part} %part0, %part1", f"store {part} %sum, ptr addrspace(1) %out"]
    return [f"store {returns} %result, ptr addrspace(1) %out"]
