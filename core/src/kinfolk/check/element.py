"""The numpy types that hold the IR's scalars in memory."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from kinfolk.errors import InternalError

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

_TYPES: Final[dict[str, Any]] = {
    "i1": np.uint8,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the numpy type of a scalar such as `bf16`; an i1 takes a byte."""
    if name not in _TYPES:
        raise InternalError(f"no numpy type holds {name!r}; known: {', '.join(_TYPES)}")
    return np.dtype(_TYPES[name])


def bits(array: Array) -> npt.NDArray[Any]:
    """Return an array's storage bits as unsigned integers of the same shape."""
    contiguous = np.ascontiguousarray(array)
    return contiguous.view(np.dtype(f"u{array.dtype.itemsize}")).reshape(array.shape)
