"""Stored schedules, measured again: they must fit, pass the gate, and score what they scored."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.errors import KinfolkError
from kinfolk.record import class_name
from kinfolk.schedule import StoredSchedule
from kinfolk_runtime.toolchains.base import Toolchain
from kinfolk_runtime.tune.run import Instance, instances, stored
from kinfolk_runtime.tune.score import Scored, score

if TYPE_CHECKING:
    from kinfolk.plugins.composition import Composition

__all__ = ["ScheduleFault", "faults_of", "stored"]

SAME_BUILD: Final = 0.001
OTHER_BUILD: Final = 0.05
"""By what share clocks may be more than they were, by the build that scored them and by others."""


@attrs.frozen(kw_only=True)
class ScheduleFault:
    """What is wrong with an entry: it is of no kernel (`stale`), does not pass (`refused`), or got slower (`fell`)."""

    code: str
    symbol: str
    what: str


def faults_of(
    composition: Composition, flavor: str, entries: Sequence[StoredSchedule], toolchain: Toolchain
) -> Iterator[ScheduleFault]:
    """Yield what is wrong with stored schedules, compiled by a toolchain."""
    known = instances(composition, flavor)

    def fault(entry: StoredSchedule) -> ScheduleFault | None:
        return _fault(composition, flavor, entry, known, toolchain)

    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        yield from filter(None, threads.map(fault, entries))


def _fault(
    composition: Composition, flavor: str, entry: StoredSchedule, known: Sequence[Instance], toolchain: Toolchain
) -> ScheduleFault | None:
    of = [each for each in known if class_name(type(each.spec)) == entry.spec]
    found = next((each for each in of if each.space.instance(each.spec) == entry.instance), None)
    name = entry.spec.rpartition(".")[2]
    if found is None:
        what = f"no candidate has the {name} with {dict(entry.instance)} that a schedule is stored of"
        return ScheduleFault(code="schedules.stale", symbol=name, what=what)
    try:
        spec = found.space.with_schedule(found.spec, entry.schedule)
        scored = score(composition, spec, flavor, toolchain=toolchain)
    except KinfolkError as error:
        return ScheduleFault(code="schedules.refused", symbol=name, what=str(error))
    symbol = spec.symbol()
    if not scored.clean:
        return ScheduleFault(code="schedules.refused", symbol=symbol, what=f"{symbol}: {scored.why}")
    before = Scored(state="clean", llvm=entry.clocks["llvm"], real=entry.clocks["real"])
    allowed = SAME_BUILD if toolchain.build == entry.build else OTHER_BUILD
    if scored.clocks <= before.clocks * (1 + allowed):
        return None
    what = f"{symbol} takes {scored.clocks:.2f} clocks per token and 64 heads, it took {before.clocks:.2f}"
    return ScheduleFault(code="schedules.fell", symbol=symbol, what=f"{what} by {entry.build}")
