"""Rounds over tiles that meet a wave's own rows: gradients of keys and values and of queries go by the same stages.

Of a tile's rows x and the wave's own rows r there are two products: scores, from the first tensors of both, and dP - D
from the second ones, as they begin at -D, minus the row's sum of o * dout. With P = exp2(score + term) the gradients of
scores are dS = P (dP - D); sums over the tile are of columns of it times P or dS, which lanes hold as operands already.

A tile's rows go by in groups. The probabilities of a group are formed beside its second products, its gradients beside
whatever follows; sums come last. Meanwhile the next tile is loaded and written to workgroup memory.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Generic

import attrs

from kinfolk.ir.builder import op_in_role
from kinfolk.ir.ops import control
from kinfolk.ir.value import Value
from kinfolk.tile.attention.frame import Frame
from kinfolk.tile.attention.values import Values
from kinfolk.tile.rotation import Rotation
from kinfolk.tile.runs import Run, walk
from kinfolk.tile.slots import round_of
from kinfolk.tile.timeline import Job, Meeting, Read, Round, Section, Spread, Stream, Use, first_reads
from kinfolk_attention_bwd.formed import Formed, Meets, Place, State, begun
from kinfolk_attention_bwd.products import Own, RowProducts, zeros
from kinfolk_attention_bwd.streamed import Rings, Streamed

if TYPE_CHECKING:
    from kinfolk_attention_bwd.spec import GradientSpec

GROUP_ROWS: Final = 32
"""Rows of a tile whose products are formed together, and whose columns are read together."""
_MEETING: Final = Rotation(slots=2, reads=(0, 1), writes=(1,))
"""What a barrier parts, of one image or of both: what is read before it from what is read behind it and written."""


@attrs.frozen(eq=False)
class Rounds(Generic[Place]):
    """The stages and what they share. `second_weighs`: sums of the second tensor's columns times P come before those of
    the first's times dS.
    """

    spec: GradientSpec
    frame: Frame
    rings: Rings
    tensors: tuple[Streamed, Streamed]
    rows: tuple[RowProducts, RowProducts]
    own: tuple[Own, Own]
    scale_log2: Value
    meets: Meets[Place]
    second_weighs: bool

    @property
    def group_blocks(self) -> int:
        """How many blocks of the tile a group has."""
        return GROUP_ROWS // self.spec.atom

    @property
    def groups(self) -> int:
        """How many groups a tile has."""
        return self.spec.tile_rows // GROUP_ROWS

    @property
    def summed(self) -> list[Streamed]:
        """The tensors whose columns are added up, in order."""
        return [self.tensors[1], self.tensors[0]] if self.second_weighs else [self.tensors[0]]

    def walked(self, place: Place, runs: Many[Run]) -> list[list[list[Value]]]:
        """Walk the runs from the tile at `place` on; return the sums: of P columns first, by block of the wave's rows
        and fragment.
        """
        state = _held(self._start(place))
        for run in runs:
            state = _held(walk((run,), state, self._round))
        return state.sums

    def _start(self, place: Place) -> State[Place]:
        """Stage the first tile."""
        slot, columns = self.rings.rows.begin, self.rings.columns
        loaded, terms = (list[Value](), list[Value]()), list[Value]()
        do([*self.meets.loads(place, loaded), *self.meets.term_loads(place, terms)])
        for tensor, vectors in zip(self.tensors, loaded, strict=True):
            do(tensor.row_stores(slot, vectors))
        control.barrier()
        reads = [value for read in first_reads(self._row_stream(0, slot, 0)) for value in read]
        sums = [
            [[zeros(self.frame)] * columns_of(each).fragments for _ in range(self.spec.blocks)] for each in self.summed
        ]
        kept = (list[Value](), list[Value]()) if columns is None else loaded
        return State(slot, None if columns is None else columns.begin, place, reads, terms, kept, sums)

    def _round(self, index: Value, state: State[Place], masked: bool) -> State[Place]:
        rings = self.rings
        with ExitStack() as stack:
            rows = stack.enter_context(round_of(rings.row_rotation, rings.rows, state.row_slot))
            if rings.columns is None or state.column_slot is None:
                return self._laid_out(state, rows.ahead(1), None, masked)
            columns = stack.enter_context(round_of(rings.column_rotation, rings.columns, state.column_slot))
            return self._laid_out(state, rows.ahead(1), columns.ahead(1), masked)

    def _laid_out(
        self, state: State[Place], next_slot: Value, next_columns: Value | None, masked: bool
    ) -> State[Place]:
        """Form all of a tile's products, then add its columns up, while the next tile is loaded and written."""
        following = self.meets.after(state.place)
        loaded, terms = (list[Value](), list[Value]()), list[Value]()
        loads = [*self.meets.loads(following, loaded), *self.meets.term_loads(following, terms)]
        stores = [
            job
            for tensor, vectors in zip(self.tensors, loaded, strict=True)
            for job in tensor.row_stores(next_slot, vectors)
        ]
        formed = begun(self, state, masked)
        sums = [[list(block) for block in each] for each in state.sums]
        sections = self._sum_sections(formed, state, sums, stores)
        carried = Round(
            sections=self._product_sections(formed, state, loads),
            carried=[[read] for read in state.reads],
            following=attrs.evolve(sections[0].streams[0], tile=1),
            meeting=None if next_columns is None else self._meeting(),
        ).lay_out()
        ahead = self._row_stream(0, next_slot, 0, tile=1)
        reads = Round(sections=sections, carried=carried, following=ahead, meeting=self._meeting()).lay_out()
        kept = (list[Value](), list[Value]()) if next_columns is None else loaded
        flat = [value for read in reads for value in read]
        return State(next_slot, next_columns, following, flat, terms, kept, sums)

    def _product_sections(self, formed: Formed[Place], state: State[Place], loads: Many[Job]) -> list[Section]:
        """Return the sections of both products of each group."""
        found: list[Section] = []
        for group in range(self.groups):
            first = group * self.group_blocks
            beside = [Spread(jobs=formed.gradient_jobs(group - 1))] if group else self._first_spreads(state, loads)
            for tensor, (totals, spreads) in enumerate(
                ((formed.scores, beside), (formed.products, [Spread(jobs=formed.probability_jobs(group))]))
            ):
                products = self.rows[tensor]
                found.append(
                    Section(
                        units=products.units(self.group_blocks),
                        use=products.use(self.own[tensor], totals[first : first + self.group_blocks]),
                        streams=(self._row_stream(tensor, state.row_slot, first),),
                        fence_every=self.spec.fence_every,
                        spreads=spreads,
                    )
                )
        return found

    def _first_spreads(self, state: State[Place], loads: Many[Job]) -> list[Spread]:
        """Return what stands beside the first products: the next tile's loads, and writes of this one's columns."""
        if state.column_slot is None:
            return [Spread(jobs=loads)]
        stores = [
            job
            for tensor, vectors in zip(self.tensors, state.loaded, strict=True)
            for job in tensor.column_stores(state.column_slot, vectors)
        ]
        return [Spread(jobs=stores, end=0.6, writes=1), Spread(jobs=loads, begin=0.5)]

    def _sum_sections(
        self, formed: Formed[Place], state: State[Place], sums: list[list[list[Value]]], stores: Many[Job]
    ) -> list[Section]:
        """Return the sections of all sums, by groups of the tile's rows; the next tile's rows are written in the last
        one.
        """
        slot = state.row_slot if state.column_slot is None else state.column_slot
        weights = [formed.p_operands, formed.ds_operands] if self.second_weighs else [formed.ds_operands]
        found: list[Section] = []
        for tensor, operands, totals in zip(self.summed, weights, sums, strict=True):
            values = columns_of(tensor)
            uses = [values.use(operand, total) for operand, total in zip(operands, totals, strict=True)]
            units = values.units // self.groups
            for group in range(self.groups):
                found.append(self._sum_section(uses, values.reads(slot), group * units, units))
        first, last = found[0], found[-1]
        beside = Spread(jobs=formed.gradient_jobs(self.groups - 1))
        found[0] = attrs.evolve(first, spreads=(beside, *first.spreads))
        found[-1] = attrs.evolve(last, spreads=(*found[-1].spreads, Spread(jobs=stores, writes=1)))
        return found

    def _sum_section(self, uses: Many[Use], read: Read, first: int, units: int) -> Section:
        def use(unit: int, values: Many[Value]) -> None:
            for each in uses:
                each(first + unit, values)

        stream = Stream(read=lambda unit: read(first + unit), ahead=self.spec.column_read_ahead, tile=0)
        return Section(units=units, use=use, streams=(stream,), fence_every=self.spec.fence_every)

    def _row_stream(self, tensor: int, slot: Value, first: int, tile: int = 0) -> Stream:
        return Stream(read=self.rows[tensor].reads(slot, first), ahead=self.spec.row_read_ahead, tile=tile)

    def _meeting(self) -> Meeting:
        return Meeting(rotation=_MEETING, units_after=self.spec.units_after_barrier)


def _held(state: State[Place]) -> State[Place]:
    """Return a state before or behind a loop: where sums lie in registers of matrix results, which a compiler that sees
    them begin as constants, and leave by a loop of other needs, may not see; it spills hundreds then.
    """
    pin = op_in_role("pin")
    if pin is None:
        return state
    return attrs.evolve(
        state, sums=[[[pin(each, register="accumulator") for each in block] for block in sums] for sums in state.sums]
    )


def columns_of(tensor: Streamed) -> Values:
    """Return the columns of a tensor that are added up."""
    assert tensor.columns is not None
    return tensor.columns


def do(jobs: Many[Job]) -> None:
    """Do jobs at once, in order."""
    for job in jobs:
        job()
