"""One point of a search: a spec compiled, gated and scored. Nothing is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import attrs

from kinfolk.errors import KinfolkError
from kinfolk_runtime.inspection import inspect_spec
from kinfolk_runtime.toolchains.base import Toolchain

if TYPE_CHECKING:
    from kinfolk.plugins.composition import Composition
    from kinfolk.spec import Spec

State = Literal["clean", "invalid", "refused"]
"""What became of a point: it passes the gate; no plugin takes the spec; or the gate, or the compiler, does not."""


@attrs.frozen(kw_only=True)
class Scored:
    """A point's clocks of a compute unit per token and 64 heads by cost model, cold blocks cut, and the room it leaves.

    `spare_registers` are those that a wave could take before fewer waves fit. `why` says what is wrong with a point
    that is not clean; such a one has no clocks.
    """

    state: State
    llvm: float = 0.0
    real: float = 0.0
    spare_registers: int = 0
    why: str = ""

    @property
    def clean(self) -> bool:
        """Whether it could be a winner."""
        return self.state == "clean"

    @property
    def clocks(self) -> float:
        """What a search makes small: the slower of both models, since nobody knows which is nearer."""
        return max(self.llvm, self.real)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return attrs.asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Scored:
        """Return what `to_dict` gave; TypeError for anything else."""
        found = cls(**data)
        if found.state not in ("clean", "invalid", "refused") or type(found.spare_registers) is not int:
            raise TypeError(f"no score: {data!r}")
        return attrs.evolve(found, llvm=float(found.llvm), real=float(found.real))


def score(composition: Composition, spec: Spec, flavor: str, *, toolchain: Toolchain | None = None) -> Scored:
    """Compile a spec and return its score; whatever keeps it from being a winner is its state.

    Raises ToolError where no toolchain of this host takes the flavor, and Refused where the arch has no machine code
    that can be read.
    """
    from kinfolk_runtime.toolchains.host import toolchain_for

    chosen, machine = toolchain or toolchain_for(flavor), composition.arch.machine
    if machine is None:
        composition.arch.machine_code(b"")  # refuses with the reason
    if refusals := composition.validate_spec(spec):
        return Scored(state="invalid", why=str(refusals[0]))
    try:
        found = inspect_spec(composition, spec, flavor, toolchain=chosen, mca=False)
    except KinfolkError as error:
        return Scored(state="refused", why=str(error))
    assert machine is not None and found.usage is not None
    if refusals := composition.gate(found.usage, spec):
        return Scored(state="refused", why=str(refusals[0]))
    rates = found.rates()
    if rates["clocks_per_token_64h"] is None:
        return Scored(state="refused", why=f"{spec.symbol()} has no loop, or its spec does not say what a round does")
    return Scored(
        state="clean",
        llvm=round(rates["clocks_per_token_64h"], 4),
        real=round(rates["clocks_per_token_64h_real"] or 0.0, 4),
        spare_registers=machine.spare_registers(found.usage.figures, composition.arch),
    )
