"""Measuring: each statement compiled, linked, and its instructions assembled again for the same processor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

import attrs

from kinfolk.errors import ToolError
from kinfolk_amdgcn.legality.statement import PROBE, Statement
from kinfolk_amdgcn.legality.table import OK, PER_LANE, UNIFORM, Row

CANNOT_SELECT: Final = ("Cannot select", "Do not know how to", "unable to legalize", "not supported on subtarget")
ENDED: Final = ("worker ended", "ended with signal", "took more than")


class Lane(Protocol):
    """One LLVM and the tools around it; each raises ToolError."""

    def compile(self, llvm_ir: str, processor: str) -> tuple[bytes, str]:
        """Return object and assembly."""
        ...

    def link(self, code: bytes) -> bytes:
        """Return the shared object; an undefined symbol is an error that names it."""
        ...

    def refused_lines(self, lines: Sequence[str], processor: str) -> set[int]:
        """Return the numbers (from 0) of the assembly lines that are no instructions of the processor."""
        ...


@attrs.frozen
class Probed:
    """A status, and the assembly lines whose instructions are still to be looked at."""

    status: str
    lines: tuple[str, ...] = ()


def statuses(statements: Sequence[Statement], lane: Lane, processor: str, threads: int = 2) -> list[str]:
    """Return the status of each statement on one processor with one LLVM.

    A statement that takes values is tried with each lane's own and with one for all, which the compiler may treat
    apart (it folds moves between lanes, and gives operands scalar registers); it is ok where both are.
    """
    forms = [
        (index, uniform)
        for index, each in enumerate(statements)
        for uniform in (False, True)
        if each.takes_data or not uniform
    ]

    def probe_form(form: tuple[int, bool]) -> Probed:
        return probe(statements[form[0]], lane, processor, uniform=form[1])

    with ThreadPoolExecutor(threads) as pool:
        probed = list(pool.map(probe_form, forms))
    lines = [(number, line) for number, each in enumerate(probed) for line in each.lines]
    wrong = {lines[number][0] for number in lane.refused_lines([line for _, line in lines], processor)}
    found: list[dict[bool, str]] = [{} for _ in statements]
    for number, (index, uniform) in enumerate(forms):
        found[index][uniform] = "wrong_instruction" if number in wrong else probed[number].status
    return [_together(each) for each in found]


def _together(forms: Mapping[bool, str]) -> str:
    """Return one status of both forms: where only one is not ok, which."""
    alone, uniform = forms[False], forms.get(True, forms[False])
    if (alone == OK) == (uniform == OK):
        return alone
    return f"{alone}:{PER_LANE}" if uniform == OK else f"{uniform}:{UNIFORM}"


def probe(statement: Statement, lane: Lane, processor: str, *, uniform: bool) -> Probed:
    """Compile and link one statement in one form."""
    try:
        code, assembly = lane.compile(statement.module(uniform=uniform), processor)
    except ToolError as error:
        return Probed(_failure(str(error)))
    try:
        lane.link(code)
    except ToolError as error:
        if "undefined" in str(error) and statement.name in str(error):
            return Probed("name_absent")
        raise
    return Probed(OK, tuple(instructions(assembly)))


def _failure(said: str) -> str:
    if any(words in said for words in CANNOT_SELECT):
        return "arch_absent"
    return "crash" if any(words in said for words in ENDED) else "rejected"


def instructions(assembly: str) -> list[str]:
    """Return the instructions and labels of the probe's kernel, without comments."""
    body = assembly.partition(f"\n{PROBE}:")[2].partition("\n\t.section")[0]
    lines = (re.sub(r"\s*(;|//).*", "", line).strip() for line in body.splitlines())
    return [line for line in lines if line and not line.startswith(".") and not line.endswith(":")]


def measure(
    statements: Iterable[Statement],
    used_by: Mapping[Statement, Mapping[int, tuple[str, ...]]],
    lanes: Mapping[int, Lane],
    processors: Sequence[str],
) -> tuple[Row, ...]:
    """Return a row per statement, measured with each LLVM generation's lane on each processor."""
    every = sorted(set(statements))
    found: dict[Statement, dict[int, dict[str, str]]] = {each: {llvm: {} for llvm in lanes} for each in every}
    for llvm, lane in lanes.items():
        for processor in processors:
            for statement, status in zip(every, statuses(every, lane, processor), strict=True):
                found[statement][llvm][processor] = status
    return tuple(Row(statement=each, status=found[each], used_by=used_by.get(each, {})) for each in every)
