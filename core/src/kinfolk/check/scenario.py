"""A scenario: named inputs on which a kernel is run."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any, cast

import attrs
import numpy as np

from kinfolk.check.element import Array
from kinfolk.check.sparse import SparseArray
from kinfolk.fields import shown
from kinfolk.plugins.containment import WrongAnswerError, contained
from kinfolk.request import Request

Given = Array | SparseArray


@attrs.frozen(kw_only=True, eq=False)
class Scenario:
    """Named inputs for a request, the same on every call.

    `request` is the one asked about, or one that differs in launch fields alone where a situation needs it (a sequence
    without a query). `about` says in a phrase what the inputs are for. `build(generator)` makes the inputs by name; the
    generator is seeded by the scenario's name. `sparse` names the inputs that are a SparseArray: what they do not
    hold takes no memory, and on an executor that needs it all the scenario is left out.
    """

    name: str
    about: str
    request: Request
    build: Callable[[np.random.Generator], Mapping[str, Given]]
    sparse: frozenset[str] = frozenset()

    def inputs(self) -> Mapping[str, Any]:
        """Return the inputs by name; HookFault where `build` fails or gives no arrays, or others than are declared."""
        generator = np.random.default_rng(zlib.crc32(self.name.encode()))
        call = f"Scenario.build of {self.name}"
        return contained(f"family {self.request.family}", call, self.build, generator, take=self._arrays)

    def _arrays(self, answer: Any) -> Mapping[str, Given]:
        if not isinstance(answer, Mapping):
            raise WrongAnswerError(f"returned {shown(answer)}, it returns arrays by name")
        for name, array in cast("Mapping[Any, Any]", answer).items():
            is_sparse = isinstance(array, SparseArray)
            if type(name) is not str or not (is_sparse or isinstance(array, np.ndarray)):
                raise WrongAnswerError(f"returned {shown(array)} for {shown(name)}, it returns arrays by name")
            if is_sparse is not (name in self.sparse):
                declared = ", ".join(sorted(self.sparse)) or "none"
                kind = "a sparse" if is_sparse else "a whole"
                raise WrongAnswerError(f"returned {kind} array for {name}; declared as sparse: {declared}")
        return cast("Mapping[str, Given]", answer)
