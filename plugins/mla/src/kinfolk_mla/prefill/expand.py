"""Keys and values of a head out of latent rows: expanded' = W' C', columns of the head as rows, keys as columns.

A wave's latent rows are the second operand and stay in registers; weights are staged by all waves, two tiles in
workgroup memory, and read transposed. What a lane ends up with are neighbouring columns of one key.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from functools import cached_property
from typing import TYPE_CHECKING

import attrs
import numpy as np

from kinfolk.ir import build_kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory, vector
from kinfolk.ir.types import F32, I32, VectorType
from kinfolk.ir.value import Kernel, Value
from kinfolk.tile.contraction import Contraction
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.layout import per_lane
from kinfolk.tile.paging import Page
from kinfolk.tile.state import branch, loop
from kinfolk.tile.timeline import Round, Section, Stream
from kinfolk.tile.transposed import TransposedOperand
from kinfolk.tile.widen import widened
from kinfolk.tile.workgroup_tile import WorkgroupTile
from kinfolk_mla.prefill.batch import Sequence, wide
from kinfolk_mla.prefill.geometry import FRAGMENTS, Geometry, store_columns

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_mla.prefill.spec import MlaExpandSpec


def emit_expand(spec: MlaExpandSpec, arch: Arch) -> Kernel:
    """Build the kernel of `spec`: a workgroup for a head, a block of keys and a sequence."""
    geometry = Geometry.of(spec, arch)

    def body(*parameters: Value) -> None:
        arguments = Arguments(*parameters)
        sequence = Sequence.of(arguments, geometry)
        first = lanes.block_id(axis=1, below=spec.most_blocks) * spec.block
        expansion = Expansion.of(spec, arguments, sequence, first)

        def expand() -> tuple[()]:
            expansion.run()
            return ()

        control.if_else((sequence.queries > 0) & (first < sequence.length), expand)

    attributes = {"workgroups_per_cu": spec.workgroups_per_cu, "accumulators": "either"}
    return build_kernel(
        spec.symbol(), spec.parameters(), arch=arch, block=geometry.threads, attributes=attributes, body=body
    )


@attrs.frozen(eq=False)
class Arguments:
    """The kernel's parameters as values, in declared order."""

    c_kv: Value
    w_ukv: Value
    cu_seqlens_q: Value
    cu_seqlens_k: Value
    block_table: Value
    status: Value
    expanded: Value
    block_table_stride: Value
    num_pages: Value
    page_shift: Value
    total_q: Value
    max_seqlen_k: Value
    first_head: Value
    group_heads: Value


@attrs.frozen(eq=False, slots=False)
class Expansion:
    """The keys of a workgroup from `first` on, its wave's first key `first_key`, and the tiles of weights."""

    spec: MlaExpandSpec
    arguments: Arguments
    sequence: Sequence
    first_key: Value
    latent: Contraction
    tile: WorkgroupTile
    operand: TransposedOperand

    @classmethod
    def of(cls, spec: MlaExpandSpec, arguments: Arguments, sequence: Sequence, first: Value) -> Expansion:
        """Reserve workgroup memory for two tiles of weights, and lay out the product."""
        geometry = sequence.geometry
        shape = geometry.atom.shape
        latent = geometry.contraction(shape.k // shape.b.slots * geometry.vector)
        rows = np.zeros(shape.k, np.int64)
        rows[shape.b.rows] = latent.start_b[:, None] + np.arange(shape.b.slots)
        tile = WorkgroupTile.allocate(geometry.element, 2 * spec.weight_rows, spec.head_width, geometry.padding)
        operand = TransposedOperand.of(tile, shape, rows=rows, side_by_side=FRAGMENTS)
        first_key = first + lanes.wave_id() * spec.atom
        return cls(spec, arguments, sequence, first_key, latent, tile, operand)

    @property
    def chunks(self) -> int:
        """How many tiles of weights a product takes."""
        return self.spec.latent_width // self.spec.weight_rows

    def run(self) -> None:
        """Load the latent rows, count the pages that are not there, form keys and values."""
        pages = self._pages()
        latent = self._latent(pages)
        self._count(pages)
        zero = constant(0, I32)
        self._store(0, self._load(zero, 0))
        control.barrier()
        loop(0, 2, (), lambda half, _: self._half(half, latent))

    def _pages(self) -> list[Page]:
        """Return the parts of pages of the wave's keys."""
        table, first = self.sequence.pages(), self.first_key // self.spec.part
        parts = [first + part if part else first for part in range(self.sequence.geometry.parts)]
        found = [table.lookup(part) for part in parts]
        return [table.resolve(identifier, part) for identifier, part in zip(found, parts, strict=True)]

    def _latent(self, pages: Many[Page]) -> list[Value]:
        """Load this lane's part of one key's latent row; of keys that are not there it is 0."""
        spec = self.spec
        keys = per_lane(self.sequence.geometry.atom.shape.b.columns, "the key of a latent element")
        start = lane_index(keys % spec.part * spec.latent_width + self.latent.start_b)
        reads = range(0, spec.latent_width, self.latent.length)

        def load(page: Page) -> list[Value]:
            view = page.view(self.arguments.c_kv, spec.latent_width, spec.part)
            return [memory.view_load(view, start + column, count=self.latent.width) for column in reads]

        low, high = pages
        loaded = branch(lane_index(keys // spec.part).eq(0), lambda: load(low), lambda: load(high))
        return [widened(each, self.sequence.geometry.element) for each in loaded]

    def _count(self, pages: Many[Page]) -> None:
        """Add the slots that name no page to the status word: once, for the first head."""
        table, first = self.sequence.pages(), self.first_key // self.spec.part
        refused = constant(0, I32)
        for part, page in enumerate(pages):
            place = first + part if part else first
            missing = page.rows.eq(0) & (place < table.tiles) & table.opens(place)
            refused = refused + convert.zext(missing, to=I32)

        def count() -> tuple[()]:
            memory.atomic_add(self.arguments.status, refused)
            return ()

        control.if_else((refused > 0) & self.sequence.head.eq(0) & lanes.lane_id().eq(0), count, cold=True)

    @cached_property
    def _vectors(self) -> int:
        """Vectors of a row of weights, one a thread."""
        return self.spec.head_width // self.sequence.geometry.vector

    @property
    def _rows_at_once(self) -> int:
        return self.sequence.geometry.threads // self._vectors

    def _load(self, half: Value, chunk: int) -> list[Value]:
        """Ask for this thread's part of a tile of weights."""
        spec, width = self.spec, 2 * self.spec.head_width
        elements = spec.latent_width * width
        head = memory.offset(self.arguments.w_ukv, wide(self.sequence.head) * elements)
        view = memory.bound(head, constant(elements, I32))
        thread = lanes.thread_id()
        column = thread % self._vectors * self.sequence.geometry.vector
        place = thread // self._vectors * width + column + half * spec.head_width
        rows = range(chunk * spec.weight_rows, (chunk + 1) * spec.weight_rows, self._rows_at_once)
        return [memory.view_load(view, place + row * width, count=self.sequence.geometry.vector) for row in rows]

    def _store(self, slot: int, loaded: Many[Value]) -> None:
        """Write this thread's part of a tile of weights."""
        thread, vector_ = lanes.thread_id(), self.sequence.geometry.vector
        index = thread // self._vectors * self.tile.pitch + thread % self._vectors * vector_
        for piece, value in enumerate(loaded):
            self.tile.store(index, value, vector_, row=slot * self.spec.weight_rows + piece * self._rows_at_once)

    def _half(self, half: Value, latent: Many[Value]) -> tuple[()]:
        """Form the keys, or the values, and write them; after its last tile of weights comes the other half's first."""
        zero = constant(0.0, VectorType(F32, self.sequence.geometry.atom.shape.c.slots))
        found = [zero] * FRAGMENTS
        for chunk in range(self.chunks):
            last = chunk + 1 == self.chunks
            after = arithmetic.smin(half + 1, constant(1, I32)) if last else half
            loaded = self._load(after, (chunk + 1) % self.chunks)
            found = self._with_product(chunk, latent, found)
            self._store((chunk + 1) % 2, loaded)
            control.barrier()
        keys = lane_index(per_lane(self.sequence.geometry.atom.shape.c.columns, "the key of an element"))
        first, _ = self.operand.columns_of_result()
        rows = self.sequence.rows(half, self.first_key, self.spec.atom)
        index = keys * self.spec.head_width + lane_index(first)
        store_columns(rows, index, self.operand, self.sequence.geometry.element, found)
        return ()

    def _with_product(self, chunk: int, latent: Many[Value], before: list[Value]) -> list[Value]:
        """Return the accumulators, one a fragment, with the product with a tile of weights added, if there are keys."""
        has_keys = self.first_key < self.sequence.length
        return branch(has_keys, lambda: self._multiplied(chunk, latent, before), lambda: before)

    def _multiplied(self, chunk: int, latent: Many[Value], before: Many[Value]) -> list[Value]:
        found = list(before)
        reads, steps = FRAGMENTS // self.operand.fragments_per_read, self.latent.steps
        address = self.operand.address()
        first = chunk * self.spec.weight_rows // self.latent.length
        slots = self.latent.slots

        def read(unit: int) -> list[Value]:
            step, number = divmod(unit, reads)
            row = chunk % 2 * self.spec.weight_rows + step // steps * self.latent.length + step % steps * slots
            return self.operand.read(address, number, row=row)

        def use(unit: int, rows: Many[Value]) -> None:
            step, number = divmod(unit, reads)
            operand_b = vector.slice_(latent[first + step // steps], step % steps * slots, slots)
            for fragment, operand_a in enumerate(self.operand.fragments(rows)):
                place = number * self.operand.fragments_per_read + fragment
                found[place] = self.sequence.geometry.atom(operand_a, operand_b, found[place])

        units = self.spec.weight_rows // self.latent.length * steps * reads
        stream = Stream(read=read, ahead=self.spec.read_ahead)
        Round(sections=[Section(units=units, use=use, streams=(stream,))]).lay_out()
        return found
