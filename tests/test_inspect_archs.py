"""Machine facts that are told in two places agree: passes of an arch's matrix table, and those of an instruction."""

from __future__ import annotations

import pytest

from kinfolk.plugins.composition import arch_of
from kinfolk.plugins.loading import load
from kinfolk_amdgcn.machine import costs


@pytest.mark.parametrize("name", ["gfx942", "gfx950"])
def test_every_atom_of_an_arch_has_the_passes_that_its_shape_and_types_give(name):
    arch = arch_of(load("arch", name))
    atoms = {f"v_{atom.op.name.partition('.')[2]}": atom.passes for atom in arch.matrix}
    assert len(atoms) > 3
    assert {opcode: costs._passes(opcode, "") for opcode in atoms} == atoms
    assert arch.machine is not None and arch.machine.simds == arch.simds_per_cu
