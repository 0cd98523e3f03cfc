"""What core itself says of every spec and every compiled kernel, through the same hooks as anyone's plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, cast

from kinfolk.fields import FieldError
from kinfolk.hooks import hookimpl
from kinfolk.record import fields_of
from kinfolk.refusal import Refusal

if TYPE_CHECKING:
    from kinfolk.spec import Spec
    from kinfolk.usage import Usage

PLUGIN: Final = "kinfolk-core"


@hookimpl
def kinfolk_validate_spec(spec: Spec) -> Iterable[Refusal]:
    """Judge every field of the spec again, and then its fields together.

    One that was forged or damaged on its way is refused.
    """
    wrong = list(_wrong_fields(spec))
    if not wrong:
        try:
            spec.revalidate()
        except (TypeError, ValueError, AttributeError) as error:
            wrong.append(
                _invalid("spec.invalid", type(spec).__name__, spec, str(error), "Build the spec through its class.")
            )
    return wrong


def _wrong_fields(spec: Spec) -> Iterator[Refusal]:
    for field in fields_of(type(spec)):
        try:
            cast("Callable[..., None]", field.validator)(spec, field, getattr(spec, field.name))
        except FieldError as error:
            yield _invalid(f"spec.{field.name}.{error.reason}", field.name, error.value, error.rule, error.remedy)
        except (TypeError, ValueError, AttributeError) as error:
            value = getattr(spec, field.name, None)
            yield _invalid(
                f"spec.{field.name}.invalid", field.name, value, str(error), "Build the spec through its class."
            )


def _invalid(code: str, field: str, value: object, limit: str, remedy: str) -> Refusal:
    return Refusal(
        code=code,
        kind="invalid",
        field=field,
        value=value,
        limit=limit,
        because="a spec holds only values that its class takes",
        remedy=remedy,
        plugin=PLUGIN,
    )


@hookimpl
def kinfolk_gate_resources(usage: Usage) -> Iterable[Refusal]:
    """Refuse scratch: a kernel that keeps values in private memory is never handed out."""
    for field, count in (("scratch_bytes", usage.scratch_bytes), ("scratch_ops", usage.scratch_ops)):
        if count != 0:
            yield Refusal(
                code=f"resources.{field}",
                kind="cannot",
                field=field,
                value=count,
                limit=f"{field} == 0",
                because=f"{usage.symbol} would move values through private memory in its loop",
                remedy="Choose a schedule with fewer live values: a smaller tile, less read-ahead, or more registers.",
                plugin=PLUGIN,
            )
