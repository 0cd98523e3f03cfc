"""From a plan to an artifact: emit, lower, compile, read the figures, gate."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from kinfolk.errors import InternalError, ToolError
from kinfolk.plan import Plan
from kinfolk.spec import Spec
from kinfolk_runtime.artifact import (
    Artifact,
    CompiledKernel,
    artifact_key,
    check_arguments,
    compile_job,
    composition_of,
    refuse,
    sha256,
)
from kinfolk_runtime.cache.lowered import lowered
from kinfolk_runtime.cache.objects import ObjectEntry
from kinfolk_runtime.steps import check_plan
from kinfolk_runtime.toolchains.base import Toolchain
from kinfolk_runtime.toolchains.host import toolchain_for

if TYPE_CHECKING:
    from kinfolk.plugins.composition import Composition

_objects: Final[dict[str, Future[bytes]]] = {}
"""Every object this process compiled, or is compiling, by artifact key."""


def compile(plan: Plan, *, composition: Composition | None = None, toolchain: Toolchain | None = None) -> Artifact:  # noqa: A001
    """Compile every launch of a dispatched plan and gate what came out.

    Needs no GPU. By default the composition is the one the plan was dispatched through, and the toolchain the host's
    for the plan's flavor. A kernel this process compiled before is not compiled again, nor one that is in the cache and
    is what it claims to be.
    Raises TypeError for what is no plan, ToolError where no toolchain of this host takes the flavor or a kernel does
    not compile, Refused, with kernel and figures, where the gate does, and CacheError where KINFOLK_CACHE_DIR is set to
    what cannot be a folder.
    """
    check_plan(plan, "compile")
    if not plan.arch or not plan.flavor:
        raise InternalError("compile takes a plan that dispatch returned: this one names no arch and no flavor")
    if changed := plan.staleness():
        raise ValueError(f"the plan's request was changed since it was dispatched: {changed}. Dispatch again.")
    composition = composition or composition_of(plan)
    specs = {launch.spec.identity(): launch.spec for launch in plan.launches}
    kernels = compile_specs(specs.values(), plan.flavor, composition=composition, toolchain=toolchain)
    by_identity = dict(zip(specs, kernels, strict=True))
    return Artifact(plan=plan, kernels=tuple(by_identity[launch.spec.identity()] for launch in plan.launches))


def compile_specs(
    specs: Iterable[Spec], flavor: str, *, composition: Composition, toolchain: Toolchain | None = None
) -> tuple[CompiledKernel, ...]:
    """Compile and gate several specs, in order, on all workers of the toolchain. Raises as `compile`."""
    toolchain = toolchain or toolchain_for(flavor)
    if flavor not in toolchain.flavors:
        raise ToolError(f"{toolchain.build} compiles {' and '.join(toolchain.flavors)}, not {flavor}")
    chosen = toolchain

    def compiled(spec: Spec) -> CompiledKernel:
        return compile_spec(spec, flavor, composition=composition, toolchain=chosen)

    every = tuple(specs)
    if len(every) < 2:
        return tuple(map(compiled, every))
    with ThreadPoolExecutor(min(len(every), os.cpu_count() or 1)) as threads:
        return tuple(threads.map(compiled, every))


def compile_spec(
    spec: Spec, flavor: str, *, composition: Composition, toolchain: Toolchain, gated: bool = True
) -> CompiledKernel:
    """Compile one spec; without `gated`, figures outside the gate are left to the caller to report.

    A spec that a plugin refuses, or that was changed into what its class does not take, raises Refused before anything
    is made of it.
    """
    composition.expect_spec(spec)
    kernel, module = lowered(composition, spec, flavor)
    arch, build = composition.arch, toolchain.build
    key = artifact_key(module, arch=arch.name, flavor=flavor, toolchain=build)
    place = ObjectEntry(key=key, module=module, arch=arch, flavor=flavor, toolchain=build)
    code = _object(place, toolchain)
    usage = arch.usage(code, module.symbol)
    check_arguments(usage, spec)
    if gated:
        refuse(module.symbol, usage, composition.gate(usage, spec))
    return CompiledKernel(
        spec=spec,
        arch=arch.name,
        flavor=flavor,
        kernel=kernel,
        module=module,
        object=code,
        object_sha256=sha256(code),
        usage=usage,
        toolchain=build,
        key=key,
    )


def _object(place: ObjectEntry, toolchain: Toolchain) -> bytes:
    """Return the object of a key, looked up or compiled once however many threads ask; a failure is not kept."""
    ours: Future[bytes] = Future()
    found = _objects.setdefault(place.key, ours)
    if found is not ours:
        return found.result()
    try:
        ours.set_result(place.get(lambda: toolchain.compile(compile_job(place.module)).object))
    except BaseException as error:
        del _objects[place.key]
        ours.set_exception(error)
        raise
    return ours.result()


def _forget_unfinished() -> None:
    """In a forked child: whoever was compiling is not here."""
    for key in [key for key, future in _objects.items() if not future.done()]:
        del _objects[key]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_unfinished)
