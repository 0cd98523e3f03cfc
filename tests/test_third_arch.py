"""Bringing up a third AMD processor takes a distribution and no line elsewhere: a copy of gfx942's for a processor that
nothing here knows, with measured rows of its own, without any, and measured by the tool.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.needs("mla", "gfx942")

SOURCE, NEW, MEASURED = "gfx942", "gfx940", "gfx90a"
TOOL = "tools/measure_legality.py"
Ask = Callable[..., subprocess.CompletedProcess[str]]

LOWER = """
    import json, sys
    from kinfolk import compose
    from kinfolk.errors import IllegalOp
    from kinfolk_amdgcn.testing.kernels import row_kernel
    answer = {}
    for name in sys.argv[1:]:
        arch = compose("mla", name).arch
        try:
            module = arch.lower(row_kernel(arch), None, 22)
            answer[name] = [module.cpu, module.text]
        except IllegalOp as error:
            answer[name] = ["refused", str(error)]
    print(json.dumps(answer))
"""


def lowered(ran: Ask, site: Path, *names: str) -> dict[str, list[str]]:
    """Return the processor and the LLVM IR of a kernel on each arch, or `refused` and why."""
    done = ran([site], "-c", "\n".join(line[4:] for line in LOWER.splitlines()), *names)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def copied(root: Path, folder: Path, name: str) -> Path:
    """Copy the distribution of gfx942 with its tests to that of another processor; every name in it is exchanged."""
    target = folder / "arch" / name
    shutil.copytree(root / "arch" / SOURCE, target, ignore=shutil.ignore_patterns("__pycache__"))
    for path in [*target.rglob("*")]:
        if path.suffix in (".py", ".toml", ".json"):
            path.write_text(path.read_text(encoding="utf-8").replace(SOURCE, name), encoding="utf-8")
    for path in sorted(target.rglob(f"*{SOURCE}*"), reverse=True):
        path.rename(path.with_name(path.name.replace(SOURCE, name)))
    return target


@pytest.fixture(scope="module")
def source(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(root, tmp_path_factory.mktemp("source"), NEW)


@pytest.fixture(scope="module")
def site(source: Path, tmp_path_factory: pytest.TempPathFactory, pip_installed: Callable[[Path, Path], None]) -> Path:
    """Return a folder into which pip installed the copy, from the wheel that it built."""
    folder = tmp_path_factory.mktemp("site")
    pip_installed(source, folder)
    return folder


@pytest.fixture
def changed(site: Path, tmp_path: Path) -> Callable[[Callable[[str], str] | None], Path]:
    """Return a copier of the installed folder with the table of legality changed, or without one."""

    def copy(change: Callable[[str], str] | None) -> Path:
        folder = tmp_path / "site"
        shutil.copytree(site, folder)
        table = folder / f"kinfolk_{NEW}" / "legality.json"
        if change is None:
            table.unlink()
        else:
            text = table.read_text(encoding="utf-8")
            assert change(text) != text
            table.write_text(change(text), encoding="utf-8")
        return folder

    return copy


def listed(ran: Ask, site: Path) -> dict[str, Any]:
    document = json.loads(ran([site], "-m", "kinfolk.cli", "list", "--json").stdout)
    return next(row for row in document["plugins"] if (row["kind"], row["name"]) == ("arch", NEW))


def test_it_comes_up_with_rows_of_its_own(site: Path, ran: Ask) -> None:
    assert (listed(ran, site)["state"], listed(ran, site)["distribution"]) == ("ok", f"kinfolk-{NEW}")
    answer = lowered(ran, site, SOURCE, NEW)
    assert [answer[name][0] for name in (SOURCE, NEW)] == [SOURCE, NEW]
    assert answer[SOURCE][1] == answer[NEW][1], "the processor is the compiler's argument and not in the text"


def test_its_own_row_is_what_counts(changed: Callable[..., Path], ran: Ask) -> None:
    """A row that says otherwise refuses the op here, with the processor and the reason, and nowhere else."""
    call = r'(llvm\.amdgcn\.exp2\.f32\(float \?\)".*)"ok"}, "llvm22": \{("\w+"): "ok"'
    folder = changed(lambda text: re.sub(call, r'\1"ok"}, "llvm22": {\2: "arch_absent"', text))
    answer = lowered(ran, folder, SOURCE, NEW)
    assert answer[SOURCE][0] == SOURCE
    refused, said = answer[NEW]
    assert refused == "refused" and f"core.exp2 is not legal on {NEW}" in said
    assert f"llvm.amdgcn.exp2.f32 is arch_absent on {NEW} with LLVM 22" in said


def test_without_rows_the_message_names_the_tool_and_the_command(changed: Callable[..., Path], ran: Ask) -> None:
    folder = changed(None)
    assert listed(ran, folder)["state"] == "ok"
    answer = lowered(ran, folder, SOURCE, NEW)
    assert answer[SOURCE][0] == SOURCE
    refused, said = answer[NEW]
    assert refused == "refused" and f"has not been measured for {NEW} with LLVM 22" in said
    assert f"`python {TOOL} {NEW}`" in said and "legality.json" in said


def test_a_damaged_table_is_a_state_with_its_cause(changed: Callable[..., Path], ran: Ask) -> None:
    row = listed(ran, changed(lambda text: text[: len(text) // 2]))
    assert row["state"] == "rejected"
    for part in ("kinfolk_arch raised PluginError", "legality.json is no table of legality", "JSONDecodeError", TOOL):
        assert part in row["cause"]


def test_the_copied_tests_run_where_they_lie(root: Path, source: Path, site: Path, ran: Ask) -> None:
    """Facts, gates, atoms and legality of the copy, by the tests in kinfolk-amdgcn that its own tests subclass."""
    work = source.parents[1]
    shutil.copy(root / "pyproject.toml", work)
    shutil.copy(root / "arch" / "conftest.py", work / "arch")
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:benchmark", "-p", "no:xdist", "-m", "not compile")
    done = ran([site], "-m", "pytest", *options, "arch", cwd=work)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    counted = re.search(r"(\d+) passed", done.stdout)
    assert counted is not None and int(counted[1]) > 100


def test_kinfolk_amdgcn_holds_nothing_measured_of_a_processor(root: Path) -> None:
    """Its files other than code name no processor: what is measured lies with each arch."""
    folder = root / "arch" / "amdgcn" / "src"
    data = [path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")]
    assert data, "the candidates at least"
    assert [path.name for path in data if "gfx9" in path.read_text(encoding="utf-8")] == []
    table = root / "arch" / SOURCE / "src" / f"kinfolk_{SOURCE}" / "legality.json"
    assert SOURCE in table.read_text(encoding="utf-8"), "the check would not see it"


@pytest.mark.compile
def test_a_processor_that_nobody_measured_is_measured_by_the_tool(
    root: Path, tmp_path: Path, pip_installed: Callable[[Path, Path], None], ran: Ask
) -> None:
    """A real one, with both LLVMs: it neither multiplies nor widens 8-bit floats, and says so itself afterwards."""
    copy, site = copied(root, tmp_path, MEASURED), tmp_path / "site"
    (copy / "src" / f"kinfolk_{MEASURED}" / "legality.json").unlink()
    pip_installed(copy, site)
    table = site / f"kinfolk_{MEASURED}" / "legality.json"
    assert lowered(ran, site, MEASURED)[MEASURED][0] == "refused"
    done = ran([site], str(root / TOOL), MEASURED)
    assert done.returncode == 0, done.stderr
    assert f"{MEASURED}: " in done.stdout and str(table) in done.stdout and SOURCE not in done.stdout
    rows = {row["statement"]: row for row in json.loads(table.read_text(encoding="utf-8"))["rows"]}
    [eight_bits] = [rows[text] for text in rows if "@llvm.amdgcn.mfma.f32.16x16x32.fp8.fp8(" in text]
    assert eight_bits["used_by"]["llvm22"] == [f"{MEASURED}.mfma_f32_16x16x32_fp8_fp8"]
    assert eight_bits["status"] == {llvm: {MEASURED: "arch_absent"} for llvm in ("llvm20", "llvm22")}
    asked = f"from kinfolk import compose; print(*compose('mla', '{MEASURED}').arch.lacking)"
    assert ran([site], "-c", asked).stdout.split() == ["core.widen_float8"] + [
        f"{MEASURED}.mfma_f32_{size}_{a}_{b}"
        for size in ("16x16x32", "32x32x16")
        for a in ("fp8", "bf8")
        for b in ("fp8", "bf8")
    ]
    cpu, text = lowered(ran, site, MEASURED)[MEASURED]
    assert cpu == MEASURED and "define amdgpu_kernel void @row_sums" in text
