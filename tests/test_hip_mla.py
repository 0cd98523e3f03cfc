"""MLA decode through the HIP executor on a fake device: linked code objects, argument bytes, right outputs."""

from __future__ import annotations

import gc
import json
import re
import struct
from pathlib import Path

import attrs
import numpy as np
import pytest

import kinfolk
import kinfolk_runtime
from kinfolk.dispatch import selections
from kinfolk.plugins.composition import compose
from kinfolk_mla.request import MlaRequest
from kinfolk_runtime.artifact import argument_layout
from kinfolk_runtime.bench import Shapes, bench
from kinfolk_runtime.bench.run import Choices
from kinfolk_runtime.bundles import load_bundle, write_bundle
from kinfolk_runtime.hip import HipExecutor
from kinfolk_runtime.hip.fake import FakeDriver
from kinfolk_runtime.timing import NotTimedError, time_request
from kinfolk_runtime.verify import verify

pytestmark = [pytest.mark.compile, pytest.mark.needs("mla", "gfx942", "gfx950")]

FIELDS = {
    "num_heads": 16,
    "num_seqs": 2,
    "total_q": 2,
    "max_seqlen_q": 1,
    "max_seqlen_k": 40,
    "absorbed_query": True,
    "page_size": 16,
    "num_pages": 9,
    "dtype": "bf16",
    "kv_dtype": "bf16",
    "causal": True,
    "scale": 0.0625,
}
SMALL = MlaRequest(**FIELDS)
FEATURES = ":sramecc+:xnack-"


def taught(arch, kind=FakeDriver, request=SMALL, **device):
    composition = compose("mla", arch)
    artifact = kinfolk_runtime.compile(kinfolk.dispatch(request, arch))
    fake = kind(composition.arch, target=f"{arch}{FEATURES}", **device)
    fake.teach(artifact)
    return fake, artifact, composition


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_every_scenario_passes_on_the_fake_device(arch):
    fake, _, _ = taught(arch)
    report = verify(SMALL, arch, executor=HipExecutor(driver=fake))
    assert (report.status, report.executor, report.refusals) == ("pass", "hip", ())
    assert len(report.scenarios) > 5
    assert len(fake.launched) >= len(report.scenarios)
    assert fake.leaks() == {}


class Swapped(FakeDriver):
    """A device that takes the offsets of the caches' two parts for each other."""

    def launch(self, function, grid, block, stream, arguments):
        first, second = function.usage.arguments[1:3]
        words = bytearray(arguments)
        words[first.offset : first.offset + 8] = arguments[second.offset : second.offset + 8]
        words[second.offset : second.offset + 8] = arguments[first.offset : first.offset + 8]
        super().launch(function, grid, block, stream, bytes(words))


def test_an_argument_at_the_wrong_place_is_seen():
    fake, artifact, _ = taught("gfx942", Swapped)
    assert [one.name for one in artifact.plan.launches[0].spec.parameters()[1:3]] == ["c_kv", "k_rope"]
    report = verify(SMALL, "gfx942", executor=HipExecutor(driver=fake), scenarios=["ragged"])
    assert report.status != "pass"


@pytest.fixture(scope="module")
def given():
    return next(each for each in compose("mla", "gfx942").scenarios(SMALL) if each.name == "ragged").inputs()


def test_device_arrays_give_the_bits_that_the_simulator_gives(given):
    fake, artifact, _ = taught("gfx942")
    wanted = kinfolk_runtime.call(artifact, given)
    executor = HipExecutor(driver=fake)
    lent = {name: executor.array(value) for name, value in given.items()}
    found = kinfolk_runtime.call(artifact, lent, executor)
    for name, array in wanted.items():
        assert found[name].numpy().tobytes() == array.tobytes()


def test_a_bundle_runs_without_compiling(given, tmp_path, monkeypatch):
    """And its argument bytes are those that the bundle packs for C++ hosts."""
    composition = compose("mla", "gfx942")
    write_bundle(tmp_path / "mla", composition, "llvm22", request=SMALL)
    bundle = load_bundle(tmp_path / "mla")
    fake = FakeDriver(composition.arch, target=f"gfx942{FEATURES}")
    request = bundle.request(**FIELDS)
    plan = bundle.dispatch(request)
    fake.teach(plan, bundle)
    executor = HipExecutor(driver=fake)
    lent = {name: executor.array(value) for name, value in given.items()}
    wanted = kinfolk_runtime.call(kinfolk.dispatch(SMALL, "gfx942"), given)

    def nobody(*_, **__):
        raise AssertionError("a bundle compiles nothing")

    from kinfolk_runtime import compilation

    monkeypatch.setattr(compilation, "compile", nobody)
    runner = kinfolk_runtime.Runner.of_bundle(bundle, executor=executor)
    found = runner(request, lent)
    for name, array in wanted.items():
        assert found[name].numpy().tobytes() == array.tobytes()
    step = runner.bind(request, lent)
    step()
    executor.synchronize()
    addresses = {name: tensor.address for name, tensor in step.bound.tensors.items()}
    launch, _ = plan.launches
    assert fake.launched[-1].arguments == bundle.argument_bytes(plan, launch, addresses, step.bound.tensors)


def test_decode_steps_that_grow_are_looked_up(given):
    fake, _, _ = taught("gfx942")
    executor = HipExecutor(driver=fake)
    runner = kinfolk_runtime.Runner("mla", "gfx942", executor=executor)
    lent = {name: executor.array(value) for name, value in given.items()}
    runner.prepare([SMALL])
    loaded, misses, hits = fake.count("hipModuleLoadData"), selections.misses, selections.hits
    for length in range(40, 60):
        wide = executor.array(np.zeros((2, -(-length // 16)), np.int32))
        wide = wide if length > 48 else lent["block_table"]
        request = attrs.evolve(SMALL, max_seqlen_k=length)
        runner(request, lent | {"block_table": wide}, check=False)
    assert selections.misses == misses
    assert selections.hits == hits + 20
    assert fake.count("hipModuleLoadData") == loaded
    executor.synchronize()
    parameters = selections.plan(compose("mla", "gfx942"), SMALL, "llvm22").launches[0].spec.parameters()
    places = dict(zip([each.name for each in parameters], argument_layout(parameters), strict=True))
    at = places["max_seqlen_k"].offset
    counts = [struct.unpack_from("<i", one.arguments, at)[0] for one in fake.launched]
    assert counts == list(range(40, 60))


def test_the_page_on_running_does_what_it_says():
    text = (Path(__file__).resolve().parent.parent / "docs" / "running.md").read_text()
    first = re.search(r"runs this block as it stands here:\n\n```python\n(.*?)```", text, re.DOTALL)
    exec(compile(first[1], "running.md", "exec"), {})


def timed(fake, **options):
    options = {"warm_up": 2, "launches": 5, "flush_bytes": 1 << 20} | options
    return time_request(SMALL, "gfx942", executor=HipExecutor(driver=fake), scenario="ragged", **options)


def test_times_are_those_of_the_device_s_events():
    clock = [9.0, 8.0, 8.0, 5.0, 1.0, 3.0, 2.0, 4.0]  # the run that is compared, two to warm up, five that count
    fake, artifact, _ = taught("gfx942", launch_ms=clock)
    found = timed(fake)
    assert found.times_ms == (5.0, 1.0, 3.0, 2.0, 4.0)
    assert (found.median_ms, found.quantile_ms(0.0), found.quantile_ms(0.25), found.quantile_ms(1.0)) == (3, 1, 2, 5)
    assert (found.executor, found.target, found.scenario) == ("hip", f"gfx942{FEATURES}", "ragged")
    assert found.kernels == (artifact.plan.launches[0].spec.symbol(),)
    assert 0 < found.largest_margin <= 1
    assert "median 3000.00 µs (5 % 1200.00, 95 % 4800.00), 5 launches on hip" in str(found)
    assert found.to_dict()["median_ms"] == 3.0
    names = [call.name for call in fake.calls if call.name in ("hipMemsetAsync", "hipEventRecord", "hipGraphLaunch")]
    assert names[-20:] == ["hipMemsetAsync", "hipEventRecord", "hipGraphLaunch", "hipEventRecord"] * 5
    flushes = [call.passed["size"] for call in fake.calls if call.name == "hipMemsetAsync"]
    assert flushes[-5:] == [1 << 20] * 5
    assert fake.leaks() == {}


class Wrong(FakeDriver):
    """A device whose kernel leaves the first element of an output as it was."""

    def place(self, function, name):
        """Return where a kernel that was taught finds a parameter in its argument block."""
        [kernel] = [kernel for (_, symbol), kernel in self._kernels.items() if symbol == function.symbol]
        names = [parameter.name for parameter in kernel.parameters]
        return function.usage.arguments[names.index(name)]

    def _run(self, function, grid, block, arguments):
        place = self.place(function, "lse")
        address = struct.unpack_from("<Q", arguments, place.offset)[0]
        kept = self.memory.at("", address)[:2].copy()
        super()._run(function, grid, block, arguments)
        self.memory.at("", address)[:2] = kept


def test_nothing_is_timed_where_an_output_is_wrong():
    fake, _, _ = taught("gfx942", Wrong)
    with pytest.raises(NotTimedError, match=r"scenario ragged is wrong on hip, so nothing is timed: ") as caught:
        timed(fake)
    assert caught.value.report.status == "fail"
    assert fake.count("hipEventRecord") == fake.count("hipGraphLaunch") == 0


@pytest.mark.parametrize("kind", [FakeDriver, Wrong])
def test_bench_times_what_is_right_on_the_device(kind):
    fake, _, composition = taught("gfx942", kind)
    shapes = {
        "schema": "kinfolk.shapes/1",
        "family": "mla",
        "about": "one",
        "source": "this test",
        "request": {},
        "shapes": [{"name": "small", "request": FIELDS}],
    }
    choices = Choices(mode="time", executor=HipExecutor(driver=fake), repeats=3)
    [row] = bench([composition], [Shapes.read(json.dumps(shapes), "one", "mla")], choices).rows
    if kind is Wrong:
        assert row.status == "fail"
        assert "median_us" not in row.figures
        assert "is wrong on hip, so nothing is timed" in row.findings[0]
    else:
        assert row.status == "pass"
        assert (row.figures["median_us"], row.figures["repeats"]) == (1000.0, 3)


def test_a_bundle_s_runner_takes_its_own_requests(tmp_path):
    write_bundle(str(tmp_path / "mla"), compose("mla", "gfx942"), "llvm22", request=SMALL)
    runner = kinfolk_runtime.Runner.of_bundle(load_bundle(tmp_path / "mla"))
    assert runner.plan(FIELDS).candidate == "mla.decode"
    with pytest.raises(TypeError, match=r"of kinfolk_mla\.request\. Make it by request\(\.\.\.\) of this runner"):
        runner.plan(SMALL)


def test_what_cannot_be_timed():
    with pytest.raises(NotTimedError, match="executor simulator cannot be timed, it has no array, mark"):
        time_request(SMALL, "gfx942", executor="simulator")
    fake, _, _ = taught("gfx942")
    for options, told in (({"launches": 0}, "at least 1, got 0"), ({"warm_up": True}, "Python int")):
        with pytest.raises(ValueError, match=told):
            timed(fake, **options)
    fake.fail("hipEventRecord", after=3)
    with pytest.raises(kinfolk_runtime.hip.HipError, match="hipEventRecord failed"):
        timed(fake)
    assert fake.leaks() == {}
    fake.fail("hipEventDestroy")
    with pytest.raises(kinfolk_runtime.hip.HipError, match="hipEventDestroy failed"):
        timed(fake)
    gc.collect()
    assert fake.leaks() == {"events": 1}  # the one that HIP kept
    with pytest.raises(TypeError, match=r"request takes a Request, got {'num_heads': 16"):
        time_request(FIELDS, "gfx942", executor=HipExecutor(driver=fake))
    with pytest.raises(ValueError, match="no scenario 3; there are: ragged"):
        time_request(SMALL, "gfx942", executor=HipExecutor(driver=fake), scenario=3)
