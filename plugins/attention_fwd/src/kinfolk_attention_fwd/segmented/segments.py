"""Into how many segments the keys of each sequence are divided, as expressions of a request.

As many as fill the compute units, but none with so few keys that a wave has no ring of tiles on its way; or as many as
the request asks for. Each sequence is divided by its own length: a short one has fewer that are not empty.
"""

from __future__ import annotations

from typing import Final

import attrs

from kinfolk.expr import Expr, all_of, ceil_div, fact, field, floor_div, maximum, minimum, not_, select
from kinfolk.remark import Remark
from kinfolk_attention_fwd.segmented.spec import AttentionSegmentSpec

HEADS_PER_KV: Final = floor_div(field("num_heads"), field("num_kv_heads"))
GROUPS: Final = ceil_div(field("max_seqlen_q") * HEADS_PER_KV, AttentionSegmentSpec.columns)
"""Workgroups that the rows of the longest sequence and a head of keys take."""
_WINDOW: Final = field("window_left") + field("max_seqlen_q")
SEEN: Final = select(field("window_left") < 0, field("max_seqlen_k"), minimum(field("max_seqlen_k"), _WINDOW))
"""Keys of the longest sequence that some query sees, at most."""


@attrs.frozen(kw_only=True)
class Segments:
    """The `count` of segments of each sequence.

    `fill` is how many would fill the `units` compute units, `workgroups` of which there are without any, `least` the
    keys of the shortest segment worth having.
    """

    units: Expr
    workgroups: Expr
    fill: Expr
    least: int
    count: Expr

    @classmethod
    def of(cls, spec: AttentionSegmentSpec) -> Segments:
        """Return the segments for a kernel of which so many workgroups run on a compute unit at once."""
        units = select(field("num_cus") > 0, field("num_cus"), fact("compute_units"))
        workgroups = maximum(GROUPS, 1) * field("num_kv_heads") * field("num_seqs")
        fill = units * spec.workgroups_per_cu // workgroups
        least = spec.waves * spec.ring * spec.tile_keys
        own = minimum(fill, SEEN // least, fact("max_grid_z"), spec.most_segments)
        count = maximum(select(field("num_seg") > 0, field("num_seg"), own), 1)
        return cls(units=units, workgroups=workgroups, fill=fill, least=least, count=count)

    @property
    def are_several(self) -> Expr:
        """Whether there is anything to put together."""
        return self.count > 1

    @property
    def kept(self) -> Expr:
        """How many segments the workspace holds: none where the only one writes the outputs itself."""
        return select(self.are_several, self.count, 0)

    def remarks(self) -> tuple[Remark, ...]:
        """Return how many segments there are and why, for people: one of these holds."""
        asked, several = field("num_seg") > 0, self.are_several
        fills = SEEN // self.least >= self.fill
        numbers = {"count": self.count, "units": self.units, "workgroups": self.workgroups}
        return (
            Remark("{count} segments of each sequence, as num_seg asks", asked, numbers),
            Remark(
                "{count} segments of each sequence: with them {workgroups} workgroups become as many as fill {units} "
                "compute units",
                all_of(not_(asked), several, fills),
                numbers,
            ),
            Remark(
                f"{{count}} segments of each sequence: more would have fewer than {self.least} keys each",
                all_of(not_(asked), several, not_(fills)),
                numbers,
            ),
            Remark(
                "one segment: {workgroups} workgroups leave no room for as many again on {units} compute units",
                all_of(not_(asked), not_(several), fills),
                numbers,
            ),
            Remark(
                f"one segment: two would have fewer than {self.least} keys each",
                all_of(not_(asked), not_(several), not_(fills)),
                numbers,
            ),
        )
