"""What `wait_staged(outstanding=1)` is in compiled code: where one staging stays on its way, where LLVM waits for all.

The tables are of the assembly of each LLVM; the next one may differ, and then what is said of it differs too.
"""

from __future__ import annotations

import re

import pytest

from kinfolk.errors import ToolError
from kinfolk.ir import build_kernel
from kinfolk.ir.builder import op_for_role
from kinfolk.ir.ops import control, lanes, memory
from kinfolk.ir.types import F32, PointerType
from kinfolk.parameters import Parameter
from kinfolk.plugins.loading import load
from kinfolk_runtime.toolchains import CompileJob
from kinfolk_runtime.toolchains.host import named_toolchain

pytestmark = [pytest.mark.compile, pytest.mark.needs("gfx950")]

GENERATIONS = {"llvmlite": 22, "llc": 22, "llvmlite20": 20}
WORDS = re.compile(r"\b(vmcnt\(\d+\)|global_load_lds_|s_barrier|ds_read)")

# What sets the two tiles apart, whether a barrier follows the wait and the first tile is read; by generations of LLVM.
NOTHING_READ, SCOPED = "scopes, nothing read", "scopes"
FORMS = {
    NOTHING_READ: {22: "stage stage vmcnt(1)", 20: "stage stage vmcnt(1)"},
    "nothing": {22: "stage stage vmcnt(0) read", 20: "stage stage vmcnt(0) read"},
    "allocations": {22: "stage stage vmcnt(1) read", 20: "stage stage vmcnt(0) read"},
    SCOPED: {22: "stage stage vmcnt(1) read", 20: "stage stage vmcnt(0) read"},
    "scopes, barrier, nothing read": {22: "stage stage vmcnt(0) barrier", 20: "stage stage vmcnt(1) barrier"},
    "nothing, barrier": {22: "stage stage vmcnt(0) barrier read", 20: "stage stage vmcnt(1) barrier vmcnt(0) read"},
    "allocations, barrier": {22: "stage stage vmcnt(0) barrier read", 20: "stage stage vmcnt(1) barrier read"},
    "scopes, barrier": {22: "stage stage vmcnt(0) barrier read", 20: "stage stage vmcnt(1) barrier read"},
    "scopes, allocations, barrier": {
        22: "stage stage vmcnt(0) barrier read",
        20: "stage stage vmcnt(1) barrier vmcnt(0) read",
    },
}


def staged(arch, form: str, outstanding: int):
    """Stage two tiles, wait for all but `outstanding`, and read the first."""
    scopes = ("first", "second") if "scopes" in form else ("", "")

    def body(given, taken):
        lane, start = lanes.lane_id(), lanes.wave_id()
        tiles = [memory.allocate(F32, 512)] * 2
        if "allocations" in form:
            tiles = [memory.allocate(F32, 512) for _ in range(2)]
        for half, (tile, scope) in enumerate(zip(tiles, scopes, strict=True)):
            pointer = memory.offset(given, lane + 128 * half)
            op_for_role("stage_4").add(pointer, tile, start, offset=256 * half, scope=scope)
        op_for_role("wait_staged").add(outstanding=outstanding)
        if "barrier" in form:
            control.barrier()
        if "nothing read" not in form:
            memory.store(memory.offset(taken, lane), memory.workgroup_load(tiles[0], lane, scope=scopes[0]))

    parameters = [
        Parameter(name=name, type=PointerType(F32), alignment=16, access="readwrite") for name in ("given", "taken")
    ]
    return build_kernel("k", parameters, arch=arch, block=128, body=body)


def sequence(arch, lane: str, form: str, outstanding: int = 1) -> str:
    module = arch.lower(staged(arch, form, outstanding), None, GENERATIONS[lane])
    job = CompileJob(kernel="k", llvm_ir=module.text, triple=module.triple, cpu=module.cpu, assembly=True)
    try:
        assembly = named_toolchain(lane).compile(job).assembly
    except ToolError as error:
        pytest.skip(str(error))
    code = assembly[assembly.index("\nk:") : assembly.index("s_endpgm")]
    names = {"global_load_lds_": "stage", "s_barrier": "barrier", "ds_read": "read"}
    return " ".join(names.get(word, word) for word in WORDS.findall(code))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lane", GENERATIONS)
@pytest.mark.parametrize("name", ["gfx942", "gfx950"])
def test_what_the_wait_is_in_compiled_code(name, lane, form):
    arch = load("arch", name).plugin.kinfolk_arch()
    assert sequence(arch, lane, form) == FORMS[form][GENERATIONS[lane]]


@pytest.mark.parametrize("lane", GENERATIONS)
def test_a_wait_for_all_is_one_wherever_it_stands(lane):
    """Negative control: the attribute makes the difference that the tables show."""
    arch = load("arch", "gfx950").plugin.kinfolk_arch()
    assert sequence(arch, lane, NOTHING_READ, outstanding=0) == "stage stage vmcnt(0)"
    assert sequence(arch, lane, SCOPED, outstanding=0) == "stage stage vmcnt(0) read"
