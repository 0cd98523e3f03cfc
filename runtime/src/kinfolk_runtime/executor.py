"""What runs the launches of a bound plan, found among the plugins of `kinfolk.executors`."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import attrs

from kinfolk.arch import Arch
from kinfolk.errors import KinfolkError, PluginError
from kinfolk.fields import shown
from kinfolk.ir.value import Kernel
from kinfolk.plugins.containment import WrongAnswerError, contained

if TYPE_CHECKING:
    from kinfolk_runtime.artifact import CompiledKernel
    from kinfolk_runtime.device_array import DeviceArray
    from kinfolk_runtime.image import Image
    from kinfolk_runtime.simulator.buffers import Buffer, SparseBuffer

DEFAULT: Final = "simulator"


class ExecutorUnavailable(KinfolkError):
    """What an executor needs of this host is missing; the message says what, and how to mend it."""


@attrs.frozen(kw_only=True)
class Work:
    """One launch: the kernel as IR, its machine code where it was compiled, workgroups per axis, arguments in order.

    `image` is the code object as a device loads it, for executors that ask for one.
    """

    kernel: Kernel
    compiled: CompiledKernel | None
    grid: tuple[int, int, int]
    arguments: tuple[Buffer | SparseBuffer | DeviceArray | int | float, ...]
    image: Image | None = None


class Executor(Protocol):
    """Runs launches. `target` is the target id of its device, None where it runs any arch's kernels.

    One with a true attribute `takes_sparse` runs on memory that exists in part, as SparseBuffer, and one with
    `marks_writes` notes in buffers what launches wrote; its `notes`, sentences about what it ran, stand in reports. One
    whose tensors lie elsewhere than in this host's memory has a `memory` (`kinfolk_runtime.host_memory.Memory`). One
    with a method `admit(arch, images)` loads code objects: it is given those of a plan when the plan is bound, and
    raises BindError for what its device does not run; its `expect_grid(image, grid)`, where it has one, for grids it
    cannot launch.
    """

    @property
    def name(self) -> str: ...
    @property
    def target(self) -> str | None: ...
    def run(self, work: Work) -> None:
        """Run one launch to its end; or begin it, in order with all that this executor is given."""
        ...


def executor_of(wanted: Executor | str | None) -> Executor:
    """Return an executor: itself, the plugin of that name made anew, or the simulator.

    Raises PluginError where the plugin makes none, ExecutorUnavailable where this host has not what it needs, and
    TypeError for what is none.
    """
    if wanted is not None and not isinstance(wanted, str):
        try:
            return _executor(wanted)
        except WrongAnswerError as error:
            raise TypeError(f"executor takes an Executor, a plugin's name or None; {error}") from None
    name = wanted or DEFAULT
    if name == DEFAULT:
        from kinfolk_runtime.simulator.plugin import executor

        return executor()
    from kinfolk.plugins.loading import load

    plugin = load("executor", name).plugin
    make: Any = getattr(plugin, "executor", None) if isinstance(plugin, ModuleType) else plugin
    if not callable(make):
        raise PluginError(f"the executor plugin {name} is neither a callable nor a module with one named executor")
    return contained(
        f"executor {name}", "entry point", cast("Callable[[], Any]", make), take=_executor, passing=(KinfolkError,)
    )


def _executor(found: Any) -> Executor:
    """Return what has the parts of an executor; else raise WrongAnswerError."""
    target = getattr(found, "target", found)
    if not (callable(getattr(found, "run", None)) and type(getattr(found, "name", None)) is str):
        raise WrongAnswerError(f"{shown(found)} has no method run and no name")
    if not (target is None or type(target) is str):
        raise WrongAnswerError(f"{shown(found)} has the target {shown(target)}, it is a target id or None")
    return found


def takes_sparse(executor: Executor) -> bool:
    """Return whether an executor runs on memory that exists in part; it need not say so."""
    return getattr(executor, "takes_sparse", False) is True


Admit = Callable[["Arch", "tuple[Image, ...]"], None]


def admit_of(executor: Executor) -> Admit | None:
    """Return the method by which an executor takes code objects before they are launched; None where it has none."""
    found: Admit | None = getattr(executor, "admit", None)
    return found if callable(found) else None


def run_contained(executor: Executor, work: Work) -> None:
    """Run one launch; what an executor raises that is no error of kinfolk's is a HookFault that names it."""
    contained(f"executor {executor.name}", "run", executor.run, work, take=lambda _: None, passing=(KinfolkError,))


def mismatch(executor: Executor, arch: Arch) -> str | None:
    """Return why an executor cannot run an arch's kernels, or None; a target id's features are not compared."""
    if executor.target is None:
        return None
    if executor.target.partition(":")[0] in {one.partition(":")[0] for one in arch.target_ids}:
        return None
    return (
        f"executor {executor.name} runs {executor.target}, the plan is for {arch.name} ({', '.join(arch.target_ids)})"
    )
