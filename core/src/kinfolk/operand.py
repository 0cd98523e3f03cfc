"""The tensors of a family before anything is planned: what they state of a request, and what its outputs will be.

    OPERANDS = (
        Operand(name="x", dtype=field("dtype"), shape=(field("rows"), field("columns"))),
        Operand(name="y", dtype=field("dtype"), shape=(field("rows"), field("columns")), output=True),
    )

A host that is handed tensors, as an operator of an array library is, reads the fields that they state off them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import attrs

from kinfolk.expr import Expr, Scope, Value, const, lift
from kinfolk.expr.arithmetic import Add, Arithmetic, Sub
from kinfolk.expr.node import Const, Field
from kinfolk.frozen import FrozenDict

if TYPE_CHECKING:
    from kinfolk.plan import Plan

Fields = Mapping[str, Any]
NO_FIELDS: Final[Mapping[str, Expr]] = {}


class Described(Protocol):
    """What a tensor says of itself: its extents, and its element type as the IR names it."""

    @property
    def shape(self) -> Sequence[int]: ...
    @property
    def dtype(self) -> str: ...


def _shape(extents: Sequence[Expr | int]) -> tuple[Expr, ...]:
    return tuple(lift(extent) for extent in extents)


def _stated(values: Mapping[str, Value | Expr]) -> Mapping[str, Expr]:
    return FrozenDict({name: lift(value) for name, value in values.items()})


@attrs.frozen(kw_only=True)
class Operand:
    """A tensor that the kernels of a family read, or with `output` write, in one of its forms.

    `shape` are extents, sums, products and quotients of fields of the request and of numbers; `dtype` is an element
    type or the field that names it. `states` are fields that hold wherever the tensor is passed, as numbers or of other
    fields. An output is there `when` a condition holds. Forms of one input differ in their number of axes, or in when.
    """

    name: str
    dtype: Expr = attrs.field(converter=lift)
    shape: tuple[Expr, ...] = attrs.field(converter=_shape)
    output: bool = False
    when: Expr = attrs.field(default=const(True), converter=lift)
    states: Mapping[str, Expr] = attrs.field(default=NO_FIELDS, converter=_stated)

    def leaves(self) -> tuple[str, ...]:
        """Return the names of the fields that it reads or states."""
        return (*_fields_of(self.dtype, *self.shape, self.when, *self.states.values()), *self.states)

    def extents(self, fields: Fields) -> tuple[Any, ...]:
        """Return the extents for these fields, in numbers of whatever kind the fields are; KeyError where one lacks."""
        return tuple(value_over(extent, fields) for extent in self.shape)

    def element(self, fields: Fields) -> str:
        """Return the element type for these fields; KeyError where the field lacks."""
        return str(value_over(self.dtype, fields))

    def is_there(self, fields: Fields) -> bool:
        """Return whether its condition holds for these fields."""
        return self.when.holds(Scope(request=SimpleNamespace(**fields)))


def value_over(expr: Expr, fields: Fields) -> Any:
    """Return arithmetic over fields, in numbers of whatever kind they are; KeyError where a field lacks."""
    match expr:
        case Const(value=value):
            return value
        case Field(name=name):
            return fields[name]
        case Arithmetic(left=left, right=right):
            return type(expr).exact(value_over(left, fields), value_over(right, fields))
        case _:
            raise TypeError(f"an operand's extents are arithmetic of fields and numbers, {expr} is a {expr.tag}")


def _fields_of(*exprs: Expr) -> tuple[str, ...]:
    """Return the names of the fields that expressions read, each once."""
    return tuple(dict.fromkeys(leaf.name for expr in exprs for leaf in expr.leaves() if isinstance(leaf, Field)))


def inputs_of(operands: Sequence[Operand]) -> tuple[str, ...]:
    """Return the names of the inputs, each once, in order."""
    return tuple(dict.fromkeys(operand.name for operand in operands if not operand.output))


def outputs_of(operands: Sequence[Operand], fields: Fields) -> tuple[Operand, ...]:
    """Return the outputs that there are for these fields, in order."""
    return tuple(operand for operand in operands if operand.output and operand.is_there(fields))


def forms_of(operands: Sequence[Operand], name: str, tensor: Described) -> tuple[Operand, ...]:
    """Return the forms that have as many axes as a tensor; raise ValueError, saying which there are, for none."""
    forms = [operand for operand in operands if operand.name == name and not operand.output]
    if found := tuple(form for form in forms if len(form.shape) == len(tensor.shape)):
        return found
    taken = " or ".join(f"({', '.join(map(str, form.shape))})" for form in forms)
    raise ValueError(f"{name} has shape {tuple(tensor.shape)}, {taken} is needed. Reshape it.")


def stated_fields(operands: Sequence[Operand], tensors: Mapping[str, Described], given: Fields) -> dict[str, Any]:
    """Return the fields that are `given`, and those that tensors state beside them: by their element types, by extents
    of which all but one field is known, and by being there.

    A tensor that has several forms with its number of axes states nothing before other fields tell which it is. What is
    given stands, whatever a tensor states; whoever binds the tensor says so. Raises ValueError where a tensor has no
    form's number of axes.
    """
    forms = {name: forms_of(operands, name, tensor) for name, tensor in tensors.items()}
    found = dict(given)
    known = -1
    while known != len(found):
        known = len(found)
        for name, several in forms.items():
            if form := _sole(several, found):
                _read_off(form, tensors[name], found)
    return found


def _sole(forms: tuple[Operand, ...], found: Fields) -> Operand | None:
    """Return the one form, or the one whose condition holds; None as long as that is not known."""
    if len(forms) == 1:
        return forms[0]
    return next((form for form in forms if _is_known(form.when, found) and form.is_there(found)), None)


def _read_off(form: Operand, tensor: Described, found: dict[str, Any]) -> None:
    """Note what a tensor in a form states and nothing said before."""
    if isinstance(form.dtype, Field):
        found.setdefault(form.dtype.name, tensor.dtype)
    for extent, value in zip(form.shape, tensor.shape, strict=True):
        _solve(extent, value, found)
    for name, expr in form.states.items():
        if name not in found and _is_known(expr, found):
            found[name] = value_over(expr, found)


def _is_known(expr: Expr, found: Fields) -> bool:
    return all(isinstance(leaf, Field) and leaf.name in found for leaf in expr.leaves())


def _solve(extent: Expr, value: Any, found: dict[str, Any]) -> None:
    """Note the one field of an extent that is not known yet, where a sum or a difference leads to it."""
    if isinstance(extent, Field):
        found.setdefault(extent.name, value)
    elif isinstance(extent, Add) and _is_known(extent.right, found):
        _solve(extent.left, value - value_over(extent.right, found), found)
    elif isinstance(extent, Add) and _is_known(extent.left, found):
        _solve(extent.right, value - value_over(extent.left, found), found)
    elif isinstance(extent, Sub) and _is_known(extent.right, found):
        _solve(extent.left, value + value_over(extent.right, found), found)


def check_operands(request_type: type, operands: Sequence[Operand]) -> None:
    """Raise TypeError where operands read or state what is no field of a request, or forms cannot be told apart."""
    names = {field.name for field in attrs.fields(cast("Any", request_type))}
    for operand in operands:
        if unknown := [name for name in operand.leaves() if name not in names]:
            raise TypeError(
                f"{request_type.__name__} has no field {', '.join(unknown)}, as operand {operand.name} says"
            )
    sizes = _fields_of(*(extent for operand in operands for extent in operand.shape))
    for operand in operands:
        if read := [name for name in _fields_of(operand.when) if name in sizes]:
            raise TypeError(
                f"{request_type.__name__}: operand {operand.name} is there by {', '.join(read)}, which extents state; "
                f"a condition reads other fields, since extents may be symbols"
            )
    inputs = [(each.name, len(each.shape), each.when) for each in operands if not each.output]
    alike = {name for name, axes, when in inputs for form in inputs if form[:2] == (name, axes) and form[2] != when}
    always = {name for name, _, when in inputs if name in alike and when == const(True)}
    if twice := sorted({form[0] for form in inputs if inputs.count(form) > 1} | always):
        raise TypeError(
            f"{request_type.__name__}: forms of {', '.join(twice)} have as many axes, and no two conditions"
        )


def disagreements(plan: Plan) -> tuple[str, ...]:
    """Return how a plan's inputs and outputs differ from the operands that its request declares, in sentences."""
    operands = type(plan.request).operands
    fields = plan.request.to_dict()
    scope, found = plan.scope(), list[str]()
    outputs = {operand.name: operand for operand in outputs_of(operands, fields)}
    if list(outputs) != list(plan.outputs):
        found.append(f"its outputs are {', '.join(plan.outputs)}, its operands' {', '.join(outputs) or 'none'}")
    for binding in plan.bindings:
        if binding.role == "input":
            forms = [each for each in operands if each.name == binding.name and not each.output]
            axes = len(binding.shape)
            declared = next((each for each in forms if len(each.shape) == axes and each.is_there(fields)), None)
        elif binding.role == "output":
            declared = outputs.get(binding.name)
        else:
            continue
        if declared is None:
            found.append(f"{binding.name} with {len(binding.shape)} axes is bound, and is no operand")
            continue
        exact = [(axis.extent.integer(scope), at) for at, axis in enumerate(binding.shape) if not axis.at_least]
        extents = declared.extents(fields) if len(declared.shape) == len(binding.shape) else ()
        if declared.element(fields) != binding.dtype or any(extents[at : at + 1] != (extent,) for extent, at in exact):
            bound = ", ".join(str(axis.extent) for axis in binding.shape)
            found.append(f"{binding.name} is bound as {binding.dtype} ({bound}), its operand is {declared}")
    return tuple(found)
