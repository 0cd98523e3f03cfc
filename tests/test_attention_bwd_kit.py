"""Gradients of attention: the conformance kit on them, and the figures of their kernels above their floors."""

from __future__ import annotations

import copy
from types import ModuleType

import pytest

from kinfolk.plugins.composition import compose
from kinfolk.testing import FamilyConformance
from kinfolk_runtime.goldens.check import section_name
from kinfolk_runtime.goldens.place import Place

ARCHS = ("gfx942", "gfx950")
pytestmark = pytest.mark.needs("attention_bwd", "gfx942", "gfx950")


class TestAttentionBwd(FamilyConformance):
    family = "attention_bwd"
    archs = ARCHS


@pytest.mark.parametrize("arch", ARCHS)
def test_every_kernel_is_measured_on_the_code_that_is_blessed(tool: ModuleType, arch: str) -> None:
    """Or on that which is emitted now, of a kernel that is not in the everyday sample of specs."""
    composition = compose("attention_bwd", arch)
    found, blessed = tool.document(composition, arch), Place.of(composition).document("figures", arch)
    assert blessed is not None
    code = {row.spec: row.values["llvm"] for row in blessed.sections[section_name("llvm22", found["build"])].rows}
    specs = {spec.digest(): spec for spec in tool.launched(composition)}
    now = {digest: code.get(digest) or tool.code_of(composition, spec) for digest, spec in specs.items()}
    assert now == {row["spec"]: row["llvm"] for row in found["kernels"]}, f"run: {tool.COMMAND}"


@pytest.mark.parametrize(("arch", "share"), [("gfx942", 0.85), ("gfx950", 0.75)])
def test_no_kernel_is_below_its_floor_and_one_that_is_is_told(tool: ModuleType, arch: str, share: float) -> None:
    composition = compose("attention_bwd", arch)
    kernels = tool.document(composition, arch)["kernels"]
    assert list(tool.broken(composition, kernels)) == []
    worse = copy.deepcopy(kernels)
    [plain] = [row for row in worse if row["symbol"].startswith("attention_bwd_keys_128_bf16_")]
    plain["matrix_share"] = share - 0.001
    [told] = tool.broken(composition, worse)
    assert plain["symbol"] in told and f"at least {share}" in told
