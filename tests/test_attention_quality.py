"""Figures of the kernels of attention's families: of the code that is emitted now, and above their floors."""

from __future__ import annotations

import copy
from types import ModuleType

import pytest

from kinfolk.plugins.composition import compose
from kinfolk_runtime.goldens.check import section_name
from kinfolk_runtime.goldens.place import Place


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("family", ["attention_fwd", "attention_bwd"])
def test_every_kernel_is_measured_on_the_code_that_is_blessed(tool: ModuleType, family: str, arch: str) -> None:
    """Or on that which is emitted now, of a kernel that is not in the everyday sample of specs."""
    composition = compose(family, arch)
    found, blessed = tool.document(composition, arch), Place.of(composition).document("figures", arch)
    assert blessed is not None
    code = {row.spec: row.values["llvm"] for row in blessed.sections[section_name("llvm22", found["build"])].rows}
    specs = {spec.digest(): spec for spec in tool.launched(composition)}
    now = {digest: code.get(digest) or tool.code_of(composition, spec) for digest, spec in specs.items()}
    assert now == {row["spec"]: row["llvm"] for row in found["kernels"]}, f"run: {tool.COMMAND}"


@pytest.mark.parametrize(
    ("family", "kernel", "arch", "share"),
    [
        ("attention_fwd", "attention_dense_128_bf16", "gfx942", 0.80),
        ("attention_fwd", "attention_dense_128_bf16", "gfx950", 0.68),
        ("attention_bwd", "attention_bwd_keys_128_bf16", "gfx942", 0.85),
        ("attention_bwd", "attention_bwd_keys_128_bf16", "gfx950", 0.75),
    ],
)
def test_no_kernel_is_below_its_floor_and_one_that_is_is_told(
    tool: ModuleType, family: str, kernel: str, arch: str, share: float
) -> None:
    composition = compose(family, arch)
    kernels = tool.document(composition, arch)["kernels"]
    assert list(tool.broken(composition, kernels)) == []
    worse = copy.deepcopy(kernels)
    [plain] = [row for row in worse if row["symbol"].startswith(f"{kernel}_")]
    plain["matrix_share"] = share - 0.001
    [told] = tool.broken(composition, worse)
    assert plain["symbol"] in told and f"at least {share}" in told
