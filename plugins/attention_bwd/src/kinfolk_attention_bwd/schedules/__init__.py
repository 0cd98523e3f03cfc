"""Schedules that `kinfolk tune` found, a file per target and LLVM generation, and how candidates read them."""

from __future__ import annotations

from typing import Final

from kinfolk.schedule import ScheduleTable

SCHEDULES: Final = ScheduleTable.of_package("kinfolk_attention_bwd")
