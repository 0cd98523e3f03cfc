"""Races between workgroups: the verdict is that of the sets of who did what, in every order of workgroups."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from kinfolk.ir.types import I32
from kinfolk_runtime.simulator.buffers import SparseBuffer
from kinfolk_runtime.simulator.space import AddressSpace
from kinfolk_runtime.simulator.traffic import ADDED, LOADED, STORED, Traffic

ROLES = (LOADED, STORED, ADDED)


def watched(declare, access="readwrite", array=None):
    memory = AddressSpace(0)
    memory.map(declare("x", I32, access), array if array is not None else SparseBuffer(64, {0: np.zeros(16, np.int32)}))
    [mapped] = memory.buffers
    return Traffic(memory).of(mapped)


def meeting(words, steps):
    """Return the first race of steps (workgroup, role, element)."""
    for place, role, element in steps:
        found = words.touch(role, np.array([[4 * element]]), 4, place)
        if found is not None:
            return found
    return None


def races(steps):
    """The definition: two workgroups at one element, one of them writes, or one adds and the other reads."""
    return any(
        p != q and e == f and (STORED in (r, s) or (ADDED in (r, s) and LOADED in (r, s)))
        for p, r, e in steps
        for q, s, f in steps
    )


@pytest.mark.parametrize("seed", range(200))
def test_the_verdict_is_that_of_the_definition_in_every_order(declare, seed):
    random = np.random.default_rng(seed)
    steps = [
        (int(random.integers(3)), int(random.choice(ROLES, p=(0.6, 0.1, 0.3))), int(random.integers(3)))
        for _ in range(int(random.integers(1, 6)))
    ]
    assert {meeting(watched(declare), order) is not None for order in permutations(steps)} == {races(steps)}


def test_the_other_party_is_the_first_that_came(declare):
    found = meeting(watched(declare), [(7, LOADED, 2), (5, LOADED, 2), (5, LOADED, 1), (6, STORED, 2)])
    assert (found.offset, found.role, found.place) == (8, LOADED, 7)


def test_who_comes_after_itself_is_not_named(declare):
    """A workgroup that read first and writes last, with another between, which only happens on threads."""
    found = meeting(watched(declare), [(7, LOADED, 2), (5, LOADED, 2), (7, STORED, 2)])
    assert (found.offset, found.place) == (8, None)


def test_what_is_only_read_is_not_watched(declare):
    assert watched(declare, "read") is None


def test_an_access_across_two_elements_touches_both(declare):
    for element, raced in ((1, True), (2, True), (3, False), (0, False)):
        words = watched(declare)
        words.touch(STORED, np.array([6]), 4, 0)
        assert (meeting(words, [(1, LOADED, element)]) is not None) == raced


def test_clearing_begins_a_launch_anew(declare):
    memory = AddressSpace(0)
    memory.map(declare("x", I32, "write"), SparseBuffer(64, {0: np.zeros(4, np.int32), 32: np.zeros(4, np.int32)}))
    [mapped] = memory.buffers
    traffic = Traffic(memory)
    words = traffic.of(mapped)
    for element in (1, 9):
        assert meeting(words, [(0, STORED, element)]) is None
        assert meeting(words, [(1, STORED, element)]) is not None
    traffic.clear()
    assert meeting(words, [(1, STORED, 1), (1, STORED, 9)]) is None
