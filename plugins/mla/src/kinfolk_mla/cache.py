"""Types of the cache: which ones kernels take, and what numbers they have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from kinfolk.expr import any_of, eq, fact, field, select
from kinfolk.ir.types import SCALARS
from kinfolk.refusal import Limit

if TYPE_CHECKING:
    from kinfolk.arch import Arch

ENCODING: Final = "fp8_format"
"""The fact by which an arch says which 8-bit floats its instructions know."""
NARROW: Final[Mapping[str, str]] = {"ocp": "f8E4M3FN", "fnuz": "f8E4M3FNUZ"}
"""The 8-bit floats of a cache, by their encoding."""
OWN: Final = select(eq(fact(ENCODING), "ocp"), NARROW["ocp"], NARROW["fnuz"])
"""The 8-bit floats that an arch knows."""
_TWO: Final = "what widens 8-bit floats knows one of two encodings, in which the same codes are other values"


_SPELLED: Final = (
    f"Pass {NARROW['ocp']} where the arch's {ENCODING} is ocp, {NARROW['fnuz']} where it is fnuz; why says which of "
    "them an arch takes."
)
SPELLINGS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("fp8", "f8", "float8", "e4m3", "fp8_e4m3", "fp8e4m3"), _SPELLED),
    **dict.fromkeys(("float8_e4m3fn", "fp8_e4m3fn"), f"Pass {NARROW['ocp']}."),
    **dict.fromkeys(("float8_e4m3fnuz", "fp8_e4m3fnuz"), f"Pass {NARROW['fnuz']}."),
    "bfloat16": "Pass bf16.",
    "float16": "Pass f16.",
}
"""What to pass for other names of types of a cache."""


def is_narrow(kv_dtype: str) -> bool:
    """Whether elements of a cache are of 8 bits."""
    return SCALARS[kv_dtype].bytes == 1


def cache_types(arch: Arch, dtype: str) -> tuple[str, ...]:
    """Return the types of a cache that kernels on an arch take, whose products are of `dtype`."""
    own = NARROW.get(str(arch.facts.get(ENCODING)))
    return (dtype,) if own is None else (dtype, own)


def widened_cache(code: str, dtype: str) -> Limit:
    """Return the limit of a request where elements are widened to `dtype` on their way to the matrix cores."""
    return Limit(
        f"{code}.kv_dtype",
        "not_implemented",
        "kv_dtype",
        any_of(eq(field("kv_dtype"), dtype), eq(field("kv_dtype"), OWN)),
        because=f"keys are {dtype} in the matrix cores, and {_TWO}",
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
        because=_TWO,
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
