"""Why something is not offered: limits are data, and the check, the sentence and the docs are read from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, cast

import attrs

from kinfolk.errors import PluginError
from kinfolk.expr import Expr, ExprError, ExprOverflow, Scope
from kinfolk.expr.arithmetic import CeilDiv, FloorDiv, Mul
from kinfolk.expr.condition import AllOf, AnyOf, Comparison, Eq, Ge, Gt, Le, Lt, Ne, Not, OneOf
from kinfolk.expr.node import Const, Fact, Field
from kinfolk.fields import FieldError, FieldTypeError, listing, shown

Status = Literal["pass", "refused", "fail"]
KINDS: Final = ("invalid", "cannot", "not_implemented", "not_validated", "policy")
LONGEST_INT: Final = 256
"""Ints of more bits than this are told, not printed: Python refuses to print the longest."""


@attrs.frozen(kw_only=True)
class Refusal:
    """One unmet limit: which field, the value found, the values taken, why, what to do instead, and who says so."""

    code: str
    kind: str = attrs.field(validator=attrs.validators.in_(KINDS))
    field: str
    value: object
    limit: str
    because: str
    remedy: str
    plugin: str

    @property
    def is_error(self) -> bool:
        """Whether something is broken, as against a request that is declined."""
        return self.code.startswith("error.")

    @property
    def sentence(self) -> str:
        """The refusal in words, without the plugin."""
        value = self.value if isinstance(self.value, str) else shown(self.value)
        return f"{self.field} is {value}, supported: {self.limit} ({self.because}). {self.remedy}"

    def __str__(self) -> str:
        return f"{self.plugin}: {self.sentence}"

    def to_dict(self) -> dict[str, Any]:
        """Return the row that reports print; a value that JSON cannot hold, or only at length, is given by its repr."""
        row = attrs.asdict(self, recurse=False)
        plain = self.value is None or type(self.value) in (bool, str, float)
        if not (plain or (type(self.value) is int and self.value.bit_length() <= LONGEST_INT)):
            row["value"] = shown(self.value)
        return row


def status_of(refusals: Iterable[Refusal], *, passed: bool) -> Status:
    """Return what becomes of a request: failed where an error is among its refusals, else refused for any; where there
    is none, as it `passed`."""
    found = tuple(refusals)
    if any(refusal.is_error for refusal in found):
        return "fail"
    if found:
        return "refused"
    return "pass" if passed else "fail"


def _pairs(suggestions: Mapping[str, Expr] | tuple[tuple[str, Expr], ...]) -> tuple[tuple[str, Expr], ...]:
    return tuple(dict(suggestions).items())


def _suggested(expr: Expr, scope: Scope) -> str:
    try:
        return str(expr.evaluate(scope))
    except ExprOverflow:
        return str(expr)


@attrs.frozen
class Limit:
    """A condition that must hold; `field` is the one to blame, and `limit` is worded from the condition.

    Where that is about more than the field, `takes` has the words. Where the remedy depends on the value found, it
    names `{suggestions}`: expressions over the same fields and facts.
    """

    code: str
    kind: str = attrs.field(validator=attrs.validators.in_(KINDS))
    field: str
    condition: Expr = attrs.field(validator=attrs.validators.instance_of(Expr))
    because: str = attrs.field(kw_only=True)
    remedy: str = attrs.field(kw_only=True)
    suggestions: tuple[tuple[str, Expr], ...] = attrs.field(kw_only=True, default=(), converter=_pairs)
    takes: str = attrs.field(kw_only=True, default="")

    @property
    def limit(self) -> str:
        """The values taken: `16, 32, 48 or 64`, `at most 65535`, else `takes`, else the condition itself."""
        return self.worded(Scope())

    def worded(self, scope: Scope) -> str:
        """Return `limit` with the numbers that facts stand for."""
        return self.takes or _worded(self.condition, Field(self.field), scope) or _of_arch(self.condition, scope)

    def remedy_in(self, scope: Scope) -> str:
        """Return the remedy with the values of its suggestions; where one has no value, it stands as it is written."""
        if not self.suggestions:
            return self.remedy
        return self.remedy.format_map({name: _suggested(expr, scope) for name, expr in self.suggestions})


class Recorder(Protocol):
    """Whoever asks which limits a plugin judges a request by, rather than what comes of it."""

    def pending(self, limit: Limit, plugin: str) -> Refusal:
        """Return what stands for a limit in the plugin's answer."""
        ...


_COMPARED: Final[dict[type[Expr], str]] = {Le: "at most ", Lt: "less than ", Ge: "at least ", Gt: "more than "}
_MIRRORED: Final[dict[type[Expr], type[Expr]]] = {Le: Ge, Lt: Gt, Ge: Le, Gt: Lt, Eq: Eq, Ne: Ne}


def _of_arch(condition: Expr, scope: Scope) -> str:
    """Return in words what a condition asks of an arch, of which it compares a fact; another condition as it is."""
    compared = condition.left if isinstance(condition, Comparison) else None
    words = _worded(condition, compared, scope) if isinstance(compared, Fact) else None
    return f"an arch whose {compared} is {words}" if words else str(condition)


def _worded(condition: Expr, subject: Field | Fact, scope: Scope) -> str | None:
    """Return the values that a condition takes for its subject, in words; None where it is about more than that."""
    match condition:
        case OneOf(term, values) if term == subject:
            return listing(values)
        case Eq(Mul(FloorDiv(term, Const(step)), Const(again)), last) if term == last == subject and step == again:
            return f"a multiple of {step}"
        case Comparison(left, right) if right == subject and left != subject:
            return _worded(cast("Any", _MIRRORED[type(condition)])(right, left), subject, scope)
        case Le(CeilDiv(term, Const(step)), most) if term == subject:
            return _worded(Le(subject, most * int(step)), subject, scope)
        case Comparison(left, right) if left == subject:
            bound = _bound(right, scope)
            if bound is None or isinstance(condition, Eq):
                return bound
            return ("anything but " if isinstance(condition, Ne) else _COMPARED[type(condition)]) + bound
        case AllOf(terms):
            parts = [_worded(term, subject, scope) for term in terms]
            return " and ".join(part for part in parts if part) if parts and all(parts) else None
        case AnyOf(terms):
            parts = [_worded(term, subject, scope) for term in terms]
            return " or ".join(part for part in parts if part) if parts and all(parts) else None
        case Not(term) if term == subject:
            return "False"
        case _:
            return "True" if condition == subject else None


def _bound(expr: Expr, scope: Scope) -> str | None:
    """Return a bound in words: a constant, or arch facts with what they make; None where a request decides it."""
    if isinstance(expr, Const):
        return str(expr.value)
    if not all(isinstance(leaf, Fact) for leaf in expr.leaves()):
        return None
    try:
        value = expr.evaluate(scope)
        decided = dict.fromkeys(str(leaf) for leaf in expr.leaves())
        return f"{value} ({expr})" if isinstance(value, int) else f"{value} (by {' and '.join(decided)})"
    except ExprError:
        return str(expr)


def unmet(limits: Iterable[Limit], request: object, arch: object, plugin: str) -> tuple[Refusal, ...]:
    """Return a refusal for every limit that does not hold, not only the first; empty means all hold.

    A condition that overflows does not hold: the request is too large for it. `request` may be a spec where a spec is
    judged. A condition about a fact that the arch does not declare does not hold: the refusal names the fact. Raises
    PluginError, naming the limit, where it cannot be judged. Of a request whose limits are being
    recorded nothing is judged: the answer holds what stands for each limit, in order.
    """
    recorder = cast("Recorder | None", getattr(request, "__kinfolk_recorder__", None))
    if recorder is not None:
        return tuple(recorder.pending(limit, plugin) for limit in limits)
    scope = Scope(request=request, arch=arch)
    plain = getattr(request, "__kinfolk_request__", request)
    told = Scope(request=plain, arch=arch)  # words decide nothing, so no observer hears of them
    refusals: list[Refusal] = []
    for limit in limits:
        try:
            excess = _excess(limit.condition, scope)
            if excess is None:
                continue
            value, remedy = getattr(plain, limit.field), limit.remedy_in(told)
        except (ExprError, AttributeError) as error:
            if missing := _undeclared(limit.condition, arch):
                refusals.append(_without_facts(limit, missing, plain, plugin))
                continue
            raise PluginError(f"{plugin}: limit {limit.code} cannot be judged: {error}") from error
        refusals.append(
            Refusal(
                code=limit.code,
                kind=limit.kind,
                field=limit.field,
                value=value,
                limit=limit.worded(told),
                because=f"{limit.because}; {excess}" if excess else limit.because,
                remedy=remedy,
                plugin=plugin,
            )
        )
    return tuple(refusals)


def _undeclared(condition: Expr, arch: object) -> list[str]:
    """Return the facts of a condition that an arch does not declare."""
    facts = getattr(arch, "facts", None)
    if facts is None:
        return []
    return sorted({leaf.name for leaf in condition.leaves() if isinstance(leaf, Fact) and leaf.name not in facts})


def _without_facts(limit: Limit, missing: Sequence[str], request: object, plugin: str) -> Refusal:
    """Return the refusal of a limit that an arch says too little for."""
    named = " and ".join(missing)
    return Refusal(
        code=limit.code,
        kind="cannot",
        field=limit.field,
        value=getattr(request, limit.field, None),
        limit=f"an arch that declares {named}",
        because=f"{limit.because}; judged by {limit.condition}",
        remedy=f"Declare {named} among the arch's facts, or choose an arch that does.",
        plugin=plugin,
    )


def _excess(condition: Expr, scope: Scope) -> str | None:
    """Return None where a condition holds, the overflow where it has no value for that, else an empty text."""
    try:
        return None if condition.holds(scope) else ""
    except ExprOverflow as error:
        for leaf in condition.leaves():
            if isinstance(leaf, Field):
                getattr(scope.request, leaf.name)  # an observer must know that the outcome depends on this
        return str(error)


def field_refusal(error: FieldError, plugin: str) -> Refusal:
    """Return the row for a value that a request's field does not take: `request.num_heads.type` or `.range`."""
    found = f" of type {type(error.value).__name__}" if isinstance(error, FieldTypeError) else ""
    because = f"{error.owner}.{error.field} is checked exactly, got {shown(error.value)}{found}"
    return Refusal(
        code=f"request.{error.field}.{error.reason}",
        kind="invalid",
        field=error.field,
        value=error.value,
        limit=error.rule,
        because=because,
        remedy=error.remedy,
        plugin=plugin,
    )
