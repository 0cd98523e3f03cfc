"""What is formed of a tile between its products and its sums: probabilities, and gradients of scores."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import attrs

from kinfolk.ir.ops import arithmetic
from kinfolk.ir.value import Value
from kinfolk.tile.narrow import narrow, narrow_weights
from kinfolk.tile.timeline import Job
from kinfolk_attention_bwd.products import elements, zeros

if TYPE_CHECKING:
    from kinfolk_attention_bwd.rounds import Rounds

Place = TypeVar("Place")
"""Which tile of which head, as a state."""


class Meets(Protocol[Place]):
    """What sets the kernels apart: which tiles there are, what is known of their rows or the wave's, and who sees whom.

    Blocks are numbered: `block` of the tile, `own` of the wave.
    """

    def after(self, place: Place) -> Place:
        """Return the place of the next tile."""
        ...

    def loads(self, place: Place, loaded: tuple[list[Value], list[Value]]) -> list[Job]:
        """Return the jobs that issue this thread's loads of a tile of both tensors."""
        ...

    def term_loads(self, place: Place, terms: list[Value]) -> list[Job]:
        """Return the jobs that load what a tile's rows bring to products; none where the wave's bring it."""
        ...

    def term(self, terms: Many[Value], block: int, own: int, slot: int) -> Value:
        """Return what is added to a score, in powers of 2."""
        ...

    def begin(self, terms: Many[Value], block: int, own: int) -> Value:
        """Return the accumulator at which second products begin."""
        ...

    def masked(self, scores: Many[Value], place: Place, block: int, own: int) -> list[Value]:
        """Return the scores of a block with -inf where a query does not see a key."""
        ...


@attrs.frozen(eq=False)
class State(Generic[Place]):
    """At the start of a round: the tile at `place` is in its slots, but for columns that have an image of their own,
    of which `loaded` are still to be written; `reads` are the first of its rows, `terms` what they bring.
    """

    row_slot: Value
    column_slot: Value | None
    place: Place
    reads: list[Value]
    terms: list[Value]
    loaded: tuple[list[Value], list[Value]]
    sums: list[list[list[Value]]]


@attrs.frozen(eq=False)
class Formed(Generic[Place]):
    """Of a tile in a round: both products by block of the tile and block of the wave's rows, `exponentials` likewise,
    and by block of the wave's rows and step of a sum `p_operands`, P, and `ds_operands`, dS, as operands B.
    """

    rounds: Rounds[Place]
    state: State[Place]
    masks: bool
    scores: list[list[Value]]
    products: list[list[Value]]
    exponentials: dict[tuple[int, int], list[Value]]
    gradients: dict[tuple[int, int], list[Value]]
    p_operands: list[list[Value]]
    ds_operands: list[list[Value]]

    def _pairs(self, group: int) -> list[tuple[int, int]]:
        """Return the blocks of a group, each with each of the wave's rows."""
        first = group * self.rounds.group_blocks
        blocks = range(first, first + self.rounds.group_blocks)
        return [(block, own) for block in blocks for own in range(self.rounds.spec.blocks)]

    def probability_jobs(self, group: int) -> list[Job]:
        """Return the jobs that form the probabilities of a group."""
        return [self._probability(*pair) for pair in self._pairs(group)]

    def gradient_jobs(self, group: int) -> list[Job]:
        """Return the jobs that form the gradients of a group's scores."""
        return [self._gradient(*pair) for pair in self._pairs(group)]

    def _probability(self, block: int, own: int) -> Job:
        rounds, meets, state = self.rounds, self.rounds.meets, self.state

        def job() -> None:
            scores = elements(self.scores[block][own], rounds.frame)
            if self.masks:
                scores = meets.masked(scores, state.place, block, own)
            terms = [meets.term(state.terms, block, own, slot) for slot in range(len(scores))]
            powers = (arithmetic.fma(score, rounds.scale_log2, term) for score, term in zip(scores, terms, strict=True))
            self.exponentials[block, own] = [arithmetic.exp2(power) for power in powers]
            if rounds.second_weighs and (together := self._step(self.exponentials, block, own)):
                self.p_operands[own].append(narrow_weights(together, rounds.frame.element))

        return job

    def _gradient(self, block: int, own: int) -> Job:
        def job() -> None:
            products = elements(self.products[block][own], self.rounds.frame)
            self.gradients[block, own] = [
                weight * product for weight, product in zip(self.exponentials[block, own], products, strict=True)
            ]
            if together := self._step(self.gradients, block, own):
                self.ds_operands[own].append(narrow(together, self.rounds.frame.element))

        return job

    def _step(self, of: dict[tuple[int, int], list[Value]], block: int, own: int) -> list[Value]:
        """Return the elements of the step that a block is the last one of; nothing for another block."""
        shape = self.rounds.frame.atom.shape
        together = shape.b.slots // shape.c.slots
        if (block + 1) % together:
            return []
        return [element for each in range(block + 1 - together, block + 1) for element in of[each, own]]


def begun(rounds: Rounds[Place], state: State[Place], masks: bool) -> Formed[Place]:
    """Return what is formed in a round, nothing yet; `masks`: a query may not see a key."""
    blocks, own = range(rounds.groups * rounds.group_blocks), range(rounds.spec.blocks)
    scores = [[zeros(rounds.frame) for _ in own] for _ in blocks]
    products = [[rounds.meets.begin(state.terms, block, each) for each in own] for block in blocks]
    return Formed(rounds, state, masks, scores, products, {}, {}, [[] for _ in own], [[] for _ in own])
