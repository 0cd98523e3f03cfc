"""`kinfolk why` on an installed family: what it prints, which exit status, what is filled in."""

import json

import pytest

SCHEMA = {"schema", "status", "request", "candidates", "selected", "refusals"}


@pytest.fixture(scope="module")
def why(environment):
    here = environment("toy", "toyarch")

    def run(*words, flags=("--json",)):
        return here.kinfolk("why", "toy", "--arch", "toyarch", *flags, *words)

    return run


def test_a_request_that_is_served(why):
    done = why("rows=3", "width=128")
    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert document.keys() == SCHEMA
    assert (document["status"], document["selected"]) == ("pass", "toy.first")
    assert document["request"] == {"rows": 3, "width": 128}
    assert [candidate["name"] for candidate in document["candidates"]] == ["toy.first", "toy.second"]


def test_what_is_filled_in_is_printed(why):
    told = why("rows=3", flags=()).stdout
    assert told.startswith("filled in: width=64\n")
    assert "toy.first" in told
    assert json.loads(why("rows=3").stdout)["request"] == {"rows": 3, "width": 64}
    assert "filled in" not in why("rows=3", "width=64", flags=()).stdout


@pytest.mark.parametrize(
    "words, code, field",
    [
        (("rows=True",), "request.rows.type", "rows"),
        (("rows=2.0",), "request.rows.type", "rows"),
        (("rows=0",), "request.rows.range", "rows"),
        ((), "request.rows.missing", "rows"),
        (("rows=3", "width=65"), "toy.width", "width"),
        (("rows=3", "--flavor", "llvm7"), "flavor.unknown", "flavor"),
        (("rows=3", "--arch", "elsewhere"), "arch.unknown", "arch"),
    ],
)
def test_a_value_that_is_not_taken_is_a_row_and_exit_status_1(why, words, code, field):
    done = why(*words)
    document = json.loads(done.stdout)
    assert (done.returncode, document["status"], document["selected"]) == (1, "refused", None)
    row = document["refusals"][0]
    assert (row["code"], row["field"]) == (code, field)
    assert row["limit"]
    assert row["remedy"]
    told = why(*words, flags=())
    assert told.returncode == 1
    assert row["remedy"] in told.stdout
    assert "Traceback" not in told.stdout + told.stderr


@pytest.mark.parametrize(
    "words, said",
    [
        (("rwos=3",), "no toy field 'rwos'. Did you mean rows?"),
        (("rows",), "'rows' is no field"),
        (("rows=3", "rows=4"), "rows is given twice"),
        (("rows=3", "--falvor", "llvm22"), "--flavor"),
    ],
)
def test_a_word_that_nobody_knows_is_exit_status_2(why, words, said):
    done = why(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
