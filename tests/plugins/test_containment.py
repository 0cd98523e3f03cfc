"""Whatever a plugin raises, prints or changes: the command names it, ends with status 1, and the others work."""

import json

import pytest

QUICK = """
import sys
import kinfolk.cli.process as process
process.PROBE_SECONDS = process.IMPORT_SECONDS = 1.0
from kinfolk.cli import main
main(sys.argv[1:])
"""


def quick(environment, *arguments):
    """Run the command line with short time limits."""
    return environment.run("-c", QUICK, *arguments)


def why(name, *more):
    return "why", name, "--arch", "toyarch", "rows=4", "--json", *more


FAULTS = [
    ("planexit", "Candidate.plan of planexit.first raised SystemExit: 0 (acme_planexit/plugin.py:"),
    ("planmut", "Candidate.plan of planmut.first changed ToyRequest.width from 64 to 128"),
    ("symbolexit", "ToySpec.symbol raised SystemExit: 0"),
    ("symbolodd", "ToySpec.symbol returned '../x', it returns a str of"),
    ("parametersodd", "ToySpec.parameters returned [3], it returns a tuple of Parameter"),
    ("liar", "overrides identity, which keys are made of"),
    ("defaultsexit", "ToyRequest.cli_defaults raised SystemExit: 0"),
    ("defaultsodd", "ToyRequest.cli_defaults fills in depth, ToyRequest has no such field"),
    ("defaultsbad", "ToyRequest.cli_defaults fills in width = 2.5, which its field refuses"),
    ("checkexit", "ToyRequest raised SystemExit: 0"),
    ("named", "Candidate.name must be words of letters, digits and _ joined by dots"),
    ("worded", "Candidate.priority takes a Python int, got 'high'"),
]


@pytest.mark.parametrize("name, told", FAULTS)
def test_what_a_family_does_outside_its_hooks_is_named(environment, name, told):
    done = environment(name, "toyarch").kinfolk(*why(name))
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stderr
    document = json.loads(done.stdout)
    assert (document["status"], document["selected"]) != ("pass", f"{name}.first")
    [row] = document["refusals"]
    assert told in row["because"]


def test_the_same_checks_pass_a_good_family(environment):
    """Negative control."""
    done = environment("toy", "toyarch").kinfolk(*why("toy"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["selected"] == "toy.first"


@pytest.mark.parametrize(
    "name, told",
    [("specsexit", "raised SystemExit: 0"), ("specsjunk", "gave 1 among its specs, each is a Spec")],
)
def test_a_spec_space_that_fails_is_named(environment, name, told):
    done = environment(name, "toyarch").kinfolk("resources", name, "--arch", "toyarch", "--json")
    assert done.returncode == 1
    [row] = json.loads(done.stdout)["refusals"]
    assert f"Candidate.specs of {name}.first {told}" in row["because"]


BROKEN_POLICIES = [
    ("pexits", "its import ended the process with exit status 0"),
    ("pinterrupts", "KeyboardInterrupt"),
    ("phangs", "(time-out): its import did not end within 1 s"),
    ("badpolicy", "RuntimeError: no table"),
]


@pytest.mark.parametrize("name, told", BROKEN_POLICIES)
def test_a_broken_policy_is_left_out_and_said(environment, name, told):
    done = quick(environment("toy", "toyarch", name), *why("toy"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["selected"] == "toy.first"
    assert f"policy {name}" in done.stderr and told in done.stderr


def test_a_policy_that_works_is_still_asked(environment):
    """Negative control: leaving out is for broken ones."""
    done = quick(environment("toy", "toyarch", "reverse"), *why("toy"))
    assert json.loads(done.stdout)["selected"] == "toy.second" and "left out" not in done.stderr


def test_a_family_that_hangs_ends_the_command_by_name(environment):
    done = quick(environment("hangs", "toyarch"), *why("hangs"))
    assert done.returncode == 1
    assert "family hangs (kinfolk-hangs 1.0) cannot be used (time-out)" in done.stderr


@pytest.mark.parametrize("name, call", [("vanishes", "os._exit(0)"), ("crashes", "os.abort()")])
@pytest.mark.parametrize("verb", ["why", "resources"])
def test_a_family_whose_import_ends_the_process_is_named(environment, verb, name, call):
    done = environment(name, "toyarch").kinfolk(verb, *why(name)[1:])
    assert done.returncode == 1
    told = f"family {name} (kinfolk-{name} 1.0) cannot be used (import error): its import ended the process by {call}"
    assert f"Error: {told}\n" in done.stderr


def test_where_native_code_crashes_on_import_the_file_is_told(environment):
    done = environment("segfaults", "toyarch").kinfolk(*why("segfaults"))
    assert done.returncode != 0
    assert "Segmentation fault" in done.stderr and "acme_segfaults" in done.stderr


def test_an_import_may_fork_a_child_that_ends_itself(environment):
    """Negative control: the child's end is not the command's."""
    done = environment("forks", "toyarch").kinfolk(*why("forks"))
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["selected"] == "forks.first"


@pytest.mark.parametrize(
    "name, told",
    [
        ("pchanges", "kinfolk_rank changed ToyRequest.rows from 4 to 9"),
        ("pfacts", "kinfolk_admit_candidate raised TypeError: 'Facts' object does not support item assignment"),
    ],
)
def test_a_policy_that_changes_what_it_is_lent_is_named(environment, name, told):
    done = environment("toy", "toyarch", name).kinfolk(*why("toy"))
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert told in document["refusals"][0]["because"] and document["refusals"][0]["plugin"].startswith(f"policy {name}")
    assert document["request"]["rows"] == 4


def test_what_plugins_print_is_no_answer(environment):
    done = environment("printing", "toyarch").kinfolk(*why("printing"))
    assert json.loads(done.stdout)["selected"] == "printing.first"
    assert done.stderr.count("NOISE") >= 2


def test_verbs_of_ours_stand_and_others_of_their_names_are_conflicts(environment):
    here = environment("verbs", "toy", "toyarch")
    assert here.kinfolk(*why("toy")).returncode == 0
    rows = json.loads(here.kinfolk("list", "--json").stdout)["plugins"]
    states = {(row["name"], row["distribution"]): row["state"] for row in rows if row["kind"] == "command"}
    assert states["list", "kinfolk-core"] == states["why", "kinfolk-core"] == states["ends", "acme-verbs"] == "ok"
    assert states["list", "acme-verbs"] == states["why", "acme-verbs"] == "conflict"


@pytest.mark.parametrize("verb, told", [("ends", "ends ended itself: SystemExit: 0"), ("raises", "ValueError: inside")])
def test_a_verb_of_others_that_exits_or_raises_is_a_failure_that_says_so(environment, verb, told):
    done = environment("verbs").kinfolk(verb)
    assert done.returncode == 1 and told in done.stderr and "Traceback" not in done.stderr


def test_wrong_toolchains_and_executors_are_rows_of_doctor(environment):
    done = environment("gates").kinfolk("doctor", "--json")
    checks = {(check["group"], check["name"]): check for check in json.loads(done.stdout)["checks"]}
    assert checks["llvm", "gate"]["state"] == "ok"
    assert "gave 3, a toolchain has" in checks["llvm", "nothing"]["remedy"]
    assert "TypeError" in checks["llvm", "instance"]["remedy"]
    assert "flavors raised SystemExit: 0" in checks["llvm", "raising"]["remedy"]
    assert "3 has no method run and no name" in checks["runs", "nobody"]["remedy"]
    assert {checks["llvm", name]["state"] for name in ("nothing", "instance", "raising")} == {"broken"}
    assert checks["runs", "simulator"]["state"] == "ok"


def test_an_arch_that_lowers_to_nothing_is_named(environment):
    code = """
    import kinfolk
    from kinfolk.plugins.composition import compose
    arch = compose('toy', 'toyarch').arch
    answer = []
    for call in (lambda: arch.lower(None, None, 22), lambda: arch.usage(b'', 'x')):
        try:
            call()
        except kinfolk.PluginError as error:
            answer.append(str(error))
    """
    lowered, read = environment("toy", "toyarch").ask(code)
    assert lowered == "arch toyarch: lower_kernel returned None, it returns a LoweredModule"
    assert read == "arch toyarch: read_usage returned None, it returns a Usage"


@pytest.mark.parametrize("name, told", [("writing", "read-only"), ("toy", "")])
def test_a_reference_gets_inputs_that_it_cannot_write(environment, name, told):
    code = f"""
    import kinfolk, numpy
    from kinfolk.plugins.composition import compose
    inputs = {{'x': numpy.ones(3)}}
    answer = ''
    try:
        compose('{name}', 'toyarch').reference(None, inputs)
    except kinfolk.PluginError as error:
        answer = str(error)
    assert inputs['x'].tolist() == [1, 1, 1] and inputs['x'].flags.writeable
    """
    answer = environment(name, "toyarch").ask(code)
    assert told in answer and bool(told) == bool(answer)
