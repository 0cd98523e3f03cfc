"""Attention over parts of a token's keys and their merge, by definition in fp64: what split kernels and combine owe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs
import numpy as np

from kinfolk_mla.reference import Floats, Keys


@attrs.frozen(eq=False)
class Part:
    """A token's attention over some of its keys, not yet divided by the sum of its weights.

    For scaled scores s in nats: `highest` [heads] is their maximum m, `total` [heads] the sum l of exp(s - m),
    `weighted` [heads, latent] the sum of exp(s - m) * latent row. A kernel that counts in powers of two has m * log2 e
    and the same l and sums. Without keys m is -inf and l is 0; `weighted` then holds nothing, not even zeros.
    """

    highest: Floats
    total: Floats
    weighted: Floats

    @classmethod
    def of(cls, query: Floats, keys: Keys, scale: float) -> Part:
        """Return the part that some keys make for a token's queries [heads, latent + rope]."""
        heads, width = len(query), keys.latent.shape[1]
        if not len(keys.latent):
            return cls(np.full(heads, -np.inf), np.zeros(heads), np.full((heads, width), np.nan))
        scores = scale * (query @ keys.rows.T)
        highest = scores.max(axis=1)
        powers = np.exp(scores - highest[:, None])
        return cls(highest, powers.sum(axis=1), powers @ keys.latent)


def merged(parts: Iterable[Part]) -> tuple[Floats, Floats]:
    """Return `out` [heads, latent] and `lse` [heads], in nats, of parts that together hold a token's keys, each once.

    A part whose sum is 0 is not read. Where all are empty, or there is none, `out` is 0 and `lse` -inf. ValueError for
    no parts at all: they would have no shape.
    """
    every = list(parts)
    if not every:
        raise ValueError("merged takes one or more parts, got none; a token without keys has a part without keys")
    highest = np.max([part.highest for part in every], axis=0)
    total, weighted = np.zeros_like(highest), np.zeros(every[0].weighted.shape)
    for part in every:
        held = part.total > 0.0
        factor = np.exp(part.highest[held] - highest[held])
        total[held] += factor * part.total[held]
        weighted[held] += factor[:, None] * part.weighted[held]
    some = total > 0.0
    out, lse = np.zeros_like(weighted), np.full_like(highest, -np.inf)
    out[some] = weighted[some] / total[some, None]
    lse[some] = highest[some] + np.log(total[some])
    return out, lse


def split(keys: Keys, bounds: Sequence[int]) -> Iterator[Keys]:
    """Yield the keys before the first bound, between each bound and the next, and from the last on, by position.

    Bounds do not fall; two that are equal have no keys between them.
    """
    begin = 0
    for end in (*bounds, keys.length):
        inside = (keys.positions >= begin) & (keys.positions < end)
        yield attrs.evolve(keys, positions=keys.positions[inside], latent=keys.latent[inside], rope=keys.rope[inside])
        begin = end
