"""The matrix atoms: 16x8x16, with the place of every element as data.

D[16, 8] = A[16, 16] B[16, 8] + C over the 32 lanes of a wave. A lane has one row of A and half of its k, one column of
B and a quarter of its k, and in C that column and a quarter of its rows. Simulator, proofs and verifier read the maps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from kinfolk.ir import rules
from kinfolk.ir.meaning import Matrix, OperandMap
from kinfolk.ir.op import LlvmWriter, OpDef, effects
from kinfolk.ir.types import BF16, F16, F32, ScalarType, Type, vector
from kinfolk.ir.value import Operation
from kinfolk.matrix import Atom, MatrixCatalog

M, N, K, LANES = 16, 8, 16, 32
_LANE = np.arange(LANES, dtype=np.int64)[:, None]


def _slots(count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.arange(count, dtype=np.int64)[None, :]


def _map(rows: Any, columns: Any, count: int) -> OperandMap:
    return OperandMap(np.broadcast_to(rows, (LANES, count)), np.broadcast_to(columns, (LANES, count)))


A: Final = _map(_LANE % M, 8 * (_LANE // M) + _slots(8), 8)
B: Final = _map(4 * (_LANE // N) + _slots(4), _LANE % N, 4)
C: Final = _map(4 * (_LANE // N) + _slots(4), _LANE % N, 4)
"""(lane, slot) to (row, column) of each operand; the result lies as C."""


def _atom(element: ScalarType) -> Atom:
    name = f"mma_{M}x{N}x{K}_{element.name}"
    operands = (vector(element, A.slots), vector(element, B.slots), vector(F32, C.slots))

    def result(types: tuple[Type, ...], _: Mapping[str, Any]) -> tuple[Type, ...]:
        for which, wanted, given in zip("abc", operands, types, strict=True):
            rules.expect(given == wanted, f"operand {which} is {wanted}, got {given}")
        return (operands[2],)

    def lower(w: LlvmWriter, op: Operation) -> None:
        """No LLVM has an instruction for it: a function that nobody defines stands in its place."""
        typed = [w.typed(operand) for operand in op.operands]
        w.alias(op.results[0], w.call(w.type(operands[2]), f"toy_simt_{name}", *typed))

    meaning = Matrix(m=M, n=N, k=K, a_type=element, b_type=element, c_type=F32, a=A, b=B, c=C)
    op = OpDef(
        name=f"toy_simt.{name}",
        operands=("a", "b", "c"),
        result=result,
        effects=effects("convergent"),  # all lanes take part, active or not
        issue="matrix",
        meaning=meaning,
        lowering=lower,
        source="made up",
    )
    return Atom(op, passes=8)


MATRIX: Final = MatrixCatalog((_atom(BF16), _atom(F16)))
