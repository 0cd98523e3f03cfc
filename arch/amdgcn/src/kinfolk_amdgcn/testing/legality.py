"""What an AMD arch owes of its table of legality: whole, in known words, and never behind its ops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest

from kinfolk.ir import build_kernel
from kinfolk.ir.ops import CORE_OPS, lanes, memory
from kinfolk.ir.types import F32, PointerType
from kinfolk.ir.value import Value
from kinfolk.parameters import Parameter
from kinfolk_amdgcn.legality import Legality, Statement
from kinfolk_amdgcn.legality.table import FILE, OK, STATUSES, TOOL
from kinfolk_amdgcn.legality.usage import candidates, statements_of
from kinfolk_amdgcn.ops import OPS
from kinfolk_amdgcn.plugin import AmdPlugin
from kinfolk_amdgcn.target import parse_target_id
from kinfolk_amdgcn.testing.llvm import Llvm

GENERATIONS = (20, 22)
REMEDY = f"run `python {TOOL}`"


class LegalityTests:
    """Subclass it as `TestLegality` with `plugin`, the module's `PLUGIN`, and `known`: statements by LLVM generation to
    the status that documents and release notes make one expect. `partly` are ops that the processor has for some types
    alone.
    """

    plugin: ClassVar[AmdPlugin]
    known: ClassVar[Mapping[tuple[str, int], str]]
    partly: ClassVar[frozenset[str]] = frozenset()

    @property
    def table(self) -> Legality:
        """The table in the arch's package."""
        return self.plugin.legality

    @property
    def processors(self) -> list[str]:
        """What the arch's target ids are for; kernels are compiled for the first."""
        return list(dict.fromkeys(parse_target_id(each).processor for each in self.plugin.arch.target_ids))

    def test_the_table_is_whole_and_in_words_that_are_explained(self) -> None:
        assert self.table.rows, f"the package has no {FILE}: {REMEDY}"
        assert set(self.table.tools) == {*(f"llvm{llvm}" for llvm in GENERATIONS), "assembler", "linker"}
        assert len({row.statement for row in self.table.rows}) == len(self.table.rows)
        assert {row.statement for row in self.table.rows} >= set(candidates()), REMEDY
        for row in self.table.rows:
            assert set(row.status) == set(GENERATIONS)
            for found in row.status.values():
                assert sorted(found) == sorted(self.processors), REMEDY
                assert {each.partition(":")[0] for each in found.values()} <= set(STATUSES)

    def test_what_is_known_of_the_processor_is_in_the_table(self) -> None:
        named = set(self.known.values())
        assert OK in named and named != {OK}, "name a call that the processor has, and one that it lacks"
        found = {(text, llvm): self.status(text, llvm) for text, llvm in self.known}
        assert found == dict(self.known)

    def status(self, text: str, llvm: int) -> str | None:
        """Return what the table says of a statement on the first processor."""
        row = self.table.find(Statement(text))
        return row and self.table.status(row, self.processors[0], llvm)

    def test_every_call_of_every_op_is_measured_and_legal(self) -> None:
        """What any op may write for any type stands in the table, for both LLVMs, and the processor has it."""
        arch = self.plugin.arch
        found = statements_of(arch, GENERATIONS, [row.statement for row in self.table.rows])
        for statement, users in found.items():
            row = self.table.find(statement)
            assert row is not None, f"{statement} is not in the table: {REMEDY}"
            for llvm, names in users.items():
                assert set(names) <= set(row.used_by.get(llvm, ())), f"{statement}: {REMEDY}"
                if has := [name for name in names if arch.has(name) and name not in self.partly]:
                    assert self.table.status(row, self.processors[0], llvm) == OK, (statement, has, llvm)
        collected = {op for users in found.values() for names in users.values() for op in names}
        assert {"core.exp2", "core.bound", "core.view_load", "core.shuffle_xor"} <= collected
        assert {atom.op.name for atom in arch.matrix} <= collected

    def test_the_arch_lacks_what_the_table_says_and_none_of_its_own_ops(self) -> None:
        arch, processor = self.plugin.arch, self.processors[0]
        names = [op.name for op in arch.op_table]
        assert dict(arch.lacking) == self.table.lacking(processor, names)
        own = {op.name for op in arch.op_table} - {op.name for op in (*CORE_OPS, *OPS)}
        assert not arch.lacking.keys() & own

    def test_a_computed_view_is_covered_too(self) -> None:
        """`core.bound` reads a computed base from the first lane, which is a call of its own."""
        arch = self.plugin.arch
        x = Parameter(name="x", type=PointerType(F32), access="readwrite", alignment=16)

        def body(pointer: Value) -> None:
            further = memory.offset(pointer, lanes.thread_id())
            memory.VIEW_STORE.add(memory.bound(further, lanes.wave_id()), lanes.thread_id(), memory.load(pointer))

        kernel = build_kernel("k", (x,), arch=arch, block=arch.wave_size, body=body)
        assert all("readfirstlane.p1" in arch.lower(kernel, None, llvm).text for llvm in GENERATIONS)

    @pytest.mark.compile
    @pytest.mark.parametrize("uniform", [False, True])
    def test_every_probe_is_ir_that_llvm_reads(self, llvm: Llvm, uniform: bool) -> None:
        """Compiled is each statement that is ok, in both forms: what fails elsewhere is not the probe's fault."""
        processor = self.processors[0]
        rows = [row for row in self.table.rows if self.table.status(row, processor, 22) == OK][:: 1 if uniform else 4]
        assert rows
        for row in rows:
            assembly = llvm.ask("assembly", row.statement.module(uniform=uniform), cpu=processor)
            assert "s_endpgm" in assembly, row.statement
