"""What an operator is called with, and what comes of it: a request that runs, or outputs without values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import attrs

from kinfolk.errors import BindError
from kinfolk.fields import meaning_of
from kinfolk.operand import inputs_of, outputs_of, stated_fields
from kinfolk.record import fields_of
from kinfolk_runtime.torch.launching import device_of, launch, runner_on
from kinfolk_runtime.torch.library import dtype_of, element_of, torch
from kinfolk_runtime.torch.schema import OWN

if TYPE_CHECKING:
    from kinfolk.request import Request


@attrs.frozen
class _Described:
    """A tensor as operands see it."""

    shape: Sequence[Any]
    dtype: str


@attrs.frozen
class Call:
    """What an operator was called with: tensors by name, and the fields that are passed or that tensors state."""

    request_type: type[Request]
    tensors: Mapping[str, Any]
    fields: Mapping[str, Any]
    options: Mapping[str, Any]

    @classmethod
    def of(cls, request_type: type[Request], arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Call:
        """Read fields off tensors; BindError where there is none, or one of them has no dtype or form of a kernel's."""
        names = inputs_of(request_type.operands)
        tensors = {name: tensor for name, tensor in zip(names, arguments, strict=False) if tensor is not None}
        if not tensors:
            raise BindError(f"kinfolk::{request_type.family} was passed no tensor, it takes {', '.join(names)}.")
        described = {
            name: _Described(tuple(tensor.shape), element_of(name, tensor.dtype)) for name, tensor in tensors.items()
        }
        given = {name: _plain(value) for name, value in options.items() if name not in OWN and value is not None}
        stated = stated_fields(request_type.operands, described, given)
        call = cls(request_type, tensors, {**_defaults(request_type), **stated}, options)
        call._expect_all()
        return call

    def _expect_all(self) -> None:
        """Raise BindError where a field is neither passed nor stated, nor has a default."""
        missing = {field.name: meaning_of(field) for field in fields_of(self.request_type)}
        missing = {name: means for name, means in missing.items() if name not in self.fields}
        if not missing:
            return
        operands = [each for each in self.request_type.operands if not each.output and each.name not in self.tensors]
        stating = dict.fromkeys(each.name for each in operands if not missing.keys().isdisjoint(each.leaves()))
        told = "; ".join(f"{name}: {means}" if means else name for name, means in missing.items())
        raise BindError(
            f"kinfolk::{self.request_type.family} lacks {', '.join(missing)}, which {', '.join(self.tensors)} do not "
            f"state ({told}). Pass {'it' if len(missing) == 1 else 'them'} by name"
            f"{', or what states it: ' + ' or '.join(stating) if stating else ''}."
        )

    def launch(self, out: list[Any] | None = None) -> list[Any]:
        """Run the request where the tensors lie, and return the outputs; raises as its class, Runner and compiler."""
        device = device_of(self.tensors)
        runner = runner_on(self.request_type.family, self.options.get("arch"), self.options.get("flavor"), device)
        request = self.request_type(**self.fields)
        return launch(runner, request, self.tensors, device, self.options.get("check", True), out)

    def fake_outputs(self) -> list[Any]:
        """Return outputs without values, of extents that may be symbols."""
        device = next(iter(self.tensors.values())).device
        return [
            torch.empty(output.extents(self.fields), dtype=dtype_of(output.element(self.fields)), device=device)
            for output in outputs_of(self.request_type.operands, self.fields)
        ]


def _defaults(request_type: type[Request]) -> dict[str, Any]:
    """Return the fields that have a default; one that is made of other fields counts as none."""
    found: dict[str, Any] = {}
    for field in fields_of(request_type):
        default: Any = field.default
        if default is attrs.NOTHING:
            continue
        factory: Any = getattr(default, "factory", None)
        if factory is None:
            found[field.name] = default
        elif not default.takes_self:
            found[field.name] = factory()
    return found


def _plain(value: Any) -> Any:
    """Return a value as fields have it: a list as a tuple."""
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else value
