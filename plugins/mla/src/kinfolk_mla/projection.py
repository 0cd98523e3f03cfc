"""What stands around the latent kernels in a model: queries absorbed before them, their outputs projected after.

    w_ukv = joint_up_projection(kv_b_weight, num_heads=128, nope_dim=128, v_dim=128)   # once: for projected queries

    w_uk, w_uv = up_projections(kv_b_weight, num_heads=128, nope_dim=128, v_dim=128)   # once
    qa = absorbed_query(q, w_uk, rope_dim=64)                                          # every step
    out = projected_output(latent, w_uv)

Source: DeepSeek-V2, arXiv:2405.04434, section 2.1.2: the up-projections of keys and values are absorbed into those of
queries and outputs. Arrays are numpy's, of ml_dtypes too, or of any namespace of the array API standard: that of the
first array, or `xp`, which needs `astype`, `concat`, `matmul`, `permute_dims`, `reshape`, `float32` and `float64`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any
"""An array with `shape` and `dtype`."""


def up_projections(weight: Array, *, num_heads: int, nope_dim: int, v_dim: int, xp: Any = None) -> tuple[Array, Array]:
    """Return w_uk (heads, latent, nope) and w_uv (heads, latent, v) from the weight that models store for both.

    `weight` (heads * (nope + v), latent): per head the rows of its keys, then those of its values. Views where the
    namespace has them; the dtype is kept. ValueError where the number of rows is another.
    """
    heads = _by_head(xp or _namespace(weight), weight, num_heads, nope_dim + v_dim)
    return heads[:, :, :nope_dim], heads[:, :, nope_dim:]


def joint_up_projection(weight: Array, *, num_heads: int, nope_dim: int, v_dim: int, xp: Any = None) -> Array:
    """Return w_ukv (heads, latent, nope + v), which kernels of projected queries take, from the weight of a model.

    A copy, laid out row by row: both of `up_projections` side by side. ValueError where the number of rows is another.
    """
    space = xp or _namespace(weight)
    heads = _by_head(space, weight, num_heads, nope_dim + v_dim)
    return space.reshape(space.reshape(heads, (-1,)), heads.shape)


def _by_head(space: Any, weight: Array, num_heads: int, width: int) -> Array:
    """Return the weight as (heads, latent, width)."""
    _expect_axes("weight", weight, 2)
    rows, latent = weight.shape
    if rows != num_heads * width:
        raise ValueError(
            f"weight has {rows} rows, {num_heads} heads of nope_dim + v_dim = {width} need {num_heads * width}; "
            f"its shape is (heads * (nope_dim + v_dim), latent), not transposed"
        )
    return space.permute_dims(space.reshape(weight, (num_heads, width, latent)), (0, 2, 1))


def absorbed_query(q: Array, w_uk: Array, *, rope_dim: int, xp: Any = None) -> Array:
    """Return the absorbed query (tokens, heads, latent + rope): w_uk times the first part of q, then its rotated part.

    q (tokens, heads, nope + rope), already rotated; w_uk (heads, latent, nope), of the same dtype, which the result
    has: sums are made in f32, in f64 of f64, and rounded once. The rotated part is passed on bit by bit. The scale of
    the scores is that of the width before absorption, 1/sqrt(nope + rope), and is not applied here.
    TypeError where dtypes differ, ValueError where shapes do not fit.
    """
    space = xp or _namespace(q)
    _expect_axes("q", q, 3)
    _expect_axes("w_uk", w_uk, 3)
    _expect_dtype("q", q, "w_uk", w_uk)
    nope = w_uk.shape[2]
    if q.shape[2] != nope + rope_dim:
        raise ValueError(
            f"q has {q.shape[2]} columns, {nope} of w_uk and rope_dim {rope_dim} make {nope + rope_dim}; pass the "
            f"query before absorption, nope part then rotated part"
        )
    _expect_heads("q", q, "w_uk", w_uk)
    latent = _per_head(space, q[:, :, :nope], space.permute_dims(w_uk, (0, 2, 1)))
    return space.concat([latent, q[:, :, nope:]], axis=2)


def projected_output(latent: Array, w_uv: Array, *, xp: Any = None) -> Array:
    """Return the output of each head (tokens, heads, v) from the latent one, by the up-projection of values.

    latent (tokens, heads, latent), normalised; w_uv (heads, latent, v), of the same dtype, which the result has: sums
    are made in f32, in f64 of f64, and rounded once. TypeError where dtypes differ, ValueError where shapes do not fit.
    """
    space = xp or _namespace(latent)
    _expect_axes("latent", latent, 3)
    _expect_axes("w_uv", w_uv, 3)
    _expect_dtype("latent", latent, "w_uv", w_uv)
    if latent.shape[2] != w_uv.shape[1]:
        raise ValueError(
            f"latent has {latent.shape[2]} columns, w_uv takes {w_uv.shape[1]}; its shape is (heads, latent, v)"
        )
    _expect_heads("latent", latent, "w_uv", w_uv)
    return _per_head(space, latent, w_uv)


def _per_head(space: Any, rows: Array, weights: Array) -> Array:
    """Return, for each head, rows (tokens, heads, a) times weights (heads, a, b), as (tokens, heads, b)."""
    wide = space.float64 if rows.dtype == space.float64 else space.float32
    by_head = space.permute_dims(space.astype(rows, wide), (1, 0, 2))
    made = space.matmul(by_head, space.astype(weights, wide))
    return space.astype(space.permute_dims(made, (1, 0, 2)), rows.dtype)


def _namespace(array: Array) -> Any:
    found = getattr(array, "__array_namespace__", None)
    if found is not None:
        return found()
    if isinstance(array, np.ndarray):
        return np
    raise TypeError(
        f"a {type(array).__name__} names no namespace of the array API standard; pass one as xp, such as "
        f"array_api_compat.torch"
    )


def _expect_axes(name: str, array: Array, count: int) -> None:
    if len(array.shape) != count:
        raise ValueError(f"{name} has the shape {tuple(array.shape)}, {count} axes are needed")


def _expect_dtype(name: str, array: Array, other_name: str, other: Array) -> None:
    if array.dtype != other.dtype:
        raise TypeError(f"{name} is {array.dtype} and {other_name} {other.dtype}, they have one dtype; convert either")


def _expect_heads(name: str, array: Array, other_name: str, other: Array) -> None:
    if array.shape[1] != other.shape[0]:
        raise ValueError(f"{name} has {array.shape[1]} heads, {other_name} {other.shape[0]}")
