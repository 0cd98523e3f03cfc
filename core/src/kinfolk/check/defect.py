"""What an analysis or a check of the conformance kit holds against a plugin."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Defect:
    """One fault, told as a reviewer would: which check found it, where, what is wrong, and what to do about it.

    `check` is the check's stable name (`dead_parameter`), `where` the thing at fault: a source line of an emitter
    (`kernel.py:41`), a field of a class, a spec, a scenario. `example` is the smallest case that shows it, where one is
    known.
    """

    check: str
    where: str
    problem: str
    remedy: str
    example: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}; {self.remedy} [{self.check}]"
