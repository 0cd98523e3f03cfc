"""The facts that this toolkit reads of every arch: what each means, and the values it may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from kinfolk.arch import Fact
from kinfolk.errors import PluginError
from kinfolk_amdgcn.instructions import FORMATS

PAGE: Final = "docs/bringing-up-an-arch.md"
"""Where the facts are told to who brings up an arch."""


@attrs.frozen
class FactRead:
    """One fact: what it means, with its unit, and the words it may be; without words it is a positive int."""

    meaning: str
    words: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        """The allowed values, in words."""
        return " or ".join(repr(word) for word in self.words) or "an int of at least 1"

    def allows(self, value: Fact | None) -> bool:
        """Return whether a value, None for a fact that is not declared, is allowed."""
        return value in self.words if self.words else type(value) is int and value >= 1


FACTS_READ: Final[Mapping[str, FactRead]] = {
    "wave_size": FactRead("lanes of a wave"),
    "max_workgroup_size": FactRead("threads of the largest workgroup"),
    "max_waves_per_simd": FactRead("waves that a SIMD holds at once"),
    "simds_per_cu": FactRead("SIMDs of a compute unit"),
    "vgprs_per_simd": FactRead("vector registers of a SIMD, 32 bits a lane, accumulation registers among them"),
    "vgprs_per_wave": FactRead("of these, the most that one wave has"),
    "vgpr_granule": FactRead("a wave's vector registers are allocated in multiples of this"),
    "accum_granule": FactRead("accumulation registers begin at a multiple of this; 1 where there are none"),
    "lds_bytes": FactRead("bytes of workgroup memory of a compute unit, and the most that one workgroup has"),
    "lds_granule": FactRead("workgroup memory is allocated in multiples of this many bytes"),
    "buffer_word3": FactRead("the last 32 bits of a raw buffer resource of 32-bit data"),
    "microcode_formats": FactRead("the encoding of its instructions, which the gate walks for scratch", (FORMATS,)),
}
"""Every fact that this toolkit must be told. Families read others, by name."""


def check_facts(arch: str, facts: Mapping[str, Fact]) -> None:
    """Raise PluginError for the first fact of an arch that is missing or has a value that is not allowed."""
    for name, read in FACTS_READ.items():
        value = facts.get(name)
        if not read.allows(value):
            has = f"declares the fact {name} = {value!r}" if name in facts else f"does not declare the fact {name}"
            raise PluginError(
                f"{arch} {has}; kinfolk-amdgcn reads it ({read.meaning}) and takes {read.allowed}. "
                f"Declare it so in the arch's facts: {PAGE} lists them"
            )
