"""What differs between rows that are blessed and those of now, a sentence each, with the command that blesses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

import attrs

from kinfolk.refusal import Refusal
from kinfolk_runtime.goldens.document import Kind, Row, Section

NOUNS: Final[dict[str, str]] = {"digests": "digest", "figures": "figure"}
STUCK: Final = {
    "digests.error": "Nothing can be blessed before this is mended.",
    "figures.error": "Nothing can be blessed before this is mended.",
    "digests.zero": "A comparison of nothing is a failure: see kinfolk list.",
    "plugin.error": "kinfolk list shows every plugin's state.",
    "toolchain.error": "kinfolk doctor says how to get it.",
}
"""What to do where blessing is no way out, by code."""
ASKED: Final = frozenset(
    f"{kind}.{change}" for kind in NOUNS for change in ("moved", "missing", "extra", "reordered", "stale")
)
"""Codes of what a change of a kernel brings about; others are about damaged files."""
WORDS: Final = {"missing": "new", "extra": "removed"}
NAMED: Final = 3
"""How many kernels are named beside the first, of those that fail alike."""
_DIGEST: Final = 64


@attrs.frozen(kw_only=True)
class Where:
    """What is compared: a kind of golden of a family on an arch; `section` is a flavor, and for figures its build.

    No family, or no arch, means all of them.
    """

    kind: Kind | Literal["schedules"]
    family: str = ""
    arch: str = ""
    section: str = ""

    @property
    def command(self) -> str:
        """The command that blesses it."""
        if self.kind == "schedules":
            return " ".join(filter(None, ("kinfolk tune", self.family, f"--arch {self.arch}")))
        verb = "golden bless" if self.kind == "digests" else "resources"
        arch = f"--arch {self.arch}" if self.arch else ""
        flag = "--bless" if self.kind == "figures" else ""
        return " ".join(filter(None, ("kinfolk", verb, self.family, arch, flag, "--reason WHY")))

    def __str__(self) -> str:
        where = f"{self.family or 'every family'} on {self.arch or 'every arch'}"
        return where + (f", {self.section}" if self.section else "")


@attrs.frozen(kw_only=True)
class Finding:
    """One way in which goldens and kernels disagree. `was` and `now` are the values, where it is about one.

    `mend` is what to do about it where that is not what is done about others of its code.
    """

    code: str
    where: Where
    what: str
    spec: str = ""
    symbol: str = ""
    field: str = ""
    was: Any = None
    now: Any = None
    mend: str = ""

    @property
    def remedy(self) -> str:
        """What to do about it."""
        if self.mend:
            return self.mend
        if self.code in STUCK:
            return STUCK[self.code]
        meant = "If that is meant" if self.code in ASKED else "Restore it from version control; if the change is meant"
        return f"{meant}: {self.where.command}"

    def __str__(self) -> str:
        return f"{self.where}: {ended(self.what)} {self.remedy}"

    def alike(self) -> tuple[object, ...]:
        """Return what is equal for findings that say the same of several kernels of a lane."""
        said = self.field or self.what.replace(self.symbol, "").replace(self.spec, "") if self.spec else self.what
        return (self.where, self.code, bool(self.spec), said, self.remedy)

    def refusal(self, plugin: str) -> Refusal:
        """Return it as a row of a document."""
        return Refusal(
            code=self.code,
            kind="not_validated",
            field=self.field or "spec",
            value=self.now if self.field else self.spec or None,
            limit=f"{self.was}, as blessed" if self.field else "what is blessed",
            because=f"{self.where}: {self.what}",
            remedy=self.remedy,
            plugin=plugin,
        )


def ended(text: str) -> str:
    """Return a text that ends as a sentence does."""
    return text if text.endswith((".", "?", "!")) else f"{text}."


def told(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield a sentence for each finding, one for all of a lane that differ in nothing but the kernel and its values."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.alike(), []).append(finding)
    for first, *others in groups.values():
        if not first.spec or not others:
            yield from map(str, (first, *others))
            continue
        names = [f"{each.symbol} ({each.spec}){_values(each)}" for each in others[:NAMED]]
        more = f" and {len(others) - NAMED} more" if others[NAMED:] else ""
        what = (
            f"{_counted(1 + len(others), 'kernel')}: {first.what.removesuffix('.')}; likewise {', '.join(names)}{more}"
        )
        yield str(attrs.evolve(first, what=what))


def _values(finding: Finding) -> str:
    moves = finding.field and finding.where.kind == "figures"
    return f" from {_shown(finding.was)} to {_shown(finding.now)}" if moves else ""


def compared(blessed: Section | None, now: Section, where: Where) -> Iterator[Finding]:
    """Yield every difference between a blessed section and the one of now."""
    noun = NOUNS[where.kind]
    if blessed is None:
        ends = dict.fromkeys(f"{row.symbol} ({row.spec})" for row in (*now.rows[:1], *now.rows[-1:]))
        what = f"nobody has blessed its {noun}s, {_counted(len(now.rows))}: {' to '.join(ends)}"
        yield Finding(code=f"{where.kind}.missing", where=where, what=what)
        return
    if (len(blessed.rows), sum(row.refused for row in blessed.rows)) != (blessed.count, blessed.refused):
        what = f"the file is truncated: it holds {_counted(len(blessed.rows))} of the {blessed.count} it says"
        if len(blessed.rows) == blessed.count:
            what = f"the file does not hold the {_counted(blessed.refused, 'refusal')} it says"
        yield Finding(code=f"{where.kind}.truncated", where=where, what=what)
    known = {row.spec: row for row in blessed.rows}
    if len(known) != len(blessed.rows):
        yield Finding(code=f"{where.kind}.extra", where=where, what="the file holds a spec twice")
    here = {row.spec for row in now.rows}
    for row in now.rows:
        if row.spec not in known:
            yield _about(row, where, "missing", f"nobody has blessed its {noun}s")
        else:
            yield from values_moved(known[row.spec], row, where)
    for row in blessed.rows:
        if row.spec not in here:
            yield _about(row, where, "extra", "it is blessed, and nobody has such a kernel")
    yield from _order(blessed, now, where)


def moved(blessed: Section | None, now: Section | None, where: Where) -> tuple[str, ...]:
    """Return in a line each what a blessing changes, from what to what."""
    if now is None:
        return (f"{where.section}: dropped",)
    if blessed is None:
        return (f"{where.section}: {_counted(len(now.rows))}, new",)
    changes: dict[str, list[str]] = {}
    for finding in compared(blessed, now, where):
        change = WORDS.get(finding.code.partition(".")[2], finding.code.partition(".")[2])
        if finding.field:
            change = f"{finding.field} {_shown(finding.was)} -> {_shown(finding.now)}"
        changes.setdefault(f"{finding.symbol} ({finding.spec})" if finding.spec else "", []).append(change)
    alike: dict[str, list[str]] = {}
    for name, change in changes.items():
        alike.setdefault(", ".join(change), []).append(name)
    lines = [
        f"{where.section} {names[0]}".rstrip() + (f" and {len(names) - 1} more" if names[1:] else "") + f": {change}"
        for change, names in alike.items()
    ]
    return tuple(lines or ([f"{where.section}: written anew"] if blessed != now else []))


def values_moved(was: Row, now: Row, where: Where) -> Iterator[Finding]:
    """Yield the values that moved between two rows; the LLVM IR that figures are of is no figure."""
    names = [name for name in {**was.values, **now.values} if where.kind == "digests" or name != "llvm"]
    for name in names:
        before, after = was.values.get(name), now.values.get(name)
        if before != after:
            told = f"{name} moved from {_shown(before)} to {_shown(after)}"
            yield attrs.evolve(_about(now, where, "moved", told), field=name, was=before, now=after)


def _order(blessed: Section, now: Section, where: Where) -> Iterator[Finding]:
    """Yield that specs come in another order, or that only the space behind a sample is another."""
    common = {row.spec for row in blessed.rows} & {row.spec for row in now.rows}
    was, order = ([row for row in rows if row.spec in common] for rows in (blessed.rows, now.rows))
    for before, row in zip(was, order, strict=False):
        if before.spec != row.spec:
            what = f"the order of the spec space moved: where {before.symbol} is blessed stands this one"
            yield _about(row, where, "reordered", what)
            return
    same = [row.spec for row in blessed.rows] == [row.spec for row in now.rows]
    if same and (blessed.specs, blessed.order) != (now.specs, now.order):
        what = f"the spec space behind the rows is another: {blessed.specs} specs are blessed, there are {now.specs}"
        yield Finding(code=f"{where.kind}.reordered", where=where, what=what)


def _about(row: Row, where: Where, change: str, what: str) -> Finding:
    return Finding(
        code=f"{where.kind}.{change}",
        where=where,
        what=f"{row.symbol} ({row.spec}): {what}",
        spec=row.spec,
        symbol=row.symbol,
    )


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, list):
        return "a refusal"
    return value[:12] if isinstance(value, str) and len(value) == _DIGEST else str(value)


def _counted(count: int, noun: str = "row") -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
