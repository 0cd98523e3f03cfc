"""The single-pass decode candidate."""

from __future__ import annotations

from typing import Final

from kinfolk.candidate import Candidate, Note
from kinfolk.expr import field, not_
from kinfolk.schedule import ScheduleSpace
from kinfolk_mla.decode.limits import CAPABILITY
from kinfolk_mla.decode.plan import decode_plan, decode_specs
from kinfolk_mla.schedules import SCHEDULES
from kinfolk_mla.spec import MlaDecodeSpec

DECODE: Final = Candidate(
    name="mla.decode",
    priority=5,
    plugin="kinfolk-mla",
    capability=CAPABILITY,
    plan=decode_plan,
    specs=decode_specs,
    min_llvm=20,
    schedules=(
        ScheduleSpace(
            spec=MlaDecodeSpec,
            values={
                "key_read_ahead": tuple(range(2, 9)),
                "query_read_ahead": (1, 2, 3),
                "value_read_ahead": tuple(range(1, 9)),
                "fence_every": (1, 2, 3, 4),
                "parked_query_reads": (2, 3, 4, 5, 6),
            },
            table=SCHEDULES,
        ),
    ),
    notes=(
        Note(
            "causal=False changes nothing: a sequence's only query is its last token and sees every key",
            when=not_(field("causal")),
        ),
    ),
)
