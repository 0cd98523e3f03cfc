"""The command line as installed, in processes of its own: a DeepSeek-V3 decode request from question to verdict."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kinfolk.plugins.composition import compose
from kinfolk_runtime.spec_space import sampled, spec_space

pytestmark = pytest.mark.needs("mla", "gfx942")

KINFOLK = Path(sys.executable).parent / "kinfolk"
REQUEST = {
    "num_heads": "128",
    "num_seqs": "3",
    "total_q": "3",
    "max_seqlen_q": "1",
    "max_seqlen_k": "777",
    "absorbed_query": "true",
}
LATENT = ("pipelined", "grouped", "decode")
DEFAULTS = {
    "kv_lora_rank": 512,
    "rope_dim": 64,
    "nope_dim": 128,
    "v_dim": 128,
    "page_size": 16,
    "num_pages": 3 * 49,
    "dtype": "bf16",
    "kv_dtype": "bf16",
    "causal": True,
    "scale": 1 / math.sqrt(128 + 64),
}
FIGURES = {
    *("symbol", "spec_digest", "arch", "vgpr", "agpr", "sgpr", "lds_bytes", "scratch_bytes", "scratch_ops", "parked"),
    *("waves_per_simd", "workgroups_per_cu", "toolchain"),
}

BUDGETS = {
    "mla_decode": (2, 256),
    "mla_pipelined": (1, 512),
    "mla_grouped": (1, 512),
    "mla_combine": (8, 63),
    "mla_prefill": (1, 256),
    "mla_expand": (1, 512),
    "mla_absorb": (1, 512),
    "mla_project": (1, 512),
    "attention_dense": (1, 512),
    "attention_persistent": (1, 512),
    "attention_paged": (1, 512),
    "attention_gathered": (1, 512),
    "attention_segment": (1, 256),
    "attention_reduce": (4, 128),
    "attention_bwd": (1, 512),
}
"""Of each kind of kernel, how many workgroups share a compute unit, and the registers that leaves a lane."""


def kinfolk(*words, **environment):
    env = {**os.environ, **environment}
    return subprocess.run([KINFOLK, *words], capture_output=True, text=True, env=env, check=False)


def ask(verb, *flags, **changed):
    fields = [f"{name}={value}" for name, value in {**REQUEST, **changed}.items()]
    return kinfolk(verb, "mla", "--arch", "gfx942", *flags, *fields)


@pytest.mark.simulate
def test_verify_passes_and_its_document_keeps_the_schema():
    done = ask("verify", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["schema"], document["status"]) == (0, "kinfolk.report/1", "pass")
    assert document.keys() == {
        *("schema", "status", "family", "arch", "flavor", "candidate", "executor"),
        *("request", "scenarios", "kernels", "refusals", "engine", "sanitizers", "notes"),
    }
    assert document["request"].items() >= {"num_heads": 128, "max_seqlen_k": 777, **DEFAULTS}.items()
    assert len(document["kernels"]) == 2, "decode and combine"
    for kernel in document["kernels"]:
        assert kernel.keys() >= FIGURES
        assert (kernel["scratch_bytes"], kernel["scratch_ops"]) == (0, 0)
    names = {scenario["name"] for scenario in document["scenarios"]}
    assert names >= {"ragged", "spike", "empty", "single_key", "exact_page", "page_plus_one", "extreme"}
    for scenario in document["scenarios"]:
        assert (scenario["status"], scenario["findings"]) == ("pass", [])
        assert {output["name"] for output in scenario["outputs"]} == {"out", "lse"}
        assert all(0 <= output["margin"] <= 1 for output in scenario["outputs"])


@pytest.mark.compile
@pytest.mark.parametrize("flags", [("--json",), ("--json", "--scenario", "page_plus_one")])
def test_a_request_that_no_memory_holds_is_refused_with_what_it_needs(flags):
    done = ask("verify", *flags, max_seqlen_k="400000000")
    document = json.loads(done.stdout)
    [row] = document["refusals"]
    assert (done.returncode, document["status"], done.stderr) == (1, "refused", "")
    assert (row["code"], row["field"], row["value"]) == ("verify.memory", "max_seqlen_k", 400000000)
    assert "PiB" in row["because"] or "TiB" in row["because"]
    fitting = ", or only what fits: --scenario address_2gib" * ("page_plus_one" not in flags)
    assert row["remedy"].startswith(f"Ask for a smaller max_seqlen_k{fitting}")


@pytest.mark.simulate
def test_one_scenario_alone_for_people():
    done = ask("verify", "--scenario", "exact_page", max_seqlen_k="64")
    assert done.returncode == 0
    assert "filled in: kv_lora_rank=512 rope_dim=64" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("pass: 1 scenario on 2 kernels; the largest margin is 0.")
    assert done.stderr == ""


@pytest.mark.simulate
@pytest.mark.parametrize("heads", [8, 48, 112])
def test_heads_that_leave_waves_idle(heads):
    done = ask("verify", "--json", "--scenario", "page_plus_one", num_heads=heads, max_seqlen_k="40")
    assert json.loads(done.stdout)["status"] == "pass"


@pytest.mark.parametrize("pin, said", [("mla.prefill", "; mla.prefill is pinned, no other is taken"), ("prefill", "")])
def test_a_pin_that_is_refused_is_named_where_others_would_serve(pin, said):
    done = ask("why", candidate=pin)
    assert done.returncode == 1 and "admitted" in done.stdout
    assert done.stdout.splitlines()[-1] == f"mla on gfx942, llvm22: nothing is selected{said}"


def test_candidates_that_refuse_for_the_same_reasons_are_told_together():
    told = ask("why", page_size="48").stdout
    assert "\nmla.pipelined, mla.grouped:\n" in told and "\nmla.decode:\n" in told
    assert told.count("16, 32, 64 or 128 (a tile of keys is made of whole pages") == 4  # two of them from 1 on
    assert len(json.loads(ask("why", "--json", page_size="48").stdout)["candidates"]) == 7


@pytest.mark.parametrize("verb", ["verify", "why"])
@pytest.mark.parametrize(
    "changed, codes",
    [
        ({"num_heads": "True"}, {"request.num_heads.type"}),
        ({"num_heads": "2.0"}, {"request.num_heads.type"}),
        (
            {"page_size": "48"},
            {
                "mla.decode.page_size",
                "mla.pipelined.page_size",
                "mla.grouped.page_size",
                "mla.prefill.page_size",
                "mla.prefill.absorbed_query",
                *(f"mla.absorbed.{each}.page_size" for each in LATENT),
                *(f"mla.absorbed.{each}.absorbed_query" for each in LATENT),
            },
        ),
        (
            {"num_heads": "2000"},
            {
                "mla.decode.num_heads",
                "mla.pipelined.num_heads",
                "mla.grouped.num_heads",
                "mla.prefill.num_heads",
                "mla.prefill.absorbed_query",
                *(f"mla.absorbed.{each}.num_heads" for each in LATENT),
                *(f"mla.absorbed.{each}.absorbed_query" for each in LATENT),
            },
        ),
        ({"page_size": "48", "candidate": "mla.decode"}, {"mla.decode.page_size"}),
    ],
)
def test_a_value_that_is_not_served_is_refused(verb, changed, codes):
    """By each candidate that does not take it, with all its reasons; of a pinned one with its own alone."""
    done = ask(verb, "--json", **changed)
    document = json.loads(done.stdout)
    assert (done.returncode, document["status"]) == (1, "refused")
    assert sorted(row["code"] for row in document["refusals"]) == sorted(codes)
    told = ask(verb, **changed).stdout
    for row in document["refusals"]:
        field, text = row["field"], (REQUEST | changed)[row["field"]]
        assert str(row["value"]).lower() == text.lower()
        assert all(row[name] for name in ("limit", "because", "remedy", "plugin"))
        assert f"{field} is {row['value']}, supported: {row['limit']} ({row['because']}). {row['remedy']}" in told


@pytest.mark.parametrize(
    "words, said",
    [
        (("verify", "mla", "--arch", "gfx942", "num_head=3"), "Did you mean num_heads?"),
        (("verfy",), "Did you mean verify?"),
        (("verify", "mla"), "Missing option '--arch'"),
    ],
)
def test_an_unknown_word_is_exit_status_2(words, said):
    done = kinfolk(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_resources_of_an_unknown_family_says_so_once():
    """Not once per arch: what is wrong is the name."""
    done = kinfolk("resources", "mlla")
    assert done.returncode == 1
    assert done.stdout.count("no installed distribution offers this family") == 1 and "gfx9" not in done.stdout
    document = json.loads(kinfolk("resources", "nosuch", "--json").stdout)
    assert [row["code"] for row in document["refusals"]] == ["family.unknown"]
    assert "kinfolk new family nosuch" in document["refusals"][0]["remedy"]


def test_a_folder_of_a_familys_name_is_not_what_is_inspected(tmp_path):
    """As `kinfolk new` leaves one behind."""
    (tmp_path / "mla").mkdir()
    words = [str(KINFOLK), "inspect", "mla", "--arch", "gfx942", "num_heads=nothing"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "num_heads is nothing" in done.stdout and "KEY=VALUE are fields" not in done.stderr


def test_ir_is_the_same_in_processes_of_different_hash_seeds():
    words = ["emit", "mla", "--arch", "gfx942", *(f"{name}={value}" for name, value in REQUEST.items())]
    first, second = (kinfolk(*words, PYTHONHASHSEED=seed).stdout for seed in ("1", "2"))
    assert "gfx942.mfma" in first or "amdgcn" in first
    assert first == second


@pytest.mark.compile
def test_every_stage_is_emitted(tmp_path):
    for stage, mark in (("llvm", "define amdgpu_kernel void @mla_pipelined"), ("asm", "v_mfma_f32_16x16x16")):
        assert mark in ask("emit", "--stage", stage).stdout
    assert ask("emit", "--stage", "object", "-o", str(tmp_path / "objects")).returncode == 0
    objects = sorted((tmp_path / "objects").glob("*.o"))
    assert [each.name.partition("_h")[0].partition("_bf16")[0] for each in objects] == ["mla_combine", "mla_pipelined"]
    assert all(each.read_bytes().startswith(b"\x7fELF") for each in objects)


def kind_of(symbol: str) -> str:
    return "_".join(symbol.split("_")[:2])


@pytest.mark.needs("attention_fwd", "attention_bwd", "gfx950")
def test_every_kind_of_kernel_has_a_budget():
    """Of the whole spec spaces, and each kind is in the sample of some arch that is compiled every day."""
    spaces = [
        spec_space(compose(family, arch), "llvm22")
        for family in ("mla", "attention_fwd", "attention_bwd")
        for arch in ("gfx942", "gfx950")
    ]
    assert {kind_of(spec.symbol()) for space in spaces for spec in space} == BUDGETS.keys()
    assert {kind_of(spec.symbol()) for space in spaces for spec in sampled(space)} == BUDGETS.keys()


@pytest.mark.compile
def test_resources_of_every_family_on_every_arch_pass():
    done = kinfolk("resources", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["status"]) == (0, "pass")
    kinds = [kind_of(kernel["symbol"]) for kernel in document["kernels"]]
    assert set(kinds) <= BUDGETS.keys() and len(kinds) >= 10
    for kind, kernel in zip(kinds, document["kernels"], strict=True):
        assert kernel.keys() >= FIGURES
        assert kernel["scratch_bytes"] == kernel["scratch_ops"] == 0
        workgroups, registers = BUDGETS[kind]
        shared = 512 * 256 // kernel["max_flat_workgroup_size"]  # waves of a SIMD share its registers
        assert kernel["workgroups_per_cu"] >= workgroups
        assert kernel["vgpr"] + kernel["agpr"] <= min(registers, shared)


@pytest.mark.compile
def test_the_doctor_finds_this_installation_sound():
    done = kinfolk("doctor", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["status"]) == (0, "pass")
    states = {(check["group"], check["name"]): check["state"] for check in document["checks"]}
    assert states["target", "gfx942"] == states["flavor", "llvm22"] == states["executor", "simulator"] == "ok"
