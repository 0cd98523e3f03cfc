"""Keys and values of 8 bits: which floats there are, which of them an arch knows, and other names of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kinfolk.expr import eq, fact, select
from kinfolk.ir.types import SCALARS

if TYPE_CHECKING:
    from kinfolk.arch import Arch

ENCODING: Final = "fp8_format"
"""The fact by which an arch says which 8-bit floats its instructions know."""
NARROW: Final[Mapping[str, str]] = {"ocp": "f8E4M3FN", "fnuz": "f8E4M3FNUZ"}
"""The 8-bit floats of keys and values, by their encoding."""
OWN: Final = select(eq(fact(ENCODING), "ocp"), NARROW["ocp"], NARROW["fnuz"])
"""The 8-bit floats that an arch knows."""
TWO_ENCODINGS: Final = "what widens 8-bit floats knows one of two encodings, in which the same codes are other values"
"""Why an arch takes those of its own encoding alone."""
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
"""What to pass for other names of types of keys and values."""


def is_narrow(kv_dtype: str) -> bool:
    """Whether elements of keys and values are of 8 bits."""
    return SCALARS[kv_dtype].bytes == 1


def own_narrow(arch: Arch) -> str | None:
    """Return the 8-bit floats of keys and values that an arch knows; None for one that knows none."""
    return NARROW.get(str(arch.facts.get(ENCODING)))
