"""What a compiled kernel may take for as many workgroups of it to share a compute unit as its schedule counts on."""

from __future__ import annotations

from kinfolk.expr import ceil_div, fact, field
from kinfolk.refusal import Limit


def budget_limits(code: str, workgroups_per_cu: int, waves: int, remedy: str) -> tuple[Limit, ...]:
    """Return the limits of registers and occupancy.

    A wave has its share of the registers of a SIMD, on which the waves of all workgroups are spread evenly.
    """
    waves_per_simd = ceil_div(workgroups_per_cu * waves, fact("simds_per_cu"))
    return (
        Limit(
            f"{code}.resources.vgpr",
            "cannot",
            "vgpr",
            field("vgpr") + field("agpr") <= fact("vgprs_per_simd") // waves_per_simd,
            because=f"{workgroups_per_cu} workgroups of {waves} waves share the registers of a compute unit",
            remedy=remedy,
            takes="at most a wave's share of the arch's vgprs_per_simd with the agpr added",
        ),
        Limit(
            f"{code}.resources.workgroups_per_cu",
            "cannot",
            "workgroups_per_cu",
            field("workgroups_per_cu") >= workgroups_per_cu,
            because="the schedule counts on that many workgroups to hide each other's waits",
            remedy=remedy,
        ),
    )
