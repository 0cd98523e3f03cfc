"""The binder on tensors: each property of each has a case that is refused and a neighbour that runs."""

from __future__ import annotations

import attrs
import ml_dtypes
import numpy as np
import pytest
from paged_sum import PAGE, PAGES, SEQUENCES, WIDTH, aligned, everything, expected, plan_of, refused, tensors

from kinfolk.errors import BindError
from kinfolk.expr import field
from kinfolk.plan import Axis


def test_a_plan_runs_from_tensors_to_outputs(run):
    given = tensors()
    bound, outputs = run(given, check_contents=True)
    assert (outputs["out"] == expected(given)).all() and bound.status() == {"status": 0} and not bound.unwritten()
    assert bound.tensors["sums"].address % 16 == 0
    given["cache"][...] = 1
    assert (bound()["out"] == expected(given)).all()


def test_memory_given_is_the_memory_used(run):
    given = everything()
    given["status"][0] = 99
    _, outputs = run(given)
    assert outputs["out"] is given["out"] and (given["out"] == expected(given)).all()
    assert given["status"][0] == 0


def test_padded_caches_and_wide_tables(run):
    given = tensors()
    padded = aligned((PAGES, PAGE + 1, WIDTH), ml_dtypes.bfloat16)
    padded[:, :PAGE] = given["cache"]
    given["cache"] = padded[:, :PAGE]
    wide = np.full((SEQUENCES, 8), -7, np.int32)
    wide[:, :3] = given["table"]
    _, outputs = run(given | {"table": wide})
    assert (outputs["out"] == expected(given)).all()
    _, outputs = run(given | {"table": wide[:, :3]})
    assert (outputs["out"] == expected(given)).all()


def test_other_libraries_arrays(run):
    class Interface:
        def __init__(self, array):
            self.kept, self.__array_interface__ = array, array.__array_interface__

    class Dlpack:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    given = tensors()
    _, outputs = run(given | {"table": Interface(given["table"]), "offsets": Dlpack(given["offsets"])})
    assert (outputs["out"] == expected(given)).all()
    refused(run, given | {"table": given["table"].tolist()}, "table is a list", "__dlpack__")

    class Elsewhere(Dlpack):
        def __dlpack__(self, **options):
            raise BufferError("lies on a device")

    refused(run, given | {"table": Elsewhere(given["table"])}, "table: ", "lies on a device", "host memory")


@pytest.mark.parametrize("name", ["cache", "offsets", "table"])
def test_an_input_that_is_missing(run, name):
    given = tensors()
    del given[name]
    refused(run, given, f"input {name} is missing")


def test_a_name_the_plan_does_not_know(run):
    refused(run, tensors() | {"tabel": np.zeros(1)}, "no tensor is named tabel", "cache, offsets, table")


WRONG_DTYPE = {
    "cache": np.uint16,
    "offsets": np.int64,
    "table": np.uint32,
    "sums": np.float64,
    "out": np.float16,
    "status": np.int64,
}


@pytest.mark.parametrize("name", WRONG_DTYPE)
def test_dtype_of(run, name):
    given = everything()
    given[name] = np.zeros(given[name].shape, WRONG_DTYPE[name])
    refused(run, given, f"{name}: dtype is {np.dtype(WRONG_DTYPE[name])}", "is needed")


def test_bits_are_taken_for_another_type_in_the_same_byte_order_alone(run):
    given = tensors()
    refused(run, given | {"table": given["table"].view(np.uint32)}, r"pass `.view(numpy.int32)`")
    with pytest.raises(BindError, match=r"dtype is >i4 .* Convert it: `\.astype\(numpy\.int32\)`\.$"):
        run(given | {"table": given["table"].astype(">i4")})


@pytest.mark.parametrize("name", WRONG_DTYPE)
def test_rank_of(run, name):
    given = everything()
    given[name] = given[name][None]
    refused(run, given, f"{name} has shape (1, ", "axes")


def _axes():
    return [(name, axis) for name, array in everything().items() for axis in range(array.ndim)]


@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize("name, axis", _axes())
def test_extent_of(run, name, axis, change):
    given = everything()
    shape = list(given[name].shape)
    shape[axis] += change
    given[name] = aligned(shape, given[name].dtype)
    if (name, axis, change) == ("table", 1, 1):
        return  # a wider table is taken, tested above
    refused(run, given, f"{name}: the extent of axis {axis} is {shape[axis]}", "is needed")


FIXED_STRIDES = [
    ("cache", 1),
    ("cache", 2),
    ("offsets", 0),
    ("table", 1),
    ("sums", 0),
    ("sums", 1),
    ("out", 0),
    ("out", 1),
]


@pytest.mark.parametrize("name, axis", FIXED_STRIDES)
def test_stride_of(run, name, axis):
    given = everything()
    shape = list(given[name].shape)
    shape[axis] *= 2
    given[name] = aligned(shape, given[name].dtype)[
        tuple(slice(None, None, 2 if i == axis else 1) for i in range(len(shape)))
    ]
    refused(run, given, f"{name}: the stride of axis", "ascontiguousarray")


def test_strides_that_no_kernel_takes(run):
    given = tensors()
    refused(run, given | {"table": given["table"][::-1]}, "table: the stride of axis 0 is -12 bytes")
    pairs = np.zeros((SEQUENCES, 3), np.dtype([("id", np.int32), ("odd", np.int16)]))
    refused(
        run, given | {"table": pairs["id"]}, "table: the stride of axis 0 is 18 bytes", "multiple of the element's 4"
    )


@pytest.mark.parametrize("name, alignment", [("cache", 4), ("sums", 16), ("out", 8)])
def test_alignment_of(run, name, alignment):
    given = everything()
    array = given[name]
    for shift, good in ((alignment, True), (alignment // 2, False)):
        moved = aligned(array.shape, array.dtype, 2 * alignment, shift)
        moved[...] = array
        if good:
            run(given | {name: moved})
        else:
            refused(run, given | {name: moved}, f"{name}: its address", f"multiple of {alignment} bytes")


@pytest.mark.parametrize("name", ["sums", "out", "status"])
def test_what_is_written_must_be_writeable(run, name):
    given = everything()
    given[name].flags.writeable = False
    refused(run, given, f"{name} is written, the array given is read-only")


@pytest.mark.parametrize("name", ["cache", "offsets", "table"])
def test_what_is_read_may_be_read_only(run, name):
    given = everything()
    given[name].flags.writeable = False
    run(given)


def test_nothing_written_is_reached_twice(run):
    given = everything()
    both = aligned((2 * SEQUENCES, WIDTH), np.float32)
    run(given | {"sums": both[:SEQUENCES], "out": both[SEQUENCES:]})
    refused(run, given | {"sums": both[:SEQUENCES], "out": both[SEQUENCES - 1 : -1]}, "shares memory with out")
    refused(run, given | {"status": given["offsets"][:1]}, "status is written and shares memory with offsets")
    cache = given["cache"].view(np.float32).reshape(-1)[: SEQUENCES * WIDTH].reshape(SEQUENCES, WIDTH)
    refused(run, given | {"out": cache}, "out is written and shares memory with cache")


def test_inputs_may_share_memory(run):
    whole = np.array([0, 9, 9, 14, 0, 0, 0, 0, 0], np.int32)
    given = tensors() | {"offsets": whole[:4], "table": np.lib.stride_tricks.as_strided(whole[4:], (3, 3), (0, 4))}
    _, outputs = run(given)
    assert (outputs["out"] == expected(given)).all()


def test_elements_of_an_output_do_not_overlap(run):
    """Where strides are the caller's choice only this check sees it."""
    plan = plan_of()
    loose = attrs.evolve(plan.binding("out"), shape=(Axis(field("sequences"), stride=None), Axis(WIDTH)))
    plan = attrs.evolve(plan, bindings=tuple(loose if one.name == "out" else one for one in plan.bindings))
    flat = aligned((SEQUENCES * WIDTH,), np.float32)
    apart = np.lib.stride_tricks.as_strided(flat, (SEQUENCES, WIDTH), (WIDTH * 4, 4))
    run(everything() | {"out": apart}, plan)
    for step in (WIDTH - 1, 0):
        near = np.lib.stride_tricks.as_strided(flat, (SEQUENCES, WIDTH), (step * 4, 4))
        refused(run, everything() | {"out": near}, "out is written, its elements overlap", plan=plan)
