"""Whether what refused a shape is what its file says: an unexpected refusal is a failure, one that stays away too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from kinfolk.refusal import Refusal
from kinfolk_runtime.bench.shapes import ExpectedRefusal

Groups = Sequence[Sequence[Refusal]]
"""Refusals by who refuses: a candidate's, or a request's or a gate's as one."""


def disagreements(groups: Groups, expected: Sequence[ExpectedRefusal]) -> Iterator[str]:
    """Yield a sentence where refusals and what is expected of a shape differ.

    In each group one refusal must have an expected code: whoever refuses for that reason may have others beside it.
    Each expected code must be among the refusals. What is broken (`error.`) is never expected.
    """
    patterns = [pattern for each in expected for pattern in each.codes]
    for group in groups:
        broken = any(refusal.is_error for refusal in group)
        if broken or not any(fnmatchcase(refusal.code, pattern) for refusal in group for pattern in patterns):
            yield f"unexpected: {'; '.join(f'{refusal.code}: {refusal.sentence}' for refusal in group)}"
    codes = [refusal.code for group in groups for refusal in group]
    for pattern in patterns:
        if not any(fnmatchcase(code, pattern) for code in codes):
            happened = f"refused by {', '.join(dict.fromkeys(codes))}" if codes else "served"
            yield f"{pattern} is expected and does not happen, the shape is {happened}; take it off the file's refused"
