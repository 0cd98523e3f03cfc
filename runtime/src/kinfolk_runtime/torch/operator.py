"""Operators of torch made from families: real and fake kernels, and where gradients come from."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from kinfolk.plugins.composition import request_type_of
from kinfolk.plugins.loading import usable
from kinfolk_runtime.torch.call import Call
from kinfolk_runtime.torch.differentiation import Formula, refuse
from kinfolk_runtime.torch.library import torch
from kinfolk_runtime.torch.schema import OUT, schema_of

if TYPE_CHECKING:
    from kinfolk.request import Request

NAMESPACE: Final = "kinfolk"
_defined: Final[dict[str, Any]] = {}
_lock: Final = threading.Lock()


def operator(family: str) -> Any:
    """Return a family's operator, `torch.ops.kinfolk.<family>`, which is defined when it is first asked for.

    Its tensors and fields are those of the family's request, its answer the list of outputs. With it comes
    `<family>_out`, which takes the outputs first and writes them. Raises PluginError where there is no such family, or
    it says nothing of its tensors.
    """
    with _lock:
        if family not in _defined:
            _defined[family] = _define(request_type_of(family))
        return getattr(getattr(torch.ops, NAMESPACE), family)


def operators() -> dict[str, Any]:
    """Define and return the operators of all installed families that say what their tensors are."""
    return {family: operator(family) for family in usable("family") if request_type_of(family).operands}


def _define(request_type: type[Request]) -> tuple[Any, ...]:
    """Give torch the operators of a request type: schema, kernel, fake kernel, formula of gradients."""
    family = request_type.family
    name = f"{NAMESPACE}::{family}"

    def kernel(*arguments: Any, **options: Any) -> list[Any]:
        return Call.of(request_type, arguments, options).launch()

    def fake(*arguments: Any, **options: Any) -> list[Any]:
        return Call.of(request_type, arguments, options).fake_outputs()

    def kernel_out(out: list[Any], *arguments: Any, **options: Any) -> None:
        Call.of(request_type, arguments, options).launch(out)

    def fake_out(out: list[Any], *arguments: Any, **options: Any) -> None:
        Call.of(request_type, arguments, options)

    formula = Formula(request_type, name, operator)

    def above_out(out: list[Any], *arguments: Any, **options: Any) -> None:
        """Refuse at once what `out` would carry no gradient of: torch takes no formula for what writes."""
        tensors = [each for each in (*out, *arguments) if each is not None]
        if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
            refuse(f"{name}_{OUT} has no backward: what it writes carries no gradient.")
        with torch._C._AutoDispatchBelowAutograd():
            writing(out, *arguments, **options)

    define: Any = torch.library.custom_op
    returning = define(name, kernel, mutates_args=(), schema=schema_of(request_type, out=False))
    returning.register_fake(fake)
    returning.register_autograd(formula.backward, setup_context=formula.keep)
    writing = define(f"{name}_{OUT}", kernel_out, mutates_args=(OUT,), schema=schema_of(request_type, out=True))
    writing.register_fake(fake_out)
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    for key in ("AutogradCPU", "AutogradCUDA"):
        library.impl(f"{family}_{OUT}", above_out, key)
    return returning, writing, library  # whose end would take its part back
