"""Keys and values out of latent rows in pages smaller than an atom: each lane finds the row that it takes part of."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from kinfolk.ir.builder import constant, current_builder
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory, vector
from kinfolk.ir.types import I1, I32, SCALARS
from kinfolk.ir.value import Value
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.layout import per_lane
from kinfolk.tile.paging import PageTable, Row
from kinfolk.tile.reduction import across_lanes
from kinfolk.tile.state import branch
from kinfolk.tile.widen import widened
from kinfolk_mla.prefill.expand import Expansion
from kinfolk_mla.prefill.spec import MlaGatheredExpandSpec


@attrs.frozen(eq=False)
class GatheredExpansion(Expansion):
    """The same over keys that lie one by one."""

    def latent(self) -> list[Value]:
        """Return this lane's part of one key's latent row; the first head's workgroups say what they found of keys."""
        spec, product = self._rows_spec, self.product.latent
        keys = lane_index(per_lane(self.sequence.geometry.atom.shape.b.columns, "the key of a latent element"))
        table, key = self.sequence.pages(self.arguments), self.first_key + keys
        row = table.row(table.lookup(key), key)
        columns = range(0, spec.latent_width, product.length)

        def load() -> list[Value]:
            first = memory.offset(row.pointer(self.arguments.c_kv, spec.latent_width), lane_index(product.start_b))
            return [self._vector(first, column, product.width) for column in columns]

        latent = branch(row.exists, load, lambda: [self._nothing(product.width)] * len(columns))

        def tell() -> tuple[()]:
            self._tell(row, key, keys, table)
            self._pass_rotated(table)
            return ()

        control.if_else(self.sequence.is_first_head, tell)
        return [widened(each, self.sequence.geometry.element) for each in latent]

    @property
    def _rows_spec(self) -> MlaGatheredExpandSpec:
        assert isinstance(self.spec, MlaGatheredExpandSpec)
        return self.spec

    def _vector(self, first: Value, column: int, width: int) -> Value:
        """Load neighbours of a row of the cache, which nothing writes meanwhile."""
        pointer = memory.offset(first, constant(column, I32)) if column else first
        alignment = width * SCALARS[self.spec.kv_dtype].bytes
        return memory.load(pointer, count=width, alignment=alignment, invariant=True)

    def _nothing(self, width: int) -> Value:
        """Return as many zeros of the cache's type."""
        return vector.splat(current_builder().constant_bits(0, SCALARS[self.spec.kv_dtype]), count=width)

    def _tell(self, row: Row, key: Value, place: Value, table: PageTable) -> None:
        """Write which of the wave's keys are there, and count the pages that are not."""
        spec, lane = self._rows_spec, lanes.lane_id()
        bit = convert.zext(row.exists, to=I32) << place
        masks = [1 << number for number in range((spec.word_keys - 1).bit_length())]
        combine: Callable[[Value, Value], Value] = lambda one, other: one | other  # noqa: E731
        word = across_lanes(bit, masks, combine)
        absent = arithmetic.xor(row.exists, constant(1, I1))
        refused = convert.zext(absent & (key < table.length) & table.opens(key), to=I32)
        words = self.sequence.words(self.gathered["present"], spec.word_keys, self.arguments.max_seqlen_k)

        def write() -> tuple[()]:
            memory.view_store(words, self.first_key // spec.word_keys, word)
            return ()

        def count() -> tuple[()]:
            memory.atomic_add(self.arguments.status, refused)
            return ()

        control.if_else(lane.eq(0), write)
        control.if_else((refused > 0) & (lane < spec.atom), count, cold=True)

    def _pass_rotated(self, table: PageTable) -> None:
        """Write the rotated parts of the wave's keys one after the other, widened; 0 for those that are not there."""
        spec, geometry, lane = self._rows_spec, self.sequence.geometry, lanes.lane_id()
        vectors = spec.rope_width // geometry.vector
        column = lane % vectors * geometry.vector
        target = self.sequence.shared_rows(self.gathered["rotated"], spec.rope_width, self.first_key, spec.atom)
        for first in range(0, spec.atom, geometry.wave_size // vectors):
            place = lane // vectors + first
            key = self.first_key + place
            row = table.row(table.lookup(key), key)

            def load(row: Row = row) -> list[Value]:
                pointer = row.pointer(self.gathered["k_rope"], spec.rope_width)
                return [self._vector(memory.offset(pointer, column), 0, geometry.vector)]

            [value] = branch(row.exists, load, lambda: [self._nothing(geometry.vector)])
            memory.view_store(target, place * spec.rope_width + column, widened(value, geometry.element))
