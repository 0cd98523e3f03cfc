"""What a decode spec declares of its registers, against what the compiler made of the kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kinfolk.errors import Refused
from kinfolk.ir import build_kernel
from kinfolk.plugins.composition import Composition, compose
from kinfolk_mla.decode import frame
from kinfolk_mla.decode.plan import decode_specs
from kinfolk_mla.spec import MlaDecodeSpec
from kinfolk_runtime.compilation import compile_specs

pytestmark = [pytest.mark.compile, pytest.mark.needs("mla")]


@pytest.fixture(params=["gfx942", "gfx950"])
def composition(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Composition:
    """Return a composition whose kernels are emitted anew: the memo of lowered kernels goes by the sources."""
    monkeypatch.setenv("KINFOLK_CACHE_DIR", str(tmp_path))
    return compose("mla", request.param)


def spec_of(composition: Composition) -> MlaDecodeSpec:
    return next(iter(decode_specs(composition.arch, "llvm22")))


def emits_with(monkeypatch: pytest.MonkeyPatch, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
    def build(*given: Any, attributes: Mapping[str, Any], **named: Any) -> Any:
        return build_kernel(*given, attributes=dict(change(attributes)), **named)

    monkeypatch.setattr(frame, "build_kernel", build)


def test_a_kernel_that_tells_the_compiler_its_budget_keeps_it(
    composition: Composition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the same way of emitting, with nothing left out."""
    emits_with(monkeypatch, lambda attributes: attributes)
    (compiled,) = compile_specs([spec_of(composition)], "llvm22", composition=composition)
    assert compiled.usage.figure("workgroups_per_cu") == spec_of(composition).workgroups_per_cu == 2


def test_one_that_tells_it_nothing_is_refused(composition: Composition, monkeypatch: pytest.MonkeyPatch) -> None:
    emits_with(monkeypatch, lambda attributes: {})
    with pytest.raises(Refused) as caught:
        compile_specs([spec_of(composition)], "llvm22", composition=composition)
    codes = {refusal.code for refusal in caught.value.refusals}
    assert codes >= {"mla.decode.resources.workgroups_per_cu", "mla.decode.resources.vgpr"}
    assert all(refusal.plugin != "kinfolk-core" for refusal in caught.value.refusals), "it is not scratch that is seen"
