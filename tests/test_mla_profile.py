"""MLA decode as `kinfolk profile` counts it: against closed forms, on both archs, and the command."""

from __future__ import annotations

import functools
import json

import attrs
import numpy as np
import pytest
from click.testing import CliRunner

from kinfolk import compose, dispatch
from kinfolk.ir import build_kernel, constant
from kinfolk.ir.ops import lanes, memory
from kinfolk.ir.types import F32, I32, PointerType
from kinfolk.parameters import Parameter
from kinfolk_runtime.cli.profile import command
from kinfolk_runtime.profile import Counts, profile
from kinfolk_runtime.profile.observed import CountingSimulator

pytestmark = pytest.mark.needs("mla", "gfx942")

ARCHS = ("gfx942", "gfx950")
PAGE, LATENT, ROPE = 16, 512, 64
FIELDS = {"num_heads": 16, "num_seqs": 2, "total_q": 2, "max_seqlen_q": 1, "max_seqlen_k": 70, "absorbed_query": True}
WORDS = [f"{name}={str(value).lower()}" for name, value in FIELDS.items()]


@functools.cache
def measured(arch, scenario="ragged", workgroups=None, **changed):
    """Return the profile of a request, which nobody changes: tests that ask for the same one share it."""
    composition = compose("mla", arch)
    given = {**FIELDS, **changed}
    request = composition.request_type(**given, **composition.request_type.cli_defaults(given))
    return profile(request, arch, scenario=scenario, workgroups=workgroups)


def lengths_in(scenario, **changed):
    """Return how many keys the sequences of a scenario have."""
    composition = compose("mla", "gfx942")
    given = {**FIELDS, **changed}
    request = composition.request_type(**given, **composition.request_type.cli_defaults(given))
    [found] = [each for each in composition.scenarios(request) if each.name == scenario]
    return np.diff(found.inputs()["cu_seqlens_k"]).tolist()


def issued(lengths, heads):
    """Whole pages of keys against whole tiles of 16 heads, over a key row and over its latent part."""
    tiles = sum(-(-length // PAGE) for length in lengths)
    return tiles * PAGE * heads * 2 * (LATENT + ROPE + LATENT)


def issued_by_the_pipelined(lengths, tile):
    """While the values of a sequence's last tile are added, the scores of the tile past it are formed."""
    tiles = sum(-(-length // tile) for length in lengths)
    scores = tiles + len(lengths)
    return tile * 128 * 2 * (scores * (LATENT + ROPE) + tiles * LATENT)


def issued_by_groups(lengths, tile, at_least):
    """Both groups go as many rounds as the one with more tiles, so many `at_least`."""
    rounds = sum(max(at_least, -(-length // (2 * tile))) for length in lengths)
    return rounds * 2 * tile * 64 * 2 * (LATENT + ROPE + LATENT)


@pytest.mark.simulate
@pytest.mark.parametrize("scenario", ["ragged", "empty"])
@pytest.mark.parametrize(
    "arch, heads, closed_form",
    [
        ("gfx942", 128, lambda lengths: issued_by_the_pipelined(lengths, 16)),
        ("gfx950", 128, lambda lengths: issued_by_the_pipelined(lengths, 32)),
        ("gfx942", 64, lambda lengths: issued_by_groups(lengths, 16, at_least=1)),
        ("gfx950", 64, lambda lengths: issued_by_groups(lengths, 32, at_least=0)),
    ],
)
def test_the_wide_kernels_issue_what_their_pipelines_form_for_nothing_too(arch, heads, closed_form, scenario):
    asked = {} if scenario == "ragged" else {"scenario": scenario}
    found, lengths = measured(arch, num_heads=heads, **asked), lengths_in(scenario, num_heads=heads)
    assert sorted(lengths)[0] == (0 if scenario == "empty" else 36)
    assert found.issued_flops == closed_form(lengths)
    assert found.useful_flops == sum(lengths) * heads * 2 * (LATENT + ROPE + LATENT)
    [kernel] = found.kernels
    assert kernel.measured == kernel.workgroups == len(lengths)


@pytest.mark.simulate
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("heads", [16, 64, 80])
def test_issued_flops_are_those_of_whole_tiles_and_useful_ones_those_of_the_keys(arch, heads):
    found = measured(arch, scenario=None, num_heads=heads, candidate="mla.decode")
    lengths = (70, 36)  # the scenario's: the longest, and one more than half of it
    assert found.scenario == "ragged"
    assert found.issued_flops == issued(lengths, heads)
    assert found.useful_flops == sum(lengths) * heads * 2 * (LATENT + ROPE + LATENT)
    assert found.useful_share == pytest.approx(sum(lengths) / (PAGE * (5 + 3)))
    [kernel] = found.kernels
    assert kernel.measured == kernel.workgroups == 2 * -(-heads // 64)


@pytest.mark.simulate
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("heads", [16, 64, 128])
def test_global_bytes_are_those_of_the_inputs_that_count(arch, heads):
    """Queries, keys in use, offsets and ids are read, outputs are written: each once where one workgroup serves all.

    Of 64 heads, both groups of waves have the queries.
    """
    [kernel] = measured(arch, num_heads=heads).kernels
    keys, tokens, pages = 70 + 36, 2, 5 + 3
    row = (LATENT + ROPE) * 2
    read = tokens * heads * row + keys * row + (3 + 3 + pages) * 4
    written = tokens * heads * (LATENT * 2 + 4)
    assert (kernel.counts.distinct_read(), kernel.counts.distinct_written()) == (read, written)
    again = tokens * heads * row if heads == 64 else 0
    assert 0 <= kernel.times_minimum - 1 - again / (read + written) < 0.01


@pytest.mark.simulate
def test_two_workgroups_of_a_sequence_read_its_keys_twice():
    [one], [two] = (measured("gfx942", num_heads=heads, candidate="mla.decode").kernels for heads in (64, 128))
    keys = (70 + 36) * (LATENT + ROPE) * 2
    excess = [kernel.total("global_read") - kernel.counts.distinct_read() for kernel in (one, two)]
    assert excess[1] - excess[0] == pytest.approx(keys, rel=0.01)


@pytest.mark.simulate
@pytest.mark.needs("gfx950")
@pytest.mark.parametrize("heads", [16, 64, 128])
def test_bank_cycles_of_what_is_published_are_exact_and_the_rest_is_a_bound(heads):
    [kernel] = measured("gfx942", num_heads=heads).kernels
    wide = [each for each in kernel.instructions if each.banks and each.worst.lane_bytes == 16]
    rest = [each for each in kernel.instructions if each.banks and each.worst.lane_bytes != 16]
    assert wide and rest
    assert all(each.banks.exact for each in wide) and not any(each.banks.exact for each in rest)
    assert "of no other access" in kernel.unmeasured
    [other] = measured("gfx950", num_heads=heads).kernels
    assert not any(each.banks.exact for each in other.instructions if each.banks)
    assert "transpose_read" in {each.worst.action for each in other.instructions if each.worst}


@pytest.mark.simulate
def test_a_sample_states_itself_and_estimates_in_proportion():
    asked = {"scenario": "constant", "num_heads": 128, "candidate": "mla.decode"}
    whole, part = measured("gfx942", **asked), measured("gfx942", **asked, workgroups=2)
    [kernel] = part.kernels
    assert (kernel.measured, kernel.workgroups) == (2, 4)
    assert kernel.to_dict()["workgroups"] == {"grid": 4, "measured": 2, "all": False}
    assert kernel.flops_of_grid == 2 * kernel.counts.flops == part.issued_flops
    assert part.issued_flops == whole.issued_flops, "both head tiles of a sequence do the same: one of each is measured"


@pytest.mark.simulate
def test_page_ids_outside_the_cache_need_no_work():
    found, all_there = measured("gfx942", scenario="bad_pages"), measured("gfx942", scenario="constant")
    assert found.useful_flops < found.issued_flops
    assert found.useful_flops * all_there.issued_flops < all_there.useful_flops * found.issued_flops


@pytest.mark.parametrize("arch", ARCHS)
def test_useful_work_follows_the_mask(arch):
    """Of two queries the first sees a key less, unless the mask is off."""
    composition = compose("mla", arch)
    given = {**FIELDS, "num_seqs": 1, "max_seqlen_q": 2, "max_seqlen_k": 3}
    request = composition.request_type(**given, **composition.request_type.cli_defaults(given))
    inputs = {"cu_seqlens_q": np.array([0, 2]), "cu_seqlens_k": np.array([0, 3]), "block_table": np.zeros((1, 1), int)}
    each = 16 * 2 * (2 * LATENT + ROPE)
    assert composition.useful_flops(request, "mla.decode", inputs) == (3 + 2) * each
    assert composition.useful_flops(attrs.evolve(request, causal=False), "mla.decode", inputs) == 6 * each
    inputs |= {"c_kv": np.zeros((1, 16, LATENT)), "k_rope": np.zeros((1, 16, ROPE))}
    forming, pair = 16 * 2 * LATENT * (128 + 128), 16 * 2 * (128 + ROPE + 128)
    projected = attrs.evolve(request, absorbed_query=False)
    assert composition.useful_flops(projected, "mla.prefill", inputs) == 3 * forming + (3 + 2) * pair
    absorbing = 2 * forming + (3 + 2) * each
    assert composition.useful_flops(projected, "mla.absorbed.decode", inputs) == absorbing
    inputs["cu_seqlens_k"] = np.array([0, 1])
    absorbing = forming + each
    assert composition.useful_flops(projected, "mla.absorbed.decode", inputs) == absorbing, "the first sees no key"


@pytest.mark.needs("gfx950")
def test_a_staging_is_counted_at_both_ends():
    arch = compose("mla", "gfx950").arch

    def body(x):
        held = memory.allocate(F32, 64 * 4)
        arch.op_table["gfx950.stage"].add(memory.offset(x, lanes.thread_id() * 4), held, constant(0, I32), count=4)
        arch.op_table["gfx950.wait_staged"].add()

    parameter = Parameter(name="x", type=PointerType(F32), access="read", alignment=16)
    kernel = build_kernel("stager", (parameter,), arch=arch, block=64, body=body)
    counts = Counts(arch.banks)
    CountingSimulator(counts).launch(kernel, (1, 1, 1), (np.zeros(256, np.float32),))
    [staging] = [each for each in counts.instructions if each.name == "gfx950.stage"]
    assert (staging.global_read, staging.workgroup_written, staging.workgroup_read) == (1024, 1024, 0)
    assert (staging.worst.action, staging.banks.exact) == ("stage", False)
    assert [(each.touched, each.fewest) for each in staging.segments] == [(16, 16), (8, 8)]


def run(*words):
    return CliRunner().invoke(command, words)


@pytest.mark.simulate
def test_the_document_and_the_table(tmp_path):
    done = run("mla", "--arch", "gfx942", *WORDS, "--json")
    document = json.loads(done.stdout)
    assert (done.exit_code, document["schema"], document["status"]) == (0, "kinfolk.profile/1", "pass")
    assert document.keys() == {
        *("schema", "status", "family", "arch", "flavor", "candidate", "request", "scenario", "flops"),
        *("kernels", "refusals"),
    }
    [kernel] = document["kernels"]
    assert kernel["global_memory"]["minimum_bytes"] <= kernel["global_memory"]["read_bytes"] + 10**6
    launch, _ = dispatch(compose("mla", "gfx942").request_type(**document["request"]), "gfx942").launches
    assert kernel["spec_digest"] == launch.spec.digest()
    assert {"op", "source", "issue", "executions"} <= kernel["instructions"][0].keys()
    done = run("mla", "--arch", "gfx942", *WORDS, "--plot", "-")
    assert done.exit_code == 0 and "useful matrix FLOPs of" in done.stdout and "lane  bank 0" in done.stdout
    done = run("mla", "--arch", "gfx942", *WORDS, "--plot", str(tmp_path / "banks.png"))
    assert done.exit_code == 0 and (tmp_path / "banks.png").read_bytes().startswith(b"\x89PNG")
    assert "banks.png is written" in " ".join(done.stderr.split())


@pytest.mark.simulate
def test_a_scenario_of_another_request_says_so():
    told = "scenario no_query is of another request: total_q=1"
    assert told in run("mla", "--arch", "gfx942", *WORDS, "--scenario", "no_query").stdout
    assert "another request" not in run("mla", "--arch", "gfx942", *WORDS, "--scenario", "ragged").stdout


@pytest.mark.parametrize(
    "words, status, told",
    [
        (("mla", "--arch", "gfx942", *WORDS, "num_head=3"), 2, "Did you mean num_heads?"),
        (("mla", "--arch", "gfx942", *WORDS, "--scenario", "raged"), 2, "Did you mean ragged?"),
        (("mla", "--arch", "gfx942", *WORDS, "--workgroups", "0"), 2, "no count of at least 1"),
        (("mla", *WORDS), 2, "Missing option '--arch'"),
        (("mla", "--arch", "gfx942", *WORDS, "--plot", "banks.words"), 1, "no format of pictures"),
        (("mla", "--arch", "gfx942", *WORDS[1:], "num_heads=2000"), 1, "refused: nothing was measured"),
        (("mla", "--arch", "gfx942", *WORDS[1:], "num_heads=True"), 1, "num_heads is True"),
    ],
)
def test_exit_codes_are_those_of_verify(words, status, told):
    done = run(*words)
    assert (done.exit_code, told in done.output) == (status, True), done.output
