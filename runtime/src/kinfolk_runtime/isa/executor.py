"""The executor that runs compiled kernels: their machine code, not their IR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kinfolk.errors import BindError
from kinfolk_runtime.isa.memory import LaunchMemory

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.machine import Executable, Executed
    from kinfolk.parameters import Parameter
    from kinfolk_runtime.executor import Work


class MachineExecutor:
    """Runs code objects of any arch that says how its machine code is run (`kinfolk.machine.Machine.load`).

    The first instruction that breaks a rule of the machine raises a SimulationError. `executed` has what each launch
    ran, oldest first. Translated kernels are kept as long as the executor.
    """

    name = "isa"
    target: str | None = None
    takes_sparse = True
    marks_writes = True

    def __init__(self, seed: int = 0) -> None:
        """`seed` draws where buffers lie."""
        self._seed = seed
        self._kernels: dict[tuple[str, str, str], Executable] = {}
        self.executed: list[Executed] = []

    @property
    def notes(self) -> tuple[str, ...]:
        """What ran, and how fast: vector instructions times their lanes, and products of matrix instructions."""
        seconds = sum(each.seconds for each in self.executed)
        if not seconds:
            return ()
        lanes, products = (sum(counts) for counts in zip(*map(_operations, self.executed), strict=True))
        return (
            f"launches of machine code: {len(self.executed)}, in {seconds:.3g} s. A second had "
            f"{lanes / seconds / 1e6:.3g} million lane operations and {products / seconds / 1e6:.3g} million products "
            f"of matrix instructions; in all there were {lanes / 1e6:.3g} and {products / 1e6:.3g} million",
        )

    def run(self, work: Work) -> None:
        """Run one launch of a bound plan."""
        compiled = work.compiled
        if compiled is None:
            raise BindError(
                f"{work.kernel.name} is bound from a plan, which has no machine code to run. Bind what "
                f"kinfolk_runtime.compile(plan) returns."
            )
        key = (compiled.object_sha256, compiled.symbol, compiled.arch)
        if key not in self._kernels:
            self._kernels[key] = executable(compiled.object, compiled.symbol, _arch(compiled.arch))
        self._launch(self._kernels[key], work.grid, work.kernel.block, work.kernel.parameters, work.arguments)

    def launch(
        self,
        code: bytes,
        symbol: str,
        arch: Arch,
        grid: tuple[int, int, int],
        block: int,
        parameters: Sequence[Parameter],
        arguments: Sequence[object],
    ) -> Executed:
        """Run a kernel of any code object; arguments in the order of parameters, arrays for pointers.

        Raises BindError where the arch does not say how its code is run, ToolError for an object that cannot be read.
        """
        return self._launch(executable(code, symbol, arch), grid, block, parameters, arguments)

    def _launch(
        self,
        kernel: Executable,
        grid: tuple[int, int, int],
        block: int,
        parameters: Sequence[Parameter],
        arguments: Sequence[object],
    ) -> Executed:
        memory = LaunchMemory(parameters, arguments, self._seed)
        executed = kernel.run(grid, block, memory.arguments, memory)
        self.executed.append(executed)
        return executed


def executable(code: bytes, symbol: str, arch: Arch) -> Executable:
    """Return a kernel of a code object that can be run; BindError where the arch does not say how."""
    if arch.machine is None or arch.machine.load is None:
        raise BindError(f"{arch.name} does not say how its machine code is run. Run {symbol} on the simulator.")
    return arch.machine.load(code, symbol, arch)


def _operations(launch: Executed) -> tuple[int, int]:
    return launch.lane_operations, launch.products


def _arch(name: str) -> Arch:
    from kinfolk.plugins.composition import arch_of
    from kinfolk.plugins.loading import load

    return arch_of(load("arch", name))
