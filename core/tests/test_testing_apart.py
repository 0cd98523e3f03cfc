"""Checks in a process apart: those that hang or end it are defects of their own, and every other one is run."""

import os
import signal
import time

import pytest

from kinfolk.plugins.containment import contained
from kinfolk.testing import Check, Outcome, run_check
from kinfolk.testing import apart as module
from kinfolk.testing.apart import results

SECONDS = 0.5


class Something:
    """As much of a subject as running a check asks for."""

    title = package = "test_testing_apart"

    def command(self, check):
        return f"kinfolk conformance toy --check {check}"


def passes(subject):
    return Outcome(count=os.getpid(), unit="processes")


def sleeps(subject):
    time.sleep(60)


def sleeps_in_a_plugin(subject):
    contained("toy", "kinfolk_toy", sleeps, subject, take=lambda answer: answer)


def goes_on_whatever_is_raised(subject):
    for _ in range(2):
        try:
            sleeps(subject)
        except BaseException:  # noqa: BLE001 - as a plugin may
            continue


def hangs_outside_python(subject):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})  # as if no line of Python were run
    time.sleep(60)


def exits(subject):
    os._exit(3)


def is_killed(subject):
    os.kill(os.getpid(), signal.SIGKILL)


def tells(subject):
    subject.progress("1 of 2")
    return passes(subject)


def after(*runs, seconds=SECONDS, told=lambda check, how_far: None):
    checks = [Check(name=run.__name__, proves="that it is one", run=run) for run in runs]
    return list(results(Something(), checks, seconds, told))


@pytest.mark.parametrize("run", [sleeps, sleeps_in_a_plugin])
def test_a_check_that_hangs_is_stopped_where_it_is(run):
    hung, other = after(run, passes)
    assert (hung.status, other.status) == ("fail", "pass")
    [defect] = hung.outcome.defects
    line = sleeps.__code__.co_firstlineno + 1
    told = f"is not done after {SECONDS} s; it was stopped in test_testing_apart.py, line {line}, in sleeps"
    assert defect.problem == told and "--time-limit" in defect.remedy


@pytest.mark.parametrize(
    "run, told",
    [
        (hangs_outside_python, f"is not done after {SECONDS} s; its process was killed, since it hangs outside Python"),
        (exits, "ended the process it ran in (exit status 3)"),
        (is_killed, "ended the process it ran in (SIGKILL)"),
    ],
)
def test_a_check_whose_process_is_lost_is_told_and_the_others_are_run(run, told, monkeypatch):
    monkeypatch.setattr(module, "GRACE", 0.5)
    first, lost, last = after(passes, run, passes)
    assert [each.status for each in (first, lost, last)] == ["pass", "fail", "pass"]
    assert [defect.problem for defect in lost.outcome.defects] == [told]
    assert last.outcome.count not in (os.getpid(), first.outcome.count)


def test_a_check_that_goes_on_whatever_is_raised_is_stopped_again():
    """It comes to an end once its own patience does; what it then says is none of an outcome."""
    [result] = after(goes_on_whatever_is_raised)
    assert result.status == "fail"


def test_checks_share_a_process_which_is_this_one_without_a_limit():
    one, two = after(passes, passes)
    assert one.outcome.count == two.outcome.count != os.getpid()
    [here] = after(passes, seconds=0.0)
    assert here.outcome.count == os.getpid()


def test_how_far_a_check_is_comes_over_as_it_begins_and_goes_on():
    heard = []
    after(tells, told=lambda check, how_far: heard.append((check.name, how_far)))
    assert heard == [("tells", ""), ("tells", "1 of 2")]


def test_a_limit_in_this_process_leaves_the_timer_and_the_handler_as_they_were():
    before = signal.getsignal(signal.SIGALRM)
    check = Check(name="sleeps", proves="nothing", run=sleeps)
    assert run_check(check, Something(), 0.1).status == "fail"
    assert run_check(Check(name="passes", proves="all", run=passes), Something(), 60.0).status == "pass"
    assert (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)) == (before, (0.0, 0.0))


def test_the_user_s_interrupt_is_no_defect():
    def interrupted(subject):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_check(Check(name="interrupted", proves="nothing", run=interrupted), Something(), 60.0)
