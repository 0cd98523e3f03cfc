"""Adding a head size: a pair of widths in the capability, a stored schedule, and no other line of the family.

The family is copied, with 112 columns in the two places that say which widths are served and a row in the file of
schedules; another process composes the copy on each arch, and runs its kernels.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kinfolk_attention_fwd

ARCHS = ("gfx942", "gfx950")
pytestmark = [pytest.mark.simulate, pytest.mark.needs("attention_fwd", *ARCHS)]
CANDIDATES = ("dense", "paged", "segmented")
CAPABILITIES = {
    "kinds.py": ("WIDTHS: Final = (", "WIDTHS: Final = ((112, 112), "),
    "segmented/limits.py": ("HEAD_SIZES: Final = (", "HEAD_SIZES: Final = (112, "),
}
KEY_READ_AHEAD = 2
"""What the new row has, and neither the default nor the row of 128 columns on either arch for whole rows."""
LOOKED_AT = """
import json, sys
from kinfolk.dispatch import dispatch
from kinfolk.errors import Refused
from kinfolk.plugins.composition import compose
from kinfolk_attention_fwd.request import AttentionFwdRequest
from kinfolk_runtime.compilation import compile
from kinfolk_runtime.verify import Runner, run_scenario
from kinfolk_runtime.simulator import Simulator

def asked(layout, candidate):
    return AttentionFwdRequest(
        layout=layout, num_seqs=1, total_q=20, max_seqlen_q=20, max_seqlen_k=70, num_heads=2, num_kv_heads=1,
        head_size=112, head_size_v=112, page_size=16 * (layout == "paged"), num_pages=9 * (layout == "paged"),
        dtype="bf16", kv_dtype="bf16", causal=True, return_lse=True, scale=112**-0.5, num_seg=1,
        candidate="attention_fwd." + candidate,
    )

found = {}
for arch in ("gfx942", "gfx950"):
    composition = compose("attention_fwd", arch)
    for candidate in ("dense", "paged", "segmented"):
        request = asked("dense" if candidate == "dense" else "paged", candidate)
        try:
            artifact = compile(dispatch(request, arch))
        except Refused as refused:
            found[arch + " " + candidate] = sorted({each.field for each in refused.refusals})
            continue
        [scenario] = [each for each in composition.scenarios(request) if each.name == "whole"]
        expected = composition.reference(scenario.request, scenario.inputs())
        report = run_scenario(composition, artifact, scenario, (Runner(Simulator()),), expected)
        spec = artifact.plan.launches[0].spec
        found[arch + " " + candidate] = [report.status, spec.symbol(), getattr(spec, "key_read_ahead", None)]
print(json.dumps(found))
"""


def copied(folder: Path, *, rows: bool) -> Path:
    """Return where a copy of the family lies that serves heads of 112 columns; with a stored row of them if `rows`."""
    [source] = kinfolk_attention_fwd.__path__
    package = folder / "kinfolk_attention_fwd"
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, (before, after) in CAPABILITIES.items():
        text = (package / name).read_text()
        assert text.count(before) == 1
        (package / name).write_text(text.replace(before, after))
    for path in (package / "schedules").glob("*.json") if rows else ():
        document = json.loads(path.read_text())
        document["entries"].append(row_of(document["entries"]))
        path.write_text(json.dumps(document))
    return folder


def row_of(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row of plain heads of 128 columns as one of 112, in another schedule."""
    [like] = [
        each
        for each in entries
        if each["spec"].endswith("AttentionDenseSpec")
        and each["instance"]["head_size"] == 128 == each["instance"]["head_size_v"]
        and each["instance"]["dtype"] == "bf16"
        and not any(value is True for value in each["instance"].values())
    ]
    instance = like["instance"] | {"head_size": 112, "head_size_v": 112}
    return like | {"instance": instance, "schedule": like["schedule"] | {"key_read_ahead": KEY_READ_AHEAD}}


def answers(*folders: Path) -> dict[str, Any]:
    """Return what each candidate made of heads of 112 columns on each arch, the family being in the first folder."""
    path = os.pathsep.join([*map(str, folders), *sys.path])
    command, environment = [sys.executable, "-c", LOOKED_AT], os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_head_size_is_a_change_of_capability_and_a_row(tmp_path: Path) -> None:
    found = answers(copied(tmp_path, rows=True))
    assert set(found) == {f"{arch} {name}" for arch in ARCHS for name in CANDIDATES}
    for name, (status, symbol, ahead) in found.items():
        assert status == "pass" and "_112_" in symbol, name
        assert (ahead == KEY_READ_AHEAD) is name.endswith("dense") or name.endswith("paged"), name


def test_without_it_the_width_is_refused() -> None:
    assert all("head_size" in fields for fields in answers().values())
