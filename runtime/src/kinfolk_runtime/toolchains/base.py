"""What a toolchain is asked and what it answers."""

from __future__ import annotations

from typing import Literal, Protocol

import attrs


@attrs.frozen(kw_only=True)
class CompileJob:
    """One kernel's LLVM IR and the target it is compiled for.

    `options` are LLVM command-line options (`-amdgpu-...`); they are global to a process, so each set of them has
    workers of its own. `assembly` asks for the text as well, which costs a second code generation. `code` says what
    the target's LLVM writes: an object, or text alone.
    """

    kernel: str
    llvm_ir: str = attrs.field(repr=False)
    triple: str
    cpu: str
    features: str = ""
    opt_level: int = 3
    options: tuple[str, ...] = ()
    assembly: bool = False
    code: Literal["object", "assembly"] = "object"

    @property
    def target(self) -> str:
        """The target as a person reads it: `amdgcn-amd-amdhsa gfx942 -O3`."""
        return " ".join(filter(None, (self.triple, self.cpu, self.features, f"-O{self.opt_level}", *self.options)))


@attrs.frozen(kw_only=True)
class Compiled:
    """The relocatable object of one kernel, and its assembly when the job asked for it.

    Where the job's `code` is `assembly`, that text stands for the object, in UTF-8.
    """

    object: bytes = attrs.field(repr=False)
    assembly: str | None = attrs.field(default=None, repr=False)


class Toolchain(Protocol):
    """An LLVM of one generation.

    `build` says exactly which one it is and is part of every artifact's key; `flavors` are the kinds of LLVM IR text
    it takes.
    """

    @property
    def name(self) -> str:
        """Short name, as its entry point has it."""
        ...

    @property
    def build(self) -> str:
        """Exact versions, for example `llvmlite-0.50.0/llvm-22.1.0`."""
        ...

    @property
    def flavors(self) -> tuple[str, ...]:
        """The registered flavors it takes, oldest first; the last is of its own generation or the nearest below."""
        ...

    def compile(self, job: CompileJob) -> Compiled:
        """Compile one kernel; may be called from several threads.

        Raises ToolError with kernel, command and message. A failed job leaves the toolchain usable.
        """
        ...
