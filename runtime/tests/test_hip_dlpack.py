"""DLPack without a library: capsules of numpy are read as numpy says, and numpy reads what is made here."""

from __future__ import annotations

import gc
import weakref

import attrs
import ml_dtypes
import numpy as np
import pytest
from hip_toy import OnDevice
from paged_sum import everything, expected

from kinfolk.errors import BindError
from kinfolk_runtime.hip.dlpack import CPU, ROCM, DLPackError, capsule_of, described
from kinfolk_runtime.tensors import host_array

ARRAYS = {
    "whole": np.arange(24, dtype=np.int32).reshape(2, 3, 4),
    "strided": np.arange(60, dtype=np.float32).reshape(5, 12)[1::2, 3:9:2],
    "transposed": np.arange(6, dtype=np.float64).reshape(2, 3).T,
    "no axes": np.array(7, np.uint8),
    "empty": np.zeros((3, 0), np.int64),
    "half": np.arange(4, dtype=np.float16),
    "repeated": np.broadcast_to(np.arange(3, dtype=np.int16), (2, 3)),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("version", [None, (1, 0)])
def test_what_numpy_gives_is_read_as_it_is(name, version):
    array = ARRAYS[name]
    if not array.flags.writeable and version is None:
        with pytest.raises(BufferError):  # the old form cannot say so
            array.__dlpack__()
        return
    found = described(array.__dlpack__(max_version=version) if version else array.__dlpack__())
    assert (found.shape, found.dtype, found.kind, found.device) == (array.shape, array.dtype, CPU, 0)
    assert found.readonly == (not array.flags.writeable)
    if array.size:
        assert (found.address, found.strides) == (array.ctypes.data, array.strides)


class Exporter:
    def __init__(self, array, kind=CPU):
        self.array, self.kind = array, kind

    def __dlpack_device__(self):
        return self.kind, 0

    def __dlpack__(self, **_):
        array = self.array
        return capsule_of(
            array.ctypes.data, array.shape, array.strides, array.dtype, kind=self.kind, device=0, owner=array
        )


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2fnuz])
def test_arrays_that_numpy_does_not_take_are_shared_with_this_host(dtype):
    """bf16 and fp8 of another library: the same addresses and bits, kept alive by the array that is made of them."""
    array = np.arange(24).reshape(4, 6).astype(dtype)[::2]
    exporter = Exporter(array)
    with pytest.raises((RuntimeError, BufferError, ValueError, TypeError)):
        np.from_dlpack(exporter)
    found = host_array("x", exporter)
    assert (found.dtype, found.shape, found.strides) == (array.dtype, array.shape, array.strides)
    assert found.ctypes.data == array.ctypes.data and not found.flags.writeable  # the old form does not say that it may
    assert found.tobytes() == array.tobytes()
    alive = weakref.ref(exporter)
    del exporter
    gc.collect()
    assert alive() is not None
    del found
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("name", [name for name in ARRAYS if name != "repeated"])
def test_numpy_reads_what_is_made_here(name):
    array = ARRAYS[name]
    found = np.from_dlpack(Exporter(array))
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)
    if array.size:
        assert (found.ctypes.data, found.strides) == (array.ctypes.data, array.strides)


def test_memory_lives_as_long_as_whoever_took_it():
    class Kept(np.ndarray):
        pass

    array = np.arange(3.0).view(Kept)
    alive = weakref.ref(array)
    taken = np.from_dlpack(Exporter(array))
    del array
    gc.collect()
    assert alive() is not None
    assert taken[2] == 2
    del taken
    gc.collect()
    assert alive() is None
    array = np.arange(3.0).view(Kept)
    alive = weakref.ref(array)
    capsule = Exporter(array).__dlpack__()
    del array, capsule  # nobody took it
    gc.collect()
    assert alive() is None


def test_a_capsule_may_end_while_an_error_is_raised(reference64):
    """numpy does not take what lies on a device, says so, and holds on to nothing."""
    device = OnDevice(reference64)
    held = device.executor.array(np.zeros(3, np.float32))
    for _ in range(3):
        with pytest.raises(Exception, match="Unsupported device in DLTensor"):
            np.from_dlpack(held)
    del held
    gc.collect()
    assert device.fake.leaks() == {}


@pytest.mark.parametrize(
    "dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, np.int8]
)
def test_types_that_numpy_has_no_names_for(dtype):
    array = np.zeros(4, dtype)
    assert described(Exporter(array).__dlpack__()).dtype == array.dtype


def test_what_is_no_capsule():
    with pytest.raises(DLPackError, match="gave a int that is no unused DLPack capsule"):
        described(3)
    used = ARRAYS["whole"].__dlpack__()

    class Gives:
        def __dlpack__(self, **_):
            return used

        def __dlpack_device__(self):
            return CPU, 0

    np.from_dlpack(Gives())
    with pytest.raises(DLPackError, match="is no unused DLPack capsule"):
        described(used)
    with pytest.raises(DLPackError, match=r"DLPack's type \(5, 64 bits"):
        described(np.zeros(2, np.complex64).__dlpack__())


class OnRocm(Exporter):
    """A tensor of another library on the device, which asks for the stream it will be used on."""

    def __init__(self, array):
        super().__init__(array, ROCM)
        self.streams = []

    def __dlpack__(self, *, stream=None, **_):
        self.streams.append(stream)
        return super().__dlpack__()


def test_tensors_of_other_libraries_are_bound_by_dlpack(reference64):
    device = OnDevice(reference64)
    stream = device.fake.create_stream()
    given = everything()
    device.adopted(given)
    lent = {name: OnRocm(one) for name, one in given.items()}
    bound = device.bind(lent, executor=device.executor.on(stream))
    outputs = bound()
    device.fake.synchronize(stream)
    assert outputs["out"] is lent["out"]
    assert (given["out"] == expected(given)).all()
    assert {asked for one in lent.values() for asked in one.streams} == {stream}


def test_outputs_are_given_on_by_dlpack(reference64):
    """A consumer that names its stream finds the values there, though nobody waited for ours."""
    device = OnDevice(reference64)
    given = everything()
    del given["out"]
    outputs = device.bind(device.adopted(given))()
    theirs = device.fake.create_stream()
    assert outputs["out"].__dlpack_device__() == (ROCM, 0)
    found = described(outputs["out"].__dlpack__(stream=theirs))
    assert (found.address, found.shape, found.kind) == (outputs["out"].address, (3, 64), ROCM)
    seen = np.zeros((3, 64), np.float32)
    device.fake.download(seen.reshape(-1).view(np.uint8), found.address, theirs)
    device.fake.synchronize(theirs)
    assert (seen == expected(given)).all()


def test_a_consumer_that_names_no_stream_is_on_the_null_stream(reference64):
    device = OnDevice(reference64)
    stream = device.fake.create_stream()
    held = device.executor.on(stream).array(np.zeros(3, np.float32))
    waits = []
    for asked in (-1, stream, None, 0):
        before = device.fake.count("hipStreamWaitEvent")
        held.__dlpack__(stream=asked)
        waits.append(device.fake.count("hipStreamWaitEvent") - before)
    assert waits == [0, 0, 1, 1]
    assert described(held.__dlpack__(max_version=(1, 0), dl_device=(ROCM, 0), copy=False)).shape == (3,)
    with pytest.raises(BufferError, match="read-only, which a capsule of this form cannot say"):
        attrs.evolve(held, readonly=True).__dlpack__()
    for asked in ({"copy": True}, {"dl_device": (CPU, 0)}):
        with pytest.raises(BufferError, match="nothing is copied"):
            held.__dlpack__(**asked)


def test_a_producer_that_fails_is_told(reference64):
    device = OnDevice(reference64)

    class Broken(OnRocm):
        def __dlpack__(self, **_):
            raise RuntimeError("requires grad")

    class Unsure(OnRocm):
        def __dlpack_device__(self):
            raise RuntimeError("no idea")

    given = everything()
    for kind, told in ((Broken, "its DLPack cannot be read: RuntimeError: requires grad"), (Unsure, "no idea")):
        with pytest.raises(BindError, match=f"table: .*{told}"):
            device.bind(device.adopted(given) | {"table": kind(given["table"])})
