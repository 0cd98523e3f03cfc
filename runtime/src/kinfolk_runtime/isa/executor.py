"""The executor that runs compiled kernels: their machine code, not their IR."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from kinfolk.errors import BindError
from kinfolk.machine import LaunchShape
from kinfolk_runtime.isa.arguments import check_declared, check_shape, given_arguments
from kinfolk_runtime.isa.memory import LaunchMemory
from kinfolk_runtime.seeds import known_seed

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

    def __init__(self, seed: int = 0, *, traced: bool = False, alignment: int = 1) -> None:
        """`seed`, 0 or more, draws where buffers lie; `traced` keeps what waves issue: `executed[0].trace.timing()`.

        Buffers begin at multiples of `alignment`, a power of two, or of what their parameters declare if that is more.
        """
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            raise BindError(f"alignment is {alignment!r}: pass a power of two, 1 for none beside what is declared.")
        self._alignment = alignment
        self._seed = known_seed("seed", seed)
        self._traced = traced
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
        shape = LaunchShape(grid=work.grid, block=(work.kernel.block, 1, 1))
        self._run(self._kernels[key], shape, work.kernel.parameters, work.arguments)

    def launch(
        self,
        code: bytes,
        symbol: str,
        arch: Arch | str,
        grid: tuple[int, int, int],
        block: int,
        parameters: Sequence[Parameter],
        arguments: Sequence[object],
    ) -> Executed:
        """Run a kernel of any code object whose parameters are declared here, arrays for pointers.

        `arch` is an Arch, or the name of an installed one. Raises UnknownPlugin for a name that none has, BindError
        where the arch does not say how its code is run or launch and arguments do not fit the kernel and what is
        declared, ToolError for an object that cannot be read.
        """
        shape, kernel = LaunchShape(grid=grid, block=(block, 1, 1)), executable(code, symbol, arch)
        check_shape(kernel.entry, shape)
        check_declared(kernel.entry, parameters, arguments)
        return self._run(kernel, shape, parameters, arguments)

    def launch_object(
        self,
        code: bytes,
        arch: Arch | str,
        shape: LaunchShape,
        arguments: Sequence[object] | Mapping[str, object],
        *,
        symbol: str | None = None,
        read_only: Collection[str | int] = (),
    ) -> Executed:
        """Run a kernel of any code object, by default the only one in it, on arguments in order or by name.

        `arch` is an Arch, or the name of an installed one. A pointer takes an array, or None for null; a value takes an
        int, a float, a numpy scalar or bytes of its size.
        Arrays are written where the kernel writes; those that `read_only` names, by name or place, stop such a write.
        Raises UnknownPlugin for a name that no arch has; BindError where the arch does not say how its code is run, or
        what is given does not fit the kernel; ToolError for an object that cannot be read.
        """
        kernel = executable(code, symbol, arch)
        check_shape(kernel.entry, shape)
        given = given_arguments(kernel.entry, arguments, read_only)
        return self._run_in(LaunchMemory.of_object(given, kernel.argument_block(shape), self._seed), kernel, shape)

    def _run(
        self, kernel: Executable, shape: LaunchShape, parameters: Sequence[Parameter], arguments: Sequence[object]
    ) -> Executed:
        least = [
            attrs.evolve(p, alignment=max(p.alignment, self._alignment)) if p.is_pointer else p for p in parameters
        ]
        memory = LaunchMemory(least, arguments, self._seed, kernel.argument_block(shape))
        return self._run_in(memory, kernel, shape)

    def _run_in(self, memory: LaunchMemory, kernel: Executable, shape: LaunchShape) -> Executed:
        memory.load(kernel.image)
        ran = kernel.run(shape, memory.arguments, memory.image, memory, traced=self._traced)
        executed = attrs.evolve(ran, read_bytes=memory.read_bytes, written_bytes=memory.written_bytes)
        self.executed.append(executed)
        return executed


def executable(code: bytes, symbol: str | None, arch: Arch | str) -> Executable:
    """Return a kernel of a code object that can be run, its only one for None, on an Arch or an installed one's name.

    Raises BindError where the arch does not say how, UnknownPlugin for a name that none has.
    """
    arch = _arch(arch) if isinstance(arch, str) else arch
    if arch.machine is None or arch.machine.load is None:
        what = symbol or "its kernel"
        raise BindError(f"{arch.name} does not say how its machine code is run. Run {what} on the simulator.")
    return arch.machine.load(code, symbol, arch)


def _operations(launch: Executed) -> tuple[int, int]:
    return launch.lane_operations, launch.products


def _arch(name: str) -> Arch:
    from kinfolk.plugins.composition import arch_of
    from kinfolk.plugins.loading import load

    return arch_of(load("arch", name))
