"""Machine code as core sees it: blocks of instructions, each with what it reads, makes, waits for and costs.

An arch that declares a `Machine` can have its compiled kernels inspected; every number in here is the arch's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import attrs
import numpy.typing as npt

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.timing import Constant, LaunchTrace
    from kinfolk.usage import KernelArgument

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


class AccessError(Exception):  # never leaves an executor: it becomes a fault of the kernel
    """Some addresses of an access hold nothing: `wrong` says which, `why` what is missing."""

    def __init__(
        self, kind: Literal["memory", "uninitialised", "alignment"], why: str, wrong: npt.NDArray[Any]
    ) -> None:
        super().__init__(why)
        self.kind: Literal["memory", "uninitialised", "alignment"] = kind
        self.why = why
        self.wrong = wrong


class MachineMemory(Protocol):
    """Memory by address, as running machine code reaches it.

    `unit` is 1, 2 or 4 bytes, values are unsigned integers of it, addresses (uint64) need not be multiples of it. Both
    raise AccessError for bytes outside of every allocation, and for reads of those that nothing has written.
    """

    def read(self, addresses: npt.NDArray[Any], unit: int) -> npt.NDArray[Any]:
        """Return the units at addresses, in their shape."""
        ...

    def write(self, addresses: npt.NDArray[Any], values: npt.NDArray[Any]) -> None:
        """Write units, one after the other where addresses are equal."""
        ...


@attrs.frozen(kw_only=True)
class LaunchShape:
    """How many workgroups a launch has along each axis, and how many items a workgroup has.

    `dynamic_bytes` of workgroup memory come after what the kernel declares itself.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_bytes: int = 0


@attrs.frozen(kw_only=True)
class EntryPoint:
    """What a kernel says to whoever launches it.

    `arguments` are the declared ones in order. A workgroup has at most `largest_block` items, and `required_block` of
    them along each axis where that is not empty. `local_bytes` are those of workgroup memory that it declares itself.
    """

    symbol: str
    arguments: tuple[KernelArgument, ...]
    largest_block: int
    required_block: tuple[int, ...] = ()
    local_bytes: int = 0


@attrs.frozen(kw_only=True)
class Executed:
    """What a launch of machine code ran: instructions of waves by name, those that work on lanes, matrix products.

    `read_bytes` and `written_bytes` are what lanes asked memory for, whatever caches had of it. `trace` is there where
    it was asked for: what a model of time can be asked about.
    """

    symbol: str = ""
    instructions: int
    lane_operations: int
    products: int
    seconds: float
    by_name: Mapping[str, int]
    read_bytes: int = 0
    written_bytes: int = 0
    trace: LaunchTrace | None = attrs.field(default=None, repr=False)


class Executable(Protocol):
    """A kernel of a code object that can be run on this host."""

    @property
    def entry(self) -> EntryPoint:
        """What it says of its arguments and workgroups."""
        ...

    @property
    def unmodelled(self) -> tuple[str, ...]:
        """Instructions of it that are not modelled; a wave that comes to one stops."""
        ...

    def argument_block(self, shape: LaunchShape) -> bytes:
        """Return the bytes that a launch passes, with zeros where the declared arguments go."""
        ...

    def image(self, base: int) -> bytes:
        """Return the bytes of its code object where that is loaded at an address: code may read constants there."""
        ...

    def run(
        self, shape: LaunchShape, arguments: int, image: int, memory: MachineMemory, *, traced: bool = False
    ) -> Executed:
        """Run every workgroup on the argument block and the image of the code object at their addresses.

        `traced` keeps what waves issue, in order, where the arch has a model of time.
        Raises a SimulationError for the first instruction that breaks a rule of the machine.
        """
        ...


@attrs.frozen(kw_only=True)
class Machine:
    """How machine code of an arch is read.

    `target(data)` returns the processor that assembly text or a code object is for, None for a file of another kind.
    `read(data, disassembly, given, arch)` returns its kernels: of assembly text, whose disassembly is None, or of an
    object with what `llvm-objdump -d` says of it. `given` are figures that stand in place of those in the file.
    `spare_registers(figures, arch)` returns how many more registers a wave could take before fewer waves fit.
    `load(object, symbol, arch)` returns a kernel of a code object that can be run, its only one where the symbol is
    None; it is None itself where that is not declared. `time_constants(arch)` is what its model of time counts with,
    nothing where the arch does not declare what that takes.
    Its scheduling model in LLVM counts `clocks_per_cycle` clocks as one cycle; a wave is on one of `simds` units.
    """

    triple: str
    simds: int
    clocks_per_cycle: int
    target: Callable[[bytes], str | None]
    read: Callable[[bytes, str | None, Mapping[str, int], Arch], tuple[MachineFunction, ...]]
    spare_registers: Callable[[Mapping[str, int], Arch], int]
    load: Callable[[bytes, str | None, Arch], Executable] | None = None
    time_constants: Callable[[Arch], tuple[Constant, ...]] | None = None
