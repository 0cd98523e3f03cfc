"""What every spec is: all that is compiled into one kernel, schedule and compiler options included."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

from kinfolk.record import Record

if TYPE_CHECKING:
    from kinfolk.parameters import Parameter


@attrs.frozen(kw_only=True)
class Spec(Record):
    """One kernel's compiled-in choices. Subclass with `@attrs.frozen(kw_only=True)` and declare `parameters`.

    Equal identity means equal bytes. `evolve`, pickle, copy and JSON validate again; `revalidate` does so on demand.
    """

    def identity(self) -> str:
        """Return the canonical text of class and fields: the key of everything that is kept per spec."""
        return self.to_json()

    def digest(self) -> str:
        """Return 16 hex digits of sha256 over the identity."""
        return self.content_digest()

    def symbol(self) -> str:
        """Return a short readable kernel name; it is no key. Override it to say more than the class and the digest."""
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(self).__name__.removesuffix("Spec")).lower()
        return f"{words}_{self.digest()[:8]}"

    def reason_for(self, figure: str) -> str | None:
        """Return why the compiled kernel may have a figure that gates refuse without a reason; None: it may not.

        Override it to declare one, such as that values parked in other registers are moved outside the loop.
        """
        return None

    def parameters(self) -> tuple[Parameter, ...]:
        """Return what the kernel takes, in order: one list that the emitter, the Plan and the binder read."""
        raise NotImplementedError(f"{type(self).__name__} declares no parameters")
