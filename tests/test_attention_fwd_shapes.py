"""The shapes of models that forward attention ships: each is served or refused as its file says, and computed."""

from __future__ import annotations

import json
from collections.abc import Iterator

import jsonschema
import pytest
from built_once import artifact_of, judged
from click.testing import CliRunner

from kinfolk.errors import NoCandidate
from kinfolk.plugins.composition import compose
from kinfolk_attention_fwd.request import AttentionFwdRequest
from kinfolk_runtime.bench import Shapes, schema
from kinfolk_runtime.bench.shapes import files_of
from kinfolk_runtime.cli.bench import command

ARCHS = ("gfx942", "gfx950")
pytestmark = pytest.mark.needs("attention_fwd", *ARCHS)
FILES = ["decode", "decode_fp8", "dense", "paged", "varlen"]
MODELS = {"Llama-3-8B", "Llama-3-70B", "Llama-3.1-405B", "Qwen3-30B-A3B", "Qwen3-235B-A22B", "gpt-oss-120b"}


def test_all_files_are_looked_at_here() -> None:
    assert list(files_of("attention_fwd")) == FILES
    names = {each.name.partition(",")[0] for name in FILES for each in Shapes.of("attention_fwd", name).shapes}
    assert names == MODELS


@pytest.mark.parametrize("name", FILES)
def test_each_file_fits_the_published_schema(name: str) -> None:
    jsonschema.validate(json.loads(files_of("attention_fwd")[name].read_text()), schema())


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", FILES)
def test_each_is_served_or_refused_as_its_file_says(name: str, arch: str) -> None:
    done = CliRunner().invoke(command, ["attention_fwd", "--shapes", name, "--arch", arch])
    assert done.exit_code == 0, done.output


def few_of(name: str) -> Iterator[AttentionFwdRequest]:
    """Yield each combination of what is compiled and of heads for a head of keys in a file, as a small request."""
    found: set[AttentionFwdRequest] = set()
    for each in Shapes.of("attention_fwd", name).shapes:
        given = dict(each.request)
        shared = given["num_heads"] // given["num_kv_heads"]
        given |= AttentionFwdRequest.cli_defaults(given)
        queries = min(given["max_seqlen_q"], 20)
        small = {"num_seqs": 1, "total_q": queries, "max_seqlen_q": queries, "max_seqlen_k": 150, "num_kv_heads": 2}
        extent = {"paged": {"num_pages": 200}, "varlen": {"total_k": 150}}.get(given["layout"], {})
        request = AttentionFwdRequest(**(given | small | extent | {"num_heads": 2 * shared}))
        if request not in found:
            found.add(request)
            yield request


@pytest.mark.simulate
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", FILES)
def test_the_heads_of_every_model_compute_attention(name: str, arch: str) -> None:
    composition, ran = compose("attention_fwd", arch), 0
    for request in few_of(name):
        try:
            artifact = artifact_of(request, arch)
        except NoCandidate:
            continue  # as the file says, which is looked at above
        report = judged(composition, artifact, "whole")
        assert report.status == "pass", (request, report.findings)
        ran += 1
    assert ran >= 3
