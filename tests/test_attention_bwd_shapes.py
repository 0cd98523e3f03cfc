"""The shapes of models that gradients of attention ship: each is served on every arch, and its heads are computed."""

from __future__ import annotations

import json

import jsonschema
import pytest
from built_once import artifact_of, judged
from click.testing import CliRunner

from kinfolk.plugins.composition import compose
from kinfolk_attention_bwd.request import AttentionBwdRequest
from kinfolk_runtime.bench import Shapes, schema
from kinfolk_runtime.bench.shapes import files_of
from kinfolk_runtime.cli.bench import command

ARCHS = ("gfx942", "gfx950")
pytestmark = pytest.mark.needs("attention_bwd", *ARCHS)


def test_the_file_fits_the_published_schema() -> None:
    files = files_of("attention_bwd")
    assert list(files) == ["dense"]
    jsonschema.validate(json.loads(files["dense"].read_text()), schema())


@pytest.mark.parametrize("arch", ARCHS)
def test_each_is_served(arch: str) -> None:
    done = CliRunner().invoke(command, ["attention_bwd", "--arch", arch])
    assert done.exit_code == 0, done.output
    assert "\npass: 15 pass" in done.output


@pytest.mark.simulate
def test_the_heads_of_every_model_have_gradients() -> None:
    composition, shared = compose("attention_bwd", "gfx942"), set[int]()
    for each in Shapes.of("attention_bwd", "dense").shapes:
        given = AttentionBwdRequest.cli_defaults(each.request) | dict(each.request)
        if (heads := given["num_heads"] // given["num_kv_heads"]) in shared:
            continue
        shared.add(heads)
        small = {"num_heads": heads, "num_kv_heads": 1, "num_v_heads": 1, "seqlen_q": 20, "seqlen_k": 70}
        request = AttentionBwdRequest(**(given | small))
        report = judged(composition, artifact_of(request, "gfx942"), "whole")
        assert report.status == "pass", (request, report.findings)
    assert shared == {4, 8, 16}
