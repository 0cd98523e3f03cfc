"""Base classes for pytest: one test per installed arch and check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import attrs

from kinfolk.plugins.loading import usable
from kinfolk.testing.check import TIME_LIMITS, Check, Kind, Level, run_check
from kinfolk.testing.registry import checks
from kinfolk.testing.subject import Subject

OPTION: Final = "conformance_level"
TIME_LIMIT: Final = "conformance_time_limit"
PROPERTY: Final = "conformance"


@attrs.frozen
class Case:
    """A check on a family or arch by name, and the seconds that it may take, 0 for no limit."""

    check: Check
    arch: str
    level: Level
    seconds: float = 0.0


class _Conformance:
    """What both base classes do."""

    level: ClassVar[Level | None] = None
    kind: ClassVar[Kind]
    _subjects: ClassVar[dict[tuple[object, ...], Subject]] = {}

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Make a test of each check on each arch; those that compile or simulate carry these marks."""
        import pytest

        if "conformance_case" not in metafunc.fixturenames:
            return
        level: Level = type(self).level or metafunc.config.getoption(OPTION, "quick")
        found = checks(self.kind, level)
        if not found:
            raise pytest.UsageError(f"no check for a {self.kind} is installed: install kinfolk-core again")
        given = metafunc.config.getoption(TIME_LIMIT, None)
        seconds = TIME_LIMITS[level] if given is None else given
        cases = [Case(check, arch, level, seconds) for arch in self.names() for check in found]
        made = [
            pytest.param(
                case,
                id=f"{case.arch}-{case.check.name}",
                marks=() if case.check.needs == "pure" else getattr(pytest.mark, case.check.needs),
            )
            for case in cases
        ]
        metafunc.parametrize("conformance_case", made)

    def names(self) -> tuple[str, ...]:
        """Return the archs that are asked."""
        raise NotImplementedError

    def subject(self, arch: str, level: Level) -> Subject:
        """Return what the checks of one arch are run on, which they share."""
        raise NotImplementedError

    def test_conformance(self, conformance_case: Case, record_property: Callable[[str, object], None]) -> None:
        """Run one check on one arch; what it finds is told as a review, that it hangs too."""
        import pytest

        case = conformance_case
        result = run_check(case.check, self._shared(case.arch, case.level), case.seconds)
        told = result.inapplicable or f"{result.outcome.count} {result.outcome.unit}"
        record_property(PROPERTY, f"{result.subject.title}, {case.check.name}: {result.status}, {told}")
        if result.status == "fail":
            pytest.fail(result.review(), pytrace=False)
        if result.inapplicable and self._serves_nothing(case.level):
            why, asked = result.inapplicable.rstrip("."), ", ".join(self.names())
            pytest.fail(
                f"{why}. It serves nothing on any arch that is asked ({asked}), so no check can be about it: install "
                "an arch that it serves, or name one in `archs`",
                pytrace=False,
            )

    def _serves_nothing(self, level: Level) -> bool:
        return all(self._shared(arch, level).unserved for arch in self.names())

    def _shared(self, arch: str, level: Level) -> Subject:
        key = (type(self), arch, level)
        if key not in self._subjects:
            self._subjects[key] = self.subject(arch, level)
        return self._subjects[key]


class FamilyConformance(_Conformance):
    """Subclass it as `class TestMine(FamilyConformance)` with `family = "mine"`.

    Every check for families runs on every installed arch, or on `archs`, at `level`, else at that of
    `--conformance-level`. Override `subject` to run on a composition of your own.
    """

    kind: ClassVar[Kind] = "family"
    family: ClassVar[str]
    archs: ClassVar[tuple[str, ...]] = ()

    def names(self) -> tuple[str, ...]:
        """Return `archs`, by default all that are installed."""
        return type(self).archs or usable("arch")

    def subject(self, arch: str, level: Level) -> Subject:
        """Return the family on an arch."""
        return Subject.of_family(self.family, arch, level)


class ArchConformance(_Conformance):
    """Subclass it as `class TestMine(ArchConformance)` with `arch = "mine"`: every check for archs runs on it."""

    kind: ClassVar[Kind] = "arch"
    arch: ClassVar[str]

    def names(self) -> tuple[str, ...]:
        """Return the arch."""
        return (self.arch,)

    def subject(self, arch: str, level: Level) -> Subject:
        """Return the arch."""
        return Subject.of_arch(arch, level)
