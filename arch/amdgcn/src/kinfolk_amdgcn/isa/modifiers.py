"""What encodings do to a result after it is computed: a factor, a range, saturation.

Source: "AMD Instinct MI300 Instruction Set Architecture", section "Output Modifiers".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from kinfolk.ir.numpy_lanes import NumpyLane
from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.saturation import SATURATING
from kinfolk_amdgcn.isa.step import Given

Finish = Callable[[NumpyLane], NumpyLane]
_FLOATS: Final = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def finishing(given: Given) -> tuple[Finish | None, Callable[..., Any]]:
    """Return what multiplies a float result and keeps it between 0 and 1, None for nothing; and what computes.

    Integer instructions that saturate where the encoding says so have another meaning for that.
    """
    fields, declared = given.encoded.fields, given.declared
    meaning = declared.meaning
    assert meaning is not None
    clamp = bool(fields.get("clamp", 0)) and given.encoded.format in ("VOP3", "VOP3P")
    scale = fields.get("omod", 0) if given.encoded.format == "VOP3" else 0
    if given.encoded.modifier == "sdwa" and given.encoded.format != "VOPC":  # whose bits name a mask of lanes there
        clamp, scale = bool(fields["clamp"]), fields["omod"]
    if not (clamp or scale):
        return None, meaning
    if clamp and not scale and declared.name in SATURATING:
        return None, SATURATING[declared.name]
    if len(declared.results) != 1 or declared.results[0] not in _FLOATS:
        raise Stop("unsupported", "has an output modifier on a result that is no float, which is not modelled")
    return _of_floats((1.0, 2.0, 4.0, 0.5)[scale], clamp), meaning


def _of_floats(factor: float, clamp: bool) -> Finish:
    def finish(x: NumpyLane) -> NumpyLane:
        kind = _FLOATS[x.type.name]
        data: Any = x.data.view(kind) * kind(factor)
        if clamp:
            data = np.clip(np.nan_to_num(data, nan=0.0), 0.0, 1.0)
        data = np.asarray(data, kind)
        return NumpyLane(x.type, data.view(np.uint16) if x.type.bits == 16 else data)

    return finish
