"""What a dispatched request runs: launches in order, the memory they bind, every number an Expr over the request."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Self, cast

import attrs

from kinfolk.contents import ContentCheck
from kinfolk.errors import InternalError
from kinfolk.expr import Expr, Scope, TensorView, all_of, const, extent, lift, maximum, select, stride
from kinfolk.fields import shown
from kinfolk.frozen import FrozenDict
from kinfolk.ir.types import SCALARS, PointerType
from kinfolk.parameters import Access, Parameter
from kinfolk.record import fields_of
from kinfolk.remark import Remark
from kinfolk.request import Request
from kinfolk.spec import Spec

Role = Literal["input", "output", "workspace", "status"]
Memory = Literal["device", "any"]
Kind = Literal["pointer", "i32", "i64", "f32"]
Tensors = Mapping[str, TensorView]
NO_TENSORS: Final[Tensors] = {}
CONTIGUOUS: Final = "contiguous"
_ROLE_ACCESS: Final[dict[str, tuple[str, ...]]] = {
    "input": ("read",),
    "output": ("write", "readwrite"),
    "workspace": ("write", "readwrite"),
    "status": ("write", "readwrite"),
}


def _expr(value: Expr | int) -> Expr:
    return lift(value)


def _grid(counts: tuple[Expr | int, Expr | int, Expr | int]) -> tuple[Expr, Expr, Expr]:
    x, y, z = counts
    return lift(x), lift(y), lift(z)


@attrs.frozen
class Axis:
    """One axis of a bound tensor: its extent, exactly or at least, and its stride in elements.

    A stride is an Expr, `None` where the caller chooses it (the kernel is passed it), or by default `CONTIGUOUS`: the
    extent times the stride of the next axis, 1 for the last. Tables name the axis as `called`, or by its extent.
    """

    extent: Expr = attrs.field(converter=_expr)
    at_least: bool = False
    stride: Expr | Literal["contiguous"] | None = CONTIGUOUS
    called: str = ""


@attrs.frozen(kw_only=True)
class Binding:
    """Memory that launches share under a name; `alignment` of its address is in bytes, `means` a phrase for people."""

    name: str
    role: Role
    dtype: str = attrs.field(validator=attrs.validators.in_(SCALARS))
    shape: tuple[Axis, ...]
    alignment: int
    access: Access
    means: str = ""
    _strides: tuple[Expr, ...] | None = attrs.field(default=None, init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if self.access not in _ROLE_ACCESS.get(self.role, ()):
            raise InternalError(f"binding {self.name}: an {self.role} has no access {self.access!r}")
        if self.alignment < self.element_bytes or self.alignment & (self.alignment - 1):
            raise InternalError(
                f"binding {self.name} declares alignment {self.alignment}; elements of {self.dtype} need a power "
                f"of two of at least {self.element_bytes}"
            )

    @property
    def element_bytes(self) -> int:
        """Bytes of one element in memory."""
        return SCALARS[self.dtype].bytes

    @property
    def memory(self) -> Memory:
        """What memory it may be: `device` where a kernel both reads and writes it, so may add to it indivisibly, else
        `any` that the device reaches.

        Lowerings of `core.atomic_add` claim memory of the device itself; elsewhere sums may be lost.
        """
        return "device" if self.access == "readwrite" else "any"

    def extents(self) -> tuple[Expr, ...]:
        """Return the extents of the tensor that is bound: where only a least extent is declared, the tensor's own."""
        return tuple(extent(self.name, i) if axis.at_least else axis.extent for i, axis in enumerate(self.shape))

    def strides(self) -> tuple[Expr, ...]:
        """Return the strides in elements; the tensor's own where the caller chooses."""
        if self._strides is None:  # every launch asks for them
            object.__setattr__(self, "_strides", self._derived_strides())
        return cast("tuple[Expr, ...]", self._strides)

    def _derived_strides(self) -> tuple[Expr, ...]:
        extents, strides = self.extents(), [const(1)] * len(self.shape)
        for i in reversed(range(len(self.shape))):
            declared = self.shape[i].stride
            if declared is None:
                strides[i] = stride(self.name, i)
            elif isinstance(declared, Expr):
                strides[i] = declared
            elif i + 1 < len(self.shape):
                inner, step = extents[i + 1], strides[i + 1]
                strides[i] = inner if step == const(1) else inner * step
        return tuple(strides)

    def minimum_bytes(self) -> Expr:
        """Return the least bytes from the address to the end of the declared elements; 0 where an extent is 0."""
        last: Expr = const(0)
        for axis, step in zip(self.shape, self.strides(), strict=True):
            last = last + (axis.extent - 1) * step
        return select(all_of(*(axis.extent > 0 for axis in self.shape)), (last + 1) * self.element_bytes, 0)

    def data(self) -> dict[str, Any]:
        """Return the binding as JSON data, with derived extents, strides and bytes as trees."""
        return {
            "name": self.name,
            "role": self.role,
            "dtype": self.dtype,
            "alignment": self.alignment,
            "access": self.access,
            "memory": self.memory,
            "shape": [{"extent": axis.extent.data(), "at_least": axis.at_least} for axis in self.shape],
            "free_strides": [i for i, axis in enumerate(self.shape) if axis.stride is None],
            "strides": [step.data() for step in self.strides()],
            "minimum_bytes": self.minimum_bytes().data(),
        }


@attrs.frozen
class FloatField:
    """A float field of the request, passed through."""

    name: str


@attrs.frozen
class Argument:
    """The value of one kernel parameter: a binding's name, an integer Expr, or a float field or constant."""

    name: str
    kind: Kind
    value: str | Expr | FloatField | float

    def __attrs_post_init__(self) -> None:
        takes = {"pointer": (str,), "i32": (Expr,), "i64": (Expr,), "f32": (FloatField, float)}
        if self.kind not in takes or not isinstance(self.value, takes[self.kind]):
            raise InternalError(f"argument {self.name}: a {self.kind} cannot be {self.value!r}")

    def data(self) -> dict[str, Any]:
        """Return the argument as JSON data; a constant float as hex."""
        value: Any = self.value
        if isinstance(self.value, Expr):
            value = self.value.data()
        elif isinstance(self.value, FloatField):
            value = {"field": self.value.name}
        elif isinstance(self.value, float):
            value = {"float": self.value.hex()}
        return {"name": self.name, "kind": self.kind, "value": value}


@attrs.frozen(kw_only=True)
class Launch:
    """One kernel launch: grid in workgroups, block in lanes, arguments in parameter order.

    Where `condition` does not hold, or the grid is empty, nothing is launched.
    """

    spec: Spec
    grid: tuple[Expr, Expr, Expr] = attrs.field(converter=_grid)
    block: int
    arguments: tuple[Argument, ...]
    condition: Expr = attrs.field(factory=lambda: const(True))

    def data(self) -> dict[str, Any]:
        """Return the launch as JSON data, its spec and the spec's digest included."""
        return {
            "symbol": self.spec.symbol(),
            "spec_digest": self.spec.digest(),
            "spec": self.spec.data(),
            "condition": self.condition.data(),
            "grid": [count.data() for count in self.grid],
            "block": self.block,
            "arguments": [argument.data() for argument in self.arguments],
        }


Value = str | int | float


@attrs.frozen
class ArgumentValue:
    """An argument with the number, or the name of the binding, that it is for these tensors."""

    name: str
    kind: Kind
    value: Value


@attrs.frozen(kw_only=True)
class Domain:
    """The requests that a plan holds for, by their fields.

    `key` are all but the launch fields, `ranges` the least and the most of launch fields that conditions read, `exact`
    those that Python read; another launch field may have any value.
    """

    key: tuple[tuple[str, Any], ...]
    ranges: tuple[tuple[str, int, int], ...]
    exact: tuple[tuple[str, Any], ...]

    def excess(self, request: Request) -> str:
        """Return which field lies outside, and what it must be; nothing where the plan holds for the request."""
        for name, value in (*self.key, *self.exact):
            found = getattr(request, name)
            if type(found) is not type(value) or found != value:
                return f"{name} is {shown(found)}, the plan was made for {shown(value)}"
        for name, low, high in self.ranges:
            found = getattr(request, name)
            if not low <= found <= high:
                return f"{name} is {shown(found)}, the plan holds from {low} to {high}"
        return ""


def _frozen(entries: Mapping[str, Any]) -> Mapping[str, Any]:
    return FrozenDict(entries)


@attrs.frozen(kw_only=True, slots=False)
class Plan:
    """A request on its way to a device; checked against the kernels' declared parameters when it is made.

    A candidate gives request, launches, bindings, contents, outputs and remarks; dispatch fills in the rest. `facts`
    are the facts of the arch that the expressions read, so that a plan evaluates wherever it goes; `domain` says for
    which requests it holds. Raises InternalError, naming launch and argument, where a plan contradicts a spec.
    """

    request: Request
    launches: tuple[Launch, ...] = attrs.field(repr=False)
    bindings: tuple[Binding, ...] = attrs.field(repr=False)
    outputs: tuple[str, ...]
    contents: tuple[ContentCheck, ...] = attrs.field(default=(), repr=False)
    arch: str = ""
    flavor: str = ""
    candidate: str = ""
    versions: Mapping[str, str] = attrs.field(factory=dict[str, str], converter=_frozen)
    policy_digests: Mapping[str, str] = attrs.field(factory=dict[str, str], converter=_frozen)
    notes: tuple[str, ...] = ()
    remarks: tuple[Remark, ...] = attrs.field(default=(), repr=False)
    facts: Mapping[str, int | bool | str] = attrs.field(
        factory=dict[str, "int | bool | str"], converter=_frozen, repr=False
    )
    domain: Domain | None = attrs.field(default=None, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        _check_plan(self)

    def with_request(self, request: Request) -> Self:
        """Return this plan for another request of the same selection; specs and bindings are not checked again."""
        return self.telling(request=request)

    def within(self, domain: Domain) -> Self:
        """Return this plan with the requests that it holds for; nothing is checked again."""
        return self.telling(domain=domain)

    def telling(self, **fields: Any) -> Self:
        """Return this plan with other fields, of those that its check does not read; nothing is checked again."""
        plan = object.__new__(type(self))
        plan.__dict__.update(self.__dict__)
        for name, value in fields.items():
            plan.__dict__[name] = _frozen(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value
        return plan

    def staleness(self) -> str:
        """Return why the plan's request is none that it was made for, as when it was changed since; else nothing."""
        try:
            self.request.revalidate()
        except (TypeError, ValueError, AttributeError) as error:
            return str(error)
        return self.domain.excess(self.request) if self.domain else ""

    def binding(self, name: str) -> Binding:
        """Return a binding by name; raise InternalError naming those there are."""
        for binding in self.bindings:
            if binding.name == name:
                return binding
        names = ", ".join(binding.name for binding in self.bindings)
        raise InternalError(f"the plan of {self.candidate or 'a candidate'} binds no {name!r}, it binds: {names}")

    def scope(self, tensors: Tensors = NO_TENSORS) -> Scope:
        """Return where expressions find their values; `tensors` gives shapes and element strides by binding."""
        return Scope(request=self.request, arch=self.facts, tensors=tensors)

    def minimum_bytes(self, binding: str, tensors: Tensors = NO_TENSORS) -> int:
        """Return the least bytes that a binding's memory holds."""
        return self.binding(binding).minimum_bytes().integer(self.scope(tensors))

    def workspace_bytes(self, tensors: Tensors = NO_TENSORS) -> int:
        """Return the bytes of all workspaces one after the other, each start at the largest alignment."""
        return self.workspace().integer(self.scope(tensors))

    def workspace(self) -> Expr:
        """Return `workspace_bytes` as an expression."""
        spaces = [binding for binding in self.bindings if binding.role == "workspace"]
        step = max((binding.alignment for binding in spaces), default=1)
        total: Expr = const(0)
        for space in spaces:
            total = total + space.minimum_bytes().ceil_div(step) * step
        return total

    def grid(self, launch: Launch, tensors: Tensors = NO_TENSORS) -> tuple[int, int, int]:
        """Return workgroups per axis; (0, 0, 0) where the launch's condition does not hold."""
        scope = self.scope(tensors)
        if not launch.condition.holds(scope):
            return 0, 0, 0
        x, y, z = (maximum(count, 0).integer(scope) for count in launch.grid)
        return x, y, z

    def arguments(self, launch: Launch, tensors: Tensors = NO_TENSORS) -> tuple[ArgumentValue, ...]:
        """Return the arguments in parameter order; raise InternalError where one does not fit its type."""
        scope = self.scope(tensors)
        return tuple(
            ArgumentValue(argument.name, argument.kind, self._value(argument, parameter, scope))
            for argument, parameter in zip(launch.arguments, launch.spec.parameters(), strict=True)
        )

    def _value(self, argument: Argument, parameter: Parameter, scope: Scope) -> Value:
        match argument.value:
            case Expr() as expr:
                value = expr.integer(scope)
                bits = 31 if argument.kind == "i32" else 63
                if not -(2**bits) <= value < 2**bits:
                    raise InternalError(f"argument {argument.name} is {expr} = {value}, outside {argument.kind}")
                low, high = parameter.bounds
                if not low <= value <= high:
                    raise InternalError(
                        f"argument {argument.name} is {expr} = {value}, its kernel takes {low} to {high}"
                    )
                return value
            case FloatField(name):
                return float(getattr(self.request, name))
            case plain:
                return plain

    def told(self) -> tuple[str, ...]:
        """Return the remarks that apply to the request, with their numbers."""
        scope = self.scope()
        return tuple(text for remark in self.remarks if (text := remark.told(scope)))

    def declared(self) -> tuple[Expr, ...]:
        """Return every expression that the plan was given; those derived from them read nothing else but tensors."""
        found: list[Expr] = []
        for launch in self.launches:
            found += [*launch.grid, launch.condition]
            found += [argument.value for argument in launch.arguments if isinstance(argument.value, Expr)]
        for binding in self.bindings:
            for axis in binding.shape:
                found += [each for each in (axis.extent, axis.stride) if isinstance(each, Expr)]
        for content in self.contents:
            found += [value for _, value in _members(content) if isinstance(value, Expr)]
        for remark in self.remarks:
            found += [remark.when, *(expr for _, expr in remark.numbers)]
        return tuple(found)

    def expressions(self) -> tuple[Expr, ...]:
        """Return every expression of the plan, derived sizes included."""
        derived = (each for binding in self.bindings for each in (*binding.strides(), binding.minimum_bytes()))
        return (*self.declared(), *derived)

    def data(self) -> dict[str, Any]:
        """Return the plan as JSON data; every expression is a tree that `kinfolk.expr.from_data` reads."""
        return {
            "arch": self.arch,
            "flavor": self.flavor,
            "candidate": self.candidate,
            "request": self.request.data(),
            "facts": dict(self.facts),
            "launches": [launch.data() for launch in self.launches],
            "bindings": [binding.data() for binding in self.bindings],
            "contents": [
                {"check": type(content).__name__}
                | {name: value.data() if isinstance(value, Expr) else value for name, value in _members(content)}
                for content in self.contents
            ],
            "outputs": list(self.outputs),
            "versions": dict(self.versions),
            "policy_digests": dict(self.policy_digests),
            "notes": list(self.notes),
            "remarks": [remark.data() for remark in self.remarks],
        }

    def to_json(self) -> str:
        """Return `data` as canonical JSON."""
        return json.dumps(self.data(), separators=(",", ":"), sort_keys=True, allow_nan=False)


def _members(content: ContentCheck) -> list[tuple[str, Expr | str | None]]:
    return list(attrs.asdict(content, recurse=False).items())


def _check_plan(plan: Plan) -> None:
    """Raise InternalError where a plan contradicts itself or a spec's declared parameters."""
    bindings = {binding.name: binding for binding in plan.bindings}
    if len(bindings) != len(plan.bindings):
        raise InternalError(f"two bindings share a name among {[binding.name for binding in plan.bindings]}")
    if not plan.launches:
        raise InternalError("a plan launches something")
    specs = {id(launch.spec): launch.spec for launch in plan.launches}  # launches may share one: it is asked once
    asked = {key: (spec.symbol(), spec.parameters()) for key, spec in specs.items()}
    for position, launch in enumerate(plan.launches):
        symbol, parameters = asked[id(launch.spec)]
        where = f"launch {position} ({symbol})"
        _check_launch(where, launch, parameters, bindings)
        _check_floats(where, launch, plan.request)
    used = {argument.value for launch in plan.launches for argument in launch.arguments if argument.kind == "pointer"}
    if unused := sorted(bindings.keys() - used):
        raise InternalError(f"no launch is passed the bindings {', '.join(unused)}")
    declared = [binding.name for binding in plan.bindings if binding.role == "output"]
    if sorted(plan.outputs) != sorted(declared):
        raise InternalError(f"the plan returns {list(plan.outputs)}, its bindings of role output are {declared}")
    for content in plan.contents:
        for name in content.tensors:
            if name not in bindings or bindings[name].role != "input":
                raise InternalError(f"{type(content).__name__} checks {name!r}, which is no input of the plan")


def _check_launch(where: str, launch: Launch, parameters: Sequence[Parameter], bindings: Mapping[str, Binding]) -> None:
    passed, taken = [argument.name for argument in launch.arguments], [parameter.name for parameter in parameters]
    if passed != taken:
        raise InternalError(f"{where} passes arguments {passed}, its kernel takes {taken}")
    if type(launch.block) is not int or launch.block < 1:
        raise InternalError(f"{where} has a block of {launch.block!r} lanes")
    for argument, parameter in zip(launch.arguments, parameters, strict=True):
        at = f"{where}, argument {argument.name}"
        if argument.kind != parameter.kind:
            raise InternalError(f"{at} is passed as {argument.kind}, the kernel takes {parameter.kind}")
        if parameter.is_pointer:
            _check_pointer(at, cast("str", argument.value), parameter, bindings)
    pointers = [argument.value for argument in launch.arguments if argument.kind == "pointer"]
    for argument, parameter in zip(launch.arguments, parameters, strict=True):
        if parameter.is_pointer and parameter.access != "read" and pointers.count(argument.value) > 1:
            raise InternalError(f"{where}, argument {argument.name}: {argument.value} is written and passed twice")


def _check_floats(where: str, launch: Launch, request: Request) -> None:
    names = [field.name for field in fields_of(request.__class__)]
    for argument in launch.arguments:
        if isinstance(argument.value, FloatField) and argument.value.name not in names:
            raise InternalError(f"{where}, argument {argument.name}: the request has no field {argument.value.name!r}")


def _check_pointer(at: str, name: str, parameter: Parameter, bindings: Mapping[str, Binding]) -> None:
    if name not in bindings:
        raise InternalError(f"{at} binds {name!r}, the plan has bindings {', '.join(bindings) or 'none'}")
    binding = bindings[name]
    element = cast("PointerType", parameter.type).element
    if binding.dtype != element.name:
        raise InternalError(f"{at}: {name} holds {binding.dtype}, the kernel takes {element}")
    if binding.alignment % parameter.alignment:
        raise InternalError(f"{at}: {name} is aligned to {binding.alignment}, the kernel needs {parameter.alignment}")
    if parameter.access != "read" and binding.access == "read":
        raise InternalError(f"{at}: the kernel writes {name}, which is bound for reading only")
    if parameter.access == "readwrite" and binding.access == "write":
        raise InternalError(f"{at}: the kernel reads and writes {name}, which is bound for writing only")
