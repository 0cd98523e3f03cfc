"""One instruction made ready to run, and what its translation is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import attrs

from kinfolk_amdgcn.isa.declare import Declared
from kinfolk_amdgcn.isa.encoding import Encoded
from kinfolk_amdgcn.isa.operands import RegisterFile
from kinfolk_amdgcn.isa.waves import Waves

if TYPE_CHECKING:
    from kinfolk_amdgcn.isa.unknown import Unknown

Run = Callable[[Waves], None]
Flow = Literal["", "branch", "jump", "barrier", "end"]
"""What an instruction does to the way of its waves, beside going on to the next one."""
Unit = Literal[
    "scalar",
    "vector",
    "transcendental",
    "shifting",
    "lane_read",
    "lane_write",
    "lane_swap",
    "crossing",
    "last_division",
    "matrix",
    "memory",
    "local",
    "other",
]
"""What carries an instruction out. A `shifting` one gives a part of a register another place, a `lane_read` brings a
lane to scalar registers, a `lane_write` the other way, a `lane_swap` exchanges lanes of two registers, `crossing` is a
vector instruction whose first operand comes from other lanes on the way (DPP), `last_division` one that reads VCC
unasked."""
Queue = Literal["", "vector", "local"]
"""In which order an access ends: that of accesses to memory, or of those to workgroup memory."""


@attrs.frozen(kw_only=True)
class Step:
    """`run` does it; `reads` and `writes` are masks of registers, `touches` both.

    Of a `branch`, `target` is the index of the instruction that it leads to and `taken` says which waves go there; a
    `jump` says so itself, by `Waves.jumps`.
    `lanes`: it works on each lane; an access ends in the order of its `queue`. `states`: how many wait states it
    takes. Of a matrix instruction, `accumulates` are the registers that it adds to, `matrix` its passes, `multiplies`
    its products, and its result settles after `settles` wait states, where that is not the arch's to say. `early`: it
    follows too soon on the instruction of that index, and how. Of a wait, `waits` are how many accesses to memory, and
    to workgroup memory with scalar loads, may stay on their way. `carried` are pairs of registers of which the second
    says nothing if nothing has written the first: reading that is no fault yet. `masks` are registers read as masks of
    lanes, of which bits of lanes that do not live matter nothing. Of an instruction on bits of scalar registers, `bits`
    says before it runs what it leaves unknown; `leaves` says after a load what it loaded nothing written to, per wave.
    """

    name: str
    text: str
    offset: int
    run: Run
    reads: int = 0
    writes: int = 0
    flow: Flow = ""
    target: int = -1
    taken: Callable[[Waves], object] | None = None
    lanes: bool = False
    queue: Queue = ""
    unit: Unit = "other"
    states: int = 1
    accumulates: int = 0
    matrix: int = 0
    multiplies: int = 0
    settles: int = 0
    early: tuple[int, str] | None = None
    waits: tuple[int, int] | None = None
    carried: tuple[tuple[int, int], ...] = ()
    masks: int = 0
    bits: Callable[[Waves], Unknown] | None = None
    leaves: Callable[[Waves], list[int]] | None = None

    @property
    def touches(self) -> int:
        """Registers read or written."""
        return self.reads | self.writes | self.accumulates


@attrs.frozen(kw_only=True)
class Given:
    """What the translation of an instruction starts from; `float8` is the arch's encoding of 8-bit floats."""

    declared: Declared
    encoded: Encoded
    registers: RegisterFile
    float8: str

    def field(self, name: str) -> int:
        """Return a field of the encoding."""
        return self.encoded.fields[name]

    def step(self, run: Run, **facts: Any) -> Step:
        """Return the instruction's step, with the facts of `Step` that its kind has."""
        name = self.declared.name
        return Step(name=name, text=name, offset=self.encoded.offset, run=run, **facts)
