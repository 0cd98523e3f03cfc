"""A kernel of a code object, ready to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kinfolk.errors import BindError
from kinfolk.machine import EntryPoint, Executed, LaunchShape, MachineMemory
from kinfolk_amdgcn.codeobject import CodeObjectError
from kinfolk_amdgcn.isa.constants import constants
from kinfolk_amdgcn.isa.engine import Launch, waves_of
from kinfolk_amdgcn.isa.hidden import argument_block
from kinfolk_amdgcn.isa.kernel_object import read_kernel
from kinfolk_amdgcn.isa.program import Program, translated, unmodelled
from kinfolk_amdgcn.isa.timing import MachineTrace
from kinfolk_amdgcn.isa.trace import Trace
from kinfolk_amdgcn.target import parse_target_id

if TYPE_CHECKING:
    from kinfolk.arch import Arch


@attrs.frozen(eq=False)
class MachineKernel:
    """A translated kernel; `extra_states` is what a matrix result takes past its passes on this arch."""

    program: Program
    extra_states: int
    arch: Arch

    @property
    def unmodelled(self) -> tuple[str, ...]:
        """Instructions that are not modelled."""
        return unmodelled(self.program)

    @property
    def entry(self) -> EntryPoint:
        """What the object's metadata says of arguments and workgroups."""
        kernel = self.program.kernel.metadata
        return EntryPoint(
            symbol=kernel.symbol,
            arguments=kernel.arguments,
            largest_block=kernel.max_flat_workgroup_size,
            required_block=kernel.required_block,
            local_bytes=self.program.kernel.local_bytes,
        )

    def argument_block(self, shape: LaunchShape) -> bytes:
        """Return the argument block with hidden arguments; CodeObjectError for one that is not known."""
        kernel = self.program.kernel
        return argument_block(kernel.metadata, shape, any(name == "dispatch_ptr" for name, _ in kernel.user))

    def image(self, base: int) -> bytes:
        """Return the bytes of the code object as they lie at an address."""
        return self.program.kernel.image.at(base)

    def run(
        self, shape: LaunchShape, arguments: int, image: int, memory: MachineMemory, *, traced: bool = False
    ) -> Executed:
        """Run a launch; raise MachineFault for the first instruction that breaks a rule."""
        self._check_local(shape)
        timed = traced and constants(self.arch)
        trace = Trace(self.program.steps, waves_of(shape), self.arch.banks) if timed else None
        launch = Launch(self.program, shape, arguments, image, memory, self.extra_states, trace)
        launch.run()
        counts = launch.counts
        return Executed(
            symbol=self.program.kernel.symbol,
            instructions=counts.instructions,
            lane_operations=counts.lane_operations,
            products=counts.products,
            seconds=counts.seconds,
            by_name=dict(counts.by_name),
            trace=None if trace is None else self._timed(trace, shape),
        )

    def _check_local(self, shape: LaunchShape) -> None:
        """Raise BindError where a workgroup needs more workgroup memory than the arch has."""
        most, kernel = int(self.arch.facts.get("lds_bytes", 0)), self.program.kernel
        left = max(0, most - kernel.local_bytes)
        if most and kernel.local_bytes + shape.dynamic_bytes > most:
            raise BindError(
                f"dynamic_bytes is {shape.dynamic_bytes}, beside {kernel.local_bytes} bytes of workgroup memory that "
                f"{kernel.symbol} declares; {self.arch.name} has {most}. Pass at most {left}."
            )

    def _timed(self, trace: Trace, shape: LaunchShape) -> MachineTrace:
        return MachineTrace(
            program=self.program,
            trace=trace,
            arch=self.arch,
            shape=shape,
            extra_states=self.extra_states,
        )


def executable(data: bytes, symbol: str | None, arch: Arch) -> MachineKernel:
    """Return a kernel of a code object for an arch, None for its only one.

    Raises CodeObjectError for an object that cannot be read or decoded, or is for another processor.
    """
    kernel = read_kernel(data, symbol)
    processors = [parse_target_id(target).processor for target in arch.target_ids]
    if kernel.metadata.processor not in processors:
        raise CodeObjectError(
            f"the code of {kernel.symbol} is for {kernel.metadata.target_id}, {arch.name} runs that of "
            f"{' or '.join(processors)}"
        )
    program = translated(kernel, str(arch.facts.get("fp8_format", "")))
    return MachineKernel(program, int(arch.facts.get("matrix_result_states", 0)), arch)
