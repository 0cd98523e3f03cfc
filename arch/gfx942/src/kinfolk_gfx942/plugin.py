"""gfx942 as core sees it: the arch, and what its compiled kernels may take."""

from __future__ import annotations

from typing import Final

from kinfolk_amdgcn.plugin import AmdPlugin
from kinfolk_gfx942.banks import BANKS
from kinfolk_gfx942.facts import FACTS
from kinfolk_gfx942.ops import OPS, ROLES

PLUGIN: Final = AmdPlugin(
    package="kinfolk_gfx942", name="gfx942", target_ids=("gfx942",), facts=FACTS, ops=OPS, roles=ROLES, banks=BANKS
)

kinfolk_arch = PLUGIN.kinfolk_arch
kinfolk_gate_resources = PLUGIN.kinfolk_gate_resources
