"""A check of the conformance kit, what it finds, and how it is run: whatever it raises is a defect too."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import attrs

from kinfolk.check.defect import Defect
from kinfolk.errors import KinfolkError
from kinfolk.fields import ExactInt, ExactStr, shown
from kinfolk.plugins.containment import entered
from kinfolk.plugins.faults import sentence_of
from kinfolk.testing.time_limit import TimeIsUpError, stopped_after

if TYPE_CHECKING:
    from kinfolk.testing.subject import Subject

Level = Literal["quick", "full"]
Needs = Literal["pure", "compile", "simulate"]
Kind = Literal["family", "arch"]
LEVELS: Final[tuple[Level, ...]] = ("quick", "full")
NEEDS: Final[tuple[Needs, ...]] = ("pure", "compile", "simulate")
TIME_LIMITS: Final[Mapping[Level, float]] = {"quick": 300.0, "full": 3600.0}
"""Seconds after which a check of a level is stopped, unless another limit is given: many times what one takes."""
NOTHING: Final = "give the plugin what the check is about (requests that are admitted, specs, scenarios, tensors)"
MOST: Final = 12
"""The most defects of one check that are told."""


def _tuple_of(kind: type) -> Callable[[object, attrs.Attribute[Any], Any], None]:
    def judge(instance: object, field: attrs.Attribute[Any], value: Any) -> None:
        if type(value) is not tuple or not all(isinstance(each, kind) for each in cast("tuple[object, ...]", value)):
            told = shown(cast("object", value))
            raise TypeError(f"{type(instance).__name__}.{field.name} takes a tuple of {kind.__name__}, got {told}")

    return judge


@attrs.frozen(kw_only=True)
class Outcome:
    """What a check came to: how many cases it looked at, and what is wrong. One that looked at nothing has failed.

    `unit` names what is counted, in the plural. TypeError or ValueError for what is none of this.
    """

    count: int = attrs.field(validator=ExactInt(minimum=0))
    unit: str = attrs.field(validator=ExactStr())
    defects: tuple[Defect, ...] = attrs.field(default=(), validator=_tuple_of(Defect))
    notes: tuple[str, ...] = attrs.field(default=(), validator=_tuple_of(str))


def _applies(subject: Subject) -> str:
    return ""


@attrs.frozen(kw_only=True)
class Check:
    """One thing that a family, or an arch, must hold; `proves` says it in a line.

    One of level `quick` also runs at `full`, where it may take more cases. `needs` is what it takes: `pure` neither
    compiles nor runs a kernel. `applies(subject)` gives a reason where there is nothing that it could be about, which a
    table shows; no reason is not the same as a count of 0, which fails.
    """

    name: str = attrs.field(validator=attrs.validators.matches_re(r"[a-z][a-z0-9_]*"))
    proves: str
    run: Callable[[Subject], Outcome]
    of: Kind = attrs.field(default="family", validator=attrs.validators.in_(("family", "arch")))
    level: Level = attrs.field(default="quick", validator=attrs.validators.in_(LEVELS))
    needs: Needs = attrs.field(default="pure", validator=attrs.validators.in_(NEEDS))
    applies: Callable[[Subject], str] = _applies

    def runs_at(self, level: Level) -> bool:
        """Return whether the check is among those of a level."""
        return LEVELS.index(self.level) <= LEVELS.index(level)


class Findings:
    """Collects what one check finds; of what is wrong in one place and in one way the first case is the example.

    `each` names parts of the subject (its candidates, say) of which every one must be looked at: zero of one is a
    defect, however many cases there are of the others.
    """

    def __init__(self, check: str, unit: str, each: Iterable[str] = ()) -> None:
        self._check, self._unit, self._count = check, unit, 0
        self._parts = dict.fromkeys(each, 0)
        self._found: dict[tuple[str, str], tuple[Defect, int]] = {}
        self._notes: list[str] = []

    @property
    def count(self) -> int:
        """How many cases were counted so far."""
        return self._count

    def looked_at(self, cases: int = 1, of: str = "") -> None:
        """Count cases, `of` a part."""
        self._count += cases
        self._parts[of] = self._parts.get(of, 0) + cases

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self._notes:
            self._notes.append(text)

    def wrong(self, where: str, problem: str, remedy: str, example: str = "", kind: str = "") -> None:
        """Add a defect; `kind` says which problems in one place are one and the same, by default the problem itself."""
        key = (where, kind or problem)
        first, times = self._found.get(key, (None, 0))
        made = Defect(check=self._check, where=where, problem=problem, remedy=remedy, example=example)
        self._found[key] = (first or made, times + 1)

    def add(self, defect: Defect) -> None:
        """Add what another judge found, under this check's name."""
        self.wrong(defect.where, defect.problem, defect.remedy, defect.example)

    def outcome(self) -> Outcome:
        """Return what there is."""
        if self._count:
            for part in (name for name, cases in self._parts.items() if not cases and name):
                self.wrong(part, f"checked nothing of it: {self._unit} are of others alone", NOTHING)
        told: list[Defect] = []
        for defect, times in list(self._found.values())[:MOST]:
            more = f" (and {times - 1} more like it)" if times > 1 else ""
            told.append(attrs.evolve(defect, problem=defect.problem + more))
        if len(self._found) > MOST:
            self.note(f"{len(self._found)} defects, of which the first {MOST} are told")
        return Outcome(count=self._count, unit=self._unit, defects=tuple(told), notes=tuple(self._notes))


@attrs.frozen(kw_only=True)
class Result:
    """A check that was run on a subject, with the CPU seconds that it took; `inapplicable` says why it was not."""

    check: Check
    subject: Subject
    outcome: Outcome
    seconds: float
    inapplicable: str = ""

    @property
    def status(self) -> Literal["pass", "fail", "not applicable"]:
        """`pass` where something was looked at and nothing found."""
        if self.inapplicable:
            return "not applicable"
        return "fail" if self.outcome.defects or not self.outcome.count else "pass"

    def review(self) -> str:
        """Return what is wrong as a reviewer would write it: where, what, remedy, example, how to see it again."""
        blocks: list[str] = []
        for defect in self.outcome.defects:
            lines = [f"{defect.where}: {defect.problem}", f"  do: {defect.remedy}"]
            lines += [f"  smallest example: {defect.example}"] if defect.example else []
            blocks.append("\n".join(lines))
        proves = f"{self.check.name} ({self.check.proves}) on {self.subject.title}:"
        return "\n".join([proves, *blocks, f"again: {self.subject.command(self.check.name)}"])

    def to_dict(self) -> dict[str, Any]:
        """Return the row of a document."""
        return {
            "check": self.check.name,
            "proves": self.check.proves,
            "needs": self.check.needs,
            "status": self.status,
            "count": self.outcome.count,
            "unit": self.outcome.unit,
            "seconds": round(self.seconds, 2),
            "inapplicable": self.inapplicable,
            "notes": list(self.outcome.notes),
            "defects": [attrs.asdict(defect) for defect in self.outcome.defects],
        }


def run_check(check: Check, subject: Subject, seconds: float = 0.0) -> Result:
    """Run a check; an error that it raises is a defect, and so are a count of 0 and more than `seconds` of the clock.

    0 is no limit; nor is there one in a thread that no signal stops (`time_limit.can_stop`).
    """
    begun = _cpu_seconds()
    inapplicable = ""
    try:
        # What a check prints is not the answer of a command.
        with entered(), stopped_after(seconds, getattr(subject, "package", "")):
            inapplicable = _reason(check, subject)
            outcome = Outcome(count=0, unit="cases") if inapplicable else _outcome(check, subject)
        if not inapplicable and not outcome.count and not outcome.defects:
            outcome = attrs.evolve(outcome, defects=(_nothing(check, subject),))
    except TimeIsUpError as up:
        outcome = stopped(check, subject, f"is not done after {seconds:g} s; it was stopped in {up.place}")
    except KeyboardInterrupt:
        raise
    except KinfolkError as error:
        outcome = Outcome(count=0, unit="cases", defects=(_raised(check, subject, str(error)),))
    except BaseException as error:  # noqa: BLE001 - a stranger's check, which may end the process too
        outcome = Outcome(count=0, unit="cases", defects=(_raised(check, subject, sentence_of(error)),))
    seconds = _cpu_seconds() - begun
    return Result(check=check, subject=subject, outcome=outcome, seconds=seconds, inapplicable=inapplicable)


def stopped(check: Check, subject: Subject, problem: str) -> Outcome:
    """Return what came of a check that did not come to its end."""
    remedy = "Mend what hangs or ends the process there; what only takes its time has more with --time-limit"
    defect = Defect(check=check.name, where=subject.title, problem=problem, remedy=remedy)
    return Outcome(count=0, unit="cases", defects=(defect,))


def _reason(check: Check, subject: Subject) -> str:
    reason = cast("object", getattr(subject, "unserved", "") or check.applies(subject))
    if type(reason) is not str:
        raise TypeError(f"applies of check {check.name} returned {shown(reason)}, it returns a str: a reason, or none")
    return reason


def _outcome(check: Check, subject: Subject) -> Outcome:
    outcome = cast("object", check.run(subject))
    if not isinstance(outcome, Outcome):
        raise TypeError(f"run of check {check.name} returned {shown(outcome)}, it returns an Outcome")
    return outcome


def _cpu_seconds() -> float:
    """Return the processor time of this process and of those it started."""
    return sum(os.times()[:4])


def _nothing(check: Check, subject: Subject) -> Defect:
    return Defect(
        check=check.name,
        where=subject.title,
        problem="checked nothing: no case was found to look at",
        remedy=NOTHING,
    )


def _raised(check: Check, subject: Subject, told: str) -> Defect:
    return Defect(
        check=check.name, where=subject.title, problem=f"an error ended the check: {told}", remedy="mend what it names"
    )
