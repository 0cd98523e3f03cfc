"""The examples of the page on laying out run as they stand, on an emitter of a few lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import attrs
import pytest

from kinfolk.ir import build_kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, lanes, memory
from kinfolk.ir.types import F32, I32
from kinfolk.ir.value import Value
from kinfolk.plugins.loading import load
from kinfolk.tile import parting, rotation, runs, slots, state, timeline, unrolled

pytestmark = pytest.mark.needs("gfx942")
TOOLKIT = (parting, rotation, runs, slots, state, timeline, unrolled)
PAGE = Path(__file__).parent.parent / "docs" / "writing-a-family.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text().split("## Lay it out")[1].split("\n## ")[0], re.S)


@attrs.frozen(eq=False)
class Sums:
    row: Value
    refused: Value


def emitters_own() -> dict[str, Any]:
    """What an emitter has at hand: values, and functions that read, use and do something."""
    lane = lanes.lane_id()
    buffer, counts = memory.allocate(F32, 3 * 64), memory.allocate(I32, 64)

    def read(unit):
        return [constant(float(unit), F32)]

    def reads(slot):
        return lambda unit: [memory.workgroup_load(buffer, slot + (lane ^ unit))]

    def use(unit, values):
        assert values

    def tile_jobs(slot):
        return [lambda: memory.workgroup_store(buffer, slot + lane, constant(1.0, F32))]

    def exchange():
        lanes.shuffle_xor(lane, mask=16)

    own = dict.fromkeys(("key", "query", "value"), read) | {"product": use, "value_product": use, "reads": reads}
    jobs = {"jobs": [exchange], "in_lane": exchange, "exchange": exchange, "exchange_again": exchange}
    numbers = {"tiles_of_row": 9, "length": 9, "whole_begin": 1, "whole_end": 7, "zero": 0}
    ring = slots.Slots(begin=constant(0, I32), count=3, elements=64)
    return {
        **{name: value for module in TOOLKIT for name, value in vars(module).items()},
        **own,
        **jobs,
        **{name: constant(number, I32) for name, number in numbers.items()},
        "decide": lambda: None,
        "tile_jobs": tile_jobs,
        "slots": ring,
        "slot": control.opaque(ring.begin),
        "select": arithmetic.select,
        "Sums": Sums,
        "buffer": counts,
        "read_tile": lambda: memory.workgroup_load(counts, lane ^ 1),
        "write_tile": lambda tile: memory.workgroup_store(counts, lane, tile),
    }


def test_the_page_has_an_example_of_each():
    assert len(EXAMPLES) == 7


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: text.split("\n")[0][:30])
def test_an_example_builds(example):
    arch = load("arch", "gfx942").plugin.kinfolk_arch()
    built = build_kernel("k", (), arch=arch, block=64, body=lambda: exec(example, emitters_own()))
    assert len(list(built.walk())) > 3
