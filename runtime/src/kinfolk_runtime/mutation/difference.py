"""The lines of IR in which a mutant differs from its kernel."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from kinfolk.ir.text import print_kernel
from kinfolk.ir.value import Kernel

_NAME = re.compile(r"%\d+")


def difference(original: Kernel, mutant: Kernel) -> tuple[str, ...]:
    """Return the lines that are gone, with `-`, and those that stand there, with `+`.

    Where lines came or went, values after them have other numbers, which alone are no difference.
    """
    before, after = print_kernel(original).splitlines(), print_kernel(mutant).splitlines()
    if len(before) == len(after):
        pairs = zip(before, after, strict=True)
        return tuple(line for one, other in pairs if one != other for line in (f"-{one}", f"+{other}"))
    return tuple(_told(before, after))


def _told(before: list[str], after: list[str]) -> Iterator[str]:
    plain = [[_NAME.sub("%", line) for line in lines] for lines in (before, after)]
    matcher = difflib.SequenceMatcher(None, *plain, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            yield from (f"-{line}" for line in before[a:b])
            yield from (f"+{line}" for line in after[c:d])
