"""A scenario: named inputs on which a kernel is run."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

import attrs
import numpy as np

from kinfolk.check.element import Array
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
        """Return the inputs by name."""
        return self.build(np.random.default_rng(zlib.crc32(self.name.encode())))
