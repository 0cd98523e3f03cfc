"""Into how many segments the keys of each sequence are divided, as expressions of a request.

As many as fill the compute units, but each of enough tiles that what a workgroup does once is little beside them; or
as many as the request asks for. All have as many pages, whatever a sequence's own length: of a shorter one the last
ones have no keys.
"""

from __future__ import annotations

from typing import Final

import attrs

from kinfolk.expr import Expr, all_of, ceil_div, fact, field, maximum, minimum, not_, select
from kinfolk.remark import Remark
from kinfolk_mla.spec import MlaSpec

LEAST_TILES: Final = 32
"""Of how many tiles a segment has at least, where the request does not say how many segments there are."""


@attrs.frozen(kw_only=True)
class Segments:
    """How the keys of the longest sequence are divided among the kernels of a spec.

    `count` segments of `pages` pages as the kernel counts them, `keys` keys each; `fill` is how many would fill the
    `units` compute units, with the `workgroups` that are there without any, `tiles` how many tiles there are, `used`
    how many segments have keys of the longest sequence.
    """

    units: Expr
    workgroups: Expr
    fill: Expr
    tiles: Expr
    count: Expr
    pages: Expr
    keys: Expr
    used: Expr

    @classmethod
    def of(cls, spec: MlaSpec, workgroups_per_cu: int) -> Segments:
        """Return the segments for a kernel of which so many workgroups run on a compute unit at once."""
        units = select(field("num_cus") > 0, field("num_cus"), fact("compute_units"))
        rows = field("max_seqlen_q") * field("num_heads")
        workgroups = maximum(ceil_div(rows, spec.rows), 1) * field("num_seqs")
        fill = (units * workgroups_per_cu if workgroups_per_cu > 1 else units) // workgroups
        tiles = ceil_div(field("max_seqlen_k"), spec.tile_keys)
        own = minimum(fill, tiles // LEAST_TILES, fact("max_grid_z"))
        count = maximum(select(field("num_seg") > 0, field("num_seg"), own), 1)
        rounds = ceil_div(field("max_seqlen_k"), spec.tile_keys * spec.key_groups)
        pages = ceil_div(rounds, count) * (spec.tile_pages * spec.key_groups)
        keys = pages * spec.page_size
        used = ceil_div(field("max_seqlen_k"), maximum(keys, 1))
        return cls(
            units=units, workgroups=workgroups, fill=fill, tiles=tiles, count=count, pages=pages, keys=keys, used=used
        )

    @property
    def are_several(self) -> Expr:
        """Whether there is anything to combine."""
        return self.count > 1

    @property
    def kept(self) -> Expr:
        """How many segments the workspace holds: none where the only one writes the outputs itself."""
        return select(self.are_several, self.count, 0)

    def remarks(self) -> tuple[Remark, ...]:
        """Return how many segments there are and why, for people: one of these holds, and the last of all beside it
        where segments have no keys.
        """
        asked, several = field("num_seg") > 0, self.are_several
        fills = self.tiles // LEAST_TILES >= self.fill
        numbers = {"count": self.count, "keys": self.keys, "units": self.units, "workgroups": self.workgroups}
        each = "segments of {keys} keys"
        return (
            Remark(f"{{count}} {each}, as num_seg asks", asked, numbers),
            Remark(
                f"{{count}} {each}: with them {{workgroups}} workgroups become as many as fill {{units}} compute units",
                all_of(not_(asked), several, fills),
                numbers,
            ),
            Remark(
                f"{{count}} {each}: more would have fewer than {LEAST_TILES} tiles each",
                all_of(not_(asked), several, not_(fills)),
                numbers,
            ),
            Remark(
                "one segment: {workgroups} workgroups leave no room for as many again on {units} compute units",
                all_of(not_(asked), not_(several), fills),
                numbers,
            ),
            Remark(
                f"one segment: two would have fewer than {LEAST_TILES} tiles each",
                all_of(not_(asked), not_(several), not_(fills)),
                numbers,
            ),
            Remark(
                "{empty} of the segments are empty even of the longest sequence: {used} have all of its keys",
                all_of(several, self.used < self.count),
                {"empty": self.count - self.used, "used": self.used},
            ),
        )
