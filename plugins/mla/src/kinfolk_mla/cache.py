"""Types of the cache: which ones kernels take, and what numbers they have."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from kinfolk.expr import any_of, eq, field
from kinfolk.narrow import OWN, TWO_ENCODINGS, own_narrow
from kinfolk.refusal import Limit

if TYPE_CHECKING:
    from kinfolk.arch import Arch


def cache_types(arch: Arch, dtype: str) -> tuple[str, ...]:
    """Return the types of a cache that kernels on an arch take, whose products are of `dtype`."""
    own = own_narrow(arch)
    return (dtype,) if own is None else (dtype, own)


def widened_cache(code: str, dtype: str) -> Limit:
    """Return the limit of a request where elements are widened to `dtype` on their way to the matrix cores."""
    return Limit(
        f"{code}.kv_dtype",
        "not_implemented",
        "kv_dtype",
        any_of(eq(field("kv_dtype"), dtype), eq(field("kv_dtype"), OWN)),
        because=f"keys are {dtype} in the matrix cores, and {TWO_ENCODINGS}",
        remedy=f"Store the cache as {dtype} or as {{own}}.",
        suggestions={"own": OWN},
    )


def widened_spec(code: str) -> Limit:
    """Return the limit of a spec on an arch where elements may be widened."""
    return Limit(
        f"{code}.spec.kv_dtype",
        "cannot",
        "kv_dtype",
        any_of(eq(field("kv_dtype"), field("dtype")), eq(field("kv_dtype"), OWN)),
        because=TWO_ENCODINGS,
        remedy="Evolve the spec to the type of its query, or to {own}.",
        suggestions={"own": OWN},
        takes="the type of its query, or the 8-bit floats that the arch knows",
    )


def plain_spec(code: str) -> Limit:
    """Return the limit of a spec whose elements are not widened."""
    return Limit(
        f"{code}.spec.kv_dtype",
        "not_implemented",
        "kv_dtype",
        eq(field("kv_dtype"), field("dtype")),
        because="keys enter the matrix cores as they are stored",
        remedy="Evolve the spec to the type of its query.",
        takes="the type of its query",
    )


def largest(kv_dtype: str) -> float:
    """Return the largest finite number of a type, or of f32."""
    return min(float(_numbers(kv_dtype).max), float(np.finfo(np.float32).max))


def powers(kv_dtype: str, most: int) -> tuple[int, int]:
    """Return a large power of two that a type has, of at most `most`, and one 2^27 times smaller where it has that."""
    high = min(most, math.floor(math.log2(largest(kv_dtype))))
    return high, max(high - 27, math.ceil(math.log2(float(_numbers(kv_dtype).smallest_normal))))


def _numbers(kv_dtype: str) -> Any:
    import ml_dtypes

    from kinfolk.check import numpy_dtype

    return cast("Any", ml_dtypes).finfo(numpy_dtype(kv_dtype))
