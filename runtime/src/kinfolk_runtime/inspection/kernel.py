"""One compiled kernel inspected: its main loop, what that is made of, and its clocks by every model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from kinfolk.errors import PluginError, ToolError
from kinfolk.machine import COST_MODELS, CostModel, Instruction, Machine, MachineFunction
from kinfolk.spec import LoopWork
from kinfolk_runtime.inspection.in_order import clocks_per_round
from kinfolk_runtime.inspection.loops import ColdRule, Loop, main_loop
from kinfolk_runtime.inspection.mca import NOT_ASKED, McaResult, find_mca, mca_cycles

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.plugins.composition import Composition
    from kinfolk.spec import Spec
    from kinfolk.usage import Usage
    from kinfolk_runtime.toolchains.base import Toolchain

HEADS: Final = 64
"""Rates are per token and so many heads."""


@attrs.frozen(kw_only=True)
class Part:
    """A loop with or without its cold blocks: clocks of a round of one wave, and what the wave does in it.

    `clocks` has the in-order model's answer per cost model, `mca` that of llvm-mca or why there is none.
    """

    instructions: tuple[Instruction, ...] = attrs.field(repr=False)
    clocks: Mapping[CostModel, float]
    mca: McaResult
    mca_clocks: float | None

    @property
    def matrix_clocks(self) -> float:
        """How long the matrix unit is held."""
        return sum(each.matrix_clocks for each in self.instructions)

    @property
    def matrix_share(self) -> float | None:
        """The share of the clocks, by LLVM's latencies, in which the matrix unit is held; None for an empty loop."""
        return self.matrix_clocks / self.clocks["llvm"] if self.clocks["llvm"] else None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        moved = Counter[str]()
        for each in self.instructions:
            if each.issue == "workgroup_memory":
                moved[each.direction] += each.bytes
        return {
            "instructions": len(self.instructions),
            "clocks": {**self.clocks, "mca": self.mca_clocks},
            "mca_note": self.mca.note,
            "issued": dict(sorted(Counter(each.issue for each in self.instructions).items())),
            "waits": sum(each.issue == "wait" for each in self.instructions),
            "full_drains": sum(each.drains for each in self.instructions),
            "accumulator_moves": sum(each.issue == "accumulator_move" for each in self.instructions),
            "scratch_ops": sum(each.issue == "scratch_memory" for each in self.instructions),
            "workgroup_bytes_per_lane": {"read": moved["read"], "written": moved["write"]},
        }


@attrs.frozen(kw_only=True)
class InspectedKernel:
    """A kernel's figures and its main loop, once as in most rounds (`hot`) and once with every block (`every`).

    `waves` of a workgroup do `work` together in a round; `simds` of them run at a time. `usage` is what gates judge, of
    a kernel that was compiled here.
    """

    symbol: str
    target: str
    spec_digest: str | None
    figures: Mapping[str, int]
    scratch_ops: int
    waves: int
    simds: int
    work: LoopWork | None
    loop: Loop | None
    hot: Part | None
    every: Part | None
    usage: Usage | None = attrs.field(default=None, repr=False)

    def per_token(self, clocks: float | None) -> float | None:
        """Return clocks of a compute unit per token and 64 heads, from clocks of a wave and round.

        None where nobody says what a round gets done.
        """
        if clocks is None or self.work is None:
            return None
        return clocks * self.waves / self.simds / (self.work.tokens * self.work.heads / HEADS)

    def rates(self) -> dict[str, float | None]:
        """Return clocks per token and 64 heads by name: of the matrix unit alone, hot, with cold blocks, real, mca."""
        hot, every = self.hot, self.every
        return {
            "clocks_per_token_64h": self.per_token(hot.clocks["llvm"] if hot else None),
            "clocks_per_token_64h_all": self.per_token(every.clocks["llvm"] if every else None),
            "clocks_per_token_64h_real": self.per_token(hot.clocks["real"] if hot else None),
            "clocks_per_token_64h_real_all": self.per_token(every.clocks["real"] if every else None),
            "clocks_per_token_64h_mca": self.per_token(hot.mca_clocks if hot else None),
            "clocks_per_token_64h_matrix": self.per_token(hot.matrix_clocks if hot else None),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object, rates and shares rounded to four places."""
        loop = self.loop
        return {
            "symbol": self.symbol,
            "spec_digest": self.spec_digest,
            "target": self.target,
            "figures": {**self.figures, "scratch_ops": self.scratch_ops},
            "waves_per_workgroup": self.waves,
            "work": attrs.asdict(self.work) if self.work else None,
            **{name: _rounded(rate) for name, rate in self.rates().items()},
            "matrix_share": _rounded(self.every.matrix_share if self.every else None),
            "matrix_share_hot": _rounded(self.hot.matrix_share if self.hot else None),
            "loop": None
            if loop is None or self.hot is None or self.every is None
            else {
                "header": loop.header,
                "blocks": [block.label for block in loop.blocks],
                "cold_rule": loop.rule,
                "cold_blocks": [{"label": block.label, "source": block.source} for block in loop.cold],
                "matrix_clocks": self.hot.matrix_clocks,
                "hot": self.hot.to_dict(),
                "all": self.every.to_dict(),
            },
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def inspect_spec(
    composition: Composition, spec: Spec, flavor: str, *, toolchain: Toolchain | None = None, mca: bool = True
) -> InspectedKernel:
    """Compile a spec's kernel with its assembly and inspect that. Needs no GPU, and nothing but a toolchain.

    Raises ToolError where it does not compile, PluginError where the arch declares no way to read machine code.
    """
    from kinfolk_runtime.artifact import compile_job, lower_spec
    from kinfolk_runtime.toolchains.host import toolchain_for

    arch = composition.arch
    _, module = lower_spec(composition, spec, flavor)
    compiled = (toolchain or toolchain_for(flavor)).compile(compile_job(module, assembly=True))
    usage = arch.usage(compiled.object, module.symbol)
    figures = {"scratch_bytes": usage.scratch_bytes, **usage.figures}
    functions = arch.machine_code((compiled.assembly or "").encode(), given=figures)
    [function] = [each for each in functions if each.symbol == module.symbol]
    found = inspect_function(function, arch, work=spec.work_per_round(), rule="named", mca=mca)
    return attrs.evolve(found, spec_digest=spec.digest(), scratch_ops=usage.scratch_ops, usage=usage)


def inspect_function(
    function: MachineFunction,
    arch: Arch,
    *,
    work: LoopWork | None = None,
    rule: ColdRule | None = None,
    mca: bool = True,
) -> InspectedKernel:
    """Inspect a kernel as `Arch.machine_code` reads it; `rule` as in `main_loop`, `mca` asks llvm-mca too."""
    if arch.machine is None:
        raise PluginError(f"arch {arch.name} declares no Machine")
    machine, figures = arch.machine, function.figures
    waves = max(1, -(-figures.get("max_flat_workgroup_size", arch.wave_size) // arch.wave_size))
    resident = max(1, figures.get("workgroups_per_cu", 1)) * waves
    loop = main_loop(function.blocks, rule=rule)
    measured = _Measured(machine=machine, cpu=function.target, sharing=min(machine.simds, resident), mca=mca)
    every = measured.part(loop.instructions) if loop else None
    hot = every if loop is None or not loop.cold else measured.part(loop.hot)
    return InspectedKernel(
        symbol=function.symbol,
        target=function.target,
        spec_digest=None,
        figures=figures,
        scratch_ops=sum(each.issue == "scratch_memory" for block in function.blocks for each in block.instructions),
        waves=waves,
        simds=machine.simds,
        work=work,
        loop=loop,
        hot=hot,
        every=every,
    )


@attrs.frozen(kw_only=True)
class _Measured:
    machine: Machine
    cpu: str
    sharing: int
    mca: bool

    def part(self, body: Sequence[Instruction]) -> Part:
        said = self._mca(body)
        return Part(
            instructions=tuple(body),
            clocks={model: clocks_per_round(body, model, self.sharing) for model in COST_MODELS},
            mca=said,
            mca_clocks=None if said.cycles is None else said.cycles * self.machine.clocks_per_cycle,
        )

    def _mca(self, body: Sequence[Instruction]) -> McaResult:
        if not self.mca:
            return McaResult(None, NOT_ASKED)
        try:
            tool = find_mca()
        except ToolError as error:
            return McaResult(None, str(error))
        return mca_cycles(body, self.machine.triple, self.cpu, tool=tool)
