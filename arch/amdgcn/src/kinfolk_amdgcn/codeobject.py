"""What the compiler really produced: figures from a code object's metadata note, scratch instructions from its code.

Source: LLVM, "User Guide for AMDGPU Backend", sections "ELF Code Object" and "Code Object V5 Metadata".
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from typing import Any, TypeVar, cast

import attrs
import msgpack
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from kinfolk.errors import ToolError
from kinfolk.usage import KernelArgument, Usage
from kinfolk_amdgcn.instructions import UnknownInstructionError, scratch_op_count

AMDGPU_MACHINE = "EM_AMDGPU"
METADATA_NOTE = 32  # NT_AMDGPU_METADATA, of owner "AMDGPU"
MAX_RECORDS = 1 << 16
TRIPLE_PARTS = 4

T = TypeVar("T")


class CodeObjectError(ToolError):
    """An object that is no code object, is damaged, or does not hold the kernel; the message says which."""


@attrs.frozen(kw_only=True)
class WaveLimits:
    """What of an arch bounds the waves on a compute unit. Registers count 32-bit registers per lane."""

    vgprs_per_simd: int
    vgpr_granule: int
    accum_granule: int
    max_waves_per_simd: int
    simds_per_cu: int
    lds_bytes_per_cu: int
    lds_granule: int = 1
    max_workgroups_per_cu: int | None = None

    def waves_per_simd(self, vgpr: int, agpr: int) -> int:
        """Return how many waves of this register count share a SIMD; 0 when not even one fits.

        Accumulation registers start at the next multiple of `accum_granule`, the sum is allocated in `vgpr_granule`.
        """
        total = _round_up(_round_up(vgpr, self.accum_granule) + agpr, self.vgpr_granule)
        return min(self.max_waves_per_simd, self.vgprs_per_simd // max(total, self.vgpr_granule))

    def workgroups_per_cu(self, waves_per_simd: int, waves_per_workgroup: int, lds_bytes: int) -> int:
        """Return how many workgroups share a compute unit by waves and by LDS; 0 when not even one fits."""
        fits = [waves_per_simd * self.simds_per_cu // waves_per_workgroup]
        if lds_bytes:
            fits.append(self.lds_bytes_per_cu // _round_up(lds_bytes, self.lds_granule))
        if self.max_workgroups_per_cu is not None and waves_per_workgroup > 1:
            fits.append(self.max_workgroups_per_cu)
        return min(fits)


@attrs.frozen(kw_only=True)
class KernelMetadata:
    """One kernel as the note has it: `vgpr_count` is the unified total, accumulation registers included."""

    symbol: str
    target: str
    vgpr_count: int
    agpr_count: int
    sgpr_count: int
    vgpr_spill_count: int
    sgpr_spill_count: int
    private_segment_fixed_size: int
    group_segment_fixed_size: int
    kernarg_segment_size: int
    max_flat_workgroup_size: int
    wavefront_size: int
    uses_dynamic_stack: bool
    required_block: tuple[int, ...]
    arguments: tuple[KernelArgument, ...]
    hidden: tuple[KernelArgument, ...]

    @property
    def target_id(self) -> str:
        """The target without its triple: a processor, and features that the code is pinned to.

        A triple is arch, vendor, system and environment; compilers leave the last one empty or write `unknown`.
        """
        return self.target.split("-", TRIPLE_PARTS)[-1]

    @property
    def processor(self) -> str:
        """The target without triple and features, as `kinfolk_amdgcn.target` writes it."""
        return self.target_id.partition(":")[0]

    @property
    def vgpr(self) -> int:
        """Vector registers without the accumulation ones; with them present, the start of theirs, a multiple of 4."""
        return self.vgpr_count - self.agpr_count


@attrs.frozen(kw_only=True)
class CodeObject:
    """A relocatable or shared AMDGPU object: its kernels, and the code of each function by symbol."""

    target: str
    kernels: Mapping[str, KernelMetadata]
    functions: Mapping[str, bytes] = attrs.field(repr=False)
    undefined: tuple[str, ...] = ()

    def code_of(self, symbol: str) -> bytes:
        """Return the code a launch of `symbol` may run: its own and that of every function that is no kernel."""
        if symbol not in self.functions:
            raise CodeObjectError(f"the code object has metadata of kernel {symbol} but no code under that symbol")
        others = [code for name, code in self.functions.items() if name not in self.kernels]
        return b"".join((self.functions[symbol], *others))


def read_code_object(data: bytes) -> CodeObject:
    """Read an ELF object; CodeObjectError when it is damaged, cut off, or not AMDGPU's."""
    try:
        elf = ELFFile(io.BytesIO(data))
        _check_extents(elf, len(data))
        note = _metadata_note(elf)
        functions, undefined = _functions(elf)
    except CodeObjectError:
        raise
    except Exception as error:  # on damaged input the ELF reader raises whatever the damage leads it to
        said = str(error) or type(error).__name__
        raise CodeObjectError(f"not a readable ELF object of {len(data)} bytes: {said}") from error
    target, kernels = _kernels(note)
    return CodeObject(target=target, kernels=kernels, functions=functions, undefined=undefined)


def usage_from_object(data: bytes, symbol: str, limits: WaveLimits, processors: Collection[str]) -> Usage:
    """Return the figures of kernel `symbol` in an object for one of `processors`, whose code `instructions` can walk.

    Raises CodeObjectError for a damaged object, one without that kernel, one that does not link by itself, a kernel
    whose stack has no size known when compiled, and code that cannot be walked.
    """
    loaded = read_code_object(data)
    if symbol not in loaded.kernels:
        held = ", ".join(loaded.kernels) or "none"
        raise CodeObjectError(f"the code object holds no kernel {symbol}; it holds {held}")
    if loaded.undefined:
        raise CodeObjectError(f"the code object of {symbol} does not link: {', '.join(loaded.undefined)} is undefined")
    kernel = loaded.kernels[symbol]
    if kernel.uses_dynamic_stack:
        raise CodeObjectError(f"kernel {symbol} has a stack whose size is not known when compiled")
    if kernel.processor not in processors:
        raise CodeObjectError(
            f"the code of {symbol} is for {kernel.target}; its scratch instructions could be counted if it were for "
            f"{' or '.join(processors) or 'a processor whose encodings are known'}"
        )
    try:
        scratch_ops = scratch_op_count(loaded.code_of(symbol))
    except UnknownInstructionError as error:
        raise CodeObjectError(f"the code of {symbol} cannot be walked: {error}") from error
    return Usage(
        symbol=symbol,
        target=kernel.target_id,
        scratch_bytes=kernel.private_segment_fixed_size,
        scratch_ops=scratch_ops,
        figures=_figures(kernel, limits),
        arguments=kernel.arguments,
        hidden=kernel.hidden,
    )


def _figures(kernel: KernelMetadata, limits: WaveLimits) -> dict[str, int]:
    waves_per_simd = limits.waves_per_simd(kernel.vgpr, kernel.agpr_count)
    waves_per_workgroup = max(1, -(-kernel.max_flat_workgroup_size // kernel.wavefront_size))
    lds_bytes = kernel.group_segment_fixed_size
    return {
        "vgpr": kernel.vgpr,
        "agpr": kernel.agpr_count,
        "sgpr": kernel.sgpr_count,
        "lds_bytes": lds_bytes,
        "parked": kernel.vgpr_spill_count + kernel.sgpr_spill_count,
        "waves_per_simd": waves_per_simd,
        "workgroups_per_cu": limits.workgroups_per_cu(waves_per_simd, waves_per_workgroup, lds_bytes),
        "kernarg_bytes": kernel.kernarg_segment_size,
        "max_flat_workgroup_size": kernel.max_flat_workgroup_size,
    }


def _round_up(count: int, granule: int) -> int:
    return -(-count // granule) * granule


def _check_extents(elf: ELFFile, size: int) -> None:
    """Refuse what would send a reader past the end or round in circles."""
    if elf["e_machine"] != AMDGPU_MACHINE:
        raise CodeObjectError(f"an ELF object of machine {elf['e_machine']}, not AMDGPU")
    if elf.elfclass != 64 or not elf.little_endian:
        raise CodeObjectError("an AMDGPU object is 64-bit little-endian, this one is not")
    if elf.num_sections() > MAX_RECORDS or elf["e_shoff"] + elf.num_sections() * elf["e_shentsize"] > size:
        raise CodeObjectError(f"the object is cut off: its section table lies past its {size} bytes")
    for index in range(elf.num_sections()):
        header = elf._get_section_header(index)  # pyright: ignore[reportPrivateUsage]  # reads no contents
        if header["sh_type"] != "SHT_NOBITS" and header["sh_offset"] + header["sh_size"] > size:
            raise CodeObjectError(f"the object is cut off: section {index} lies past its {size} bytes")
        if header["sh_type"] in ("SHT_SYMTAB", "SHT_DYNSYM") and header["sh_entsize"] != 24:
            raise CodeObjectError(f"symbol table {index} has entries of {header['sh_entsize']} bytes, not 24")


def _metadata_note(elf: ELFFile) -> bytes:
    for section in elf.iter_sections(type="SHT_NOTE"):
        data: bytes = section.data()
        offset = 0
        while offset + 12 <= len(data):
            name_size, size, kind = (int.from_bytes(data[offset + at : offset + at + 4], "little") for at in (0, 4, 8))
            start = offset + 12 + _round_up(name_size, 4)
            if start + size > len(data):
                raise CodeObjectError("a note of the object is cut off")
            if kind == METADATA_NOTE and data[offset + 12 : offset + 12 + name_size] == b"AMDGPU\0":
                return data[start : start + size]
            offset = start + _round_up(size, 4)
    raise CodeObjectError("the object has no AMDGPU metadata note: no kernel was compiled into it")


def _functions(elf: ELFFile) -> tuple[dict[str, bytes], tuple[str, ...]]:
    functions: dict[str, bytes] = {}
    undefined: set[str] = set()
    for table in (*elf.iter_sections(type="SHT_SYMTAB"), *elf.iter_sections(type="SHT_DYNSYM")):
        for symbol in cast("SymbolTableSection", table).iter_symbols():
            if symbol["st_shndx"] == "SHN_UNDEF":
                undefined |= {symbol.name} if symbol.name else set()
            elif symbol["st_info"]["type"] == "STT_FUNC":
                functions[symbol.name] = _code(elf, symbol)
    return functions, tuple(sorted(undefined))


def _code(elf: ELFFile, symbol: Any) -> bytes:
    section = elf.get_section(symbol["st_shndx"])
    start = symbol["st_value"] - (section["sh_addr"] if elf["e_type"] == "ET_DYN" else 0)
    end = start + symbol["st_size"]
    if not 0 <= start < end <= section["sh_size"] or section["sh_type"] == "SHT_NOBITS":
        raise CodeObjectError(f"function {symbol.name} does not lie in its section")
    return section.data()[start:end]


def _kernels(note: bytes) -> tuple[str, dict[str, KernelMetadata]]:
    try:
        top = cast("Any", msgpack).unpackb(note)
    except ValueError as error:  # also what msgpack's own errors derive from
        raise CodeObjectError(f"the metadata note is not readable msgpack: {error}") from error
    target = _entry(top, "amdhsa.target", str)
    kernels = [_kernel(each, target) for each in _records(top, "amdhsa.kernels")]
    return target, {kernel.symbol: kernel for kernel in kernels}


def _kernel(entry: Any, target: str) -> KernelMetadata:
    counts = {
        field.name: _entry(entry, f".{field.name}", int)
        for field in attrs.fields(KernelMetadata)
        if field.name.endswith(("_count", "_size")) and (field.name != "agpr_count" or ".agpr_count" in entry)
    }
    counts.setdefault("agpr_count", 0)  # a target without them does not mention them
    arguments: list[KernelArgument] = []
    hidden: list[KernelArgument] = []
    for each in _records(entry, ".args") if ".args" in entry else ():
        kind = _entry(each, ".value_kind", str)
        read = KernelArgument(
            offset=_entry(each, ".offset", int),
            size=_entry(each, ".size", int),
            kind={"global_buffer": "pointer", "by_value": "value"}.get(kind, kind),
            name=str(cast("dict[str, Any]", each).get(".name", "")),
        )
        (hidden if kind.startswith("hidden_") else arguments).append(read)
    return KernelMetadata(
        symbol=_entry(entry, ".name", str),
        target=target,
        uses_dynamic_stack=bool(_entry(entry, ".uses_dynamic_stack", bool)),
        required_block=tuple(_records(entry, ".reqd_workgroup_size")) if ".reqd_workgroup_size" in entry else (),
        arguments=tuple(arguments),
        hidden=tuple(hidden),
        **counts,
    )


def _records(entry: Any, key: str) -> list[Any]:
    return cast("list[Any]", _entry(entry, key, list))


def _entry(entry: Any, key: str, kind: type[T]) -> T:
    value: Any = cast("dict[str, Any]", entry).get(key) if isinstance(entry, dict) else None
    if type(value) is not kind or (kind is int and cast("int", value) < 0):
        raise CodeObjectError(f"the metadata note has no {kind.__name__} under {key}, but {value!r}")
    return value
