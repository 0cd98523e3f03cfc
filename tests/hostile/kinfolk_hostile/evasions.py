"""Faults that leave checks less to look at: what a family may do, by mistake or not, so that nothing is found."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs
import numpy as np

from kinfolk.candidate import Candidate
from kinfolk.check import Expected, Scenario, Tolerance
from kinfolk.expr import field
from kinfolk.ir import Kernel
from kinfolk_row_softmax.candidate import CAPABILITY, ONE_ROW_EACH, row_softmax_specs
from kinfolk_row_softmax.kernel import emit_row_softmax
from kinfolk_row_softmax.reference import row_softmax_reference
from kinfolk_row_softmax.scenarios import row_softmax_scenarios

Inputs = Mapping[str, Any]


def vague_reference(request: Any, inputs: Inputs) -> dict[str, Expected]:
    """Allow errors that no kernel can have."""
    right = row_softmax_reference(request, inputs)
    return {name: Expected(one.value, Tolerance(np.full(one.value.shape, 1e38))) for name, one in right.items()}


def copied_reference(request: Any, inputs: Inputs) -> dict[str, Expected]:
    """Run the kernel, and call what it gives right."""
    from kinfolk.plugins.loading import load
    from kinfolk_row_softmax.spec import RowSoftmaxSpec
    from kinfolk_runtime.simulator import Simulator

    arch = load("arch", "gfx942").plugin.kinfolk_arch()
    x = np.asarray(inputs["x"])
    spec = RowSoftmaxSpec(dtype=request.dtype, waves=4)
    y = np.zeros((request.rows, request.columns), x.dtype)
    lse = np.zeros(request.rows, np.float32)
    kernel = emit_row_softmax(spec, arch)
    arguments = [np.array(x), y, lse, request.scale, request.columns, request.columns]
    if request.rows:
        Simulator().launch(kernel, (request.rows, 1, 1), arguments)
    right = row_softmax_reference(request, inputs)
    kept = {"y": y.astype(np.float64), "lse": lse.astype(np.float64)}
    return {name: Expected(kept[name], one.tolerance) for name, one in right.items()}


_drawn: Final = itertools.count()


UNASKED: Final[Candidate] = attrs.evolve(
    ONE_ROW_EACH,
    name="hostile.idle",
    plugin="kinfolk-hostile",
    capability=(*CAPABILITY, attrs.evolve(CAPABILITY[1], code="hostile.never", condition=field("rows") < 0)),
)
"""A candidate that takes no request at all."""


def wavering_scenarios(request: Any) -> Iterator[Scenario]:
    """Give other inputs each time."""
    for each in row_softmax_scenarios(request):
        yield attrs.evolve(each, build=_wavering(each.build))


def _wavering(build: Callable[..., Any]) -> Callable[..., Any]:
    def built(generator: Any) -> Any:
        sign = 1 - 2 * (next(_drawn) % 2)
        return {name: array * array.dtype.type(sign) for name, array in build(generator).items()}

    return built


def idle_scenarios(request: Any) -> Iterator[Scenario]:
    """Give nothing to do."""
    return (each for each in row_softmax_scenarios(request) if each.name == "no_rows")


def tuned_emission(spec: Any, arch: Any) -> Kernel:
    """Read the environment."""
    os.environ.get("HOSTILE_UNROLL")
    return emit_row_softmax(spec, arch)


def timed_emission(spec: Any, arch: Any) -> Kernel:
    """Read a clock."""
    time.perf_counter_ns()
    return emit_row_softmax(spec, arch)


_first: list[str] = []


def first_emission(spec: Any, arch: Any) -> Kernel:
    """Emit the spec that comes first in a process otherwise than those that follow."""
    if not _first:
        _first.append(spec.identity())
    kernel = emit_row_softmax(spec, arch)
    return attrs.evolve(kernel, attributes={**kernel.attributes, "note": 1}) if _first[0] == spec.identity() else kernel


def exiting_emission(spec: Any, arch: Any) -> Kernel:
    """End the process."""
    raise SystemExit(0)


def endless_specs(arch: Any, flavor: str) -> Iterator[Any]:
    """Give specs without an end."""
    return itertools.cycle(row_softmax_specs(arch, flavor))
