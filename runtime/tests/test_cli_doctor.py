"""`doctor`: what is broken and needed fails, what is optional or a stranger's does not; each says what to do."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from kinfolk.cli.probing import Row
from kinfolk.errors import ToolError
from kinfolk.plugins.faults import State
from kinfolk_runtime.cli import doctor, health
from kinfolk_runtime.cli.health import Check


def row(kind: str, name: str, distribution: str = "kinfolk-runtime", state: State = State.OK, cause: str = "") -> Row:
    return Row(name=name, kind=kind, distribution=distribution, version="0.1.0", value="m", state=state, cause=cause)


def checks(*rows: Row) -> dict[tuple[str, str], Check]:
    return {(check.group, check.name): check for check in health.health(rows)}


def test_a_strangers_broken_plugin_is_told_and_fails_nothing():
    broken = row("family", "odd", "acme-odd", State.IMPORT, "ModuleNotFoundError: acme")
    found = checks(broken)["family", "odd"]
    assert (found.state, found.failed, found.remedy) == ("broken", False, "ModuleNotFoundError: acme")


def test_our_own_broken_plugin_fails():
    assert checks(row("executor", "simulator", state=State.IMPORT, cause="c"))["executor", "simulator"].failed


def test_a_plugin_that_the_allow_list_leaves_out_is_no_failure():
    found = checks(row("toolchain", "llvmlite", state=State.NOT_ALLOWED, cause="c"))["toolchain", "llvmlite"]
    assert (found.state, found.failed) == ("missing", False)


def test_without_executor_and_toolchain_the_host_is_broken():
    found = checks()
    assert found["executor", "any"].failed
    assert found["flavor", "llvm22"].failed
    assert not found["flavor", "llvm20"].failed and "doctor --install llvm20" in found["flavor", "llvm20"].remedy


def test_a_distribution_of_another_version_fails_and_names_the_right_one(monkeypatch):
    monkeypatch.setattr(health, "_version", lambda name: "9.9" if name == "kinfolk-runtime" else "0.1.0")
    found = checks()
    assert found["distribution", "kinfolk-runtime"].failed
    assert found["distribution", "kinfolk-runtime"].remedy == "pip install kinfolk-runtime==0.1.0"
    assert not found["distribution", "kinfolk-core"].failed


@pytest.mark.parametrize("extra, failed", [("", True), ('; extra == "cli"', True), ("; extra == 'plot'", False)])
def test_a_library_of_an_extra_is_optional_but_for_the_command_lines(monkeypatch, extra, failed):
    wanted = [("nosuchlib", f">=3{extra}")]
    monkeypatch.setattr(health, "_requirements", lambda name: wanted if "runtime" in name else [])
    found = checks()["library", "nosuchlib"]
    assert (found.state, found.failed) == ("missing", failed)


def test_a_library_that_is_missing_fails_and_says_who_wants_it(monkeypatch):
    monkeypatch.setattr(health, "_requirements", lambda name: [("nosuchlib", ">=3")] if "runtime" in name else [])
    found = checks()["library", "nosuchlib"]
    assert found.failed
    assert found.remedy == "pip install nosuchlib (kinfolk-runtime wants nosuchlib >=3)"


@pytest.mark.parametrize(
    "said, state",
    [
        ("echo 'LLD 22.1.8'", "ok"),
        ("echo 'LLD 23.0.0'", "ok"),
        ("echo 'LLD 14.0.6'", "missing"),
        ("exit 3", "missing"),
    ],
)
def test_a_tool_counts_from_the_default_flavors_generation_on(monkeypatch, tmp_path, said, state):
    tool = tmp_path / "ld.lld"
    tool.write_text(f"#!/bin/sh\n{said}\n")
    tool.chmod(0o755)
    monkeypatch.setattr(
        "kinfolk_runtime.toolchains.tool.paths_on_host", lambda name: [tool] if name == "ld.lld" else []
    )
    found = checks()["tool", "ld.lld"]
    assert (found.state, found.failed) == (state, False)
    assert "apt install lld-22" in found.remedy or state == "ok"
    assert checks()["tool", "llvm-objdump"].state == "missing"


def test_a_toolchain_that_does_not_start_is_told_with_its_remedy(monkeypatch):
    def refuse(name):
        raise ToolError("it is not installed. Run: this")

    monkeypatch.setattr("kinfolk_runtime.toolchains.host.named_toolchain", refuse)
    found = checks(row("toolchain", "llvmlite20"))["llvm", "llvmlite20"]
    assert (found.state, found.failed, found.remedy) == ("missing", False, "it is not installed. Run: this")


def test_only_what_is_offered_can_be_installed():
    result = CliRunner().invoke(doctor.command, ["--install", "llvm7"])
    assert (result.exit_code, "llvm20 can" in result.stderr) == (2, True)


@pytest.mark.parametrize("required, status", [(True, 1), (False, 0)])
def test_the_exit_status_follows_what_is_needed(monkeypatch, required, status):
    monkeypatch.setattr("kinfolk.cli.probing.probed_rows", lambda limit: [])
    monkeypatch.setattr(
        health, "health", lambda rows: iter([Check(group="g", name="n", state="missing", required=required)])
    )
    result = CliRunner().invoke(doctor.command, ["--json"])
    document = json.loads(result.stdout)
    assert (result.exit_code, document["schema"]) == (status, "kinfolk.doctor/1")
    assert document["status"] == ("fail" if required else "pass")
    assert document["checks"][0].keys() == {"group", "name", "state", "required", "found", "remedy"}
    told = CliRunner().invoke(doctor.command)
    assert told.exit_code == status
    assert ("broken: g n" if required else "missing, optional") in told.stdout


def test_an_arch_is_judged_by_an_empty_kernel_that_compiles(monkeypatch):
    assert checks(row("arch", "nosuch"))["target", "nosuch"].state == "broken"


def test_storage_that_cannot_be_written_is_told_with_the_cause_and_fails_nothing(monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.write_text("kept")
    for root in (file, file / "below"):
        monkeypatch.setenv("KINFOLK_CACHE_DIR", str(root))
        found = checks()["host", "storage"]
        assert (found.standing, found.failed, found.found) == ("broken, optional", False, str(root))
        assert "cannot be written (" in found.remedy and "KINFOLK_CACHE_DIR" in found.remedy
    monkeypatch.setenv("KINFOLK_CACHE_DIR", str(tmp_path / "new" / "folder"))
    assert checks()["host", "storage"].state == "ok"
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    assert file.read_text() == "kept"
