"""Bank conflicts by hand: 32 banks of 4 bytes, half a wave per cycle at 4 bytes a lane."""

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinfolk.arch import Arch
from kinfolk.banks import BankCost, BankModel, Phases
from kinfolk.errors import PluginError
from kinfolk.ir.types import BF16
from kinfolk.matrix import MatrixCatalog
from kinfolk.tile.layout import Layout

LANES = np.arange(64)


def consecutive(action, size, together):
    lanes = tuple(tuple(range(lane, lane + together)) for lane in range(0, 64, together))
    return Phases(action=action, bytes=size, lanes=lanes, source="this test")


MODEL = BankModel(
    banks=32,
    bank_bytes=4,
    bytes_per_clock=128,
    phases=(consecutive("read", 4, 32), consecutive("read", 8, 16), consecutive("read", 16, 8)),
    unmeasured="nobody looked",
)


def cost(addresses, size=4, lanes=LANES, action="read", model=MODEL):
    return model.cost(action, size, np.asarray(addresses, np.int64), np.asarray(lanes))


@pytest.mark.parametrize(
    "what, addresses, size, cycles, fewest",
    [
        ("neighbours", LANES * 4, 4, 2, 2),
        ("every second word: two lanes of a half share each bank", LANES * 8, 4, 4, 2),
        ("a stride of all banks: every lane in bank 0", LANES * 128, 4, 64, 2),
        ("a stride of one word more", LANES * 132, 4, 2, 2),
        ("one address for all", LANES * 0 + 64, 4, 2, 2),
        ("one word of bank 0 per pair of lanes", LANES // 2 * 128, 4, 32, 2),
        ("8 bytes a lane", LANES * 8, 8, 4, 4),
        ("16 bytes a lane", LANES * 16, 16, 8, 8),
        ("rows of 128 bytes, read down a column", LANES * 128, 16, 64, 8),
        ("the same rows with 16 bytes behind each", LANES * 144, 16, 8, 8),
        ("rows with 4 bytes behind each overlap in three words", LANES * 132, 16, 32, 8),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_cycles_counted_by_hand(what, addresses, size, cycles, fewest):
    assert cost(addresses, size) == BankCost(cycles, fewest, True)


def test_a_phase_without_an_active_lane_takes_no_cycle():
    assert cost(LANES[:32] * 4, lanes=LANES[:32]) == BankCost(1, 1, True)
    assert cost(LANES[::2] * 4, lanes=LANES[::2]) == BankCost(2, 2, True)
    assert cost(LANES[:32] * 128, lanes=LANES[:32]) == BankCost(32, 1, True)
    assert cost([], lanes=[]) == BankCost(0, 0, True)


def test_which_lanes_are_served_together_decides():
    """The same addresses conflict or not by the phases alone."""
    mixed = tuple(tuple(range(lane, 64, 8)) for lane in range(8))
    other = attrs.evolve(MODEL, phases=(attrs.evolve(MODEL.phases[2], lanes=mixed),))
    assert (cost(LANES * 16, 16).conflicts, cost(LANES * 16, 16, model=other).conflicts) == (0, 56)


def test_what_nobody_measured_is_bounded_and_not_guessed():
    assert MODEL.phases_of("write", 4) is None
    assert cost(LANES * 4, action="write") == BankCost(2, 2, False)
    assert cost(LANES * 128, action="write") == BankCost(64, 2, False)
    assert cost(LANES * 0, action="write") == BankCost(1, 1, False)
    assert cost(LANES * 144, 16, action="transpose_read") == BankCost(8, 8, False)


@given(st.lists(st.integers(0, 255), min_size=64, max_size=64), st.permutations(range(64)), st.sampled_from([4, 8, 16]))
def test_the_bound_holds_whichever_lanes_are_served_together(words, order, size):
    together = 128 // size
    groups = tuple(tuple(order[at : at + together]) for at in range(0, 64, together))
    measured = attrs.evolve(MODEL, phases=(Phases(action="read", bytes=size, lanes=groups, source="drawn"),))
    addresses = np.array(words) * size
    assert cost(addresses, size, action="write").cycles <= cost(addresses, size, model=measured).cycles


@pytest.mark.parametrize(
    "size, alignment, parts",
    [
        (16, 16, [(0, 16)]),
        (32, 16, [(0, 16), (16, 16)]),
        (16, 8, [(0, 8), (8, 8)]),
        (12, 4, [(0, 4), (4, 4), (8, 4)]),
        (12, 16, [(0, 8), (8, 4)]),
        (2, 2, [(0, 2)]),
    ],
)
def test_an_access_is_as_wide_as_its_alignment_allows(size, alignment, parts):
    assert MODEL.parts(size, alignment) == parts
    whole = MODEL.access_cost("read", size, alignment, LANES * 16, LANES)
    assert whole.cycles == sum(cost(LANES * 16 + at, each).cycles for at, each in parts)


def test_elements_smaller_than_a_word_share_it():
    assert cost(LANES * 2, 2, action="write") == BankCost(1, 1, False)


@pytest.mark.parametrize(
    "phases, message",
    [
        ((consecutive("read", 4, 32), consecutive("read", 4, 16)), "the read of 4 bytes twice"),
        ((consecutive("reads", 4, 32),), "the reads of 4 bytes, which nothing does; actions are read, write, "),
        (
            (attrs.evolve(consecutive("read", 4, 32), lanes=((0, 1), (1, 2))),),
            "that do not hold each of 64 lanes once",
        ),
    ],
)
def test_phases_that_no_access_has_make_no_arch(phases, message):
    parts = {"name": "toy", "target_ids": ("toy",), "wave_size": 64, "facts": {}, "matrix": MatrixCatalog(())}
    parts |= {"lower_kernel": None, "read_usage": None}
    assert Arch(**parts, banks=MODEL).banks is MODEL
    with pytest.raises(PluginError, match=message):
        Arch(**parts, banks=attrs.evolve(MODEL, phases=phases))


def test_a_layout_is_judged_while_a_kernel_is_built():
    """16 rows by 4 columns of 8 bf16 each: rows of 128 bytes all begin in bank 0, padded ones four banks apart."""
    layout = Layout("fragment", np.repeat(LANES[:, None] % 16, 8, 1), LANES[:, None] // 16 * 8 + np.arange(8))
    costs = {pad: layout.bank_cost(MODEL, "read", BF16, pitch=64 + pad, count=8) for pad in (0, 4, 8)}
    assert costs[0] == BankCost(64, 8, True)
    assert costs[8] == BankCost(8, 8, True)
    assert costs[4].fewest == 8, "rows that keep 8 bytes of alignment are read in two accesses of 4 phases each"
