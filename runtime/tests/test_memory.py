"""Runs that do not fit in memory: refused before anything is allocated, with the need, what is there, and what fits."""

from __future__ import annotations

from typing import ClassVar

import attrs
import pytest

from kinfolk.expr import field
from kinfolk.fields import ExactInt, launch_field
from kinfolk.ir.types import F32, I32, PointerType
from kinfolk.parameters import Parameter
from kinfolk.plan import Argument, Axis, Binding, Launch, Plan
from kinfolk.request import Request
from kinfolk.spec import Spec
from kinfolk_runtime import memory
from kinfolk_runtime.memory import available_bytes, memory_refusals, needed_bytes, sized


@attrs.frozen(kw_only=True)
class RowsRequest(Request):
    family: ClassVar[str] = "rows"
    rows: int = launch_field(validator=ExactInt(0))
    few: int = launch_field(validator=ExactInt(0), default=2)


@attrs.frozen(kw_only=True)
class RowsSpec(Spec):
    def parameters(self):
        read = [
            Parameter(name=name, type=PointerType(kind), access="read", alignment=4)
            for name, kind in (("x", F32), ("i", I32))
        ]
        return (*read, Parameter(name="y", type=PointerType(F32), access="write", alignment=4))


def plan(rows):
    roles = {"x": ("input", "f32", "read"), "i": ("input", "i32", "read"), "y": ("output", "f32", "write")}
    return Plan(
        request=RowsRequest(rows=rows),
        launches=(
            Launch(
                spec=RowsSpec(), grid=(1, 1, 1), block=32, arguments=tuple(Argument(n, "pointer", n) for n in "xiy")
            ),
        ),
        bindings=tuple(
            Binding(name=name, role=role, dtype=dtype, shape=(Axis(field("rows")),), alignment=4, access=access)
            for name, (role, dtype, access) in roles.items()
        ),
        outputs=("y",),
    )


@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_the_need_is_every_tensor_and_an_fp64_copy_of_each_float_one(rows):
    assert needed_bytes(plan(rows)) == rows * ((4 + 8) + 4 + (4 + 8))


def test_what_fits_to_the_byte_runs_and_one_byte_less_is_refused(monkeypatch):
    need = needed_bytes(plan(1000))
    monkeypatch.setattr(memory, "available_bytes", lambda: need)
    assert memory_refusals({"a": plan(1000)}) == ()
    monkeypatch.setattr(memory, "available_bytes", lambda: need - 1)
    [refusal] = memory_refusals({"a": plan(1000)})
    assert (refusal.code, refusal.field, refusal.value) == ("verify.memory", "rows", 1000)
    assert str(need) in refusal.limit and str(need - 1) in refusal.limit
    assert refusal.remedy == "Ask for a smaller rows."


def test_what_exists_in_part_does_not_count(monkeypatch):
    assert needed_bytes(plan(1000), {"x"}) == 1000 * (4 + (4 + 8))
    monkeypatch.setattr(memory, "available_bytes", lambda: 20_000)
    assert memory_refusals({"a": plan(1000)}) and not memory_refusals({"a": plan(1000)}, {"a": {"x"}})


def test_the_scenarios_that_fit_are_named(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    [refusal] = memory_refusals({"small": plan(3), "large": plan(10**9)})
    assert refusal.remedy == "Ask for a smaller rows, or only what fits: --scenario small."
    assert refusal.because.startswith("large: the tensors of scenario large")


def test_where_no_one_says_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    assert memory_refusals({"a": plan(2**60)}) == ()


def test_a_container_s_limit_counts(monkeypatch, tmp_path):
    limit, taken, host = tmp_path / "max", tmp_path / "current", tmp_path / "meminfo"
    host.write_text("MemTotal: 9999 kB\nMemAvailable:   4000 kB\n")
    monkeypatch.setattr(memory, "KERNEL_SAYS", host)
    monkeypatch.setattr(memory, "CONTAINERS", ((limit, taken),))
    assert available_bytes() == 4000 * 1024
    limit.write_text("max\n")
    taken.write_text("500\n")
    assert available_bytes() == 4000 * 1024
    limit.write_text("1500\n")
    assert available_bytes() == 1000


@pytest.mark.parametrize(
    "count, said", [(7, "7 B"), (1024, "1 KiB"), (3 * 2**29, "1.5 GiB"), (2**44, "16 TiB"), (3 * 2**50, "3 PiB")]
)
def test_sizes_for_people(count, said):
    assert sized(count) == said
