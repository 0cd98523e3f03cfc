"""How fast the simulator's engines run MLA decode: lane-operations a second, and how long a kernel takes to prepare."""

import math
import time

import numpy as np
import pytest

from kinfolk import dispatch
from kinfolk_runtime import bind
from kinfolk_runtime import compile as compile_plan
from kinfolk_runtime.simulator import Simulator
from kinfolk_runtime.simulator.fast.engine import FastEngine
from kinfolk_runtime.simulator.sanitizers import ALL

BATCH = 4
AIMED_RATE = 1e9
"""Lane-operations a second on one core; an op on one lane of a running loop counts as one, whatever its width."""


def filled(composition, plan, keys):
    """Return inputs in which every sequence has all its keys, in pages in random order."""
    [scenario] = [each for each in composition.scenarios(plan.request) if each.name == "ragged"]
    inputs, random = dict(scenario.inputs()), np.random.default_rng(0)
    page = inputs["c_kv"].shape[1]
    pages = BATCH * keys // page
    for name in ("c_kv", "k_rope"):
        kind, shape = inputs[name].dtype, (pages, page, inputs[name].shape[2])
        inputs[name] = random.normal(size=shape).astype(np.float32).astype(kind)
    inputs["cu_seqlens_k"] = (np.arange(BATCH + 1) * keys).astype(np.int32)
    inputs["block_table"] = random.permutation(pages).astype(np.int32).reshape(BATCH, -1)
    return inputs


def lane_operations(kernel, plan, keys):
    """Return about how many a launch has: the ops of the loop over pages, rare branches among them."""
    [loop] = [op for op in kernel.walk() if op.name == "core.for"]
    launch, _ = plan.launches
    rounds = keys // launch.spec.work_per_round().tokens
    return len(list(loop.regions[0].walk())) * rounds * math.prod(plan.grid(launch)) * kernel.block


@pytest.mark.benchmark(group="engines")
@pytest.mark.parametrize("engine, threads, keys", [("fast", 1, 1024), ("fast", 1, 16384), ("fast", None, 16384)])
def test_decode(benchmark, composition, decode, aim, engine, threads, keys):
    """128 heads, a batch of 4; the aim is that of one core."""
    plan = dispatch(decode(max_seqlen_k=keys), "gfx942")
    inputs = filled(composition, plan, keys)
    bound = bind(compile_plan(plan), inputs, executor=Simulator(engine=engine, threads=threads))
    kernel = composition.emit(plan.launches[0].spec)
    total = lane_operations(kernel, plan, keys)
    aim(total / AIMED_RATE)
    benchmark.pedantic(bound, rounds=3, warmup_rounds=1)
    if benchmark.stats is not None:
        benchmark.extra_info["lane_operations_per_second"] = total / benchmark.stats.stats.median


@pytest.mark.benchmark(group="engines")
@pytest.mark.parametrize("engine", ["fast", "reference"])
def test_the_engines_side_by_side(benchmark, composition, decode, engine):
    """The same launch of 256 keys in each engine."""
    plan = dispatch(decode(max_seqlen_k=256), "gfx942")
    bound = bind(compile_plan(plan), filled(composition, plan, 256), executor=Simulator(engine=engine))
    benchmark.pedantic(bound, rounds=2, warmup_rounds=1)


@pytest.mark.benchmark(group="sanitizers")
def test_the_price_of_sanitizers(benchmark, composition, decode, say):
    """One launch with all sanitizers, with none, and in the reference engine with all; twice none's time is the aim."""
    keys = 512
    plan = dispatch(decode(max_seqlen_k=keys), "gfx942")
    inputs, artifact = filled(composition, plan, keys), compile_plan(plan)

    def best(rounds, **choices):
        """Return the least processor time of this thread, which others on the host lengthen little."""
        bound = bind(artifact, inputs, executor=Simulator(threads=1, **choices))
        bound()
        begins, ends = [], []
        for _ in range(rounds):
            begins.append(time.thread_time())
            bound()
            ends.append(time.thread_time())
        return min(end - begin for begin, end in zip(begins, ends, strict=True))

    if benchmark.enabled:
        none = best(9, sanitize="none")
        others = {"all": best(9, sanitize="all"), "all, reference engine": best(1, engine="reference", sanitize="all")}
        total = lane_operations(composition.emit(plan.launches[0].spec), plan, keys)
        for name, seconds in {"none": none, **others}.items():
            rate = total / seconds / 1e9
            say(f"{name}: {1e3 * seconds:.1f} ms, {rate:.3f} G lane-operations a second, {seconds / none:.2f} of none")
    bound = bind(artifact, inputs, executor=Simulator(threads=1, sanitize="all"))
    benchmark.pedantic(bound, rounds=7, warmup_rounds=1)


@pytest.mark.benchmark(group="engines")
def test_prepare(benchmark, composition, plan, aim):
    """A kernel whose functions this process has already."""
    aim(0.010)
    engine = FastEngine()
    engine.prepare(composition.emit(plan.launches[0].spec), ALL)

    def fresh():
        return (composition.emit(plan.launches[0].spec), ALL), {}

    benchmark.pedantic(engine.prepare, setup=fresh, rounds=5)
