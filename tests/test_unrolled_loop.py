"""A loop that reads ahead, plain and unrolled by two, compiled: the plain one copies at its end, the other does not.

Both run to the same bits, with all sanitizers on.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from kinfolk.ir import build_kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import control, lanes, memory
from kinfolk.ir.types import F32, I32, PointerType, VectorType
from kinfolk.parameters import Parameter
from kinfolk.plugins.loading import load
from kinfolk.tile.state import loop
from kinfolk.tile.unrolled import unrolled_loop
from kinfolk_runtime.simulator import Simulator
from kinfolk_runtime.toolchains import CompileJob
from kinfolk_runtime.toolchains.host import named_toolchain

pytestmark = [pytest.mark.compile, pytest.mark.needs("gfx942", "gfx950")]

WIDTH, READS = 4, 3
LOOPS = {"plain": loop, "unrolled": unrolled_loop}


def reads_ahead(arch, walk):
    """Each round asks for the next round's vectors first, then adds up its own: both are in registers at once."""

    def body(given, count, taken):
        lane = lanes.lane_id()

        def read(number):
            first = (number * 64 + lane) * (WIDTH * READS)
            return [memory.load(memory.offset(given, first + WIDTH * at), count=WIDTH) for at in range(READS)]

        def round_(number, state):
            now, totals = state
            ahead = read(number + 1)
            control.schedule_fence()
            totals = [total * half + values for total, values in zip(totals, now, strict=True)]
            control.schedule_fence()
            return ahead, totals

        half, one = constant(0.5, VectorType(F32, WIDTH)), constant(1.0, VectorType(F32, WIDTH))
        _, totals = walk(0, count, (read(constant(0, I32)), [one] * READS), round_)
        for at, total in enumerate(totals):
            memory.store(memory.offset(taken, lane * (WIDTH * READS) + WIDTH * at), total)

    data = PointerType(F32)
    parameters = [
        Parameter(name="given", type=data, alignment=16),
        Parameter(name="count", type=I32),
        Parameter(name="taken", type=data, alignment=16, access="write"),
    ]
    return build_kernel("k", parameters, arch=arch, block=64, body=body)


def loop_text(arch, kernel) -> str:
    """Return the assembly of the one loop."""
    module = arch.lower(kernel, None, 22)
    job = CompileJob(kernel="k", llvm_ir=module.text, triple=module.triple, cpu=module.cpu, assembly=True)
    assembly = named_toolchain("llvmlite").compile(job).assembly
    label = re.search(r"\n(\.LBB\w+):.*%loop\.", assembly)
    assert label is not None
    end = max(match.end() for match in re.finditer(rf"s_c?branch\w* {label[1]}\n", assembly))
    return assembly[label.start() : end]


@pytest.mark.parametrize("name", ["gfx942", "gfx950"])
def test_the_unrolled_loop_copies_no_register_where_the_plain_one_does(name):
    arch = load("arch", name).plugin.kinfolk_arch()
    copies, reads = {}, {}
    for form, walk in LOOPS.items():
        text = loop_text(arch, reads_ahead(arch, walk))
        moved = re.findall(r"v_mov_b(32|64)\w* v\S*, v", text)
        copies[form] = sum(int(bits) // 32 for bits in moved)
        reads[form] = text.count("global_load_dwordx4")
    assert reads == {"plain": READS, "unrolled": 2 * READS}
    assert copies == {"plain": READS * WIDTH, "unrolled": 0}


@pytest.mark.parametrize("rounds", [0, 1, 2, 5, 8])
def test_both_run_to_the_same_bits(rounds):
    arch = load("arch", "gfx942").plugin.kinfolk_arch()
    given = np.random.default_rng(1).standard_normal((rounds + 1, 64, READS * WIDTH)).astype(np.float32)
    found = {}
    for form, walk in LOOPS.items():
        taken = np.zeros(given[0].size, np.float32)
        Simulator().launch(reads_ahead(arch, walk), (1, 1, 1), [given.reshape(-1).copy(), rounds, taken])
        found[form] = taken.tobytes()
    assert found["plain"] == found["unrolled"]
    total = np.ones(given[0].shape)
    for number in range(rounds):
        total = total * 0.5 + given[number]
    assert np.allclose(np.frombuffer(found["plain"], np.float32), total.reshape(-1), rtol=1e-5, atol=1e-5)
