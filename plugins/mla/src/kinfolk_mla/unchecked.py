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
_FALLING: Final = (-1, _LAST, 40, -(2**31), _LAST, 5)
"""Rises that 32 bits hold as their least number and as -1, falls, one of which they do not hold; then comes a sequence
of keys. The first has the most queries.
"""


def unchecked_scenarios(request: MlaRequest) -> tuple[Scenario, ...]:
    """Return the scenarios of a decode request whose offsets no caller may pass; none where no sequence has a query."""
    most = request.max_seqlen_q
    if not most or not request.absorbed_query:
        return ()
    falling = attrs.evolve(request, num_seqs=len(_FALLING), total_q=most + len(_FALLING) - 1)
    stray = attrs.evolve(request, num_seqs=5, total_q=most + 1)
    return (
        _scenario(falling, "falling_offsets", "offsets of keys that fall, or that 32 bits do not subtract", _fall),
        _scenario(
            stray, "stray_query", "offsets of queries that fall, and a query that is a row past the last", _stray
        ),
    )


def _scenario(request: MlaRequest, name: str, about: str, spoil: Any) -> Scenario:
    def build(generator: np.random.Generator) -> Mapping[str, Any]:
        lengths = fitted_lengths(request, (20,))
        return spoil(drawn_inputs(request, generator, lengths, spread_queries(request)), lengths)

    return Scenario(name=name, about=about, request=request, build=build)


def _fall(inputs: dict[str, Any], lengths: tuple[int, ...]) -> dict[str, Any]:
    return inputs | {"cu_seqlens_k": np.array([*_FALLING, _FALLING[-1] + lengths[-1]], np.int32)}


def _stray(inputs: dict[str, Any], lengths: tuple[int, ...]) -> dict[str, Any]:
    """Give the second sequence offsets that fall by more than 32 bits hold, the last one a row that is not there."""
    rows = len(inputs["qa"])
    return inputs | {"cu_seqlens_q": np.array([0, rows - 1, -(2**31), rows - 1, rows, rows + 1], np.int32)}
