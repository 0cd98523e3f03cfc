"""What an AMD arch owes as a whole: hooks, names, facts, gates at their edges, and kernels to their code objects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import distribution
from typing import ClassVar, Final

import attrs
import pytest

from kinfolk.arch import Arch, Fact, UnknownFact
from kinfolk.errors import IRError, PluginError
from kinfolk.refusal import Refusal
from kinfolk.spec import Spec
from kinfolk.usage import KernelArgument, Usage
from kinfolk_amdgcn.codeobject import CodeObjectError
from kinfolk_amdgcn.facts import FACTS_READ
from kinfolk_amdgcn.plugin import AmdPlugin
from kinfolk_amdgcn.resources import LIMITS, wave_limits
from kinfolk_amdgcn.target import parse_target_id
from kinfolk_amdgcn.testing.kernels import filling_kernel, row_kernel, storing_kernel
from kinfolk_amdgcn.testing.llvm import Llvm

OCCUPANCY: Final[Mapping[int, int]] = {
    64: 8,
    65: 7,
    72: 7,
    73: 6,
    80: 6,
    81: 5,
    96: 5,
    97: 4,
    128: 4,
    129: 3,
    168: 3,
    169: 2,
    256: 2,
    257: 1,
    512: 1,
}
"""Registers of a kernel to waves per SIMD as LLVM 22 prints them, where a file of 512 is dealt in eights."""

FITTING: Final[Mapping[str, int]] = {
    "vgpr": 252,
    "agpr": 0,
    "sgpr": 46,
    "lds_bytes": 30976,
    "parked": 0,
    "waves_per_simd": 2,
    "workgroups_per_cu": 2,
    "kernarg_bytes": 88,
    "max_flat_workgroup_size": 256,
}
"""Figures of a kernel that keeps every limit."""


class Excused(Spec):
    """A spec that parks values and says why; it says nothing of the rest."""

    def reason_for(self, figure: str) -> str | None:
        """Return a reason for parked values."""
        return "the moves stand outside the loop" if figure == "parked" else None


class ArchTests:
    """Subclass it as `TestArch` with `plugin`, the module's `PLUGIN`, and `published`, facts as a document has them.

    `occupancy` is what LLVM prints where its register file differs from that of `OCCUPANCY`. The tests that compile
    take the fixture `llvm` (`kinfolk_amdgcn.testing.llvm`).
    """

    plugin: ClassVar[AmdPlugin]
    published: ClassVar[Mapping[str, Fact]]
    occupancy: ClassVar[Mapping[int, int]] = OCCUPANCY

    @property
    def arch(self) -> Arch:
        """The arch under test."""
        return self.plugin.kinfolk_arch()

    def another(self) -> str:
        """Return a processor that is none."""
        return parse_target_id(self.arch.target_ids[0]).processor[:3] + "000"

    def usage(self, **changed: int) -> Usage:
        """Return the figures of a kernel that keeps every limit, but for those that are changed."""
        return Usage(
            symbol="k", target=self.arch.target_ids[0], scratch_bytes=0, scratch_ops=0, figures={**FITTING, **changed}
        )

    def refusals(self, usage: Usage, spec: Spec | None = None) -> tuple[Refusal, ...]:
        """Return what the arch's gate says of figures."""
        return tuple(self.plugin.kinfolk_gate_resources(usage=usage, spec=spec or Spec(), arch=self.arch))

    def edges(self) -> dict[str, tuple[Usage, Usage]]:
        """Return per limit the last figures that it lets pass and the first that it does not."""
        facts, good = self.arch, self.usage()
        registers = facts.vgprs_per_wave // 2
        hidden = (KernelArgument(offset=32, size=4, kind="hidden_block_count_x"),)
        figures = {
            "parked": (0, 1),
            "lds_bytes": (facts.lds_bytes, facts.lds_bytes + 1),
            "waves_per_simd": (1, 0),
            "workgroups_per_cu": (1, 0),
        }
        found = {name: tuple(self.usage(**{name: value}) for value in both) for name, both in figures.items()}
        found["vgpr"] = tuple(self.usage(vgpr=registers, agpr=registers + more) for more in (0, 1))
        found["block"] = tuple(self.usage(max_flat_workgroup_size=facts.max_workgroup_size + more) for more in (0, 1))
        found["hidden_arguments"] = good, attrs.evolve(good, hidden=hidden)
        found["target"] = attrs.evolve(good, target=f"{good.target}:xnack-"), attrs.evolve(good, target=self.another())
        return {f"amdgcn.resources.{name}": (within, beyond) for name, (within, beyond) in found.items()}

    # Names and facts.

    def test_the_names_agree(self) -> None:
        assert self.arch.name == self.plugin.name
        offered = distribution(self.plugin.distribution).entry_points.select(group="kinfolk.archs")
        assert self.plugin.name in offered.names
        assert [str(parse_target_id(each)) for each in self.arch.target_ids] == list(self.arch.target_ids)
        for hook in ("kinfolk_arch", "kinfolk_gate_resources"):
            assert getattr(self.plugin, hook).kinfolk_impl, f"{hook} is not marked, so it would not be asked"

    def test_facts_are_what_is_published(self) -> None:
        assert self.published, "compare facts with a document, not with themselves"
        assert {name: self.arch.fact(name) for name in self.published} == dict(self.published)

    def test_the_facts_agree_with_each_other(self) -> None:
        arch = self.arch
        assert arch.max_workgroup_size % arch.wave_size == 0
        assert arch.vgprs_per_simd % arch.vgpr_granule == 0 and arch.vgprs_per_wave <= arch.vgprs_per_simd
        assert arch.plain_vgprs_per_wave <= arch.vgprs_per_wave
        assert arch.lds_bytes % arch.lds_granule == 0 and arch.lds_offset_limit < 2**16
        assert arch.lds_banks * arch.lds_bank_bytes == arch.lds_bytes_per_clock

    def test_a_fact_that_is_not_declared_says_what_there_is(self) -> None:
        with pytest.raises(UnknownFact, match=r"declares no fact 'cus'; it declares: .*compute_units"):
            self.arch.fact("cus")

    @pytest.mark.parametrize("missing", FACTS_READ)
    def test_a_fact_that_the_toolkit_reads_is_missed_by_name(self, missing: str) -> None:
        facts = {name: value for name, value in self.plugin.facts.items() if name != missing}
        with pytest.raises(PluginError, match=rf"does not declare the fact {missing}; .* takes (an int|'cdna3')"):
            _ = attrs.evolve(self.plugin, facts=facts).arch

    @pytest.mark.parametrize("name", FACTS_READ)
    def test_a_fact_of_a_value_that_is_not_allowed_is_refused_by_name(self, name: str) -> None:
        for value in (0, -1, True, "other", ""):
            facts = {**self.plugin.facts, name: value}
            with pytest.raises(PluginError, match=rf"declares the fact {name} = {value!r}; .* takes (an int|'cdna3')"):
                _ = attrs.evolve(self.plugin, facts=facts).arch

    def test_registers_bound_the_waves_as_llvm_says(self) -> None:
        limits = wave_limits(self.arch)
        assert {count: limits.waves_per_simd(count, 0) for count in self.occupancy} == dict(self.occupancy)

    def test_accumulation_registers_begin_at_a_multiple_of_the_granule(self) -> None:
        limits, granule = wave_limits(self.arch), self.arch.accum_granule
        half = self.arch.vgprs_per_simd // 4  # two waves have it twice
        assert limits.waves_per_simd(half - granule + 1, half) == 2
        assert limits.waves_per_simd(half - granule + 1, half + 1) == 1

    def test_workgroup_memory_is_dealt_in_granules(self) -> None:
        limits, granule = wave_limits(self.arch), self.arch.lds_granule
        quarter = self.arch.lds_bytes // granule // 4 * granule
        assert limits.workgroups_per_cu(8, 4, quarter) == 4
        assert limits.workgroups_per_cu(8, 4, quarter + 1) == 3

    # Gates.

    def test_every_limit_is_tested_at_its_edge(self) -> None:
        assert {limit.code for limit in LIMITS} | {"amdgcn.resources.target"} == self.edges().keys()

    @pytest.mark.parametrize("code", [*(limit.code for limit in LIMITS), "amdgcn.resources.target"])
    def test_a_limit_holds_up_to_its_edge_and_says_why_beyond(self, code: str) -> None:
        within, beyond = self.edges()[code]
        assert self.refusals(within) == ()
        [refusal] = self.refusals(beyond)
        assert (refusal.code, refusal.kind, refusal.plugin) == (code, "cannot", self.plugin.distribution)
        assert refusal.limit and refusal.because and refusal.remedy

    def test_parked_values_need_a_declared_reason_and_it_excuses_nothing_else(self) -> None:
        assert "reason_for" in self.refusals(self.usage(parked=7))[0].remedy
        assert self.refusals(self.usage(parked=7), Excused()) == ()
        [refusal] = self.refusals(self.usage(parked=7, lds_bytes=self.arch.lds_bytes + 1), Excused())
        assert refusal.field == "lds_bytes"

    def test_all_refusals_are_given_at_once_with_their_numbers(self) -> None:
        most = self.arch.lds_bytes
        found = self.refusals(self.usage(lds_bytes=most + 8, waves_per_simd=0, workgroups_per_cu=0))
        assert [refusal.field for refusal in found] == ["lds_bytes", "waves_per_simd", "workgroups_per_cu"]
        assert f"lds_bytes is {most + 8}, supported: at most {most}" in str(found[0])

    # Kernels to their code objects.

    def test_a_copy_under_another_name_is_written_alike(self) -> None:
        copy = attrs.evolve(self.arch, name="another")
        assert copy.lower(row_kernel(copy), None, 22).text == self.arch.lower(row_kernel(self.arch), None, 22).text

    def test_more_workgroup_memory_than_there_is_is_refused(self) -> None:
        most = self.arch.lds_bytes
        with pytest.raises(IRError, match=f"{self.arch.name} has at most {most}"):
            self.arch.lower(filling_kernel(self.arch, most // 4 + 1), None, 22)

    @pytest.mark.compile
    def test_all_of_the_workgroup_memory_can_be_had(self, llvm: Llvm) -> None:
        most = self.arch.lds_bytes
        found = self.arch.usage(llvm.object(self.arch.lower(filling_kernel(self.arch, most // 4), None, 22)), "fill")
        assert (found.figure("lds_bytes"), found.figure("workgroups_per_cu")) == (most, 1)
        assert self.refusals(found) == ()

    @pytest.mark.compile
    def test_code_is_walked_where_the_arch_has_formats_that_are_known(self, llvm: Llvm) -> None:
        code = llvm.object(self.arch.lower(storing_kernel(self.arch), None, 22))
        assert self.arch.usage(code, "one_store").scratch_ops == 0
        unknown = attrs.evolve(self.arch, facts=dict(self.plugin.facts) | {"microcode_formats": "other"})
        with pytest.raises(CodeObjectError, match=r"if it were for a processor whose encodings are known"):
            unknown.usage(code, "one_store")
        another = attrs.evolve(self.arch, target_ids=(self.another(),))
        with pytest.raises(CodeObjectError, match=f"if it were for {self.another()}"):
            another.usage(code, "one_store")

    @pytest.mark.compile
    def test_a_row_kernel_compiles_without_scratch_and_within_its_budget(self, llvm: Llvm) -> None:
        found = self.arch.usage(llvm.object(self.arch.lower(row_kernel(self.arch), None, 22)), "row_sums")
        assert (found.scratch_bytes, found.scratch_ops, found.figure("parked")) == (0, 0, 0)
        assert found.target == self.arch.target_ids[0]
        assert found.figure("kernarg_bytes") == sum(argument.size for argument in found.arguments) == 20
        assert [argument.kind for argument in found.arguments] == ["pointer", "pointer", "value"]
        assert found.hidden == ()
        assert found.figure("lds_bytes") == 16
        assert found.figure("waves_per_simd") == self.arch.max_waves_per_simd
        assert found.figure("max_flat_workgroup_size") == 256
        assert self.refusals(found) == ()

    @pytest.mark.compile
    def test_the_row_kernel_has_no_loop_and_no_waterfall(self, llvm: Llvm) -> None:
        assembly = llvm.assembly(self.arch.lower(row_kernel(self.arch), None, 22))
        assert len(re.findall("v_exp_f32", assembly)) == 8
        labels = re.findall(r"^\.LBB\d+_\d+:", assembly, re.MULTILINE)
        branches = re.findall(r"s_c?branch\w* \.LBB\d+_\d+", assembly)
        positions = {label[:-1]: assembly.index(f"\n{label}") for label in labels}
        assert all(assembly.index(branch) < positions[branch.split()[-1]] for branch in branches), "a branch goes back"
