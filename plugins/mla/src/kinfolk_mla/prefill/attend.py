"""Attention over expanded keys and values, a block of one head's queries at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from kinfolk.ir import build_kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, lanes, memory
from kinfolk.ir.types import I32
from kinfolk.ir.value import Kernel, Value
from kinfolk.tile.attention.ahead import ScoresAhead
from kinfolk.tile.attention.scores import TileScores, key_steps
from kinfolk.tile.attention.values import Values, values_of
from kinfolk.tile.layout import lanes_sharing, per_lane
from kinfolk.tile.softmax import OnlineSoftmax
from kinfolk_mla.prefill.batch import Sequence
from kinfolk_mla.prefill.geometry import Geometry
from kinfolk_mla.prefill.paged import PagedTiles
from kinfolk_mla.prefill.queries import Queries
from kinfolk_mla.prefill.rows import RowTiles
from kinfolk_mla.prefill.spec import MlaGatheredPrefillSpec
from kinfolk_mla.prefill.tiles import PagedKeys, RowKeys, Tiles

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_mla.prefill.spec import MlaPrefillSpec


def emit_prefill(spec: MlaPrefillSpec, arch: Arch) -> Kernel:
    """Build the kernel of `spec`: a workgroup for a head, a block of queries and a sequence."""
    geometry = Geometry.of(spec, arch)

    def body(*parameters: Value) -> None:
        given = dict(zip([each.name for each in spec.parameters()], parameters, strict=True))
        kind = RowKeys if isinstance(spec, MlaGatheredPrefillSpec) else PagedKeys
        keys = kind(**{each.name: given.pop(each.name) for each in attrs.fields(kind)})
        arguments = Arguments(**given)
        queries = Queries.of(spec, arguments, Sequence.of(arguments, geometry))
        attention = Attention.of(spec, arguments, keys, queries)

        def attend() -> tuple[()]:
            attention.run()
            return ()

        control.if_else(queries.exist, attend)

    attributes = {"workgroups_per_cu": spec.workgroups_per_cu, "accumulators": "vgpr"}
    return build_kernel(
        spec.symbol(), spec.parameters(), arch=arch, block=geometry.threads, attributes=attributes, body=body
    )


@attrs.frozen(eq=False)
class Arguments:
    """The kernel's parameters as values, but for those of rotated rows."""

    q: Value
    expanded: Value
    cu_seqlens_q: Value
    cu_seqlens_k: Value
    status: Value
    out: Value
    lse: Value
    scale: Value
    k_scale: Value
    total_q: Value
    max_seqlen_k: Value
    first_head: Value
    group_heads: Value
    num_heads: Value
    causal: Value
    query_blocks: Value


@attrs.frozen(eq=False)
class Attention:
    """The stages of the kernel and the values they share."""

    spec: MlaPrefillSpec
    arguments: Arguments
    queries: Queries
    tiles: Tiles[Any, Any]
    values: Values
    scores: TileScores
    softmax: OnlineSoftmax

    @classmethod
    def of(cls, spec: MlaPrefillSpec, arguments: Arguments, given: PagedKeys | RowKeys, queries: Queries) -> Attention:
        """Reserve workgroup memory and lay both products out."""
        geometry = queries.sequence.geometry
        steps = key_steps(geometry, spec.tile_keys)
        values = values_of(geometry, steps, tile_keys=spec.tile_keys, columns=spec.head_width, slots=spec.value_slots)
        tiles = _tiles(spec, given, queries.sequence, values)
        masks = lanes_sharing(per_lane(geometry.atom.shape.c.columns, "the query of a score"))
        softmax = OnlineSoftmax.of(arguments.scale, masks, unit=arguments.k_scale)
        scores = TileScores.of(spec, geometry, softmax, tiles.keys, spec.key_width)
        return cls(spec, arguments, queries, tiles, values, scores, softmax)

    def run(self) -> None:
        """Walk the tiles that a query of the workgroup sees, store the rows."""
        query = self.queries.load(self.scores.contraction)
        mask = self.tiles.mask(self.scores, self.queries.seen_by_lane())
        count = self._tiles(self.queries.seen_by_workgroup() + (self.spec.tile_keys - 1))
        rounds = ScoresAhead(self.spec, self.tiles, self.values, self.scores, self.softmax, mask, query)
        last = rounds.walked(self._whole(), count)
        inverse, lse = self.softmax.finish(last.row)
        self.queries.store(self.values, last.output, inverse, lse)

    def _tiles(self, keys: Value) -> Value:
        return keys // self.spec.tile_keys

    def _whole(self) -> Value:
        """Return how many tiles have no key that a query of the workgroup does not see, or that is not there."""
        return arithmetic.select(self._complete(), self._tiles(self.queries.seen_by_all()), constant(0, I32))

    def _complete(self) -> Value:
        """Whether every page is there. The expanding kernel has counted those that are not: then every tile is looked
        at.
        """
        return lanes.uniform(memory.load(self.arguments.status)).eq(0)


def _tiles(spec: MlaPrefillSpec, given: PagedKeys | RowKeys, sequence: Sequence, values: Values) -> Tiles[Any, Any]:
    if isinstance(given, PagedKeys):
        return PagedTiles.found(spec, given, sequence, values)
    assert isinstance(spec, MlaGatheredPrefillSpec)
    return RowTiles.found(spec, given, sequence, values)
