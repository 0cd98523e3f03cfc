"""What gfx942 has beyond the ops of every AMD arch: loads to workgroup memory of 4 bytes a lane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kinfolk.ir.op import OpDef
from kinfolk_amdgcn import ops
from kinfolk_amdgcn.staging import staging_ops

STAGE_VIEW, STAGE, WAIT_STAGED = staging_ops(
    "gfx942",
    (4,),
    "AMD Instinct MI300 Instruction Set Architecture, BUFFER_LOAD_DWORD with LDS and GLOBAL_LOAD_LDS_DWORD",
)

OPS: Final = (*ops.OPS, STAGE_VIEW, STAGE, WAIT_STAGED)
ROLES: Final[Mapping[str, OpDef]] = {
    "stage_4": STAGE,
    "stage_view_4": STAGE_VIEW,
    "wait_staged": WAIT_STAGED,
    "lane_again": ops.LANE_AGAIN,
    "pin": ops.PIN,
}
