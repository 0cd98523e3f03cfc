"""Outputs of heads out of latent ones, by the up-projection of values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinfolk.ir import build_kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.types import I32
from kinfolk.ir.value import Kernel, Value
from kinfolk.tile.attention.frame import store_columns
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.layout import per_lane
from kinfolk_mla.absorbed.tokens import Tokens
from kinfolk_mla.prefill.geometry import Geometry
from kinfolk_mla.prefill.weights import LatentProduct, Weights

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_mla.absorbed.spec import MlaProjectSpec


def emit_project(spec: MlaProjectSpec, arch: Arch) -> Kernel:
    """Build the kernel of `spec`: a workgroup for a head and a block of tokens."""
    geometry = Geometry.of(spec, arch)
    shape = geometry.atom.shape

    def body(latent: Value, w_ukv: Value, out: Value, total_q: Value, num_heads: Value) -> None:
        tokens = Tokens.of(spec, total_q, num_heads)
        product = LatentProduct.of(Weights.of(spec, geometry, w_ukv, tokens.head))
        view, row = tokens.rows(latent, spec.latent_width)
        place = lane_index(per_lane(shape.b.columns, "the token of an element")) * row
        start = place + tokens.head * spec.latent_width + lane_index(product.latent.start_b)
        rows = product.rows(view, start)
        values = constant(1, I32)
        product.begin(values)
        found = product.run(values, rows, tokens.exist)
        view, row = tokens.rows(out, spec.head_width)
        first, order = product.operand.columns_of_result()
        place = lane_index(per_lane(shape.c.columns, "the token of a result")) * row
        store_columns(view, place + tokens.head * spec.head_width + lane_index(first), order, geometry.element, found)

    attributes = {"workgroups_per_cu": spec.workgroups_per_cu, "accumulators": "either"}
    return build_kernel(
        spec.symbol(), spec.parameters(), arch=arch, block=geometry.threads, attributes=attributes, body=body
    )
