"""A kernel of a code object, ready to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kinfolk.machine import Executed, MachineMemory
from kinfolk_amdgcn.isa.engine import Launch
from kinfolk_amdgcn.isa.kernel_object import read_kernel
from kinfolk_amdgcn.isa.program import Program, translated, unmodelled

if TYPE_CHECKING:
    from kinfolk.arch import Arch


@attrs.frozen(eq=False)
class MachineKernel:
    """A translated kernel; `extra_states` is what a matrix result takes past its passes on this arch."""

    program: Program
    extra_states: int

    @property
    def unmodelled(self) -> tuple[str, ...]:
        """Instructions that are not modelled."""
        return unmodelled(self.program)

    def run(self, grid: tuple[int, int, int], block: int, arguments: int, memory: MachineMemory) -> Executed:
        """Run a launch; raise MachineFault for the first instruction that breaks a rule."""
        launch = Launch(self.program, grid, block, arguments, memory, self.extra_states)
        launch.run()
        counts = launch.counts
        return Executed(
            instructions=counts.instructions,
            lane_operations=counts.lane_operations,
            products=counts.products,
            seconds=counts.seconds,
            by_name=dict(counts.by_name),
        )


def executable(data: bytes, symbol: str, arch: Arch) -> MachineKernel:
    """Return a kernel of a code object for an arch; CodeObjectError for one that cannot be read or decoded."""
    program = translated(read_kernel(data, symbol), str(arch.facts.get("fp8_format", "")))
    return MachineKernel(program, int(arch.facts.get("matrix_result_states", 0)))
