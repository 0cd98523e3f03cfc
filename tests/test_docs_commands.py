"""The documentation's commands, run again: each prints what the page says it prints, numbers and digests aside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.needs("mla", "gfx942")

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    "README.md",
    "docs/cli.md",
    "docs/mla.md",
    "docs/conformance.md",
    "docs/attention_fwd.md",
    "docs/attention_bwd.md",
)
NEEDED = {"docs/attention_fwd.md": "attention_fwd", "docs/attention_bwd.md": "attention_bwd"}
"""Of pages about another family than the module's."""
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
BLOCK = re.compile(r"```console\n\$ ([^\n]*)\n(.*?)```", re.DOTALL)


def blocks():
    for page in PAGES:
        for number, (command, printed) in enumerate(BLOCK.findall((ROOT / page).read_text())):
            marks = [pytest.mark.needs(NEEDED[page])] if page in NEEDED else []
            marks += [pytest.mark.simulate] if re.search(" (verify|profile|compare) ", command) else []
            marks += [pytest.mark.compile] if re.search(" (resources|inspect) ", command) else []
            yield pytest.param(command, printed, id=f"{page}-{number}", marks=marks)


def skeleton(text):
    """Return the words of a text, with a number or a digest as `#` and without rules and spaces."""
    words = re.sub(r"[━╇┃│]+", " ", text).split()
    return [re.sub(r"(?<![A-Za-z])(?:[0-9a-f]{8,16}|\d[\d.]*(?:e[+-]?\d+)?)", "#", word) for word in words]


@pytest.mark.parametrize("command, printed", list(blocks()))
def test_a_page_shows_what_its_command_prints(monkeypatch, command, printed):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert skeleton(done.stdout) == skeleton(printed), done.stdout + done.stderr


def test_the_comparison_sees_another_word_and_no_other_number():
    said = "ragged │ out │ pass │ 0.462 │ mla_decode_bf16_9bbd0ce5"
    assert skeleton(said) == skeleton(said.replace("0.462", "4.6e-07").replace("9bbd0ce5", "00000000"))
    assert skeleton(said) != skeleton(said.replace("pass", "fail"))


def attended(tensors, scale, sequence):
    """Return the outputs of one sequence of one query by definition: a softmax over its keys, in fp64."""
    begin, end = tensors["cu_seqlens_k"][sequence : sequence + 2]
    page_size = tensors["c_kv"].shape[1]
    pages = tensors["block_table"][sequence, : -(-(end - begin) // page_size)]
    latent = tensors["c_kv"][pages].astype(float).reshape(-1, 512)[: end - begin]
    rotated = tensors["k_rope"][pages].astype(float).reshape(-1, 64)[: end - begin]
    scores = scale * tensors["qa"][sequence].astype(float) @ np.concatenate([latent, rotated], axis=1).T
    weights = np.exp(scores)
    return weights @ latent / weights.sum(axis=1, keepdims=True), np.log(weights.sum(axis=1))


@pytest.mark.compile
@pytest.mark.simulate
@pytest.mark.parametrize("page", ["README.md", "docs/mla.md"])
def test_the_python_of_a_page_runs_and_computes_attention(monkeypatch, capsys, page):
    import kinfolk_runtime

    passed = []
    call = kinfolk_runtime.call
    monkeypatch.setattr(kinfolk_runtime, "call", lambda *given: passed.append(given[1]) or call(*given))
    code = PYTHON.findall((ROOT / page).read_text())
    assert code, "the page has no Python"
    names = {}
    for block in code:
        exec(compile(block, page, "exec"), names)
    assert "(2, 128, 512) float32" in capsys.readouterr().out
    for sequence in range(2):
        out, lse = attended(passed[0], names["request"].scale, sequence)
        assert names["outputs"]["out"][sequence].astype(float) == pytest.approx(out, abs=0.03)
        assert names["outputs"]["lse"][sequence] == pytest.approx(lse, abs=1e-4)


@pytest.mark.compile
@pytest.mark.simulate
def test_a_family_is_written_installed_and_run_as_the_page_says(monkeypatch, tmp_path):
    [block] = re.findall(r"```sh\n(kinfolk new .*?)```", (ROOT / "docs/writing-a-family.md").read_text(), re.DOTALL)
    site, install = tmp_path / "site", "pip install -e '.[test]'"
    offline = f"{sys.executable} -m pip install -q --no-build-isolation --no-index --no-deps --target {site} ."
    assert block.count(install) == 1
    script = re.sub(r"^kinfolk ", f"{sys.executable} -m kinfolk ", block.replace(install, offline), flags=re.MULTILINE)
    # tests/test_new.py runs all of its tests
    script = script.replace("pytest -q", f"{sys.executable} -m pytest -q tests/test_column_scale_installed.py")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "column_scale.one_row_each" in done.stdout and "pass: 13 scenarios" in done.stdout
    assert "softmax" not in "".join(str(path.relative_to(tmp_path)) for path in (tmp_path / "column_scale").rglob("*"))


def two_waves(change=lambda text: text):
    """Run the block of the page on families, changed, and return its names."""
    block, *_ = PYTHON.findall((ROOT / "docs/writing-a-family.md").read_text())
    names = {}
    exec(compile(change(block), "docs/writing-a-family.md", "exec"), names)
    return names


def test_the_kernel_of_two_waves_gives_the_sum_that_numpy_gives(capsys):
    names = two_waves()
    assert (names["totals"] == names["x"].sum()).all()
    assert capsys.readouterr().out.split() == ["8128.0", "8128.0"]


def test_the_kernel_of_two_waves_fails_as_the_page_says():
    from kinfolk.errors import SimulationError

    with pytest.raises(SimulationError, match="no barrier between"):
        two_waves(lambda text: text.replace("    control.barrier()\n", ""))
    names = two_waves(lambda text: text.replace("lanes.wave_id() ^ 1", "lanes.wave_id()"))
    assert not (names["totals"] == names["x"].sum()).any()


def test_every_page_shows_commands():
    assert all(BLOCK.search((ROOT / page).read_text()) for page in PAGES)


SERVED = re.findall(
    r"^\| [^|]+ \| `(absorbed_query=[^`]+)` \| `([a-z.]+)` \|$", (ROOT / "docs/mla.md").read_text(), re.M
)


@pytest.mark.needs("gfx950")
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_the_kernel_that_the_page_names_serves_each_row_of_its_table(arch):
    from kinfolk import dispatch
    from kinfolk.cli.values import request_from
    from kinfolk_mla.request import MlaRequest

    assert {served for _, served in SERVED} == {
        "mla.pipelined",
        "mla.grouped",
        "mla.decode",
        "mla.prefill",
        "mla.absorbed.pipelined",
        "mla.absorbed.grouped",
        "mla.absorbed.decode",
    }
    for fields, served in SERVED:
        each = int(re.search(r"max_seqlen_q=(\d+)", fields)[1])
        read = request_from(MlaRequest, [*fields.split(), "num_seqs=2", f"total_q={2 * each}", "max_seqlen_k=4096"])
        assert dispatch(read.request, arch).candidate == served, fields
