"""Control flow of machine code: dominators and natural loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from kinfolk.machine import Block


@attrs.frozen
class Flow:
    """Which blocks follow and precede which, by index, and the immediate dominator of each that can be reached."""

    following: tuple[tuple[int, ...], ...]
    preceding: tuple[tuple[int, ...], ...]
    dominators: Mapping[int, int]

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> Flow:
        """Return the flow of a function; its first block is entered."""
        following = tuple(block.successors for block in blocks)
        preceding: list[list[int]] = [[] for _ in blocks]
        for number, successors in enumerate(following):
            for successor in successors:
                preceding[successor].append(number)
        before = tuple(map(tuple, preceding))
        return cls(following, before, _dominators(_order(following), before))

    def dominates(self, first: int, second: int) -> bool:
        """Whether every way to the second block passes the first; a block dominates itself."""
        while second != first:
            if self.dominators[second] == second:
                return False
            second = self.dominators[second]
        return True

    def loops(self) -> dict[int, frozenset[int]]:
        """Return the natural loops, by header: those that share one are one."""
        found: dict[int, set[int]] = {}
        for latch in self.dominators:
            for header in self.following[latch]:
                if self.dominates(header, latch):
                    found.setdefault(header, {header}).update(self._reaching(latch, header))
        return {header: frozenset(body) for header, body in found.items()}

    def _reaching(self, latch: int, header: int) -> set[int]:
        """Return the blocks from which the latch is reached without passing the header."""
        body, waiting = {header}, [latch]
        while waiting:
            block = waiting.pop()
            if block not in body:
                body.add(block)
                waiting += [before for before in self.preceding[block] if before in self.dominators]
        return body


def _order(following: Sequence[Sequence[int]]) -> list[int]:
    """Return the blocks that can be reached, each before those that it alone leads to (reverse postorder)."""
    done: list[int] = []
    seen = {0}
    waiting = [(0, iter(following[0]))] if following else []
    while waiting:
        block, rest = waiting[-1]
        new = next((each for each in rest if each not in seen), None)
        if new is None:
            done.append(block)
            waiting.pop()
        else:
            seen.add(new)
            waiting.append((new, iter(following[new])))
    return done[::-1]


def _dominators(order: Sequence[int], preceding: Sequence[Iterable[int]]) -> dict[int, int]:
    """Return immediate dominators: Cooper, Harvey, Kennedy, "A Simple, Fast Dominance Algorithm"."""
    place = {block: number for number, block in enumerate(order)}
    found = {block: block for block in order[:1]}

    def common(first: int, second: int) -> int:
        while first != second:
            while place[first] > place[second]:
                first = found[first]
            while place[second] > place[first]:
                second = found[second]
        return first

    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            known = [before for before in preceding[block] if before in found]
            nearest = known[0]
            for before in known[1:]:
                nearest = common(nearest, before)
            if found.get(block) != nearest:
                found[block], changed = nearest, True
    return found
