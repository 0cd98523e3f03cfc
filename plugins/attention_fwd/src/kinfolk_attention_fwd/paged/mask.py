"""Which keys of a tile a query sees where pages of it may be missing."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, vector
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.paging import PageTable
from kinfolk.tile.softmax import mask_scores
from kinfolk_attention_fwd.scores import SeenKeys, mask_before

if TYPE_CHECKING:
    from kinfolk_attention_fwd.paged.spec import AttentionPagedSpec


@attrs.frozen(eq=False)
class PagedKeys:
    """That a lane's query sees the keys of `seen`, but for those of pages that are not there."""

    spec: AttentionPagedSpec
    seen: SeenKeys
    table: PageTable

    def ask(self, tile: Value) -> list[Value]:
        """As `kinfolk.tile.attention.ahead.Mask` says: the page ids of all parts of a tile."""
        first = tile * self.spec.tile_parts
        return [self.table.lookup(first + part if part else first) for part in range(self.spec.tile_parts)]

    def first(self, scores: list[Value], asked: Many[Value]) -> list[Value]:
        """As `Mask` says."""
        return self._masked(scores, asked, constant(0, I32))

    def following(self, scores: list[Value], asked: Many[Value], tile: Value) -> list[Value]:
        """As `Mask` says."""
        return self._masked(scores, asked, (tile + 1) * self.spec.tile_keys)

    def _masked(self, scores: Many[Value], asked: Many[Value], first_key: Value) -> list[Value]:
        """Return the scores of a tile with -inf for keys that are not seen, or not of a part's rows that there are.

        As in `SeenKeys`, keys are counted from a lane's first one.
        """
        tile, part = self.seen.scores, self.spec.part
        held = [self.table.rows_held(each) for each in asked]
        own = first_key + tile.first_key
        below, parts = self.seen.seen - own, tile.frame.atom.shape.c.rows // part
        found: list[Value] = []
        for block, block_scores in enumerate(scores):
            elements = tile.elements([block_scores])
            masked: list[Value] = []
            for number in range(tile.block_keys // part):
                slots = [slot for slot in range(parts.shape[1]) if parts[0, slot] == number]
                assert (parts[:, slots] == number).all() and slots == list(range(len(masked), len(masked) + len(slots)))
                first = block * tile.block_keys + number * part
                end = held[first // part] + first - tile.first_key
                places = [constant(tile.places[slot] + block * tile.block_keys, I32) for slot in slots]
                each = mask_scores([elements[slot] for slot in slots], places, arithmetic.smin(below, end))
                masked += each if self.seen.before is None else mask_before(each, places, self.seen.before - own)
            found.append(vector.pack(*masked))
        return found
