"""The model of time on instructions by their words (`llvm-mc -mcpu=gfx942 -show-encoding`), against clocks by hand.

By hand with: 4 clocks from one instruction of a wave to its next, 4 clocks a pass of a matrix instruction, results of
4 passes after 32 clocks, workgroup memory after 128, memory after 700 or, touched before, 320.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinfolk_amdgcn.isa.compute_unit import ComputeUnit
from kinfolk_amdgcn.isa.constants import constants, scaled
from kinfolk_amdgcn.isa.issue_costs import issue_costs
from kinfolk_amdgcn.isa.loops import loops
from kinfolk_amdgcn.isa.program import translated
from kinfolk_amdgcn.isa.step import Step
from kinfolk_amdgcn.isa.trace import Access, Trace

FACTS = {"matrix_result_states": 3, "hbm_bytes_per_clock": 64, "compute_units": 1}
ARCH: Any = SimpleNamespace(facts=FACTS, **FACTS)
WORDS = {
    "adds to D": "D3E10000 04021508",  # v_mfma_f32_16x16x16_bf16 v[0:3], v[8:9], v[10:11], v[0:3]
    "other D": "D3E10004 04121508",  # v_mfma_f32_16x16x16_bf16 v[4:7], v[8:9], v[10:11], v[4:7]
    "A of other D": "D3E10000 04021504",  # v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[10:11], v[0:3]
    "A of D": "D3E10004 04121500",  # v_mfma_f32_16x16x16_bf16 v[4:7], v[0:1], v[10:11], v[4:7]
    "8 passes": "D3E00010 04421508",  # v_mfma_f32_32x32x8_bf16 v[16:31], v[8:9], v[10:11], v[16:31]
    "of f32": "D3C50000 04021508",  # v_mfma_f32_16x16x4_f32 v[0:3], v8, v10, v[0:3]
    "add": "0218190C",  # v_add_f32 v12, v12, v12
    "reads D": "7E1A0300",  # v_mov_b32 v13, v0
    "exp": "7E18410C",  # v_exp_f32 v12, v12
    "product": "D285000C 0002190C",  # v_mul_lo_u32 v12, v12, v12
    "scalar": "80040404",  # s_add_u32 s4, s4, s4
    "idle": "BF800003",  # s_nop 3
    "barrier": "BF8A0000",  # s_barrier
    "read": "D9FE0000 0C000001",  # ds_read_b128 v[12:15], v1
    "permute": "D87E0000 0C000201",  # ds_bpermute_b32 v12, v1, v2
    "local 0": "BF8CC07F",  # s_waitcnt lgkmcnt(0)
    "local 1": "BF8CC17F",  # s_waitcnt lgkmcnt(1)
    "load": "DC5C8000 0C000001",  # global_load_dwordx4 v[12:15], v1, s[0:1]
    "memory 0": "BF8C0F70",  # s_waitcnt vmcnt(0)
    "memory 1": "BF8C0F71",  # s_waitcnt vmcnt(1)
    "scalar load": "C0020100 00000000",  # s_load_dword s4, s[0:1], 0x0
    "branch": "BF820001",  # s_branch past the next
    "back": "BF82FFFE",  # s_branch to the one before
    "end": "BF810000",  # s_endpgm
}
FULL, CONFLICTS = Access(clocks=8, fewest=8), Access(clocks=64, fewest=8)
LINES, OTHER_LINES = Access(lines=tuple(range(16))), Access(first_line=16, lines=tuple(range(16)))
Line = str | tuple[str, Access]


def code(names: Sequence[str]) -> bytes:
    words = " ".join(WORDS[name] for name in names).split()
    return b"".join(int(word, 16).to_bytes(4, "little") for word in words)


def steps_of(names: Sequence[str]) -> tuple[Step, ...]:
    kernel: Any = SimpleNamespace(code=code(names), vectors=64, accumulators=0)
    return translated(kernel, "fnuz").steps


NAMES = ["branch", "add", *sorted(set(WORDS) - {"branch", "back", "add"})]
"""The code that all waves run some of: the branch leads past the addition."""
PLACE = {name: number for number, name in enumerate(NAMES)}


def run(
    *waves: Sequence[Line],
    simds: int = 4,
    resident: int = 1,
    groups: int = 1,
    by: Mapping[str, float] | None = None,
) -> ComputeUnit:
    """Run workgroups of these waves."""

    def issued(wave: Sequence[Line]) -> Iterator[tuple[int, Access | None]]:
        for line in wave:
            name, access = (line, None) if isinstance(line, str) else line
            yield PLACE[name], access

    steps, values = steps_of(NAMES), scaled(constants(ARCH), by or {})
    unit = ComputeUnit(steps, issue_costs(steps, values, 3, 128), values, simds, 1)
    unit.run([(number, [issued(wave) for wave in waves]) for number in range(groups)], resident)
    return unit


def clocks(*waves: Sequence[Line], **how: Any) -> float:
    return max(wave.end for wave in run(*waves, **how).waves)


N = 10
MICRO: dict[str, tuple[tuple[Sequence[Line], ...], dict[str, Any], float]] = {
    # A matrix unit takes the next instruction after the passes of the one before; adding to a result costs no more.
    "independent products": ((["adds to D", "other D"] * N,), {}, 16 * (2 * N - 1) + 4),
    "sums of products": ((["adds to D"] * N,), {}, 16 * (N - 1) + 4),
    "products of 8 passes": ((["8 passes"] * N,), {}, 32 * (N - 1) + 4),
    "products of results": ((["A of D", "A of other D"] * N,), {}, 32 * (2 * N - 1) + 4),
    "a result that is read": ((["adds to D", "reads D"],), {}, 32 + 4),
    "a result of f32 that is read": ((["of f32", "reads D"],), {}, 32 + 12 + 4),
    "two waves fill one unit": ((["A of D", "A of other D"],) * 2, {"simds": 1}, 32 + 16 + 4),
    "two units": ((["adds to D"] * N,) * 2, {}, 16 * (N - 1) + 4),
    "one unit for two waves": ((["adds to D"] * N,) * 2, {"simds": 1}, 16 * (2 * N - 1) + 4),
    "vector work beside products": ((["adds to D"] * N, ["add"] * 2 * N), {"simds": 1}, 16 * (N - 1) + 4),
    # Vector instructions.
    "a chain": ((["add"] * N,), {}, 4 * N),
    "two waves on one SIMD": ((["add"] * N,) * 2, {"simds": 1}, 8 * N),
    "two waves on two": ((["add"] * N,) * 2, {}, 4 * N),
    "vector and scalar beside each other": ((["add"] * N, ["scalar"] * N), {"simds": 1}, 4 * N),
    "a chain of transcendentals": ((["exp"] * N,), {}, 16 * (N - 1) + 4),
    "a transcendental that is read": ((["exp", "add"],), {}, 16 + 4),
    "others go on beside a transcendental": ((["exp", "scalar", "scalar"],), {}, 12),
    "integer products": ((["product"] * N,), {}, 16 * (N - 1) + 4),
    "idle states": ((["idle"],), {}, 16),
    # Workgroup memory: one for all waves.
    "a read": (([("read", FULL), "local 0"],), {}, 8 + 128 + 1),
    "a read with conflicts": (([("read", CONFLICTS), "local 0"],), {}, 64 + 128 + 1),
    "reads of four waves": (([("read", FULL), "local 0"],) * 4, {}, 4 * 8 + 128 + 1),
    "a wait for the first of two": (([("read", CONFLICTS), ("read", FULL), "local 1"],), {}, 64 + 128 + 1),
    "a permutation": ((["permute", "local 0"],), {}, 2 + 128 + 1),
    # Memory: 16 lines of 64 bytes, at 64 bytes a clock from caches and from memory.
    "a load": (([("load", LINES), "memory 0"],), {}, 16 + 700 + 1),
    "a load of what was touched": (([("load", LINES), "memory 0"] * 2,), {}, 717 + 16 + 320 + 1),
    "two loads": (([("load", LINES), ("load", OTHER_LINES), "memory 0"],), {}, 32 + 700 + 1),
    "a wait for the first load": (([("load", LINES), ("load", OTHER_LINES), "memory 1"],), {}, 16 + 700 + 1),
    "work in the shade of a load": (([("load", LINES), *["add"] * N, "memory 0"],), {}, 16 + 700 + 1),
    "a load and a half of the rate": (([("load", LINES), "memory 0"],), {"by": {"memory_rate": 0.5}}, 32 + 701),
    "a scalar load": ((["scalar load", "local 0"],), {}, 200 + 1),
    # Waves of a workgroup, and workgroups.
    "a barrier": ((["barrier", "add"], [*["add"] * N, "barrier", "add"]), {}, 4 * N + 4 + 16 + 4),
    "workgroups after each other": ((["add"] * N,), {"groups": 3}, 3 * 4 * N),
    "workgroups beside each other": ((["add"] * N,), {"groups": 3, "resident": 3}, 4 * N),
    "a branch": ((["branch", "scalar"],), {}, 16 + 4),
    "a branch that is not taken": ((["branch", "add"],), {}, 4 + 4),
}


@pytest.mark.parametrize("name", MICRO)
def test_clocks_are_those_by_hand(name: str) -> None:
    waves, how, expected = MICRO[name]
    assert clocks(*waves, **how) == expected


def noticed(constant: str, factor: float) -> set[str]:
    """Return the kernels above that a constant changed by a factor would fail."""
    changed: set[str] = set()
    for name, (waves, how, expected) in MICRO.items():
        by = {**how.get("by", {})}
        by[constant] = by.get(constant, 1.0) * factor
        if clocks(*waves, **{**how, "by": by}) != expected:
            changed.add(name)
    return changed


@pytest.mark.parametrize("constant", [each.name for each in constants(ARCH)])
def test_a_constant_that_is_wrong_is_noticed(constant: str) -> None:
    """A control: products of no latency, memory of twice the latency and so on do not pass for right."""
    assert noticed(constant, 1e-6) or noticed(constant, 2.0)
    assert noticed(constant, 1.0) == set()


@pytest.mark.parametrize("fact", FACTS)
def test_an_arch_without_a_fact_has_no_model(fact: str) -> None:
    arch: Any = SimpleNamespace(facts={name: value for name, value in FACTS.items() if name != fact})
    assert constants(arch) == ()


def test_products_of_no_latency_are_noticed_where_results_are_read() -> None:
    assert noticed("matrix_result", 1e-6) == {
        "products of results",
        "a result that is read",
        "a result of f32 that is read",
    }


def test_clocks_go_to_what_stands_in_the_way() -> None:
    """Of a wait, what the access takes alone is latency, and what it stands behind others is bandwidth."""
    unit = run([("load", LINES), ("load", OTHER_LINES), "memory 0", "adds to D", "reads D"])
    [wave] = unit.waves
    spent = wave.spent()
    assert spent.stalls == {"memory_latency": 4 + 700 - 8, "memory_bandwidth": 28, "matrix": 28}
    assert spent.issue == {"memory_latency": 8, "scalar": 1, "matrix": 4, "vector": 4}
    late = run(["barrier"], [*["add"] * N, "barrier"]).waves
    assert [wave.spent().stalls for wave in late] == [{"barrier": 4 * N + 16}, {"barrier": 16}]


ANY: st.SearchStrategy[Line] = st.one_of(
    st.sampled_from(sorted(set(WORDS) - {"branch", "back", "barrier", "end", "read", "load", "memory 0", "memory 1"})),
    st.sampled_from([("read", FULL), ("read", CONFLICTS)]),
)
LOADS: st.SearchStrategy[Line] = st.one_of(
    ANY, st.sampled_from(["memory 0", "memory 1"]), st.sampled_from([("load", LINES), ("load", OTHER_LINES)])
)
RATES = {"cache_rate", "memory_rate"}
A_WAVE = st.lists(LOADS, min_size=1, max_size=30)


@settings(max_examples=60, deadline=None)
@given(waves=st.lists(A_WAVE, min_size=1, max_size=6), simds=st.integers(1, 4), groups=st.integers(1, 3))
def test_clocks_of_a_wave_are_the_sum_of_what_they_go_to(waves: list[list[Line]], simds: int, groups: int) -> None:
    unit = run(*waves, simds=simds, groups=groups, resident=2)
    for wave in unit.waves:
        assert wave.spent().clocks == pytest.approx(wave.end - wave.begin)
    in_waves = sum(wave.spent().clocks for wave in unit.waves)
    assert sum(unit.issue) + sum(map(sum, unit.stalls)) == pytest.approx(in_waves)
    assert sum(unit.counts) == groups * sum(map(len, waves))


@settings(max_examples=60, deadline=None)
@given(
    wave=A_WAVE,
    constant=st.sampled_from([each.name for each in constants(ARCH)]),
    factor=st.floats(1.0, 4.0),
)
def test_a_slower_machine_is_not_faster_for_a_wave_alone(wave: list[Line], constant: str, factor: float) -> None:
    """Exact for one wave, whose order is fixed: its clocks are maxima of sums. Of several waves, the one that goes
    first may change, and with it the end in either direction (scheduling anomalies)."""
    slower = {constant: 1 / factor if constant in RATES else factor}
    assert clocks(wave, by=slower) >= clocks(wave) - 1e-6


@settings(max_examples=40, deadline=None)
@given(waves=st.lists(st.lists(ANY, min_size=1, max_size=30), min_size=2, max_size=6), simds=st.integers(1, 4))
def test_company_helps_nobody_and_no_unit_works_more_than_all_the_time(waves: list[list[Line]], simds: int) -> None:
    """But for lines of memory, which others may have touched before."""
    slower = dict.fromkeys(("local_latency", "vector_issue", "matrix_pass"), 2.0)
    unit, slow = run(*waves, simds=simds), run(*waves, simds=simds, by=slower)
    for wave, late, alone in zip(unit.waves, slow.waves, waves, strict=True):
        assert min(wave.end, late.end) >= clocks(alone) - 1e-6
    end = max(wave.end for wave in unit.waves) + 64  # the last instructions may hold their units past their issue
    assert unit.worked["matrix"] <= simds * end and unit.worked["vector"] <= simds * end
    served = unit.worked["workgroup_memory"]
    assert served <= end + 64 * sum(map(len, waves)), "nobody waits for what nobody waits for"


def waves_at(count: int) -> Any:
    return SimpleNamespace(
        count=count, live=np.ones((count, 64), np.bool_), group=np.zeros(count, np.int64), number=np.arange(count)
    )


def lines_of(note: str, address: Any, size: int, there: int = 1 << 20) -> list[list[int]]:
    """Return the lines that two waves touch with an access, which lie where a trace takes it down."""
    trace = Trace(steps_of(["load", "end"]), 2, None)
    trace.begin(np.array([3]))
    w = waves_at(2)
    getattr(trace, note)(w, np.broadcast_to(address, (2, 64)), np.full((1, 1), there), size)
    trace.issued(0, w)
    found = trace.of(3)
    assert trace.keeps(3) and not trace.keeps(2) and trace.counted() == {3: 2}
    return [[access.first_line + line for _, access in wave for line in access.lines] for wave in found]


def test_a_trace_keeps_the_lines_that_lanes_touch() -> None:
    lane = np.arange(64)
    assert lines_of("memory", 4 * lane + 128, 4) == [[2, 3, 4, 5]] * 2
    assert lines_of("memory", 4 * lane + 130, 4) == [[2, 3, 4, 5, 6]] * 2, "the last lane's half is on another line"
    assert lines_of("memory", 64 * lane, 16) == [list(range(64))] * 2
    assert lines_of("memory", 0, 4) == [[0]] * 2
    assert lines_of("memory", 4 * lane, 4, there=0) == [[]] * 2, "nothing is touched out of range"


def test_lanes_of_private_memory_lie_side_by_side() -> None:
    """64 lanes of 4 bytes are 4 lines, whatever the place; waves have their own."""
    for size in (1, 4, 16):
        first, second = lines_of("private", 8, size)
        assert len(first) == len(second) == 4 * -(-size // 4) and not {*first} & {*second}


def test_loops_are_found_by_what_all_ways_pass() -> None:
    steps = steps_of(["scalar", "add", "back", "end"])
    [loop] = loops(steps)
    assert (loop.header, loop.latch, loop.body, loop.innermost) == (1, 2, {1, 2}, True)
    assert loops(steps_of(["scalar", "branch", "add", "end"])) == ()
