"""Keys and values of a head out of the latent rows of a paged cache."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Many
from typing import TYPE_CHECKING, Self

import attrs

from kinfolk.ir import build_kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import control, convert, lanes, memory
from kinfolk.ir.types import I32
from kinfolk.ir.value import Kernel, Value
from kinfolk.tile.attention.frame import store_columns
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.layout import per_lane
from kinfolk.tile.paging import Page
from kinfolk.tile.state import branch, loop
from kinfolk.tile.widen import widened
from kinfolk_mla.prefill.batch import Sequence
from kinfolk_mla.prefill.geometry import Geometry
from kinfolk_mla.prefill.spec import MlaGatheredExpandSpec
from kinfolk_mla.prefill.weights import LatentProduct, Weights

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_mla.prefill.spec import MlaExpandSpec


def emit_expand(spec: MlaExpandSpec, arch: Arch) -> Kernel:
    """Build the kernel of `spec`: a workgroup for a head, a block of keys and a sequence."""
    from kinfolk_mla.prefill.gathered import GatheredExpansion

    geometry = Geometry.of(spec, arch)
    kind = GatheredExpansion if isinstance(spec, MlaGatheredExpandSpec) else Expansion

    def body(*parameters: Value) -> None:
        given = dict(zip([each.name for each in spec.parameters()], parameters, strict=True))
        gathered = {each.name: given.pop(each.name) for each in spec.gathered_parameters()}
        arguments = Arguments(**given)
        sequence = Sequence.of(arguments, geometry)
        first = lanes.block_id(axis=1, below=spec.most_blocks) * spec.block
        expansion = kind.of(spec, arguments, sequence, first, gathered)

        def expand() -> tuple[()]:
            expansion.run()
            return ()

        control.if_else(sequence.has_queries & (first < sequence.length), expand)

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


@attrs.frozen(eq=False)
class Expansion:
    """The keys of a workgroup, of which `first_key` is the wave's first, and the product that they enter.

    `gathered` are the parameters of the kernel that finds rows one by one.
    """

    spec: MlaExpandSpec
    arguments: Arguments
    sequence: Sequence
    first_key: Value
    product: LatentProduct
    gathered: Mapping[str, Value]

    @classmethod
    def of(
        cls,
        spec: MlaExpandSpec,
        arguments: Arguments,
        sequence: Sequence,
        first: Value,
        gathered: Mapping[str, Value],
    ) -> Self:
        """Reserve workgroup memory for two tiles of weights, and lay out the product."""
        product = LatentProduct.of(Weights.of(spec, sequence.geometry, arguments.w_ukv, sequence.head))
        return cls(spec, arguments, sequence, first + lanes.wave_id() * spec.atom, product, gathered)

    def run(self) -> None:
        """Load the latent rows, count the pages that are not there, form keys and values."""
        latent = self.latent()
        self.product.begin(constant(0, I32))
        loop(0, 2, (), lambda half, _: self._half(half, latent))

    def latent(self) -> list[Value]:
        """Return this lane's part of one key's latent row; of keys that are not there it is 0."""
        pages = self._pages()
        latent = self._latent(pages)
        self._count(pages)
        return latent

    def _pages(self) -> list[Page]:
        """Return the parts of pages of the wave's keys."""
        table, first = self.sequence.pages(self.arguments), self.first_key // self.spec.part
        parts = [first + part if part else first for part in range(self.sequence.geometry.parts)]
        found = [table.lookup(part) for part in parts]
        return [table.resolve(identifier, part) for identifier, part in zip(found, parts, strict=True)]

    def _latent(self, pages: Many[Page]) -> list[Value]:
        """Load this lane's part of one key's latent row; of keys that are not there it is 0."""
        spec = self.spec
        keys = per_lane(self.sequence.geometry.atom.shape.b.columns, "the key of a latent element")
        start = lane_index(keys % spec.part * spec.latent_width + self.product.latent.start_b)

        def load(page: Page) -> list[Value]:
            return self.product.rows(page.view(self.arguments.c_kv, spec.latent_width, spec.part), start)

        low, high = pages
        loaded = branch(lane_index(keys // spec.part).eq(0), lambda: load(low), lambda: load(high))
        return [widened(each, self.sequence.geometry.element) for each in loaded]

    def _count(self, pages: Many[Page]) -> None:
        """Add the slots that name no page to the status word: once, for the first head."""
        table, first = self.sequence.pages(self.arguments), self.first_key // self.spec.part
        refused = constant(0, I32)
        for part, page in enumerate(pages):
            place = first + part if part else first
            missing = page.rows.eq(0) & (place < table.tiles) & table.opens(place)
            refused = refused + convert.zext(missing, to=I32)

        def count() -> tuple[()]:
            memory.atomic_add(self.arguments.status, refused)
            return ()

        control.if_else((refused > 0) & self.sequence.is_first_head & lanes.lane_id().eq(0), count, cold=True)

    def _half(self, half: Value, latent: Many[Value]) -> tuple[()]:
        """Form the keys, or the values, and write them; after the last tile of weights of keys comes the first of
        values, after that of values one that nobody reads.
        """
        found = self.product.run(half, latent, self.first_key < self.sequence.length, half + 1)
        geometry = self.sequence.geometry
        keys = lane_index(per_lane(geometry.atom.shape.c.columns, "the key of an element"))
        first, order = self.product.operand.columns_of_result()
        rows = self.sequence.rows(half, self.first_key, self.spec.atom)
        index = keys * self.spec.head_width + lane_index(first)
        store_columns(rows, index, order, geometry.element, found)
        return ()
