"""Matrix atoms: what one matrix instruction multiplies and where each operand's elements live in the lanes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import attrs

from kinfolk.errors import KinfolkError
from kinfolk.ir.meaning import Matrix
from kinfolk.ir.op import OpDef
from kinfolk.ir.value import Value

FACT_PREFIX: Final = "matrix."
_FACT = re.compile(r"matrix\.(\d+)x(\d+)x(\d+)\.(\w+)\.(\w+)\.(\w+)", re.ASCII)


def atom_fact(*, m: int, n: int, k: int, a: str, b: str | None = None, c: str = "f32") -> str:
    """Return the name of the fact whether an arch has this atom, `matrix.MxNxK.A.B.C`, for conditions of limits."""
    return f"{FACT_PREFIX}{m}x{n}x{k}.{a}.{b or a}.{c}"


class NoSuchAtom(KinfolkError):
    """The arch has no matrix atom of the shape and types asked for; the message lists those it has."""


@attrs.frozen
class Atom:
    """A matrix instruction of an arch: D[m, n] = A[m, k] B[k, n] + C. `passes`: issue time in 4 clocks."""

    op: OpDef
    passes: int

    @property
    def shape(self) -> Matrix:
        """M, N, K, element types and lane maps."""
        assert isinstance(self.op.meaning, Matrix)
        return self.op.meaning

    def __call__(self, a: Value, b: Value, c: Value) -> Value:
        """Build the product of fragments laid out as `shape` says."""
        return self.op(a, b, c)

    def __str__(self) -> str:
        s = self.shape
        return f"{s.m}x{s.n}x{s.k} {s.a_type} x {s.b_type} -> {s.c_type}"


class MatrixCatalog:
    """The matrix atoms of one arch."""

    def __init__(self, atoms: tuple[Atom, ...]) -> None:
        self._atoms = atoms

    def __iter__(self) -> Iterator[Atom]:
        return iter(self._atoms)

    def find(self, *, m: int, n: int, k: int | None = None, a: str, b: str | None = None, c: str = "f32") -> Atom:
        """Return the atom of this shape and these element types (names such as "bf16"); of several, the one with the
        largest k.

        Raises `NoSuchAtom`.
        """
        fitting = [atom for atom in self._atoms if _fits(atom.shape, m, n, k, a, b or a, c)]
        if not fitting:
            known = "; ".join(map(str, self._atoms)) or "none at all"
            raise NoSuchAtom(f"no matrix atom {m}x{n}x{k or 'any k'} {a} x {b or a} -> {c}; there are: {known}")
        return max(fitting, key=lambda atom: atom.shape.k)

    def fact(self, name: str) -> bool:
        """Return whether there is the atom that `atom_fact` names; raise KeyError for a name it does not give."""
        parts = _FACT.fullmatch(name)
        if parts is None:
            raise KeyError(name)
        m, n, k = (int(parts[number]) for number in (1, 2, 3))
        return any(_fits(atom.shape, m, n, k, parts[4], parts[5], parts[6]) for atom in self._atoms)


def _fits(s: Matrix, m: int, n: int, k: int | None, a: str, b: str, c: str) -> bool:
    types = (s.a_type.name, s.b_type.name, s.c_type.name) == (a, b, c)
    return types and (s.m, s.n) == (m, n) and k in (None, s.k)
