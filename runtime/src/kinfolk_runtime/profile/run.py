"""Run a request's kernels once on one scenario and count what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.arch import Arch
from kinfolk.flavor import DEFAULT_FLAVOR
from kinfolk_runtime.binder import bind
from kinfolk_runtime.executor import Work
from kinfolk_runtime.profile.counts import Counts
from kinfolk_runtime.profile.observed import CountingSimulator, sampled
from kinfolk_runtime.profile.prepared import check_workgroups, prepared
from kinfolk_runtime.profile.report import KernelProfile, Profile
from kinfolk_runtime.simulator.buffers import Buffer
from kinfolk_runtime.simulator.engine import Simulator

if TYPE_CHECKING:
    from kinfolk.ir.value import Kernel
    from kinfolk.plugins.composition import Composition
    from kinfolk.request import Request
    from kinfolk.spec import Spec

SAMPLE: Final = 8
"""Workgroups of a launch that are measured at most, where nothing else is asked for."""


def profile(
    request: Request,
    arch: str,
    flavor: str = DEFAULT_FLAVOR,
    *,
    scenario: str | None = None,
    workgroups: int | None = SAMPLE,
    composition: Composition | None = None,
) -> Profile:
    """Dispatch a request and count what its kernels do on one scenario of the family, by default the first.

    Nothing is compiled: the emitted IR is what runs. At most `workgroups` of each launch are measured, spread evenly
    over its grid, None measures all. Refusals are in the profile. Raises ValueError for an unknown scenario or a
    `workgroups` below 1, KernelFault where a kernel is wrong, PluginError where a plugin fails or has no scenario.
    """
    from kinfolk.plugins.composition import compose

    check_workgroups(workgroups)
    composition = composition or compose(request.family, arch)
    ready = prepared(composition, request, flavor, scenario)
    found = Profile(
        family=request.family,
        arch=arch,
        flavor=flavor,
        candidate=ready.candidate,
        request=ready.request,
        scenario=ready.scenario.name if ready.scenario else None,
        refusals=ready.refusals,
    )
    if ready.plan is None or ready.scenario is None:
        return found
    inputs = ready.scenario.inputs()
    emitter = _Emitter(composition)
    counter = Counter(composition.arch, workgroups)
    bind(ready.plan, inputs, executor=counter, composition=emitter)()
    kernels = tuple(attrs.evolve(each, spec_digest=emitter.specs[each.kernel].digest()) for each in counter.launches)
    useful = composition.useful_flops(ready.scenario.request, ready.plan.candidate, inputs)
    return attrs.evolve(found, kernels=kernels, useful_flops=useful)


class _Emitter:
    """What binding asks of a composition; `specs` says which spec each kernel is of."""

    def __init__(self, composition: Composition) -> None:
        self._composition = composition
        self.arch = composition.arch
        self.specs: dict[Kernel, Spec] = {}

    def emit(self, spec: Spec) -> Kernel:
        """Return the kernel of a spec."""
        kernel = self._composition.emit(spec)
        self.specs[kernel] = spec
        return kernel


class Counter:
    """An executor that measures every launch; `launches` are those that ran, in order.

    Where a launch is sampled, its memory is put back and the fast engine runs all of it, so that the next launch finds
    what it should.
    """

    name = "simulator"
    target: str | None = None
    takes_sparse = True

    def __init__(self, arch: Arch, workgroups: int | None) -> None:
        self.launches: list[KernelProfile] = []
        self._banks = arch.banks
        self._most = workgroups

    def run(self, work: Work) -> None:
        """Measure one launch and run it to its end."""
        x, y, z = work.grid
        measured = len(sampled(x * y * z, self._most))
        whole = measured == x * y * z
        counts = Counts(self._banks)
        restore = [] if whole else [each.saved() for each in work.arguments if isinstance(each, Buffer)]
        CountingSimulator(counts, self._most).run(work)
        for each in restore:
            each()
        if not whole:
            Simulator().run(work)
        self.launches.append(
            KernelProfile(kernel=work.kernel, spec_digest="", grid=work.grid, measured=measured, counts=counts)
        )
