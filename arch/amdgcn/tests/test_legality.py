"""An op that the processor lacks is refused by name, with what there is instead; so is what was never measured."""

from __future__ import annotations

import json
from functools import partial

import pytest

from kinfolk.arch import Arch
from kinfolk.errors import IllegalOp, InternalError, ToolError
from kinfolk.ir import build_kernel, rules
from kinfolk.ir.meaning import ScheduleMarker
from kinfolk.ir.op import OpDef, effects
from kinfolk.ir.ops import CORE_OPS, lanes, memory
from kinfolk.ir.types import F32, PointerType
from kinfolk.matrix import MatrixCatalog
from kinfolk.parameters import Parameter
from kinfolk_amdgcn import ops
from kinfolk_amdgcn.legality import Legality, Row, Statement, lacking, measured
from kinfolk_amdgcn.legality.measure import instructions, measure, statuses
from kinfolk_amdgcn.legality.table import STATUSES
from kinfolk_amdgcn.legality.usage import candidates, statements_of
from kinfolk_amdgcn.lowering import lower_kernel

PROCESSORS = ("gfx942", "gfx950")
FACTS = {"lds_bytes": 65536, "simds_per_cu": 4, "max_waves_per_simd": 8, "max_workgroup_size": 1024}
FACTS |= {"buffer_word3": 0x00027000}
SWAP = "call { i32, i32 } @llvm.amdgcn.permlane32.swap(i32 ?, i32 ?, i1 false, i1 false)"
LOAD_TO_LDS = "call void @llvm.amdgcn.global.load.lds(ptr addrspace(1) ?, ptr addrspace(3) ?, i32 {}, i32 0, i32 0)"
RSRC_20 = "call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p1(ptr addrspace(1) ?, i16 0, i32 ?, i32 1)"
RSRC_22 = "call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) ?, i16 0, i64 ?, i32 1)"


def marker(name, function):
    """Return an op whose lowering is one call without operands."""
    return OpDef(
        name=name,
        result=rules.fixed(),
        effects=effects("convergent"),
        meaning=ScheduleMarker(),
        lowering=lambda w, op: w.call("void", function),
    )


def an_arch(processor="gfx942", own=(), lower=lower_kernel, without=None):
    return Arch(
        name=f"test-{processor}",
        target_ids=(processor,),
        wave_size=64,
        facts=FACTS,
        matrix=MatrixCatalog(()),
        ops=(*ops.OPS, *own),
        lacking=without or {},
        lower_kernel=lower,
        read_usage=lambda code, symbol, arch: None,
    )


def lowered(op, llvm=22, **more):
    arch = an_arch(own=(op,), **more)
    kernel = build_kernel("k", (), arch=arch, block=64, body=lambda: op.add() and None)
    return arch.lower(kernel, None, llvm).text


def status(text, processor, llvm):
    row = measured().find(Statement(text))
    return row and measured().status(row, processor, llvm)


@pytest.mark.parametrize(
    "text, expected",
    [  # AMD's documents, ISA of MI300 and of MI350, and LLVM's release notes are what these follow
        (
            SWAP,
            {(20, "gfx942"): "arch_absent", (20, "gfx950"): "ok", (22, "gfx942"): "arch_absent", (22, "gfx950"): "ok"},
        ),
        (LOAD_TO_LDS.format(4), {(22, "gfx942"): "ok", (22, "gfx950"): "ok"}),
        (LOAD_TO_LDS.format(16), {(22, "gfx942"): "arch_absent", (22, "gfx950"): "ok"}),
        (RSRC_20, {(20, "gfx942"): "ok", (22, "gfx942"): "rejected"}),
        (RSRC_22, {(20, "gfx942"): "rejected", (22, "gfx942"): "ok"}),
        (
            "call <2 x i16> @llvm.amdgcn.cvt.scalef32.pk.fp8.f32(<2 x i16> ?, float ?, float ?, float ?, i1 false)",
            {(20, "gfx942"): "wrong_instruction", (22, "gfx942"): "wrong_instruction", (22, "gfx950"): "ok"},
        ),
        (
            "call <8 x i16> @llvm.amdgcn.ds.read.tr16.b128(ptr addrspace(3) ?)",
            {(22, "gfx942"): "name_absent", (22, "gfx950"): "name_absent"},
        ),
        (
            "call void @llvm.amdgcn.load.to.lds.p1(ptr addrspace(1) ?, ptr addrspace(3) ?, i32 4, i32 0, i32 0)",
            {(20, "gfx950"): "name_absent", (22, "gfx950"): "ok"},
        ),
        ("call i32 @llvm.amdgcn.permlane64(i32 ?)", {(22, "gfx942"): "crash:per_lane"}),
    ],
    ids=lambda value: value[:70] if isinstance(value, str) else "",
)
def test_the_known_traps_are_in_the_table(text, expected):
    assert {(llvm, processor): status(text, processor, llvm) for llvm, processor in expected} == expected


def test_the_table_is_whole_and_in_words_that_are_explained():
    table = measured()
    assert len(table.rows) > 150 and set(table.tools) == {"llvm20", "llvm22", "assembler", "linker"}
    assert len({row.statement for row in table.rows}) == len(table.rows)
    assert {row.statement for row in table.rows} >= set(candidates())
    for row in table.rows:
        assert set(row.status) == {20, 22}
        for found in row.status.values():
            assert set(found) == set(PROCESSORS)
            assert {each.partition(":")[0] for each in found.values()} <= set(STATUSES)
    assert {
        each.partition(":")[0] for row in table.rows for found in row.status.values() for each in found.values()
    } == set(STATUSES)


def test_the_file_is_written_as_it_is_read():
    table = measured()
    text = table.to_json()
    assert Legality.from_json(text).to_json() == text and json.loads(text)["schema"].startswith("kinfolk.amdgcn")
    with pytest.raises(ValueError, match="schema else/2"):
        Legality.from_json(text.replace("kinfolk.amdgcn.legality/1", "else/2"))


def test_every_call_of_every_op_is_measured_and_legal_here():
    """The table is kept up with the lowerings: what any op may write for any type stands in it, for both LLVMs."""
    arch = an_arch()
    found = statements_of(arch, (20, 22), [row.statement for row in measured().rows])
    for statement, users in found.items():
        row = measured().find(statement)
        assert row is not None, f"{statement} is not in the table; run tools/measure_legality.py"
        for llvm, names in users.items():
            assert set(names) <= set(row.used_by[llvm]), f"{statement}: run tools/measure_legality.py"
            assert measured().status(row, "gfx942", llvm) == "ok", (statement, names, llvm)
    collected = {op for users in found.values() for names in users.values() for op in names}
    assert {"core.exp2", "core.bound", "core.view_load", "core.shuffle_xor", "amdgcn.read_lane"} <= collected
    assert len(found) > 50


def test_a_call_that_is_absent_is_refused_when_lowered_with_what_there_is_instead():
    op = marker("own.absent", "llvm.amdgcn.tanh.f32")
    table = Legality(
        (
            Row(statement=Statement("call void @llvm.amdgcn.tanh.f32()"), status={22: {"gfx942": "arch_absent"}}),
            Row(statement=Statement("call float @llvm.amdgcn.tanh.f32.x(float ?)"), status={22: {"gfx942": "ok"}}),
        )
    )
    with pytest.raises(IllegalOp) as caught:
        lowered(op, lower=partial(lower_kernel, legality=table))
    said = str(caught.value)
    for part in ("own.absent", "test-gfx942", "gfx942 with LLVM 22", "arch_absent", "it has llvm.amdgcn.tanh.f32.x"):
        assert part in said
    assert "test_legality.py" in said  # where it was built


def test_a_call_that_was_never_measured_is_refused():
    with pytest.raises(IllegalOp, match=r"own.new.*llvm.amdgcn.no.such has not been measured for gfx942 with LLVM 22"):
        lowered(marker("own.new", "llvm.amdgcn.no.such"))
    with pytest.raises(IllegalOp, match="has not been measured for gfx90a"):
        lowered(marker("own.barrier", "llvm.amdgcn.s.barrier"), processor="gfx90a")


def test_a_call_that_is_there_is_written():
    """Negative control of the refusals, also for an LLVM newer than any measured: by rank, and for one's own table."""
    op = marker("own.barrier", "llvm.amdgcn.s.barrier")
    for llvm in (20, 22, 23):
        assert "call void @llvm.amdgcn.s.barrier()" in lowered(op, llvm)
    unjudged = partial(lower_kernel, legality=None)
    assert "llvm.amdgcn.no.such" in lowered(marker("own.new", "llvm.amdgcn.no.such"), lower=unjudged)


def test_legality_is_by_llvm_generation():
    text = Statement("call void @llvm.amdgcn.later()")
    table = Legality((Row(statement=text, status={20: {"gfx942": "name_absent"}, 22: {"gfx942": "ok"}}),))
    op, lower = marker("own.later", "llvm.amdgcn.later"), partial(lower_kernel, legality=table)
    assert lowered(op, 22, lower=lower)
    with pytest.raises(IllegalOp, match=r"name_absent on gfx942 with LLVM 20.*nothing of its kind"):
        lowered(op, 20, lower=lower)


def test_an_op_that_is_lacking_is_refused_where_it_is_built():
    absent = Statement("call void @llvm.amdgcn.absent()")
    here = Row(
        statement=absent,
        status={20: {"gfx942": "crash", "gfx950": "crash"}, 22: {"gfx942": "arch_absent", "gfx950": "ok"}},
        used_by={20: ("own.absent",), 22: ("own.absent",)},
    )
    table = Legality((here,))
    op = marker("own.absent", "llvm.amdgcn.absent")
    without = table.lacking("gfx942", [op.name, "core.add"])
    assert list(without) == ["own.absent"] and table.lacking("gfx950", [op.name]) == {}
    assert list(table.lacking("gfx950", [op.name], llvm=20)) == ["own.absent"]
    arch = an_arch(own=(op,), without=without)
    assert not arch.has("own.absent")
    with pytest.raises(IllegalOp, match=r"own.absent is not legal on test-gfx942: llvm.amdgcn.absent is arch_absent"):
        build_kernel("k", (), arch=arch, block=64, body=lambda: op.add() and None)


@pytest.mark.parametrize("processor", PROCESSORS)
def test_no_portable_op_is_lacking(processor):
    names = [op.name for op in (*CORE_OPS, *ops.OPS)]
    assert lacking(processor, names) == {}
    assert measured().lacking(processor, names, llvm=20) == measured().lacking(processor, names, llvm=22) == {}


def test_what_is_instead_is_of_its_kind_and_there():
    row = measured().find(Statement(LOAD_TO_LDS.format(16)))
    assert row is not None
    assert measured().instead(row, "gfx942", 22) == tuple(f"llvm.amdgcn.global.load.lds ({size})" for size in (1, 2, 4))
    refusal = measured().refusal(Statement(LOAD_TO_LDS.format(16)), "gfx942", 22)
    assert refusal is not None and "llvm.amdgcn.global.load.lds (16) is arch_absent on gfx942 with LLVM 22" in refusal
    assert measured().refusal(Statement(LOAD_TO_LDS.format(16)), "gfx950", 22) is None
    assert "has not been measured" in str(measured().refusal(Statement(LOAD_TO_LDS.format(3)), "gfx950", 22))


def test_vectors_of_llvms_own_intrinsics_may_have_any_length():
    wide = Statement("call <3 x float> @llvm.fma.v3f32(<3 x float> ?, <3 x float> ?, <3 x float> ?)")
    assert measured().refusal(wide, "gfx942", 22) is None
    other = Statement("call <3 x half> @llvm.fma.v3f16(<3 x half> ?, <3 x half> ?, <3 x half> ?)")
    assert "has not been measured" in str(measured().refusal(other, "gfx942", 22))


def test_a_written_call_is_found_whatever_its_names_and_literals():
    written = Statement.of_call(
        "i32", "llvm.amdgcn.update.dpp.i32", ("i32 poison", "i32 %v.7", "i32 177", "i32 15", "i32 15", "i1 true")
    )
    assert written.text == "call i32 @llvm.amdgcn.update.dpp.i32(i32 ?, i32 ?, i32 177, i32 15, i32 15, i1 true)"
    assert measured().find(written) is not None
    stage = ("ptr addrspace(1) %x", "ptr addrspace(3) @k.workgroup0", "i32 immarg 16", "i32 0", "i32 0")
    found = measured().find(Statement.of_call("void", "llvm.amdgcn.global.load.lds", stage))
    assert found is not None and found.statement == Statement(LOAD_TO_LDS.format(16))
    with pytest.raises(InternalError, match="no type or no value"):
        _ = Statement("call void @f(i32)").literals


class FakeLane:
    """A compiler of which everything is known: each trap in one word of the statement."""

    def __init__(self):
        self.seen = []

    def compile(self, llvm_ir, processor):
        self.seen.append((processor, llvm_ir))
        for word, said in {
            "absent": "the worker ended with signal 6; LLVM ERROR: Cannot select: intrinsic",
            "dies": "the worker ended with signal 11",
            "refused": "Intrinsic has incorrect argument type!",
        }.items():
            if f"@{word}" in llvm_ir:
                raise ToolError(f"compiling probe failed: {said}")
        lines = ["\ts_nop 0 ; comment", ".LBB0_1:", "\ts_wrong" if "@wrong" in llvm_ir else "\ts_endpgm"]
        if "@folded" in llvm_ir and "load" in llvm_ir:
            lines.append("\ts_wrong")
        return llvm_ir.encode(), "\n".join(["\t.text", "probe:", *lines, "\t.section x", "\ts_wrong"])

    def link(self, code):
        if b"@nobody" in code:
            raise ToolError("linking failed: undefined hidden symbol: nobody")
        return code

    def refused_lines(self, lines, processor):
        return {number for number, line in enumerate(lines) if line == "s_wrong"}


def test_each_way_to_fail_has_its_status():
    names = ("fine", "absent", "dies", "refused", "nobody", "wrong", "folded")
    statements = [Statement(f"call void @{name}(i32 ?)") for name in names]
    expected = [
        "ok",
        "arch_absent",
        "crash",
        "rejected",
        "name_absent",
        "wrong_instruction",
        "wrong_instruction:per_lane",
    ]
    assert statuses(statements, FakeLane(), "gfx942") == expected
    rows = measure(statements, {statements[0]: {22: ("own.op",)}}, {22: FakeLane()}, PROCESSORS)
    assert [row.statement for row in rows] == sorted(statements)
    fine = next(row for row in rows if row.statement == statements[0])
    assert fine.status == {22: {"gfx942": "ok", "gfx950": "ok"}} and fine.used_by == {22: ("own.op",)}


def test_a_linker_that_fails_otherwise_is_no_status():
    class Broken(FakeLane):
        def link(self, code):
            raise ToolError("linking failed: no space left")

    with pytest.raises(ToolError, match="no space left"):
        statuses([Statement("call void @fine()")], Broken(), "gfx942")


def test_only_the_probes_own_instructions_are_looked_at():
    lines = ["", "a:", "\ts_other", "probe:", "; %bb.0:", "\ts_nop 0", ".LBB0_1:  ; %loop", "\ts_endpgm ; end"]
    lines += ["\t.section .rodata", "\ts_more"]
    assert instructions("\n".join(lines)) == ["s_nop 0", "s_endpgm"]


@pytest.mark.parametrize("uniform", [False, True])
def test_every_probe_is_ir_that_llvm_reads(llvm, uniform):
    """Compiled here is each statement that is ok on gfx942, in both forms: what fails elsewhere is not the probe's."""
    rows = [row for row in measured().rows if row.status[22]["gfx942"] == "ok"][:: 1 if uniform else 4]
    assert len(rows) > 30
    for row in rows:
        assert "s_endpgm" in llvm.ask("assembly", row.statement.module(uniform=uniform)), row.statement


def test_values_of_a_probe_are_each_lanes_own_or_the_kernels():
    statement = Statement("call i32 @llvm.amdgcn.ds.bpermute(i32 ?, i32 ?)")
    assert "load i32" in statement.module(uniform=False) and "load" not in statement.module(uniform=True)
    pointers = Statement("call <4 x i16> @llvm.amdgcn.ds.read.tr16.b64.v4i16(ptr addrspace(3) ?)")
    assert not pointers.takes_data and "load" not in pointers.module(uniform=False)


def test_a_computed_view_is_covered_too():
    """`core.bound` reads a computed base from the first lane, which is a call of its own."""
    x = Parameter(name="x", type=PointerType(F32), access="readwrite", alignment=16)

    def body(pointer):
        further = memory.offset(pointer, lanes.thread_id())
        memory.VIEW_STORE.add(memory.bound(further, lanes.wave_id()), lanes.thread_id(), memory.load(pointer))

    arch = an_arch()
    kernel = build_kernel("k", (x,), arch=arch, block=64, body=body)
    assert "readfirstlane.p1" in arch.lower(kernel, None, 22).text
