"""Machine code of AMD archs: assembly text and disassembly as blocks of instructions with what each costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kinfolk.machine import Block, Executable, Instruction, Machine, MachineFunction
from kinfolk_amdgcn.machine import assembly, costs, objects
from kinfolk_amdgcn.machine.listing import Line, Listing, cut
from kinfolk_amdgcn.machine.operands import instruction
from kinfolk_amdgcn.resources import wave_limits
from kinfolk_amdgcn.target import TRIPLE

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.timing import Constant

_ELF: Final = b"\x7fELF"


def machine(simds: int) -> Machine:
    """Return how machine code of an AMD arch with so many SIMDs to a compute unit is read."""
    return Machine(
        triple=TRIPLE,
        simds=simds,
        clocks_per_cycle=costs.CLOCKS_PER_CYCLE,
        target=target,
        read=read,
        spare_registers=spare_registers,
        load=load,
        time_constants=time_constants,
    )


def load(data: bytes, symbol: str | None, arch: Arch) -> Executable:
    """Return a kernel of a code object that can be run, None for its only one; see `kinfolk_amdgcn.isa`."""
    from kinfolk_amdgcn.isa.executable import executable

    return executable(data, symbol, arch)


def time_constants(arch: Arch) -> tuple[Constant, ...]:
    """Return what the model of the time of machine code counts with; see `kinfolk_amdgcn.isa.constants`."""
    from kinfolk_amdgcn.isa.constants import constants

    return constants(arch)


def target(data: bytes) -> str | None:
    """Return the processor that assembly text or an ELF object is for; None for a file that names none."""
    return objects.processor(data) if data.startswith(_ELF) else assembly.processor(data.decode(errors="replace"))


def read(data: bytes, disassembly: str | None, given: Mapping[str, int], arch: Arch) -> tuple[MachineFunction, ...]:
    """Return the kernels of assembly text, or of an object with its disassembly, each with its figures.

    Figures in `given` stand in place of those in the file. Raises CodeObjectError for an object that cannot be read.
    """
    if disassembly is None:
        text = data.decode(errors="replace")
        listings, described = assembly.listings(text), assembly.figures(text)
    else:
        described = objects.figures(data)
        listings = objects.listings(disassembly, objects.function_names(data))
    processor = target(data) or ""
    return tuple(
        MachineFunction(
            symbol=listing.symbol,
            target=processor,
            blocks=_blocks(listing, arch),
            figures=_with_occupancy({**described.get(listing.symbol, {}), **given}, arch),
        )
        for listing in listings
    )


def spare_registers(figures: Mapping[str, int], arch: Arch) -> int:
    """Return how many more vector and accumulation registers a wave could take before fewer waves fit a SIMD."""
    limits = wave_limits(arch)
    share = limits.vgprs_per_simd // max(1, figures["waves_per_simd"])
    return min(share, arch.vgprs_per_wave) - figures["vgpr"] - figures["agpr"]


def _blocks(listing: Listing, arch: Arch) -> tuple[Block, ...]:
    known: dict[tuple[str, str], Instruction] = {}

    def of(line: Line) -> Instruction:
        key = (line.opcode, line.operands)
        if key not in known:
            known[key] = instruction(line.opcode, line.operands, arch)
        return known[key]

    return tuple(
        Block(
            label=piece.label,
            source=piece.source,
            instructions=tuple(map(of, piece.lines)),
            successors=piece.successors,
        )
        for piece in cut(listing)
    )


def _with_occupancy(figures: Mapping[str, int], arch: Arch) -> dict[str, int]:
    """Add how many waves and workgroups fit, where registers, threads and workgroup memory are known."""
    found, limits = dict(figures), wave_limits(arch)
    if {"vgpr", "agpr", "max_flat_workgroup_size", "lds_bytes"} <= found.keys():
        waves = -(-found["max_flat_workgroup_size"] // arch.wave_size) or 1
        found["waves_per_simd"] = limits.waves_per_simd(found["vgpr"], found["agpr"])
        found["workgroups_per_cu"] = limits.workgroups_per_cu(found["waves_per_simd"], waves, found["lds_bytes"])
    return found
