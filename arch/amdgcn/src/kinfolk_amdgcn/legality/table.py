"""The measured table that an arch's package holds, and what follows from it for an op on the arch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from importlib.resources import files
from typing import Any, Final

import attrs

from kinfolk.errors import PluginError
from kinfolk_amdgcn.legality.statement import Declaration, Statement

SCHEMA: Final = "kinfolk.amdgcn.legality/1"
FILE: Final = "legality.json"
TOOL: Final = "tools/measure_legality.py"
OK: Final = "ok"
STATUSES: Final[Mapping[str, str]] = {
    OK: "compiles, links, and every instruction is one of the processor's",
    "arch_absent": "is known to LLVM, which cannot select an instruction for it",
    "name_absent": "is no intrinsic of this LLVM and compiles as a function that nobody defines",
    "wrong_instruction": "compiles into an instruction that the processor does not have",
    "rejected": "is refused by the verifier as written",
    "crash": "ends the compiler otherwise",
}
UNIFORM: Final = "uniform"
PER_LANE: Final = "per_lane"
FORMS: Final[Mapping[str, str]] = {
    "": "",
    UNIFORM: " where its operands are uniform",
    PER_LANE: " where each lane has operands of its own",
}
"""A status such as `wrong_instruction:uniform` is of one form of operands alone; with the other the statement is ok."""


@attrs.frozen(kw_only=True)
class Row:
    """A statement, which ops' lowerings write it by LLVM generation, and its status by generation and processor."""

    statement: Statement
    status: Mapping[int, Mapping[str, str]]
    used_by: Mapping[int, tuple[str, ...]] = attrs.field(factory=dict[int, "tuple[str, ...]"])

    def to_json(self) -> dict[str, Any]:
        """Return the row of the file."""
        used = {f"llvm{llvm}": list(ops) for llvm, ops in sorted(self.used_by.items())}
        status = {f"llvm{llvm}": dict(sorted(found.items())) for llvm, found in sorted(self.status.items())}
        return {"statement": self.statement.text, **({"used_by": used} if used else {}), "status": status}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Row:
        """Return the row that `to_json` wrote."""
        return cls(
            statement=Statement(row["statement"]),
            status={_rank(llvm): dict(found) for llvm, found in row["status"].items()},
            used_by={_rank(llvm): tuple(ops) for llvm, ops in row.get("used_by", {}).items()},
        )


@attrs.frozen(slots=False, eq=False)
class Legality:
    """Rows by what they declare, and the tools they were measured with."""

    rows: tuple[Row, ...]
    tools: Mapping[str, str] = attrs.field(factory=dict[str, str])

    def find(self, call: Statement) -> Row | None:
        """Return the row of a call; of several that differ in literals only, the one with the call's.

        Of LLVM's own intrinsics, which it splits and widens as needed, a vector may be of a length not measured.
        """
        rows = self._by_declaration.get(call.declaration, ()) if call.declaration else ()
        if not rows and (each := call.componentwise):
            return self._by_component.get(each)
        if len(rows) < 2:
            return rows[0] if rows else None
        choosing = [
            index
            for index, seen in enumerate(zip(*(row.statement.literals for row in rows), strict=True))
            if len(set(seen)) > 1
        ]
        for row in rows:
            if all(row.statement.literals[index] == call.literals[index] for index in choosing):
                return row
        return None

    def status(self, row: Row, processor: str, llvm: int) -> str | None:
        """Return a row's status, None where it was not measured; of a newer LLVM that of the nearest one below."""
        measured_for = [generation for generation in row.status if generation <= llvm]
        return row.status[max(measured_for)].get(processor) if measured_for else None

    def refusal(self, call: Statement, processor: str, llvm: int) -> str | None:
        """Return why a processor does not have a call in an LLVM generation, and what it has; None where it has it."""
        row = self.find(call)
        status = row and self.status(row, processor, llvm)
        if row is None or status is None:
            return (
                f"{call} has not been measured for {processor} with LLVM {llvm}; `python {TOOL} {processor}`, "
                f"run in the sources of kinfolk, measures it and writes {FILE} into the arch's package"
            )
        if status == OK:
            return None
        others = self.instead(row, processor, llvm)
        has = f"it has {', '.join(others)}" if others else "it has nothing of its kind"
        name, _, form = status.partition(":")
        return f"{row.statement} is {name}{FORMS[form]} on {processor} with LLVM {llvm}: it {STATUSES[name]}; {has}"

    def instead(self, row: Row, processor: str, llvm: int) -> tuple[str, ...]:
        """Return the statements of a row's kind that a processor has."""
        kind = row.statement.kind
        alike = (other for other in self.rows if other.statement.kind == kind)
        return tuple(str(other.statement) for other in alike if self.status(other, processor, llvm) == OK)

    def lacking(self, processor: str, ops: Iterable[str], llvm: int | None = None) -> dict[str, str]:
        """Return the ops that a processor has in no LLVM generation, or not in this one: why, and what it has instead.

        An op is lacking when none of the calls that its lowering may write is legal. One that has some of them is
        refused where it writes another, when it is lowered.
        """
        lacking: dict[str, str] = {}
        for op in ops:
            rows = [(rank, row) for row in self.rows for rank, users in row.used_by.items() if op in users]
            uses = [(rank, row) for rank, row in rows if llvm in (None, rank)]
            if uses and not any(self.status(row, processor, rank) == OK for rank, row in uses):
                rank, row = max(uses, key=lambda use: use[0])
                lacking[op] = self.refusal(row.statement, processor, rank) or ""
        return lacking

    def to_json(self) -> str:
        """Return the file's text: a row a line, sorted, so that a change is a line."""
        rows = ",\n".join(json.dumps(row.to_json()) for row in sorted(self.rows, key=lambda row: row.statement))
        tools = json.dumps(dict(sorted(self.tools.items())))
        return f'{{"schema": "{SCHEMA}",\n"tools": {tools},\n"rows": [\n{rows}\n]}}\n'

    @classmethod
    def from_json(cls, text: str) -> Legality:
        """Return what `to_json` wrote."""
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise ValueError(f"a table of schema {data['schema']}, {SCHEMA} is read here")
        return cls(tuple(map(Row.from_json, data["rows"])), data["tools"])

    @classmethod
    def of_package(cls, package: str) -> Legality:
        """Return the table in an arch's package, without rows where there is none; PluginError for a damaged one."""
        path = files(package) / FILE
        if not path.is_file():
            return cls(())
        try:
            return cls.from_json(path.read_text(encoding="utf-8"))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            cause = f"{type(error).__name__}: {error}"
            raise PluginError(
                f"{path} is no table of legality ({cause}); delete it, and `python {TOOL}` writes it anew"
            ) from error

    @cached_property
    def _by_declaration(self) -> Mapping[Declaration, Sequence[Row]]:
        found: dict[Declaration, list[Row]] = {}
        for row in self.rows:
            if row.statement.declaration is not None:
                found.setdefault(row.statement.declaration, []).append(row)
        return found

    @cached_property
    def _by_component(self) -> Mapping[Declaration, Row]:
        return {each: row for row in self.rows if (each := row.statement.componentwise)}


def _rank(name: str) -> int:
    return int(name.removeprefix("llvm"))
