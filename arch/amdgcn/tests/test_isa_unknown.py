"""Bits of scalar registers that nothing has written: which instructions carry them, and where they are told.

Oracle: by hand, bit by bit.
"""

from __future__ import annotations

import numpy as np
import pytest
from by_words import step_of, waves

from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.unknown import Unknown, matters, unknown_of
from kinfolk_amdgcn.isa.waves import CONDITION, EXEC, SCALAR_BIT, Waves

S4, S6, S8 = (0b11 << SCALAR_BIT + register for register in (4, 6, 8))


def sop1(opcode: int, target: int, source: int) -> int:
    return 0b101111101 << 23 | target << 16 | opcode << 8 | source


def sop2(opcode: int, target: int, first: int, second: int) -> int:
    return 0b10 << 30 | opcode << 23 | target << 16 | second << 8 | first


def half_known() -> Waves:
    """Return two waves whose s[4:5] nothing has written in the first; s[6:7] and s[8:9] hold 0xFF00 and 0xF0F0."""
    w = waves(2)
    w.leave_undefined([S4, 0])
    w.s[:, 4:6], w.s[:, 6], w.s[:, 8] = 0, 0xFF00, 0xF0F0
    return w


def left(w: Waves, word: int) -> Unknown:
    step = step_of(word)
    assert step.bits is not None
    found = step.bits(w)
    step.run(w)
    w.undefined_before = [mask & ~step.writes for mask in w.undefined_before]
    found.leave(w)
    return found


def test_what_is_masked_away_is_known_and_the_rest_is_not() -> None:
    """s_andn2_b64 s[4:5], s[4:5], s[6:7]; s_and_b64 s[4:5], s[4:5], s[8:9]; s_or_b64 s[4:5], s[4:5], s[8:9]."""
    w = half_known()
    assert left(w, sop2(19, 4, 4, 6)).bits.tolist() == [0xFFFFFFFFFFFF00FF, 0]
    assert left(w, sop2(13, 4, 4, 8)).bits.tolist() == [0xF0, 0]
    assert unknown_of(w, S4).tolist() == [0xF0, 0]
    assert left(w, sop2(15, 4, 4, 8)).bits.tolist() == [0, 0] and not w.undefined & S4


def test_a_condition_is_known_where_a_known_bit_decides_it() -> None:
    w = half_known()
    assert left(w, sop2(15, 10, 4, 6)).condition.tolist() == [False, False]
    assert left(w, sop2(13, 10, 4, 6)).condition.tolist() == [True, False]
    assert w.undefined_now()[0] & CONDITION and not w.undefined_now()[1] & CONDITION
    with pytest.raises(Stop, match="reads scc, which nothing has written"):
        left(w, sop2(11, 10, 6, 8))


def test_moved_bits_stay_unknown_where_they_go_and_a_count_must_be_known() -> None:
    """s_lshl_b64 s[10:11], s[4:5], 16; s_mov_b64; s_lshl_b64 s[10:11], s[6:7], s4."""
    w = half_known()
    assert left(w, sop2(29, 10, 4, 128 + 16)).bits.tolist() == [0xFFFFFFFFFFFF0000, 0]
    assert left(w, sop1(1, 12, 10)).bits.tolist() == [0xFFFFFFFFFFFF0000, 0]
    with pytest.raises(Stop, match="told what to do by a register that nothing has written"):
        left(w, sop2(29, 10, 6, 4))


def test_lanes_that_live_must_be_known() -> None:
    """s_and_saveexec_b64 s[10:11], s[4:5] with the unknown lanes dead, and with one of them live."""
    w = half_known()
    left(w, sop2(19, 4, 4, 6))
    w.s[:, EXEC], w.s[:, EXEC + 1] = 0xFF00, 0
    w.exec_written()
    assert not matters(w, S4).any()
    left(w, sop1(32, 10, 4))
    w.s[:, EXEC] = 0x8001
    w.exec_written()
    assert matters(w, S4).tolist() == [True, False]
    with pytest.raises(Stop, match="decides which lanes live by bits that nothing has written"):
        left(w, sop1(32, 10, 4))
    with pytest.raises(Stop, match="decides which lanes live"):
        left(w, sop2(15, EXEC, EXEC, 4))


def test_waves_part_and_meet_with_what_they_know() -> None:
    w = half_known()
    left(w, sop2(19, 4, 4, 6))
    one, two = w.part(np.array([True, False])), w.part(np.array([False, True]))
    assert unknown_of(two.joined(one), S4).tolist() == [0, 0xFFFFFFFFFFFF00FF]


def test_a_literal_of_64_bits_is_not_negative() -> None:
    """s_mov_b64 s[4:5], 0xfffffff0, which LLVM emits for 4294967280."""
    w = waves()
    step_of(sop1(1, 4, 255), 0xFFFFFFF0).run(w)
    assert w.s64[0, 2] == 0xFFFFFFF0
