"""The family as core sees it: all is launch values; one candidate has two launches of which a condition decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import numpy as np

from kinfolk.candidate import Candidate
from kinfolk.check import Expected, Scenario, Tolerance
from kinfolk.expr import ceil_div, field
from kinfolk.hooks import hookimpl
from kinfolk.plan import Argument, Axis, Binding, Launch, Plan
from kinfolk.refusal import Limit
from kinfolk_unusual.kernels import emitted
from kinfolk_unusual.records import MOST, HalfSpec, JoinSpec, RowSpec, TallyRequest

PLUGIN = "kinfolk-unusual"
SHORT = 64
"""Rows of so many columns are left whole."""


def _limits(name: str) -> tuple[Limit, ...]:
    return tuple(
        Limit(
            f"{name}.{each}",
            "cannot",
            each,
            field(each) <= MOST,
            because="places are numbers of 32 bits",
            remedy=f"Pass at most {MOST} {each}.",
        )
        for each in ("rows", "columns")
    )


def _memory(name: str, role: Any, dtype: str, *shape: Any) -> Binding:
    access: Any = {"input": "read", "output": "write", "workspace": "readwrite"}[role]
    size = 8 if dtype == "i64" else 4
    return Binding(
        name=name, role=role, dtype=dtype, shape=tuple(Axis(each) for each in shape), alignment=size, access=access
    )


ROWS, COLUMNS = field("rows"), field("columns")
IN_AND_OUT = (
    _memory("x", "input", "f32", ROWS, COLUMNS),
    _memory("above", "output", "i64", ROWS),
    _memory("largest", "output", "f32", ROWS),
)
HALVES = (_memory("counts", "workspace", "i32", ROWS, 2), _memory("maxima", "workspace", "f32", ROWS, 2))


def _launch(spec: Any, arch: Any, grid: tuple[Any, Any, Any], **more: Any) -> Launch:
    passed = {"columns": COLUMNS, "rows": ROWS, "width": ceil_div(COLUMNS, 2)}
    arguments = tuple(
        Argument(each.name, "pointer" if each.is_pointer else "i32", passed.get(each.name, each.name))
        for each in spec.parameters()
    )
    return Launch(spec=spec, grid=grid, block=arch.wave_size, arguments=arguments, **more)


def _whole_plan(request: Any, arch: Any) -> Plan:
    launch = _launch(RowSpec(), arch, (ROWS, 1, 1))
    return Plan(request=request, launches=(launch,), bindings=IN_AND_OUT, outputs=("above", "largest"))


def _halved_plan(request: Any, arch: Any) -> Plan:
    long = COLUMNS > SHORT
    launches = (
        _launch(HalfSpec(), arch, (ROWS, 2, 1), condition=long),
        _launch(JoinSpec(), arch, (ceil_div(ROWS, arch.wave_size), 1, 1), condition=long),
        _launch(RowSpec(), arch, (ROWS, 1, 1), condition=COLUMNS <= SHORT),
    )
    return Plan(request=request, launches=launches, bindings=(*IN_AND_OUT, *HALVES), outputs=("above", "largest"))


HALVES_ALONE = Limit(
    "tally.halved.few",
    "cannot",
    "columns",
    COLUMNS > SHORT // 2,
    because="half of a short row is no work",
    remedy=f"Pass more than {SHORT // 2} columns.",
)
CANDIDATES = (
    Candidate(
        name="tally.whole",
        priority=1,
        plugin=PLUGIN,
        capability=_limits("tally.whole"),
        plan=_whole_plan,
        specs=lambda arch, flavor: (RowSpec(),),
    ),
    Candidate(
        name="tally.halved",
        priority=0,
        plugin=PLUGIN,
        capability=(*_limits("tally.halved"), HALVES_ALONE),
        plan=_halved_plan,
        specs=lambda arch, flavor: (HalfSpec(), JoinSpec(), RowSpec()),
    ),
)


@hookimpl
def kinfolk_request_type() -> Any:
    """Return the request class."""
    return TallyRequest


@hookimpl
def kinfolk_candidates() -> Iterable[Candidate]:
    """Return both, the same on every arch."""
    return CANDIDATES


@hookimpl
def kinfolk_emit_ir(spec: Any, arch: Any) -> Any:
    """Return the kernel of a spec."""
    return emitted(spec, arch)


@hookimpl
def kinfolk_scenarios(request: Any) -> Iterable[Scenario]:
    """Return rows of every length beside one that matters, of both signs."""
    few, halved = min(request.rows, 3), request.columns > SHORT // 2
    lengths = {"own": request.columns, "one": 1, "half": SHORT // 2, "short": SHORT, "long": SHORT + 1, "odd": 131}
    for name, columns in lengths.items():
        if columns <= 4096 and (columns > SHORT // 2) is halved:  # another candidate's
            yield _scenario(attrs.evolve(request, rows=few, columns=columns), name, 1.0)
    yield _scenario(attrs.evolve(request, rows=70, columns=100 if halved else 20), "rows", 1.0)
    yield _scenario(attrs.evolve(request, rows=2, columns=200 if halved else 3), "negative", -1.0)


def _scenario(asked: Any, name: str, sign: float) -> Scenario:
    def build(generator: np.random.Generator) -> dict[str, Any]:
        drawn = generator.standard_normal((asked.rows, asked.columns), dtype=np.float32)
        return {"x": -np.abs(drawn) if sign < 0 else drawn}

    return Scenario(name=name, about=f"{asked.rows} rows of {asked.columns}", request=asked, build=build)


@hookimpl
def kinfolk_reference(request: Any, inputs: Mapping[str, Any]) -> Any:
    """Return both by definition; neither is rounded."""
    x = np.reshape(inputs["x"].astype(np.float64), (request.rows, request.columns))
    exact = Tolerance(np.zeros(request.rows))
    return {
        "above": Expected((x > 0).sum(axis=1).astype(np.float64), exact),
        "largest": Expected(x.max(axis=1, initial=-np.inf), exact),
    }
