"""The order in which attention over rows does its work: what it leaves compute units to wait for, as a count of tiles.

Workgroups go to eight dies in turn, and on a die to the compute unit that is free first. A block of queries costs the
tiles of keys that it walks, and one more. These are counts, of no clocks.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest
from built_once import artifact_of, judged
from emitter_faults import assert_seen, with_fault

from kinfolk.dispatch import dispatch
from kinfolk.errors import NoCandidate
from kinfolk.expr import const
from kinfolk.ir.builder import constant
from kinfolk.ir.types import I32
from kinfolk.plugins.composition import compose
from kinfolk.tile import items
from kinfolk_attention_fwd.dense import work
from kinfolk_attention_fwd.dense.spec import AttentionDenseSpec
from kinfolk_attention_fwd.drawn import drawn
from kinfolk_attention_fwd.request import AttentionFwdRequest
from kinfolk_attention_fwd.varlen_scenarios import packed
from kinfolk_runtime import call
from kinfolk_runtime.artifact import Artifact

pytestmark = [pytest.mark.simulate, pytest.mark.needs("attention_fwd", "gfx942", "gfx950")]

Patch = pytest.MonkeyPatch
QUERIES, LENGTHS = (40, 0, 1, 270, 3), (33, 70, 129, 290, 0)
REQUEST = AttentionFwdRequest(
    layout="varlen",
    num_seqs=len(QUERIES),
    total_q=sum(QUERIES),
    max_seqlen_q=max(QUERIES),
    total_k=sum(LENGTHS),
    max_seqlen_k=max(LENGTHS),
    num_heads=6,
    num_kv_heads=2,
    head_size=128,
    head_size_v=128,
    dtype="bf16",
    kv_dtype="bf16",
    causal=True,
    return_lse=True,
    scale=128**-0.5,
)
DIES, BLOCK, TILE = 8, 256, 64


@attrs.frozen
class Item:
    """A block of queries, of a head of a sequence."""

    kv_head: int
    reader: int
    sequence: int
    block: int


@attrs.frozen
class Batch:
    """Sequences of so many tokens each, all of them queries."""

    tokens: Sequence[int]
    kv_heads: int
    readers: int

    def in_order(self, *digits: str, falling: bool = True) -> list[Item]:
        """Return the work by its digits, the first of which changes from one to the next; blocks fall, or climb."""
        blocks = -(-max(self.tokens) // BLOCK)
        extents = {"kv_head": self.kv_heads, "reader": self.readers, "sequence": len(self.tokens), "block": blocks}
        found: list[Item] = []
        for number in range(int(np.prod(list(extents.values())))):
            at: dict[str, int] = {}
            for digit in digits:
                number, at[digit] = divmod(number, extents[digit])
            at["block"] = blocks - 1 - at["block"] if falling else at["block"]
            found.append(Item(**at))
        return found

    def cost(self, item: Item) -> int:
        """Return the tiles that are walked, and one more; 0 of a block that does not exist."""
        first, tokens = item.block * BLOCK, self.tokens[item.sequence]
        return -(-min(first + BLOCK, tokens) // TILE) + 1 if first < tokens else 0


SHIPPED = ("kv_head", "reader", "block", "sequence")
HEADS_IN_TURN = ("reader", "kv_head", "block", "sequence")
BATCHES = {
    "one prompt": Batch((8192,), kv_heads=8, readers=4),
    "four prompts": Batch((4096,) * 4, kv_heads=8, readers=4),
    "eight documents": Batch((4096, 1500, 1000, 700, 400, 300, 150, 46), kv_heads=8, readers=4),
    "the longest last": Batch((46, 150, 300, 400, 700, 1000, 1500, 4096), kv_heads=8, readers=4),
}


def busiest(costs: Iterable[int], units: int) -> float:
    """Return what the busiest compute unit does, by what they do on average: 1 where all are busy to the end."""
    loads = [[0] * (units // DIES) for _ in range(DIES)]
    for number, cost in enumerate(costs):
        die = loads[number % DIES]
        heapq.heapreplace(die, die[0] + cost)
    every = [load for die in loads for load in die]
    return max(every) / (sum(every) / len(every))


def heads_on_a_die(order: Sequence[Item], units: int) -> float:
    """Return how many heads of keys the workgroups that begin together on a die read, on average."""
    read = [{(item.sequence, item.kv_head) for item in order[die:units:DIES]} for die in range(DIES)]
    return float(np.mean([len(heads) for heads in read]))


UNITS = {"gfx942": 304, "gfx950": 256}


@pytest.mark.parametrize("arch", UNITS)
@pytest.mark.parametrize("name", BATCHES)
def test_the_busiest_unit_does_little_more_than_all_and_a_die_reads_one_head_of_keys(name: str, arch: str) -> None:
    batch, units = BATCHES[name], UNITS[arch]
    assert compose("attention_fwd", arch).arch.facts["compute_units"] == units
    order = batch.in_order(*SHIPPED)
    assert busiest(map(batch.cost, order), units) < 1.12
    assert heads_on_a_die(order, units) == 1.0
    # Controls: blocks that see few keys first, heads one after the other.
    climbing = batch.in_order(*SHIPPED, falling=False)
    assert busiest(map(batch.cost, climbing), units) > busiest(map(batch.cost, order), units) + 0.02
    assert heads_on_a_die(batch.in_order(*HEADS_IN_TURN), units) == 4.0


@pytest.mark.parametrize("name", BATCHES)
def test_workgroups_that_walk_are_less_even_and_so_are_not_the_default(name: str) -> None:
    batch = BATCHES[name]
    order = batch.in_order(*SHIPPED)
    walked = [sum(map(batch.cost, order[first :: UNITS["gfx942"]])) for first in range(UNITS["gfx942"])]
    assert max(walked) / np.mean(walked) > busiest(map(batch.cost, order), UNITS["gfx942"]) + 0.1


def drawn_inputs(request: AttentionFwdRequest) -> dict[str, Any]:
    return packed(request, drawn(request, np.random.default_rng(4), QUERIES, LENGTHS))


def test_the_grid_of_a_plan_is_that_order() -> None:
    """The first workgroups of a launch write the last block of the first query head of each head of keys."""
    request = attrs.evolve(REQUEST, layout="dense", num_seqs=2, total_q=2 * 270, total_k=0)
    artifact = artifact_of(request, "gfx942")
    [launch] = artifact.plan.launches
    scope = artifact.plan.scope()
    assert [axis.integer(scope) for axis in launch.grid] == [6, 2, 2]
    generator = np.random.default_rng(1)
    inputs = {
        name: generator.standard_normal((2, rows, heads, 128)).astype("bfloat16")
        for name, rows, heads in (("q", 270, 6), ("k", 290, 2), ("v", 290, 2))
    }
    for heads, written in ((1, [0]), (2, [0, 3]), (3, [0, 1, 3])):
        first = attrs.evolve(launch, grid=(const(heads), const(1), const(1)))
        cut = attrs.evolve(artifact, plan=attrs.evolve(artifact.plan, launches=(first,)))
        lse = np.full((2, 6, 270), np.float32(-7.0))
        call(cut, inputs | {"lse": lse})
        assert np.argwhere((lse[0, :, 256:] != -7.0).all(axis=1)).ravel().tolist() == written
        assert np.count_nonzero(lse != -7.0) == len(written) * 14


def persistent(**changes: Any) -> Artifact:
    return artifact_of(attrs.evolve(REQUEST, persistent=True, **changes), "gfx942")


@pytest.mark.parametrize(("units", "workgroups", "rounds"), [(1, 1, 60), (7, 7, 9), (59, 59, 2), (0, 60, 1)])
def test_workgroups_that_walk_give_the_same_bits(units: int, workgroups: int, rounds: int) -> None:
    inputs, artifact = drawn_inputs(REQUEST), persistent(num_cus=units)
    plan = artifact.plan
    [launch] = plan.launches
    assert [axis.integer(plan.scope()) for axis in launch.grid] == [workgroups, 1, 1]
    passed = {each.name: each.value for each in plan.arguments(launch, inputs)}
    assert (passed["num_workgroups"], passed["rounds"]) == (workgroups, rounds)
    found, expected = call(artifact, inputs), call(artifact_of(REQUEST, "gfx942"), inputs)
    for name in ("out", "lse"):
        assert np.asarray(found[name]).tobytes() == np.asarray(expected[name]).tobytes()


@pytest.mark.parametrize(
    ("arch", "changes"),
    [("gfx942", {"head_size": 64, "head_size_v": 64}), ("gfx950", {"causal": False, "sinks": True, "num_cus": 3})],
    ids=str,
)
def test_every_scenario_passes(arch: str, changes: dict[str, Any]) -> None:
    request = attrs.evolve(REQUEST, persistent=True, **{"num_cus": 5, **changes})
    composition, artifact = compose("attention_fwd", arch), artifact_of(request, arch)
    for each in composition.scenarios(request):
        report = judged(composition, artifact, each.name)
        assert report.status == "pass", (each.name, report.findings)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"window_left": 9}, "attention_fwd.dense.spec.persistent"),
        ({"softcap": 9.0}, "attention_fwd.dense.spec.persistent"),
        ({"alibi": True}, "attention_fwd.dense.spec.persistent"),
        ({"head_size": 192}, "attention_fwd.dense.spec.persistent"),
        ({"layout": "paged", "page_size": 16, "num_pages": 99, "total_k": 0}, "attention_fwd.paged.persistent"),
    ],
    ids=str,
)
def test_what_is_not_walked_is_refused_by_name(changes: dict[str, Any], code: str) -> None:
    with pytest.raises(NoCandidate) as refused:
        dispatch(attrs.evolve(REQUEST, persistent=True, num_heads=4, **changes), "gfx942")
    assert code in {each.code for each in refused.value.refusals}


def test_rounds_are_counted_in_32_bits_whatever_is_to_be_done() -> None:
    """For one compute unit there are more workgroups than that before there are more rounds."""
    many = {"num_seqs": 2**15, "max_seqlen_q": 2**22, "total_q": 2**22, "num_heads": 1024, "num_kv_heads": 1024}
    plan = dispatch(attrs.evolve(REQUEST, persistent=True, num_cus=1, **many), "gfx942")
    [launch] = plan.launches
    items = 2**15 * 2**14 * 1024
    assert launch.grid[0].integer(plan.scope()) == -(-items // (2**31 - 1))


def next_item_before_all_have_read(patch: Patch) -> None:
    """No barrier stands between two items: tiles of the next one are written while others read the last one's."""
    patch.setattr(items, "control", SimpleNamespace(barrier=lambda: None))


def no_carry(patch: Patch) -> None:
    patch.setattr(work.arithmetic, "select", carried_nothing(work.arithmetic.select))


def carried_nothing(select: Callable[..., Any]) -> Callable[..., Any]:
    return lambda condition, first, second: second if first is constant(1, I32) else select(condition, first, second)


@pytest.mark.parametrize(
    ("plant", "seen"),
    [(next_item_before_all_have_read, {"simulation"}), (no_carry, {"simulation"})],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_a_planted_fault_is_seen(plant: Any, seen: set[str], monkeypatch: Patch) -> None:
    composition, artifact = compose("attention_fwd", "gfx942"), persistent(num_cus=5)
    faulty = with_fault(composition, artifact, AttentionDenseSpec, plant, monkeypatch)
    assert_seen(judged(composition, faulty, "chunks"), seen)
