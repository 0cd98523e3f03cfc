"""Workspaces that calls on one stream use one after the other."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from typing import Final

from kinfolk.plan import Binding
from kinfolk_runtime.host_memory import Memory
from kinfolk_runtime.tensors import DTYPES, Tensor

_ALL: Final = weakref.WeakSet["Workspaces"]()


class Workspaces:
    """Memory by name of binding, as large as the largest call so far needed. `turn` is held while a call uses it.

    Memory that a larger one takes the place of lives on as long as a bound plan has it.
    """

    def __init__(self, memory: Memory) -> None:
        self.turn = threading.RLock()
        _ALL.add(self)
        self._memory = memory
        self._held: dict[tuple[str, str], Tensor] = {}

    def lend(self, binding: Binding, shape: Sequence[int], strides: Sequence[int]) -> Tensor | None:
        """Return memory of a workspace or a status word, for a call that has its turn."""
        if binding.role not in ("workspace", "status"):
            return None
        element = DTYPES[binding.dtype]
        last = -1 if 0 in shape else sum((extent - 1) * step for extent, step in zip(shape, strides, strict=True))
        size = max((last + 1) * element.itemsize, 1)
        key = (binding.name, binding.dtype)
        held = self._held.get(key)
        if held is None or held.value.shape[0] < size or held.address % binding.alignment:
            self._held.pop(key, None)
            del held
            held = self._memory.allocated(binding.name, "i8", [size], [1], max(binding.alignment, 256))
            self._held[key] = held
        return self._memory.part(held, binding.dtype, shape, strides)

    def lend_for_long(self, binding: Binding, shape: Sequence[int], strides: Sequence[int]) -> Tensor | None:
        """Return memory of a workspace, for a bound plan, whose status words are its own."""
        return self.lend(binding, shape, strides) if binding.role == "workspace" else None


def _give_turns_anew() -> None:
    """In a forked child: whoever had a turn is not here."""
    for each in _ALL:
        each.turn = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_give_turns_anew)
