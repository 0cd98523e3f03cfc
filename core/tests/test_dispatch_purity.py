"""Selection touches no file, clock, environment or device."""

import re
from pathlib import Path

import pytest
from dispatch_toy import ToySpec, candidate, ran, toy_plan

PURITY = """
    import os, random, sys, time
    sys.path.insert(0, {folder!r})
    import dispatch_toy as toy, test_dispatch_purity
    from kinfolk.dispatch import SelectionCache, explain
    from kinfolk.errors import NoCandidate, PluginError
    touched = []

    class Forbidden:
        def __getattr__(self, name):
            touched.append("environment")
            raise RuntimeError("environment")
        __getitem__ = __contains__ = __iter__ = lambda self, *key: self.touch

    def forbid(name):
        def touch(*args, **kwargs):
            touched.append(name)
            raise RuntimeError(name)
        return touch

    EVENTS = ("open", "os.", "socket.", "subprocess.", "ctypes.", "import", "shutil.", "tempfile.", "mmap.", "glob.")

    def audit(event, args):
        if armed and event.startswith(EVENTS):
            touched.append(event)

    armed = False
    sys.addaudithook(audit)
    for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time"):
        setattr(time, name, forbid("clock"))
    random.random = os.urandom = forbid("chance")
    os.environ = os.environb = Forbidden()
    os.getenv = forbid("environment")
    composition = toy.Composition(toy.candidates() if not {culprit!r} else [test_dispatch_purity.CULPRITS[{culprit!r}]])
    armed = True
    try:
        for heads in (16, 64, 17):
            try:
                SelectionCache().plan(composition, toy.ToyRequest(num_heads=heads), "llvm22")
            except NoCandidate:
                pass
            explain(composition, toy.ToyRequest(num_heads=heads), "llvm20").to_dict()
    except (RuntimeError, PluginError):
        pass
    armed = False
    print(sorted(set(touched)))
"""


def reading_file(request, arch):
    Path(__file__).exists()
    with Path(__file__).open():
        return toy_plan(ToySpec(width=1), request)


def reading_clock(request, arch):
    import time

    time.monotonic()
    return toy_plan(ToySpec(width=1), request)


def reading_environment(request, arch):
    import os

    os.environ.get("HOME")
    return toy_plan(ToySpec(width=1), request)


CULPRITS = {
    "open": candidate("a", plan=reading_file),
    "clock": candidate("a", plan=reading_clock),
    "environment": candidate("a", plan=reading_environment),
}


def test_selection_touches_no_file_clock_environment_or_device():
    assert ran(PURITY.format(folder=str(Path(__file__).parent), culprit="")) == "[]\n"


@pytest.mark.parametrize("culprit", CULPRITS)
def test_the_purity_check_sees_a_plan_that_touches(culprit):
    """Negative control: the same check on a candidate whose plan reads a file, the clock or the environment."""
    assert culprit in re.findall(r"'([a-z.]+)'", ran(PURITY.format(folder=str(Path(__file__).parent), culprit=culprit)))
