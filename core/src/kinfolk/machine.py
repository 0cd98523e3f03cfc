"""Machine code as core sees it: blocks of instructions, each with what it reads, makes, waits for and costs.

An arch that declares a `Machine` can have its compiled kernels inspected; every number in here is the arch's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

import attrs

if TYPE_CHECKING:
    from kinfolk.arch import Arch

MachineClass = Literal[
    "matrix",
    "vector",
    "transcendental",
    "accumulator_move",
    "workgroup_memory",
    "global_memory",
    "scratch_memory",
    "scalar_memory",
    "scalar",
    "wait",
    "barrier",
    "branch",
    "none",
]
"""What an instruction occupies. A wait holds the wave back until accesses in flight are done."""
CostModel = Literal["llvm", "real"]
COST_MODELS: Final[Mapping[CostModel, str]] = MappingProxyType(
    {
        "llvm": "the latencies of LLVM's own scheduling model, which llvm-mca counts with",
        "real": "assumed latencies nearer to a machine with memory under load, and one workgroup memory for all waves",
    }
)
"""The models in which an instruction has a cost, and what each stands for."""


@attrs.frozen
class Cost:
    """Clocks of one instruction in one model.

    The wave's next instruction issues `issue` clocks later, what it makes can be read `result` clocks later, and it
    holds the compute unit's workgroup memory for `shared` clocks, after all that hold it already.
    """

    issue: float
    result: float
    shared: float = 0.0


@attrs.frozen(kw_only=True)
class Instruction:
    """One machine instruction.

    `reads`, `adds_to` and `writes` name registers; what a matrix instruction finds in `adds_to` may still be
    `forward` clocks away if a matrix instruction makes it. It holds the matrix unit for `matrix_clocks`. An access
    joins `queue`, in which accesses end in order; a wait names per queue how many may stay in flight. Lanes move
    `bytes` each, `direction` says which way. One without `costs` takes no part in estimates.
    """

    text: str
    issue: MachineClass
    reads: frozenset[str] = frozenset()
    adds_to: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    matrix_clocks: float = 0.0
    forward: float = 0.0
    queue: str = ""
    waits: Mapping[str, int] = attrs.field(factory=dict[str, int])
    bytes: int = 0
    direction: Literal["", "read", "write"] = ""
    costs: Mapping[CostModel, Cost] = attrs.field(factory=dict["CostModel", Cost])

    @property
    def drains(self) -> bool:
        """Whether it waits until nothing is in flight in some queue."""
        return 0 in self.waits.values()


@attrs.frozen(kw_only=True)
class Block:
    """Instructions that run one after the other; only the last may jump.

    `label` is how the code names it, `source` the block of the LLVM IR that it came from where the text says so.
    `successors` are indices of blocks of the same function.
    """

    label: str
    source: str = ""
    instructions: tuple[Instruction, ...]
    successors: tuple[int, ...]


@attrs.frozen(kw_only=True)
class MachineFunction:
    """One kernel: its blocks in the order of the code, the first is entered, and its figures as `Usage` names them."""

    symbol: str
    target: str
    blocks: tuple[Block, ...]
    figures: Mapping[str, int] = attrs.field(factory=dict[str, int])


@attrs.frozen(kw_only=True)
class Machine:
    """How machine code of an arch is read.

    `target(data)` returns the processor that assembly text or a code object is for, None for a file of another kind.
    `read(data, disassembly, given, arch)` returns its kernels: of assembly text, whose disassembly is None, or of an
    object with what `llvm-objdump -d` says of it. `given` are figures that stand in place of those in the file.
    `spare_registers(figures, arch)` returns how many more registers a wave could take before fewer waves fit.
    Its scheduling model in LLVM counts `clocks_per_cycle` clocks as one cycle; a wave is on one of `simds` units.
    """

    triple: str
    simds: int
    clocks_per_cycle: int
    target: Callable[[bytes], str | None]
    read: Callable[[bytes, str | None, Mapping[str, int], Arch], tuple[MachineFunction, ...]]
    spare_registers: Callable[[Mapping[str, int], Arch], int]
