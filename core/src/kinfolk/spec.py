"""What every spec is: all that is compiled into one kernel, schedule and compiler options included."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from kinfolk.fields import shown
from kinfolk.parameters import Parameter
from kinfolk.plugins.containment import WrongAnswerError, guard
from kinfolk.record import Record, class_name

if TYPE_CHECKING:
    from collections.abc import Callable

_SYMBOL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]{0,199}")
_FIXED: Final = ("identity", "digest", "data", "to_json", "content_digest")
"""What every key is made of: a spec that says another's identity would be served another's kernel."""


def _symbol(answer: Any) -> str:
    if type(answer) is not str or not _SYMBOL.fullmatch(answer):
        rule = "it returns a str of at most 200 letters, digits, _, . and $, the first no digit"
        raise WrongAnswerError(f"returned {shown(answer)}, {rule}")
    return answer


def _parameters(answer: Any) -> tuple[Parameter, ...]:
    if type(answer) is not tuple or not all(isinstance(each, Parameter) for each in cast("tuple[Any, ...]", answer)):
        raise WrongAnswerError(f"returned {shown(cast('object', answer))}, it returns a tuple of Parameter")
    return cast("tuple[Parameter, ...]", answer)


def _reason(answer: Any) -> str | None:
    if answer is not None and type(answer) is not str:
        raise WrongAnswerError(f"returned {shown(answer)}, it returns a str or None")
    return answer


@attrs.frozen(kw_only=True)
class LoopWork:
    """What a workgroup gets done in one round of its main loop: `tokens` keys, each for so many `heads` of queries."""

    tokens: int
    heads: int


def _work(answer: Any) -> LoopWork | None:
    if answer is not None and not isinstance(answer, LoopWork):
        raise WrongAnswerError(f"returned {shown(answer)}, it returns a LoopWork or None")
    return answer


_METHODS: Final[dict[str, Callable[[Any], Any]]] = {
    "symbol": _symbol,
    "parameters": _parameters,
    "reason_for": _reason,
    "work_per_round": _work,
}


@attrs.frozen(kw_only=True)
class Spec(Record):
    """One kernel's compiled-in choices. Subclass with `@attrs.frozen(kw_only=True)` and declare `parameters`.

    Equal identity means equal bytes. `evolve`, pickle, copy and JSON validate again; `revalidate` does so on demand.
    What a subclass's own methods raise, or answer wrongly, is a HookFault that names them; `identity` and what it is
    made of cannot be overridden.
    """

    @classmethod
    def __attrs_init_subclass__(cls) -> None:
        super().__attrs_init_subclass__()
        if own := [name for name in _FIXED if name in cls.__dict__]:
            raise TypeError(f"{class_name(cls)} overrides {', '.join(own)}, which keys are made of")
        guard(cls, _METHODS)

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

    def work_per_round(self) -> LoopWork | None:
        """Return what a workgroup gets done in one round of the main loop; None, where nobody says, gives no rate."""
        return None

    def parameters(self) -> tuple[Parameter, ...]:
        """Return what the kernel takes, in order: one list that the emitter, the Plan and the binder read."""
        raise NotImplementedError(f"{type(self).__name__} declares no parameters")
