"""A binary of another kernel in an artifact: nobody who would launch it does."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from kinfolk.dispatch import dispatch
from kinfolk.errors import KinfolkError
from kinfolk.plan import Plan
from kinfolk.plugins.composition import Composition, compose
from kinfolk_mla.request import MlaRequest
from kinfolk_runtime.artifact import Artifact, ArtifactError
from kinfolk_runtime.binder import bind, call
from kinfolk_runtime.compilation import compile as compile_plan
from kinfolk_runtime.verify import verify

pytestmark = [pytest.mark.simulate, pytest.mark.needs("mla", "gfx942")]

REQUEST = MlaRequest(
    num_heads=16,
    num_seqs=2,
    total_q=2,
    max_seqlen_q=1,
    max_seqlen_k=40,
    absorbed_query=True,
    kv_lora_rank=512,
    rope_dim=64,
    nope_dim=128,
    v_dim=128,
    page_size=16,
    num_pages=8,
    dtype="bf16",
    kv_dtype="bf16",
    causal=True,
    scale=192**-0.5,
)


@pytest.fixture(scope="module")
def composition() -> Composition:
    return compose("mla", "gfx942")


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return compile_plan(dispatch(REQUEST, "gfx942"))


@pytest.fixture(scope="module")
def wrong_binary(artifact: Artifact) -> Callable[..., Artifact]:
    """Return a function that swaps in the object of 64 heads, with its digest or without."""
    other: Plan = dispatch(attrs.evolve(REQUEST, num_heads=64), "gfx942")
    wrong = compile_plan(other).kernels[0]

    def swapped(*, with_digest: bool) -> Artifact:
        digest = {"object_sha256": wrong.object_sha256} if with_digest else {}
        first, *rest = artifact.kernels
        return attrs.evolve(artifact, kernels=(attrs.evolve(first, object=wrong.object, **digest), *rest))

    return swapped


def test_a_wrong_binary_swapped_into_the_artifact_is_refused(
    artifact: Artifact, wrong_binary: Callable[..., Artifact]
) -> None:
    artifact.check()
    with pytest.raises(ArtifactError, match="it was exchanged"):
        wrong_binary(with_digest=False).check()
    with pytest.raises(KinfolkError, match=f"holds no kernel {artifact.kernels[0].symbol}"):
        wrong_binary(with_digest=True).check()


def test_a_wrong_binary_is_not_bound(
    composition: Composition, artifact: Artifact, wrong_binary: Callable[..., Artifact]
) -> None:
    inputs = composition.scenarios(REQUEST)[0].inputs()
    bind(artifact, inputs)
    for launching in (bind, call):
        with pytest.raises(ArtifactError, match="it was exchanged"):
            launching(wrong_binary(with_digest=False), inputs)


@pytest.mark.parametrize(
    ("with_digest", "says"), [(False, "it was exchanged"), (True, "holds no kernel"), (None, "")], ids=str
)
def test_a_wrong_binary_does_not_pass_verify(
    artifact: Artifact,
    wrong_binary: Callable[..., Artifact],
    monkeypatch: pytest.MonkeyPatch,
    with_digest: bool | None,
    says: str,
) -> None:
    made = artifact if with_digest is None else wrong_binary(with_digest=with_digest)
    monkeypatch.setattr("kinfolk_runtime.verify.compile_plan", lambda plan, composition: made)
    if with_digest is None:
        assert verify(REQUEST, "gfx942", scenarios=["single_key"]).status == "pass"
        return
    with pytest.raises(KinfolkError, match=says):
        verify(REQUEST, "gfx942", scenarios=["single_key"])
