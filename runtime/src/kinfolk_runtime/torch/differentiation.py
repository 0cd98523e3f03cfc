"""Gradients of an operator's inputs: by the operator of the family that a request names, or why there are none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import attrs

from kinfolk.operand import inputs_of, outputs_of, value_over
from kinfolk.plugins.composition import request_type_of
from kinfolk.plugins.faults import UnknownPlugin
from kinfolk_runtime.torch.call import Call
from kinfolk_runtime.torch.schema import OWN

if TYPE_CHECKING:
    from kinfolk.gradient import Gradient
    from kinfolk.request import Request

DETACH: Final = "Call it in torch.no_grad(), or on tensors that need no gradient: `.detach()`."


def refuse(why: str) -> NoReturn:
    """Raise NotImplementedError: why there is no gradient, and how to ask for none."""
    raise NotImplementedError(f"{why} {DETACH}")


@attrs.frozen
class Formula:
    """What torch's autograd is told of an operator: what it keeps of a call, and what it does with that in backward.

    `operator` gives a family's operator by name.
    """

    request_type: type[Request]
    name: str
    operator: Callable[[str], Any]

    def keep(
        self, ctx: Any, inputs: Sequence[Any], keyword_only_inputs: Mapping[str, Any], output: Sequence[Any]
    ) -> None:
        """Keep tensors that were passed, outputs and fields, where there may be a gradient."""
        ctx.set_materialize_grads(False)  # None tells an output that nothing was made of
        ctx.options, ctx.passed = dict(keyword_only_inputs), len(inputs)
        ctx.save_for_backward(*inputs, *output) if self.request_type.gradient else ctx.save_for_backward()

    def backward(self, ctx: Any, gradients: Sequence[Any]) -> tuple[Any, ...]:
        """Return the gradient of each input, None where none is needed.

        Raises NotImplementedError where no family forms it; as that family's operator where its kernels do not.
        """
        gradient = self.request_type.gradient
        if gradient is None:
            refuse(f"{self.name} has no backward.")
        saved: Sequence[Any] = ctx.saved_tensors
        inputs, outputs = saved[: ctx.passed], saved[ctx.passed :]
        call = Call.of(self.request_type, tuple(inputs), ctx.options)
        self._expect_served(gradient, call)
        given = self._named(call, gradients)
        if all(given[of] is None for of in gradient.given.values()):
            return (None,) * len(ctx.needs_input_grad)
        tensors = {**call.tensors, **self._kept(gradient, call, inputs, outputs)}
        read = {name: tensors[of] for name, of in gradient.reads.items()}
        read |= {name: given[of] for name, of in gradient.given.items()}
        states = {name: value_over(expr, call.fields) for name, expr in gradient.states.items()}
        own = {name: ctx.options[name] for name in OWN if name in ctx.options}
        found = self._operator(gradient)(**{name: each.contiguous() for name, each in read.items()}, **states, **own)
        return self._in_order(gradient, found, ctx.needs_input_grad)

    def _expect_served(self, gradient: Gradient, call: Call) -> None:
        """Raise NotImplementedError, with every reason, where a request of these fields has no gradient."""
        if refusals := gradient.refusals(self.request_type, call.fields, self.name):
            refuse(f"{self.name} has no backward for this call: {' '.join(each.sentence for each in refusals)}")

    def _named(self, call: Call, gradients: Sequence[Any]) -> dict[str, Any]:
        """Return the gradients of outputs by name; raise NotImplementedError for one that nothing is made of."""
        gradient = self.request_type.gradient
        named = dict(zip(self._outputs(call.fields), gradients, strict=True))
        taken = gradient.given.values() if gradient else ()
        if extra := [name for name, each in named.items() if each is not None and name not in taken]:
            names = ", ".join(extra)
            raise NotImplementedError(
                f"{self.name} forms no gradient by way of {names}. Detach it where the loss reads it: `.detach()`."
            )
        return named

    def _outputs(self, fields: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(output.name for output in outputs_of(self.request_type.operands, fields))

    def _kept(self, gradient: Gradient, call: Call, inputs: Sequence[Any], outputs: Sequence[Any]) -> dict[str, Any]:
        """Return the outputs by name: those that the call gave, or where one lacks that is read, those formed again."""
        named = dict(zip(self._outputs(call.fields), outputs, strict=True))
        written = {output.name for output in self.request_type.operands if output.output}
        if written.intersection(gradient.reads.values()) <= named.keys():
            return named
        again = self.operator(self.request_type.family)(*inputs, **{**call.options, **gradient.keeps})
        return dict(zip(self._outputs({**call.fields, **gradient.keeps}), again, strict=True))

    def _operator(self, gradient: Gradient) -> Any:
        """Return the operator that forms gradients; raise NotImplementedError, saying what to install, for none."""
        try:
            return self.operator(gradient.family)
        except UnknownPlugin:
            refuse(
                f"{self.name} has its backward from the family {gradient.family}, which is not installed: "
                f"pip install {gradient.distribution}."
            )

    def _in_order(self, gradient: Gradient, found: Sequence[Any], needed: Sequence[bool]) -> tuple[Any, ...]:
        """Return gradients in the order of the inputs, of which torch counts none behind the last that was passed."""
        operands = request_type_of(gradient.family).operands
        named = dict(zip([each.name for each in operands if each.output], found, strict=True))
        ours = [gradient.gives.get(name, "") for name in inputs_of(self.request_type.operands)]
        return tuple(named.get(name) if wanted else None for name, wanted in zip(ours, needed, strict=False))
