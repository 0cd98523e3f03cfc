"""Matrix atoms from a table: one row gives the meaning the engines run, the layouts proofs read, and the LLVM call.

A row (JSON) names shape, element types, passes, intrinsic, and per operand how its elements lie in the lanes:

    {"name": "mfma_f32_16x16x16_f16", "m": 16, "n": 16, "k": 16, "passes": 4, "intrinsic": "llvm.amdgcn.mfma...",
     "a": {"type": "f16", "word": "<4 x half>", "lane_axis": "row", "run": 4}, "b": {...}, "c": {...}}

`lane_axis` is the index that neighbouring lanes count. Along the other one a lane holds `run` elements, and its next
`run` come after every other lane has had its own. `word` is the LLVM type the intrinsic takes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any, Final

import attrs
import numpy as np

from kinfolk.errors import InternalError
from kinfolk.ir import rules
from kinfolk.ir.meaning import Matrix, OperandMap
from kinfolk.ir.op import LlvmWriter, LowerToLlvm, OpDef, effects
from kinfolk.ir.types import SCALARS, ScalarType, Type, vector
from kinfolk.ir.value import Operation, Value
from kinfolk.matrix import Atom, MatrixCatalog

FILE: Final = "matrix_table.json"
_UNUSED: Final = ("i32 0", "i32 0", "i32 0")  # cbsz, abid, blgp: broadcasts that these shapes do not have


@attrs.frozen(kw_only=True)
class OperandRow:
    """One operand of a row, at its size rows by columns."""

    type: ScalarType
    word: str
    lane_axis: str
    run: int
    rows: int
    columns: int

    def lane_map(self, wave_size: int) -> OperandMap:
        """Return where each lane's slots lie, as arrays [wave_size, slots]."""
        width, depth = (self.rows, self.columns) if self.lane_axis == "row" else (self.columns, self.rows)
        groups, slots = wave_size // width, self.rows * self.columns // wave_size
        lane, slot = np.arange(wave_size)[:, None], np.arange(slots)[None, :]
        along = np.broadcast_to(lane % width, (wave_size, slots))
        other = self.run * (lane // width) + slot % self.run + self.run * groups * (slot // self.run)
        if groups * width != wave_size or sorted(zip(along.flat, other.flat, strict=True)) != _all_cells(width, depth):
            raise InternalError(f"{self} does not place every element of {self.rows}x{self.columns} exactly once")
        rows, columns = (along, other) if self.lane_axis == "row" else (other, along)
        return OperandMap(rows.astype(np.int64), columns.astype(np.int64))


def _all_cells(width: int, depth: int) -> list[tuple[int, int]]:
    return [(along, other) for along in range(width) for other in range(depth)]


def atom(row: Mapping[str, Any], *, dialect: str, wave_size: int, source: str) -> Atom:
    """Return the atom of one row; InternalError when its lane maps do not cover its operands exactly."""
    m, n, k = row["m"], row["n"], row["k"]
    a = _operand(row["a"], m, k)
    b = _operand(row["b"], k, n)
    c = _operand(row["c"], m, n)
    meaning = Matrix(
        m=m,
        n=n,
        k=k,
        a_type=a.type,
        b_type=b.type,
        c_type=c.type,
        a=a.lane_map(wave_size),
        b=b.lane_map(wave_size),
        c=c.lane_map(wave_size),
    )
    op = OpDef(
        name=f"{dialect}.{row['name']}",
        operands=("a", "b", "c"),
        result=_result_rule(meaning),
        effects=effects("convergent"),  # all lanes take part, active or not
        issue="matrix",
        meaning=meaning,
        lowering=_lowering(str(row["intrinsic"]), (a.word, b.word, c.word)),
        uniform=False,
        source=source,
    )
    return Atom(op, row["passes"])


def atoms(rows: Iterable[Mapping[str, Any]], *, dialect: str, wave_size: int, source: str) -> tuple[Atom, ...]:
    """Return the atoms of a table, in its order."""
    return tuple(atom(row, dialect=dialect, wave_size=wave_size, source=source) for row in rows)


def catalog(package: str) -> MatrixCatalog:
    """Return the atoms of the table in an arch's package.

    Beside `atoms` it names their `source`, the `wave_size`, and the `dialect`, which the names of their ops begin with;
    it stays as it is where a copy of the arch goes by another name.
    """
    table = json.loads((files(package) / FILE).read_text(encoding="utf-8"))
    settings = {key: table[key] for key in ("dialect", "wave_size", "source")}
    return MatrixCatalog(atoms(table["atoms"], **settings))


def _operand(row: Mapping[str, Any], rows: int, columns: int) -> OperandRow:
    if row["lane_axis"] not in ("row", "column"):
        raise InternalError(f"lanes count rows or columns, the table says {row['lane_axis']!r}")
    element = SCALARS[row["type"]]
    return OperandRow(
        type=element, word=row["word"], lane_axis=row["lane_axis"], run=row["run"], rows=rows, columns=columns
    )


def _result_rule(shape: Matrix) -> Any:
    expected = tuple(
        vector(type_, operand.slots)
        for type_, operand in ((shape.a_type, shape.a), (shape.b_type, shape.b), (shape.c_type, shape.c))
    )

    def rule(types: tuple[Type, ...], _: Mapping[str, Any]) -> tuple[Type, ...]:
        for name, wanted, got in zip("abc", expected, types, strict=True):
            rules.expect(got == wanted, f"operand {name} is {wanted}, got {got}")
        return (expected[2],)

    return rule


def _lowering(intrinsic: str, words: tuple[str, str, str]) -> LowerToLlvm:
    def lower(w: LlvmWriter, op: Operation) -> None:
        operands = [_as_word(w, value, word) for value, word in zip(op.operands, words, strict=True)]
        w.alias(op.results[0], w.call(words[2], intrinsic, *operands, *_UNUSED))

    return lower


def _as_word(w: LlvmWriter, value: Value, word: str) -> str:
    type_, name = w.type(value.type), w.name(value)
    if type_ == word and name.startswith("%"):
        return f"{word} {name}"
    return f"{word} {w.fresh(f'bitcast {type_} {name} to {word}')}"
