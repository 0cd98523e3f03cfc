"""What a run takes of this host's memory, from the plan's bindings, beside what there is: judged before allocation."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kinfolk.expr import ExprError
from kinfolk.ir.types import SCALARS
from kinfolk.refusal import Refusal
from kinfolk.request import launch_names

if TYPE_CHECKING:
    from kinfolk.plan import Binding, Plan

NONE: Final[Mapping[str, Collection[str]]] = {}
FP64_BYTES: Final = 8
"""The reference computes in fp64: it holds a copy of each float tensor at that width."""
KERNEL_SAYS: Final = Path("/proc/meminfo")
CONTAINERS: Final = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)


def needed_bytes(plan: Plan, sparse: Collection[str] = ()) -> int:
    """Return the bytes that a run of a plan holds at once: its tensors and an fp64 copy of each float one.

    Tensors named in `sparse` exist in part, so small that they do not count.
    """
    whole = [binding for binding in plan.bindings if binding.name not in sparse]
    return sum(_elements(plan, binding) * _bytes_each(binding) for binding in whole)


def _elements(plan: Plan, binding: Binding) -> int:
    """Return how many elements a binding has at least; 0 where that depends on a tensor that is not there yet."""
    try:
        return math.prod(max(0, axis.extent.integer(plan.scope())) for axis in binding.shape)
    except ExprError:
        return 0


def _bytes_each(binding: Binding) -> int:
    copied = SCALARS[binding.dtype].kind == "float" and binding.role in ("input", "output")
    return binding.element_bytes + FP64_BYTES * copied


def available_bytes() -> int | None:
    """Return the memory that is free to use, of the host and of the container; None where no one says."""
    found = [each for each in (_host_bytes(), *(_container_bytes(*paths) for paths in CONTAINERS)) if each is not None]
    return min(found) if found else None


def _host_bytes() -> int | None:
    try:
        lines = KERNEL_SAYS.read_text().splitlines()
    except OSError:
        names = getattr(os, "sysconf_names", {})
        known = {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= set(names)
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if known else None
    sizes = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(sizes[0]) * 1024 if sizes else None


def _container_bytes(limit: Path, taken: Path) -> int | None:
    try:
        return max(0, int(limit.read_text()) - int(taken.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return None


def memory_refusals(plans: Mapping[str, Plan], sparse: Mapping[str, Collection[str]] = NONE) -> tuple[Refusal, ...]:
    """Return a refusal where a scenario's plan, by name, needs more memory than there is; its remedy is in it.

    `sparse` names, by scenario, the tensors that exist in part.
    """
    there = available_bytes()
    if there is None:
        return ()
    needs = {name: needed_bytes(plan, sparse.get(name, ())) for name, plan in plans.items()}
    excess = [name for name, need in needs.items() if need > there]
    if not excess:
        return ()
    worst = max(excess, key=lambda name: needs[name])
    request = plans[worst].request
    sizes = {name: getattr(request, name) for name in launch_names(type(request))}
    numbers = {name: value for name, value in sizes.items() if type(value) is int}
    field = max(numbers, key=lambda name: numbers[name]) if numbers else "request"
    fitting = [name for name in needs if name not in excess]
    others = f", or only what fits: {' '.join(f'--scenario {name}' for name in fitting)}" if fitting else ""
    named = f"{', '.join(excess)}: " if fitting else ""
    because = (
        f"{named}the tensors of scenario {worst} and their fp64 copies for the reference take "
        f"{sized(needs[worst])}, {sized(there)} are there"
    )
    return (
        Refusal(
            code="verify.memory",
            kind="cannot",
            field=field,
            value=numbers.get(field),
            limit=f"what fits in {there} bytes of memory, it needs {needs[worst]}",
            because=because,
            remedy=f"Ask for a smaller {field}{others}.",
            plugin="kinfolk-runtime",
        ),
    )


def sized(count: int) -> str:
    """Return a number of bytes for people: `3.1 GiB`."""
    for power, unit in ((5, "PiB"), (4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**power:
            return f"{count / 1024**power:.3g} {unit}"
    return f"{count} B"
