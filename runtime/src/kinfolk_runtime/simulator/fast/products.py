"""The function of a matrix op, made from its lane maps: products summed in ascending k, starting from C.

Each step multiplies, rounds, adds and rounds, as the reference does. Where no product of the operands can be rounded a
fused step gives the same, and is taken. Products of i8 are summed in i32, which wraps.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from kinfolk.ir.float8 import FORMATS
from kinfolk.ir.llvm_lanes import LlvmAlgebra, LlvmLane, storage_type
from kinfolk.ir.meaning import LaneFunction, Matrix, OperandMap
from kinfolk.ir.ops.convert import widen_float
from kinfolk.ir.ops.float8 import widen_float8
from kinfolk.ir.types import BF16, F16, F32, I8, I32, ScalarType
from kinfolk_runtime.simulator.fast.layout import SCRATCH, SLOT_ALIGNMENT, STAGED
from kinfolk_runtime.simulator.fast.text import OpText, OpWriter
from kinfolk_runtime.simulator.products import wrong_types

Index = npt.NDArray[np.int64]

_ACCUMULATORS = 16
_VECTOR = 16


class UnknownMatrix(Exception):  # never leaves the engine: such a kernel runs in the reference engine
    """A matrix op whose element types or maps have no function."""


def matrix(meaning: Matrix, wave_size: int) -> OpText:
    """Return the function of a matrix op: result, A, B, C."""
    if wrong := wrong_types(meaning):
        raise UnknownMatrix(f"matrix op that {wrong}")
    return _Product(meaning, wave_size).text()


def scratch_bytes(meaning: Matrix) -> int:
    """Return the bytes of scratch that a product takes, beyond `STAGED`."""
    m, n, k = meaning.m, meaning.n, meaning.k
    return _lines(m * k) + _lines(k * n) + _lines(m * n) + _lines(k * max(m, n))


def _lines(count: int) -> int:
    """Return the bytes of so many numbers of 32 bits, in whole lines."""
    return -(-4 * count // SLOT_ALIGNMENT) * SLOT_ALIGNMENT


class _Product:
    def __init__(self, meaning: Matrix, wave_size: int) -> None:
        self.meaning, self.m, self.n, self.k = meaning, meaning.m, meaning.n, meaning.k
        self.w = OpWriter(wave_size)
        self.size = wave_size
        self.lanes = next(width for width in (_VECTOR, 8, 4, 2, 1) if meaning.n % width == 0)
        self.row_lanes = next(width for width in (_VECTOR, 8, 4, 2, 1) if meaning.m % width == 0)
        self.item = "i32" if meaning.c_type == I32 else "float"

    def text(self) -> OpText:
        """Return the finished function."""
        w = self.w
        self.d, self.a, self.b, self.c = w.slot(), w.slot(), w.slot(), w.slot()
        idle = w.let(f"icmp ne i64 {w.exec()}, {w.full}")
        w.fault_if(idle)
        scratch = w.field("%c", SCRATCH, "ptr")
        self.a_rows = w.at(scratch, STAGED)
        self.b_rows = w.at(scratch, STAGED + _lines(self.m * self.k))
        self.c_rows = w.at(scratch, STAGED + _lines(self.m * self.k) + _lines(self.k * self.n))
        a_at = _positions(self.meaning.a, self.size, self.m, self.k).T
        b_at = _positions(self.meaning.b, self.size, self.k, self.n)
        c_at = _positions(self.meaning.c, self.size, self.m, self.n)
        self._widen(self.a, a_at, self.meaning.a_type, self.a_rows, self.row_lanes)
        self._widen(self.b, b_at, self.meaning.b_type, self.b_rows, self.lanes)
        plain = _contiguous(c_at, self.lanes)
        if plain:
            place = {
                (i, j): w.at(self.c, 4 * int(c_at[i, j])) for i in range(self.m) for j in range(0, self.n, self.lanes)
            }
            put = {key: w.at(self.d, 4 * int(c_at[key])) for key in place}
        else:
            self._move(self.c, c_at, self.c_rows, self.item, gather=True)
            place = put = {
                (i, j): w.at(self.c_rows, 4 * (i * self.n + j))
                for i in range(self.m)
                for j in range(0, self.n, self.lanes)
            }
        exact = self._exact() if self.item == "float" else "false"
        if exact == "false":
            self._sum(place, put, fused=False)
        elif exact is None:
            self._sum(place, put, fused=True)
        else:
            fused, stepwise, done = w.fresh("fused"), w.fresh("stepwise"), w.fresh("done")
            w.branch(exact, fused, stepwise)
            w.label(stepwise)
            self._sum(place, put, fused=False)
            w.jump(done)
            w.label(fused)
            self._sum(place, put, fused=True)
            w.jump(done)
            w.label(done)
        if not plain:
            self._move(self.d, c_at, self.c_rows, self.item, gather=False)
        return w.finish()

    def _widen(self, source: str, at: Index, type_: ScalarType, target: str, lanes: int) -> None:
        """Write an operand as rows of 32 bits an element, row by row of `at`."""
        w, narrow = self.w, storage_type(type_)
        if lanes == 1 or not _contiguous(at, lanes):
            loose = w.at(self.c_rows, _lines(self.m * self.n))
            self._move(source, at, loose, f"i{type_.bits}", gather=True)
            source, at = loose, np.arange(at.size, dtype=np.int64).reshape(at.shape)
        for row in range(at.shape[0]):
            for column in range(0, at.shape[1], lanes):
                where = w.at(source, type_.bytes * int(at[row, column]))
                bits = w.let(f"load <{lanes} x {narrow}>, ptr {where}, align {type_.bytes * lanes}")
                wide = self._wide(bits, type_, lanes)
                where = w.at(target, 4 * (row * at.shape[1] + column))
                w.do(f"store <{lanes} x {self.item}> {wide}, ptr {where}, align {4 * lanes}")

    def _wide(self, bits: str, type_: ScalarType, lanes: int) -> str:
        if type_ == F32:
            return bits
        algebra = LlvmAlgebra(lanes, self.w.let, self.w.declare, _nowhere)
        narrow = LlvmLane(algebra, type_, bits)
        if type_ == I8:
            return algebra.sext(narrow, I32).name
        if type_ in FORMATS:
            widening = widen_float8.meaning
            assert isinstance(widening, LaneFunction)
            return widening.body(algebra, narrow, to=F32).name
        return widen_float(algebra, narrow).name

    def _move(self, value: str, at: Index, rows: str, item: str, gather: bool) -> None:
        """Copy items of a value at the places `at` to rows in a line, or back."""
        w = self.w
        places = ", ".join(f"i32 {int(place)}" for place in at.reshape(-1))
        table = f"@places_{hashlib.sha256(places.encode()).hexdigest()[:20]}"
        w.declare(f"{table} = private unnamed_addr constant [{at.size} x i32] [{places}]")
        before, round_, after = w.fresh("before"), w.fresh("items"), w.fresh("after")
        w.jump(before)
        w.label(before)
        w.jump(round_)
        w.label(round_)
        following = w.fresh("%next")
        number = w.let(f"phi i64 [0, %{before}], [{following}, %{round_}]")
        place = w.let(f"load i32, ptr {w.let(f'getelementptr i32, ptr {table}, i64 {number}')}")
        there = w.let(f"getelementptr {item}, ptr {value}, i32 {place}")
        here = w.let(f"getelementptr {item}, ptr {rows}, i64 {number}")
        source, target = (there, here) if gather else (here, there)
        w.do(f"store {item} {w.let(f'load {item}, ptr {source}')}, ptr {target}")
        w.lines.append(f"  {following} = add i64 {number}, 1")
        w.branch(w.let(f"icmp ult i64 {following}, {at.size}"), round_, after)
        w.label(after)

    def _exact(self) -> str | None:
        """Return an i1, whether all products are exact in f32; None where they always are.

        f16 and floats of 8 bits always have exact products. Two bf16 do where their exponents keep it a normal number.
        """
        types = {self.meaning.a_type, self.meaning.b_type}
        if types <= {F16, *FORMATS}:
            return None
        w = self.w
        if types != {BF16}:
            return "false"
        wrong = ""
        for rows, length in ((self.a_rows, self.m * self.k), (self.b_rows, self.k * self.n)):
            for start in range(0, length, _VECTOR):
                lanes = min(_VECTOR, length - start)
                vector = f"<{lanes} x i32>"
                bits = w.let(f"load {vector}, ptr {w.at(rows, 4 * start)}, align {min(64, 4 * lanes)}")
                magnitude = w.let(f"and {vector} {bits}, splat (i32 2147483647)")
                shifted = w.let(f"sub {vector} {magnitude}, splat (i32 {0x20000000})")
                outside = w.let(f"icmp ugt {vector} {shifted}, splat (i32 {0x3F000000})")
                some = w.let(f"icmp ne {vector} {magnitude}, zeroinitializer")
                both = w.let(f"and <{lanes} x i1> {outside}, {some}")
                text = w.let(f"bitcast <{lanes} x i1> {both} to i{lanes}")
                text = text if lanes == _VECTOR else w.let(f"zext i{lanes} {text} to i{_VECTOR}")
                wrong = text if not wrong else w.let(f"or i{_VECTOR} {wrong}, {text}")
        return w.let(f"icmp eq i{_VECTOR} {wrong}, 0")

    def _sum(self, place: dict[Any, str], put: dict[Any, str], fused: bool) -> None:
        w, vector = self.w, f"<{self.lanes} x {self.item}>"
        multiply, add = ("mul", "add") if self.item == "i32" else ("fmul", "fadd")
        across = self.n // self.lanes
        height = max(1, _ACCUMULATORS // across)
        suffix = f"v{self.lanes}f32"
        if fused:
            w.declare(f"declare {vector} @llvm.fma.{suffix}({vector}, {vector}, {vector})")
        for top in range(0, self.m, height):
            cells = [(i, j) for i in range(top, min(self.m, top + height)) for j in range(0, self.n, self.lanes)]
            sums = {cell: w.let(f"load {vector}, ptr {place[cell]}, align {4 * self.lanes}") for cell in cells}
            for step in range(self.k):
                row = {
                    j: w.let(f"load {vector}, ptr {w.at(self.b_rows, 4 * (step * self.n + j))}, align {4 * self.lanes}")
                    for j in range(0, self.n, self.lanes)
                }
                factor: dict[int, str] = {}
                for i, j in cells:
                    if i not in factor:
                        one = w.let(f"load {self.item}, ptr {w.at(self.a_rows, 4 * (step * self.m + i))}")
                        seed = w.let(f"insertelement {vector} poison, {self.item} {one}, i32 0")
                        factor[i] = w.let(
                            f"shufflevector {vector} {seed}, {vector} poison, <{self.lanes} x i32> zeroinitializer"
                        )
                    if fused:
                        given = f"{vector} {factor[i]}, {vector} {row[j]}, {vector} {sums[i, j]}"
                        sums[i, j] = w.let(f"call {vector} @llvm.fma.{suffix}({given})")
                    else:
                        product = w.let(f"{multiply} {vector} {factor[i]}, {row[j]}")
                        sums[i, j] = w.let(f"{add} {vector} {sums[i, j]}, {product}")
            for cell in cells:
                w.do(f"store {vector} {sums[cell]}, ptr {put[cell]}, align {4 * self.lanes}")


def _nowhere(name: str) -> str:
    raise AssertionError(f"a conversion asks for {name}")


def _positions(map_: OperandMap, size: int, height: int, width: int) -> Index:
    """Return where in the flat [slots, lanes] value each element of the matrix is."""
    rows, columns = map_.rows.T, map_.columns.T
    if map_.rows.shape != map_.columns.shape or map_.rows.shape[0] != size:
        raise UnknownMatrix("a lane map of another wave")
    positions = np.full((height, width), -1, np.int64)
    positions[rows.reshape(-1), columns.reshape(-1)] = np.arange(rows.size)
    if (positions < 0).any():
        raise UnknownMatrix("an element in no lane")
    return positions


def _contiguous(at: Index, lanes: int) -> bool:
    """Return whether every run of `lanes` elements of a row lies in order, aligned to its length."""
    runs = at.reshape(at.shape[0], -1, lanes) if at.shape[1] % lanes == 0 else None
    if runs is None:
        return False
    return bool((runs - runs[:, :, :1] == np.arange(lanes)).all() and (runs[:, :, 0] % lanes == 0).all())


__all__ = ["UnknownMatrix", "matrix", "scratch_bytes"]
