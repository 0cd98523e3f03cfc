"""Attention of few queries over a segment of paged keys: tiles go through registers, and waves meet once, at the end.

A wave has a ring of tiles on their way: what a round takes out of a tile's registers it fills again at once, with the
tile a ring's length further. Keys cross workgroup memory, a part that is the wave's own, so that each load is of whole
rows; values are transposed in registers.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir import build_kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, lanes, memory
from kinfolk.ir.types import F32, I32, SCALARS, VectorType
from kinfolk.ir.value import Kernel, Value
from kinfolk.tile.fused_softmax import FusedRow, FusedSoftmax
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.layout import per_lane
from kinfolk.tile.narrow import narrow_weights
from kinfolk.tile.reduction import across_lanes, in_lane
from kinfolk.tile.softmax import LOWEST, scale_accumulators
from kinfolk.tile.state import branch, flattened, rebuilt
from kinfolk.tile.transpose import transpose_16_bit
from kinfolk.tile.widen import widened
from kinfolk.tile.workgroup_tile import WorkgroupTile
from kinfolk_attention_fwd.bending import unit_scale
from kinfolk_attention_fwd.scores import mask_before
from kinfolk_attention_fwd.segmented.arguments import Arguments
from kinfolk_attention_fwd.segmented.bend import Bend
from kinfolk_attention_fwd.segmented.frame import Frame
from kinfolk_attention_fwd.segmented.merge import PAIR, Merge, store_pair
from kinfolk_attention_fwd.segmented.rows import Row, codes_of, kept, load_queries, words_of
from kinfolk_attention_fwd.segmented.tiles import PageTiles, Places, RowTiles, Tiles
from kinfolk_attention_fwd.segmented.work import Work

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_attention_fwd.segmented.spec import AttentionSegmentSpec


def emit_segment(spec: AttentionSegmentSpec, arch: Arch) -> Kernel:
    """Build the kernel of `spec`: a workgroup for a head of keys and rows of queries, a sequence, a segment."""
    frame = Frame.of(spec, arch)
    names = [parameter.name for parameter in spec.parameters()]

    def body(*parameters: Value) -> None:
        arguments = Arguments(**dict(zip(names, parameters, strict=True)))
        segment = Segment.of(Work.of(spec, arguments), frame)

        def attend() -> tuple[()]:
            control.if_else(segment.work.is_split & segment.work.is_empty, segment.nothing, segment.run)
            return ()

        control.if_else(segment.work.has_rows, attend)

    attributes = {"workgroups_per_cu": spec.workgroups_per_cu, "accumulators": "vgpr"}
    return build_kernel(
        spec.symbol(), spec.parameters(), arch=arch, block=spec.waves * spec.lanes, attributes=attributes, body=body
    )


@attrs.frozen(eq=False)
class Flight:
    """The registers of a tile that is on its way, 8-bit elements as words, and what must be known of it when it has
    come (`Tiles.sight`).
    """

    keys: list[Value]
    values: list[Value]
    sight: list[Value]


@attrs.frozen(eq=False)
class Sought:
    """What a lane has of rows of queries: one's elements as operands B, and what makes scores of another's products."""

    query: list[Value]
    bend: Bend


@attrs.frozen(eq=False)
class Round:
    """At the start of a tile's part: the ring, `words` of the tile that is asked for next, the page `identifiers` of
    tiles that nothing is written of yet, and the row with its output.
    """

    ring: list[Flight]
    words: Value
    identifiers: list[Value]
    row: FusedRow
    output: list[Value]


@attrs.frozen(eq=False)
class Segment:
    """The stages of the kernel and the values they share."""

    work: Work
    frame: Frame
    softmax: FusedSoftmax
    tiles: Tiles
    keys: WorkgroupTile
    key_store: tuple[Value, ...]
    key_load: Value
    places: Places
    seen: Value
    before: Value
    pairs: Value

    @classmethod
    def of(cls, work: Work, frame: Frame) -> Segment:
        """Reserve workgroup memory and find this lane's part of a tile."""
        spec, arguments = work.spec, work.arguments
        padding = spec.row_padding_bytes // frame.element.bytes
        pitch, rows = frame.padded_columns + padding, spec.waves * spec.tile_keys
        size = max(rows * pitch, Merge.piece_bytes(frame, spec.waves) // frame.element.bytes)
        keys = WorkgroupTile(memory.allocate(frame.element, size), frame.element, rows, frame.padded_columns, pitch)
        kind = PageTiles if spec.unit == spec.tile_keys else RowTiles
        words = memory.allocate(I32, spec.waves * kind.words_of_wave)
        own = lanes.wave_id() * (spec.tile_keys * pitch)
        key = frame.keys[:, 0]
        row = arguments.num_kv_heads * spec.head_size
        places: list[tuple[int, tuple[Value, ...]]] = []
        stores: list[Value] = []
        for stretch in frame.stretches:
            first = work.kv_head * spec.head_size + frame.start(stretch)
            if spec.unit == spec.tile_keys:
                first = lane_index(key) * row + first
                every = tuple(first + row * load if load else first for load in range(4))
            else:
                every = (first,) * 4
            places.append((stretch.width, every))
            stores.append(own + lane_index(key * pitch + frame.part * stretch.width))
        rows_read = per_lane(frame.score.shape.a.rows, "the key of an A element")
        lane_row = Row.of(work, lane_index(frame.column))
        return cls(
            work=work,
            frame=frame,
            softmax=FusedSoftmax.of(unit_scale(), frame.masks),
            tiles=kind.of(work, frame, words),
            keys=keys,
            key_store=tuple(stores),
            key_load=own + lane_index(rows_read * pitch + frame.first_read(frame.contraction.start_a)),
            places=tuple(places),
            seen=work.sequence.seen(lane_row.token, arguments.causal),
            before=work.sequence.before(lane_row.token, arguments.window_left),
            pairs=memory.allocate(F32, spec.waves * spec.columns * PAIR),
        )

    def nothing(self) -> tuple[()]:
        """Write that the segment has no key: nothing of it is read."""
        place = Row.of(self.work, lane_index(self.frame.column))

        def store() -> tuple[()]:
            store_pair(self.work, place, constant(LOWEST, F32), constant(0.0, F32))
            return ()

        control.if_else(place.exists, store)
        return ()

    def run(self) -> tuple[()]:
        """Walk the segment's tiles, put together what the waves have."""
        spec, tiles = self.work.spec, self.tiles
        zero, ahead = constant(0, I32), constant(tiles.covered, I32)
        query, bend = load_queries(self.work, self.frame), Bend.of(self.work, self.frame, tiles.number(zero))
        first, following = tiles.lookup(zero), tiles.lookup(ahead)
        tiles.describe(first, zero)
        sought = Sought(kept(query), bend.kept())
        control.schedule_fence()
        start = self._started(following)
        end = control.for_range(
            0,
            tiles.count,
            spec.ring,
            flattened(start),
            lambda tile, now: flattened(self._rounds(tile, rebuilt(start, now), sought)),
        )
        last = rebuilt(start, end)
        Merge(self.work, self.frame, self.softmax, self.pairs, self.keys.buffer).store(last.row, last.output)
        return ()

    def _started(self, following: list[Value]) -> Round:
        """Ask for the tiles of a ring, in the order in which rounds do."""
        spec, tiles = self.work.spec, self.tiles
        words = [tiles.read(constant(tile, I32)) for tile in range(spec.ring + 1)]
        ring: list[Flight] = []
        for tile in range(spec.ring):
            known = tiles.known(words[tile])
            keys = self._asked(self.work.arguments.k, known)
            control.schedule_fence()
            values = self._asked(self.work.arguments.v, known)
            control.schedule_fence()
            ring.append(Flight(keys, values, tiles.sight(known)))
        products = self.frame.value.shape.c.slots
        count = sum(stretch.width for stretch in self.frame.stretches)
        output = [constant(0.0, VectorType(F32, products))] * count
        return Round(ring, words[-1], following, self.softmax.start(), output)

    def _rounds(self, first: Value, now: Round, sought: Sought) -> Round:
        """Build as many tiles' parts as the ring is long."""
        for number in range(self.work.spec.ring):
            now = self._tile(first, number, now, sought)
        return now

    def _tile(self, first: Value, number: int, now: Round, sought: Sought) -> Round:
        """Take tile `first` + `number` out of its registers, and ask for the one that comes there next."""
        spec, arguments, flight = self.work.spec, self.work.arguments, now.ring[number]
        tile = first + number if number else first
        known = self.tiles.known(now.words)
        self._write_keys(self._come(flight.keys))
        control.schedule_fence()
        keys = self._asked(arguments.k, known)
        control.schedule_fence()
        identifiers = self._refilled(first, now.identifiers) if number + 1 == spec.ring else now.identifiers
        words = self.tiles.read(tile + (spec.ring + 1))
        scores = self._scores(tile, sought)
        control.schedule_fence()
        scores, row, output = self._raised(tile, flight.sight, scores, now.row, now.output)
        row, weights = self.softmax.weights(row, scores)
        assert isinstance(row, FusedRow)
        operand = narrow_weights(weights, self.frame.element)
        control.schedule_fence()
        output = self._added(self._come(flight.values), operand, output)
        control.schedule_fence()
        values = self._asked(arguments.v, known)
        control.schedule_fence()
        ring = [*now.ring]
        ring[number] = Flight(keys, values, self.tiles.sight(known))
        return Round(ring, words, identifiers, row, output)

    def _refilled(self, first: Value, identifiers: list[Value]) -> list[Value]:
        """Before the words of a first tile of as many as there are words of are read: write them, ask for more ids."""
        following = first + 2 * self.work.spec.ring

        def refill() -> list[Value]:
            self.tiles.describe(identifiers, following)
            control.schedule_fence()
            return self.tiles.lookup(following + self.tiles.covered)

        needed = (following & (self.tiles.covered - 1)).eq(0)
        return branch(needed, refill, lambda: identifiers, cold=True)

    def _asked(self, tensor: Value, known: Many[Value]) -> list[Value]:
        """Ask for this lane's part of a tile; 8-bit elements are words on their way."""
        found = self.tiles.asked(tensor, known, self.places)
        return list(map(words_of, found)) if self.frame.is_narrow else found

    def _come(self, vectors: Many[Value]) -> list[Value]:
        """Return what has come in the type of queries."""
        if not self.frame.is_narrow:
            return list(vectors)
        cache = SCALARS[self.work.spec.kv_dtype]
        return [widened(codes_of(each, cache), self.frame.element) for each in vectors]

    def _write_keys(self, keys: Many[Value]) -> None:
        loads = iter(keys)
        for stretch, index in zip(self.frame.stretches, self.key_store, strict=True):
            for load in range(4):
                self.keys.store(index, next(loads), stretch.width, row=load, column=stretch.first)

    def _scores(self, tile: Value, sought: Sought) -> list[Value]:
        """Return this lane's scores of a tile, whose keys are written."""
        atom, contraction = self.frame.score, self.frame.contraction
        total = constant(0.0, VectorType(F32, atom.shape.c.slots))
        columns = [number * self.frame.read_step for number in range(contraction.reads)]
        read = [self.keys.load(self.key_load, contraction.width, column=column) for column in columns]
        for keys, queries in zip(read, sought.query, strict=True):
            for a, b in zip(contraction.split(keys), contraction.split(queries), strict=True):
                total = atom(a, b, total)
        return sought.bend(self.frame.elements([total]), tile)

    def _raised(
        self, tile: Value, sight: list[Value], scores: list[Value], row: FusedRow, output: list[Value]
    ) -> tuple[list[Value], FusedRow, list[Value]]:
        """Mask the scores of a tile that is not seen whole, and raise the maxima where weights would be too large."""
        largest = in_lane(scores, arithmetic.fmax)
        needed = lanes.any_lane(self.softmax.exceeds(row, largest)) | self.tiles.is_partial(sight, tile)

        def cold() -> tuple[list[Value], FusedRow, list[Value]]:
            masked = self._masked(tile, sight, scores)
            own = across_lanes(in_lane(masked, arithmetic.fmax), self.softmax.masks, arithmetic.fmax)
            raised, factor = self.softmax.raise_maximum(row, own)
            assert isinstance(raised, FusedRow)
            return masked, raised, scale_accumulators(output, factor)

        return branch(needed, cold, lambda: (scores, row, output), cold=True)

    def _masked(self, tile: Value, sight: list[Value], scores: list[Value]) -> list[Value]:
        """Return the scores with -inf for keys that are not seen."""
        first, places = self.frame.score_keys
        own = self.tiles.number(tile) * self.work.spec.tile_keys + lane_index(first)
        keys = [constant(place, I32) for place in places]
        return mask_before(self.tiles.masked(sight, scores, self.seen, own), keys, self.before - own)

    def _added(self, values: Many[Value], weights: Value, output: Many[Value]) -> list[Value]:
        """Add a tile's weighted values."""
        found: list[Value] = []
        for number, _ in enumerate(self.frame.stretches):
            for fragment in transpose_16_bit(values[4 * number : 4 * number + 4]):
                found.append(self.frame.value(fragment, weights, output[len(found)]))
        return found
