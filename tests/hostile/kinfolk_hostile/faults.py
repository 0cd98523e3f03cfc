"""The faults: where each is, which check must find it, and what takes the example's place."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import attrs

from kinfolk.arch import Arch
from kinfolk.candidate import Candidate
from kinfolk.expr import Expr, const, fact, field, ne, one_of
from kinfolk.ir import Kernel
from kinfolk.ir.ops import control, lanes
from kinfolk.plan import Argument, Axis, Plan
from kinfolk.refusal import Limit, Refusal
from kinfolk_hostile import evasions
from kinfolk_hostile.records import (
    BoastfulRequest,
    HostileRequest,
    IdleSpec,
    LaxRequest,
    LeveledSpec,
    MuteRequest,
    RoundingRequest,
    SteepRequest,
    TurnedRequest,
)
from kinfolk_row_softmax import kernel as kernel_module
from kinfolk_row_softmax.candidate import CAPABILITY, row_softmax_plan, row_softmax_specs
from kinfolk_row_softmax.kernel import RowWalk, emit_row_softmax
from kinfolk_row_softmax.reference import row_softmax_reference
from kinfolk_row_softmax.row import Row
from kinfolk_row_softmax.scenarios import row_softmax_scenarios
from kinfolk_row_softmax.spec import RowSoftmaxSpec

Patch = tuple[Any, str, Any]
STORE_ONCE: Final = kernel_module.store_once


@attrs.frozen(kw_only=True)
class Fault:
    """What is wrong, which check must say so, and by which words; all else is as in the example."""

    check: str
    words: str
    request: type[HostileRequest] = HostileRequest
    capability: tuple[Limit, ...] = CAPABILITY
    plan: Callable[[Any, Arch], Plan] = row_softmax_plan
    specs: Callable[[Arch, str], Iterable[Any]] = row_softmax_specs
    scenarios: Callable[[Any], Iterable[Any]] = row_softmax_scenarios
    gate: tuple[Refusal, ...] = ()
    patches: tuple[Patch, ...] = ()
    others: tuple[Candidate, ...] = ()
    emit: Callable[[Any, Arch], Kernel] = emit_row_softmax
    reference: Callable[[Any, Any], Any] = row_softmax_reference


def _limit(position: int, **changed: Any) -> tuple[Limit, ...]:
    """Return the example's limits with one changed: 0 dtype, 1 rows, 2 columns."""
    limits = list(CAPABILITY)
    limits[position] = attrs.evolve(limits[position], **changed)
    return tuple(limits)


def _rows_at_most(most: Expr) -> Expr:
    return field("rows") <= most


def _each_spec(plan: Plan, change: Callable[[Any], Any]) -> Plan:
    return attrs.evolve(plan, launches=tuple(attrs.evolve(each, spec=change(each.spec)) for each in plan.launches))


def _failing_plan(request: Any, arch: Arch) -> Plan:
    if request.columns > 4096:
        raise ValueError("no row is as long as that")
    return row_softmax_plan(request, arch)


def _timed_plan(request: Any, arch: Arch) -> Plan:
    time.monotonic()
    return row_softmax_plan(request, arch)


def _tuned_by_the_environment(request: Any, arch: Arch) -> Plan:
    os.environ.get("HOSTILE_WAVES")
    return row_softmax_plan(request, arch)


_calls: Final = itertools.count()


def _counting_plan(request: Any, arch: Arch) -> Plan:
    return attrs.evolve(row_softmax_plan(request, arch), notes=(f"call {next(_calls) % 2}",))


def _two_kinds(arch: Arch, flavor: str) -> Iterator[RowSoftmaxSpec | IdleSpec]:
    yield from row_softmax_specs(arch, flavor)
    yield from _idle_specs(arch, flavor)


def _few_specs(arch: Arch, flavor: str) -> Iterator[RowSoftmaxSpec]:
    return (spec for spec in row_softmax_specs(arch, flavor) if spec.dtype != "f16")


def _leveled(spec: RowSoftmaxSpec, level: int = 1) -> LeveledSpec:
    return LeveledSpec(dtype=spec.dtype, waves=spec.waves, level=level)


def _levels(arch: Arch, flavor: str) -> Iterator[LeveledSpec]:
    return (_leveled(spec, level) for spec in row_softmax_specs(arch, flavor) for level in (1, 2))


def _idle_specs(arch: Arch, flavor: str) -> Iterator[IdleSpec]:
    return (IdleSpec(dtype=spec.dtype, waves=spec.waves) for spec in row_softmax_specs(arch, flavor))


def _idle_plan(request: Any, arch: Arch) -> Plan:
    plan = row_softmax_plan(request, arch)
    [launch] = plan.launches
    spec = IdleSpec(dtype=launch.spec.dtype, waves=launch.spec.waves)
    arguments = (*launch.arguments, Argument("idle", "i32", field("columns")))
    return attrs.evolve(plan, launches=(attrs.evolve(launch, spec=spec, arguments=arguments),))


def _short_plan(request: Any, arch: Arch) -> Plan:
    plan = row_softmax_plan(request, arch)
    loose = Axis(1, at_least=True, stride=1)
    x, *others = plan.bindings
    return attrs.evolve(plan, bindings=(attrs.evolve(x, shape=(x.shape[0], loose)), *others))


def _unordered_columns(self: RowWalk, start: Any) -> list[Any]:
    first = start + lanes.thread_id()
    pieces = {str(piece): piece for piece in range(self.columns_per_lane)}
    return [first + pieces[name] * self.threads for name in set(pieces)]


def _one_column_too_many(self: Row, column: Any) -> Any:
    """In f32 this is past the end of the view, which gives 0; in 16 bits the view ends with a whole word."""
    return column <= self.columns


def _longer_than_declared(request: Any) -> Iterator[Any]:
    for scenario in row_softmax_scenarios(request):
        asked = attrs.evolve(scenario.request, columns=scenario.request.columns + 1)
        yield attrs.evolve(scenario, request=asked)


def _of_what_there_is(request: Any, inputs: Any) -> Any:
    return row_softmax_reference(attrs.evolve(request, columns=inputs["x"].shape[1]), inputs)


def _mask_one_too_many(scores: Any, columns: Any, count: Any) -> Any:
    from kinfolk.tile.softmax import mask_scores

    return mask_scores(scores, columns, count + 1)


def _store_of_the_first_row(pointer: Any, value: Any) -> None:
    control.if_else(lanes.block_id(axis=0).eq(0), lambda: STORE_ONCE(pointer, value) or ())


def _only_one_column(request: Any) -> Iterator[Any]:
    return (each for each in row_softmax_scenarios(request) if each.name == "one_column")


TOO_MANY: Final = Refusal(
    code="hostile.budget",
    kind="cannot",
    field="vgpr",
    value=1,
    limit="at most 0",
    because="it was given no registers",
    remedy="Give it some.",
    plugin="kinfolk-hostile",
)

FAULTS: Final = {
    "control": Fault(check="", words=""),
    "lax_type": Fault(check="strict_types", words="LaxRequest.rows: takes True, a bool", request=LaxRequest),
    "mute_refusal": Fault(check="strict_types", words="refuses without its class and field", request=MuteRequest),
    "wide_limit": Fault(
        check="limits",
        words="workgroups along x, max_grid_x is",
        capability=_limit(1, condition=_rows_at_most(fact("max_grid_x") + 1)),
    ),
    "failing_plan": Fault(check="limits", words="no row is as long as that", plan=_failing_plan),
    "dead_limit": Fault(
        check="limits", words="it decides nothing", capability=_limit(2, condition=field("columns") >= 1)
    ),
    "no_remedy": Fault(check="refusals", words="its remedy is empty", capability=_limit(1, remedy="")),
    "wrong_advice": Fault(
        check="refusals",
        words="with which the limit does not hold either",
        capability=_limit(1, remedy="Pass {most} rows.", suggestions={"most": fact("max_grid_x") + 1}),
    ),
    "shared_code": Fault(
        check="refusals", words="two limits share this code", capability=_limit(1, code="row_softmax.dtype")
    ),
    "turned_operand": Fault(check="operands", words="(rows, columns), its operand is", request=TurnedRequest),
    "boastful_operand": Fault(
        check="operands", words="its tensors state candidate = 'best' for ", request=BoastfulRequest
    ),
    "reads_clock": Fault(check="purity", words="dispatch touches the clock (monotonic)", plan=_timed_plan),
    "reads_environment": Fault(
        check="purity", words="dispatch touches the environment", plan=_tuned_by_the_environment
    ),
    "counts_calls": Fault(check="purity", words="was answered in two ways", plan=_counting_plan),
    "narrow_limit": Fault(
        check="spec_space",
        words="no admitted request is found whose plan names RowSoftmaxSpec(dtype='bf16', waves=4), which "
        "Candidate.specs gives; one with its values is refused by row_softmax.dtype",
        capability=_limit(0, condition=one_of(field("dtype"), ("f16", "f32"))),
    ),
    "missing_spec": Fault(check="spec_space", words="which Candidate.specs does not give", specs=_few_specs),
    "dead_field": Fault(
        check="identity",
        words="they differ in level",
        specs=_levels,
        plan=lambda request, arch: _each_spec(row_softmax_plan(request, arch), _leveled),
    ),
    "lonely_field": Fault(
        check="spec_fields",
        words="LeveledSpec.level: 3 pairs of specs that differ in it alone have equal kernels",
        specs=lambda arch, flavor: (_leveled(spec) for spec in row_softmax_specs(arch, flavor)),
        plan=lambda request, arch: _each_spec(row_softmax_plan(request, arch), _leveled),
    ),
    "idle_field": Fault(
        check="spec_fields",
        words="LeveledSpec.level: ",
        specs=_levels,
        plan=lambda request, arch: _each_spec(row_softmax_plan(request, arch), _leveled),
    ),
    "unordered": Fault(
        check="determinism",
        words="a kernel differs in a process with PYTHONHASHSEED",
        patches=((RowWalk, "columns", _unordered_columns),),
    ),
    "idle_parameter": Fault(check="analyses", words="idle", specs=_idle_specs, plan=_idle_plan),
    "over_budget": Fault(check="compile", words="it was given no registers", gate=(TOO_MANY,)),
    "loose_mask": Fault(
        check="reference",
        words="scenario",
        patches=((kernel_module, "mask_scores", _mask_one_too_many),),
    ),
    "steep_scale": Fault(check="sanitizers", words="scale=3e+38", request=SteepRequest),
    "no_barrier": Fault(
        check="sanitizers", words="with no barrier between", patches=((control, "barrier", lambda: None),)
    ),
    "implied_limit": Fault(
        check="",
        words="",
        capability=(
            *CAPABILITY,
            attrs.evolve(CAPABILITY[1], code="hostile.few", condition=_rows_at_most(const(2**40))),
        ),
    ),
    "two_kinds": Fault(check="", words="", specs=_two_kinds),
    "wrong_in_16_bits": Fault(
        check="sanitizers", words="between the rows of x", patches=((Row, "holds", _one_column_too_many),)
    ),
    "inputs_of_another_shape": Fault(
        check="reference",
        words="do: Let scenarios build what the plan declares",
        scenarios=_longer_than_declared,
        reference=_of_what_there_is,
    ),
    "half_stored": Fault(
        check="sanitizers",
        words="no launch writes",
        patches=((kernel_module, "store_once", _store_of_the_first_row),),
    ),
    "short_tensor": Fault(check="binding", words="tensors of the least declared extents bind, and", plan=_short_plan),
    "blind_scenarios": Fault(check="mutation", words="survived", scenarios=_only_one_column),
    "rounding_field": Fault(
        check="strict_types", words="RoundingRequest.columns: holds 2 where 1 was given", request=RoundingRequest
    ),
    "vague_reference": Fault(
        check="reference",
        words="every scenario takes an output of which each element is off",
        reference=evasions.vague_reference,
    ),
    "copied_reference": Fault(
        check="reference", words="kinfolk_reference runs kernels", reference=evasions.copied_reference
    ),
    "wavering_scenarios": Fault(
        check="determinism",
        words="a scenario gives other inputs when it is asked again",
        scenarios=evasions.wavering_scenarios,
    ),
    "no_scenarios": Fault(check="reference", words="checked nothing", scenarios=lambda request: ()),
    "idle_scenarios": Fault(check="engines", words="checked nothing", scenarios=evasions.idle_scenarios),
    "tuned_emission": Fault(check="purity", words="the emitter touches the environment", emit=evasions.tuned_emission),
    "timed_emission": Fault(check="purity", words="the emitter touches the clock", emit=evasions.timed_emission),
    "first_emission": Fault(check="determinism", words="a kernel differs in a process", emit=evasions.first_emission),
    "exiting_emission": Fault(check="identity", words="raised SystemExit: 0", emit=evasions.exiting_emission),
    "endless_specs": Fault(check="spec_space", words="Candidate.specs", specs=evasions.endless_specs),
    "unasked_candidate": Fault(
        check="spec_space",
        words="hostile.idle: checked nothing of it: admitted requests are of others alone",
        capability=CAPABILITY,
        others=(evasions.UNASKED,),
    ),
    "advice_refused_in_turn": Fault(
        check="refusals",
        words="which is refused in turn: ",
        capability=(
            *CAPABILITY[:2],
            attrs.evolve(
                CAPABILITY[2],
                condition=field("columns") <= 64,
                remedy="Pass {other} columns.",
                suggestions={"other": const(7)},
            ),
            attrs.evolve(
                CAPABILITY[2], code="hostile.seven", condition=ne(field("columns"), 7), remedy="Pass columns=8."
            ),
        ),
    ),
}
"""Each by its name; the first has none."""
