"""Every way in which an installed plugin can be broken is a row of `kinfolk list`, and nothing else changes."""

import json

import pytest

BROKEN = [
    "raises",
    "exits",
    "panics",
    "hangs",
    "crashes",
    "chatty",
    "oldapi",
    "newapi",
    "noapi",
    "oddapi",
    "oldfacts",
    "nofacts",
    "misnamed",
    "tableless",
    "factless",
    "dozing",
    "badhook",
    "left",
    "right",
    "oddgroup",
    "badpolicy",
    "badcommand",
]

ROWS = {
    ("family", "raises"): ("import error", "ValueError: the driver is missing (plugin.py, line 2)"),
    ("family", "exits"): ("import error", "SystemExit: no licence"),
    ("family", "hangs"): ("time-out", "did not end within 3 s"),
    ("family", "panics"): ("import error", "Panic: its message cannot be printed (plugin.py, line 5)"),
    ("family", "crashes"): ("import error", "SIGABRT"),
    ("family", "chatty"): ("import error", "ImportError: after noise"),
    ("family", "oldapi"): (
        "api mismatch",
        "kinfolk-oldapi 1.0 is written for kinfolk.api 0, kinfolk-core 0.1.0 has kinfolk.api 1",
    ),
    ("family", "newapi"): ("api mismatch", "Update kinfolk-core"),
    ("family", "noapi"): ("api mismatch", 'Declare "1" = "acme_noapi" in its group kinfolk.api'),
    ("family", "oddapi"): ("api mismatch", "which is no integer"),
    ("arch", "oldfacts"): (
        "api mismatch",
        "kinfolk-oldfacts 1.0 is written for kinfolk.facts_schema 7, kinfolk-core 0.1.0 has kinfolk.facts_schema 1",
    ),
    ("arch", "nofacts"): ("api mismatch", "declares no kinfolk.facts_schema"),
    ("arch", "misnamed"): ("rejected", "kinfolk_arch returned the arch 'another', the entry point offers 'misnamed'"),
    ("arch", "tableless"): ("rejected", "kinfolk_arch raised FileNotFoundError: [Errno 2]"),
    ("arch", "factless"): ("rejected", "factless bounds workgroup_bytes by its fact 'lds' = None"),
    ("arch", "dozing"): ("time-out", "its import or its kinfolk_arch did not end within 3 s"),
    ("family", "badhook"): (
        "rejected",
        "kinfolk_emit_ir takes (spec, arch), the plugin's takes (spec, architecture): unknown: architecture",
    ),
    ("family", "both"): (
        "conflict",
        "offered by acme-left 1.0 (acme_left.plugin) and by acme-right 1.0 (acme_right.plugin)",
    ),
    ("policy", "badpolicy"): ("import error", "RuntimeError: no table"),
    ("command", "hello"): ("import error", "ZeroDivisionError"),
}

QUERY = """
import kinfolk, kinfolk.plugins.composition
from kinfolk_toy.plugin import ToyRequest
request = ToyRequest(rows=3, width=64)
plan = kinfolk.dispatch(request, "toyarch")
answer = [plan.data(), kinfolk.why(request, "toyarch").to_dict()]
"""


@pytest.fixture(scope="module")
def listing(environment):
    done = environment("toy", "toyarch", *BROKEN).kinfolk("list", "--json", "--time-limit", "3")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def rows(document):
    return {(row["kind"], row["name"]): row for row in document["plugins"]}


@pytest.mark.parametrize("key", ROWS, ids="-".join)
def test_a_broken_plugin_is_a_row_with_its_state_and_cause(listing, key):
    state, cause = ROWS[key]
    row = rows(listing)[key]
    assert row["state"] == state
    assert cause in row["cause"]


def test_good_plugins_beside_them_are_ok(listing):
    found = rows(listing)
    for key in (("family", "toy"), ("arch", "toyarch"), ("command", "list"), ("command", "why")):
        assert (found[key]["state"], found[key]["cause"]) == ("ok", "")
    toy = found["family", "toy"]
    assert (toy["distribution"], toy["version"], toy["value"]) == ("kinfolk-toy", "1.0", "kinfolk_toy.plugin")


def test_both_sides_of_a_conflict_are_listed(listing):
    owners = {row["distribution"] for row in listing["plugins"] if row["name"] == "both"}
    assert owners == {"acme-left", "acme-right"}


def test_every_difference_of_a_rejected_plugin_is_told(listing):
    cause = rows(listing)["family", "badhook"]["cause"]
    assert "kinfolk_refrence is not a hook" in cause
    assert "does not implement kinfolk_reference" in cause
    assert "kinfolk_scenarios is not marked" in cause


def test_a_group_nobody_reads_is_noted(listing):
    assert any("kinfolk.famlies" in note and "acme-oddgroup" in note for note in listing["notes"])


def test_the_table_says_the_same(environment):
    done = environment("toy", "toyarch", "raises").kinfolk("list")
    assert done.returncode == 0
    [row] = [line for line in done.stdout.splitlines() if line.startswith("raises")]
    assert "import error" in row
    assert "the driver is missing" in row


def test_broken_plugins_change_nothing_but_the_listing(environment):
    alone, crowded = environment("toy", "toyarch"), environment("toy", "toyarch", *BROKEN)
    assert crowded.ask(QUERY) == alone.ask(QUERY)
    arguments = ("why", "toy", "--arch", "toyarch", "rows=3")
    one, other = alone.kinfolk(*arguments), crowded.kinfolk(*arguments)
    assert one.returncode == 0, one.stderr
    assert (one.returncode, one.stdout) == (other.returncode, other.stdout)
    [note] = other.stderr.splitlines()  # a policy is used by who did not ask for it: it is said to be left out
    assert (one.stderr, note.partition(" is left out")[0]) == ("", "note: policy badpolicy (acme-badpolicy 1.0)")


def test_the_comparison_sees_a_plugin_that_does_change_selection(environment):
    """Negative control: a good policy beside toy changes the very answer that broken plugins must leave alone."""
    assert environment("toy", "toyarch", "reverse").ask(QUERY) != environment("toy", "toyarch").ask(QUERY)


def test_help_imports_no_plugin_and_tells_of_broken_commands(environment):
    done = environment("badcommand").kinfolk("--help")
    assert done.returncode == 0
    assert "Say hello. (acme-badcommand)" in " ".join(done.stdout.split())
    failed = environment("badcommand").kinfolk("hello")
    assert failed.returncode == 1
    assert "command hello of acme-badcommand cannot be used (import error)" in failed.stderr
    assert "Traceback" not in failed.stderr
