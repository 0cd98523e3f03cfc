"""The combine kernel alone: segments made up in fp64, what comes out against the sum over all of their keys."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kinfolk.check import numpy_dtype
from kinfolk.errors import IRError
from kinfolk.ir import Kernel
from kinfolk.ir.ops import arithmetic
from kinfolk.ir.value import Value
from kinfolk.plugins.composition import Composition, compose
from kinfolk.tile import softmax
from kinfolk_mla.combine import kernel
from kinfolk_mla.combine.plan import combine_spec
from kinfolk_mla.combine.spec import MlaCombineSpec
from kinfolk_runtime.compilation import compile_specs
from kinfolk_runtime.simulator.engine import Simulator

pytestmark = [pytest.mark.simulate, pytest.mark.needs("mla", "gfx942", "gfx950")]

HEADS, KEYS, SCALE = 3, 5, 0.125
K_SCALE = 4.0  # a power of two: the product of both scales is SCALE exactly
LOWEST = np.float32(-3.4028234663852886e38)
SEGMENTS = [1, 2, 7, 16, 64, 65]
"""Fewer than are asked for at once, as many, more; as many as a wave has lanes, and one more."""
Array = npt.NDArray[Any]


def spec_of(latent: int = 512, dtype: str = "bf16") -> MlaCombineSpec:
    return combine_spec(latent, dtype)


@pytest.fixture(scope="module", params=["gfx942", "gfx950"])
def composition(request: pytest.FixtureRequest) -> Composition:
    return compose("mla", request.param)


def parts(segments: int, latent: int, tokens: int = 2) -> tuple[dict[str, Array], Array, Array]:
    """Return what segments of KEYS keys leave of each row, and output and LSE over all keys, in fp64.

    Of row (0, 0) no segment has keys, of row (0, 1) only the last, of the others every third has none. Maxima differ by
    more than f32 can tell weights apart, and lie below that of all keys, as those of a lazy rescale do. Rows that must
    not be read are NaN.
    """
    generator = np.random.default_rng(segments)
    rows = (tokens, segments, HEADS)
    scores = generator.normal(0.0, 60.0, (*rows, 1)) + generator.normal(0.0, 8.0, (*rows, KEYS))
    values = generator.standard_normal((*rows, KEYS, latent))
    empty = np.zeros(rows, bool)
    empty[:, 1::3] = True
    empty[0, :, 0] = True
    empty[0, :-1, 1], empty[0, -1, 1] = True, False
    maximum = scores.max(axis=-1) - generator.uniform(0.0, 8.0, rows)
    maximum = np.where(empty, LOWEST, maximum.astype(np.float32))
    weights = np.exp(SCALE * (scores - maximum[..., None].astype(np.float64)) * ~empty[..., None]) * ~empty[..., None]
    held = {
        "part_out": np.where(empty[..., None], np.nan, np.einsum("...k,...kc->...c", weights, values)),
        "part_ml": np.stack([maximum, weights.sum(axis=-1)], axis=-1),
    }
    scores = np.where(empty[..., None], -np.inf, SCALE * scores).swapaxes(1, 2).reshape(tokens, HEADS, -1)
    with np.errstate(divide="ignore", invalid="ignore"):
        lse = np.log(np.exp(scores).sum(axis=-1))
        all_weights = np.where(np.isneginf(lse)[..., None], 0.0, np.exp(scores - lse[..., None]))
    out = np.einsum("thk,thkc->thc", all_weights, values.swapaxes(1, 2).reshape(tokens, HEADS, -1, latent))
    return {name: each.astype(np.float32).swapaxes(0, 1).copy() for name, each in held.items()}, out, lse


def launched(
    emitted: Kernel,
    spec: MlaCombineSpec,
    held: dict[str, Array],
    offsets: tuple[int, ...] = (0, 1, 2),
    total_q: int = 2,
    max_seqlen_q: int = 1,
) -> dict[str, Any]:
    segments, tokens, heads, latent = held["part_out"].shape
    arguments: dict[str, Any] = {
        "cu_seqlens_q": np.array(offsets, np.int32),
        **held,
        "out": np.full((tokens, heads, latent), np.nan, numpy_dtype(spec.dtype)),
        "lse": np.full((tokens, heads), np.nan, np.float32),
        "scale": SCALE / K_SCALE,
        "k_scale": K_SCALE,
        "total_q": total_q,
        "max_seqlen_q": max_seqlen_q,
        "num_heads": heads,
        "num_segments": segments,
    }
    Simulator().launch(emitted, (heads * max_seqlen_q, len(offsets) - 1, 1), arguments)
    return arguments


def is_right(found: dict[str, Any], out: Array, lse: Array) -> bool:
    """Whether outputs, in the unit of the cache, are within their own rounding and 1e-5 of a row, LSE within 1e-5, and
    empty rows exact.
    """
    given, logs = found["out"].astype(np.float64) / K_SCALE, found["lse"].astype(np.float64)
    unit = 2.0**-8 if found["out"].dtype == numpy_dtype("bf16") else 2.0**-11
    near = np.abs(given - out) <= 1.01 * unit * np.abs(out) + 1e-5 * np.abs(out).max(axis=-1, keepdims=True)
    empty = np.isneginf(lse)
    same = np.where(empty, np.isneginf(logs), np.abs(logs - np.where(empty, 0.0, lse)) <= 1e-5 * (1 + np.abs(lse)))
    return bool(near.all() and same.all() and (given[empty] == 0.0).all())


@pytest.mark.parametrize("segments", SEGMENTS)
def test_segments_are_put_together(composition: Composition, segments: int) -> None:
    held, out, lse = parts(segments, 512)
    assert np.isneginf(lse[0, 0]) and np.isfinite(lse[0, 1])
    assert is_right(launched(composition.emit(spec_of()), spec_of(), held), out, lse)


@pytest.mark.parametrize("offsets", [(0, 2), (0, 0, 2), (0, 1, 2), (0, 5), (1, 3)])
def test_rows_of_several_queries_are_put_together(composition: Composition, offsets: tuple[int, ...]) -> None:
    """Of a sequence as many as it has, in a grid that is made for three tokens of each; of rows there are not, none."""
    held, out, lse = parts(3, 512)
    found = launched(composition.emit(spec_of()), spec_of(), held, offsets, max_seqlen_q=3)
    if max(offsets) > 2:
        assert np.isnan(found["lse"]).all()
    else:
        assert is_right(found, out, lse)


@pytest.mark.parametrize(("latent", "dtype"), [(256, "bf16"), (1024, "bf16"), (512, "f16")])
def test_other_rows_are_served_by_as_many_lanes_as_have_columns(
    composition: Composition, latent: int, dtype: str
) -> None:
    """Whatever the width, a lane stores 8 bytes: no row asks for a store that there is not."""
    spec = spec_of(latent, dtype)
    emitted = composition.emit(spec)
    assert composition.validate_spec(spec) == () and emitted.block == latent // 4
    held, out, lse = parts(7, latent)
    assert is_right(launched(emitted, spec, held), out, lse)
    stores = [op for op in emitted.walk() if op.name == "core.view_store"]
    assert [op.operands[2].type.bytes for op in stores] == [8]


@pytest.mark.parametrize(("latent", "taken"), [(4096, True), (4352, False), (768, True), (640, False)])
def test_a_width_that_lanes_cannot_share_is_refused(composition: Composition, latent: int, taken: bool) -> None:
    found = composition.validate_spec(spec_of(latent))
    assert [refusal.field for refusal in found] == ([] if taken else ["latent_width"])


def test_a_store_of_more_bytes_than_there_are_does_not_exist(
    composition: Composition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: a lane of 16 columns would need it."""
    monkeypatch.setattr(MlaCombineSpec, "columns_per_lane", 16)
    with pytest.raises(IRError, match="16 bytes"):
        composition.emit(spec_of(1024))


@pytest.mark.parametrize("offsets", [(0, 0, 1), (0, 1, 1), (2, 3, 3), (-1, 0, 0), (1, 0, 0)])
def test_only_rows_of_a_query_are_written(composition: Composition, offsets: tuple[int, int, int]) -> None:
    """Nothing is read of what nobody wrote: a sequence without a query, or with one that there is not, has no row."""
    held, out, lse = parts(3, 512)
    found = launched(composition.emit(spec_of()), spec_of(), held, offsets)
    pairs = itertools.pairwise(offsets)
    written = [token for token, following in pairs if following > token and 0 <= token < 2]
    others = [token for token in (0, 1) if token not in written]
    assert np.isnan(found["lse"][others]).all() and np.isnan(found["out"][others].astype(np.float32)).all()
    kept = {name: found[name][written] for name in ("out", "lse")}
    assert is_right(kept, out[written], lse[written])


def no_rescale(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kernel.Combine, "_factor", lambda self, maximum, largest: arithmetic.exp2(maximum - maximum))


def log2_for_ln(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(softmax, "LN_2", 1.0)


def scores_without_scale(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        kernel.Combine, "_factor", lambda self, maximum, largest: arithmetic.exp2((maximum - largest) * softmax.LOG2_E)
    )


def empty_segments_read(patch: pytest.MonkeyPatch) -> None:
    whole = kernel.Combine._columns

    def columns(self: kernel.Combine, segment: Value, factor: Value) -> Value:
        return whole(self, segment, factor + 1.0)

    patch.setattr(kernel.Combine, "_columns", columns)


def last_segment_missed(patch: pytest.MonkeyPatch) -> None:
    whole = kernel.Combine._segment

    def segment(self: kernel.Combine, number: Value) -> Any:
        place, maximum, weight = whole(self, number)
        return place, maximum, arithmetic.select(number.eq(self.arguments.num_segments - 1), weight - weight, weight)

    patch.setattr(kernel.Combine, "_segment", segment)


@pytest.mark.parametrize(
    "plant", [no_rescale, log2_for_ln, scores_without_scale, empty_segments_read, last_segment_missed]
)
def test_a_planted_fault_is_seen(monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    composition = compose("mla", "gfx942")
    held, out, lse = parts(7, 512)
    assert is_right(launched(composition.emit(spec_of()), spec_of(), held), out, lse)
    with monkeypatch.context() as patch:
        plant(patch)
        emitted = composition.emit(spec_of())
    assert not is_right(launched(emitted, spec_of(), held), out, lse)


@pytest.mark.compile
@pytest.mark.parametrize("flavor", ["llvm20", "llvm22"])
def test_eight_waves_fit_a_simd(composition: Composition, flavor: str) -> None:
    (compiled,) = compile_specs([spec_of()], flavor, composition=composition)
    figures = compiled.usage.figures
    assert figures["vgpr"] + figures["agpr"] < 64 and figures["waves_per_simd"] == 8
    assert compiled.usage.scratch_bytes == compiled.usage.scratch_ops == 0
