"""The shapes of models that MLA ships: which are there, that each is served or refused as its file says, as printed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from kinfolk_runtime.bench import Shapes, schema
from kinfolk_runtime.bench.shapes import files_of
from kinfolk_runtime.cli.bench import command

pytestmark = pytest.mark.needs("mla", "gfx942", "gfx950")

FILES = ["decode", "decode_fp8", "prefill", "prefix", "ranks", "verify"]
MODELS = {"DeepSeek-V3": 128, "GLM-5": 128, "Kimi-K2": 64}
KEYS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
TOKENS = (512, 1024, 2048, 4096, 8192)


def requests_of(name):
    return {each.name: each.request for each in Shapes.of("mla", name).shapes}


def bench(*words):
    return CliRunner().invoke(command, ["mla", *words])


def test_every_model_decodes_over_every_length():
    found = {(each["num_heads"], each["num_seqs"], each["max_seqlen_k"]) for each in requests_of("decode").values()}
    assert {(heads, 1, keys) for heads in MODELS.values() for keys in KEYS} <= found
    for model, heads in MODELS.items():
        assert [requests_of("decode")[f"{model}, {keys} keys"]["num_heads"] for keys in KEYS] == [heads] * len(KEYS)


def test_caches_of_either_kind_of_8_bit_floats_are_among_them():
    found = [(each["kv_dtype"], each["max_seqlen_k"]) for each in requests_of("decode_fp8").values()]
    assert sorted(found) == sorted((kind, keys) for kind in ("f8E4M3FN", "f8E4M3FNUZ") for keys in KEYS * 2)


def test_every_model_prefills_as_many_keys_as_tokens():
    found = requests_of("prefill")
    assert len(found) == len(MODELS) * len(TOKENS)
    for model, heads in MODELS.items():
        for tokens in TOKENS:
            request = found[f"{model}, {tokens} tokens"]
            assert request["num_heads"] == heads and not request["absorbed_query"] and request["causal"]
            assert {request[field] for field in ("total_q", "max_seqlen_q", "max_seqlen_k")} == {tokens}


def test_ranks_share_the_heads_of_their_model():
    for name, request in requests_of("ranks").items():
        model, _, rest = name.partition(" on ")
        assert request["num_heads"] * int(rest.split()[0]) == MODELS[model]
    assert {request["num_heads"] for request in requests_of("ranks").values()} == {8, 16, 32, 64}


def test_drafted_tokens_of_every_number_are_verified_absorbed():
    found = [(each["num_heads"], each["max_seqlen_q"], each["max_seqlen_k"]) for each in requests_of("verify").values()]
    assert {(heads, tokens, 512) for heads in (16, 64, 128) for tokens in range(2, 9)} <= set(found)
    assert all(each["absorbed_query"] and each["causal"] for each in requests_of("verify").values())


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_behind_a_prefix_few_tokens_go_over_latent_rows_and_many_over_heads(arch):
    rows = json.loads(bench("--shapes", "prefix", "--arch", arch, "--json").stdout)["rows"]
    by_rows = {row["request"]["total_q"]: row["candidate"].rpartition(".")[0] for row in rows}
    assert by_rows == {**dict.fromkeys((1, 16, 64, 128), "mla.absorbed"), 256: "mla"}
    assert not any(row["request"]["absorbed_query"] for row in rows)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", FILES)
def test_each_is_served_or_refused_as_its_file_says(name, arch):
    done = bench("--shapes", name, "--arch", arch)
    assert done.exit_code == 0, done.output

    table = [line for line in done.stdout.splitlines() if "│" in line or "┃" in line]
    assert max(map(len, table)) <= 80


@pytest.mark.parametrize("name", FILES)
def test_each_file_fits_the_published_schema(name):
    jsonschema.validate(json.loads(files_of("mla")[name].read_text()), schema())


def test_the_file_that_the_page_shows_is_one(tmp_path):
    page = (Path(__file__).resolve().parent.parent / "docs/cli.md").read_text()
    [text] = re.findall(r"```json\n(.*?kinfolk\.shapes/1.*?)```", page, re.DOTALL)
    jsonschema.validate(json.loads(text), schema())
    path = tmp_path / "page.json"
    path.write_text(text)
    done = bench("--shapes", str(path), "--arch", "gfx942")
    assert done.exit_code == 0 and "1 refused as expected" in done.stdout


def test_all_files_are_looked_at_here():
    assert list(files_of("mla")) == FILES


def test_a_shape_whose_refusal_nobody_expects_fails(tmp_path):
    shapes = json.loads(files_of("mla")["ranks"].read_text())
    path = tmp_path / "ranks.json"
    path.write_text(json.dumps({**shapes, "request": shapes["request"] | {"page_size": 48}}))
    done = bench("--shapes", str(path), "--arch", "gfx942")
    assert done.exit_code == 1
    said = "512 keys and 17 more on gfx942: unexpected: mla.pipelined.page_size: page_size is 48, supported: 16"
    assert said in done.stdout


def rank(tmp_path, wanted):
    """Write a file with one of the ranks' shapes alone."""
    shapes = json.loads(files_of("mla")["ranks"].read_text())
    kept = [each for each in shapes["shapes"] if each["name"] == wanted]
    path = tmp_path / "one.json"
    path.write_text(json.dumps({**shapes, "refused": [], "shapes": kept}))
    return str(path)


@pytest.mark.compile
@pytest.mark.simulate
def test_a_rank_is_built_and_verified(tmp_path):
    one = rank(tmp_path, "DeepSeek-V3 on 8 ranks, 512 keys")
    built = json.loads(bench("--shapes", one, "--arch", "gfx942", "--mode", "build", "--json").stdout)
    assert built["status"] == "pass"
    assert [kernel["scratch_ops"] for kernel in built["rows"][0]["kernels"]] == [0, 0]
    done = bench("--shapes", one, "--arch", "gfx942", "--mode", "verify", "--scenario", "ragged", "--json")
    verified = json.loads(done.stdout)
    [row] = verified["rows"]
    assert (row["status"], row["candidate"], row["figures"]["scenarios"]) == ("pass", "mla.decode", 1)
    assert 0.0 < row["figures"]["margin"] <= 1.0
