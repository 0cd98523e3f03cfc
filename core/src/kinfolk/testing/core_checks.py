"""The checks that core brings: those that neither compile nor run a kernel."""

from __future__ import annotations

from typing import Final

from kinfolk.testing.arch_checks import atoms, facts, lowerings, no_atoms, roles
from kinfolk.testing.check import Check
from kinfolk.testing.field_checks import strict_types
from kinfolk.testing.limit_checks import limits, refusals
from kinfolk.testing.operand_checks import no_operands, operands
from kinfolk.testing.purity_checks import purity
from kinfolk.testing.space_checks import analyses, determinism, identity, no_spec_fields, spec_fields, spec_space

CHECKS: Final = (
    Check(
        name="arch_facts",
        proves="every fact is a number, flag or word that expressions read; an unknown one says which there are",
        of="arch",
        run=facts,
    ),
    Check(
        name="arch_atoms",
        proves="lane maps of matrix atoms hold every element of A, B and C, each equally often",
        of="arch",
        run=atoms,
        applies=no_atoms,
    ),
    Check(
        name="arch_roles",
        proves="each role gives an op of the arch, or an error that says what there is instead",
        of="arch",
        run=roles,
    ),
    Check(
        name="arch_ops",
        proves="every op is lowered for every type it takes, by every flavor, or says what to use instead",
        of="arch",
        run=lowerings,
    ),
    Check(
        name="strict_types",
        proves="every field of request and specs takes exactly its type and range, and says so",
        run=strict_types,
    ),
    Check(
        name="limits",
        proves="at each declared limit, and one past it: refused, or planned and within what can be bound",
        run=limits,
    ),
    Check(
        name="refusals",
        proves="a refusal has code, field, value, limit, because and remedy, and its advice is admitted",
        run=refusals,
    ),
    Check(
        name="operands",
        proves="the tensors that a request declares are those that its plans bind, and state what it is",
        run=operands,
        applies=no_operands,
    ),
    Check(
        name="purity",
        proves="dispatch and emission touch no file, device, clock, chance or environment; answers are alike twice",
        run=purity,
    ),
    Check(
        name="spec_space",
        proves="plans of admitted requests name specs of their candidate's space alone, and each of them",
        run=spec_space,
    ),
    Check(
        name="identity",
        proves="equal specs emit equal kernels, different specs different ones, each under its own symbol",
        run=identity,
    ),
    Check(
        name="analyses",
        proves="ranges and alignments are proved; no dead parameter, unused load, unchecked index, divergent barrier",
        run=analyses,
    ),
    Check(
        name="spec_fields",
        proves="for each field of a spec, two specs that differ in it alone have different kernels",
        run=spec_fields,
        applies=no_spec_fields,
    ),
    Check(
        name="determinism",
        proves="kernels, plans and inputs are the same bytes in other processes, in another order, and again",
        run=determinism,
    ),
)
