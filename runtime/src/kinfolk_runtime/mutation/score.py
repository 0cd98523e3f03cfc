"""Scores that a family keeps: what became of all mutants of each kernel, by the digest of its IR, as package data.

A score says of which IR it is, so it does not speak for another. What a sample finds is held against it: a survivor
that the run of all mutants did not have is new, whatever else is known.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from kinfolk.errors import KinfolkError
from kinfolk_runtime.mutation.outcome import Outcome
from kinfolk_runtime.mutation.report import CandidateReport, MutationReport

if TYPE_CHECKING:
    from kinfolk.plugins.composition import Composition

SCHEMA: Final = "kinfolk.mutation_score/1"
FOLDER: Final = "mutation"
_LINE: Final = ":"


class ScoreError(KinfolkError):
    """A score that cannot be read or written; the message names the file."""


@attrs.frozen(kw_only=True)
class Score:
    """What became of all mutants of one candidate: the kernels' digests of IR, counts, and who survived.

    A survivor is known by operator, op, the file of its site and its change, which an edit above it leaves alone.
    """

    candidate: str
    irs: tuple[str, ...]
    killed: int
    equivalent: int
    survivors: tuple[str, ...]

    @classmethod
    def of(cls, report: CandidateReport) -> Score:
        """Return the score of a run of all mutants."""
        return cls(
            candidate=report.candidate,
            irs=tuple(kernel.ir for kernel in report.kernels),
            killed=report.count("killed"),
            equivalent=report.count("equivalent"),
            survivors=tuple(sorted({known_as(outcome) for outcome in report.survivors})),
        )

    def drifted(self, report: CandidateReport) -> bool:
        """Whether a report is of kernels of other IR than the score."""
        return any(kernel.ir not in self.irs for kernel in report.kernels)

    def new(self, report: CandidateReport) -> tuple[Outcome, ...]:
        """Return the survivors of a report that the run of all mutants did not have."""
        return tuple(outcome for outcome in report.survivors if known_as(outcome) not in self.survivors)


def known_as(outcome: Outcome) -> str:
    """Return `comparison slt -> sle, core.icmp in decode/kernel.py`, say."""
    op, _, where = outcome.site.partition(" at ")
    innermost = where.partition(", called from ")[0].rpartition(_LINE)[0]
    return f"{outcome.operator} {outcome.change}, {op} in {innermost}"


def stored(composition: Composition) -> Mapping[str, Score]:
    """Return a family's scores on an arch by candidate, none where it keeps none; ScoreError for a garbled file."""
    folder = _folder(composition)
    name = f"{composition.arch.name}.json"
    if folder is None or not folder.joinpath(name).is_file():
        return {}
    try:
        data = json.loads(folder.joinpath(name).read_bytes())
        if data["schema"] != SCHEMA:
            raise ValueError(f"its schema is {data['schema']!r}, read is {SCHEMA}")
        rows = cast("list[dict[str, Any]]", data["candidates"])
        if data["sha256"] != _digest(rows):
            raise ValueError("they are not what a run stored. Run kinfolk mutate --all --store again")
        scores = [_score(row) for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        raise ScoreError(f"{FOLDER}/{name} of {composition.request_type.family} holds no scores: {error}") from error
    return {score.candidate: score for score in scores}


def _score(row: dict[str, Any]) -> Score:
    given = dict(row)
    irs, survivors = tuple(given.pop("irs")), tuple(given.pop("survivors"))
    return Score(**given, irs=irs, survivors=survivors)


def store(composition: Composition, report: MutationReport) -> Path:
    """Put the scores of a run of all mutants beside those of other candidates, and return the file.

    Raises ScoreError where the report is of a sample, or the family's package is no folder.
    """
    folder = _folder(composition)
    if report.seed is not None:
        raise ScoreError("a score is of all mutants, this run was of a sample. Run it with --all")
    if not isinstance(folder, Path):
        raise ScoreError(f"the family {report.family} is in no package with a folder, in which scores are kept")
    scores = {**stored(composition), **{each.candidate: Score.of(each) for each in report.candidates}}
    path = folder / f"{composition.arch.name}.json"
    try:
        folder.mkdir(exist_ok=True)
        path.write_text(_text(report, scores.values()), encoding="utf-8", newline="\n")
    except OSError as error:
        raise ScoreError(f"{path} cannot be written: {error.strerror}") from error
    return path


def _text(report: MutationReport, scores: Iterable[Score]) -> str:
    rows = [attrs.asdict(score) for score in sorted(scores, key=lambda score: score.candidate)]
    head = {"schema": SCHEMA, "family": report.family, "arch": report.arch, "flavor": report.flavor}
    return json.dumps({**head, "sha256": _digest(rows), "candidates": rows}, indent=1) + "\n"


def _digest(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the digest that tells scores of a run from those that were edited."""
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def _folder(composition: Composition) -> Any:
    offer = next(member.offer for member in composition.members if member.offer.kind == "family")
    try:
        return resources.files(offer.module.partition(".")[0]).joinpath(FOLDER)
    except (ImportError, TypeError):
        return None
