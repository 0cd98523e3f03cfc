"""The conformance kit's own rules: a check of nothing fails, errors are defects, defects are told as a review."""

import colorsys
import gc
import importlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kinfolk.errors import PluginError
from kinfolk.plugins.containment import inside_plugin
from kinfolk.plugins.discovery import Offer
from kinfolk.plugins.loading import Loaded
from kinfolk.testing import Check, Findings, Outcome, run_check
from kinfolk.testing.purity_checks import watched
from kinfolk.testing.registry import _checks_of


class Something:
    """As much of a subject as running a check asks for."""

    title = "toy on plain"

    def command(self, check):
        return f"kinfolk conformance toy --arch plain --check {check}"


def result_of(run, **more):
    return run_check(Check(name="toy", proves="that it is one", run=run, **more), Something())


def test_a_check_that_looked_at_something_and_found_nothing_passes():
    result = result_of(lambda subject: Outcome(count=3, unit="cases"))
    assert (result.status, result.to_dict()["count"]) == ("pass", 3)


def test_a_check_that_looked_at_nothing_fails_and_says_so():
    result = result_of(lambda subject: Outcome(count=0, unit="cases"))
    assert result.status == "fail"
    assert "checked nothing" in result.review()


@pytest.mark.parametrize(
    "error",
    [PluginError("a hook failed"), RuntimeError("a hook failed"), ZeroDivisionError(), SystemExit(0), GeneratorExit()],
)
def test_what_a_check_raises_is_a_defect(error):
    def run(subject):
        raise error

    result = result_of(run)
    assert result.status == "fail"
    assert (str(error) or type(error).__name__) in result.review()


def test_what_a_check_prints_is_no_part_of_a_command_s_answer():
    """Standard output of a command asks `inside_plugin`."""
    assert result_of(lambda subject: Outcome(count=inside_plugin() + 0, unit="cases")).status == "pass"
    assert not inside_plugin()


def test_who_interrupts_a_check_ends_it():
    def run(subject):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        result_of(run)


class Impostor:
    count, defects = 3, ()


@pytest.mark.parametrize("given", [None, True, 3, Impostor()])
def test_what_a_check_returns_in_place_of_an_outcome_is_a_defect(given):
    result = result_of(lambda subject: given)
    assert result.status == "fail"
    assert "it returns an Outcome" in result.review()


@pytest.mark.parametrize("reason", [True, None, 0])
def test_a_reason_that_is_no_text_is_a_defect(reason):
    result = result_of(lambda subject: Outcome(count=3, unit="cases"), applies=lambda subject: reason)
    assert result.status == "fail"
    assert "it returns a str" in result.review()


@pytest.mark.parametrize("count", [-1, True, 2.0, None])
def test_no_check_looked_at_so_many_cases(count):
    result = result_of(lambda subject: Outcome(count=count, unit="cases"))
    assert result.status == "fail"
    assert "Outcome.count" in result.review()


def test_a_part_that_nothing_looked_at_is_a_defect_beside_others():
    def run(subject, *looked):
        found = Findings("toy", "cases", each=("one", "two"))
        for part in looked:
            found.looked_at(of=part)
        return found.outcome()

    assert result_of(lambda subject: run(subject, "one", "two")).status == "pass"
    result = result_of(lambda subject: run(subject, "one"))
    assert "two: checked nothing of it: cases are of others alone" in result.review()


def test_a_reason_why_a_check_does_not_apply_is_told_and_it_is_not_run():
    result = result_of(lambda subject: pytest.fail("ran"), applies=lambda subject: "it has no tail")
    assert (result.status, result.inapplicable) == ("not applicable", "it has no tail")


def test_a_review_says_where_what_remedy_example_and_how_to_see_it_again():
    def run(subject):
        found = Findings("toy", "cases")
        found.looked_at(2)
        for case in ("x=1", "x=2"):
            found.wrong("kernel.py:41", "is off by one", "count from 0", case)
        return found.outcome()

    assert result_of(run).review().splitlines() == [
        "toy (that it is one) on toy on plain:",
        "kernel.py:41: is off by one (and 1 more like it)",
        "  do: count from 0",
        "  smallest example: x=1",
        "again: kinfolk conformance toy --arch plain --check toy",
    ]


def test_an_entry_point_that_is_no_tuple_of_checks_is_named():
    offer = Offer(kind="check", name="odd", value="odd:CHECKS", distribution="odd", version="1")
    with pytest.raises(PluginError, match=r"check odd \(odd 1\) names \[\], an entry point of kinfolk.checks is"):
        _checks_of(Loaded(offer, []))


def touching(what):
    import datetime
    import os
    import random
    import time

    return {
        "clock": time.monotonic,
        "date": datetime.datetime.now,
        "file": lambda: open(__file__).close(),
        "system": lambda: os.stat(__file__),
        "environment": lambda: os.environ.get("HOME"),
        "chance": random.random,
        "nothing": lambda: sorted([3, 1, 2]),
    }[what]


@pytest.mark.parametrize("what", ["clock", "date", "file", "system", "environment", "chance"])
def test_what_is_touched_is_seen_with_its_line(what):
    act = touching(what)
    _, touched = watched(act, __name__.partition(".")[0])
    assert touched
    assert all(where.startswith("test_testing.py:") for _, where in touched)


def test_what_is_called_when_memory_is_collected_is_not_the_callee_s():
    """As property-based tests do, which time the collector."""
    clock = lambda phase, info: time.perf_counter()  # noqa: E731
    gc.callbacks.append(clock)
    try:
        kept, touched = watched(lambda: [[each] for each in range(10 * gc.get_threshold()[0])], "test_testing")
    finally:
        gc.callbacks.remove(clock)
    assert (touched, gc.isenabled(), len(kept)) == ([], True, 10 * gc.get_threshold()[0])


def test_computing_touches_nothing():
    act = touching("nothing")
    _, touched = watched(lambda: (act(), importlib.reload(colorsys)), "anything")  # reading a module is Python's
    assert touched == []


PROFILED = """
from {module} import Profile
from test_testing import touching
from kinfolk.testing.purity_checks import watched

def after():
    return sorted([2, 1])

profile = Profile()
answer = profile.runcall(lambda: (watched(touching("file"), "test_testing")[1], after())[0])
profile.create_stats()
print(len(answer) > 0, any(name == "after" for _, _, name in profile.stats))
"""


@pytest.mark.parametrize("module", ["cProfile", "profile"])
def test_a_profiler_that_runs_around_it_sees_what_comes_after_and_does_not_disturb(module):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])}
    command = [sys.executable, "-c", PROFILED.format(module=module)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "True True\n", done.stderr
