"""Kernels of a family for a program that calls them often: dispatched, compiled and bound with what is kept between.

runner = Runner("mla", "gfx942", executor="hip")
outputs = runner(request, tensors)                       # checked, contents included; outputs allocated
outputs = runner(request, tensors, out={"out": out, "lse": lse}, check=False)
step = runner.bind(request, tensors, out=...)            # checked once; step() only launches
step = runner.capture(request, tensors, out=...)         # as one graph of the device
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from kinfolk.dispatch import selections
from kinfolk.errors import BindError
from kinfolk.fields import shown
from kinfolk.flavor import DEFAULT_FLAVOR
from kinfolk.plan import Plan
from kinfolk.request import Request
from kinfolk_runtime.binder import bind_kernels, check_status, kernels_of
from kinfolk_runtime.bound import Bound, BoundKernel
from kinfolk_runtime.executor import Executor, executor_of
from kinfolk_runtime.host_memory import memory_of
from kinfolk_runtime.workspace import Workspaces

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.plugins.composition import Composition
    from kinfolk_runtime.bundles import Bundle
    from kinfolk_runtime.hip.graph import Captured

_RUNNERS: Final = weakref.WeakSet["Runner"]()
KEPT: Final = 1024
"""Plans whose kernels are kept, those used last."""
NO_TENSORS: Final[Mapping[str, Any]] = {}


class _Source(Protocol):
    """Where plans and kernels come from: a composition that compiles, or a bundle."""

    @property
    def arch(self) -> Arch: ...
    @property
    def request_type(self) -> type[Request]: ...
    def plan(self, request: Request) -> Plan: ...
    def kernels(self, plan: Plan, executor: Executor) -> tuple[BoundKernel, ...]: ...


class _Compiled:
    def __init__(self, composition: Composition, flavor: str) -> None:
        self._composition, self._flavor = composition, flavor
        self.arch, self.request_type = composition.arch, composition.request_type

    def plan(self, request: Request) -> Plan:
        return selections.plan(self._composition, request, self._flavor)

    def kernels(self, plan: Plan, executor: Executor) -> tuple[BoundKernel, ...]:
        from kinfolk_runtime.compilation import compile as compile_plan

        artifact = compile_plan(plan, composition=self._composition)
        return kernels_of(plan, artifact.kernels, self._composition, executor)


class _Bundled:
    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self.arch, self.request_type = bundle.arch, bundle.request_type

    def plan(self, request: Request) -> Plan:
        return self._bundle.dispatch(request)

    def kernels(self, plan: Plan, executor: Executor) -> tuple[BoundKernel, ...]:
        return kernels_of(plan, None, self._bundle, executor)


class Step:
    """A bound plan of a runner: calling it launches and returns the outputs; contents are not looked into.

    It shares the runner's workspace of its stream, so its calls and the runner's take turns there, from whatever
    threads; tensors and workspace live as long as it does.
    """

    def __init__(self, bound: Bound, workspaces: Workspaces) -> None:
        self.bound, self._workspaces = bound, workspaces

    def __call__(self) -> dict[str, Any]:
        """Launch; returns as the executor does, which on a stream is before the work is done."""
        with self._workspaces.turn:
            return self.bound()

    def status(self) -> dict[str, int]:
        """Return the status words of the last call, by binding; 0 is good. Waits for that call."""
        return self.bound.status()


class Runner:
    """A family's kernels on an arch, on one executor. Any number of threads may use one runner.

    Plans, compiled kernels and loaded code objects are kept; a request that differs from one before in launch fields
    alone is looked up. A workspace per stream is used by one call after the other and grows when a call needs more.
    `executor` is an executor, a plugin's name or None for the simulator. Raises as `compose` and `executor_of`.
    """

    def __init__(
        self,
        family: str,
        arch: str,
        *,
        executor: Executor | str | None = None,
        flavor: str = DEFAULT_FLAVOR,
        composition: Composition | None = None,
    ) -> None:
        from kinfolk.plugins.composition import compose

        self._begin(_Compiled(composition or compose(family, arch), flavor), executor)

    @classmethod
    def of_bundle(cls, bundle: Bundle, *, executor: Executor | str | None = None) -> Runner:
        """Return a runner of a bundle's kernels: nothing is compiled, and the family need not be installed.

        Raises TypeError for what is no bundle.
        """
        from kinfolk_runtime.bundles import Bundle

        if not isinstance(cast("object", bundle), Bundle):
            raise TypeError(f"of_bundle takes a Bundle, got {shown(bundle)}. Pass what load_bundle(folder) returns.")
        runner = object.__new__(cls)
        runner._begin(_Bundled(bundle), executor)
        return runner

    def _begin(self, source: _Source, executor: Executor | str | None) -> None:
        self._source, self.executor = source, executor_of(executor)
        _RUNNERS.add(self)
        self._kernels: OrderedDict[tuple[object, ...], tuple[BoundKernel, ...]] = OrderedDict()
        self._streams: dict[int | None, tuple[Executor, Workspaces]] = {}
        self._lock = threading.Lock()

    def request(self, **fields: Any) -> Request:
        """Return a request of the family. Raises TypeError and ValueError naming the field."""
        return self._source.request_type(**fields)

    def plan(self, request: Request | Mapping[str, Any]) -> Plan:
        """Return the plan of a request, or of its fields. Raises as `kinfolk.dispatch`, TypeError for neither."""
        kind = self._source.request_type
        if isinstance(request, kind):
            return self._source.plan(request)
        if isinstance(cast("object", request), Mapping) and not isinstance(request, Request):
            return self._source.plan(self.request(**request))
        raise TypeError(
            f"request takes a {kind.__name__} of {kind.__module__}, or a mapping of its fields, got {shown(request)} "
            f"of {type(request).__module__}. Make it by request(...) of this runner."
        )

    def prepare(self, requests: Iterable[Request | Mapping[str, Any]]) -> None:
        """Compile and load the kernels of requests, so that no later call of theirs does. Raises as a call does."""
        if isinstance(requests, (Request, Mapping)):
            raise TypeError(f"prepare takes several requests, got one: {shown(cast('object', requests))}. List it.")
        for request in requests:
            self._kernels_of(self.plan(request))

    def __call__(
        self,
        request: Request | Mapping[str, Any],
        tensors: Mapping[str, Any],
        *,
        out: Mapping[str, Any] = NO_TENSORS,
        stream: Any = None,
        check: bool = True,
    ) -> dict[str, Any]:
        """Launch a request on tensors and return the outputs by name: those of `out`, the others allocated.

        With `check` index tensors are looked into first and status words after, each of which waits for the device;
        without, nothing is waited for. `stream` is where it is enqueued, by default the executor's own stream.
        Raises BindError before any launch, StatusError after, and what `plan` and `compile` raise.
        """
        plan = self.plan(request)
        kernels = self._kernels_of(plan)
        executor, workspaces = self._on(stream)
        with workspaces.turn:
            bound = self._bound(plan, kernels, tensors, out, executor, workspaces.lend)
            if check:
                bound.look_into_contents()
            outputs = bound()
            if check:
                check_status(bound)
            return outputs

    def bind(
        self,
        request: Request | Mapping[str, Any],
        tensors: Mapping[str, Any],
        *,
        out: Mapping[str, Any] = NO_TENSORS,
        stream: Any = None,
        check: bool = True,
    ) -> Step:
        """Return what launches a request on these tensors whenever it is called; with `check` contents are looked into
        now. Raises as a call does.
        """
        plan = self.plan(request)
        kernels = self._kernels_of(plan)
        executor, workspaces = self._on(stream)
        with workspaces.turn:
            bound = self._bound(plan, kernels, tensors, out, executor, workspaces.lend_for_long)
        if check:
            bound.look_into_contents()
        return Step(bound, workspaces)

    def capture(
        self,
        request: Request | Mapping[str, Any],
        tensors: Mapping[str, Any],
        *,
        out: Mapping[str, Any] = NO_TENSORS,
        stream: Any = None,
        check: bool = True,
    ) -> Captured:
        """Return a request on these tensors as a graph of the device, with a workspace of its own; launched on `stream`
        when it is called. With `check` contents are looked into before the capture. Raises as a call does, and
        BindError for an executor without graphs.
        """
        from kinfolk_runtime.hip.graph import capture

        plan = self.plan(request)
        executor, _ = self._on(stream)
        bound = self._bound(plan, self._kernels_of(plan), tensors, out, executor, None)
        if check:
            bound.look_into_contents()
        return capture(bound)

    def _bound(
        self,
        plan: Plan,
        kernels: tuple[BoundKernel, ...],
        tensors: Mapping[str, Any],
        out: Mapping[str, Any],
        executor: Executor,
        lend: Any,
    ) -> Bound:
        if not isinstance(cast("object", out), Mapping):
            kind = type(cast("object", out)).__name__
            raise BindError(
                f"out takes outputs by name, in a mapping, got a {kind}; they are {', '.join(plan.outputs)}."
            )
        if not isinstance(cast("object", tensors), Mapping):
            out = NO_TENSORS  # which the binder refuses by name
        if wrong := [name for name in out if name not in plan.outputs]:
            raise BindError(
                f"out takes outputs, which are {', '.join(plan.outputs)}; {', '.join(map(str, wrong))} is none."
            )
        if twice := [name for name in out if name in tensors]:
            raise BindError(f"{', '.join(twice)} is in tensors and in out. Pass it once.")
        given = {**tensors, **out} if out else tensors
        return bind_kernels(plan, kernels, self._source.arch, given, executor, lend=lend)

    def _kernels_of(self, plan: Plan) -> tuple[BoundKernel, ...]:
        """Return a plan's kernels, compiled and loaded once."""
        key = tuple((launch.spec.identity(), launch.block) for launch in plan.launches)
        with self._lock:
            if kept := self._kernels.get(key):
                self._kernels.move_to_end(key)
                return kept
        made = self._source.kernels(plan, self.executor)  # threads that want the same one wait for one compilation
        with self._lock:
            self._kernels[key] = made
            while len(self._kernels) > KEPT:
                self._kernels.popitem(last=False)
        return made

    def _on(self, stream: Any) -> tuple[Executor, Workspaces]:
        """Return the executor on a stream, with the workspaces of that stream."""
        executor = self.executor
        if stream is not None:
            on: Any = getattr(executor, "on", None)
            if on is None:
                raise BindError(f"executor {executor.name} has no streams. Pass none.")
            executor = cast("Executor", on(stream))
        number: int | None = getattr(executor, "stream", None)
        with self._lock:
            if number not in self._streams:
                self._streams[number] = (executor, Workspaces(memory_of(executor)))
            return self._streams[number]

    def forget_streams(self) -> None:
        """Let go of all workspaces; calls allocate them anew. For streams that are destroyed while the runner lives."""
        with self._lock:
            self._streams.clear()

    def _unlock(self) -> None:
        """In a forked child: whoever was looking something up is not here."""
        self._lock = threading.Lock()


def _unlock_all() -> None:
    for runner in _RUNNERS:
        runner._unlock()  # pyright: ignore[reportPrivateUsage]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_all)

__all__ = ["Runner", "Step"]
