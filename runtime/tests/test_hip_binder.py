"""The one binder through the HIP executor: for tensors in device memory it says what it says for those of this host."""

from __future__ import annotations

import attrs
import ml_dtypes
import numpy as np
import pytest
from hip_toy import OnDevice
from paged_sum import PAGES, SEQUENCES, WIDTH, PagedSumRequest, aligned, everything, expected, plan_of, tensors

from kinfolk.check.sparse import SparseArray
from kinfolk.errors import BindError
from kinfolk.expr import field
from kinfolk.plan import Axis
from kinfolk_runtime.binder import StatusError, bind, call

NAMES = tuple(everything())


def replaced(name, change):
    def of(given):
        return given | {name: change(given[name])}

    return of


def with_extent(name, axis, change):
    def grown(array):
        shape = list(array.shape)
        shape[axis] += change
        return aligned(shape, array.dtype)

    return replaced(name, grown)


def with_steps(name, axis):
    def spread(array):
        shape = [extent * (1 + (i == axis)) for i, extent in enumerate(array.shape)]
        return aligned(shape, array.dtype)[tuple(slice(None, None, 1 + (i == axis)) for i in range(array.ndim))]

    return replaced(name, spread)


def moved(by):
    def shifted(array):
        return aligned(array.shape, array.dtype, 64, by)

    return shifted


def read_only(array):
    array.flags.writeable = False
    return array


def without(name):
    return lambda given: {key: one for key, one in given.items() if key != name}


def of_type(array):
    other = {4: np.float64, 2: np.uint16}[array.itemsize]
    return np.zeros(array.shape, other)


def one_memory(first, second, rows):
    both = aligned((2 * SEQUENCES, WIDTH), np.float32)
    return lambda given: given | {first: both[:SEQUENCES], second: both[rows : rows + SEQUENCES]}


AXES = [(name, axis) for name, array in everything().items() for axis in range(array.ndim)]
CASES = {
    **{
        f"extent {name} {axis} {change:+}": with_extent(name, axis, change) for name, axis in AXES for change in (-1, 1)
    },
    **{f"stride {name} {axis}": with_steps(name, axis) for name, axis in AXES},
    **{f"type {name}": replaced(name, of_type) for name in NAMES},
    **{f"rank {name}": replaced(name, lambda array: array[None]) for name in NAMES},
    **{f"at {by} {name}": replaced(name, moved(by)) for name in NAMES for by in (2, 4, 8, 16)},
    **{f"read only {name}": replaced(name, read_only) for name in NAMES},
    **{f"without {name}": without(name) for name in NAMES},
    "another name": lambda given: given | {"tabel": given["table"]},
    "side by side": one_memory("sums", "out", SEQUENCES),
    "overlapping": one_memory("sums", "out", SEQUENCES - 1),
    "the same": one_memory("out", "sums", 0),
    "an output over an input": lambda given: given | {"status": given["offsets"][:1]},
    "inputs over each other": lambda given: given | {"offsets": given["table"].reshape(-1)[:4]},
    "an element twice": replaced("out", lambda out: np.lib.stride_tricks.as_strided(out, out.shape, (0, 4))),
}


def said(run, given):
    try:
        run(given)
    except BindError as error:
        return str(error)
    return None


@pytest.fixture
def device(reference64):
    return OnDevice(reference64)


def test_for_every_damage_both_executors_say_the_same(device):
    found = {}
    for name, damage in CASES.items():
        given = damage(everything())
        here = said(lambda given: bind(plan_of(), given, composition=device.composed), given)
        there = said(lambda given: device.bind(device.adopted(given)), given)
        assert here == there, name
        found[name] = here
    taken = {name for name, text in found.items() if text is None}
    assert len(CASES) == 88
    assert {"side by side", "inputs over each other", "without sums", "without out", "read only cache"} <= taken
    kinds = ("extent of axis", "stride of axis", "dtype is", "axes", "its address", "read-only", "is missing")
    kinds += ("no tensor is named", "shares memory with")
    for kind in kinds:
        assert any(kind in text for text in found.values() if text), kind
    assert len(taken) == 27
    assert device.fake.leaks() == {}
    assert device.fake.launched == []


def test_elements_of_an_output_do_not_overlap(device):
    """Where strides are the caller's choice only this check sees it."""
    loose = attrs.evolve(plan_of().binding("out"), shape=(Axis(field("sequences"), stride=None), Axis(WIDTH)))
    plan = attrs.evolve(plan_of(), bindings=tuple(loose if one.name == "out" else one for one in plan_of().bindings))
    flat = aligned((SEQUENCES * WIDTH,), np.float32)
    for step, text in ((WIDTH, None), (WIDTH - 1, "out is written, its elements overlap"), (0, "overlap each other")):
        out = np.lib.stride_tricks.as_strided(flat, (SEQUENCES, WIDTH), (step * 4, 4))
        found = said(lambda given: device.bind(device.adopted(given), plan), everything() | {"out": out})
        assert found is None if text is None else text in found


PLANS = {
    "grid x": lambda: plan_of(grid=(17, 1, 1)),
    "grid y": lambda: plan_of(grid=(SEQUENCES, 5, 1)),
    "at least 0": lambda: plan_of(grid=(-1, 1, 1)),
    "workgroup memory": lambda: plan_of(shared=1025),
    "is built for 64 threads": lambda: plan_of(block=128),
    "the plan is for toy32": lambda: plan_of(arch="toy32"),
}


@pytest.mark.parametrize("told", PLANS)
def test_launches_are_checked_in_the_same_words(device, told):
    plan = PLANS[told]()
    here = said(lambda given: bind(plan, given, composition=device.composed), tensors())
    assert here == said(lambda given: device.bind(device.adopted(given), plan), tensors())
    assert told in (here or "")


def test_an_argument_past_its_type(device):
    plan = plan_of(request=PagedSumRequest(sequences=SEQUENCES, longest=9, pages=1, scale=0.5))
    one = tensors()["cache"][:1]
    far = np.lib.stride_tricks.as_strided(one, one.shape, (2 << 31, *one.strides[1:]))
    given = tensors() | {"table": np.zeros((SEQUENCES, 3), np.int32), "cache": far}
    with pytest.raises(BindError, match=r"page_stride.* = 2147483648, outside i32"):
        device.bind(device.adopted(given), plan)


CONTENTS = {
    "offsets begin with 0": {"offsets": np.array([1, 9, 9, 14], np.int32)},
    r"offsets\[2\] - offsets\[1\] is 8 - 9": {"offsets": np.array([0, 9, 8, 14], np.int32)},
    r"table\[0, 1\] is page 7": {"table": np.array([[3, 7, 6], [-1, -1, -1], [0, 5, -1]], np.int32)},
}


@pytest.mark.parametrize("told", CONTENTS)
def test_contents_are_looked_into_on_the_device(device, told):
    given = device.adopted(tensors() | CONTENTS[told])
    with pytest.raises(BindError, match=told):
        call(plan_of(), given, device.executor, composition=device.composed)
    assert device.fake.launched == []
    bound = bind(plan_of(), given, device.executor, composition=device.composed)
    bound()  # a bound call does not look
    with pytest.raises(BindError, match=told):
        bind(plan_of(), given, device.executor, True, composition=device.composed)


def test_the_status_word_is_read_from_the_device(device):
    given = tensors()
    given["table"][2, 1] = PAGES
    bound = device.bind(device.adopted(given))
    bound()
    assert bound.status() == {"status": 1}
    bound()
    assert bound.status() == {"status": 1}  # each call begins with 0
    loose = attrs.evolve(plan_of(), contents=())
    with pytest.raises(StatusError, match="status word status is 1"):
        call(loose, device.adopted(given), device.executor, composition=device.composed)


class Foreign:
    """An array of another library, known by an interface alone."""

    def __init__(self, array, name, **changes):
        interface = {**array.__cuda_array_interface__, **changes}
        setattr(self, name, interface)
        self.kept = array


@pytest.mark.parametrize("name", ["__cuda_array_interface__", "__hip_array_interface__"])
def test_arrays_by_interface(device, name):
    given = everything()
    lent = {key: Foreign(one, name) for key, one in device.adopted(given).items()}
    outputs = device.bind(lent)()
    device.executor.synchronize()
    assert outputs["out"] is lent["out"]
    assert (given["out"] == expected(given)).all()
    told = {
        "a masked array": {"mask": object()},
        "dtype is float32": {"typestr": "<f4"},
        "cannot be read": {"data": None},
        "byte order": {"typestr": ">i4"},
        "read-only": {"data": (lent["status"].kept.address, True)},
    }
    for text, changes in told.items():
        wrong = lent | {"status": Foreign(lent["status"].kept, name, **changes)}
        with pytest.raises(BindError, match="status") as caught:
            device.bind(wrong)
        assert text in str(caught.value)


def test_a_producer_s_stream_is_waited_for(device):
    stream = device.fake.create_stream()
    given = everything()
    late = given["cache"].copy()
    given["cache"][...] = 0
    lent = device.adopted(given)

    def write():
        given["cache"][...] = late

    device.fake.streams.enqueue("", stream, write)
    cache = Foreign(lent["cache"], "__cuda_array_interface__", stream=stream)
    device.bind(lent | {"cache": cache})()
    device.executor.synchronize()
    assert (given["out"] == expected(given)).all()
    assert given["out"].any()
    assert device.fake.leaks() == {"streams": 1}


def test_tensors_that_lie_elsewhere(device):
    given = device.adopted(tensors())
    other = device.fake.adopt(tensors()["table"], device=1)
    with pytest.raises(BindError, match=r"table lies on device 1, the executor launches on device 0. Copy it there"):
        device.bind(given | {"table": other})

    class Cuda:
        def __dlpack_device__(self):
            return 2, 0

        def __dlpack__(self, **_):
            raise AssertionError("nobody asks a CUDA array for its memory")

    with pytest.raises(BindError, match="table lies in a CUDA device, the memory of ROCm device 0 is needed"):
        device.bind(given | {"table": Cuda()})
    sparse = SparseArray(shape=(PAGES, 4, WIDTH), dtype=np.dtype(ml_dtypes.bfloat16), held={})
    with pytest.raises(BindError, match="cache exists in part, executor hip runs on whole memory"):
        device.bind(given | {"cache": sparse})
