"""The binder on tensors that exist in part: they run as the whole would, and are refused where all of it is needed."""

import attrs
import ml_dtypes
import numpy as np
import pytest
from paged_sum import PAGE, PAGES, SEQUENCES, WIDTH, everything, expected, tensors

from kinfolk.check import SparseArray
from kinfolk.errors import BindError, SimulationError
from kinfolk_runtime.simulator import Simulator

LENGTHS = (9, 0, 5)


def sparse(array, held):
    return SparseArray(shape=array.shape, dtype=array.dtype, held=held)


def parts():
    """Return the tensors with the cache's rows in use, each page as far as a sequence needs it."""
    whole = tensors()
    held = {}
    for row, length in enumerate(LENGTHS):
        for slot, begin in enumerate(range(0, length, PAGE)):
            page = int(whole["table"][row, slot])
            held[page] = whole["cache"][page, : length - begin]
    return whole, whole | {"cache": sparse(whole["cache"], held)}


def test_what_is_used_is_enough(run):
    whole, given = parts()
    assert (run(given)[1]["out"] == expected(whole)).all()


@pytest.mark.parametrize("page, rows", [(1, 3), (6, 0)])
def test_a_read_of_what_does_not_exist_is_a_fault(run, page, rows):
    _, given = parts()
    held = dict(given["cache"].held)
    given["cache"] = sparse(given["cache"], held | {page: held[page][:rows]})
    with pytest.raises(
        SimulationError, match=r"touches bytes outside the populated ranges of cache.*\[initialisation\]"
    ):
        run(given)


@pytest.mark.parametrize(
    "changed, told",
    [
        ({"shape": (PAGES, PAGE + 1, WIDTH)}, "cache: the extent of axis 1 is 5, 4"),
        ({"shape": (PAGES, PAGE * WIDTH)}, "cache has shape"),
        ({"dtype": np.dtype(np.float32)}, "cache: dtype is float32"),
    ],
)
def test_the_geometry_is_checked_as_of_any_tensor(run, changed, told):
    _, given = parts()
    given["cache"] = attrs.evolve(given["cache"], held={}, **changed)
    with pytest.raises(BindError, match=told):
        run(given)


def test_what_is_written_is_whole(run):
    given = everything()
    given["out"] = sparse(given["out"], {0: given["out"][0]})
    with pytest.raises(BindError, match=r"out exists in part, all of it is needed here\. Pass the whole array"):
        run(given)


def test_index_tensors_that_are_looked_into_are_whole(run):
    given = tensors()
    given["table"] = sparse(given["table"], {0: given["table"][0], 2: given["table"][2, :2]})
    run(given)
    with pytest.raises(BindError, match="table exists in part"):
        run(given, check_contents=True)


def test_outputs_overlap_no_part(run):
    shared = np.zeros(2 * SEQUENCES * WIDTH, np.float32)
    begin = -shared.ctypes.data % 16 // 4
    out = shared[begin : begin + SEQUENCES * WIDTH].reshape(SEQUENCES, WIDTH)
    _, given = parts()
    page = out.view(ml_dtypes.bfloat16).reshape(-1)[: PAGE * WIDTH].reshape(PAGE, WIDTH)
    given["cache"] = sparse(given["cache"], {3: page})
    with pytest.raises(BindError, match="out is written and shares memory with cache"):
        run(given | {"out": out})


def test_an_executor_of_whole_memory_is_refused(run):
    class Device(Simulator):
        name = "device"
        takes_sparse = False

    whole, given = parts()
    run(whole, executor=Device())
    with pytest.raises(BindError, match=r"cache exists in part, executor device runs on whole memory\. Pass the whole"):
        run(given, executor=Device())
