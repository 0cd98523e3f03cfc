"""The plugin of an AMD arch, from what its distribution holds: facts, matrix atoms, own ops, measured legality."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING

import attrs

from kinfolk.arch import Arch, Fact
from kinfolk.banks import BankModel
from kinfolk.hooks import hookimpl
from kinfolk.ir.op import OpDef
from kinfolk.ir.ops import CORE_OPS
from kinfolk_amdgcn import mfma, ops, resources
from kinfolk_amdgcn.facts import check_facts
from kinfolk_amdgcn.legality import Legality
from kinfolk_amdgcn.lowering import float8, lower_kernel
from kinfolk_amdgcn.machine import machine
from kinfolk_amdgcn.target import parse_target_id

if TYPE_CHECKING:
    from kinfolk.refusal import Refusal
    from kinfolk.spec import Spec
    from kinfolk.usage import Usage


@attrs.frozen(kw_only=True, slots=False, eq=False)
class AmdPlugin:
    """The answers of an AMD arch to the hooks; its module names them: `kinfolk_arch = PLUGIN.kinfolk_arch`.

    `package` is the arch's package. It holds `matrix_table.json` (`kinfolk_amdgcn.mfma`) and `legality.json`
    (`kinfolk_amdgcn.legality`), and the distribution has its name, with hyphens. `name` is the entry point's.
    `target_ids` begin with the one that kernels are compiled for.
    """

    package: str
    name: str
    target_ids: tuple[str, ...]
    facts: Mapping[str, Fact]
    ops: tuple[OpDef, ...] = ops.OPS
    roles: Mapping[str, OpDef] = attrs.field(factory=dict[str, OpDef])
    banks: BankModel | None = None

    @property
    def distribution(self) -> str:
        """The distribution, as refusals name it."""
        return self.package.replace("_", "-")

    @cached_property
    def legality(self) -> Legality:
        """What was measured of the arch's processors; PluginError for a table that cannot be read."""
        return Legality.of_package(self.package)

    @cached_property
    def arch(self) -> Arch:
        """The one Arch; TargetIdError for a target id that is none, PluginError for a fact as `check_facts` says."""
        processor = parse_target_id(self.target_ids[0]).processor
        check_facts(self.name, self.facts)
        matrix = mfma.catalog(self.package)
        names = (op.name for op in (*CORE_OPS, *self.ops, *(atom.op for atom in matrix)))
        return Arch(
            name=self.name,
            target_ids=self.target_ids,
            wave_size=int(self.facts["wave_size"]),
            facts=self.facts,
            matrix=matrix,
            ops=self.ops,
            roles=self.roles,
            lacking=self.legality.lacking(processor, names),
            lacking_types=float8.lacking_types(self.facts),
            bounds={"workgroup_threads": "max_workgroup_size", "workgroup_bytes": "lds_bytes"},
            banks=self.banks,
            machine=machine(int(self.facts["simds_per_cu"])),
            lower_kernel=partial(lower_kernel, legality=self.legality),
            read_usage=resources.read_usage,
        )

    @hookimpl
    def kinfolk_arch(self) -> Arch:
        """Return the arch."""
        return self.arch

    @hookimpl
    def kinfolk_gate_resources(self, usage: Usage, spec: Spec, arch: Arch) -> Iterable[Refusal]:
        """Refuse what the compute unit cannot hold; scratch is core's to refuse, a candidate's budget its family's."""
        return tuple(resources.gate(usage, spec, arch, self.distribution))
