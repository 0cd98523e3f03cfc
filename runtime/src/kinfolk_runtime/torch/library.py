"""The one place where torch is imported, and what its element types are called in the IR."""

from __future__ import annotations

import importlib
from typing import Any, Final

from kinfolk.errors import BindError, KinfolkError


class TorchUnavailable(KinfolkError, ImportError):
    """torch is not installed, or too old; the message says how to mend it."""


def _torch() -> Any:
    try:
        found: Any = importlib.import_module("torch")
    except (ImportError, OSError) as error:  # OSError: a library of its own that does not load
        raise TorchUnavailable(
            f"torch cannot be imported: {error}. Install it: pip install 'kinfolk-runtime[torch]'."
        ) from error
    if not hasattr(found.library, "custom_op"):
        raise TorchUnavailable(
            f"torch {found.__version__} has no torch.library.custom_op, which came with 2.4. Upgrade torch."
        )
    return found


torch: Final = _torch()

_NAMES: Final = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "f8E4M3FN": "float8_e4m3fn",
    "f8E5M2": "float8_e5m2",
    "f8E4M3FNUZ": "float8_e4m3fnuz",
    "f8E5M2FNUZ": "float8_e5m2fnuz",
}
DTYPES: Final = {name: getattr(torch, called) for name, called in _NAMES.items() if hasattr(torch, called)}
"""torch's dtype of each element type that it has one for."""
ELEMENTS: Final = {dtype: name for name, dtype in DTYPES.items()}
"""The element type of each of those."""


def element_of(name: str, dtype: Any) -> str:
    """Return the element type of a tensor's dtype; raise BindError where there is none."""
    if dtype not in ELEMENTS:
        taken = ", ".join(map(str, ELEMENTS))
        raise BindError(f"{name}: dtype is {dtype}, tensors of a kernel are {taken}. Convert it, as by `.to(...)`.")
    return ELEMENTS[dtype]


def dtype_of(element: str) -> Any:
    """Return torch's dtype of an element type; raise BindError where this torch has none."""
    if element not in DTYPES:
        raise BindError(f"torch {torch.__version__} has no dtype for {element}. Upgrade torch.")
    return DTYPES[element]
