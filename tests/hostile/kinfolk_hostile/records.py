"""Requests and specs of the hostile family: the example's, and those with a fault."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs

from kinfolk.expr import field
from kinfolk.fields import ExactFloat, ExactInt, launch_field
from kinfolk.ir.types import I32
from kinfolk.operand import Operand
from kinfolk.parameters import Parameter
from kinfolk_row_softmax.request import OPERANDS, RowSoftmaxRequest
from kinfolk_row_softmax.spec import RowSoftmaxSpec


@attrs.frozen(kw_only=True)
class HostileRequest(RowSoftmaxRequest):
    """The example's request under this family's name."""

    family: ClassVar[str] = "hostile"


def _with_operand(position: int, **changed: Any) -> tuple[Operand, ...]:
    """Return the example's operands with one changed: 0 x, 1 y, 2 lse."""
    found = list(OPERANDS)
    found[position] = attrs.evolve(found[position], **changed)
    return tuple(found)


@attrs.frozen(kw_only=True)
class TurnedRequest(HostileRequest):
    """It says that an output has its rows and columns in the other order."""

    operands: ClassVar[tuple[Operand, ...]] = _with_operand(1, shape=(field("columns"), field("rows")))


@attrs.frozen(kw_only=True)
class BoastfulRequest(HostileRequest):
    """It says that it pins a candidate where x is passed."""

    operands: ClassVar[tuple[Operand, ...]] = _with_operand(0, states={"candidate": "best"})


@attrs.frozen(kw_only=True)
class LaxRequest(HostileRequest):
    """It takes True and numpy's integers for a number of rows."""

    rows: int = launch_field(validator=attrs.validators.instance_of(int))


def _mute(instance: object, field: attrs.Attribute[Any], value: object) -> None:
    if type(value) is not int:
        raise TypeError("no")
    if not 0 <= value < 2**63:
        raise ValueError("no")


@attrs.frozen(kw_only=True)
class MuteRequest(HostileRequest):
    """It refuses a number of rows without a word."""

    rows: int = launch_field(validator=_mute)


@attrs.frozen(kw_only=True)
class SteepRequest(HostileRequest):
    """It takes scales that leave f32 when they are multiplied by log2 e."""

    scale: float = launch_field(validator=ExactFloat(minimum=2.0**-100, maximum=3e38))


@attrs.frozen(kw_only=True)
class LeveledSpec(RowSoftmaxSpec):
    """It has a field that no kernel depends on."""

    level: int = attrs.field(validator=ExactInt(maximum=2))


@attrs.frozen(kw_only=True)
class IdleSpec(RowSoftmaxSpec):
    """Its kernel takes a number that it does not read."""

    def parameters(self) -> tuple[Parameter, ...]:
        """Return the example's parameters and an idle one."""
        return (*super().parameters(), Parameter(name="idle", type=I32))


@attrs.frozen(kw_only=True)
class RoundingRequest(HostileRequest):
    """It makes of an odd number of columns the next even one."""

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "columns", self.columns + self.columns % 2)
