"""The binder on launches: device, grid, block, workgroup memory, arguments; each has a neighbour that runs."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from paged_sum import (
    LONGEST,
    PAGES,
    SEQUENCES,
    WIDTH,
    Composed,
    PagedSumRequest,
    everything,
    plan_of,
    refused,
    tensors,
)

from kinfolk.errors import BindError, SimulationError
from kinfolk_runtime.binder import Unwritten, bind
from kinfolk_runtime.simulator import Simulator


class Device(Simulator):
    """An executor with a device of its own."""

    def __init__(self, target):
        super().__init__()
        self.target = target


def test_the_executor_s_device_is_the_plan_s_arch(run):
    run(tensors(), executor=Device("toy64:feature+:other-"))
    refused(run, tensors(), "executor simulator runs toy32", "the plan is for toy64", executor=Device("toy32"))


def test_the_plan_s_arch_is_the_composition_s(run):
    refused(run, tensors(), "the plan is for toy32, it is bound for toy64", plan=plan_of(arch="toy32"))


def test_executors_by_name(run):
    from kinfolk.errors import PluginError

    run(tensors(), executor="simulator")
    with pytest.raises(PluginError, match="nowhere"):
        run(tensors(), executor="nowhere")


@pytest.mark.parametrize("axis, limit", [(0, 16), (1, 4), (2, 4)])
def test_grid_axis(run, axis, limit):
    for count in (limit, limit + 1, -1):
        grid = tuple(count if index == axis else (SEQUENCES, 1, 1)[index] for index in range(3))
        plan = plan_of(grid=grid)
        if count == limit and axis:
            run(tensors(), plan, executor=Simulator(sanitize="none"))  # workgroups along the axis do the same
        elif count != limit:
            text = f"grid {'xyz'[axis]} is {count}" if count > 0 else "at least 0 is needed"
            refused(run, tensors(), text, plan=plan)
    plan = plan_of(request=PagedSumRequest(sequences=16, longest=LONGEST, pages=PAGES, scale=0.5))
    given = tensors() | {"offsets": np.zeros(17, np.int32), "table": np.zeros((16, 3), np.int32)}
    _, outputs = run(given, plan)
    assert (outputs["out"] == 0).all()


def test_an_empty_grid_launches_nothing(run):
    run(tensors())
    with pytest.raises(SimulationError, match="never written of sums"):
        run(tensors(), plan_of(grid=(0, 1, 1)))


def test_workgroup_memory_fits(run):
    run(tensors(), plan_of(shared=1024))
    refused(run, tensors(), "workgroup memory in bytes is 4100, toy64 has at most 4096", plan=plan_of(shared=1025))


def test_the_block_is_the_kernel_s_and_fits(run, toy64):
    refused(run, tensors(), "is built for 64 threads, the plan launches 128", plan=plan_of(block=128))
    toy64.arch = attrs.evolve(toy64.arch, facts={**toy64.arch.facts, "max_workgroup_size": 32})
    refused(run, tensors(), "block is 64, toy64 has at most 32")


def test_the_kernel_is_the_one_planned(run, toy64):
    class Other(Composed):
        def emit(self, spec):
            changed = list(spec.parameters())
            self.change(changed)
            return self.toy.kernel(lambda *_: None, *changed)

    def without_last(parameters):
        parameters.pop()

    def stricter(parameters):
        parameters[0] = attrs.evolve(parameters[0], alignment=16)

    for change, text in ((without_last, "takes 7 arguments, the plan passes 8"), (stricter, "alignment=16")):
        composed = Other(toy64)
        composed.change = change
        with pytest.raises(BindError) as caught:
            bind(plan_of(), tensors(), composition=composed)
        assert text in str(caught.value)


def test_the_wave_size_is_the_arch_s(toy64):
    kept = toy64.arch
    composed = Composed(toy64)
    composed.arch = attrs.evolve(kept, wave_size=32)
    with pytest.raises(BindError, match="is built for waves of 64, toy64 has 32"):
        bind(plan_of(), tensors(), composition=composed)


def test_an_argument_past_its_type(run):
    """A page stride that i32 does not hold; one page is enough to have it."""
    plan = plan_of(request=PagedSumRequest(sequences=SEQUENCES, longest=LONGEST, pages=1, scale=0.5))
    given = tensors() | {"table": np.zeros((SEQUENCES, 3), np.int32)}
    one = given["cache"][:1]
    for step, good in (((1 << 31) - 1, True), (1 << 31, False)):
        cache = np.lib.stride_tricks.as_strided(one, one.shape, (2 * step, *one.strides[1:]))
        if good:
            run(given | {"cache": cache}, plan)
        else:
            refused(run, given | {"cache": cache}, "page_stride", str(1 << 31), plan=plan)


def test_an_output_row_that_no_launch_writes_is_counted(run):
    plan = plan_of()
    short = attrs.evolve(plan.launches[1], grid=(SEQUENCES - 1, 1, 1))
    bound, outputs = run(tensors(), attrs.evolve(plan, launches=(plan.launches[0], short)))
    assert bound.unwritten() == {"out": Unwritten(WIDTH, (SEQUENCES - 1, 0))} and np.isnan(outputs["out"][-1]).all()


def test_a_second_call_does_not_see_the_first_one_s_workspace(run, toy64):
    bound, _ = run(tensors())
    bound()
    lazy = attrs.evolve(bound.plan, launches=(bound.plan.launches[1], bound.plan.launches[0]))
    with pytest.raises(SimulationError, match="never written of sums"):
        run(everything(), lazy)
