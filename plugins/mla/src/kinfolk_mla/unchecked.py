"""Inputs nobody looked into before the launch: offsets that fall, lie too far apart, or name rows there are not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np

from kinfolk.check import Scenario
from kinfolk_mla.scenarios import drawn_inputs, fitted_lengths, spread_queries

if TYPE_CHECKING:
    from kinfolk_mla.request import MlaRequest

_LAST: Final = 2**31 - 1
_FALLING: Final = (40, -(2**31), _LAST, 5)
"""A fall that 32 bits do not hold, a rise that they do not hold, and a fall; then comes a sequence of keys."""


def unchecked_scenarios(request: MlaRequest) -> tuple[Scenario, ...]:
    """Return the scenarios of a decode request whose offsets no caller may pass; none where no sequence has a query."""
    most = request.max_seqlen_q
    if not most or not request.absorbed_query:
        return ()
    falling = attrs.evolve(request, num_seqs=len(_FALLING), total_q=most + len(_FALLING) - 1)
    stray = attrs.evolve(request, num_seqs=3, total_q=most + 1)
    return (
        _scenario(falling, "falling_offsets", "offsets of keys that fall, or that 32 bits do not subtract", _fall),
        _scenario(stray, "stray_query", "a sequence whose query is a row past the last", _stray),
    )


def _scenario(request: MlaRequest, name: str, about: str, spoil: Any) -> Scenario:
    def build(generator: np.random.Generator) -> Mapping[str, Any]:
        lengths = fitted_lengths(request, (20,))
        return spoil(drawn_inputs(request, generator, lengths, spread_queries(request)), lengths)

    return Scenario(name=name, about=about, request=request, build=build)


def _fall(inputs: dict[str, Any], lengths: tuple[int, ...]) -> dict[str, Any]:
    return inputs | {"cu_seqlens_k": np.array([*_FALLING, _FALLING[-1] + lengths[-1]], np.int32)}


def _stray(inputs: dict[str, Any], lengths: tuple[int, ...]) -> dict[str, Any]:
    offsets = inputs["cu_seqlens_q"].copy()
    offsets[-1] += 1
    return inputs | {"cu_seqlens_q": offsets}
