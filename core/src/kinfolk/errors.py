"""What can go wrong, one class per cause. The type says whose fault: `TypeError`/`ValueError` the caller's,
`InternalError` ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinfolk.check.defect import Defect
    from kinfolk.refusal import Refusal


class KinfolkError(Exception):
    """The root of every error kinfolk raises on purpose."""


class Refused(KinfolkError):
    """A plugin declines, with every reason in `refusals`."""

    def __init__(self, message: str, refusals: Iterable[Refusal] = ()) -> None:
        super().__init__(message)
        self.refusals: tuple[Refusal, ...] = tuple(refusals)


class NoCandidate(Refused):
    """No installed candidate takes the request."""


class PinRefused(Refused):
    """The candidate the request pins cannot take it; nothing else is tried."""


class PluginError(KinfolkError):
    """A plugin could not be found, loaded or composed, or one of its hooks failed."""


class ToolError(KinfolkError):
    """A compiler or another tool failed; the message names kernel, command and what the tool said."""


class IRError(KinfolkError):
    """A kernel's IR breaks a rule of the op table."""


class DefectiveKernel(IRError):
    """A kernel keeps the rules of the op table, and a static analysis proves a fault of it; all are in `defects`."""

    def __init__(self, message: str, defects: Iterable[Defect] = ()) -> None:
        super().__init__(message)
        self.defects: tuple[Defect, ...] = tuple(defects)


class IllegalOp(IRError):
    """An op is asked of an arch that does not have it."""


class BindError(KinfolkError, ValueError):
    """Tensors or arguments disagree with the plan; raised before any launch."""


class SimulationError(KinfolkError):
    """A kernel did something wrong on the simulator; the message names op, source line, workgroup, wave, lanes and
    address.
    """


class InternalError(KinfolkError):
    """kinfolk, or a plugin, broke its own promise; please report it."""
