"""The binder on what is no tensor and no executor, and on plans that were changed."""

from __future__ import annotations

import numpy as np
import pytest
from paged_sum import Composed, expected, plan_of, tensors

from kinfolk.errors import BindError
from kinfolk.plugins.faults import HookFault
from kinfolk_runtime.binder import bind


def strange(**members):
    return type("Strange", (), members)()


def interface(array, **changes):
    return {**array.__array_interface__, **changes}


def raising(error):
    def raises(*_, **__):
        raise error

    return raises


TABLE = tensors()["table"]
STRANGE = [
    ("no interface", strange(__array_interface__=3), "array interface cannot be read"),
    ("null", strange(__array_interface__=interface(TABLE, data=(0, False))), "array interface cannot be read"),
    ("negative", strange(__array_interface__=interface(TABLE, shape=(-3, 3))), "array interface cannot be read"),
    ("raises", strange(__array_interface__=property(raising(RuntimeError("boom")))), "RuntimeError: boom"),
    ("dlpack", strange(__dlpack__=raising(ZeroDivisionError("x")), __dlpack_device__=lambda self: (1, 0)), "DLPack"),
    (
        "on a device",
        strange(__dlpack__=raising(ZeroDivisionError("x")), __dlpack_device__=lambda self: (10, 0)),
        "lies in the memory of a ROCm device, this executor runs in this host's",
    ),
    ("masked", np.ma.masked_array(TABLE, mask=TABLE < 0), "masked array"),
    ("list", TABLE.tolist(), "is a list"),
    ("nothing", None, "is a NoneType"),
]


@pytest.mark.parametrize("value, told", [case[1:] for case in STRANGE], ids=[case[0] for case in STRANGE])
def test_what_is_no_array_is_refused_with_a_sentence(toy64, value, told):
    with pytest.raises(BindError, match=told) as caught:
        bind(plan_of(), tensors() | {"table": value}, composition=Composed(toy64))
    assert "table" in str(caught.value)


class Careless(np.ndarray):
    """A subclass whose methods are no array's."""

    def __getitem__(self, index):
        raise RuntimeError("not so")

    def astype(self, *_, **__):
        return np.zeros(3, np.int64)


@pytest.mark.parametrize("kind", [Careless, np.matrix])
def test_a_subclass_counts_as_the_array_it_holds(toy64, kind):
    given = tensors()
    shown = given | {"table": given["table"].view(kind)}
    found = bind(plan_of(), shown, composition=Composed(toy64), check_contents=True)()
    assert np.array_equal(found["out"], expected(given))


@pytest.mark.parametrize(
    "given, told",
    [
        (None, "in a mapping, got a NoneType"),
        ([1, 2], "in a mapping, got a list"),
        ({3: TABLE}, "no tensor is named 3"),
        ({3: TABLE, "zz": TABLE}, "no tensor is named 3, zz"),
    ],
)
def test_tensors_are_passed_by_name(toy64, given, told):
    with pytest.raises(BindError, match=told):
        bind(plan_of(), given, composition=Composed(toy64))


@pytest.mark.parametrize("executor", [3, object(), b"simulator"])
def test_what_is_no_executor_is_a_type_error(toy64, executor):
    with pytest.raises(TypeError, match="executor takes an Executor, a plugin's name or None"):
        bind(plan_of(), tensors(), executor=executor, composition=Composed(toy64))


class Leaving:
    """An executor of somebody else."""

    name, target = "leaving", None

    def run(self, work):
        raise SystemExit(0)


def test_an_executor_that_exits_is_named(toy64):
    bound = bind(plan_of(), tensors(), executor=Leaving(), composition=Composed(toy64))
    with pytest.raises(HookFault, match="executor leaving: run raised SystemExit: 0"):
        bound()


def test_a_plan_whose_request_was_changed_is_not_bound(toy64):
    plan = plan_of()
    object.__setattr__(plan.request, "scale", float("nan"))
    with pytest.raises(BindError, match=r"was changed since it was dispatched: .*scale"):
        bind(plan, tensors(), composition=Composed(toy64))


def test_what_was_bound_is_what_is_launched(toy64):
    plan, given = plan_of(), tensors()
    bound = bind(plan, given, composition=Composed(toy64))
    object.__setattr__(plan.request, "scale", 100.0)
    assert np.array_equal(bound()["out"], expected(given, 0.5))
