"""One kernel as one LLVM function: names, blocks, declarations, metadata. Each op's lowering writes its code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from kinfolk.errors import IllegalOp, InternalError
from kinfolk.ir.op import BySelectedTarget, LlvmWriter, LowerToLlvm
from kinfolk.ir.types import BufferType, PointerType, ScalarType, Type, VectorType, ViewType
from kinfolk.ir.value import Kernel, Operation, Region, Value

_COLD = '!8 = !{!"branch_weights", i32 1, i32 1000}'
COLD_BLOCK: Final = "cold"
"""What the names of rarely taken blocks begin with; compilers keep them in the comments of their assembly."""
_ENTRY = "entry.0"  # names made up here have a dot, which those of parameters never have
_SCALARS = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double"}


@attrs.frozen(kw_only=True)
class Target:
    """How a target words what LLVM has no portable word for.

    `lowerings` gives, per op name, how it is lowered here: the portable ops whose lowering is the target's, by name.
    `spaces` are LLVM's address space numbers for `global`, `workgroup` and, where a view is a pointer, `view`;
    elsewhere `view` is LLVM's type of one. `convention` is the calling convention of kernels.
    """

    triple: str
    data_layout: str
    convention: str
    spaces: Mapping[str, int]
    lowerings: Mapping[str, LowerToLlvm]
    view: str = ""


class FunctionWriter:
    """Writes the body of one kernel. It is the `LlvmWriter` that ops lower themselves into."""

    def __init__(self, kernel: Kernel, target: Target, llvm: int) -> None:
        self.kernel = kernel
        self.target = target
        self._llvm = llvm
        self._lines: list[str] = []
        self._names: dict[Value, str] = {}
        self._declarations: dict[str, str] = {}
        self._globals: list[str] = []
        self._fresh = 0
        self._label = 0
        self.block = _ENTRY
        self._scopes = _alias_scopes(kernel)

    @property
    def llvm(self) -> int:
        """The LLVM generation whose IR is written."""
        return self._llvm

    def type(self, type_: Type) -> str:
        """Return LLVM's word for a type; 8-bit floats are kept as i8."""
        match type_:
            case ScalarType():
                return _SCALARS.get(type_.name, f"i{type_.bits}")
            case VectorType():
                return f"<{type_.count} x {self.type(type_.element)}>"
            case PointerType():
                return f"ptr addrspace({self.target.spaces[type_.space]})"
            case ViewType():
                return self.target.view or f"ptr addrspace({self.target.spaces['view']})"
            case BufferType():
                return f"ptr addrspace({self.target.spaces['workgroup']})"

    def name(self, value: Value) -> str:
        """Return the LLVM operand of a value written before."""
        if value not in self._names:
            owner = value.defining_op
            raise InternalError(f"a value of {owner.name if owner else 'a region'} is lowered before it is defined")
        return self._names[value]

    def typed(self, value: Value) -> str:
        """Return the LLVM operand with its type."""
        return f"{self.type(value.type)} {self.name(value)}"

    def fresh(self, text: str) -> str:
        """Write `%new = text` and return the new name."""
        name = self.new_name()
        self._lines.append(f"  {name} = {text}")
        return name

    def new_name(self) -> str:
        """Return a local name nothing has yet."""
        self._fresh += 1
        return f"%v.{self._fresh}"

    def define(self, value: Value, text: str) -> None:
        """Write `%value = text`."""
        self._names[value] = self.fresh(text)

    def alias(self, value: Value, name: str) -> None:
        """Let `value` be known by a name or literal that exists already."""
        self._names[value] = name

    def emit(self, text: str) -> None:
        """Write an instruction without a result."""
        self._lines.append(f"  {text}")

    def call(self, returns: str, function: str, *arguments: str, flags: str = "", attributes: str = "") -> str:
        """Write a call of `@function`, declare it, and return the name of its result ("" for void)."""
        types = ", ".join(_declared(argument) for argument in arguments)
        self._declarations[function] = f"declare {returns} @{function}({types})"
        text = f"call {flags + ' ' if flags else ''}{returns} @{function}({', '.join(arguments)}){attributes}"
        if returns == "void":
            self.emit(text)
            return ""
        return self.fresh(text)

    def global_memory(self, text: str) -> None:
        """Add a global definition to the module."""
        self._globals.append(text)

    def global_count(self) -> int:
        """How many globals there are so far."""
        return len(self._globals)

    def new_label(self, hint: str) -> str:
        """Return a block label nothing has yet."""
        self._label += 1
        return f"{hint}.{self._label}"

    def start_block(self, label: str) -> None:
        """Begin a block; what is written next belongs to it."""
        self._lines.append(f"{label}:")
        self.block = label

    def reserve(self) -> int:
        """Keep a line to be filled in later, such as a phi whose inputs are not known yet."""
        self._lines.append("")
        return len(self._lines) - 1

    def fill(self, line: int, text: str) -> None:
        """Fill a reserved line."""
        self._lines[line] = f"  {text}"

    def kind_of_memory(self, op: Operation) -> str:
        """Return the alias-scope metadata of a memory op, or ""."""
        return self._scopes.suffix(str(op.attributes.get("scope", "")))

    def region(self, region: Region) -> None:
        """Write the operations of a region where the function stands."""
        for operation in region.operations:
            lowering = self.target.lowerings.get(operation.name, operation.definition.lowering)
            if isinstance(lowering, BySelectedTarget):
                raise IllegalOp(
                    f"{operation.name}: target {self.target.triple} has no lowering for it (at {operation.location})"
                )
            lowering(self, operation)

    def module(self, parameters: Sequence[str], attributes: str, metadata: Sequence[str] = ()) -> str:
        """Return the whole module: `parameters` in LLVM's words, the body written by `region`, attributes, metadata."""
        head = [f'target datalayout = "{self.target.data_layout}"', f'target triple = "{self.target.triple}"', ""]
        define = f"define {self.target.convention} void @{self.kernel.name}({', '.join(parameters)}) #0 {{"
        tail = [
            "}",
            "",
            *sorted(self._declarations.values()),
            "",
            f"attributes #0 = {{ {attributes} }}",
            "",
            "!0 = !{}",
            _COLD,
        ]
        body = [define, f"{_ENTRY}:", *self._lines, *tail]
        return "\n".join([*head, *self._globals, "", *body, *self._scopes.metadata(), *metadata, ""])

    def name_parameters(self) -> None:
        """Name the kernel's parameters as declared."""
        for parameter, argument in zip(self.kernel.parameters, self.kernel.body.arguments, strict=True):
            self._names[argument] = f"%{parameter.name}"


def lower_function(kernel: Kernel, target: Target, llvm: int) -> FunctionWriter:
    """Write the kernel's body for `target` and return the writer that holds it."""
    writer = FunctionWriter(kernel, target, llvm)
    writer.name_parameters()
    writer.region(kernel.body)
    return writer


def _declared(argument: str) -> str:
    """Return the type an argument is declared with: `i32 immarg 4` and `i32 4` are both i32."""
    if argument.startswith("<"):
        return argument[: argument.index(">") + 1]
    return argument.rsplit(" ", 1)[0]


@attrs.define
class _AliasScopes:
    names: tuple[str, ...]

    def suffix(self, scope: str) -> str:
        if not scope:
            return ""
        return f", !alias.scope !{self._list(scope)}, !noalias !{self._others(scope)}"

    def _list(self, scope: str) -> int:
        return 20 + self.names.index(scope)

    def _others(self, scope: str) -> int:
        return 40 + self.names.index(scope)

    def metadata(self) -> list[str]:
        if not self.names:
            return []
        lines = ['!9 = distinct !{!9, !"memory"}']
        for index, name in enumerate(self.names):
            lines.append(f'!{10 + index} = distinct !{{!{10 + index}, !9, !"{name}"}}')
            lines.append(f"!{20 + index} = !{{!{10 + index}}}")
            others = ", ".join(f"!{10 + other}" for other in range(len(self.names)) if other != index)
            lines.append(f"!{40 + index} = !{{{others}}}")
        return lines


def _alias_scopes(kernel: Kernel) -> _AliasScopes:
    names = {str(op.attributes["scope"]) for op in kernel.walk() if op.attributes.get("scope")}
    if len(names) > 10:
        raise InternalError(f"{kernel.name} has {len(names)} alias scopes, 10 are provided for")
    return _AliasScopes(tuple(sorted(names)))


def lower_for(w: LlvmWriter, op: Operation) -> None:
    """Write a loop with its test at the end, behind a test that there is a first round.

    A test at the head would be pulled apart by targets that structure control flow, at the cost of a copy per carried
    value.
    """
    assert isinstance(w, FunctionWriter)
    lower, upper, step, *carried = op.operands
    (region,) = op.regions
    body, done = w.new_label("loop"), w.new_label("done")
    before = w.block
    firsts = [w.name(lower), *(w.name(value) for value in carried)]
    enters = w.fresh(f"icmp slt {w.typed(lower)}, {w.name(upper)}")
    w.emit(f"br i1 {enters}, label %{body}, label %{done}")
    w.start_block(body)
    phis = [(argument, w.new_name(), w.reserve()) for argument in region.arguments]
    for argument, name, _ in phis:
        w.alias(argument, name)
    w.region(region)
    following = w.fresh(f"add nsw {w.typed(region.arguments[0])}, {w.name(step)}")
    repeats = w.fresh(f"icmp slt {w.type(lower.type)} {following}, {w.name(upper)}")
    latch = w.block
    w.emit(f"br i1 {repeats}, label %{body}, label %{done}")
    nexts = [following, *(w.name(value) for value in region.operations[-1].operands)]
    for (argument, name, line), first, after in zip(phis, firsts, nexts, strict=True):
        w.fill(line, f"{name} = phi {w.type(argument.type)} [ {first}, %{before} ], [ {after}, %{latch} ]")
    w.start_block(done)
    for result, first, after in zip(op.results, firsts[1:], nexts[1:], strict=True):
        w.define(result, f"phi {w.type(result.type)} [ {first}, %{before} ], [ {after}, %{latch} ]")


def lower_if(w: LlvmWriter, op: Operation) -> None:
    """Write a branch: then, otherwise where it does something, and phis for the results."""
    assert isinstance(w, FunctionWriter)
    (condition,) = op.operands
    then, otherwise = op.regions
    has_otherwise = len(otherwise.operations) > 1
    entered, weights = (COLD_BLOCK, ", !prof !8") if op.attributes["cold"] else ("then", "")
    labels = [w.new_label(entered), w.new_label("else") if has_otherwise else "", w.new_label("join")]
    before = w.block
    w.emit(f"br {w.typed(condition)}, label %{labels[0]}, label %{labels[1] or labels[2]}{weights}")
    incoming: list[tuple[str, list[str]]] = []
    for region, label in ((then, labels[0]), (otherwise, labels[1])):
        source = before
        if label:
            w.start_block(label)
            w.region(region)
            source = w.block
            w.emit(f"br label %{labels[2]}")
        else:
            w.region(region)
        incoming.append((source, [w.name(value) for value in region.operations[-1].operands]))
    w.start_block(labels[2])
    for index, result in enumerate(op.results):
        inputs = ", ".join(f"[ {names[index]}, %{source} ]" for source, names in incoming)
        w.define(result, f"phi {w.type(result.type)} {inputs}")
