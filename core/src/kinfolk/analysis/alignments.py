"""Accesses at addresses that are not proved to be multiples of what they claim."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import gcd
from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.analysis.strided import Strided, added, multiplied, number
from kinfolk.check.defect import Defect
from kinfolk.ir.meaning import MemoryAccess
from kinfolk.ir.ops.memory import access_bytes
from kinfolk.ir.types import PointerType, element_type

if TYPE_CHECKING:
    from kinfolk.analysis.subject import Subject
    from kinfolk.analysis.values import Values
    from kinfolk.ir.value import Operation

CHECK: Final = "unaligned_access"
WORD: Final = 4
"""Views begin and end at multiples of so many bytes, and are read in parts of so many."""


@attrs.frozen
class _Place:
    """A number of bytes that an op needs to be a multiple of `of`, in words."""

    words: str
    bytes: Strided
    of: int

    @property
    def proved(self) -> bool:
        return self.bytes.step % self.of == 0 and self.bytes.rest % self.of == 0

    def known(self) -> str:
        """Return what is known of it instead."""
        step = gcd(self.bytes.step, self.of) or self.of
        rest = self.bytes.rest % step
        if rest:
            return f"it is {rest} past a multiple of {step}, so it never is one"
        return f"it is known to be a multiple of {step}" if step > 1 else "no multiple of it is known"


def alignments(subject: Subject) -> tuple[Defect, ...]:
    """Return a defect for each access, and each view, at a place not proved to be aligned as it claims."""

    def judge(values: Values) -> Mapping[Operation, _Place]:
        return {op: place for op, sets in values.seen.items() for place in _places(op, sets) if not place.proved}

    return tuple(
        Defect(
            check=CHECK,
            where=str(op.location),
            problem=f"{op.name} needs {place.words} that is a multiple of {place.of} bytes; {place.known()}",
            remedy="declare a larger alignment of the parameter, make offsets and strides multiples, or claim less",
        )
        for op, place in subject.unproved(judge).items()
    )


def _places(op: Operation, sets: tuple[Strided, ...]) -> Iterator[_Place]:
    meaning = op.definition.meaning
    if not isinstance(meaning, MemoryAccess):
        return
    if meaning.action == "bound":
        yield _Place("a base of the view", sets[0], WORD)
        size = element_type(op.operands[0].type).bytes
        yield _Place("a size of the view", multiplied(sets[1], number(size)), WORD)
    elif meaning.action == "stage":
        yield from _staged(op, meaning, sets)
    elif meaning.action in ("load", "store", "atomic_add"):
        yield _accessed(op, meaning, sets)


def _accessed(op: Operation, meaning: MemoryAccess, sets: tuple[Strided, ...]) -> _Place:
    element = element_type(op.operands[0].type)
    if meaning.space == "view":
        return _Place("a place in the view", _element(op, sets, 1), min(WORD, access_bytes(op)))
    claimed = op.attributes.get("alignment") or element.bytes
    assert isinstance(claimed, int)
    address = sets[0] if isinstance(op.operands[0].type, PointerType) else _element(op, sets, 1)
    return _Place("an address", address, claimed)


def _staged(op: Operation, meaning: MemoryAccess, sets: tuple[Strided, ...]) -> Iterator[_Place]:
    count = op.attributes["count"]
    assert isinstance(count, int)
    moved = count * element_type(op.operands[0].type).bytes
    if meaning.space == "view":
        source = added(sets[0], multiplied(sets[1], number(element_type(op.operands[0].type).bytes)))
        yield _Place("a place in the view", source, min(WORD, moved))
    else:
        yield _Place("an address", sets[0], min(WORD, moved))
    target = len(op.operands) - 1
    size = element_type(op.operands[target - 1].type).bytes
    place = added(sets[target], number(_offset(op)))
    yield _Place("a place in workgroup memory", added(sets[target - 1], multiplied(place, number(size))), moved)


def _element(op: Operation, sets: tuple[Strided, ...], index: int) -> Strided:
    """Return the address of an element: of a buffer or a view, by the index and what the op adds to it."""
    size = element_type(op.operands[0].type).bytes
    return added(sets[0], multiplied(added(sets[index], number(_offset(op))), number(size)))


def _offset(op: Operation) -> int:
    extra = op.attributes.get("offset", 0)
    assert isinstance(extra, int)
    return extra
