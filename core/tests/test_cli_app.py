"""The command line itself: verbs, usage errors, exit status, documents."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kinfolk.cli.app import app
from kinfolk.cli.output import print_document, print_refusals, refusals_of
from kinfolk.errors import KinfolkError
from kinfolk.flavor import UnknownFlavor, flavor_named
from kinfolk.plugins.faults import State, UnknownPlugin, UnusablePlugin

ROW = {"code", "kind", "field", "value", "limit", "because", "remedy", "plugin"}


def run(*arguments):
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["lst"], "no verb 'lst'. Did you mean list?"),
        (["--nonsense"], "No such option"),
        (["list", "--jsn"], "--json"),
        (["list", "--time-limit", "soon"], "--time-limit"),
        (["why"], "Missing argument"),
        (["why", "rows", "a=1"], "Missing option '--arch'"),
    ],
)
def test_what_nobody_knows_is_exit_status_2_with_a_hint(arguments, said):
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_help_and_version_pass():
    assert run("--help").exit_code == run("--version").exit_code == run("list", "--help").exit_code == 0
    assert "why" in run("--help").stdout


@pytest.mark.parametrize("kind, arguments", [("family", ("why", "nosuch", "--arch", "nowhere"))])
def test_a_family_that_is_not_installed_is_a_refusal_row(kind, arguments):
    result = run(*arguments, "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert document.keys() == {"schema", "status", "request", "candidates", "selected", "refusals"}
    assert (document["schema"], document["status"], document["selected"]) == ("kinfolk.why/1", "refused", None)
    [row] = document["refusals"]
    assert row.keys() == ROW
    assert (row["code"], row["value"]) == (f"{kind}.unknown", "nosuch")
    assert "pip install kinfolk-nosuch" in row["remedy"]
    told = run(*arguments)
    assert told.exit_code == 1
    assert "pip install kinfolk-nosuch" in told.stdout


@pytest.mark.parametrize(
    "error, code",
    [
        (UnknownPlugin("arch", "x", ()), "arch.unknown"),
        (UnusablePlugin("family", "x", "acme-x", State.TIME_OUT, "c"), "family.time_out"),
        (KinfolkError("something"), "error.kinfolk_error"),
    ],
)
def test_every_error_has_the_form_of_a_refusal(error, code):
    [row] = refusals_of(error)
    assert row.keys() == ROW
    assert row["code"] == code


def test_python_m_kinfolk_is_the_command_line():
    done = subprocess.run([sys.executable, "-m", "kinfolk", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.partition(",")[0]) == (0, "kinfolk")


def test_a_flavor_that_is_none_is_a_row_with_its_value():
    with pytest.raises(UnknownFlavor) as caught:
        flavor_named("llvm21")
    [row] = refusals_of(caught.value)
    assert (row["value"], row["limit"], row["remedy"]) == ("llvm21", "llvm20 or llvm22", "Pass --flavor llvm22.")


def test_sentences_end_once_and_missing_fields_are_one_sentence(capsys):
    rows = refusals_of(UnusablePlugin("family", "x", "acme-x", State.NOT_ALLOWED, "It is off. Turn it on."))
    missing = [
        {
            **rows[0],
            "code": f"request.{name}.missing",
            "field": name,
            "limit": "a word",
            "remedy": "See.",
            "plugin": "p",
        }
        for name in "ab"
    ]
    print_refusals([*rows, *missing])
    first, second = capsys.readouterr().out.splitlines()
    assert "(It is off. Turn it on). kinfolk list" in first
    assert second == "p: missing: a (a word), b (a word). See."


def test_what_two_candidates_say_word_for_word_is_told_once_in_its_order(capsys):
    row = {"code": "a.x", "plugin": "p", "field": "x", "value": "3", "limit": "2", "because": "so", "remedy": "Pass 2."}
    print_refusals([row, row | {"code": "b.x", "limit": "1"}, row | {"code": "c.x"}])
    limits = [line.partition("supported: ")[2][0] for line in capsys.readouterr().out.splitlines()]
    assert limits == ["2", "1"]


def test_documents_hold_no_bare_infinities(capsys):
    print_document({"margin": float("inf"), "rows": [float("nan"), 1.5, (True, None)]})

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    found = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert found == {"margin": "inf", "rows": ["nan", 1.5, [True, None]]}


def test_documents_hold_no_half_characters_and_no_endless_numbers(capsys):
    print_document({"a\udcff": "b\udcff", "n": 10**5000, "é": "é", "m": 2**64})
    found = json.loads(capsys.readouterr().out)
    assert found == {"a\\udcff": "b\\udcff", "n": "an int of 16610 bits", "é": "é", "m": 2**64}


@pytest.mark.parametrize("redirect", ["2>&-", "<&- 2>&-", "<&-"])
def test_a_closed_stream_is_no_failure(redirect):
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m kinfolk.cli list --json {redirect}"], capture_output=True, check=False
    )
    assert done.returncode == 0 and json.loads(done.stdout)["schema"] == "kinfolk.list/1"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device here is always full")
def test_output_that_cannot_be_written_is_a_failure_that_says_so():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kinfolk.cli", "list", "--json"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert b"No space left on device" in done.stderr and b"Traceback" not in done.stderr


@pytest.mark.parametrize("limit", ["inf", "nan", "0", "-1"])
def test_a_time_limit_is_a_number_of_seconds(limit):
    done = subprocess.run(
        [sys.executable, "-m", "kinfolk.cli", "list", "--time-limit", limit], capture_output=True, check=False
    )
    assert done.returncode == 2 and b"--time-limit" in done.stderr


def test_without_click_the_extra_is_named():
    code = "import sys\nsys.modules['click'] = None\nfrom kinfolk.cli import main\nmain(['list'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "kinfolk: the command line needs click: pip install 'kinfolk-core[cli]'\n",
    )


def test_the_console_script_and_the_module_are_one(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "kinfolk.cli", "list", "--json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert document["core"]["distribution"] == "kinfolk-core"
    verbs = {row["name"]: row["state"] for row in document["plugins"] if row["kind"] == "command"}
    assert verbs["list"] == verbs["why"] == "ok"


def test_the_help_of_a_verb_with_verbs_says_whole_sentences():
    told = " ".join(run("new", "--help").stdout.split())
    assert "which offers the arch NAME: a made-up machine with waves of 32 lanes" in told
