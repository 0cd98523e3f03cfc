"""A scenario: named inputs on which a kernel is run."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any, cast

import attrs
import numpy as np

from kinfolk.check.element import Array
from kinfolk.fields import shown
from kinfolk.plugins.containment import WrongAnswerError, contained
from kinfolk.request import Request


@attrs.frozen(kw_only=True, eq=False)
class Scenario:
    """Named inputs for a request, the same on every call.

    `request` is the one asked about, or one that differs in launch fields alone where a situation needs it (a sequence
    without a query). `about` says in a phrase what the inputs are for. `build(generator)` makes the inputs by name; the
    generator is seeded by the scenario's name.
    """

    name: str
    about: str
    request: Request
    build: Callable[[np.random.Generator], Mapping[str, Array]]

    def inputs(self) -> Mapping[str, Array]:
        """Return the inputs by name; HookFault where `build` fails or gives no arrays."""
        generator = np.random.default_rng(zlib.crc32(self.name.encode()))
        call = f"Scenario.build of {self.name}"
        return contained(f"family {self.request.family}", call, self.build, generator, take=_arrays)


def _arrays(answer: Any) -> Mapping[str, Array]:
    if not isinstance(answer, Mapping):
        raise WrongAnswerError(f"returned {shown(answer)}, it returns arrays by name")
    for name, array in cast("Mapping[Any, Any]", answer).items():
        if type(name) is not str or not isinstance(array, np.ndarray):
            raise WrongAnswerError(f"returned {shown(array)} for {shown(name)}, it returns arrays by name")
    return cast("Mapping[str, Array]", answer)
