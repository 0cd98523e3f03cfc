"""Workgroup memory as banks: how many cycles an access of a wave takes, by what an arch declares of its memory.

The same computation judges layouts while a kernel is built and accesses while it runs. What an arch has no measurement
of is not guessed: there the answer is a bound that holds however lanes are served.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.errors import PluginError

Addresses = npt.NDArray[np.int64]
BankAction = Literal["read", "write", "transpose_read", "atomic_add", "stage"]
"""What an access does: `transpose_read` hands elements to other lanes, `stage` comes from global memory directly."""
ACTIONS: Final[tuple[BankAction, ...]] = ("read", "write", "transpose_read", "atomic_add", "stage")


@attrs.frozen(kw_only=True)
class Phases:
    """Which lanes are served together when each accesses `bytes`; one tuple of lanes after the other.

    `source` says where that is documented or measured.
    """

    action: BankAction
    bytes: int
    lanes: tuple[tuple[int, ...], ...]
    source: str


@attrs.frozen
class BankCost:
    """The cycles of one access of a wave, and the fewest that it could take.

    Where `exact`, they follow from declared phases, and the fewest is one per phase with an active lane. Else no phases
    are known: `cycles` is what the access takes at least, however lanes are served, and the fewest is what its distinct
    bytes take at full bandwidth.
    """

    cycles: int
    fewest: int
    exact: bool

    @property
    def conflicts(self) -> int:
        """Cycles beyond the fewest; at least so many where not `exact`."""
        return self.cycles - self.fewest

    def __add__(self, other: BankCost) -> BankCost:
        return BankCost(self.cycles + other.cycles, self.fewest + other.fewest, self.exact and other.exact)


@attrs.frozen(kw_only=True)
class BankModel:
    """The banks of an arch's workgroup memory.

    Word w, of `bank_bytes`, lies in bank w % `banks`. In one cycle each bank gives one word, to all lanes that want it.
    `widest` is the most bytes that one lane accesses at once. `unmeasured` says why `phases` lacks other accesses.
    """

    banks: int
    bank_bytes: int
    bytes_per_clock: int
    widest: int = 16
    phases: tuple[Phases, ...] = ()
    unmeasured: str

    def check(self, arch: str, wave_size: int) -> None:
        """Raise PluginError unless each of the phases is of a known action and holds every lane of a wave once."""
        seen: set[tuple[str, int]] = set()
        for each in self.phases:
            what = f"{arch} declares phases for the {each.action} of {each.bytes} bytes"
            if each.action not in ACTIONS:
                raise PluginError(f"{what}, which nothing does; actions are {', '.join(ACTIONS)}")
            if (each.action, each.bytes) in seen:
                raise PluginError(f"{what} twice")
            seen.add((each.action, each.bytes))
            if sorted(lane for group in each.lanes for lane in group) != list(range(wave_size)):
                raise PluginError(f"{what} that do not hold each of {wave_size} lanes once")

    def phases_of(self, action: BankAction, access_bytes: int) -> Phases | None:
        """Return which lanes are served together, or None where nobody has measured it."""
        found = [each for each in self.phases if (each.action, each.bytes) == (action, access_bytes)]
        return found[0] if found else None

    def words(self, addresses: Addresses, access_bytes: int) -> Addresses:
        """Return the words [lanes, words] that lanes access at byte addresses [lanes]."""
        count = -(-access_bytes // self.bank_bytes)
        return addresses[:, None] // self.bank_bytes + np.arange(count)

    def demand(self, words: Addresses) -> Addresses:
        """Return how many distinct ones of these words each bank has to give."""
        return np.bincount(np.unique(words) % self.banks, minlength=self.banks)

    def cost(self, action: BankAction, access_bytes: int, addresses: Addresses, lanes: Addresses) -> BankCost:
        """Return the cycles in which active `lanes` access `access_bytes` each, at byte addresses [lanes]."""
        phases = self.phases_of(action, access_bytes)
        words = self.words(addresses, access_bytes)
        if phases is None:
            size = np.unique(words).size * min(self.bank_bytes, access_bytes)
            fewest = -(-size // self.bytes_per_clock)
            return BankCost(max(int(self.demand(words).max(initial=0)), fewest), fewest, False)
        groups = [words[np.isin(lanes, group)] for group in phases.lanes]
        taken = [int(self.demand(group).max()) for group in groups if group.size]
        return BankCost(sum(taken), len(taken), True)

    def access_cost(
        self, action: BankAction, lane_bytes: int, alignment: int, addresses: Addresses, lanes: Addresses
    ) -> BankCost:
        """Return the cycles of moving `lane_bytes` per lane in as few accesses as width and `alignment` allow."""
        total = BankCost(0, 0, True)
        for offset, size in self.parts(lane_bytes, alignment):
            total += self.cost(action, size, addresses + offset, lanes)
        return total

    def parts(self, lane_bytes: int, alignment: int) -> Sequence[tuple[int, int]]:
        """Return (byte offset, bytes) of the accesses that move `lane_bytes`: powers of two, the widest first."""
        found: list[tuple[int, int]] = []
        done = 0
        while done < lane_bytes:
            most = min(lane_bytes - done, self.widest, alignment)
            size = 1 << (most.bit_length() - 1)
            found.append((done, size))
            done += size
        return found
